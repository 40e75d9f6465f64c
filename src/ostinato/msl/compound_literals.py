"""``(uint4){1, 2, 3, 4}``, which not every C++ compiler has: the type is named first, as in ``uint4{1, 2, 3, 4}``."""

from __future__ import annotations

from .rewriter import Rewriter
from .syntax import BEFORE_EXPRESSIONS, Syntax
from .tokens import IDENTIFIER

_NO_TYPE_AFTER = frozenset(("]", ">", "}", ";"))
"""Tokens before the parameters of a function or of a lambda, and before a statement."""


def rewrite_designators(syntax: Syntax, rewriter: Rewriter) -> None:
    """Turns every ``(T){.a = x, .b = y}`` into a function that assigns the members, for C++ without designators."""
    texts, match = syntax.texts, syntax.match
    for index, text in enumerate(texts):
        if text != "{" or texts[index + 1] != "." or not _is_literal(syntax, index):
            continue
        rewriter.replace(match[index - 1], "[&] {")
        rewriter.replace(index - 1, "__ost_made{};")
        rewriter.replace(index, "")
        for begin, end in syntax.split(index + 1, match[index]):
            if begin < end:
                rewriter.replace(begin, "__ost_made.")
            if end < match[index]:
                rewriter.replace(end, ";")
        rewriter.replace(match[index], "; return __ost_made; }()")


def has_designators(syntax: Syntax) -> bool:
    """Whether there are designators, as in ``T x = {.a = 1}``, that `rewrite_designators` leaves."""
    texts, tokens = syntax.texts, syntax.tokens
    return any(
        text == "{"
        and texts[index + 1] == "."
        and tokens[index + 2].kind == IDENTIFIER
        and not _is_literal(syntax, index)
        for index, text in enumerate(texts[: syntax.count])
    )


def rewrite_compound_literals(syntax: Syntax, rewriter: Rewriter) -> None:
    """Turns every ``(T){`` into ``__ost::itself<T>{``."""
    texts, match = syntax.texts, syntax.match
    for index, text in enumerate(texts):
        if text == "{" and _is_literal(syntax, index):
            rewriter.replace(match[index - 1], "__ost::itself<")
            rewriter.replace(index - 1, ">")


def _is_literal(syntax: Syntax, index: int) -> bool:
    """Whether a type in brackets stands before the ``{`` at ``index``."""
    opening = syntax.match[index - 1]
    if syntax.texts[index - 1] != ")" or not _begins_expression(syntax, opening):
        return False
    return syntax.is_type(opening + 1, index - 1)


def _begins_expression(syntax: Syntax, opening: int) -> bool:
    """Whether the ``(`` at ``opening`` follows an operator of an expression, rather than the name of a function."""
    before = syntax.tokens[opening - 1]
    if before.text in _NO_TYPE_AFTER or "operator" in syntax.texts[max(0, opening - 3) : opening]:
        return False
    return before.kind != IDENTIFIER or before.text in BEFORE_EXPRESSIONS
