"""``(uint4){1, 2, 3, 4}``, which not every C++ compiler has: the type is named first, as in ``uint4{1, 2, 3, 4}``."""

from __future__ import annotations

from .rewriter import Rewriter
from .syntax import BEFORE_EXPRESSIONS, Syntax
from .tokens import IDENTIFIER

_NO_TYPE_AFTER = frozenset(("]", ">", "}", ";"))
"""Tokens before the parameters of a function or of a lambda, and before a statement."""


def rewrite_compound_literals(syntax: Syntax, rewriter: Rewriter) -> None:
    """Turns every ``(T){`` into ``__ost::itself<T>{``."""
    texts, match = syntax.texts, syntax.match
    for index, text in enumerate(texts):
        if text == "{" and texts[index - 1] == ")":
            opening, closing = match[index - 1], index - 1
            if _begins_expression(syntax, opening) and syntax.is_type(opening + 1, closing):
                rewriter.replace(opening, "__ost::itself<")
                rewriter.replace(closing, ">")


def _begins_expression(syntax: Syntax, opening: int) -> bool:
    """Whether the ``(`` at ``opening`` follows an operator of an expression, rather than the name of a function."""
    before = syntax.tokens[opening - 1]
    if before.text in _NO_TYPE_AFTER or "operator" in syntax.texts[max(0, opening - 3) : opening]:
        return False
    return before.kind != IDENTIFIER or before.text in BEFORE_EXPRESSIONS
