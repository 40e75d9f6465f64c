"""Which lanes meet at a convergent call, for threads that are lanes of a warp."""

from __future__ import annotations

from collections.abc import Collection

from .convergence import BUILTINS, Convergence
from .convergent_calls import find_calls
from .declarations import Declarations
from .rewriter import Rewriter
from .syntax import Syntax


def mark_lanes(
    syntax: Syntax, declarations: Declarations, convergence: Convergence, rewriter: Rewriter, skipped: Collection[int]
) -> None:
    """Passes the lanes that meet to every convergent function of MSL."""
    calls = find_calls(syntax, declarations, BUILTINS, skipped)
    for opening in calls.openings.values():
        comma = "," if syntax.match[opening] > opening + 1 else ""
        rewriter.after(opening, f"__ost::active_lanes(){comma}")
