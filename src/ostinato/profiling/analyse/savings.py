"""What faster kernels would save of the wall time: run by run, and as other recordings would have it.

Each run of a command list is run again with a kernel at the time that it could attain, and at half of its time. Off the
critical path that saves less than the kernel itself. Drawing the runs anew (`ranking.py`) says how far the result goes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from . import ranking
from .attainable import attainable_ns, by_kernel
from .columns import Columns, Flags, Floats, Ints
from .critical_path import Schedule, busy_of
from .roofline import Rates
from .schedules import PlanSavings, Schedules

_MOST_CELLS = 1 << 22
"""Of the times that are drawn at once, resamples times commands."""


@dataclass(frozen=True, slots=True)
class Wall:
    """By kernel, of all command buffers that the schedules stand for."""

    size: int
    scheduled: Flags
    """Whether any schedule holds it."""
    unknown: Flags
    """Whether what it saves is not known."""
    ideal_ns: Floats
    """What its dispatches save, each by itself, with the part of the device that it had."""
    most_ns: Floats
    """What it saves of its own busy time."""
    savings: list[PlanSavings]
    """By plan and run: first of all kernels with the attainable times, then of all kernels twice as fast."""
    alone_ns: list[Floats]
    """By plan: (runs, kernels), what the dispatches of each save with the attainable times, each by itself."""
    saved_ns: Floats
    """Of all command buffers, the same as `savings`."""
    wall_ns: float


def on_the_wall(columns: Columns, schedules: Schedules, code: Ints, kernels: Ints, attainable: Floats) -> Wall | None:
    """What each kernel saves on the wall when it takes the attainable time, and when it is twice as fast."""
    if not schedules.plans or kernels.size == 0:
        return None
    size = kernels.size
    mine_of, command_of = {}, {}
    scheduled, ideal, most = np.zeros(size, bool), np.zeros(size), np.zeros(size)
    for plan in schedules.plans:
        command = command_of[plan.plan] = columns.plans.command[columns.plans.nodes(plan.plan)]
        mine = mine_of[plan.plan] = code[command][:, None] == kernels[None, :]
        now = plan.duration_ns[:, None]
        better = np.minimum(now, attainable[command][:, None])
        scheduled |= (mine & plan.measured[:, None]).any(axis=0)
        part_of_device = plan.device_share[:, None]
        ideal += plan.submissions * np.where(mine, (now - better) * part_of_device, 0.0).sum(axis=0)
        if plan.unknown is not None and plan.unknown.any():
            part = np.divide(now - better, now, out=np.zeros_like(now), where=now > 0)
            most += plan.submissions * np.where(mine, busy_of(plan)[:, None] * part, 0.0).sum(axis=0)
        else:
            most += plan.submissions * np.where(mine, now - better, 0.0).sum(axis=0)

    def shortened(run: Schedule) -> Floats:
        mine, now = mine_of[run.plan], run.duration_ns[:, None]
        better = np.minimum(now, attainable[command_of[run.plan]][:, None])
        return np.concatenate([np.where(mine, better, now), np.where(mine, now / 2, now)], axis=1)

    def alone(run: Schedule) -> Floats:
        saved = np.maximum(run.duration_ns - attainable[command_of[run.plan]], 0.0)
        by_itself: Floats = saved @ mine_of[run.plan]
        return by_itself

    savings = schedules.savings(shortened)
    return Wall(
        size=size,
        scheduled=scheduled,
        unknown=schedules.unknown(list(mine_of.values())),
        ideal_ns=ideal,
        most_ns=most,
        savings=savings,
        alone_ns=[np.array([alone(run) for run in runs]) for runs in schedules.runs],
        saved_ns=ranking.total(savings),
        wall_ns=ranking.total_wall(savings),
    )


@dataclass(frozen=True, slots=True)
class Drawn:
    """What kernels would have saved in other recordings, one row per resample."""

    saved_ns: Floats
    """(resamples, kernels)"""
    halved_ns: Floats
    wall_ns: Floats
    """(resamples,)"""


def drawn_anew(
    columns: Columns,
    schedules: Schedules,
    reached: Rates,
    code: Ints,
    calibrated: bool,
    kernels: Ints,
    judged: Ints,
    wall: Wall,
) -> Drawn:
    """Draws the runs anew.

    What the dispatches of a kernel save, each by itself, is worked out from the times that were drawn; which part of
    that the wall shrinks by is what it was in those runs. What is only bounded may be anything up to its bound.
    """
    size, count = wall.size, ranking.RESAMPLES
    own = np.flatnonzero(code >= 0)  # the commands of this device
    place = np.full(code.size, -1, np.int64)
    place[own] = np.arange(own.size)
    own_code, own_rates = code[own], reached.of(own)
    kernel_count = int(own_code.max(initial=0)) + 1
    factors = ranking.unsure_factors(kernel_count)
    saved, alone, took = np.zeros((count, 2 * size)), np.zeros((count, size)), np.zeros(count)
    lists = []
    ran = np.zeros(own.size)
    for plan, runs, saving, by_itself, draw in zip(
        schedules.plans, schedules.runs, wall.savings, wall.alone_ns, ranking.draws(wall.savings), strict=True
    ):
        command = place[columns.plans.command[columns.plans.nodes(plan.plan)]]
        mine = np.flatnonzero(command >= 0)
        durations = np.array([run.duration_ns[mine] for run in runs])
        lists.append((plan.submissions, command[mine], durations, draw))
        np.add.at(ran, command[mine], plan.submissions)
        off = 1.0 if draw.enough else np.tile(factors[:, kernels], 2)
        saved += draw.means(saving.saved_ns) * off * plan.submissions
        alone += draw.means(by_itself) * (1.0 if draw.enough else factors[:, kernels]) * plan.submissions
        took += draw.means(saving.wall_ns[:, None])[:, 0] * plan.submissions
    each = np.empty((count, kernel_count))
    step = max(1, _MOST_CELLS // max(own.size, 1))
    for rows in (slice(first, first + step) for first in range(0, count, step)):
        spent = np.zeros((len(each[rows]), own.size))
        for submissions, command, durations, draw in lists:
            times = draw.means(durations, rows) * submissions
            np.add.at(spent.T, command, (times if draw.enough else times * factors[rows][:, own_code[command]]).T)
        typical = np.where(ran > 0, spent / np.maximum(ran, 1.0), own_rates.typical_ns)
        attainable = attainable_ns(own_rates, own_code, calibrated, typical, judged)
        alone_each = np.where(ran > 0, ran * np.maximum(typical - attainable, 0.0), 0.0)
        each[rows] = by_kernel(alone_each, own_code, kernel_count)
    part = np.divide(saved[:, :size], alone, out=np.ones_like(alone), where=alone > 0)
    saved_ns = each[:, kernels] * np.clip(part, 0.0, 1.0)
    # Each up to its own bound, whatever the others come to.
    anything = np.repeat(np.linspace(0.0, 1.0, count)[:, None], size, axis=1)
    anything = np.random.default_rng(2).permuted(anything, axis=0) * wall.most_ns
    saved_ns[:, wall.unknown] = anything[:, wall.unknown]
    return Drawn(saved_ns, saved[:, size:], took)
