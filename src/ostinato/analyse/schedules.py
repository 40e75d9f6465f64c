"""The schedules of a recording: how each plan ran, by medians over its submissions, and what they stand for together.

First runs, which also warm up caches, are set aside where there are others. Plans are looked at by their share of the
time, until there are so many nodes that more would take long.
"""

from __future__ import annotations

from collections.abc import Sequence
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
_CROWD_RUNS = 15
"""Submissions that the work of a crowd is taken from: those that took about as long as most."""
_SPREAD_NS = 4000.0
"""The CPU backend does not spread what takes less than this over several workers."""
_UNFIT = 0.05
"""What-ifs of a kernel are not known when more than this part of its time lies in crowds whose replay does not fit."""


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
