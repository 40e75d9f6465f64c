"""Where the time of a graph goes: its own replays, taken apart.

The graph is replayed, in turns with times of its dispatches and without. The timed replay that took the median time is
taken apart. Its critical path leads back from the last dispatch, each time to the one that was waited for: a
dependency, or one that held the device while the next was ready (contention). Along it every nanosecond of the command
buffer is kernel time, time between two dispatches (overhead), or its start or end. What untimed replays take beyond
the sum of these, in the median, is the residue. It is below zero where taking times costs something.
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
from ..runtime.tracing import HostSpan, Region, Trace
from .analyse import formatting
from .analyse.kernels import KernelFacts, details, named
from .analyse.statistics import Interval, median_interval

if TYPE_CHECKING:
    from .calibration import Calibration

Progress = Callable[[str, int, int], None]
"""Is told what comes next, how many steps are done, and how many there are."""

_KERNELS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Breakdown:
    """A command buffer along its critical path: kernels, overhead and ends add up to the whole."""

    path: tuple[int, ...]
    """Nodes, first to last."""
    kernel_ns: float
    """Dispatches of the path ran."""
    contention_ns: float
    """The part of it in which the next one on the path was ready, and waited for the device to have room for it."""
    dispatch_ns: float
    """Between one dispatch of the path and the next: dispatch overhead."""
    ends_ns: float
    """Before the first and after the last."""

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
    """What a graph's replays take, and what of."""

    dispatches: int
    """With copies and fills."""
    replays: int
    """So many without times of dispatches, and as many with."""
    device_ns: Interval
    """From the start of the command buffer to its end, without timing its dispatches."""
    wall_ns: Interval
    """The same on the host: from calling `replay` until `wait` is back."""
    breakdown: Breakdown | None
    """None where the device cannot time dispatches."""
    kernels: tuple[KernelCost, ...]
    """The kernels of the critical path, the costliest first."""
    untimed: int
    """Dispatches that no replay has a time of; what they take is in the overhead."""
    work_ns: float | None = None
    """What the bytes and operations of all dispatches need at the device's ceilings; None without a calibration."""

    @property
    def host_ns(self) -> float:
        """What the host adds: the call, and waking up."""
        return self.wall_ns.estimate - self.device_ns.estimate

    @property
    def residue_ns(self) -> float | None:
        """What the parts leave unexplained of the device time; below zero where taking times costs something."""
        return None if self.breakdown is None else self.device_ns.estimate - self.breakdown.total_ns

    def __str__(self) -> str:
        took = self.device_ns
        lines = [
            f"{formatting.time(took.estimate)} on the device"
            f" ({formatting.time(took.low)} … {formatting.time(took.high)}, median of {self.replays} replays)"
            f" for {self.dispatches:,} dispatches"
        ]
        if self.breakdown is None or self.residue_ns is None:
            lines.append("the device cannot time dispatches, so nothing more is known of it")
        else:
            lines += self._parts(self.breakdown, self.residue_ns)
        lines.append(_line("host: the call and waking up", self.host_ns, None))
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
            lines.append("  " + _line(f"{len(rest):,} more kernels", sum(one.total_ns for one in rest), whole))
        if parts.contention_ns:
            lines.append(
                "  " + _line("waited for by dispatches that were ready (contention)", parts.contention_ns, whole)
            )
        untimed = f", with {self.untimed:,} dispatches that have no time" if self.untimed else ""
        lines += [
            _line(f"between dispatches of the path (dispatch overhead{untimed})", parts.dispatch_ns, whole),
            _line("start and end of the command buffer", parts.ends_ns, whole),
            _line("residue, not explained", residue_ns, whole),
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
    """Replay a graph, and say what its time consists of. The memory that it writes is put back afterwards.

    `params` are the values (and buffers) of a replay. There are `repetitions` replays with times of dispatches and as
    many without, after one of each that is thrown away. With a calibration, the explanation also says what the work
    needs at the device's ceilings. `progress` is told of every pair of replays.
    """
    if isinstance(repetitions, bool) or not isinstance(repetitions, int) or repetitions < 1:
        raise ArgumentError(f"explain: repetitions={repetitions!r} is not a positive number of replays")
    graph, values = with_buffers(graph, params or {})
    run = graph.instantiate()
    capabilities = graph.queue.backend.capabilities
    if capabilities.sampling is Level.OFF:
        reason = capabilities.sampling_reason or "it says no more"
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
    """Take a command buffer apart. Times count from its start, NaN for nodes that have none; edges lead forward."""
    count = len(start_ns)
    before: list[list[int]] = [[] for _ in range(count)]
    for earlier, later in edges.tolist():
        before[later].append(earlier)
    known = ~(np.isnan(start_ns) | np.isnan(end_ns))
    start, end, ready = np.zeros(count), np.zeros(count), np.zeros(count)
    for node in range(count):
        ready[node] = max((end[one] for one in before[node]), default=0.0)
        # Medians of different replays may contradict each other a little; what waits cannot have started before.
        start[node] = max(start_ns[node], ready[node]) if known[node] else ready[node]
        end[node] = max(end_ns[node], start[node]) if known[node] else ready[node]
    # Who has no time of its own has held nobody up.
    timed = np.flatnonzero(known)
    by_end = timed[np.lexsort((timed, end[timed]))]
    ends = end[by_end]
    path: list[int] = []
    contention = 0.0
    node = int(np.lexsort((np.arange(count), end))[-1]) if count else -1
    while node >= 0:
        path.append(node)
        holder = _holder(node, start, ends, float(ready[node]), by_end) if known[node] else -1
        if holder >= 0:
            contention += float(end[holder] - max(ready[node], start[holder]))
            node = holder
        else:
            node = max(before[node], key=lambda one: end[one], default=-1)
    path.reverse()
    kernel = float((end - start)[path].sum())
    first, last = (float(start[path[0]]), float(end[path[-1]])) if path else (0.0, 0.0)
    return Breakdown(
        tuple(one for one in path if known[one]),
        kernel,
        contention,
        last - first - kernel,
        max(span_ns, last) - (last - first),
    )


def _holder(node: int, start: np.ndarray, ends: np.ndarray, ready_ns: float, by_end: np.ndarray) -> int:
    """The dispatch whose end a node waited for although it does not depend on it; -1 if there is none.

    It ended last of those that ended before the node started, and most of the node's wait was for it: what is left
    after that end is launch latency. `by_end` are the nodes by their end, `ends` these ends.
    """
    at = int(np.searchsorted(ends, start[node], side="right")) - 1
    while at >= 0 and start[by_end[at]] >= start[node]:
        at -= 1
    return int(by_end[at]) if at >= 0 and ends[at] - ready_ns > start[node] - ends[at] else -1


class _Keeper:
    """A listener that keeps the traces of what is replayed."""

    level = Level.DISPATCHES
    probes = False

    def __init__(self) -> None:
        self.traces: list[Trace] = []

    def expects(self, device: object) -> None:
        pass

    def submission(self, trace: Trace) -> None:
        self.traces.append(trace)

    def host_span(self, span: HostSpan) -> None:
        pass

    def region_begins(self, region: Region) -> None:
        pass

    def region_ends(self, region: Region, end_ns: int) -> None:
        pass


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
    keeper = _Keeper()
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
    """Of each column; the first row counts only where no other has a value."""
    rest = runs[1:]
    seen = ~np.isnan(rest).all(axis=0)
    found: np.ndarray = runs[0].copy()
    found[seen] = np.nanmedian(rest[:, seen], axis=0)
    return found


def _edges(lists: Sequence[CommandList], end_ns: np.ndarray) -> np.ndarray:
    """What waits for what in all parts of a graph; a part waits for what ended last before it."""
    found = [np.zeros((0, 2), np.int64)]
    first = 0
    for part in lists:
        edges = part.order.edges.astype(np.int64).reshape(-1, 2) + first
        found.append(edges)
        if first:
            roots = np.setdiff1d(np.arange(first, first + len(part)), edges[:, 1])
            last = int(np.nan_to_num(end_ns[:first]).argmax())
            found.append(np.column_stack([np.full(roots.size, last), roots]))
        first += len(part)
    return np.concatenate(found)


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
    return [named(one.name, detail) for one, detail in zip(facts, details(facts), strict=True)]


def interval_of(values: Sequence[float]) -> Interval:
    """The median of some times, with its interval; of too few for one, the least and the most."""
    found = median_interval(values)
    if found is not None:
        return found
    return Interval(float(np.median(values)), float(np.min(values)), float(np.max(values)))
