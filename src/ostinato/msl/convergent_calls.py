"""The calls of convergent functions in a source."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from .declarations import Declarations, Function
from .syntax import BEFORE_EXPRESSIONS, Syntax
from .tokens import IDENTIFIER

_BEFORE_DECLARATIONS = frozenset({";", "{", "}", ":", "const", "constexpr", "thread", "threadgroup", "typename"})


@dataclass(frozen=True, slots=True)
class ConvergentCalls:
    """``openings``: the ``(`` of each call by the position of its name; ``in_body`` marks the tokens of functions."""

    openings: dict[int, int]
    in_body: bytearray


def find_calls(
    syntax: Syntax, declarations: Declarations, names: Collection[str], skipped: Collection[int] = ()
) -> ConvergentCalls:
    """The calls of ``names`` in function bodies, except in functions whose name is at a ``skipped`` position."""
    declared = {function.name_at for function in declarations.functions}
    in_body = bytearray(len(syntax.tokens))
    for function in declarations.functions:
        if function.body is not None and function.name_at not in skipped:
            begin, end = function.closing, function.body[1]
            in_body[begin:end] = b"\1" * (end - begin)
            declared.update(_initialised(syntax, function))
    openings: dict[int, int] = {}
    for index, token in enumerate(syntax.tokens):
        called = token.kind == IDENTIFIER and token.text in names and in_body[index] and index not in declared
        if called and not _is_declared(syntax, index):
            opening = call_opening(syntax, index)
            if opening is not None:
                openings[index] = opening
    return ConvergentCalls(openings, in_body)


def _initialised(syntax: Syntax, function: Function) -> Iterator[int]:
    """The names before the body of a constructor: members that it initialises, which functions may be called, too."""
    index = function.closing + 1
    while syntax.texts[index] in (":", ","):
        index += 1
        yield index
        while syntax.texts[index] not in "({":
            index += 1
        index = syntax.match[index] + 1


def _is_declared(syntax: Syntax, index: int) -> bool:
    """Whether ``name(`` declares a variable rather than calling something."""
    before = syntax.tokens[index - 1]
    if before.text == ">":  # of a type `reducer<float>`, which begins a statement, or of a comparison
        start = syntax.angle_start(index - 1) - 1
        while syntax.texts[start - 1] == "::":
            start -= 2
        return syntax.texts[start - 1] in _BEFORE_DECLARATIONS
    return before.kind == IDENTIFIER and before.text not in BEFORE_EXPRESSIONS


def call_opening(syntax: Syntax, index: int) -> int | None:
    """The ``(`` of a call of the name at ``index``, behind its template arguments; None if it is not a call."""
    texts = syntax.texts
    after = index + 1
    if texts[index : index + 3] == ["operator", "(", ")"]:
        after += 2
    if after < len(texts) and texts[after] == "<":
        closing = syntax.angle_end(after, in_expression=True)
        if closing is None:
            return None
        after = closing + 1
    return after if after < len(texts) and texts[after] == "(" else None
