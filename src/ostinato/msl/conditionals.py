"""Conditional expressions ``c ? a : b`` for a target whose half is a class.

Such a class converts implicitly to and from float, so C++ cannot choose a type for ``c ? half : float``. The arms are
therefore wrapped in ``__ost::arm`` and the whole expression in ``__ost::disarm``, between which a half converts only to
float; everything else passes unchanged (half_cuda.h).
"""

from __future__ import annotations

from .rewriter import Rewriter
from .syntax import Syntax
from .tokens import IDENTIFIER, NUMBER

_BEFORE_CONDITION = frozenset("= += -= *= /= %= &= |= ^= <<= >>= , ; ( [ { ? : return else do case".split())
_AFTER_ARGUMENTS = frozenset("( ) :: { , ; > & *".split())
_BEFORE_TYPE = frozenset("; { } ( , const constexpr static typename using = thread threadgroup device".split())
_AS_THEY_ARE = frozenset({"true", "false", "nullptr"})


def arm_conditionals(syntax: Syntax, rewriter: Rewriter) -> None:
    """Wraps the arms and the whole of every conditional expression, except in template arguments."""
    places = _Places(syntax)
    # Backwards, so that a nested expression is complete when the arm around it is wrapped.
    for question in range(syntax.count - 1, -1, -1):
        if syntax.texts[question] != "?" or rewriter.is_deleted(question) or question in places.template_arguments:
            continue
        colon = places.colons.get(question, syntax.count)
        start = _start(syntax, question)
        if colon >= syntax.count or start >= question:
            continue
        end = places.end(colon + 1)
        rewriter.before(start, "__ost::disarm(", outermost=True)
        arms = ((question + 1, colon), (colon + 1, end))
        # Beside nullptr, which is a class here, an array has to become a pointer first.
        beside_null = any(syntax.texts[begin:finish] == ["nullptr"] for begin, finish in arms)
        for begin, finish in arms:
            # A plain number is not a half, and 0 may be a null pointer.
            if not (finish == begin + 1 and _passes(syntax, begin)):
                rewriter.before(begin, "__ost::arm(+(" if beside_null else "__ost::arm(", outermost=True)
                rewriter.after(finish - 1, "))" if beside_null else ")")
        rewriter.after(end - 1, ")")


def _passes(syntax: Syntax, index: int) -> bool:
    token = syntax.tokens[index]
    return token.text in _AS_THEY_ARE or (token.kind == NUMBER and not token.text.lower().endswith("h"))


class _Places:
    """The parts of all conditional expressions of a source, found in one pass."""

    def __init__(self, syntax: Syntax) -> None:
        self.syntax = syntax
        self.colons: dict[int, int] = {}
        """The ``:`` of each ``?``."""
        self.template_arguments: set[int] = set()
        """Each ``?`` between ``<`` and ``>`` that hold template arguments."""
        self._ends: dict[int, int] = {}
        questions: list[int] = []
        lists_end = -1
        around: list[tuple[list[int], int]] = []
        for index, text in enumerate(syntax.texts):
            if text == "?":
                questions.append(index)
                if lists_end > index:
                    self.template_arguments.add(index)
            elif text == ":":
                if questions:
                    self.colons[questions.pop()] = index
            elif text == "<":
                lists_end = max(lists_end, self._list_end(index))
            elif text in ("(", "[", "{"):
                around.append((questions, -1 if text == "{" else lists_end))
                questions, lists_end = [], -1
            elif text in (")", "]", "}"):
                questions, lists_end = around.pop()
            elif text == ";":
                questions, lists_end = [], -1

    def _list_end(self, index: int) -> int:
        """The ``>`` of the template arguments whose ``<`` stands at ``index``; -1 when it is none."""
        texts, tokens = self.syntax.texts, self.syntax.tokens
        closing = self.syntax.angle_end(index) if tokens[index - 1].kind == IDENTIFIER else None
        if closing is None:
            return -1
        after = tokens[closing + 1]
        declares = after.kind == IDENTIFIER and texts[index - 2] in _BEFORE_TYPE
        return closing if after.text in _AFTER_ARGUMENTS or declares else -1

    def end(self, index: int) -> int:
        """The index after the third operand that begins at ``index``."""
        syntax = self.syntax
        passed: list[int] = []
        while index < syntax.count:
            known = self._ends.get(index)
            if known is not None:
                index = known
                break
            passed.append(index)
            text = syntax.texts[index]
            if syntax.match[index] > index:
                index = syntax.match[index]
            elif text in (")", "]", "}", ";", ",", ":"):
                break
            elif text == "?":
                index = self.colons.get(index, index)
            elif text == "<" and syntax.tokens[index - 1].kind == IDENTIFIER:
                closing = syntax.angle_end(index, in_expression=True)
                index = closing if closing is not None and syntax.texts[closing + 1] in ("(", "::", "{") else index
            index += 1
        self._ends.update(dict.fromkeys(passed, index))
        return index


def _start(syntax: Syntax, question: int) -> int:
    """Where the condition before the ``?`` begins."""
    texts, match = syntax.texts, syntax.match
    index = question
    while index > 0 and texts[index - 1] not in _BEFORE_CONDITION:
        index -= 1
        if texts[index] in (")", "]", "}"):
            index = match[index]
        elif texts[index] == ">":
            opening = syntax.angle_start(index)
            if opening < index and syntax.tokens[opening - 1].kind == IDENTIFIER and syntax.angle_end(opening) == index:
                index = opening
    return index
