"""Which kernel to look at first: ranked by the wall time that better efficiency could save.

For every kernel: how long would it take if it came as close to the ceilings as the *other* kernels of the recording do
(the median of their efficiencies by time, between 15 % and 75 %)? Nobody reaches a ceiling, so a matrix product at 70
% of copy bandwidth is well-behaved and a top-k at 0.4 % is not, even where the matrix products take more time. A
kernel that takes nearly all of the time has no company to be held against: half of a ceiling is then what it could
reach. What that saves is run through the schedule of every run: off the critical path it is worth less. Nothing takes
less time than launching it. Where kernels share a full device and no replay explains how, the schedule cannot tell;
then the same part of the kernel's own busy time is an upper bound.

Without measured ceilings the others' bandwidth is the measure, and the result says so. Where the efficiency of a
kernel cannot be known (nothing declared, and the bound bytes impossible), it is as likely anything between nothing and
that measure; half its time then counts, and the reason says what to declare.

All figures and reasons of a kernel are of all its dispatches on the device. `ranking.py` says how sure the order is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from . import ranking, wording
from .columns import UNAVAILABLE, Columns, Device, Flags, Floats, Ints
from .critical_path import NOT_KNOWN, Schedule, busy_of, path_of
from .groups import CommandTimes, command_times, folded, kernel_codes
from .roofline import Rates, rates, weighted_medians
from .schedules import PlanSavings, Schedules
from .statistics import median

_CANDIDATES = 10
_LEAST_REFERENCE, _MOST_REFERENCE = 0.15, 0.75
_REFERENCE_ALONE = 0.5
_COMPANY = 0.1
"""The part of the time that the other kernels must have to be a measure."""
_LAUNCH_NS = 1000.0
"""A dispatch shorter than this is mostly launch on every device known so far."""
_NEARLY_ALL, _SOME = 0.9, 0.25
"""Of a kernel's time: what holds for so much of it is said of all, and for so much of it with the part."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """One kernel, what it could save, and why."""

    kernel: str
    detail: str
    device: str
    device_row: int
    label: str
    """The label path of its dispatches, numbers folded: 'layer.*/mlp'; of most of its time, where they differ."""
    label_part: float
    """The part of its time that has this label."""
    place: str
    """The line that encoded them; of most of its time, where there are several."""
    place_part: float
    place_is_first: bool
    """It was encoded live: the line is that of the first dispatch which was equal in everything else."""
    count: int
    total_ns: float
    """Of the dispatches that have a time."""
    p50_ns: float
    busy_share: float | None
    """Of the busy time of its device; an instant that n dispatches share counts 1/n for each."""
    saving_ns: float
    """Wall time that all command buffers together would save."""
    saving_is_bound: bool
    """It may save less: it shares a full device with others in a way that no replay explains."""
    saving_share: float | None
    """The same as a part of the command buffers' time; None when no schedule is known."""
    saving_low: float | None
    saving_high: float | None
    """The 95 % interval of that part, over runs; None where the saving is a bound or no schedule is known."""
    twice_as_fast_ns: float | None
    """What the wall would shrink by if it were twice as fast; None where that is not known."""
    twice_as_fast_share: float | None
    efficiency: float | None
    """Of the nearer ceiling; None when not known."""
    efficiency_is_bound: bool
    """It may be lower: the bytes are those bound, not those declared."""
    bytes_per_s: float | None
    flops_per_s: float | None
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A kernel, twice as fast."""

    kernel: str
    detail: str
    device: str
    device_row: int
    on_path_ns: float
    """Its time on the critical paths of all command buffers."""
    saved_ns: float | None
    """None where it is not known: it shares a full device with others in a way that no replay explains."""
    saved_share: float | None
    """Of the time of all command buffers."""
    saved_low: float | None
    saved_high: float | None
    """The 95 % interval of that part, over runs."""


@dataclass(frozen=True, slots=True)
class Suspects:
    """The ranking of one device."""

    device: str
    device_row: int
    ranked: tuple[Suspect, ...]
    what_ifs: tuple[WhatIf, ...]
    """Of the kernels that take most time."""
    measure: str
    """What efficiency was held against, in words."""
    wall_ns: float
    """The time of the command buffers that savings are a part of; 0 when none was sampled."""
    drawn_ns: Floats
    """(resamples, ranked): what each saves when the runs are drawn anew."""
    well_measured: float
    """The part of the command buffers' time in lists that have enough undisturbed runs."""
    runs: int
    """Undisturbed runs of the list that takes most of the time."""


def suspects(
    columns: Columns, device: int, schedules: Schedules, aside: Flags, spent: CommandTimes | None = None
) -> Suspects:
    """Ranks the kernels of a device. Submissions in `aside` are left out where there are others.

    `spent` is `command_times(columns)`, where it is there already.
    """
    spent = spent or command_times(columns)
    facts = columns.devices[device]
    reached = rates(columns, device, aside)
    code, names = kernel_codes(columns)
    code = np.where(reached.count > 0, code, -1)
    calibrated = bool(facts.copy_bytes_per_s or facts.flops_per_s)
    totals = np.bincount(code[code >= 0], weights=reached.total_ns[code >= 0], minlength=len(names))
    largest = np.argsort(-totals, kind="stable")
    judged = largest[totals[largest] > 0][: 2 * _CANDIDATES]
    attainable = _attainable(reached, code, calibrated, reached.typical_ns[None, :], judged)[0]
    saved = np.where(code >= 0, reached.runs * np.maximum(reached.typical_ns - attainable, 0.0), 0.0)
    by_kernel = np.bincount(code[code >= 0], weights=saved[code >= 0], minlength=len(names))
    candidates = np.lexsort((-totals, -by_kernel))[:_CANDIDATES]
    candidates = candidates[totals[candidates] > 0]
    kernels = np.array(list(dict.fromkeys([*candidates.tolist(), *judged[:_CANDIDATES].tolist()])), np.int64)
    wall = _on_the_wall(columns, schedules, code, kernels, attainable)
    drawn = None if wall is None else _drawn(columns, schedules, reached, code, calibrated, kernels, judged, wall)
    busy = spent.device_busy_ns[device]
    timed = _timed(columns, device, code, len(names))
    live = _encoded_live(columns)
    found = []
    for number, kernel in enumerate(candidates.tolist()):
        rows = np.flatnonzero(code == kernel)
        p50_ns = median(timed[kernel])
        reasons = _reasons(columns, facts, reached, rows, p50_ns)
        gain = _gain(wall, drawn, number, float(by_kernel[kernel]), reasons)
        efficiency, bound = _efficiency(reached, rows)
        label, label_part = _most(reached, rows, _alike(columns.commands.label[rows].tolist()))
        place, place_part = _most(reached, rows, columns.commands.place[rows].tolist())
        found.append(
            Suspect(
                kernel=names[kernel][0],
                detail=names[kernel][1],
                device=facts.name,
                device_row=device,
                label=label,
                label_part=label_part,
                place=place,
                place_part=place_part,
                place_is_first=bool(live[rows[columns.commands.place[rows] == place]].all()),
                count=int(reached.count[rows].sum()),
                total_ns=float(timed[kernel].sum()),
                p50_ns=p50_ns,
                busy_share=_part(float(busy[rows].sum()), float(busy.sum())),
                saving_ns=gain.saving_ns,
                saving_is_bound=gain.bounded,
                saving_share=gain.share,
                saving_low=gain.low,
                saving_high=gain.high,
                twice_as_fast_ns=gain.halved_ns,
                twice_as_fast_share=gain.halved_share,
                efficiency=efficiency,
                efficiency_is_bound=bound,
                bytes_per_s=_rate(reached.bytes_moved, reached, rows),
                flops_per_s=_rate(reached.flops, reached, rows),
                reasons=tuple(reasons),
            )
        )
    order = sorted(range(len(found)), key=lambda at: (-found[at].saving_ns, -found[at].total_ns))
    bounds = bool(reached.bound[(code >= 0) & ~np.isnan(reached.least_ns)].any())
    return Suspects(
        facts.name,
        device,
        tuple(found[at] for at in order),
        ()
        if wall is None or drawn is None
        else _what_ifs(columns, device, schedules, code, names, kernels, wall, drawn),
        _measure(facts, calibrated, bounds, columns.meta.get("created", "")),
        schedules.wall_ns,
        np.zeros((0, len(found))) if drawn is None else drawn.saved_ns[:, order],
        *((0.0, 0) if wall is None else ranking.well_measured(wall.savings)),
    )


@dataclass(frozen=True, slots=True)
class _Gain:
    """What one kernel could save."""

    saving_ns: float
    bounded: bool = False
    share: float | None = None
    low: float | None = None
    high: float | None = None
    halved_ns: float | None = None
    halved_share: float | None = None


def _gain(wall: _Wall | None, drawn: _Drawn | None, number: int, alone_ns: float, reasons: list[str]) -> _Gain:
    """Of the kernel at `number`, whose dispatches save `alone_ns` each by itself; adds to the reasons."""
    if wall is None or drawn is None or not wall.scheduled[number]:
        return _Gain(alone_ns)
    whole_ns = wall.wall_ns
    if wall.unknown[number]:
        reasons.append(NOT_KNOWN)
        saving = min(float(wall.most_ns[number]), whole_ns)
        return _Gain(saving, True, _part(saving, whole_ns))
    saving, halved = float(wall.saved_ns[number]), float(wall.saved_ns[wall.size + number])
    if saving < 0.5 * float(wall.ideal_ns[number]):
        reasons.append("mostly off the critical path")
    low, high = ranking.interval(drawn.saved_ns[:, number], drawn.wall_ns)
    low, high = min(low, saving / whole_ns), max(high, saving / whole_ns)
    return _Gain(saving, False, _part(saving, whole_ns), low, high, halved, _part(halved, whole_ns))


def _what_ifs(
    columns: Columns,
    device: int,
    schedules: Schedules,
    code: Ints,
    names: list[tuple[str, str]],
    kernels: Ints,
    wall: _Wall,
    drawn: _Drawn,
) -> tuple[WhatIf, ...]:
    """The kernels that take most time on the device, each twice as fast."""
    spent, on_path = np.zeros(len(names)), np.zeros(len(names))
    for plan in schedules.plans:
        kernel = code[columns.plans.command[columns.plans.nodes(plan.plan)]]
        chosen = kernel >= 0
        spent += np.bincount(kernel[chosen], plan.duration_ns[chosen] * plan.submissions, minlength=len(names))
        path = np.array(path_of(plan), np.int64)
        path = path[chosen[path]]
        on_path += np.bincount(kernel[path], plan.duration_ns[path] * plan.submissions, minlength=len(names))
    found = []
    for number, kernel in sorted(enumerate(kernels.tolist()), key=lambda each: -spent[each[1]])[:_CANDIDATES]:
        if spent[kernel] <= 0:
            continue
        known = not wall.unknown[number]
        saved = float(wall.saved_ns[wall.size + number])
        low, high = ranking.interval(drawn.halved_ns[:, number], drawn.wall_ns)
        found.append(
            WhatIf(
                kernel=names[kernel][0],
                detail=names[kernel][1],
                device=columns.devices[device].name,
                device_row=device,
                on_path_ns=float(on_path[kernel]),
                saved_ns=saved if known else None,
                saved_share=_part(saved, wall.wall_ns) if known else None,
                saved_low=low if known else None,
                saved_high=high if known else None,
            )
        )
    return tuple(found)


def _encoded_live(columns: Columns) -> Flags:
    """The commands that were submitted without a graph."""
    plans, subs = columns.plans, columns.submissions
    live = np.zeros(len(plans), bool)
    live[subs.plan[~subs.replay & (subs.plan >= 0)]] = True
    found: Flags = np.zeros(len(columns.commands), bool)
    found[plans.command[np.repeat(live, np.diff(plans.first))]] = True
    return found


def _timed(columns: Columns, device: int, code: Ints, size: int) -> list[Ints]:
    """The measured times of every kernel on a device."""
    samples = columns.samples
    mine = (samples.status != UNAVAILABLE) & (columns.submissions.device[samples.submission] == device)
    kernel = code[columns.plans.command[samples.node[mine]]]
    duration = (samples.end_ns - samples.start_ns)[mine]
    kept = kernel >= 0
    kernel, duration = kernel[kept], duration[kept]
    order = np.argsort(kernel.astype(np.uint16) if size <= 1 << 16 else kernel, kind="stable")
    return np.split(duration[order], np.cumsum(np.bincount(kernel, minlength=size))[:-1])


def _attainable(reached: Rates, code: Ints, calibrated: bool, typical_ns: Floats, judged: Ints) -> Floats:
    """The time that a dispatch of each command would take if it did as well as the other kernels do.

    `typical_ns` is what a dispatch of each command takes now, a row per resample, and so is the result. Kernels that
    are not `judged` are held against all kernels; leaving one out matters only where it takes much of the time.
    """
    ideal = reached.least_ns if calibrated else reached.bytes_moved * 1e9
    mine = code >= 0
    size = int(code.max(initial=0)) + 1
    spent = _by_kernel(np.where(mine, reached.runs, 0.0) * np.where(mine, typical_ns, 0.0), code, size)
    known = mine & ~np.isnan(ideal)
    least = _by_kernel(np.where(known, reached.runs * np.where(known, ideal, 0.0), 0.0)[None, :], code, size)
    known_ns = _by_kernel(np.where(known, reached.runs * np.where(known, typical_ns, 0.0), 0.0), code, size)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.where(known_ns > 0, least / known_ns, np.nan)
    values = np.minimum(values, 1.0) if calibrated else values
    reference = np.repeat(_limited(weighted_medians(values, spent), calibrated)[:, None], size, axis=1)
    for kernel in judged.tolist():
        others = spent.copy()
        others[:, kernel] = 0.0
        company = others.sum(axis=1) >= _COMPANY * spent.sum(axis=1)
        reached_by_others = weighted_medians(values, others)
        reference[:, kernel] = _limited(np.where(company | (not calibrated), reached_by_others, np.nan), calibrated)
    with np.errstate(divide="ignore", invalid="ignore"):
        attainable = ideal / reference[:, np.maximum(code, 0)]
    attainable = np.where(np.isnan(attainable), typical_ns / 2, attainable)
    launch = np.minimum(np.nanmin(np.where(mine, typical_ns, np.nan), axis=1, initial=_LAUNCH_NS), _LAUNCH_NS)
    found: Floats = np.maximum(attainable, launch[:, None])
    return found


def _by_kernel(values: Floats, code: Ints, size: int) -> Floats:
    """(resamples, kernels) of (resamples, commands): added up."""
    chosen = np.flatnonzero(code >= 0)
    order = chosen[np.argsort(code[chosen], kind="stable")]
    numbers, heads = np.unique(code[order], return_index=True)
    found = np.zeros((len(values), size))
    if order.size:
        found[:, numbers] = np.add.reduceat(values[:, order], heads, axis=1)
    return found


def _limited(reference: Floats, calibrated: bool) -> Floats:
    if not calibrated:
        return reference
    held = np.clip(reference, _LEAST_REFERENCE, _MOST_REFERENCE)
    return np.where(np.isnan(reference), _REFERENCE_ALONE, held)


@dataclass(frozen=True, slots=True)
class _Wall:
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


def _on_the_wall(columns: Columns, schedules: Schedules, code: Ints, kernels: Ints, attainable: Floats) -> _Wall | None:
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
    return _Wall(
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
class _Drawn:
    """What kernels would have saved in other recordings, one row per resample."""

    saved_ns: Floats
    """(resamples, kernels)"""
    halved_ns: Floats
    wall_ns: Floats
    """(resamples,)"""


def _drawn(
    columns: Columns,
    schedules: Schedules,
    reached: Rates,
    code: Ints,
    calibrated: bool,
    kernels: Ints,
    judged: Ints,
    wall: _Wall,
) -> _Drawn:
    """Draws the runs anew.

    What the dispatches of a kernel save, each by itself, is worked out from the times that were drawn; which part of
    that the wall shrinks by is what it was in those runs. What is only bounded may be anything up to its bound.
    """
    size, count = wall.size, ranking.RESAMPLES
    draws = ranking.draws(wall.savings, int(code.max(initial=0)) + 1)
    spent, ran = np.zeros((count, code.size)), np.zeros(code.size)
    saved, alone = np.zeros((count, 2 * size)), np.zeros((count, size))
    took = np.zeros(count)
    for plan, runs, saving, by_itself, drawn in zip(
        schedules.plans, schedules.runs, wall.savings, wall.alone_ns, draws, strict=True
    ):
        command = columns.plans.command[columns.plans.nodes(plan.plan)]
        times = (
            drawn.means(np.array([run.duration_ns for run in runs])) * drawn.factors[:, np.maximum(code[command], 0)]
        )
        np.add.at(spent.T, command, times.T * plan.submissions)
        np.add.at(ran, command, plan.submissions)
        saved += drawn.means(saving.saved_ns) * plan.submissions
        alone += drawn.means(by_itself) * plan.submissions
        took += drawn.means(saving.wall_ns[:, None])[:, 0] * plan.submissions
    typical = np.where(ran > 0, spent / np.maximum(ran, 1.0), reached.typical_ns)
    attainable = _attainable(reached, code, calibrated, typical, judged)
    each = _by_kernel(np.where(ran > 0, ran * np.maximum(typical - attainable, 0.0), 0.0), code, int(code.max()) + 1)
    part = np.divide(saved[:, :size], alone, out=np.ones_like(alone), where=alone > 0)
    saved_ns = each[:, kernels] * np.clip(part, 0.0, 1.0)
    anything = np.linspace(0.0, 1.0, count)[:, None] * wall.most_ns[None, :]
    saved_ns[:, wall.unknown] = anything[:, wall.unknown]
    return _Drawn(saved_ns, saved[:, size:], took)


# --- in words ------------------------------------------------------------------------------------------------


def _alike(labels: list[str]) -> list[str]:
    """The labels, with their numbers folded where they differ."""
    return labels if len(set(labels)) == 1 else [folded(label) for label in labels]


def _most(reached: Rates, rows: Ints, values: list[str]) -> tuple[str, float]:
    """The value that most of a kernel's time has, and the part of the time."""
    spent: dict[str, float] = {}
    for row, value in zip(rows.tolist(), values, strict=True):
        spent[value] = spent.get(value, 0.0) + float(reached.total_ns[row])
    whole = sum(spent.values())
    most = max(spent, key=lambda value: spent[value])
    return most, spent[most] / whole if whole > 0 else 1.0


def _reasons(columns: Columns, device: Device, reached: Rates, rows: Ints, p50_ns: float) -> list[str]:
    """Why a kernel is slow, as far as the recording tells: of all its dispatches."""
    found = []
    spent = reached.total_ns[rows]
    shape = _few_groups(columns, device, rows, spent)
    if shape:
        found.append(shape)
    if p50_ns < _LAUNCH_NS:
        found.append(f"launch-bound: {wording.time(p50_ns)} a dispatch")
    found.append(_speed(columns, reached, rows, p50_ns))
    return found


def _few_groups(columns: Columns, device: Device, rows: Ints, spent: Floats) -> str:
    """That too few threadgroups were dispatched to fill the device, and in how much of the kernel's time."""
    commands = columns.commands
    groups = commands.groups[rows]
    few = (commands.kind[rows] == "dispatch") & (groups < (device.workers or 2))
    part = float(spent[few].sum() / spent.sum()) if spent.sum() > 0 else 0.0
    if part < _SOME:
        return ""
    threads = np.minimum(commands.group[rows].prod(axis=1), commands.threads[rows].prod(axis=1))
    shapes = {(int(g), int(t)) for g, t in zip(groups[few].tolist(), threads[few].tolist(), strict=True)}
    if len(shapes) == 1:
        ((count, size),) = shapes
        told = f"{wording.count(count, 'threadgroup')} of {wording.count(size, 'thread')}"
    else:
        told = f"{wording.count(int(groups[few].min()), 'threadgroup')} or a few more"
    where = f" on a device with {wording.count(device.workers, 'worker')}" if device.workers else ""
    return f"{told}{where}" + ("" if part >= _NEARLY_ALL else f" in {wording.percent(part)} of its time")


def _speed(columns: Columns, reached: Rates, rows: Ints, p50_ns: float) -> str:
    """How fast all its dispatches together moved bytes or computed."""
    commands, spent = columns.commands, reached.total_ns
    whole = float(spent[rows].sum())
    moving, computing = rows[~np.isnan(reached.bytes_moved[rows])], rows[~np.isnan(reached.flops[rows])]
    if float(spent[np.union1d(moving, computing)].sum()) < 0.5 * whole:
        refuted = rows[reached.refuted[rows]]
        if refuted.size == 0:
            return "efficiency not known: its bytes are neither declared nor bound"
        row = refuted[spent[refuted].argmax()]
        amount = wording.size(float(commands.bytes_read[row] + commands.bytes_written[row]))
        took = wording.time(p50_ns)
        return f"efficiency not known: bound to {amount}, more than it is likely to move in {took}; declare its bytes"
    bandwidth = _together(reached.bandwidth_efficiency, reached, moving)
    flops = _together(reached.flop_efficiency, reached, computing)
    rate = _rate(reached.bytes_moved, reached, rows)
    at_most = "at most " if reached.bound[moving].any() else ""
    if flops is not None and not (bandwidth is not None and flops < bandwidth):
        return f"computes at {wording.percent(flops)} of the peak flop rate"
    if bandwidth == 0 or rate == 0:
        return "moves no bytes that were declared"
    if bandwidth is not None:
        return f"moves {at_most}{wording.percent(bandwidth, at_most != '')} of copy bandwidth"
    if rate is None:
        return "efficiency not known: there is no ceiling to hold it against"
    return f"moves {at_most}{wording.byte_rate(rate)}"


def _together(efficiency: Floats, reached: Rates, rows: Ints) -> float | None:
    """The efficiency of several commands by their time; None where none is known."""
    known = rows[~np.isnan(efficiency[rows])]
    total = float(reached.total_ns[known].sum())
    return float((efficiency[known] * reached.total_ns[known]).sum()) / total if total > 0 else None


def _measure(device: Device, calibrated: bool, bounds: bool, recorded: str) -> str:
    if not calibrated:
        return (
            "no ceilings were measured on this device (`ostinato calibrate` does): "
            "kernels are held against the bandwidth of the others"
        )
    parts = []
    if device.copy_bytes_per_s:
        known = _how_known(device.copy_spread, device.copy_measured, recorded)
        parts.append(f"a copy at {wording.byte_rate(device.copy_bytes_per_s)}{known}")
    if device.flops_per_s:
        known = _how_known(device.flops_spread, device.flops_measured, recorded)
        parts.append(f"{wording.flop_rate(device.flops_per_s)}{known}")
    low, high, alone = (wording.whole_percent(one) for one in (_LEAST_REFERENCE, _MOST_REFERENCE, _REFERENCE_ALONE))
    return (
        f"of the ceilings measured on this device: {' and '.join(parts)}; held against the median of the other kernels,"
        f" between {low} and {high} ({alone} for a kernel that takes nearly all of the time)"
        + ("; ≤: the bytes are those bound, not declared, so it may be lower" if bounds else "")
        + (
            "; the machine was busy when the ceilings were measured: they may be too low"
            if device.ceilings_busy
            else ""
        )
        + "".join(f"; {told}" for told in device.raised)
    )


def _how_known(spread: float | None, measured: str, recorded: str) -> str:
    """By how much a ceiling varied when it was measured, and how long before the recording that was."""
    parts = [] if spread is None else [f"±{wording.percent(spread)}"]
    age = wording.age(measured, recorded)
    parts += [age] if age else []
    return f" ({', '.join(parts)})" if parts else ""


def _efficiency(reached: Rates, rows: Ints) -> tuple[float | None, bool]:
    """The efficiency of a kernel over its commands and whether it is an upper bound; None if mostly not known."""
    known = rows[~np.isnan(reached.least_ns[rows])]
    total = float(reached.total_ns[known].sum())
    if total <= 0 or total < 0.5 * float(reached.total_ns[rows].sum()):
        return None, False
    least = float((reached.least_ns[known] * reached.runs[known]).sum())
    return min(least / total, 1.0), bool(reached.bound[known].any())


def _rate(per_dispatch: Floats, reached: Rates, rows: Ints) -> float | None:
    known = rows[~np.isnan(per_dispatch[rows])]
    total = float(reached.total_ns[known].sum())
    return float((per_dispatch[known] * reached.runs[known]).sum()) / total * 1e9 if total > 0 else None


def _part(saving: float, wall: float) -> float | None:
    return saving / wall if wall > 0 else None
