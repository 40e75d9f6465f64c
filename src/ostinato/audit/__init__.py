"""Checks of a command list: its barriers, by structure, and what its kernels really access, by running it.

`audit(graph)` compiles and runs nothing. It finds barriers that are missing and barriers that order nothing, and
explains each inferred barrier. With ``run=True`` it also runs the graph on the CPU, on a copy of its memory; the
graph's own buffers and device are not touched.

* Races (`races.py`): the list runs several times with only its own ordering, and once serially; the results must be the
  same.
* Declared against actual access (`accesses.py`): each dispatch runs alone; it must declare all memory that it writes.
* Kernels (`checked.py`): each dispatch runs alone, in a build that sees every access, its arguments far apart: races,
  accesses out of bounds, uninitialised memory, divergent barriers. `unwritten.py` knows what nobody has written.

Not covered: reads of memory that is declared as written, and accesses that depend on other buffer
contents or other values than those in the graph and in `params`. `ostinato check` covers more values, up to a limit,
and counts the rest (`check.py`).
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
from .checked import Requested
from .dynamic import run_all
from .families import family
from .findings import Audit, Coverage, Finding, Ignored, InferredBarrier
from .known import apart
from .limits import beyond
from .unwritten import Fresh, never_written

__all__ = ["Audit", "Coverage", "Finding", "Ignored", "InferredBarrier", "audit"]


def audit(
    graph: Graph,
    *,
    run: bool = False,
    params: Mapping[str, Any] | None = None,
    repeats: int = 5,
    limit_s: float = 30.0,
    limits: str | None = None,
    nan: bool = False,
    overflow: bool = False,
    unwritten: bool = False,
    progress: Callable[[str], None] | None = None,
    fresh: Fresh | None = None,
) -> Audit:
    """Find missing and redundant barriers and, with `run`, races, undeclared accesses and out-of-bounds accesses.

    `run=True` runs the graph on a copy of its memory, with values for its `params`, `repeats` times concurrently. If a
    single command takes longer than `limit_s`, the checks that depend on it are skipped and listed as not checked; its
    thread keeps running, since nothing can stop it. `progress` is called with a description of each step.

    `limits` names a GPU family of Apple, such as "apple7": what its devices would not run is an error, see
    `families.py`. What a comment in a source calls benign is in `Audit.ignored`, see `known.py`.
    On request: `nan` finds the operation that made an output NaN or infinite (x86-64 only), `overflow` finds overflow
    of signed integers, and `unwritten` notes elements of outputs that no thread wrote.
    `fresh` is what nobody has written of the graph's memory, see `unwritten.py`. Without it, memory that a submission
    has used counts as written.
    """
    if not isinstance(graph, Graph):
        raise ArgumentError(f"audit: expected a Graph, got {graph!r}")
    if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 1:
        raise ArgumentError(f"audit: repeats={repeats!r} is not a positive number of runs")
    allowed_s = _seconds(limit_s)
    target = None if limits is None else family(limits)
    findings = barriers.missing(graph)
    if target is not None:
        findings += beyond(graph, target)
    notes = barriers.redundant(graph)
    inferred = tuple(barriers.inferred(graph))
    coverage = Coverage(len(graph.nodes), graph.dispatches)
    if run:
        requested = Requested(nan=nan, overflow=overflow, unwritten=unwritten)
        unwritten_before = never_written(graph) if fresh is None else fresh
        tell = progress or (lambda what: None)
        ran, coverage = run_all(graph, params or {}, repeats, allowed_s, tell, requested, unwritten_before)
        findings += ran
        # A barrier in an inferred list may be what orders an access that is not declared.
        if graph.ordering is Ordering.INFERRED and any(finding.is_error for finding in ran):
            notes = []
    kept, ignored = apart(graph, (*findings, *notes))
    kept.sort(key=lambda finding: not finding.is_error)
    return Audit(tuple(kept), inferred, coverage, tuple(ignored))


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
