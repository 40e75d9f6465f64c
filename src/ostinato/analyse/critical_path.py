"""Which dispatches the wall time of a command buffer hangs on, and what a faster kernel would change.

A plan's schedule is taken from its submissions by median: when each node started and how long it ran. The gap of a node
is what passed between the last of its predecessors ending and its own start: launch latency, mostly. It is never
negative: medians of different nodes may contradict each other by a little, but what waits cannot start before. Running
the schedule again with other durations and the *same* gaps says what the wall would have been: start = latest end of
the predecessors + gap.

Dependencies alone do not hold a node back where the device is full. Given the number of workers, a node that was ready
while others filled the device, and that started as one of them ended, is taken to have waited for that one. Nodes that
shared a full device at the same time slowed each other down: what one of them would save, and its slack, are not known.

All is linear in nodes and edges; several what-ifs of one plan are evaluated together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .columns import UNAVAILABLE, Columns, Flags, Floats, Ints
from .timeline import busy_share

_MAX_SUBMISSIONS = 256
"""Medians over more submissions of one plan do not get better, only slower."""
_MAX_CELLS = 1 << 22
_MAX_NODES = 200_000
"""Plans are looked at by their share of the time until this many nodes."""
_LOOK_BACK = 64
_NEAR = 0.25
"""A dispatch that starts within this part of another's duration from its end is taken to have followed it."""


_CROWDED = 0.05
"""What-ifs of a kernel are not known when more than this part of its time was shared with others on a full device."""
SIDE_BY_SIDE = "ran side by side with others on a full device, so what it saves is only bounded"


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
    side_by_side: Flags
    """Ran at the same time as others that together want more workers than there are."""


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
    groups: Ints | None = None,
    workers: int | None = None,
) -> Schedule:
    """Makes a schedule of what was measured; NaN where a node has no time. `groups` and `workers` go together."""
    measured = ~np.isnan(start_ns)
    before, after = edges
    predecessors: list[list[int]] = [[] for _ in range(start_ns.size)]
    for a, b in zip(before.tolist(), after.tolist(), strict=True):
        predecessors[b].append(a)
    start = np.where(measured, start_ns, 0.0)
    duration = np.where(measured, duration_ns, 0.0)
    order = _order(start, measured, predecessors)
    ends, gaps = _gaps(start, duration, measured, predecessors, order)
    added = False
    if groups is not None and workers is not None:
        added = _wait_for_workers(start, ends, gaps, measured, groups, workers, predecessors, order)
    if added:
        ends, gaps = _gaps(start, duration, measured, predecessors, order)
    crowded = np.zeros(start.size, bool)
    if groups is not None and workers is not None:
        crowded = _side_by_side(ends - duration, ends, measured, np.minimum(groups, workers), workers)
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
        crowded,
    )


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


def _gaps(
    start: Floats, duration: Floats, measured: Flags, predecessors: list[list[int]], order: list[int]
) -> tuple[Floats, Floats]:
    ends, gaps = np.zeros(start.size), np.zeros(start.size)
    for node in order:
        ready = max((ends[p] for p in predecessors[node]), default=0.0)
        gaps[node] = max(start[node] - ready, 0.0) if measured[node] else 0.0
        ends[node] = ready + gaps[node] + duration[node]
    return ends, gaps


def _wait_for_workers(
    start: Floats,
    ends: Floats,
    gaps: Floats,
    measured: Flags,
    groups: Ints,
    workers: int,
    predecessors: list[list[int]],
    order: list[int],
) -> bool:
    """Adds the node that each one seems to have waited for because the device was full; whether it added any."""
    added = False
    taken = np.minimum(groups, workers)
    ran = np.array([node for node in order if measured[node]], np.int64)
    if np.any(np.diff(start[ran]) < 0):
        return False  # the order is not that of the starts, so an addition could close a circle
    for index, node in enumerate(ran.tolist()):
        ready = start[node] - gaps[node]
        earlier = ran[max(0, index - _LOOK_BACK) : index]
        others = earlier[(ends[earlier] > ready) & (start[earlier] < start[node])]
        if gaps[node] <= 0 or others.size == 0 or taken[others].sum() < workers:
            continue
        away = np.abs(ends[others] - start[node])
        nearest = int(away.argmin())
        other = int(others[nearest])
        if away[nearest] <= _NEAR * (ends[other] - start[other]) and other not in predecessors[node]:
            predecessors[node].append(other)
            added = True
    return added


def _side_by_side(start: Floats, end: Floats, measured: Flags, taken: Ints, workers: int) -> Flags:
    """The nodes that shared the device with others while it was full, for more than a moment.

    Times are those of the schedule, in which what depends on each other never overlaps.
    """
    found = np.zeros(start.size, bool)
    ran = np.flatnonzero(measured & (end > start))
    ran = ran[np.argsort(start[ran], kind="stable")]
    reached = np.maximum.accumulate(end[ran])
    for index in (np.flatnonzero(start[ran][1:] < reached[:-1]) + 1).tolist():
        node = ran[index]
        earlier = ran[max(0, index - _LOOK_BACK) : index]
        shared = np.minimum(end[earlier], end[node]) - start[node]
        others = earlier[shared > _NEAR * np.minimum(end[earlier] - start[earlier], end[node] - start[node])]
        if others.size and taken[others].sum() + taken[node] > workers:
            found[others] = True
            found[node] = True
    return found


# --- running it again ----------------------------------------------------------------------------------------


def ends_of(plan: Schedule, durations_ns: Floats) -> Floats:
    """When each node ends with other durations and the same gaps; one column per set of durations."""
    ends = np.zeros_like(durations_ns)
    own = durations_ns + (plan.gap_ns if durations_ns.ndim == 1 else plan.gap_ns[:, None])
    for node in plan.order:
        found = plan.predecessors[node]
        if len(found) == 1:
            ends[node] = ends[found[0]] + own[node]
        elif found:
            ends[node] = ends[list(found)].max(axis=0) + own[node]
        else:
            ends[node] = own[node]
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
    latest = np.full(ends.size, ends.max())
    for node in reversed(plan.order):
        allowed = latest[node] - plan.duration_ns[node] - plan.gap_ns[node]
        for p in plan.predecessors[node]:
            latest[p] = min(latest[p], allowed)
    # Of several that end last, the one that comes last: a chain then contains all of its nodes.
    node = max(reversed(plan.order), key=lambda n: ends[n])
    path = [node]
    while plan.predecessors[node]:
        node = max(plan.predecessors[node], key=lambda p: ends[p])
        path.append(node)
    path.reverse()
    execution = float(plan.duration_ns[path].sum())
    slack = np.where(plan.side_by_side, np.nan, latest - ends)
    return CriticalPath(tuple(path), execution, max(plan.wall_ns - execution, 0.0), slack)


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

    def side_by_side(self, mine: Sequence[Flags]) -> Flags:
        """For each column of nodes: whether they spent too much of their time beside others on a full device."""
        size = mine[0].shape[1] if mine else 0
        spent, crowded = np.zeros(size), np.zeros(size)
        for plan, chosen in zip(self.plans, mine, strict=True):
            time = np.where(chosen, plan.duration_ns[:, None], 0.0) * plan.submissions
            spent += time.sum(axis=0)
            crowded += time[plan.side_by_side].sum(axis=0)
        found: Flags = crowded > _CROWDED * spent
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
    return schedule(
        plan,
        rows.size,
        starts,
        durations,
        float(np.median((subs.end_ns - subs.start_ns)[chosen])),
        plans.edges[plan],
        columns.commands.groups[plans.command[plans.nodes(plan)]],
        columns.devices[device].workers,
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
