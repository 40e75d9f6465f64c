"""Overloads for scalar types that are classes in a target's C++ (bfloat; half on CUDA), which call the float overload.

A built-in half or bfloat converts to float rather than to a class. A class does not: with ``f(float)`` and ``f(S)``,
where ``S`` converts from any arithmetic type, as vectors do, a call with it would be ambiguous. So each such overload
set gets an overload for the class that does what a built-in type would do.
"""

from __future__ import annotations

from collections.abc import Mapping

from .declarations import Declarations, Function
from .overloads import formal_parameters
from .rewriter import Rewriter
from .syntax import Syntax

BFLOAT = {"bfloat": frozenset({"bfloat", "bfloat16_t"})}
HALF = {"half": frozenset({"half", "float16_t"})}


def add_float_overloads(
    syntax: Syntax, declarations: Declarations, rewriter: Rewriter, classes: Mapping[str, frozenset[str]]
) -> None:
    """Beside every function of floats that has overloads, writes one for each class that calls it.

    ``classes`` has the spellings of each class. A set that names the class already, or that has a template, which takes
    the class as it is, stays as it is.
    """
    by_name: dict[tuple[tuple[str, ...], str], list[Function]] = {}
    for function in declarations.functions:
        if not function.in_struct and not function.special:
            by_name.setdefault((function.scope, function.name), []).append(function)
    for functions in by_name.values():
        if len(functions) < 2 or any(function.templates for function in functions):
            continue
        types = [tuple(parameter.type for parameter in formal_parameters(syntax, function)) for function in functions]
        words = {word for taken in types for text in taken for word in text.split()}
        for function, taken in zip(functions, types, strict=True):
            if function.body is None or set(taken) != {"float"}:
                continue
            if len({other for other in types if len(other) == len(taken)}) < 2:
                continue
            names = [f"__ost_{number}" for number in range(len(taken))]
            arguments = ", ".join(f"static_cast<float>({name})" for name in names)
            for scalar, spellings in classes.items():
                if spellings.isdisjoint(words):
                    parameters = ", ".join(f"{scalar} {name}" for name in names)
                    forward = f"inline auto {function.name}({parameters}) {{ return {function.name}({arguments}); }}"
                    rewriter.after(function.end - 1, forward)


def add_bfloat_overloads(syntax: Syntax, declarations: Declarations, rewriter: Rewriter) -> None:
    """The overloads for a target with a built-in half."""
    add_float_overloads(syntax, declarations, rewriter, BFLOAT)
