"""The checks that run a list: on private CPU devices, and on a copy of its memory.

`run_all` makes all checks. `run_again` runs a list again with other values passed to its kernels: the dispatches with
new values in the checked build, those before them plainly.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from .. import counters
from ..base.host import free_bytes
from ..errors import Diagnostic
from ..graph.graph import Graph
from ..ir.command_list import CapturedNode
from ..ir.commands import Barrier, Dispatch, Ordering
from ..runtime.queue import keep_for_good
from .accesses import Step, run_alone, run_plainly, strays_after
from .checked import NOTHING_MORE, Requested, run_checked
from .findings import ERROR, NOTE, Coverage, Finding, finding_about, title
from .non_finite import NOTHING, new_non_finite
from .races import compare_orders
from .replica import Replica, with_values
from .runner import Runner, SlowCommand, TookTooLong, cores
from .unwritten import Fresh

Progress = Callable[[str], None]

TOO_LONG = "took too long"
"""The kind of a finding about a command that did not end within its limit."""

_CHECKED_IS_SLOWER = 50  # measured: 10 to 80 times, by kernel
_COPIES = 4  # of the memory: live, shadow, the result of a serial run, the result of a command


def run_all(
    graph: Graph,
    params: Mapping[str, Any],
    repeats: int,
    limit_s: float,
    progress: Progress,
    requested: Requested = NOTHING_MORE,
    fresh: Fresh | None = None,
) -> tuple[list[Finding], Coverage]:
    """All checks that run the list. A single command may take `limit_s`.

    `fresh` is what nobody has written of its memory. Afterwards it is what the list leaves unwritten; empty if that
    is not known, because it was not run to its end.
    """
    with _running(graph, params, limit_s, progress, requested, fresh) as run:
        if run.starts():
            run.orders(repeats)
            run.each_alone()
        return run.findings, run.coverage()


@dataclass(frozen=True, slots=True)
class OtherValues:
    """The result of running a list with other values."""

    findings: tuple[Finding, ...]
    nodes: frozenset[int]
    """The dispatches that were checked."""
    unchecked: tuple[str, ...]
    lost: int
    """As `Coverage` has it."""


def run_again(
    graph: Graph,
    params: Mapping[str, Any],
    nodes: Collection[int],
    limit_s: float,
    budget_s: float,
    progress: Progress,
    requested: Requested = NOTHING_MORE,
    fresh: Fresh | None = None,
) -> OtherValues:
    """Check these dispatches in the checked build. Nothing is started once `budget_s` has passed.

    `fresh` is as for `run_all`.
    """
    with _running(graph, params, limit_s, progress, requested, fresh) as run:
        looked_at = run.some_of(nodes, time.monotonic() + budget_s) if run.starts() else ()
        coverage = run.coverage()
        return OtherValues(tuple(run.findings), frozenset(looked_at), coverage.unchecked, coverage.lost)


class _Run:
    """One graph being run: its copy, the private devices, and the findings."""

    def __init__(
        self,
        graph: Graph,
        limit_s: float,
        progress: Progress,
        requested: Requested,
        fresh: Fresh,
    ) -> None:
        self.graph, self.limit_s, self.progress, self.requested = graph, limit_s, progress, requested
        self._fresh, self._taken = fresh, -1
        self.findings: list[Finding] = []
        self._unchecked: list[str] = []
        self._warned: set[Diagnostic] = set()
        self._alone = self._in_checked_build = self._orders = self._lost = 0
        self._serial = Runner(workers=1)
        self._concurrent = Runner(workers=max(2, cores()))
        self._checked = Runner(workers=1, checked=True, **asdict(requested))
        self._replica: Replica | None = None

    def starts(self) -> bool:
        """Copy the memory; False if the copies do not fit."""
        total = sum(memory.nbytes for memory in self.graph.memories.values())
        if _COPIES * total + sum(mask.nbytes for mask in self._fresh.values()) > free_bytes():
            self._unchecked.append(f"nothing was run: copies of {total:,} bytes do not fit into memory")
            return False
        self.progress("copying its memory and compiling")
        graph = self.graph if self.graph.on_device else self.graph.to(self._serial.device())
        self._replica = Replica(graph, self._serial, self._fresh)
        return True

    def orders(self, repeats: int) -> None:
        """Compare concurrent runs with serial runs."""
        replica = self._usable()
        if replica is None or len(self.graph) < 2:
            return
        if self.graph.ordering is Ordering.SERIAL:
            self._unchecked.append("races: the list is serial")
            return
        self.progress("comparing concurrent runs with serial ones")
        with self._limited():
            races, self._orders = compare_orders(replica, self._concurrent, repeats, self.limit_s)
            self.findings += races
            if not self._orders:
                self._unchecked.append("races: the list crashes when it runs one command at a time")
            replica.restore(replica.blocks())

    def each_alone(self) -> None:
        """Compare declared with actual accesses, and check bounds, for each dispatch."""
        replica = self._usable()
        if replica is None:
            return
        with self._limited():
            for index in self._work():
                step = run_alone(replica, index, self._serial, self.limit_s)
                if isinstance(replica.commands[index], Dispatch):
                    self._alone += step.compared
                    if not (step.compared or step.fault):
                        self._unchecked.append(
                            f"accesses of {title(self.graph.nodes[index])}: it does not declare its accesses"
                        )
                    self._check(replica, index, step)
                self._take(replica, index, step)
            self.findings += strays_after(replica)

    def some_of(self, nodes: Collection[int], until_s: float) -> list[int]:
        """Check some dispatches, after running those before them; returns the dispatches checked."""
        looked_at: list[int] = []
        replica = self._replica
        assert replica is not None
        last = max(nodes)
        with self._limited():
            for index in self._work():
                if index > last:
                    replica.take_as_written(index)
                    self._taken = index
                    continue
                if time.monotonic() > until_s:
                    name = title(self.graph.nodes[index])
                    self._unchecked.append(f"other values, from {name} on: their time limit is used up")
                    break
                step = run_plainly(replica, index, self._serial, self.limit_s)
                if index in nodes:
                    self._check(replica, index, step)
                    looked_at.append(index)
                elif step.fault:
                    self._report_fault(index, step)
                self._take(replica, index, step)
        return looked_at

    def coverage(self) -> Coverage:
        """What was checked."""
        graph, unchecked = self.graph, tuple(dict.fromkeys(self._unchecked))
        return Coverage(
            len(graph.nodes), graph.dispatches, self._alone, self._in_checked_build, self._orders, unchecked, self._lost
        )

    def close(self) -> None:
        """Close the private devices, and free the copies unless abandoned work may still use them."""
        for runner in (self._serial, self._concurrent, self._checked):
            runner.close()
        if self._taken < max((index for index, _ in self._commands()), default=-1):
            self._fresh.clear()
        if self._replica is not None:
            if self._usable() is None:
                keep_for_good(self._replica)
            else:
                self._replica.close()

    def _usable(self) -> Replica | None:
        """The copy, unless abandoned work may still write there."""
        return None if self._serial.gave_up or self._concurrent.gave_up else self._replica

    @contextmanager
    def _limited(self) -> Iterator[None]:
        """A block that ends early, with an entry under "not checked", if something takes too long."""
        try:
            yield
        except TookTooLong as reason:
            self._unchecked.append(f"the rest of the list: {reason}")
            if isinstance(reason, SlowCommand):
                advice = "look for an endless loop; if the command is only slow, raise the time limit"
                self.findings.append(finding_about(self.graph, NOTE, TOO_LONG, (reason.node,), str(reason), advice))

    def _commands(self) -> Iterator[tuple[int, CapturedNode]]:
        return ((index, node) for index, node in enumerate(self.graph.nodes) if not isinstance(node.command, Barrier))

    def _work(self) -> Iterator[int]:
        for index, node in self._commands():
            self.progress(f"command {index + 1} of {len(self.graph)}: {title(node)}")
            yield index

    def _check(self, replica: Replica, index: int, step: Step) -> None:
        # No time at all if it is known to be too slow in the checked build.
        too_slow = step.took_ns * _CHECKED_IS_SLOWER > self.limit_s * 1e9
        became = new_non_finite(replica, index) if self.requested.nan and not step.fault else NOTHING
        checks = run_checked(replica, index, self._checked, 0.0 if too_slow else self.limit_s, became)
        step.findings += checks.findings
        step.writes_known = checks.ended
        self._lost += checks.lost
        self._warn(index, step)
        self._in_checked_build += not checks.unchecked
        if step.fault and not any(finding.is_error for finding in checks.findings):
            self._report_fault(index, step)
        elif checks.unchecked:
            self._unchecked.append(f"accesses of {title(self.graph.nodes[index])}: {checks.unchecked}")

    def _warn(self, index: int, step: Step) -> None:
        """Add what the compiler suspects of local scalars, once for each place."""
        command = self.graph.nodes[index].command
        assert isinstance(command, Dispatch)
        for warning in self._checked.kernel(command).warnings:
            if warning not in self._warned:
                self._warned.add(warning)
                why = f"{warning.message}, says the compiler, at {warning.place}"
                advice = "set it on every path, or give it an initialiser"
                step.findings.append(finding_about(self.graph, NOTE, "uninitialised", (index,), why, advice))

    def _report_fault(self, index: int, step: Step) -> None:
        why = f"it crashes when run alone: {step.fault}"
        step.findings.append(finding_about(self.graph, ERROR, "fault", (index,), why, "correct the kernel"))

    def _take(self, replica: Replica, index: int, step: Step) -> None:
        self.findings += step.findings
        replica.accept(step.changed)
        if not step.writes_known:
            replica.take_as_written(index)
        self._taken = index


@contextmanager
def _running(
    graph: Graph,
    params: Mapping[str, Any],
    limit_s: float,
    progress: Progress,
    requested: Requested,
    fresh: Fresh | None,
) -> Iterator[_Run]:
    with counters.uncounted():
        run = _Run(with_values(graph, params), limit_s, progress, requested, {} if fresh is None else fresh)
        try:
            yield run
        finally:
            run.close()
