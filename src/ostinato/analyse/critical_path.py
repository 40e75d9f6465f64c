"""Which dispatches the wall time of a command buffer hangs on, and what a faster kernel would change.

A plan's schedule is taken from its submissions by median: when each node started and how long it ran. The gap of a node
is what passed between the last of its predecessors ending and its own start: launch latency, mostly. It is never
negative: medians of different nodes may contradict each other by a little, but what waits cannot start before. Running
the schedule again with other durations and the *same* gaps says what the wall would have been: start = latest end of
the predecessors + gap.

Dependencies alone do not hold a node back where the device is full. Stretches of a plan in which nodes may run beside
each other and together want more workers than there are (*crowds*) are run again on a device of that many workers:
`capacity.py` says how. Where that does not come close to what was measured, what a node there would save, and its
slack, are not known.

All is linear in nodes and edges but for crowds, which are bounded; the what-ifs of a plan are evaluated together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from . import capacity
from .capacity import Crowd, Sharing
from .columns import UNAVAILABLE, Columns, Flags, Floats, Ints
from .timeline import busy_share

_MAX_SUBMISSIONS = 256
"""Medians over more submissions of one plan do not get better, only slower."""
_MAX_CELLS = 1 << 22
_MAX_NODES = 200_000
"""Plans are looked at by their share of the time until this many nodes."""
_CROWD_RUNS = 15
"""Submissions that the work of a crowd is taken from: those that took about as long as most."""
_MAX_CROWDED = 5_000
"""Nodes of crowds that are run again, of one plan; those of longer ones are not known."""
_MAX_SLACK_STEPS = 40_000
"""Slack in crowds is found by trying, node by node: until the squares of their sizes add up to this."""
_SPREAD_NS = 4000.0
"""The CPU backend does not spread what takes less than this over several workers."""
_UNFIT = 0.05
"""What-ifs of a kernel are not known when more than this part of its time lies in crowds whose replay does not fit."""
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
    gaps = _gaps(start, duration, measured, predecessors, order)
    found: list[Crowd] = []
    unknown = None
    if useful is not None and workers is not None:
        single = runs or (start_ns[None, :], duration_ns[None, :])
        found, unknown = _crowds(order, predecessors, np.where(measured, useful, 0.0), workers, sharing, single)
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
        crowd = None
        if budget >= 0 and whole.any():
            crowd = capacity.calibrated(
                nodes,
                [tuple(own[p] for p in predecessors[node] if p in own) for node in nodes],
                useful[nodes],
                workers,
                sharing,
                np.maximum(start[whole][:, nodes] - begin[whole, None], 0.0),
                duration[whole][:, nodes],
            )
        if crowd is not None and crowd.residue <= capacity.FITS:
            found.append(crowd)
        else:
            unknown[nodes] = True
    return found, unknown


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
    path.reverse()
    execution = float(plan.duration_ns[path].sum())
    return CriticalPath(tuple(path), execution, max(plan.wall_ns - execution, 0.0), _slack(plan, ends))


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


# --- from a recording ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Schedules:
    """The schedules of a device's plans, and what they stand for."""

    plans: tuple[Schedule, ...]
    wall_ns: float
    """All command buffers together that the schedules stand for."""
    left_out: int
    """Plans not looked at: never sampled, or too many."""

    def saved_ns(self, shortened: Sequence[Floats]) -> Floats:
        """What all command buffers together save; per schedule one matrix of durations, a column per what-if."""
        total = np.zeros(shortened[0].shape[1] if shortened else 0)
        for plan, durations in zip(self.plans, shortened, strict=True):
            total += plan.submissions * wall_savings(plan, durations)
        return total

    @property
    def residue(self) -> float | None:
        """How far replays of what shared a full device are from what was measured, as a part of it; None: none."""
        measured = sum(c.wall_ns * p.submissions for p in self.plans for c in p.crowds)
        return sum(p.residue_ns * p.submissions for p in self.plans) / measured if measured else None

    def unknown(self, mine: Sequence[Flags]) -> Flags:
        """For each column of nodes: whether too much of their time lies where no replay fits."""
        size = mine[0].shape[1] if mine else 0
        spent, lost = np.zeros(size), np.zeros(size)
        for plan, chosen in zip(self.plans, mine, strict=True):
            time = np.where(chosen, plan.duration_ns[:, None], 0.0) * plan.submissions
            spent += time.sum(axis=0)
            if plan.unknown is not None:
                lost += time[plan.unknown].sum(axis=0)
        found: Flags = lost > _UNFIT * spent
        return found


def schedules(columns: Columns, device: int, warm_up: Flags) -> Schedules:
    """The schedules of all plans that were sampled on a device; submissions in `warm_up` are set aside.

    A plan whose only sampled submission is a warm-up is still looked at: one measurement is better than none.
    """
    subs, samples = columns.submissions, columns.samples
    known = np.bincount(samples.submission[samples.status != UNAVAILABLE], minlength=len(subs)) > 0
    here = np.flatnonzero((subs.device == device) & subs.ran & (subs.plan >= 0))
    here = here[np.argsort(subs.plan[here], kind="stable")]
    plans, heads = np.unique(subs.plan[here], return_index=True)
    rows_of = np.split(here, heads[1:])
    spent = np.bincount(subs.plan[here], weights=(subs.end_ns - subs.start_ns)[here], minlength=len(columns.plans))
    index = _by_submission(columns)
    found: list[Schedule] = []
    left_out = 0
    budget = _MAX_NODES
    for number in np.argsort(-spent[plans], kind="stable").tolist():
        plan, rows = int(plans[number]), rows_of[number]
        chosen = rows[known[rows] & ~warm_up[rows]]
        chosen = chosen if chosen.size else rows[known[rows]]
        size = int(columns.plans.first[plan + 1] - columns.plans.first[plan])
        if chosen.size == 0 or size > budget:
            left_out += 1
            continue
        budget -= size
        limit = max(1, min(_MAX_SUBMISSIONS, _MAX_CELLS // max(size, 1)))
        if chosen.size > limit:
            chosen = chosen[np.linspace(0, chosen.size - 1, limit).astype(np.int64)]
        found.append(_schedule(columns, device, plan, rows, chosen, index))
    return Schedules(tuple(found), sum(p.wall_ns * p.submissions for p in found), left_out)


def _schedule(
    columns: Columns, device: int, plan: int, rows: Ints, chosen: Ints, index: tuple[Ints | None, Ints]
) -> Schedule:
    subs, samples, plans = columns.submissions, columns.samples, columns.plans
    order, first = index
    size = int(plans.first[plan + 1] - plans.first[plan])
    start, duration = np.full((chosen.size, size), np.nan), np.full((chosen.size, size), np.nan)
    for line, row in enumerate(chosen.tolist()):
        stretch = slice(int(first[row]), int(first[row + 1]))
        picked = stretch if order is None else order[stretch]
        node = samples.node[picked] - plans.first[plan]
        good = samples.status[picked] != UNAVAILABLE
        begin = samples.start_ns[picked][good]
        start[line, node[good]] = begin - subs.start_ns[row]
        duration[line, node[good]] = samples.end_ns[picked][good] - begin
    whole = not np.isnan(start).any()
    if whole:
        starts, durations = np.median(start, axis=0), np.median(duration, axis=0)
    else:
        seen = ~np.isnan(start).all(axis=0)
        starts, durations = np.full(size, np.nan), np.full(size, np.nan)
        starts[seen], durations[seen] = np.nanmedian(start[:, seen], axis=0), np.nanmedian(duration[:, seen], axis=0)
    facts = columns.devices[device]
    useful = None
    if facts.workers is not None:
        useful = capacity.useful_workers(columns.commands.groups[plans.command[plans.nodes(plan)]], facts.workers)
        if facts.backend == "cpu":
            useful = np.where(durations < _SPREAD_NS, 1.0, useful)
    wall = (subs.end_ns - subs.start_ns)[chosen]
    typical = np.sort(np.argsort(np.abs(wall - np.median(wall)), kind="stable")[:_CROWD_RUNS])
    return schedule(
        plan,
        rows.size,
        starts,
        durations,
        float(np.median(wall)),
        plans.edges[plan],
        useful,
        facts.workers,
        Sharing.FIRST if facts.backend == "cpu" else Sharing.PROPORTIONAL,
        (start[typical], duration[typical]),
    )


def _by_submission(columns: Columns) -> tuple[Ints | None, Ints]:
    """(order, first): the samples of submission s are order[first[s]:first[s + 1]]; no order when already in it."""
    owner = columns.samples.submission
    first = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(columns.submissions)))])
    if owner.size < 2 or not (np.diff(owner) < 0).any():
        return None, first
    return np.argsort(owner, kind="stable"), first


def warm_ups(columns: Columns) -> Flags:
    """The first submission of each plan on each device, where the plan ran at least three times.

    Fewer repetitions leave too little to set anything aside.
    """
    subs = columns.submissions
    chosen = np.zeros(len(subs), bool)
    ran = np.flatnonzero(subs.ran & (subs.plan >= 0))
    if ran.size == 0:
        return chosen
    ran = ran[np.argsort(subs.start_ns[ran], kind="stable")]
    key = subs.plan[ran] * max(len(columns.devices), 1) + subs.device[ran]
    _, first, count = np.unique(key, return_index=True, return_counts=True)
    chosen[ran[first[count >= 3]]] = True
    return chosen
