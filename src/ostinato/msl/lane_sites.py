"""Which lanes meet at a convergent call, for threads that are lanes of a warp.

In uniform flow, all existing lanes of the simdgroup are named, so that they wait for each other even if the compiler or
the hardware has separated them. Elsewhere the active lanes meet, and nobody at a barrier that orders nothing.
"""

from __future__ import annotations

from collections.abc import Collection

from .convergence import BUILTINS, Convergence
from .convergent_calls import find_calls
from .declarations import Declarations, Function
from .idle_barriers import idle_barriers
from .kernels import is_kernel
from .rewriter import Rewriter
from .syntax import Syntax
from .uniformity import analyse

_ACTIVE = "__ost::active_lanes()"


def mark_lanes(
    syntax: Syntax, declarations: Declarations, convergence: Convergence, rewriter: Rewriter, skipped: Collection[int]
) -> None:
    """Passes the lanes that meet to every convergent function of MSL."""
    calls = find_calls(syntax, declarations, BUILTINS, skipped)
    uniformity = analyse(syntax, declarations, convergence)
    for function in declarations.functions:
        if function.body is None:
            continue
        everyone = _all_lanes(syntax, function)
        bars = convergence.reaches_barrier(syntax.tokens[slice(*function.body)])
        idle = idle_barriers(syntax, declarations, function) if bars else ()
        for index in range(function.closing, function.body[1]):
            opening = calls.openings.get(index)
            if opening is not None:
                site = everyone if index in uniformity.uniform_calls else _ACTIVE
                if syntax.texts[index] == "threadgroup_barrier":
                    if site != _ACTIVE:
                        site = "__ost::Everyone{}"
                    elif index in idle:
                        site = "__ost::Nobody{}"
                comma = "," if syntax.match[opening] > opening + 1 else ""
                rewriter.after(opening, f"{site}{comma}")
            elif bars and index in uniformity.varying_returns:
                # A lane that waited for the others at the end of the kernel would block their barriers.
                rewriter.replace(index, "return __ost::leave(__ost_sample)")


def _all_lanes(syntax: Syntax, function: Function) -> str:
    """All lanes that are with a function in uniform flow."""
    if is_kernel(syntax, function):
        return "__ost_lanes"
    return "__ost_site" if function.name in BUILTINS else "__ost::existing_lanes()"
