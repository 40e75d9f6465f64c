"""Accesses through casts of pointers to a type of stricter alignment, for a target that does not take every address.

``*(device const uint *)block->bytes`` becomes ``__ost::load(__ost::loose<const uint *>(block->bytes, block))``, and
what is assigned to becomes ``__ost::at(…)``. So do elements (``((device uint *)bytes)[i]``) and the uses of a variable
that begins as such a cast. The shim decides by the types whether anything is to be done. An access stays as it is where
a reference to memory is needed: its address is taken, a reference is bound to it, or it may be passed by reference.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from .declarations import Declarations
from .rewriter import Rewriter
from .syntax import BEFORE_EXPRESSIONS, Syntax
from .tokens import IDENTIFIER, NUMBER

_BYTES = frozenset("char uchar int8_t uint8_t bool void".split())
"""Types that are aligned everywhere."""
_FAR = frozenset(("device", "constant"))
"""Memory in which a vector's address decides at each access through a variable; elsewhere that would cost too much."""
_CASTS = frozenset(("reinterpret_cast", "static_cast"))
_UNARY = frozenset("& * - + ! ~ ++ --".split())
_STEPS = frozenset(("++", "--"))
_HEADS = frozenset(("for", "while", "if"))
"""What is in brackets behind these is followed by a statement, not by an operator."""
_IMPURE = frozenset("++ -- = ? :: ( {".split())
_NOT_ADDED = frozenset("? , == != <= >= < > && || =".split())


@dataclass(frozen=True, slots=True)
class _Cast:
    """A cast to a pointer; positions are token indices, ends are exclusive."""

    start: int
    end: int
    type: tuple[int, int]
    operand: tuple[int, int]


def rewrite_unaligned(syntax: Syntax, declarations: Declarations, rewriter: Rewriter) -> None:
    """Rewrites every access through a cast pointer inside functions."""
    for function in declarations.functions:
        if function.body is not None:
            by_reference = "&" in syntax.texts[function.start : function.name_at]
            _Body(syntax, rewriter, function.body, by_reference).rewrite()


class _Body:
    def __init__(self, syntax: Syntax, rewriter: Rewriter, body: tuple[int, int], by_reference: bool) -> None:
        self.syntax = syntax
        self.texts = syntax.texts
        self.rewriter = rewriter
        self.body = body
        self.by_reference = by_reference
        """Whether the function returns a reference."""
        self.places: dict[str, list[int]] = {}
        """Where each name stands, ascending."""
        for index in range(*body):
            if syntax.tokens[index].kind == IDENTIFIER and self.texts[index - 1] not in (".", "->", "::"):
                self.places.setdefault(self.texts[index], []).append(index)

    def rewrite(self) -> None:
        around: list[int] = []
        for index in range(*self.body):
            if self.texts[index] == "{":
                around.append(self.syntax.match[index])
            elif self.texts[index] == "}":
                around.pop()
            cast = self._cast(index)
            if cast is not None and _BYTES.isdisjoint(self.texts[slice(*cast.type)]) and not self._access(cast):
                self._variable(cast, around[-1])

    # -- casts --------------------------------------------------------------------------------------------------------

    def _cast(self, index: int) -> _Cast | None:
        texts, match = self.texts, self.syntax.match
        if texts[index] in _CASTS and texts[index + 1] == "<":
            closing = self.syntax.angle_end(index + 1)
            if closing is None or texts[closing - 1] != "*" or texts[closing + 1] != "(":
                return None
            end = match[closing + 1]
            return _Cast(index, end + 1, (index + 2, closing), (closing + 2, end))
        if texts[index] != "(" or texts[match[index] - 1] != "*" or not self._begins(index):
            return None
        closing = match[index]
        if closing == index + 2 or not self.syntax.is_type(index + 1, closing):
            return None
        operand_end = self._operand_end(closing + 1)
        if operand_end is None:
            return None
        return _Cast(index, operand_end, (index + 1, closing), (closing + 1, operand_end))

    def _begins(self, index: int) -> bool:
        """Whether an expression may begin at ``index``; otherwise ``(`` opens parameters or arguments."""
        before = self.syntax.tokens[index - 1]
        return (before.kind != IDENTIFIER or before.text in BEFORE_EXPRESSIONS) and before.text not in (">", "]")

    def _operand_end(self, index: int) -> int | None:
        """The index after the operand of a cast that begins at ``index``; None when none does."""
        texts, tokens, match = self.texts, self.syntax.tokens, self.syntax.match
        while texts[index] in _UNARY:
            index += 1
        if texts[index] == "(":
            closing = match[index]
            after = tokens[closing + 1]
            if self.syntax.is_type(index + 1, closing) and (
                after.kind in (IDENTIFIER, NUMBER) or (texts[closing - 1] == "*" and after.text in _UNARY)
            ):
                return self._operand_end(closing + 1)
            index = closing
        elif texts[index] in _CASTS:
            index = self.syntax.angle_end(index + 1) or index
        elif tokens[index].kind not in (IDENTIFIER, NUMBER):
            return None
        return self._postfix_end(index + 1)

    def _postfix_end(self, index: int) -> int:
        texts, tokens, match = self.texts, self.syntax.tokens, self.syntax.match
        while True:
            if texts[index] in (".", "->", "::") and tokens[index + 1].kind == IDENTIFIER:
                index += 2
            elif texts[index] in ("(", "["):
                index = match[index] + 1
            elif texts[index] == "<" and tokens[index - 1].kind == IDENTIFIER:
                closing = self.syntax.angle_end(index, in_expression=True)
                if closing is None or texts[closing + 1] not in ("(", "::"):
                    return index
                index = closing + 1
            else:
                return index

    def _root(self, cast: _Cast) -> str:
        """The address of the struct that the operand is a part of, as a second argument; nothing when there is none."""
        texts = self.texts
        index, end = cast.operand
        while index < end and texts[index] in ("&", "("):
            index += 1
        start = index
        if self.syntax.tokens[index].kind != IDENTIFIER:
            return ""
        index += 1
        while index < end and texts[index] == "[":
            index = self.syntax.match[index] + 1
        if index >= end or texts[index] not in (".", "->") or _IMPURE & set(texts[start:index]):
            return ""
        return f", {'&' if texts[index] == '.' else ''}{self.rewriter.inline(start, index)}"

    def _write_cast(self, cast: _Cast, function: str) -> None:
        rewriter, root = self.rewriter, self._root(cast)
        if self.texts[cast.start] == "(":
            rewriter.replace(cast.start, f"{function}<")
            rewriter.replace(cast.operand[0] - 1, ">(")
            rewriter.after(cast.end - 1, f"{root})")
        else:
            rewriter.replace(cast.start, function)
            rewriter.before(cast.end - 1, root)

    # -- accesses -----------------------------------------------------------------------------------------------------

    def _access(self, cast: _Cast) -> bool:
        """Rewrites an access through the cast itself, if there is one."""
        texts, match = self.texts, self.syntax.match
        start, end = cast.start, cast.end
        named = texts[start] != "("
        if texts[start - 1] == "*" and not (named and texts[end] == "["):
            kind = self._kind(start - 1, end, self._is_const(cast))
            if kind:
                self._write_cast(cast, "__ost::loose")
                self.rewriter.replace(start - 1, f"__ost::{kind}(")
                self.rewriter.after(end - 1, ")")
            return True
        bracketed = texts[start - 1] == "(" and self._begins(start - 1) and self._moves(end, match[start - 1])
        if bracketed:
            start, end = start - 1, match[start - 1] + 1
        if texts[end] == "[" and (bracketed or named):
            kind = self._kind(start, match[end] + 1, self._is_const(cast))
            if kind:
                self._write_cast(cast, "__ost::loose")
                self.rewriter.before(start, f"__ost::{kind}(")
                self.rewriter.replace(end, "+ (")
                self.rewriter.replace(match[end], "))")
            return True
        if bracketed and texts[start - 1] == "*":
            kind = self._kind(start - 1, end, self._is_const(cast))
            if kind:
                self._write_cast(cast, "__ost::loose")
                self.rewriter.replace(start - 1, f"__ost::{kind}")
            return True
        return False

    def _is_const(self, cast: _Cast) -> bool:
        return not {"const", "constant"}.isdisjoint(self.texts[slice(*cast.type)])

    def _moves(self, index: int, end: int) -> bool:
        """Whether the tokens from ``index`` to ``end`` (exclusive) only add to the pointer before them."""
        texts = self.texts
        if index < end and texts[index] not in ("+", "-"):
            return False
        while index < end:
            if texts[index] in _NOT_ADDED:
                return False
            index = max(index, self.syntax.match[index]) + 1
        return True

    def _kind(self, start: int, end: int, const: bool) -> str:
        """How the access from ``start`` to ``end`` (exclusive) is written: "load", "at", or nothing to leave it."""
        texts, tokens, match = self.texts, self.syntax.tokens, self.syntax.match
        while texts[start - 1] == "(" and match[start - 1] == end and self._begins(start - 1):
            start, end = start - 1, end + 1
        if self.syntax.assigns(end) and texts[end] not in _STEPS:
            return "at"
        last = end
        while texts[last] in (".", "["):
            last = last + 2 if texts[last] == "." else match[last] + 1
        before = texts[start - 1]
        if self.syntax.assigns(last) or texts[last] == "(" or texts[last] == "->" or before in _STEPS:
            return ""
        if before == "&":
            operand = tokens[start - 2]
            binary = operand.kind in (IDENTIFIER, NUMBER) or operand.text in (")", "]")
            return "load" if binary and operand.text not in BEFORE_EXPRESSIONS else ""
        if before == "=" and texts[start - 3] == "&":
            return ""
        if before == "return" and self.by_reference:
            return ""
        whole_argument = last == end and before in ("(", ",") and texts[end] in (")", ",")
        return "" if whole_argument and not const else "load"

    # -- variables ----------------------------------------------------------------------------------------------------

    def _variable(self, cast: _Cast, block_end: int) -> None:
        """Rewrites the uses of ``T *name = cast;``, up to the end of the block."""
        texts, tokens = self.texts, self.syntax.tokens
        name_at = cast.start - 2
        if texts[cast.start - 1] != "=" or tokens[name_at].kind != IDENTIFIER or texts[name_at - 1] != "*":
            return
        start = name_at - 1
        while start > self.body[0] and texts[start - 1] not in ("(", ")", ";", "{", "}"):
            start -= 1
        semicolon = self._statement_end(cast.end)
        if start == name_at - 1 or texts[start - 1] == "(" or semicolon is None:
            return
        if not self._moves(cast.end, semicolon):
            return
        name = texts[name_at]
        places = self.places[name]
        uses = places[bisect_right(places, semicolon) : bisect_right(places, block_end)]
        const = self._is_const(cast)
        accesses = [access for use in uses if (access := self._use(use, const)) is not None]
        if not accesses or any(texts[use + 1] == "=" for use in uses):
            return
        origin = f"__ost_loose_{name}"
        root = self._root(cast)
        pointer = self.rewriter.inline(*cast.type)
        operand = self.rewriter.inline(*cast.operand)
        vectors = "false" if _FAR.isdisjoint(texts[slice(*cast.type)]) else "true"
        self.rewriter.after(
            semicolon, f"const auto {origin} = __ost::loose_variable<{pointer}, {vectors}>({operand}{root});"
        )
        for start, end, kind in accesses:
            if texts[start] == "*":
                self.rewriter.replace(start, f"__ost::{kind}(__ost::like({origin},")
                self.rewriter.after(end - 1, "))")
            else:
                self.rewriter.before(start, f"__ost::{kind}(__ost::like({origin},")
                self.rewriter.replace(start + 1, ") + (")
                self.rewriter.replace(end - 1, "))")

    def _statement_end(self, index: int) -> int | None:
        while index < self.body[1]:
            if self.texts[index] == ";":
                return index
            if self.texts[index] in (")", "]", "}", ","):
                return None
            index = max(index, self.syntax.match[index]) + 1
        return None

    def _use(self, use: int, const: bool) -> tuple[int, int, str] | None:
        """An access through the variable at ``use``: where it starts and ends (exclusive), and how it is written."""
        texts, tokens, match = self.texts, self.syntax.tokens, self.syntax.match
        start, end = use, use + 1
        if texts[end] == "[":
            end = match[end] + 1
        else:
            if texts[use - 1] == "(" and self._moves(end, match[use - 1]):
                start, end = use - 1, match[use - 1] + 1
            start -= 1
            if texts[start] != "*" or texts[end] in (".", "->", "(", "[", "++", "--"):
                return None
            operand = tokens[start - 1]
            if operand.kind in (IDENTIFIER, NUMBER) and operand.text not in BEFORE_EXPRESSIONS:
                return None
            heads_statement = operand.text == ")" and texts[match[start - 1] - 1] in _HEADS
            if operand.text in (")", "]") and not heads_statement:
                return None
        kind = self._kind(start, end, const)
        return (start, end, kind) if kind else None
