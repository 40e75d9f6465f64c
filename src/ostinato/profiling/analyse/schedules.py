"""The schedules of a recording: how each plan ran, and what that stands for together.

A plan has a typical schedule, by medians over its runs, and the schedules of some single runs. What-ifs are worked out
run by run: what happened differs from run to run (a worker came late, two kernels overlapped or did not), and medians
of all would mix these into a schedule that never was. Where dispatches take turns at being timed, neighbouring runs
make up a whole one together.

First runs, which also warm up caches, and disturbed ones are set aside where there are others. Plans are looked at by
their share of the time, until there are so many nodes that more would take long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from . import capacity
from .capacity import Sharing
from .columns import UNAVAILABLE, Columns, Flags, Floats, Ints
from .critical_path import Schedule, schedule, wall_savings

_MAX_SUBMISSIONS = 256
"""Medians over more submissions of one plan do not get better, only slower."""
_MAX_CELLS = 1 << 22
_MAX_NODES = 200_000
"""Plans are looked at by their share of the time until this many nodes."""
_SINGLE_RUNS, _FEWEST_SINGLE_RUNS = 32, 8
"""How many runs of a plan what-ifs are worked out for; with fewer than the latter its typical schedule has to do."""
_MAX_STEPS = 400_000
"""Nodes of all single runs together."""
_MAX_CROWDED_STEPS = 4_000
"""The same for nodes in crowds, of one plan: those take longer."""
_CROWD_RUNS = 15
"""Submissions that the work of a crowd is taken from: those that took about as long as most."""
_SPREAD_NS = 4000.0
"""The CPU backend does not spread what takes less than this over several workers."""
_UNFIT = 0.05
"""What-ifs of a kernel are not known when more than this part of its time lies in crowds whose replay does not fit."""


@dataclass(frozen=True, slots=True)
class PlanSavings:
    """What the runs of one plan save, by what-if."""

    submissions: int
    """How many command buffers they stand for."""
    undisturbed: int
    saved_ns: Floats
    """(runs, what-ifs): of the wall of a run, and never more than that."""
    wall_ns: Floats
    """(runs,)"""


@dataclass(frozen=True, slots=True)
class Schedules:
    """The schedules of a device's plans, and what they stand for."""

    plans: tuple[Schedule, ...]
    """Typical ones."""
    runs: tuple[tuple[Schedule, ...], ...]
    """Of each plan: those of single runs, or the typical one alone."""
    undisturbed: tuple[int, ...]
    """Of each plan: how many whole runs were left when first and disturbed ones were set aside."""
    wall_ns: float
    """All command buffers together that the schedules stand for."""

    def savings(self, shortened: Callable[[Schedule], Floats]) -> list[PlanSavings]:
        """What single runs of each plan save; `shortened` gives other durations of a run, a column per what-if."""
        found = []
        for plan, runs, undisturbed in zip(self.plans, self.runs, self.undisturbed, strict=True):
            saved = [np.clip(wall_savings(run, shortened(run)), 0.0, run.wall_ns) for run in runs]
            wall = np.array([run.wall_ns for run in runs])
            found.append(PlanSavings(plan.submissions, undisturbed, np.array(saved), wall))
        return found

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


def schedules(columns: Columns, device: int, aside: Flags) -> Schedules:
    """The schedules of all plans that were sampled on a device; submissions in `aside` are left out.

    A plan of which nothing else was sampled is still looked at: a poor measurement is better than none.
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
    singles: list[tuple[Schedule, ...]] = []
    undisturbed: list[int] = []
    budget, steps = _MAX_NODES, _MAX_STEPS
    for number in np.argsort(-spent[plans], kind="stable").tolist():
        plan, rows = int(plans[number]), rows_of[number]
        chosen = rows[known[rows] & ~aside[rows]]
        left = chosen.size
        chosen = chosen if left else rows[known[rows]]
        size = int(columns.plans.first[plan + 1] - columns.plans.first[plan])
        if chosen.size == 0 or size > budget:
            continue
        budget -= size
        limit = max(1, min(_MAX_SUBMISSIONS, _MAX_CELLS // max(size, 1)))
        if chosen.size > limit:
            chosen = chosen[np.linspace(0, chosen.size - 1, limit).astype(np.int64)]
        measured = _times(columns, plan, chosen, index)
        typical = _typical(columns, device, plan, rows.size, measured)
        whole = _whole_runs(*measured, typical.measured)
        runs = _single_runs(columns, device, typical, whole, steps)
        steps -= size * len(runs)
        found.append(typical)
        singles.append(runs or (typical,))
        undisturbed.append(len(whole[0]) if left else 0)
    wall_ns = sum(p.wall_ns * p.submissions for p in found)
    return Schedules(tuple(found), tuple(singles), tuple(undisturbed), wall_ns)


_Times = tuple[Floats, Floats, Floats, Floats]
"""Starts and durations, (runs, nodes); of each run its wall, and by how much of that late workers made it longer."""


def _times(columns: Columns, plan: int, chosen: Ints, index: tuple[Ints | None, Ints]) -> _Times:
    """The times of some runs of a plan, counted from the start of each; NaN where a node has none."""
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
    joined = subs.joined[chosen]
    late = np.where(joined > 0, subs.late_ns[chosen] / np.maximum(joined, 1), 0.0)
    return start, duration, (subs.end_ns - subs.start_ns)[chosen].astype(np.float64), late


def _typical(columns: Columns, device: int, plan: int, submissions: int, measured: _Times) -> Schedule:
    start, duration, wall, late = measured
    near = np.sort(np.argsort(np.abs(wall - np.median(wall)), kind="stable")[:_CROWD_RUNS])
    middle = _medians(start), _medians(duration), float(np.median(wall)), float(np.median(late))
    return _schedule(columns, device, plan, submissions, *middle, (start[near], duration[near]))


def _medians(times: Floats) -> Floats:
    """By node, over the runs in which it has a time."""
    if not np.isnan(times).any():
        middle: Floats = np.median(times, axis=0)
        return middle
    seen = ~np.isnan(times).all(axis=0)
    found = np.full(times.shape[1], np.nan)
    found[seen] = np.nanmedian(times[:, seen], axis=0)
    return found


def _single_runs(columns: Columns, device: int, typical: Schedule, whole: _Times, steps: int) -> tuple[Schedule, ...]:
    """The schedules of single runs, evenly chosen; none where there are too few, or they would take too long."""
    start, duration, wall, late = whole
    crowded = sum(len(crowd) for crowd in typical.crowds)
    allowed = steps // max(typical.start_ns.size, 1)
    allowed = min(allowed, _MAX_CROWDED_STEPS // crowded) if crowded else allowed
    count = min(len(start), _SINGLE_RUNS, allowed)
    if count < _FEWEST_SINGLE_RUNS:
        return ()
    chosen = np.linspace(0, len(start) - 1, count).astype(np.int64).tolist()
    return tuple(
        _schedule(columns, device, typical.plan, 1, start[run], duration[run], float(wall[run]), float(late[run]))
        for run in chosen
    )


def _whole_runs(start: Floats, duration: Floats, wall: Floats, late: Floats, timed: Flags) -> _Times:
    """Runs in which every node has a time that ever has one: neighbours together where they take turns."""
    if not np.isnan(start[:, timed]).any():
        return start, duration, wall, late
    together: list[list[int]] = [[]]
    missing = timed.copy()
    for run in range(len(start)):
        together[-1].append(run)
        missing &= np.isnan(start[run])
        if not missing.any():
            together.append([])
            missing = timed.copy()
    whole = together[:-1]
    return (
        np.array([_medians(start[runs]) for runs in whole]).reshape(-1, start.shape[1]),
        np.array([_medians(duration[runs]) for runs in whole]).reshape(-1, start.shape[1]),
        np.array([np.median(wall[runs]) for runs in whole]),
        np.array([np.median(late[runs]) for runs in whole]),
    )


def _schedule(
    columns: Columns,
    device: int,
    plan: int,
    submissions: int,
    start: Floats,
    duration: Floats,
    wall_ns: float,
    late_ns: float,
    runs: tuple[Floats, Floats] | None = None,
) -> Schedule:
    facts, plans = columns.devices[device], columns.plans
    useful = None
    if facts.workers is not None:
        useful = capacity.useful_workers(columns.commands.groups[plans.command[plans.nodes(plan)]], facts.workers)
        if facts.backend == "cpu":
            useful = np.where(duration < _SPREAD_NS, 1.0, useful)
            start, duration = _without_lateness(start, duration, useful, late_ns)
    sharing = Sharing.FIRST if facts.backend == "cpu" else Sharing.PROPORTIONAL
    return schedule(
        plan, submissions, start, duration, wall_ns, plans.edges[plan], useful, facts.workers, sharing, runs
    )


def _without_lateness(start: Floats, duration: Floats, useful: Floats, late_ns: float) -> tuple[Floats, Floats]:
    """Starts and durations as if no worker had come late: what that cost belongs to starting the list, not to a kernel.

    It makes those that run first longer, where they can use several workers: by half of their time at most, which is
    when the other of two workers was not there at all.
    """
    start, duration = start.copy(), duration.copy()
    for node in np.argsort(start, kind="stable").tolist():
        if late_ns <= 0 or np.isnan(start[node]) or start[node] > 2 * late_ns:
            break
        if useful[node] > 1:
            moved = min(late_ns, duration[node] / 2)
            start[node] += moved
            duration[node] -= moved
            late_ns -= moved
    return start, duration


def _by_submission(columns: Columns) -> tuple[Ints | None, Ints]:
    """(order, first): the samples of submission s are order[first[s]:first[s + 1]]; no order when already in it."""
    owner = columns.samples.submission
    first = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(columns.submissions)))])
    if owner.size < 2 or not (np.diff(owner) < 0).any():
        return None, first
    return np.argsort(owner, kind="stable"), first
