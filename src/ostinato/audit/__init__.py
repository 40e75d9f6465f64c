"""Is a list of commands right? Barriers by structure, and by running it, what kernels really do.

`audit(graph)` compiles and runs nothing: it finds the barriers that are missing and those that order nothing, and says
why each inferred one is there. With ``run=True`` it also runs the graph, on the CPU and on a copy of its memory: the
graph's own buffers and device are not touched.

* Concurrent against serial (`races.py`): the list several times with nothing but its own ordering, and one command at
  a time; what they leave must be the same.
* Declared against actual access (`accesses.py`): each dispatch alone; what it writes must be declared as written.
* Bounds (`guarded.py`): each dispatch alone, in a build that runs thread by thread, its arguments between guard pages.

Not covered: threadgroup memory, reads of memory that is declared as written, and accesses that other contents of the
buffers would lead to.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from .. import counters
from ..commands import Barrier, Dispatch, Ordering
from ..device import devices
from ..errors import ArgumentError
from ..graph import Graph
from . import barriers
from .accesses import run_alone, strays_after
from .findings import ERROR, Audit, Coverage, Finding, InferredBarrier, found, title
from .guarded import run_guarded
from .races import compare_orders
from .replica import Replica, with_values
from .runner import Runner, TookTooLong, keep_for_good

__all__ = ["Audit", "Coverage", "Finding", "InferredBarrier", "audit"]

_CHECKED_IS_SLOWER = 50  # measured: 10 to 80 times, by kernel
_COPIES = 4  # of the memory: live, shadow, what serial runs leave, what a command left


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

    `run` has it run on a copy of its memory, with values for its `params`, `repeats` times concurrently. What would
    take a single dispatch longer than `limit_s` is left out, and said so. `progress` is told what is being done.
    """
    if not isinstance(graph, Graph):
        raise ArgumentError(f"audit: expected a Graph, got {graph!r}")
    if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 1:
        raise ArgumentError(f"audit: repeats={repeats!r} is not a positive number of runs")
    findings = barriers.missing(graph)
    notes = barriers.redundant(graph)
    inferred = tuple(barriers.inferred(graph))
    coverage = Coverage(len(graph.nodes), graph.dispatches)
    if run:
        with counters.uncounted():
            dynamic = _Run(graph, params or {}, repeats, limit_s, progress or (lambda what: None))
            try:
                coverage = dynamic.run()
            finally:
                dynamic.close()
        findings += dynamic.findings
        # A barrier in an inferred list may be what orders an access that is not declared.
        if graph.ordering is Ordering.INFERRED and any(finding.is_error for finding in dynamic.findings):
            notes = []
    ordered = sorted((*findings, *notes), key=lambda finding: not finding.is_error)
    return Audit(tuple(ordered), inferred, coverage)


class _Run:
    """The checks that run something."""

    def __init__(
        self,
        graph: Graph,
        params: Mapping[str, Any],
        repeats: int,
        limit_s: float,
        progress: Callable[[str], None],
    ) -> None:
        self.graph = with_values(graph, params)
        self.repeats, self.limit_s, self.progress = repeats, limit_s, progress
        self.findings: list[Finding] = []
        self.unchecked: list[str] = []
        self._one = Runner(workers=1)
        self._all = Runner(workers=max(2, _cores()))
        self._checked = Runner(workers=1, checked=True)
        self._replica: Replica | None = None

    def run(self) -> Coverage:
        """Run all checks; `findings` has what they found."""
        graph = self.graph
        coverage = Coverage(len(graph.nodes), graph.dispatches)
        total = sum(memory.nbytes for memory in graph.memories.values())
        if _COPIES * total > _free_bytes():
            return _with(coverage, [f"nothing was run: copies of {total:,} bytes do not fit into memory"])
        if not graph.on_device:
            graph = graph.to(self._one.device())
        self.progress("copying its memory and compiling")
        self._replica = replica = Replica(graph, self._one)
        orders = alone = guarded = 0
        try:
            if graph.ordering is Ordering.SERIAL:
                self.unchecked.append("races: the list is serial")
            elif len(graph.nodes) > 1:
                self.progress("comparing concurrent runs with serial ones")
                races, orders = compare_orders(replica, self._all, self.repeats, self.limit_s)
                self.findings += races
                if not orders:
                    self.unchecked.append("races: the list crashes when it runs one command at a time")
                replica.restore(replica.blocks())
            alone, guarded = self._each_alone(replica)
            self.findings += strays_after(replica)
        except TookTooLong as reason:
            self.unchecked.append(f"what is left of the list: {reason}")
            keep_for_good(replica)
            self._replica = None
        return Coverage(
            coverage.nodes, coverage.dispatches, alone, guarded, orders, tuple(dict.fromkeys(self.unchecked))
        )

    def _each_alone(self, replica: Replica) -> tuple[int, int]:
        alone = guarded = 0
        for index, node in enumerate(replica.graph.nodes):
            if isinstance(node.command, Barrier):
                continue
            name = title(node)
            self.progress(f"command {index + 1} of {len(replica.graph)}: {name}")
            step = run_alone(replica, index, self._one, self.limit_s)
            if isinstance(node.command, Dispatch):
                alone += not step.fault
                bounds = run_guarded(replica, index, self._checked, self._allowed_s(step.took_ns))
                step.findings += bounds.findings
                guarded += not bounds.unchecked
                if step.fault and not bounds.findings:
                    why = f"it crashes when it runs alone: {step.fault}"
                    step.findings.append(found(replica.graph, ERROR, "fault", (index,), why, "correct the kernel"))
                elif bounds.unchecked:
                    self.unchecked.append(f"bounds of {name}: {bounds.unchecked}")
            self.findings += step.findings
            replica.accept(step.changed)
        return alone, guarded

    def _allowed_s(self, took_ns: int) -> float:
        """How long a dispatch may take in the checked build; nothing, when it is known that it will not do."""
        return 0.0 if took_ns * _CHECKED_IS_SLOWER > self.limit_s * 1e9 else self.limit_s

    def close(self) -> None:
        """End the private devices, and give the copies back."""
        for runner in (self._one, self._all, self._checked):
            runner.close()
        if self._replica is not None:
            self._replica.close()


def _with(coverage: Coverage, unchecked: list[str]) -> Coverage:
    return Coverage(coverage.nodes, coverage.dispatches, unchecked=tuple(unchecked))


def _cores() -> int:
    return next((one.capabilities.workers for one in devices() if one.name == "cpu" and one.capabilities), 1)


def _free_bytes() -> int:
    """Memory that can be had without pushing others out."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
