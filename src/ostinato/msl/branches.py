"""Branches that exclude each other: whether two places of a kernel lie in different arms of one `if`.

Only an `if` counts that each thread runs at most once: in the body of the kernel, and in no loop, `switch` or lambda.
"""

from __future__ import annotations

from .declarations import Function
from .syntax import Syntax

Place = tuple[str, int, int | None]
"""File, line and column."""


def in_exclusive_arms(syntax: Syntax, function: Function, first: Place, second: Place) -> bool:
    """Whether the tokens at two places are in different arms; False if several are at one place, as out of a macro."""
    if function.body is None:
        return False
    body = range(*function.body)
    at = []
    for place in (first, second):
        tokens = ((index, syntax.tokens[index]) for index in body)
        here = [index for index, token in tokens if (token.file, token.line, token.column) == place]
        if len(here) != 1:
            return False
        at += here
    return _part(syntax, body.start, body.stop, min(at), max(at))


def _part(syntax: Syntax, begin: int, end: int, first: int, second: int) -> bool:
    """Whether the statements from `begin` on send two tokens, in their order, into the two arms of an `if`."""
    texts = syntax.texts
    while begin < end:
        after = syntax.after_statement(begin)
        if not (begin <= first and second < after):
            begin = after
        elif texts[begin] == "{":
            begin, end = begin + 1, after - 1
        elif texts[begin] == "if":
            opening = begin + (2 if texts[begin + 1] == "constexpr" else 1)
            then = syntax.match[opening] + 1
            otherwise = syntax.after_statement(then)
            if then <= first < otherwise <= second:
                return True
            if first < then:
                return False  # one is in the condition
            begin, end = (then, otherwise) if second < otherwise else (otherwise + 1, after)
        else:
            return False
    return False
