"""Where the time of a graph goes: a breakdown of its own replays.

The graph is replayed, alternately with and without timing its dispatches. The timed replay with the median duration is
broken down. Its critical path leads back from the last dispatch, each time to the one that it waited for: a dependency,
or one that held the device while the next was ready (contention). Along it every nanosecond of the command buffer is
kernel time, time between two dispatches (dispatch overhead), or its start or end. The residue is what untimed replays
take beyond the sum of these, by medians. It is negative where timing dispatches makes them slower.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import counters
from ..backends.protocol import Level
from ..errors import ArgumentError
from ..graph.graph import Graph
from ..graph.replay import Replayable
from ..ir.command_list import CommandList
from ..ir.commands import Barrier, Command, Copy, Dispatch
from ..passes.snapshot import restored, with_buffers
from ..runtime import tracing
from ..runtime.tracing import KeptTraces, Trace
from .analyse import formatting
from .analyse.critical_path import chain, predecessors_of
from .analyse.kernels import KernelFacts, details, named
from .analyse.schedules import medians
from .analyse.statistics import Interval, median_interval

if TYPE_CHECKING:
    from .calibration import Calibration

Progress = Callable[[str, int, int], None]
"""Called with the name of the next step, the number of steps done, and their total number."""

_KERNELS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Breakdown:
    """The time of a command buffer along its critical path; kernels, overhead and ends add up to the whole."""

    path: tuple[int, ...]
    """Nodes, first to last."""
    kernel_ns: float
    """Time in which dispatches of the path ran."""
    contention_ns: float
    """The part of it in which the next dispatch of the path was ready, and waited for room on the device."""
    dispatch_ns: float
    """Dispatch overhead: time between consecutive dispatches of the path."""
    ends_ns: float
    """Time before the first and after the last."""

    @property
    def total_ns(self) -> float:
        """Kernels, overhead and ends together."""
        return self.kernel_ns + self.dispatch_ns + self.ends_ns


@dataclass(frozen=True, slots=True)
class KernelCost:
    """What the dispatches of one kernel take on the critical path."""

    kernel: str
    dispatches: int
    total_ns: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """The time of a graph's replays, broken down."""

    dispatches: int
    """Dispatches, copies and fills of the graph."""
    replays: int
    """Replays without timed dispatches; there were as many with."""
    device_ns: Interval
    """From the start of the command buffer to its end, without timing its dispatches."""
    wall_ns: Interval
    """The same on the host: from calling `replay` until `wait` returns."""
    breakdown: Breakdown | None
    """None where the device cannot time dispatches."""
    kernels: tuple[KernelCost, ...]
    """The kernels of the critical path, the most expensive first."""
    untimed: int
    """Dispatches that have no time in any replay; theirs counts as overhead."""
    work_ns: float | None = None
    """The time of the bytes and operations of all dispatches at the device's ceilings; None without a calibration."""

    @property
    def host_ns(self) -> float:
        """Host overhead: calling `replay`, and waking up from the wait."""
        return self.wall_ns.estimate - self.device_ns.estimate

    @property
    def residue_ns(self) -> float | None:
        """The device time that the parts do not explain; negative where timing makes dispatches slower."""
        return None if self.breakdown is None else self.device_ns.estimate - self.breakdown.total_ns

    def __str__(self) -> str:
        took = self.device_ns
        lines = [
            f"{formatting.time(took.estimate)} on the device"
            f" ({formatting.time(took.low)} … {formatting.time(took.high)}, median of {self.replays} replays)"
            f" for {self.dispatches:,} dispatches"
        ]
        if self.breakdown is None or self.residue_ns is None:
            lines.append("the device cannot time dispatches, so there is no breakdown")
        else:
            lines += self._parts(self.breakdown, self.residue_ns)
        lines.append(_line("host overhead (the call and waking up)", self.host_ns, None))
        if self.work_ns is not None:
            lines.append(_line("all dispatches at the device's ceilings, data from memory", self.work_ns, None))
        return "\n".join(lines)

    def _parts(self, parts: Breakdown, residue_ns: float) -> list[str]:
        whole = self.device_ns.estimate
        lines = [_line(f"kernels on the critical path ({len(parts.path):,} dispatches)", parts.kernel_ns, whole)]
        for cost in self.kernels[:_KERNELS_SHOWN]:
            lines.append("  " + _line(f"{cost.kernel}, {cost.dispatches:,} ×", cost.total_ns, whole))
        if len(self.kernels) > _KERNELS_SHOWN:
            rest = self.kernels[_KERNELS_SHOWN:]
            lines.append("  " + _line(f"{len(rest):,} more kernels", sum(cost.total_ns for cost in rest), whole))
        if parts.contention_ns:
            lines.append("  " + _line("while the next dispatch was ready (contention)", parts.contention_ns, whole))
        untimed = f", includes {self.untimed:,} dispatches without a time" if self.untimed else ""
        lines += [
            _line(f"dispatch overhead on the critical path{untimed}", parts.dispatch_ns, whole),
            _line("start and end of the command buffer", parts.ends_ns, whole),
            _line("residue (unexplained)", residue_ns, whole),
        ]
        return lines


def _line(what: str, ns: float, whole: float | None) -> str:
    shown = f"{'−' if ns < 0 else ''}{formatting.time(abs(ns))}"
    return f"  {what}: {shown}" + (f" ({ns / whole:.0%})" if whole else "")


def explain(
    graph: Graph,
    known: Calibration | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    repetitions: int = 15,
    progress: Progress | None = None,
) -> Explanation:
    """Replays a graph, and breaks its time down. The memory that the graph writes is restored afterwards.

    `params` are the values (and buffers) of a replay. There are `repetitions` replays with timed dispatches and as many
    without, after a warm-up of each. With a calibration, the result includes the time at the device's ceilings.
    `progress` is called for every pair of replays.
    """
    if isinstance(repetitions, bool) or not isinstance(repetitions, int) or repetitions < 1:
        raise ArgumentError(f"explain: repetitions={repetitions!r} is not a positive number of replays")
    graph, values = with_buffers(graph, params or {})
    run = graph.instantiate()
    capabilities = graph.queue.backend.capabilities
    if capabilities.sampling is Level.OFF:
        reason = capabilities.sampling_reason or "no reason given"
        raise ArgumentError(f"explain: device {capabilities.name!r} cannot time command buffers: {reason}")
    times_dispatches = capabilities.sampling is Level.DISPATCHES
    plain: list[tuple[int, int]] = []
    timed: list[list[Trace]] = []
    with counters.uncounted(), restored(graph):
        for number in range(repetitions + 1):
            if progress is not None:
                progress("replays", number, repetitions + 1)
            plain.append(_untimed(run, values))
            if times_dispatches:
                timed.append(_timed(run, values))
    if progress is not None:
        progress("done", repetitions + 1, repetitions + 1)
    device_ns, wall_ns = (interval_of(column) for column in zip(*plain[1:], strict=True))
    breakdown, kernels, untimed = _taken_apart(timed) if timed else (None, (), 0)
    return Explanation(
        sum(not isinstance(node.command, Barrier) for node in graph.nodes),
        repetitions,
        device_ns,
        wall_ns,
        breakdown,
        kernels,
        untimed,
        None if known is None else known.work_ns(graph, values)[0],
    )


def break_down(start_ns: np.ndarray, end_ns: np.ndarray, edges: np.ndarray, span_ns: float) -> Breakdown:
    """Breaks a command buffer down. Times count from its start, NaN for nodes that have none; edges lead forward."""
    count = len(start_ns)
    before = predecessors_of(count, edges.tolist())
    known = ~(np.isnan(start_ns) | np.isnan(end_ns))
    start, end, ready = np.zeros(count), np.zeros(count), np.zeros(count)
    for node in range(count):
        ready[node] = max((end[p] for p in before[node]), default=0.0)
        # Medians of different replays may contradict each other a little; no node starts before its dependencies end.
        start[node] = max(start_ns[node], ready[node]) if known[node] else ready[node]
        end[node] = max(end_ns[node], start[node]) if known[node] else ready[node]
    holder = _holders(start, end, ready, known)
    path = chain(range(count), end, before, holder)
    held = [(node, holder[node]) for node in path if holder.get(node, -1) >= 0]
    kernel = float((end - start)[path].sum()) if path else 0.0
    first, last = (float(start[path[0]]), float(end[path[-1]])) if path else (0.0, 0.0)
    return Breakdown(
        path=tuple(node for node in path if known[node]),
        kernel_ns=kernel,
        contention_ns=float(sum(end[by] - max(ready[node], start[by]) for node, by in held)),
        dispatch_ns=last - first - kernel,
        ends_ns=max(span_ns, last) - (last - first),
    )


def _holders(start: np.ndarray, end: np.ndarray, ready: np.ndarray, known: np.ndarray) -> dict[int, int]:
    """For each node with a time, the dispatch that it waited for without depending on it; -1 if there is none.

    That dispatch is the last to end before the node started, and most of the node's wait was for it: what is left
    after its end is launch latency. Only dispatches with a time can hold up others.
    """
    timed = np.flatnonzero(known)
    by_end = timed[np.lexsort((timed, end[timed]))]
    ends = end[by_end]
    holders = {}
    for node in timed.tolist():
        at = int(np.searchsorted(ends, start[node], side="right")) - 1
        while at >= 0 and start[by_end[at]] >= start[node]:
            at -= 1
        other = int(by_end[at]) if at >= 0 else -1
        waited = other >= 0 and end[other] - ready[node] > start[node] - end[other]
        holders[node] = other if waited else -1
    return holders


def _untimed(run: Replayable, values: Mapping[str, Any]) -> tuple[int, int]:
    """Time of one replay on the device, and on the host."""
    begin_ns = time.perf_counter_ns()
    submission = run.replay(**values)
    submission.wait()
    wall_ns = time.perf_counter_ns() - begin_ns
    times = submission.gpu_time
    assert times is not None
    return times[1] - times[0], wall_ns


def _timed(run: Replayable, values: Mapping[str, Any]) -> list[Trace]:
    """One replay with times of its dispatches: a trace for each part of a split graph."""
    keeper = KeptTraces()
    with tracing.only(keeper):
        run.replay(**values).wait()
    return sorted(keeper.traces, key=lambda trace: trace.ordinal)


def _taken_apart(replays: Sequence[Sequence[Trace]]) -> tuple[Breakdown, tuple[KernelCost, ...], int]:
    """The breakdown of a typical replay, the kernels of its path, and how many dispatches have no time."""
    lists = [trace.commands for trace in replays[0]]
    commands = [command for part in lists for command in part.commands]
    is_barrier = np.array([isinstance(command, Barrier) for command in commands], bool)
    starts, ends = (np.stack([_since_start(traces, which) for traces in replays]) for which in (0, 1))
    starts[:, is_barrier] = np.nan
    spans = np.array([(traces[-1].end_ns or 0) - (traces[0].start_ns or 0) for traces in replays], np.float64)
    start, end, span = _typical(starts, ends, spans, ~is_barrier)
    breakdown = break_down(start, end, _edges(lists, end), span)
    names = _names(commands)
    total: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for node in breakdown.path:
        total[names[node]] += end[node] - start[node]
        count[names[node]] += 1
    costs = tuple(KernelCost(name, count[name], float(ns)) for name, ns in total.most_common())
    return breakdown, costs, int((np.isnan(start) & ~is_barrier).sum())


def _since_start(traces: Sequence[Trace], which: int) -> np.ndarray:
    """Starts (0) or ends (1) of all commands of a replay, from its start; NaN where there is no time."""
    samples = [
        np.zeros((len(trace.commands), 2), np.int64) if trace.samples is None else trace.samples.astype(np.int64)
        for trace in traces
    ]
    times = np.concatenate(samples)
    since_start = (times[:, which] - (traces[0].start_ns or 0)).astype(np.float64)
    since_start[(times == 0).any(axis=1)] = np.nan
    return since_start


def _typical(
    starts: np.ndarray, ends: np.ndarray, spans: np.ndarray, wanted: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Starts, ends and span of the replay that took the median time; the first one, which warms up, is set aside.

    A single replay, because times of different ones do not fit together where dispatches ran in another order. Where
    no replay has all times, since dispatches take turns at being timed, there are only medians.
    """
    whole = np.flatnonzero(~np.isnan(starts[1:, wanted]).any(axis=1)) + 1
    if whole.size:
        chosen = int(whole[np.argsort(spans[whole], kind="stable")[whole.size // 2]])
        return starts[chosen], ends[chosen], float(spans[chosen])
    return _medians(starts), _medians(ends), float(np.median(spans[1:]))


def _medians(runs: np.ndarray) -> np.ndarray:
    """Of each column; the first row, which warms up, counts only where no other has a value."""
    middle = medians(runs[1:])
    return np.where(np.isnan(middle), runs[0], middle)


def _edges(lists: Sequence[CommandList], end_ns: np.ndarray) -> np.ndarray:
    """What waits for what in all parts of a graph; a part waits for what ended last before it."""
    by_part = [np.zeros((0, 2), np.int64)]
    first = 0
    for part in lists:
        edges = part.order.edges.astype(np.int64).reshape(-1, 2) + first
        by_part.append(edges)
        if first:
            roots = np.setdiff1d(np.arange(first, first + len(part)), edges[:, 1])
            last = int(np.nan_to_num(end_ns[:first]).argmax())
            by_part.append(np.column_stack([np.full(roots.size, last), roots]))
        first += len(part)
    return np.concatenate(by_part)


def _names(commands: Sequence[Command]) -> list[str]:
    """The kernel of each command as reports name it."""
    facts = []
    for command in commands:
        if isinstance(command, Dispatch):
            origin = command.kernel.origin
            source = ("", "", ()) if origin is None else (origin.file, origin.digest, origin.values)
            facts.append(KernelFacts("dispatch", command.kernel.name, *source))
        else:
            kind = "barrier" if isinstance(command, Barrier) else "copy" if isinstance(command, Copy) else "fill"
            facts.append(KernelFacts(kind, kind, "", ""))
    return [named(each.name, detail) for each, detail in zip(facts, details(facts), strict=True)]


def interval_of(values: Sequence[float]) -> Interval:
    """The median of some times with its interval; with too few for an interval, the smallest and the largest."""
    return median_interval(values) or Interval(float(np.median(values)), float(np.min(values)), float(np.max(values)))
