"""How much wall time faster kernels would save, evaluated run by run, and resampled.

Each run of a command list is evaluated again with a kernel at its attainable time, and at half of its time. Off the
critical path that saves less than the kernel's own time. Resampling the runs (`ranking.py`) gives the intervals. In
every run and in every resample a kernel saves at most the time that it takes there, half of that if it is twice as
fast, and never more than the wall time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from . import ranking
from .attainable import attainable_ns, by_kernel
from .columns import Columns, Flags, Floats, Ints
from .critical_path import Schedule, busy_of
from .roofline import Rates
from .schedules import PlanSavings, Schedules

_MOST_CELLS = 1 << 22
"""Times that are drawn at once, resamples times commands."""


@dataclass(frozen=True, slots=True)
class Compared:
    """The kernels of a device that are compared, and what their commands reached."""

    columns: Columns
    schedules: Schedules
    reached: Rates
    code: Ints
    """The kernel of each command; -1 for those without a time on the device."""
    calibrated: bool
    """Whether the device has ceilings."""
    judged: Ints
    """The kernels that are compared with all others, and not with all."""
    kernels: Ints
    """The kernels whose savings are evaluated."""

    def commands_of(self, plan: Schedule) -> Ints:
        """The command of each node."""
        return self.columns.plans.command[self.columns.plans.nodes(plan.plan)]

    def attainable_ns(self, typical_ns: Floats) -> Floats:
        """See `attainable.attainable_ns`."""
        return attainable_ns(self.reached, self.code, self.calibrated, typical_ns, self.judged)


@dataclass(frozen=True, slots=True)
class Savings:
    """By kernel, over all command buffers that the schedules stand for."""

    scheduled: Flags
    """Whether any schedule contains it."""
    unknown: Flags
    """Whether its saving is not known."""
    ideal_ns: Floats
    """What its dispatches save, each by itself, with the part of the device that it had."""
    most_ns: Floats
    """What it saves of its own busy time: an upper bound."""
    attained_ns: Floats
    """What the wall shrinks by at the attainable times."""
    halved_ns: Floats
    """What the wall shrinks by if it is twice as fast."""
    wall_ns: float
    drawn_attained_ns: Floats
    """(resamples, kernels): the same in other recordings."""
    drawn_halved_ns: Floats
    drawn_wall_ns: Floats
    """(resamples,)"""
    well_measured: float
    """The part of the wall time in lists that have enough undisturbed runs."""
    longest: int
    """The schedule that takes most of the time, or most of it among those with too few runs."""


def evaluated(compared: Compared, attainable: Floats) -> Savings | None:
    """What each kernel saves at the attainable times and when it is twice as fast; None without schedules."""
    schedules, kernels = compared.schedules, compared.kernels
    if not schedules.plans or kernels.size == 0:
        return None
    mine_of, command_of = {}, {}
    scheduled, ideal, most = np.zeros(kernels.size, bool), np.zeros(kernels.size), np.zeros(kernels.size)
    for plan in schedules.plans:
        command = command_of[plan.plan] = compared.commands_of(plan)
        mine = mine_of[plan.plan] = compared.code[command][:, None] == kernels[None, :]
        now = plan.duration_ns[:, None]
        saved = np.maximum(now - attainable[command][:, None], 0.0)
        scheduled |= (mine & plan.measured[:, None]).any(axis=0)
        ideal += plan.submissions * np.where(mine, saved * plan.device_share[:, None], 0.0).sum(axis=0)
        if plan.unknown is not None and plan.unknown.any():
            saved = busy_of(plan)[:, None] * np.divide(saved, now, out=np.zeros_like(now), where=now > 0)
        most += plan.submissions * np.where(mine, saved, 0.0).sum(axis=0)

    def shortened(run: Schedule) -> Floats:
        mine, now = mine_of[run.plan], run.duration_ns[:, None]
        better = np.minimum(now, attainable[command_of[run.plan]][:, None])
        return np.concatenate([np.where(mine, better, now), np.where(mine, now / 2, now)], axis=1)

    def by_itself(run: Schedule) -> tuple[Floats, Floats]:
        saved = np.maximum(run.duration_ns - attainable[command_of[run.plan]], 0.0)
        return saved @ mine_of[run.plan], run.duration_ns @ mine_of[run.plan]

    alone = [np.array([by_itself(run) for run in runs]) for runs in schedules.runs]
    by_plan = [
        _limited(saving, own_ns[:, 1]) for saving, own_ns in zip(schedules.savings(shortened), alone, strict=True)
    ]
    unknown = schedules.unknown(list(mine_of.values()))
    drawn_attained, drawn_halved, drawn_wall = _drawn(compared, by_plan, alone)
    # What is only bounded may be anything up to its bound, whatever the others come to.
    anything = np.repeat(np.linspace(0.0, 1.0, ranking.RESAMPLES)[:, None], kernels.size, axis=1)
    anything = np.random.default_rng(2).permuted(anything, axis=0) * most
    attained, halved = np.split(ranking.total(by_plan), 2)
    return Savings(
        scheduled,
        unknown,
        ideal,
        most,
        attained,
        halved,
        ranking.total_wall(by_plan),
        np.where(unknown, anything, drawn_attained),
        drawn_halved,
        drawn_wall,
        *ranking.well_measured(by_plan),
    )


def _limited(saving: PlanSavings, spent_ns: Floats) -> PlanSavings:
    """The savings of a plan, none larger than what the kernel takes in the run (`spent_ns`), or half of that."""
    most = np.minimum(spent_ns, saving.wall_ns[:, None])
    return replace(saving, saved_ns=np.minimum(saving.saved_ns, np.concatenate([most, most / 2], axis=1)))


def _drawn(compared: Compared, by_plan: list[PlanSavings], alone: list[Floats]) -> tuple[Floats, Floats, Floats]:
    """Savings at the attainable times, savings when twice as fast, and wall times, a row per resample.

    `alone` has of each plan (runs, 2, kernels): what the dispatches of a kernel save, each by itself, and what they
    take. The former is worked out again from the resampled times. The part of it that the wall shrinks by is that of
    the runs that were drawn. Where the time of a kernel gets a factor, its part of the wall gets the same.
    """
    schedules, kernels, code = compared.schedules, compared.kernels, compared.code
    size, count = kernels.size, ranking.RESAMPLES
    own = np.flatnonzero(code >= 0)  # the commands of this device
    place = np.full(code.size, -1, np.int64)
    place[own] = np.arange(own.size)
    own_code, own_rates = code[own], compared.reached.of(own)
    kernel_count = int(own_code.max(initial=0)) + 1
    factors = ranking.unsure_factors(kernel_count)
    attained, halved, ideal, most = (np.zeros((count, size)) for _ in range(4))
    took = np.zeros(count)
    lists = []
    ran = np.zeros(own.size)
    for plan, runs, saving, by_itself, draw in zip(
        schedules.plans, schedules.runs, by_plan, alone, ranking.draws(by_plan), strict=True
    ):
        command = place[compared.commands_of(plan)]
        mine = np.flatnonzero(command >= 0)
        durations = np.array([run.duration_ns[mine] for run in runs])
        lists.append((plan.submissions, command[mine], durations, draw))
        np.add.at(ran, command[mine], plan.submissions)
        wall = draw.means(saving.wall_ns[:, None])[:, 0]
        saved = draw.means(saving.saved_ns).reshape(count, 2, size)
        own_ns = draw.means(by_itself.reshape(len(runs), -1)).reshape(count, 2, size)
        if not draw.enough:
            off = factors[:, kernels]
            wall = wall + (_of_wall(saved, wall) * (off - 1)).sum(axis=1)
            saved, own_ns = saved * off[:, None, :], own_ns * off[:, None, :]
        attained += plan.submissions * saved[:, 0]
        halved += plan.submissions * saved[:, 1]
        ideal += plan.submissions * own_ns[:, 0]
        most += plan.submissions * np.minimum(own_ns[:, 1], wall[:, None])
        took += plan.submissions * wall
    each = np.empty((count, kernel_count))
    step = max(1, _MOST_CELLS // max(own.size, 1))
    for rows in (slice(first, first + step) for first in range(0, count, step)):
        spent = np.zeros((len(each[rows]), own.size))
        for submissions, command, durations, draw in lists:
            times = draw.means(durations, rows) * submissions
            np.add.at(spent.T, command, (times if draw.enough else times * factors[rows][:, own_code[command]]).T)
        typical = np.where(ran > 0, spent / np.maximum(ran, 1.0), own_rates.typical_ns)
        attainable = attainable_ns(own_rates, own_code, compared.calibrated, typical, compared.judged)
        alone_each = np.where(ran > 0, ran * np.maximum(typical - attainable, 0.0), 0.0)
        each[rows] = by_kernel(alone_each, own_code, kernel_count)
    part = np.divide(attained, ideal, out=np.ones_like(ideal), where=ideal > 0)
    attained = each[:, kernels] * np.clip(part, 0.0, 1.0)
    return np.minimum(attained, most), np.minimum(halved, most / 2), took


def _of_wall(saved: Floats, wall: Floats) -> Floats:
    """(resamples, kernels): how much of the wall each kernel is, by its savings: what would be gone without it."""
    part = np.maximum(saved[:, 0], 2 * saved[:, 1])
    whole = part.sum(axis=1)
    of_wall: Floats = part * np.divide(wall, whole, out=np.ones_like(wall), where=whole > wall)[:, None]
    return of_wall
