"""Which kernel to look at first: ranked by the wall time that better efficiency could save.

For every kernel: how long would it take if it came as close to the ceilings as the *other* kernels of the recording do
(`attainable.py`)? A matrix product at 70 % of copy bandwidth is fine and a top-k at 0.4 % is not, even where the matrix
products take more time. What that saves is evaluated in the schedule of every run (`savings.py`): off the critical path
it is worth less. Under contention that no replay reproduces, the schedule cannot tell; the same part of the kernel's
own busy time is then an upper bound.

All figures and reasons of a kernel are of all its dispatches on the device. `ranking.py` says how sure the order is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from . import ranking, reasons
from .columns import Columns, Floats, Ints
from .critical_path import NOT_KNOWN, path_of
from .groups import CommandTimes, command_times, folded, kernel_codes
from .lists import label_of, runs_per_command, samples_on
from .roofline import Rates
from .savings import Compared, Savings, evaluated
from .schedules import Schedules
from .statistics import median, split_by

_CANDIDATES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """One kernel, what it could save, and why."""

    kernel: str
    detail: str
    device: str
    device_row: int
    label: str
    """The label path of its dispatches, numbers folded: 'layer.*/mlp'; that of most of its time, where they differ."""
    label_part: float
    """The part of its time that has this label."""
    place: str
    """The line that encoded them; that of most of its time, where there are several."""
    place_part: float
    place_is_first: bool
    """It was encoded live: the line is that of the first dispatch which was equal in everything else."""
    count: int
    total_ns: float
    """Of the dispatches that have a time."""
    p50_ns: float
    busy_share: float | None
    """Of the busy time of its device; overlapping dispatches split it evenly."""
    saving_ns: float
    """Wall time that all command buffers together would save."""
    saving_is_bound: bool = False
    """It may save less: it competes for a full device in a way that no replay reproduces."""
    saving_share: float | None = None
    """The same as a part of `Suspects.typical_ns`; None when no schedule is known."""
    saving_low: float | None = None
    saving_high: float | None = None
    """The 95 % interval of that part, over runs; None where the saving is a bound or no schedule is known."""
    twice_as_fast_ns: float | None = None
    """What the wall would shrink by if it were twice as fast; None where that is not known."""
    twice_as_fast_share: float | None = None
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
    """None where it is not known: it competes for a full device in a way that no replay reproduces."""
    saved_share: float | None
    """Of `Suspects.typical_ns`."""
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
    """What efficiency is relative to, as a sentence."""
    drawn_ns: Floats
    """(resamples, ranked): what each saves when the runs are resampled."""
    well_measured: float
    """The part of the command buffers' time in lists that have enough undisturbed runs."""
    runs: int
    """Undisturbed runs of the list that takes most of the time, or most of it among those with too few."""
    list_label: str
    """Of its command buffers, if they have one."""
    typical_ns: float
    """What the savings are parts of: the time of a typical undisturbed run of each list, times its runs; 0 where no
    schedule is known."""


def suspects(
    columns: Columns, device: int, schedules: Schedules, reached: Rates, spent: CommandTimes | None = None
) -> Suspects:
    """Ranks the kernels of a device by their schedules and the rates that they reached.

    `spent` is `command_times(columns)`, if the caller has it already.
    """
    spent = spent or command_times(columns)
    facts = columns.devices[device]
    code, names = kernel_codes(columns)
    code = np.where(reached.count > 0, code, -1)
    ran = code >= 0
    totals = np.bincount(code[ran], weights=reached.total_ns[ran], minlength=len(names))
    largest = np.argsort(-totals, kind="stable")
    judged = largest[totals[largest] > 0][: 2 * _CANDIDATES]
    calibrated = bool(facts.copy_bytes_per_s or facts.flops_per_s)
    compared = Compared(columns, schedules, reached, code, calibrated, judged, judged)
    attainable = compared.attainable_ns(reached.typical_ns[None, :])[0]
    saved = np.where(ran, reached.runs * np.maximum(reached.typical_ns - attainable, 0.0), 0.0)
    alone_ns = np.bincount(code[ran], weights=saved[ran], minlength=len(names))
    candidates = np.lexsort((-totals, -alone_ns))[:_CANDIDATES]
    candidates = candidates[totals[candidates] > 0]
    kernels = np.array(list(dict.fromkeys([*candidates.tolist(), *judged[:_CANDIDATES].tolist()])), np.int64)
    compared = replace(compared, kernels=kernels)
    savings = evaluated(compared, attainable)
    busy = spent.device_busy_ns[device]
    timed = _timed(columns, device, code, len(names))
    live = runs_per_command(columns, ~columns.submissions.replay) > 0
    ranked = []
    for number, kernel in enumerate(candidates.tolist()):
        rows = np.flatnonzero(code == kernel)
        p50_ns = median(timed[kernel])
        efficiency, bound = reasons.efficiency_of(reached, rows)
        label, label_part = _most(reached, rows, _alike(columns.commands.label[rows].tolist()))
        place, place_part = _most(reached, rows, columns.commands.place[rows].tolist())
        suspect = Suspect(
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
            saving_ns=float(alone_ns[kernel]),
            efficiency=efficiency,
            efficiency_is_bound=bound,
            bytes_per_s=reasons.rate_of(reached.bytes_moved, reached, rows),
            flops_per_s=reasons.rate_of(reached.flops, reached, rows),
            reasons=tuple(reasons.reasons(columns, facts, reached, rows, p50_ns)),
        )
        ranked.append(_with_savings(suspect, savings, number))
    order = sorted(range(len(ranked)), key=lambda at: (-ranked[at].saving_ns, -ranked[at].total_ns))
    bounds = bool(reached.bound[ran & ~np.isnan(reached.least_ns)].any())
    return Suspects(
        facts.name,
        device,
        tuple(ranked[at] for at in order),
        () if savings is None else _what_ifs(compared, device, names, savings),
        reasons.measure(facts, calibrated, bounds, columns.began_ns),
        np.zeros((0, len(ranked))) if savings is None else savings.drawn_attained_ns[:, order],
        *((0.0, 0, "", 0.0) if savings is None else _measured(columns, schedules, savings)),
    )


def _measured(columns: Columns, schedules: Schedules, savings: Savings) -> tuple[float, int, str, float]:
    """The last fields of `Suspects`."""
    label = label_of(columns, schedules.plans[savings.longest].plan)
    return savings.well_measured, schedules.undisturbed[savings.longest], label, savings.wall_ns


def _with_savings(suspect: Suspect, savings: Savings | None, number: int) -> Suspect:
    """The suspect with what the kernel at `number` saves of the wall time, where schedules contain it."""
    if savings is None or not savings.scheduled[number]:
        return suspect
    whole_ns = savings.wall_ns
    if savings.unknown[number]:
        saving = min(float(savings.most_ns[number]), whole_ns)
        why = (*suspect.reasons, NOT_KNOWN)
        return replace(
            suspect, saving_ns=saving, saving_is_bound=True, saving_share=_part(saving, whole_ns), reasons=why
        )
    saving, halved = float(savings.attained_ns[number]), float(savings.halved_ns[number])
    if saving < 0.5 * float(savings.ideal_ns[number]):
        suspect = replace(suspect, reasons=(*suspect.reasons, "mostly off the critical path"))
    share = _part(saving, whole_ns)
    if share is None:
        return replace(suspect, saving_ns=saving)
    low, high = ranking.interval(savings.drawn_attained_ns[:, number], savings.drawn_wall_ns, share)
    return replace(
        suspect,
        saving_ns=saving,
        saving_share=share,
        saving_low=low,
        saving_high=high,
        twice_as_fast_ns=halved,
        twice_as_fast_share=_part(halved, whole_ns),
    )


def _what_ifs(compared: Compared, device: int, names: list[tuple[str, str]], savings: Savings) -> tuple[WhatIf, ...]:
    """The kernels that take most time on the device, each twice as fast."""
    spent, on_path = np.zeros(len(names)), np.zeros(len(names))
    for plan in compared.schedules.plans:
        kernel = compared.code[compared.commands_of(plan)]
        chosen = kernel >= 0
        path = np.array(path_of(plan), np.int64)
        for total, nodes in ((spent, np.flatnonzero(chosen)), (on_path, path[chosen[path]])):
            total += np.bincount(kernel[nodes], plan.duration_ns[nodes] * plan.submissions, minlength=len(names))
    what_ifs = []
    for number, kernel in sorted(enumerate(compared.kernels.tolist()), key=lambda each: -spent[each[1]])[:_CANDIDATES]:
        if spent[kernel] <= 0:
            continue
        known = not savings.unknown[number]
        saved = float(savings.halved_ns[number])
        share = _part(saved, savings.wall_ns)
        low, high = ranking.interval(savings.drawn_halved_ns[:, number], savings.drawn_wall_ns, share or 0.0)
        what_ifs.append(
            WhatIf(
                kernel=names[kernel][0],
                detail=names[kernel][1],
                device=compared.columns.devices[device].name,
                device_row=device,
                on_path_ns=float(on_path[kernel]),
                saved_ns=saved if known else None,
                saved_share=share if known else None,
                saved_low=low if known else None,
                saved_high=high if known else None,
            )
        )
    return tuple(what_ifs)


def _timed(columns: Columns, device: int, code: Ints, size: int) -> list[Ints]:
    """The measured times of every kernel on a device."""
    samples = samples_on(columns, device)
    kernel, duration = code[columns.plans.command[samples.node]], samples.end_ns - samples.start_ns
    return split_by(kernel[kernel >= 0], duration[kernel >= 0], size)


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
