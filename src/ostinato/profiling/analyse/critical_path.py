"""Which dispatches the wall time of a command buffer hangs on, and what a faster kernel would change.

A plan's schedule is taken from its submissions by median: when each node started and how long it ran. The gap of a
node is what passed between the last of its predecessors ending and its own start: launch latency, mostly. It is never
negative: medians of different nodes may contradict each other by a little, but what waits cannot start before. Running
the schedule again with other durations and the *same* gaps says what the wall would have been: start = latest end of
the predecessors + gap.

On a CPU a node that could have started earlier, and started right when another one ended, waited for the worker that
ran the other, whatever kept the rest of the workers from taking it: it would start earlier if that one ended earlier.
So that one counts among its predecessors, although nothing in the list says so.

Dependencies alone do not hold a node back where the device is full. Stretches of a plan in which nodes may run beside
each other and together want more workers than there are (*crowds*) are run again on a device of that many workers:
`capacity.py` says how. Where that does not come close to what was measured, what a node there would save, and its
slack, are not known.

All is linear in nodes and edges but for crowds, which are bounded; the what-ifs of a plan are evaluated together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from . import capacity
from .capacity import Crowd, Sharing
from .columns import Flags, Floats, Ints
from .timeline import busy_share

_MAX_CROWDED = 5_000
"""Nodes of crowds that are run again, of one plan; those of longer ones are not known."""
_MAX_SLACK_STEPS = 10_000
"""Slack in crowds is found by trying, node by node: until the squares of their sizes add up to this."""
_PICKED_UP_NS = 5000.0
"""A node that starts within this time from the end of another was started by the worker that ran it."""
_SHORTEST_WAIT_NS = 5000.0
"""Shorter waits are launch latency."""
_FITS_AMONG_OTHERS = 0.3
"""How far the replay of one crowd may be off where those of a plan fit together."""
NOT_KNOWN = "shares a full device with others in a way that no replay explains, so what it saves is only bounded"


@dataclass(frozen=True, slots=True)
class Schedule:
    """One plan as it ran: medians over its submissions, times from the start of the command buffer."""

    plan: int
    submissions: int
    """How many command buffers it stands for."""
    wall_ns: float
    start_ns: Floats
    duration_ns: Floats
    """0 for what was not sampled; then its time is in the gap of what follows."""
    gap_ns: Floats
    predecessors: tuple[tuple[int, ...], ...]
    """What each node waits for: by the list, and for a worker."""
    order: tuple[int, ...]
    """Every node after its predecessors."""
    measured: Flags
    crowds: tuple[Crowd, ...] = ()
    """Stretches of `order` that share a full device."""
    unknown: Flags | None = None
    """In crowds that were not run again: too large, or the replay did not fit."""

    @property
    def device_share(self) -> Floats:
        """The part of the device that each node had while it ran: what the wall shrinks by, at best, per ns saved."""
        found = np.ones(self.start_ns.size)
        for crowd in self.crowds:
            nodes = list(crowd.nodes)
            ran = self.duration_ns[nodes] > 0
            had = np.divide(crowd.work_ns, self.duration_ns[nodes], out=np.zeros(len(nodes)), where=ran)
            found[nodes] = np.minimum(had / crowd.workers, 1.0)
        return found

    @property
    def residue_ns(self) -> float:
        """How far the replays of its crowds were from what was measured, added up."""
        return sum(crowd.residue * crowd.wall_ns for crowd in self.crowds)


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The chain of nodes that the wall time consists of."""

    nodes: tuple[int, ...]
    execution_ns: float
    """Time in which its dispatches ran."""
    gap_ns: float
    """Time between them, and before the first and after the last."""
    slack_ns: Floats
    """By how much each node could take longer without the wall getting longer; NaN where that is not known."""


def schedule(
    plan: int,
    submissions: int,
    start_ns: Floats,
    duration_ns: Floats,
    wall_ns: float,
    edges: tuple[Ints, Ints],
    useful: Floats | None = None,
    workers: int | None = None,
    sharing: Sharing = Sharing.FIRST,
    runs: tuple[Floats, Floats] | None = None,
) -> Schedule:
    """Makes a schedule of what was measured; NaN where a node has no time.

    `useful` says how many of the workers each node can use; without it no node stands in another's way. `runs` are
    starts and durations of single submissions, a row each, where the medians stand for several.
    """
    measured = ~np.isnan(start_ns)
    before, after = edges
    predecessors: list[list[int]] = [[] for _ in range(start_ns.size)]
    for a, b in zip(before.tolist(), after.tolist(), strict=True):
        predecessors[b].append(a)
    start = np.where(measured, start_ns, 0.0)
    duration = np.where(measured, duration_ns, 0.0)
    order = _order(start, measured, predecessors)
    found: list[Crowd] = []
    unknown = None
    if useful is not None and workers is not None:
        single = runs or (start_ns[None, :], duration_ns[None, :])
        found, unknown = _crowds(order, predecessors, np.where(measured, useful, 0.0), workers, sharing, single)
        if sharing is Sharing.FIRST:
            crowded = {node for crowd in found for node in crowd.nodes}
            _add_waits_for_workers(start, duration, measured, predecessors, order, crowded)
    gaps = _gaps(start, duration, measured, predecessors, order)
    return Schedule(
        plan,
        submissions,
        wall_ns,
        start,
        duration,
        gaps,
        tuple(map(tuple, predecessors)),
        tuple(order),
        measured,
        tuple(found),
        unknown,
    )


def _crowds(
    order: list[int],
    predecessors: list[list[int]],
    useful: Floats,
    workers: int,
    sharing: Sharing,
    runs: tuple[Floats, Floats],
) -> tuple[list[Crowd], Flags]:
    """The crowds whose replay fits, and the nodes of the others."""
    unknown = np.zeros(len(order), bool)
    stretches = capacity.crowds(order, predecessors, useful, workers)
    if not stretches:
        return [], unknown
    start, duration = runs
    # Everything that stands before a crowd has ended when it begins.
    ended = np.fmax.accumulate((start + duration)[:, order], axis=1)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    found: list[Crowd] = []
    budget = _MAX_CROWDED
    for nodes in stretches:
        first = int(place[nodes[0]])
        begin = np.nan_to_num(ended[:, first - 1]) if first else np.zeros(len(start))
        own = {node: number for number, node in enumerate(nodes)}
        whole = ~np.isnan(start[:, nodes][:, useful[nodes] > 0]).any(axis=1)
        budget -= len(nodes)
        if budget < 0 or not whole.any():
            unknown[nodes] = True
            continue
        crowd = capacity.calibrated(
            nodes,
            [tuple(own[p] for p in predecessors[node] if p in own) for node in nodes],
            useful[nodes],
            workers,
            sharing,
            np.maximum(start[whole][:, nodes] - begin[whole, None], 0.0),
            duration[whole][:, nodes],
        )
        found.append(crowd)
    # Where there are many, that some are off by chance says nothing against all of them together.
    off = sum(crowd.residue * crowd.wall_ns for crowd in found)
    together = off <= capacity.FITS * sum(crowd.wall_ns for crowd in found)
    limit = _FITS_AMONG_OTHERS if together else capacity.FITS
    for crowd in found:
        unknown[list(crowd.nodes)] = crowd.residue > limit
    return [crowd for crowd in found if crowd.residue <= limit], unknown


def _order(start: Floats, measured: Flags, predecessors: list[list[int]]) -> list[int]:
    """By start where that respects the dependencies, else as encoded, which always does."""
    # What has no time of its own takes its place right after what it waits for.
    when = start.copy()
    for node, found in enumerate(predecessors):
        if not measured[node]:
            when[node] = max((when[p] for p in found), default=0.0)
    order = np.lexsort((np.arange(start.size), when))
    place = np.empty(start.size, np.int64)
    place[order] = np.arange(start.size)
    fits = all(place[p] < place[node] for node, found in enumerate(predecessors) for p in found)
    listed: list[int] = order.tolist() if fits else list(range(start.size))
    return listed


def _add_waits_for_workers(
    start: Floats,
    duration: Floats,
    measured: Flags,
    predecessors: list[list[int]],
    order: list[int],
    crowded: set[int],
) -> None:
    """Adds to the predecessors of each node the one whose worker it waited for, if there is one.

    In crowds the replay on a number of workers says the same, and better.
    """
    end = start + duration
    ran = np.flatnonzero(measured & (duration > 0))
    by_end = ran[np.argsort(end[ran], kind="stable")]
    ends = end[by_end]
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    last = np.searchsorted(ends, start, side="right") - 1
    for node in ran.tolist():
        before = int(by_end[last[node]]) if last[node] >= 0 else -1
        ready = max((end[p] for p in predecessors[node]), default=0.0)
        wait = start[node] - ready
        if before < 0 or node in crowded or before in crowded or wait < _SHORTEST_WAIT_NS or end[before] <= ready:
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


# --- running it again ----------------------------------------------------------------------------------------


def ends_of(plan: Schedule, durations_ns: Floats) -> Floats:
    """When each node ends with other durations and the same gaps; one column per set of durations.

    In a crowd a duration is what a node would take at the pace that was measured: half of it means half of the work.
    """
    ends = np.zeros_like(durations_ns)
    own = durations_ns + (plan.gap_ns if durations_ns.ndim == 1 else plan.gap_ns[:, None])
    crowded = {crowd.nodes[0]: crowd for crowd in plan.crowds}
    inside = {node for crowd in plan.crowds for node in crowd.nodes}
    reached = np.zeros(durations_ns.shape[1:])
    for node in plan.order:
        if node in inside:
            if node in crowded:
                nodes = list(crowded[node].nodes)
                ends[nodes] = reached + _crowd_ends(crowded[node], plan.duration_ns[nodes], durations_ns[nodes])
                reached = ends[nodes].max(axis=0)
            continue
        found = plan.predecessors[node]
        if len(found) == 1:
            ends[node] = ends[found[0]] + own[node]
        elif found:
            ends[node] = ends[list(found)].max(axis=0) + own[node]
        else:
            ends[node] = own[node]
        reached = np.maximum(reached, ends[node]) if plan.crowds else reached
    return ends


def _crowd_ends(crowd: Crowd, measured_ns: Floats, durations_ns: Floats) -> Floats:
    """When the nodes of a crowd end, from the moment at which the first could start."""
    if durations_ns.ndim == 1:
        return _crowd_ends(crowd, measured_ns, durations_ns[:, None])[:, 0]
    part = np.divide(
        durations_ns, measured_ns[:, None], out=np.zeros_like(durations_ns), where=measured_ns[:, None] > 0
    )
    ends = np.empty_like(durations_ns)
    done: dict[bytes, Floats] = {}
    for column in range(durations_ns.shape[1]):
        factors = np.ascontiguousarray(part[:, column])
        key = factors.tobytes()
        if key not in done:
            done[key] = capacity.replay(crowd, crowd.work_ns * factors).end_ns
        ends[:, column] = done[key]
    return ends


def wall_savings(plan: Schedule, durations_ns: Floats) -> Floats:
    """By how much the wall of one command buffer shrinks with each column of durations."""
    if plan.start_ns.size == 0:
        return np.zeros(durations_ns.shape[1:])
    last = float(ends_of(plan, plan.duration_ns).max(initial=0.0))
    saved: Floats = last - ends_of(plan, durations_ns).max(axis=0, initial=0.0)
    return saved


def busy_of(plan: Schedule) -> Floats:
    """How much of the schedule's busy time belongs to each node; an instant shared by n of them counts 1/n for each."""
    ends = ends_of(plan, plan.duration_ns)
    return busy_share((ends - plan.duration_ns).round().astype(np.int64), ends.round().astype(np.int64))


def critical_path(plan: Schedule) -> CriticalPath:
    """The longest path through the schedule, and every node's slack."""
    if plan.start_ns.size == 0:
        return CriticalPath((), 0.0, plan.wall_ns, np.zeros(0))
    ends = ends_of(plan, plan.duration_ns)
    path = path_of(plan, ends)
    execution = float(plan.duration_ns[list(path)].sum())
    return CriticalPath(path, execution, max(plan.wall_ns - execution, 0.0), _slack(plan, ends))


def path_of(plan: Schedule, ends: Floats | None = None) -> tuple[int, ...]:
    """The nodes of the critical path alone, which take less to find; `ends` are those of the unchanged schedule."""
    if plan.start_ns.size == 0:
        return ()
    ends = ends_of(plan, plan.duration_ns) if ends is None else ends
    causes = _causes(plan)
    # Of several that end last, the one that comes last: a chain then contains all of its nodes.
    node = max(reversed(plan.order), key=lambda n: ends[n])
    path = [node]
    while True:
        before = causes.get(node)
        if before is None:
            before = max(plan.predecessors[node], key=lambda p: ends[p], default=-1)
        if before < 0:
            break
        node = before
        path.append(node)
    return tuple(reversed(path))


def _causes(plan: Schedule) -> dict[int, int]:
    """For nodes in crowds that waited for another of the crowd: which. It may have had no more than the workers."""
    found = {}
    for crowd in plan.crowds:
        for node, cause in zip(crowd.nodes, capacity.replay(crowd, crowd.work_ns).cause, strict=True):
            if cause >= 0:
                found[node] = crowd.nodes[cause]
    return found


def _slack(plan: Schedule, ends: Floats) -> Floats:
    latest = np.full(ends.size, ends.max())
    crowd_of = {node: crowd for crowd in plan.crowds for node in crowd.nodes}
    for node in reversed(plan.order):
        if node in crowd_of:
            # All of a crowd is waited for, so whatever comes before must not move its beginning.
            crowd = crowd_of[node]
            allowed = float(ends[list(crowd.nodes)].max()) - crowd.wall_ns
        else:
            allowed = latest[node] - plan.duration_ns[node] - plan.gap_ns[node]
        for p in plan.predecessors[node]:
            latest[p] = min(latest[p], allowed)
    slack: Floats = latest - ends
    if plan.unknown is not None:
        slack[plan.unknown] = np.nan
    steps = 0
    for crowd in plan.crowds:
        nodes = list(crowd.nodes)
        steps += len(nodes) ** 2
        known = steps <= _MAX_SLACK_STEPS
        slack[nodes] = capacity.slack_of(crowd, plan.duration_ns[nodes]) if known else np.nan
    return slack
