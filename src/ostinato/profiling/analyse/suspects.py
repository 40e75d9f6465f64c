"""Which kernel to look at first: ranked by the wall time that better efficiency could save.

For every kernel: how long would it take if it came as close to the ceilings as the *other* kernels of the recording do
(`attainable.py`)? A matrix product at 70 % of copy bandwidth is well-behaved and a top-k at 0.4 % is not, even where
the matrix products take more time. What that saves is run through the schedule of every run (`savings.py`): off the
critical path it is worth less. Where kernels share a full device and no replay explains how, the schedule cannot tell;
then the same part of the kernel's own busy time is an upper bound.

All figures and reasons of a kernel are of all its dispatches on the device. `ranking.py` says how sure the order is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from . import ranking, reasons
from .attainable import attainable_ns
from .columns import UNAVAILABLE, Columns, Flags, Floats, Ints
from .critical_path import NOT_KNOWN, path_of
from .groups import CommandTimes, command_times, folded, kernel_codes
from .roofline import Rates, rates
from .savings import Drawn, Wall, drawn_anew, on_the_wall
from .schedules import Schedules
from .statistics import median

_CANDIDATES = 10


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
    attainable = attainable_ns(reached, code, calibrated, reached.typical_ns[None, :], judged)[0]
    saved = np.where(code >= 0, reached.runs * np.maximum(reached.typical_ns - attainable, 0.0), 0.0)
    alone_ns = np.bincount(code[code >= 0], weights=saved[code >= 0], minlength=len(names))
    candidates = np.lexsort((-totals, -alone_ns))[:_CANDIDATES]
    candidates = candidates[totals[candidates] > 0]
    kernels = np.array(list(dict.fromkeys([*candidates.tolist(), *judged[:_CANDIDATES].tolist()])), np.int64)
    wall = on_the_wall(columns, schedules, code, kernels, attainable)
    drawn = None if wall is None else drawn_anew(columns, schedules, reached, code, calibrated, kernels, judged, wall)
    busy = spent.device_busy_ns[device]
    timed = _timed(columns, device, code, len(names))
    live = _encoded_live(columns)
    found = []
    for number, kernel in enumerate(candidates.tolist()):
        rows = np.flatnonzero(code == kernel)
        p50_ns = median(timed[kernel])
        why = reasons.reasons(columns, facts, reached, rows, p50_ns)
        gain = _gain(wall, drawn, number, float(alone_ns[kernel]), why)
        efficiency, bound = reasons.efficiency_of(reached, rows)
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
                bytes_per_s=reasons.rate_of(reached.bytes_moved, reached, rows),
                flops_per_s=reasons.rate_of(reached.flops, reached, rows),
                reasons=tuple(why),
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
        reasons.measure(facts, calibrated, bounds, columns.began_ns),
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


def _gain(wall: Wall | None, drawn: Drawn | None, number: int, alone_ns: float, why: list[str]) -> _Gain:
    """Of the kernel at `number`, whose dispatches save `alone_ns` each by itself; adds to `why`."""
    if wall is None or drawn is None or not wall.scheduled[number]:
        return _Gain(alone_ns)
    whole_ns = wall.wall_ns
    if wall.unknown[number]:
        why.append(NOT_KNOWN)
        saving = min(float(wall.most_ns[number]), whole_ns)
        return _Gain(saving, True, _part(saving, whole_ns))
    saving, halved = float(wall.saved_ns[number]), float(wall.saved_ns[wall.size + number])
    if saving < 0.5 * float(wall.ideal_ns[number]):
        why.append("mostly off the critical path")
    share = _part(saving, whole_ns)
    if share is None:
        return _Gain(saving)
    low, high = ranking.interval(drawn.saved_ns[:, number], drawn.wall_ns)
    return _Gain(saving, False, share, min(low, share), max(high, share), halved, _part(halved, whole_ns))


def _what_ifs(
    columns: Columns,
    device: int,
    schedules: Schedules,
    code: Ints,
    names: list[tuple[str, str]],
    kernels: Ints,
    wall: Wall,
    drawn: Drawn,
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


def _part(saving: float, wall: float) -> float | None:
    return saving / wall if wall > 0 else None
