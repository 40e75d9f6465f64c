"""The schedules of a recording: how each plan ran, and how many command buffers that stands for.

A plan has a typical schedule, by medians over its runs, and the schedules of some single runs. What-ifs are evaluated
run by run: runs differ (a worker came late, two kernels overlapped or did not), and medians of all would mix them into
a schedule that never happened. Where dispatches take turns at being timed, neighbouring runs are combined into one.

First runs, which also warm up caches, and disturbed runs are excluded where there are others. Plans are evaluated by
their share of the time, up to a total number of nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .capacity import Sharing
from .columns import UNAVAILABLE, Columns, Flags, Floats, Ints
from .critical_path import Schedule, Workers, schedule, wall_savings

_MAX_SUBMISSIONS = 256
"""Medians over more submissions of one plan do not get better, only slower."""
_MAX_CELLS = 1 << 22
_MAX_NODES = 200_000
"""Plans are evaluated by their share of the time up to this many nodes."""
_SINGLE_RUNS, _FEWEST_SINGLE_RUNS = 32, 8
"""How many runs of a plan what-ifs are evaluated for; with fewer than the latter its typical schedule is used."""
_MAX_STEPS = 400_000
"""Nodes of all single runs together."""
_MAX_CONTENDED_STEPS = 4_000
"""The same for nodes under contention, of one plan: those take longer."""
_CONTENTION_RUNS = 15
"""Submissions that contention is calibrated from: those closest to the median wall time."""
_SPREAD_NS = 4000.0
"""Where workers are given out first come, first served, shorter dispatches get one."""
_UNFIT = 0.05
"""The saving of a kernel is not known when more than this part of its time is under contention without a replay."""


@dataclass(frozen=True, slots=True)
class PlanSavings:
    """What the runs of one plan save, by what-if."""

    submissions: int
    """How many command buffers they stand for."""
    undisturbed: int
    saved_ns: Floats
    """(runs, what-ifs): of the wall time of a run, and never more than that."""
    wall_ns: Floats
    """(runs,)"""


@dataclass(frozen=True, slots=True)
class Schedules:
    """The schedules of a device's plans, and the command buffers that they stand for."""

    plans: tuple[Schedule, ...]
    """Typical ones."""
    runs: tuple[tuple[Schedule, ...], ...]
    """Of each plan: those of single runs, or the typical one alone."""
    undisturbed: tuple[int, ...]
    """Of each plan: how many whole runs remained without first and disturbed ones."""
    counts: tuple[int, ...]
    """Of each plan: how many runs its typical schedule has the medians of."""

    def savings(self, shortened: Callable[[Schedule], Floats]) -> list[PlanSavings]:
        """What single runs of each plan save; `shortened` gives other durations of a run, a column per what-if."""
        savings = []
        for plan, runs, undisturbed in zip(self.plans, self.runs, self.undisturbed, strict=True):
            saved = [np.clip(wall_savings(run, shortened(run)), 0.0, run.wall_ns) for run in runs]
            wall = np.array([run.wall_ns for run in runs])
            savings.append(PlanSavings(plan.submissions, undisturbed, np.array(saved), wall))
        return savings

    @property
    def residue(self) -> float | None:
        """How far replays under contention are from the measured time, as a part of it; None without contention."""
        walls = [(c.residue, c.wall_ns * plan.submissions) for plan in self.plans for c in plan.contention]
        measured = sum(wall for _, wall in walls)
        return sum(residue * wall for residue, wall in walls) / measured if measured else None

    def unknown(self, mine: Sequence[Flags]) -> Flags:
        """For each column of nodes: whether too much of their time is under contention without a replay."""
        size = mine[0].shape[1] if mine else 0
        spent, lost = np.zeros(size), np.zeros(size)
        for plan, chosen in zip(self.plans, mine, strict=True):
            time = np.where(chosen, plan.duration_ns[:, None], 0.0) * plan.submissions
            spent += time.sum(axis=0)
            if plan.unknown is not None:
                lost += time[plan.unknown].sum(axis=0)
        too_much: Flags = lost > _UNFIT * spent
        return too_much


@dataclass(frozen=True, slots=True)
class _Runs:
    """Measured times of some runs of a plan, a row per run; one that stands for several holds their medians."""

    start_ns: Floats
    """(runs, nodes), from the start of the run; NaN where a node has no time."""
    duration_ns: Floats
    wall_ns: Floats
    late_ns: Floats
    """By how much late workers made each run longer."""

    def __len__(self) -> int:
        return len(self.wall_ns)

    def of(self, rows: Any) -> _Runs:
        """Some of the runs."""
        return _Runs(self.start_ns[rows], self.duration_ns[rows], self.wall_ns[rows], self.late_ns[rows])

    def typical(self) -> _Runs:
        """One run: the medians, for each node over the runs in which it has a time."""
        return _Runs(
            medians(self.start_ns)[None, :],
            medians(self.duration_ns)[None, :],
            np.median(self.wall_ns, keepdims=True),
            np.median(self.late_ns, keepdims=True),
        )


def medians(runs: Floats) -> Floats:
    """The median of each column over the rows that are not NaN; NaN where all are."""
    if not np.isnan(runs).any():
        middle: Floats = np.median(runs, axis=0)
        return middle
    seen = ~np.isnan(runs).all(axis=0)
    middle = np.full(runs.shape[1], np.nan)
    middle[seen] = np.nanmedian(runs[:, seen], axis=0)
    return middle


def schedules(columns: Columns, device: int, aside: Flags) -> Schedules:
    """The schedules of all plans that were sampled on a device, without the submissions in `aside`.

    A plan of which nothing else was sampled is still evaluated: a poor measurement is better than none.
    """
    subs, samples = columns.submissions, columns.samples
    known = np.bincount(samples.submission[samples.status != UNAVAILABLE], minlength=len(subs)) > 0
    here = np.flatnonzero((subs.device == device) & subs.ran & (subs.plan >= 0))
    here = here[np.argsort(subs.plan[here], kind="stable")]
    plans, heads = np.unique(subs.plan[here], return_index=True)
    rows_of = np.split(here, heads[1:])
    spent = np.bincount(subs.plan[here], weights=(subs.end_ns - subs.start_ns)[here], minlength=len(columns.plans))
    index = _by_submission(columns)
    typical: list[Schedule] = []
    singles: list[tuple[Schedule, ...]] = []
    undisturbed: list[int] = []
    counts: list[int] = []
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
        times = _times(columns, plan, chosen, index)
        near = np.sort(np.argsort(np.abs(times.wall_ns - np.median(times.wall_ns)), kind="stable")[:_CONTENTION_RUNS])
        middle = replace(_schedule(columns, device, plan, times.typical(), times.of(near)), submissions=rows.size)
        whole = _whole_runs(times, middle.measured)
        runs = tuple(
            _schedule(columns, device, plan, whole.of([run])) for run in _single_runs(middle, len(whole), steps)
        )
        steps -= size * len(runs)
        typical.append(middle)
        singles.append(runs or (middle,))
        undisturbed.append(len(whole) if left else 0)
        counts.append(len(times))
    return Schedules(tuple(typical), tuple(singles), tuple(undisturbed), tuple(counts))


def _times(columns: Columns, plan: int, chosen: Ints, index: tuple[Ints | None, Ints]) -> _Runs:
    """The times of some runs of a plan."""
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
    return _Runs(start, duration, (subs.end_ns - subs.start_ns)[chosen].astype(np.float64), late)


def _single_runs(typical: Schedule, whole: int, steps: int) -> list[int]:
    """Which of the whole runs get a schedule, evenly spaced; none where there are too few, or too many nodes."""
    contended = sum(len(stretch) for stretch in typical.contention)
    allowed = steps // max(typical.start_ns.size, 1)
    allowed = min(allowed, _MAX_CONTENDED_STEPS // contended) if contended else allowed
    count = min(whole, _SINGLE_RUNS, allowed)
    chosen: list[int] = np.linspace(0, whole - 1, count).astype(np.int64).tolist()
    return chosen if count >= _FEWEST_SINGLE_RUNS else []


def _whole_runs(times: _Runs, timed: Flags) -> _Runs:
    """Runs in which every node has a time that ever has one: neighbours combined where they take turns."""
    if not np.isnan(times.start_ns[:, timed]).any():
        return times
    together: list[list[int]] = [[]]
    missing = timed.copy()
    for run in range(len(times)):
        together[-1].append(run)
        missing &= np.isnan(times.start_ns[run])
        if not missing.any():
            together.append([])
            missing = timed.copy()
    whole = [times.of(slice(0)), *(times.of(runs).typical() for runs in together[:-1])]
    return _Runs(*(np.concatenate([getattr(run, name) for run in whole]) for name in _Runs.__slots__))


def _schedule(columns: Columns, device: int, plan: int, run: _Runs, runs: _Runs | None = None) -> Schedule:
    """The schedule of one run, which may stand for several `runs`."""
    facts, plans = columns.devices[device], columns.plans
    start, duration = run.start_ns[0], run.duration_ns[0]
    workers = None
    if facts.workers is not None:
        groups = columns.commands.groups[plans.command[plans.nodes(plan)]]
        useful = np.minimum(np.maximum(groups, 1), facts.workers).astype(np.float64)
        if facts.first_come:
            useful = np.where(duration < _SPREAD_NS, 1.0, useful)
            start, duration = _without_lateness(start, duration, useful, float(run.late_ns[0]))
        sharing = Sharing.FIRST if facts.first_come else Sharing.PROPORTIONAL
        workers = Workers(facts.workers, useful, sharing)
    single = None if runs is None else (runs.start_ns, runs.duration_ns)
    return schedule(plan, 1, start, duration, float(run.wall_ns[0]), plans.edges[plan], workers, single)


def _without_lateness(start: Floats, duration: Floats, useful: Floats, late_ns: float) -> tuple[Floats, Floats]:
    """Starts and durations as if no worker had come late: that cost belongs to starting the list, not to a kernel.

    It extends the dispatches that run first, where they can use several workers: by half of their time at most, which
    is when the other of two workers was not there at all.
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
    """(order, first): the samples of submission s are order[first[s]:first[s + 1]]; no order if sorted already."""
    owner = columns.samples.submission
    first = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(columns.submissions)))])
    if owner.size < 2 or not (np.diff(owner) < 0).any():
        return None, first
    return np.argsort(owner, kind="stable"), first
