"""Which dispatches determine the wall time of a command buffer, and what a faster kernel would save.

The schedule of a plan holds the median start and duration of each node over its submissions. The gap of a node is the
time from the end of its last predecessor to its own start: launch latency, mostly. It is never negative: medians of
different nodes may contradict each other a little, but no node starts before its dependencies end. Evaluating the
schedule with other durations and the *same* gaps gives the wall time they would lead to: start = latest end of the
predecessors + gap.

On a CPU, a node that could have started earlier, and started right when another one ended, waited for the worker that
ran the other one. It would start earlier if that one ended earlier, so that one counts as a predecessor too.

Dependencies alone do not hold a node back where the device is full. Stretches of a plan in which nodes may overlap and
together want more workers than there are (*contention*) are replayed on that many workers, see `capacity.py`. Where the
replay does not come close to the measured time, the savings and the slack of the nodes there are not known.

Everything is linear in nodes and edges except for contention, which is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from . import capacity
from .capacity import Contention, Sharing
from .columns import Flags, Floats, Ints
from .timeline import busy_share

_MAX_CONTENDED = 5_000
"""Nodes under contention that are replayed, per plan; beyond these nothing is known."""
_MAX_SLACK_STEPS = 10_000
"""Slack under contention is found by bisection, node by node, until the squares of the sizes add up to this."""
_PICKED_UP_NS = 5000.0
"""A node that starts within this time from the end of another was started by the worker that ran it."""
_SHORTEST_WAIT_NS = 5000.0
"""Shorter waits are launch latency."""
_FITS_AMONG_OTHERS = 0.3
"""The largest residue of a single stretch where all stretches of a plan fit together."""
NOT_KNOWN = "competes for a full device and no replay reproduces how, so its saving is only an upper bound"


@dataclass(frozen=True, slots=True)
class Workers:
    """The workers of a device, and how many of them each node can use."""

    count: int
    useful: Floats
    sharing: Sharing = Sharing.FIRST


@dataclass(frozen=True, slots=True)
class Schedule:
    """One plan as it ran: medians over its submissions, times from the start of the command buffer."""

    plan: int
    submissions: int
    """How many command buffers it stands for."""
    wall_ns: float
    start_ns: Floats
    duration_ns: Floats
    """0 for what was not sampled; its time is then in the gap of what follows."""
    gap_ns: Floats
    predecessors: tuple[tuple[int, ...], ...]
    """What each node waits for: its dependencies, and the node that ran on its worker."""
    order: tuple[int, ...]
    """Every node after its predecessors."""
    measured: Flags
    contention: tuple[Contention, ...] = ()
    """Stretches of `order` that compete for a full device."""
    unknown: Flags | None = None
    """Nodes under contention without a replay: the stretch is too large, or the replay did not fit."""

    @property
    def device_share(self) -> Floats:
        """The part of the device that each node had while it ran: the most that the wall shrinks by per ns saved."""
        share = np.ones(self.start_ns.size)
        for contention in self.contention:
            nodes = list(contention.nodes)
            ran = self.duration_ns[nodes] > 0
            had = np.divide(contention.work_ns, self.duration_ns[nodes], out=np.zeros(len(nodes)), where=ran)
            share[nodes] = np.minimum(had / contention.workers, 1.0)
        return share


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The chain of nodes that determines the wall time."""

    nodes: tuple[int, ...]
    execution_ns: float
    """Time in which its dispatches ran."""
    gap_ns: float
    """Time between them, before the first and after the last."""
    slack_ns: Floats
    """By how much each node could take longer without extending the wall time; NaN where that is not known."""


def predecessors_of(count: int, edges: Iterable[tuple[int, int]]) -> list[list[int]]:
    """What each of `count` nodes depends on, given (before, after) pairs."""
    predecessors: list[list[int]] = [[] for _ in range(count)]
    for before, after in edges:
        predecessors[after].append(before)
    return predecessors


def chain(
    order: Sequence[int], ends: Floats, predecessors: Sequence[Sequence[int]], held_up_by: Mapping[int, int]
) -> list[int]:
    """The nodes that the last end goes back to, first to last; each waits for the one before it.

    That is the node in `held_up_by`, if there is one, and else the predecessor that ended last.
    """
    # Of several that end last, the last in order: a chain then contains all of its nodes.
    node = max(reversed(order), key=lambda n: ends[n], default=-1)
    path: list[int] = []
    while node >= 0:
        path.append(node)
        before = held_up_by.get(node, -1)
        node = before if before >= 0 else max(predecessors[node], key=lambda p: ends[p], default=-1)
    return path[::-1]


def schedule(
    plan: int,
    submissions: int,
    start_ns: Floats,
    duration_ns: Floats,
    wall_ns: float,
    edges: tuple[Ints, Ints],
    workers: Workers | None = None,
    runs: tuple[Floats, Floats] | None = None,
) -> Schedule:
    """The schedule of measured starts and durations; NaN where a node has no time.

    Without `workers` there is no contention. `runs` are the starts and durations of single submissions, a row each,
    where the other times are medians of several.
    """
    measured = ~np.isnan(start_ns)
    before, after = edges
    predecessors = predecessors_of(start_ns.size, zip(before.tolist(), after.tolist(), strict=True))
    start = np.where(measured, start_ns, 0.0)
    duration = np.where(measured, duration_ns, 0.0)
    order = _order(start, measured, predecessors)
    contention: list[Contention] = []
    unknown = None
    if workers is not None:
        single = runs or (start_ns[None, :], duration_ns[None, :])
        contention, unknown = _contention(order, predecessors, workers, np.where(measured, workers.useful, 0.0), single)
        if workers.sharing is Sharing.FIRST:
            contended = {node for stretch in contention for node in stretch.nodes}
            _add_waits_for_workers(start, duration, measured, predecessors, order, contended)
    gaps = _gaps(start, duration, measured, predecessors, order)
    waits = tuple(map(tuple, predecessors))
    return Schedule(
        plan, submissions, wall_ns, start, duration, gaps, waits, tuple(order), measured, tuple(contention), unknown
    )


def _contention(
    order: list[int],
    predecessors: list[list[int]],
    workers: Workers,
    useful: Floats,
    runs: tuple[Floats, Floats],
) -> tuple[list[Contention], Flags]:
    """The stretches whose replay fits, and the nodes of the others."""
    unknown = np.zeros(len(order), bool)
    start, duration = runs
    # Everything that stands before a stretch has ended when it begins.
    ended = np.fmax.accumulate((start + duration)[:, order], axis=1)
    place = _places(order)
    replayed: list[Contention] = []
    budget = _MAX_CONTENDED
    for nodes in capacity.contended(order, predecessors, useful, workers.count):
        first = int(place[nodes[0]])
        begin = np.nan_to_num(ended[:, first - 1]) if first else np.zeros(len(start))
        own = {node: number for number, node in enumerate(nodes)}
        whole = ~np.isnan(start[:, nodes][:, useful[nodes] > 0]).any(axis=1)
        budget -= len(nodes)
        if budget < 0 or not whole.any():
            unknown[nodes] = True
            continue
        inner = tuple(tuple(own[p] for p in predecessors[node] if p in own) for node in nodes)
        stretch = Contention(tuple(nodes), inner, tuple(useful[nodes].tolist()), workers.count, workers.sharing)
        since_begin = np.maximum(start[whole][:, nodes] - begin[whole, None], 0.0)
        replayed.append(capacity.calibrated(stretch, since_begin, duration[whole][:, nodes]))
    # Where there are many, that some are off by chance says nothing against all of them together.
    off = sum(stretch.residue * stretch.wall_ns for stretch in replayed)
    together = off <= capacity.FITS * sum(stretch.wall_ns for stretch in replayed)
    limit = _FITS_AMONG_OTHERS if together else capacity.FITS
    for stretch in replayed:
        unknown[list(stretch.nodes)] = stretch.residue > limit
    return [stretch for stretch in replayed if stretch.residue <= limit], unknown


def _places(order: Sequence[int]) -> Ints:
    """The place of each node in an order."""
    place = np.empty(len(order), np.int64)
    place[list(order)] = np.arange(len(order))
    return place


def _order(start: Floats, measured: Flags, predecessors: list[list[int]]) -> list[int]:
    """By start where that respects the dependencies, else as encoded, which always does."""
    # What has no time of its own takes its place right after what it waits for.
    when = start.copy()
    for node, before in enumerate(predecessors):
        if not measured[node]:
            when[node] = max((when[p] for p in before), default=0.0)
    order: list[int] = np.lexsort((np.arange(start.size), when)).tolist()
    place = _places(order)
    fits = all(place[p] < place[node] for node, before in enumerate(predecessors) for p in before)
    return order if fits else list(range(start.size))


def _add_waits_for_workers(
    start: Floats,
    duration: Floats,
    measured: Flags,
    predecessors: list[list[int]],
    order: list[int],
    contended: set[int],
) -> None:
    """Adds to the predecessors of each node the one whose worker it waited for, if there is one.

    Under contention the replay says the same, and better.
    """
    end = start + duration
    ran = np.flatnonzero(measured & (duration > 0))
    by_end = ran[np.argsort(end[ran], kind="stable")]
    ends = end[by_end]
    place = _places(order)
    last = np.searchsorted(ends, start, side="right") - 1
    for node in ran.tolist():
        before = int(by_end[last[node]]) if last[node] >= 0 else -1
        ready = max((end[p] for p in predecessors[node]), default=0.0)
        wait = start[node] - ready
        if before < 0 or {node, before} & contended or wait < _SHORTEST_WAIT_NS or end[before] <= ready:
            continue
        if start[node] - end[before] <= _PICKED_UP_NS and place[before] < place[node]:
            predecessors[node].append(before)


def _gaps(start: Floats, duration: Floats, measured: Flags, predecessors: list[list[int]], order: list[int]) -> Floats:
    ends, gaps = np.zeros(start.size), np.zeros(start.size)
    for node in order:
        ready = max((ends[p] for p in predecessors[node]), default=0.0)
        gaps[node] = max(start[node] - ready, 0.0) if measured[node] else 0.0
        ends[node] = ready + gaps[node] + duration[node]
    return gaps


# --- evaluation ----------------------------------------------------------------------------------------------


def ends_of(plan: Schedule, durations_ns: Floats) -> Floats:
    """When each node ends with other durations and the same gaps; one column per set of durations.

    Under contention, half of a duration means half of the work.
    """
    ends = np.zeros_like(durations_ns)
    own = durations_ns + (plan.gap_ns if durations_ns.ndim == 1 else plan.gap_ns[:, None])
    stretch_at = {stretch.nodes[0]: stretch for stretch in plan.contention}
    inside = {node for stretch in plan.contention for node in stretch.nodes}
    reached = np.zeros(durations_ns.shape[1:])
    for node in plan.order:
        if node in inside:
            if node in stretch_at:
                nodes = list(stretch_at[node].nodes)
                ends[nodes] = reached + _replayed(stretch_at[node], plan.duration_ns[nodes], durations_ns[nodes])
                reached = ends[nodes].max(axis=0)
            continue
        before = plan.predecessors[node]
        if len(before) == 1:
            ends[node] = ends[before[0]] + own[node]
        elif before:
            ends[node] = ends[list(before)].max(axis=0) + own[node]
        else:
            ends[node] = own[node]
        reached = np.maximum(reached, ends[node]) if plan.contention else reached
    return ends


def _replayed(contention: Contention, measured_ns: Floats, durations_ns: Floats) -> Floats:
    """When the nodes under contention end, from the moment at which the first could start."""
    if durations_ns.ndim == 1:
        return _replayed(contention, measured_ns, durations_ns[:, None])[:, 0]
    measured_ns = measured_ns[:, None]
    part = np.divide(durations_ns, measured_ns, out=np.zeros_like(durations_ns), where=measured_ns > 0)
    # Many columns are alike: most what-ifs change nothing here.
    different, column = np.unique(part, axis=1, return_inverse=True)
    ends = [capacity.replay(contention, contention.work_ns * factors).end_ns for factors in different.T]
    return np.stack(ends, axis=1)[:, column.reshape(-1)]


def wall_savings(plan: Schedule, durations_ns: Floats) -> Floats:
    """By how much the wall time of one command buffer shrinks with each column of durations."""
    if plan.start_ns.size == 0:
        return np.zeros(durations_ns.shape[1:])
    last = float(ends_of(plan, plan.duration_ns).max(initial=0.0))
    saved: Floats = last - ends_of(plan, durations_ns).max(axis=0, initial=0.0)
    return saved


def busy_of(plan: Schedule) -> Floats:
    """The busy time of each node in the schedule; nodes that overlap split it evenly."""
    ends = ends_of(plan, plan.duration_ns)
    return busy_share((ends - plan.duration_ns).round().astype(np.int64), ends.round().astype(np.int64))


def critical_path(plan: Schedule) -> CriticalPath:
    """The longest path through the schedule, and every node's slack."""
    if plan.start_ns.size == 0:
        return CriticalPath((), 0.0, plan.wall_ns, np.zeros(0))
    ends = ends_of(plan, plan.duration_ns)
    path = path_of(plan, ends)
    execution = float(plan.duration_ns[path].sum())
    return CriticalPath(tuple(path), execution, max(plan.wall_ns - execution, 0.0), _slack(plan, ends))


def path_of(plan: Schedule, ends: Floats | None = None) -> list[int]:
    """The nodes of the critical path, without their slack; `ends` are those of the unchanged schedule."""
    ends = ends_of(plan, plan.duration_ns) if ends is None else ends
    held_up_by = {}
    for stretch in plan.contention:
        for node, cause in zip(stretch.nodes, capacity.replay(stretch, stretch.work_ns).cause, strict=True):
            held_up_by[node] = stretch.nodes[cause] if cause >= 0 else -1
    return chain(plan.order, ends, plan.predecessors, held_up_by)


def _slack(plan: Schedule, ends: Floats) -> Floats:
    latest = np.full(ends.size, ends.max())
    stretch_of = {node: stretch for stretch in plan.contention for node in stretch.nodes}
    for node in reversed(plan.order):
        if node in stretch_of:
            # Everything after waits for the whole stretch, so whatever comes before must not move its beginning.
            stretch = stretch_of[node]
            allowed = float(ends[list(stretch.nodes)].max()) - stretch.wall_ns
        else:
            allowed = latest[node] - plan.duration_ns[node] - plan.gap_ns[node]
        for p in plan.predecessors[node]:
            latest[p] = min(latest[p], allowed)
    slack: Floats = latest - ends
    if plan.unknown is not None:
        slack[plan.unknown] = np.nan
    steps = 0
    for stretch in plan.contention:
        nodes = list(stretch.nodes)
        steps += len(nodes) ** 2
        known = steps <= _MAX_SLACK_STEPS
        slack[nodes] = capacity.slack_of(stretch, plan.duration_ns[nodes]) if known else np.nan
    return slack
