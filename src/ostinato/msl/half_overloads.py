"""Overloads for half that call the float overload, for a target whose half is a class.

A built-in half converts to float rather than to a class. A half that is itself a class does not: with ``f(float)`` and
``f(S)``, where ``S`` converts from any arithmetic type, a call with a half would be ambiguous. So each such overload
set gets an overload for half that does what a built-in half would do.
"""

from __future__ import annotations

from .declarations import Declarations, Function
from .overloads import formal_parameters
from .rewriter import Rewriter
from .syntax import Syntax

_HALVES = frozenset({"half", "float16_t"})


def add_half_overloads(syntax: Syntax, declarations: Declarations, rewriter: Rewriter) -> None:
    """Beside every ``f(float)`` that has overloads and none for half, writes one for half that calls it."""
    by_name: dict[tuple[tuple[str, ...], str], list[Function]] = {}
    for function in declarations.functions:
        if not function.in_struct and not function.special and not function.templates:
            by_name.setdefault((function.scope, function.name), []).append(function)
    for overloads in by_name.values():
        types = [tuple(parameter.type for parameter in formal_parameters(syntax, function)) for function in overloads]
        if len(set(types)) < 2 or any(_HALVES & set(word.split()) for taken in types for word in taken):
            continue
        for function, taken in zip(overloads, types, strict=True):
            if taken == ("float",) and function.body is not None:
                name = function.name
                forward = f"inline auto {name}(half __ost_x) {{ return {name}(static_cast<float>(__ost_x)); }}"
                rewriter.after(function.end - 1, forward)
                break
