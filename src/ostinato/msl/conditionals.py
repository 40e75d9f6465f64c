"""Conditional expressions ``c ? a : b`` for a target whose half is a class.

Such a class converts to float and from float by itself, so C++ cannot choose a type for ``c ? half : float``. The arms
therefore pass through ``__ost::arm`` and the whole through ``__ost::disarm``, between which a half only goes to float;
everything else passes unchanged (half_cuda.h).
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
    """Wraps the arms and the whole of every conditional expression, but for template arguments, which are no halves."""
    # Backwards, so that an expression that stands in an arm of another is complete when that arm is wrapped.
    for question in range(syntax.count - 1, -1, -1):
        if syntax.texts[question] != "?" or rewriter.is_deleted(question) or _is_template_argument(syntax, question):
            continue
        colon = _colon(syntax, question)
        start = _start(syntax, question)
        if colon >= syntax.count or start >= question:
            continue
        end = _end(syntax, colon + 1)
        rewriter.before(start, "__ost::disarm(", outermost=True)
        for begin, finish in ((question + 1, colon), (colon + 1, end)):
            # A plain number is no half, and 0 may have to stay a null pointer.
            if not (finish == begin + 1 and _passes(syntax, begin)):
                rewriter.before(begin, "__ost::arm(", outermost=True)
                rewriter.after(finish - 1, ")")
        rewriter.after(end - 1, ")")


def _passes(syntax: Syntax, index: int) -> bool:
    token = syntax.tokens[index]
    return token.text in _AS_THEY_ARE or (token.kind == NUMBER and not token.text.lower().endswith("h"))


def _is_template_argument(syntax: Syntax, question: int) -> bool:
    """Whether the ``?`` stands between ``<`` and ``>`` that hold template arguments."""
    texts, tokens = syntax.texts, syntax.tokens
    index = question - 1
    while index > 0 and texts[index] not in ("(", "[", "{", "}", ";"):
        if texts[index] in (")", "]"):
            index = syntax.match[index]
        elif texts[index] == "<" and tokens[index - 1].kind == IDENTIFIER:
            closing = syntax.angle_end(index)
            if closing is not None and closing > question:
                after = tokens[closing + 1]
                declares = after.kind == IDENTIFIER and texts[index - 2] in _BEFORE_TYPE
                if after.text in _AFTER_ARGUMENTS or declares:
                    return True
        index -= 1
    return False


def _colon(syntax: Syntax, question: int) -> int:
    """The ``:`` that belongs to the ``?``."""
    depth, index = 0, question + 1
    while index < syntax.count:
        text = syntax.texts[index]
        if syntax.match[index] > index:
            index = syntax.match[index]
        elif text == "?":
            depth += 1
        elif text == ":":
            if depth == 0:
                return index
            depth -= 1
        elif text == ";":
            break
        index += 1
    return syntax.count


def _end(syntax: Syntax, index: int) -> int:
    """The index after the third operand that begins at ``index``."""
    depth = 0
    while index < syntax.count:
        text = syntax.texts[index]
        if syntax.match[index] > index:
            index = syntax.match[index]
        elif text in (")", "]", "}", ";", ","):
            break
        elif text == "?":
            depth += 1
        elif text == ":":
            if depth == 0:
                break
            depth -= 1
        elif text == "<" and syntax.tokens[index - 1].kind == IDENTIFIER:
            closing = syntax.angle_end(index, in_expression=True)
            index = closing if closing is not None and syntax.texts[closing + 1] in ("(", "::", "{") else index
        index += 1
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
