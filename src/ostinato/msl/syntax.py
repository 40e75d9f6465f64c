"""Tokens with their brackets matched, and the questions both parser and translator ask of them.

The ends of attributes, template argument lists, declarations and statements are found by matching brackets. Answers
that are needed repeatedly (which ``>`` closes a ``<``, where a statement ends, where an expression begins) are computed
once for all tokens, so that the total work is linear in the number of tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from .tokens import IDENTIFIER, Token, fail
from .unwinding import Steps, unwound

MAX_NESTING = 1000
"""Brackets inside brackets."""

_ASSIGNING = frozenset("= += -= *= /= %= &= |= ^= <<= ++ --".split())
ADDRESS_SPACES = frozenset(
    {"device", "constant", "thread", "threadgroup", "threadgroup_imageblock", "ray_data", "object_data"}
)
_BRACKETS = {"(": ")", "[": "]", "{": "}"}
_CLOSING = frozenset(_BRACKETS.values())
_AROUND_ANGLES = frozenset({"<", ">", ";", *_BRACKETS, *_CLOSING})
_AROUND_COMPARISONS = _AROUND_ANGLES | {"&&", "||"}
BEFORE_EXPRESSIONS = frozenset("return else do case and or not xor bitand bitor compl".split())
"""Words after which an expression begins."""
_BEFORE_TYPES = ADDRESS_SPACES | frozenset(
    """const constexpr volatile static inline typename using namespace struct class union enum public private protected
    friend new""".split()
)
_QUALIFIERS = ADDRESS_SPACES | frozenset("const volatile restrict __restrict __restrict__".split())
_BUILTIN_TYPES = frozenset("unsigned signed char short int long bool half float void".split())
_AFTER_DECLARED = frozenset("; , ) = [ { : >".split())
_AFTER_ANOTHER_DECLARED = frozenset("; = [".split())


@dataclass(slots=True)
class Attribute:
    """``[[name(arguments)]]``."""

    name: str
    arguments: list[Token]


class Syntax:
    """Tokens with their brackets matched, and the questions both parser and translator ask of them."""

    def __init__(self, tokens: list[Token]) -> None:
        self.count = len(tokens)
        # A few empty tokens at the end, so that lookahead needs no bounds check.
        last = tokens[-1] if tokens else Token("end", "", "", 1)
        self.tokens = tokens + [Token("end", "", last.file, last.line)] * 8
        self.texts = [token.text for token in self.tokens]
        self.match = self._match_brackets()
        self._after: dict[int, int] = {}
        self._postfix: dict[int, int] = {}

    def _match_brackets(self) -> list[int]:
        match = [-1] * len(self.tokens)
        open_at: list[int] = []
        for index, text in enumerate(self.texts):
            if text in _BRACKETS:
                open_at.append(index)
                if len(open_at) > MAX_NESTING:
                    raise fail(f"brackets are nested more than {MAX_NESTING:,} deep", self.tokens[index])
            elif text in _CLOSING:
                if not open_at or _BRACKETS[self.texts[open_at[-1]]] != text:
                    raise fail(f"unmatched {text!r}", self.tokens[index])
                match[index] = open_at.pop()
                match[match[index]] = index
        if open_at:
            raise fail(f"{self.texts[open_at[-1]]!r} is never closed", self.tokens[open_at[-1]])
        return match

    def assigns(self, index: int) -> bool:
        """Whether an assignment operator begins at ``index``; ``>>=`` is lexed as two tokens."""
        shift = self.texts[index] == ">" and self.texts[index + 1] == ">=" and not self.tokens[index + 1].spaced
        return shift or self.texts[index] in _ASSIGNING

    @cached_property
    def declared(self) -> frozenset[str]:
        """The names that are declared as variables, parameters or members: ``T name;``, ``T &name)``, ``T a, name;``.

        Without the types, ``a * name)`` counts too: what is multiplied is no type.
        """
        names = set()
        for index, (before, token) in enumerate(pairwise(self.tokens), start=1):
            if token.kind != IDENTIFIER:
                continue
            if before.kind == IDENTIFIER:
                declares = before.text not in _BEFORE_TYPES and before.text not in BEFORE_EXPRESSIONS
            else:
                declares = before.text in ("&", "*", ">")
            after = self.texts[index + 1] if index + 1 < len(self.texts) else ""
            if after in (_AFTER_DECLARED if declares else _AFTER_ANOTHER_DECLARED if before.text == "," else ()):
                names.add(token.text)
        return frozenset(names)

    def is_attribute(self, index: int) -> bool:
        """Whether ``[[`` begins at ``index``."""
        return (
            self.texts[index] == "["
            and index + 1 < len(self.texts)
            and self.texts[index + 1] == "["
            and self.match[index + 1] + 1 == self.match[index]
        )

    def attributes_at(self, index: int) -> list[Attribute]:
        """The attributes of the ``[[…]]`` at ``index``."""
        attributes = []
        for part in self.split(index + 2, self.match[index + 1]):
            names = [i for i in range(*part) if self.tokens[i].kind == IDENTIFIER]
            if not names:
                continue
            name_at = names[0]
            while name_at + 2 < part[1] and self.texts[name_at + 1] == "::":
                name_at += 2
            inside: list[Token] = []
            if name_at + 1 < part[1] and self.texts[name_at + 1] == "(":
                inside = self.tokens[name_at + 2 : self.match[name_at + 1]]
            name = "".join(self.texts[names[0] : name_at + 1])
            attributes.append(Attribute(name, inside))
        return attributes

    def angle_end(self, index: int, end: int | None = None, in_expression: bool = False) -> int | None:
        """The index of the ``>`` that closes the ``<`` at ``index``, or None if it is a comparison.

        In a declaration ``&&`` may be part of a template argument; in an expression it ends a comparison.
        """
        closing = (self._comparisons if in_expression else self._angles).get(index)
        return closing if closing is not None and (end is None or closing < end) else None

    @cached_property
    def _angles(self) -> dict[int, int]:
        return self._match_angles(_AROUND_ANGLES)

    @cached_property
    def _comparisons(self) -> dict[int, int]:
        return self._match_angles(_AROUND_COMPARISONS)

    def _match_angles(self, events: frozenset[str]) -> dict[int, int]:
        """For each ``<`` the ``>`` that closes it, if one does before its statement or the brackets around it end.

        A ``<`` that does not follow a name opens no list for those before it: they take the same ``>``.
        """
        closing: dict[int, int] = {}
        open_lists: list[list[int]] = [[]]
        around: list[list[list[int]]] = []
        for index, text in enumerate(self.texts):
            if text not in events:
                continue
            if text == "<":
                if self.tokens[index - 1].kind == IDENTIFIER:
                    open_lists.append([index])
                else:
                    open_lists[-1].append(index)
            elif text == ">":
                closing.update(dict.fromkeys(open_lists.pop(), index))
                open_lists = open_lists or [[]]
            elif text in _BRACKETS:
                around.append(open_lists)
                open_lists = [[]]
            elif text in _CLOSING:
                open_lists = around.pop()
            else:
                open_lists = [[]]
        return closing

    def is_type(self, begin: int, end: int) -> bool:
        """Whether the tokens from ``begin`` to ``end`` (exclusive) can be a type; a lone name always can."""
        index = begin
        while index < end:
            if self.texts[index] == "<":
                closing = self.angle_end(index, end)
                if closing is None:
                    return False
                index = closing
            elif self.texts[index] == "[":
                index = self.match[index]
            elif self.tokens[index].kind != IDENTIFIER and self.texts[index] not in ("::", "*"):
                return False
            index += 1
        return begin < end

    def split(self, start: int, end: int) -> list[tuple[int, int]]:
        """Splits tokens ``start`` to ``end`` (exclusive) at commas outside all brackets, angles included."""
        if start >= end:
            return []
        parts = []
        begin = index = start
        while index < end:
            text = self.texts[index]
            if text in _BRACKETS:
                index = self.match[index]
            elif text == "<":
                index = self.angle_end(index, end) or index
            elif text == ",":
                parts.append((begin, index))
                begin = index + 1
            index += 1
        parts.append((begin, end))
        return parts

    def statement_end(self, index: int, end: int) -> int:
        """The index of the ``;`` that ends the declaration at ``index``."""
        begin = index
        while index < end:
            if self.texts[index] in _BRACKETS:
                index = self.match[index]
            elif self.texts[index] == ";":
                return index
            index += 1
        raise fail("this declaration is never ended by ';'", self.tokens[min(begin, self.count - 1)])

    def after_statement(self, index: int) -> int:
        """The index after the statement that begins at ``index``."""
        known = self._after.get(index)
        return unwound(self._find_after(index)) if known is None else known

    def _find_after(self, index: int) -> Steps[int]:
        texts, match = self.texts, self.match
        end = self.count
        begun: list[int] = []  # statements with the same end as the first of them
        while index < end:
            known = self._after.get(index)
            if known is not None:
                index = known
                break
            begun.append(index)
            text = texts[index]
            if text == "{":
                index = match[index] + 1
                break
            if text in ("for", "while", "switch", "if") and index + 1 < end:
                index += 2 if texts[index + 1] == "constexpr" else 1
                index = match[index] + 1 if index < end and texts[index] == "(" else index
                if text != "if":
                    continue
                index = yield self._find_after(index)
                if index < end and texts[index] == "else":
                    index += 1
                    continue
                break
            if text == "do":
                index = yield self._find_after(index + 1)
                if index + 1 < end and texts[index] == "while" and texts[index + 1] == "(":
                    index = match[index + 1] + 1
                index = min(index + 1, end)
                break
            while index < end and texts[index] != ";":
                if match[index] > index:
                    index = match[index]
                elif texts[index] in _CLOSING:
                    index -= 1
                    break
                index += 1
            index = min(index + 1, end)
            break
        for start in begun:
            self._after[start] = index
        return index

    def postfix_start(self, index: int) -> int:
        """Where the expression `a.b<c>::name` that ends at ``index`` begins."""
        texts, tokens, match = self.texts, self.tokens, self.match
        passed: list[int] = []
        while index > 0:
            known = self._postfix.get(index)
            if known is not None:
                index = known
                break
            passed.append(index)
            before = texts[index - 1]
            if before == "template":
                index -= 1
            elif before in (".", "->", "::"):
                index -= 1
                if index == 0:
                    break
                if texts[index - 1] == ">":
                    index = self.angle_start(index - 1)
                bracket = index
                while index > 0 and texts[index - 1] in (")", "]"):
                    index = match[index - 1]
                if index < bracket and texts[index - 1] == ">":  # a call with template arguments, `f<T>(x).member`
                    opening = self.angle_start(index - 1)
                    if self.angle_end(opening, in_expression=True) == index - 1:
                        index = opening
                if index > 0 and (tokens[index - 1].kind == IDENTIFIER and texts[index - 1] not in BEFORE_EXPRESSIONS):
                    index -= 1
                elif before == "::":
                    break
            else:
                break
        for place in passed:
            self._postfix[place] = index
        return index

    def angle_start(self, closing: int) -> int:
        """The ``<`` that the ``>`` at ``closing`` closes; ``closing`` itself when there is none."""
        return self._opening_angles.get(closing, closing)

    @cached_property
    def _opening_angles(self) -> dict[int, int]:
        opening: dict[int, int] = {}
        waiting: list[int] = []
        for index, text in enumerate(self.texts):
            if text == "<":
                waiting.append(index)
            elif text == ">":
                if waiting:
                    opening[index] = waiting.pop()
            elif text in (";", "{", "}"):
                waiting.clear()
        return opening


def ends_with_name(words: Sequence[str]) -> bool:
    """Whether the last word of a parameter is its name, not a part of its type: it follows one that is a type."""
    if words[-1] in _QUALIFIERS or words[-1] in _BUILTIN_TYPES:
        return False
    before = [word for word in words[:-1] if word not in _QUALIFIERS]
    return bool(before) and before[-1] not in ("::", "typename", "struct", "class", "union", "enum")


def text_of(tokens: Sequence[Token]) -> str:
    """Tokens as readable text."""
    return "".join((" " if index and token.spaced else "") + token.text for index, token in enumerate(tokens))


def separate_text(tokens: Sequence[Token]) -> str:
    """Tokens as text in which no two of them merge, except the two halves of ``>>``."""
    parts: list[str] = []
    for index, token in enumerate(tokens):
        shift = index and tokens[index - 1].text == ">" and token.text[0] == ">" and not token.spaced
        parts.append(token.text if shift or not index else " " + token.text)
    return "".join(parts)
