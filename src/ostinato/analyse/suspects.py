"""Which kernel to look at first: ranked by the wall time that better efficiency could save.

For every kernel: how long would it take if it came as close to the ceilings as the *other* kernels of the recording do
(the median of their efficiencies by time, between 15 % and 75 %)? Nobody reaches a ceiling, so a matrix product at 70 %
of copy bandwidth is well-behaved and a top-k at 0.4 % is not, even where the matrix products take more time. A kernel
that takes nearly all of the time has no company to be held against: half of a ceiling is then what it could reach. What
that saves is run through the schedule: off the critical path it is worth less. Nothing takes less time than launching
it. Where kernels share a full device and no replay explains how, the schedule cannot tell; then the same part of the
kernel's own busy time is an upper bound.

Without measured ceilings the others' bandwidth is the measure, and the result says so. Where the efficiency of a kernel
cannot be known (nothing declared, and the bound bytes impossible), it is as likely anything between nothing and that
measure; half its time then counts, and the reason says what to declare.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from . import wording
from .columns import UNAVAILABLE, Columns, Device, Flags, Floats, Ints
from .critical_path import NOT_KNOWN, busy_of
from .groups import CommandTimes, command_times, kernel_codes
from .roofline import Rates, rates, weighted_median
from .schedules import Schedules
from .statistics import median

_CANDIDATES = 10
_LEAST_REFERENCE, _MOST_REFERENCE = 0.15, 0.75
_REFERENCE_ALONE = 0.5
_COMPANY = 0.1
"""The part of the time that the other kernels must have to be a measure."""
_LAUNCH_NS = 1000.0
"""A dispatch shorter than this is mostly launch on every device known so far."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """One kernel, what it could save, and why."""

    kernel: str
    detail: str
    device: str
    device_row: int
    label: str
    """The label path under which it could save most."""
    place: str
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
class Suspects:
    """The ranking of one device."""

    device: str
    device_row: int
    ranked: tuple[Suspect, ...]
    measure: str
    """What efficiency was held against, in words."""
    wall_ns: float
    """The time of the command buffers that savings are a part of; 0 when none was sampled."""


def suspects(columns: Columns, device: int, schedules: Schedules, spent: CommandTimes | None = None) -> Suspects:
    """Ranks the kernels of a device. `spent` is `command_times(columns)`, where it is there already."""
    spent = spent or command_times(columns)
    facts = columns.devices[device]
    reached = rates(columns, device)
    code, names = kernel_codes(columns)
    code = np.where(reached.count > 0, code, -1)
    calibrated = bool(facts.copy_bytes_per_s or facts.flops_per_s)
    attainable = _attainable(reached, code, calibrated)
    saved = np.where(code >= 0, reached.runs * np.maximum(reached.typical_ns - attainable, 0.0), 0.0)
    by_kernel = np.bincount(code[code >= 0], weights=saved[code >= 0], minlength=len(names))
    totals = np.bincount(code[code >= 0], weights=reached.total_ns[code >= 0], minlength=len(names))
    order = np.lexsort((-totals, -by_kernel))[:_CANDIDATES]
    candidates = order[totals[order] > 0]
    wall = _on_the_wall(columns, schedules, code, candidates, attainable)
    busy = spent.device_busy_ns[device]
    timed = _timed(columns, device, code, len(names))
    live = _encoded_live(columns)
    found = []
    for number, kernel in enumerate(candidates.tolist()):
        rows = np.flatnonzero(code == kernel)
        worst = int(rows[saved[rows].argmax()])
        reasons = _reasons(columns, facts, reached, rows, worst, calibrated)
        saving, share, halved, bounded = float(by_kernel[kernel]), None, None, False
        if wall is not None and wall.scheduled[number]:
            bounded = bool(wall.unknown[number])
            if bounded:
                saving = float(wall.most_ns[number])
                reasons.append(NOT_KNOWN)
            else:
                saving = max(float(wall.saving_ns[number]), 0.0)
                halved = max(float(wall.halved_ns[number]), 0.0)
                if saving < 0.5 * float(wall.ideal_ns[number]):
                    reasons.append("mostly off the critical path")
            share = _part(saving, schedules.wall_ns)
        efficiency, bound = _efficiency(reached, rows)
        found.append(
            Suspect(
                kernel=names[kernel][0],
                detail=names[kernel][1],
                device=facts.name,
                device_row=device,
                label=columns.commands.label[worst],
                place=columns.commands.place[worst],
                place_is_first=bool(live[worst]),
                count=int(reached.count[rows].sum()),
                total_ns=float(timed[kernel].sum()),
                p50_ns=median(timed[kernel]),
                busy_share=_part(float(busy[rows].sum()), float(busy.sum())),
                saving_ns=saving,
                saving_is_bound=bounded,
                saving_share=share,
                twice_as_fast_ns=halved,
                twice_as_fast_share=None if halved is None else _part(halved, schedules.wall_ns),
                efficiency=efficiency,
                efficiency_is_bound=bound,
                bytes_per_s=_rate(reached.bytes_moved, reached, rows),
                flops_per_s=_rate(reached.flops, reached, rows),
                reasons=tuple(reasons),
            )
        )
    found.sort(key=lambda s: (-s.saving_ns, -s.total_ns))
    bounds = bool(reached.bound[(code >= 0) & ~np.isnan(reached.least_ns)].any())
    measure = _measure(facts, calibrated, bounds, columns.meta.get("created", ""))
    return Suspects(facts.name, device, tuple(found), measure, schedules.wall_ns)


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


def _attainable(reached: Rates, code: Ints, calibrated: bool) -> Floats:
    """The time that a dispatch of each command would take if it did as well as the other kernels do."""
    values = reached.efficiency if calibrated else reached.bandwidth
    ideal = reached.least_ns if calibrated else reached.bytes_moved * 1e9
    weights = np.where(code >= 0, reached.total_ns, 0.0)
    totals = np.bincount(code[code >= 0], weights=weights[code >= 0])
    reference = np.full(code.size, _limited(weighted_median(values, weights), calibrated))
    # Leaving a kernel out matters only where it takes much of the time; there are few such kernels.
    for kernel in np.argsort(-totals)[: 2 * _CANDIDATES]:
        others = np.where(code == kernel, 0.0, weights)
        company = others.sum() >= _COMPANY * totals.sum()
        reached_by_others = weighted_median(values, others) if company or not calibrated else math.nan
        reference[code == kernel] = _limited(reached_by_others, calibrated)
    with np.errstate(divide="ignore", invalid="ignore"):
        attainable = ideal / reference
    attainable = np.where(np.isnan(attainable), reached.typical_ns / 2, attainable)
    launch = min(float(np.nanmin(reached.typical_ns, initial=_LAUNCH_NS)), _LAUNCH_NS)
    return np.maximum(attainable, launch)


def _limited(reference: float, calibrated: bool) -> float:
    if not calibrated:
        return reference
    return _REFERENCE_ALONE if math.isnan(reference) else min(max(reference, _LEAST_REFERENCE), _MOST_REFERENCE)


@dataclass(frozen=True, slots=True)
class _Wall:
    """By kernel, of all command buffers that the schedules stand for."""

    scheduled: Flags
    """Whether any schedule holds it."""
    unknown: Flags
    """Whether what it saves is not known."""
    ideal_ns: Floats
    """What its dispatches save, each by itself, with the part of the device that it had."""
    saving_ns: Floats
    halved_ns: Floats
    most_ns: Floats
    """What it saves of its own busy time."""


def _on_the_wall(columns: Columns, schedules: Schedules, code: Ints, kernels: Ints, attainable: Floats) -> _Wall | None:
    """What each kernel saves on the wall when it takes the attainable time, and when it is twice as fast."""
    if not schedules.plans or kernels.size == 0:
        return None
    shortened, mine_of = [], []
    size = kernels.size
    scheduled, ideal, most = np.zeros(size, bool), np.zeros(size), np.zeros(size)
    for plan in schedules.plans:
        command = columns.plans.command[columns.plans.nodes(plan.plan)]
        mine = code[command][:, None] == kernels[None, :]
        mine_of.append(mine)
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
        shortened.append(np.concatenate([np.where(mine, better, now), np.where(mine, now / 2, now)], axis=1))
    saved = schedules.saved_ns(shortened)
    return _Wall(scheduled, schedules.unknown(mine_of), ideal, saved[:size], saved[size:], most)


# --- in words ------------------------------------------------------------------------------------------------


def _reasons(columns: Columns, device: Device, reached: Rates, rows: Ints, worst: int, calibrated: bool) -> list[str]:
    """Why the kernel of these commands is slow, as far as the recording tells; `worst` could save most."""
    commands = columns.commands
    found = []
    if commands.kind[worst] == "dispatch":
        groups = int(commands.groups[worst])
        threads = min(math.prod(commands.group[worst].tolist()), math.prod(commands.threads[worst].tolist()))
        shape = f"{wording.count(groups, 'threadgroup')} of {wording.count(threads, 'thread')}"
        if device.workers and groups < device.workers:
            found.append(f"{shape} on a device with {wording.count(device.workers, 'worker')}")
        elif groups == 1 and not device.workers:
            found.append(shape)
    if reached.typical_ns[worst] < _LAUNCH_NS:
        found.append(f"launch-bound: {wording.time(float(reached.typical_ns[worst]))} a dispatch")
    found.append(_speed(columns, reached, rows, worst, calibrated))
    return found


def _speed(columns: Columns, reached: Rates, rows: Ints, worst: int, calibrated: bool) -> str:
    commands = columns.commands
    bandwidth, flops = reached.bandwidth_efficiency[worst], reached.flop_efficiency[worst]
    if reached.refuted[worst] and math.isnan(flops):
        amount = wording.size(float(commands.bytes_read[worst] + commands.bytes_written[worst]))
        took = wording.time(float(reached.typical_ns[worst]))
        return f"efficiency not known: bound to {amount}, more than it is likely to move in {took}; declare its bytes"
    if math.isnan(reached.bytes_moved[worst]) and math.isnan(flops):
        return "efficiency not known: its bytes are neither declared nor bound"
    at_most = "at most " if reached.bound[worst] else ""
    rate = _rate(reached.bytes_moved, reached, rows)
    if not math.isnan(flops) and not flops < bandwidth:
        return f"computes at {wording.percent(float(flops))} of the peak flop rate"
    if bandwidth == 0 or rate == 0:
        return "moves no bytes that were declared"
    if not math.isnan(bandwidth):
        return f"moves {at_most}{wording.percent(float(bandwidth), at_most != '')} of copy bandwidth"
    if rate is None:
        return "efficiency not known: there is no ceiling to hold it against"
    return f"moves {at_most}{wording.byte_rate(rate)}"


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
