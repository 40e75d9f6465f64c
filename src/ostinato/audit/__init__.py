"""Is a list of commands right? Barriers by structure, and by running it, what kernels really do.

`audit(graph)` compiles and runs nothing: it finds the barriers that are missing and those that order nothing, and says
why each inferred one is there. With ``run=True`` it also runs the graph, on the CPU and on a copy of its memory: the
graph's own buffers and device are not touched.

* Concurrent against serial (`races.py`): the list several times with nothing but its own ordering, and one command at
  a time; what they leave must be the same.
* Declared against actual access (`accesses.py`): each dispatch alone; what it writes must be declared as written.
* Bounds (`guarded.py`): each dispatch alone, in a build that runs thread by thread, its arguments between guard pages.

Not covered: threadgroup memory, reads of memory that is declared as written, and accesses that other contents of the
buffers would lead to, or other values passed to kernels than those in the graph and in `params`. `ostinato check` looks
at more values, up to a limit, and counts the rest (`check.py`).
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import ArgumentError
from ..graph.graph import Graph
from ..ir.commands import Ordering
from . import barriers
from .dynamic import run_all
from .findings import Audit, Coverage, Finding, InferredBarrier

__all__ = ["Audit", "Coverage", "Finding", "InferredBarrier", "audit"]


def audit(
    graph: Graph,
    *,
    run: bool = False,
    params: Mapping[str, Any] | None = None,
    repeats: int = 5,
    limit_s: float = 30.0,
    progress: Callable[[str], None] | None = None,
) -> Audit:
    """Look for what is wrong with a graph.

    `run` has it run on a copy of its memory, with values for its `params`, `repeats` times concurrently. Where a single
    command takes longer than `limit_s`, that and what depends on it is left out, and said so; its thread is left
    running, since nothing can stop it. `progress` is told what is being done.
    """
    if not isinstance(graph, Graph):
        raise ArgumentError(f"audit: expected a Graph, got {graph!r}")
    if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 1:
        raise ArgumentError(f"audit: repeats={repeats!r} is not a positive number of runs")
    allowed_s = _seconds(limit_s)
    findings = barriers.missing(graph)
    notes = barriers.redundant(graph)
    inferred = tuple(barriers.inferred(graph))
    coverage = Coverage(len(graph.nodes), graph.dispatches)
    if run:
        ran, coverage = run_all(graph, params or {}, repeats, allowed_s, progress or (lambda what: None))
        findings += ran
        # A barrier in an inferred list may be what orders an access that is not declared.
        if graph.ordering is Ordering.INFERRED and any(finding.is_error for finding in ran):
            notes = []
    ordered = sorted((*findings, *notes), key=lambda finding: not finding.is_error)
    return Audit(tuple(ordered), inferred, coverage)


def _seconds(limit_s: Any) -> float:
    seconds = math.nan
    if isinstance(limit_s, numbers.Real) and not isinstance(limit_s, bool):
        try:
            seconds = float(limit_s)
        except OverflowError:
            seconds = math.inf
    if not seconds > 0:
        raise ArgumentError(f"audit: limit_s={limit_s!r} is not a positive number of seconds")
    return seconds
