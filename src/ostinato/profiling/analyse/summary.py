"""Everything that a report shows: tables, suspects, critical paths and validity checks.

`summarise` is a pure function of a recording; reports print its result and compute nothing themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..recording.reader import Recording
from . import formatting, groups, machine, ranking, timeline, validity
from .by_process import Part, by_process
from .columns import Columns, Device, Flags, with_distinct_names
from .critical_path import CriticalPath, Schedule, critical_path
from .kernels import named
from .lists import label_of, measured_only, warm_ups
from .origin import Origin
from .points import Point, points
from .reading import columns_of
from .regions import Outside, RegionGroup, by_region, instances_of, outside, region_named, repeated_region
from .roofline import Rates, raised, rates
from .schedules import schedules
from .slowest import SlowInstance, slowest
from .suspects import Suspect, Suspects, WhatIf, suspects
from .validity import Check, Drift, Perturbation

_MAX_PATHS = 3
_MOST, _NEARLY_ALL = 0.5, 0.99
_MOST_NAMED = 3
"""Kernels that the closing line names."""
_LITTLE = 0.02
"""A saving below this part of the wall time is not worth a recommendation."""


@dataclass(frozen=True, slots=True)
class PlanPath:
    """The critical path of one command list, by medians over its submissions."""

    device: str
    label: str
    """Of its command buffers, if they have one."""
    schedule: Schedule
    path: CriticalPath
    kernel: tuple[str, ...]
    """Of every node of the list."""
    node_label: tuple[str, ...]
    runs: int
    """How many runs the medians are of."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Where to look first."""

    named: tuple[Suspect, ...]
    """The kernel that could save most, and those that the recording cannot distinguish from it."""
    confidence: float
    """The part of the resamples in which the first kernel leads."""
    runs: int
    """Undisturbed runs of the command list that takes most of the time, or most of it among those with too few."""
    list_label: str
    """Of the command buffers of that list, if they have one."""
    enough: bool
    """Whether most of the time is in lists with enough undisturbed runs for a ranking."""

    @property
    def sure(self) -> bool:
        """Whether another recording would most likely name the same kernel first."""
        return len(self.named) == 1 and self.enough and self.confidence >= ranking.SURE


@dataclass(frozen=True, slots=True)
class Summary:
    """What is known about a recording. A figure that was not measured is None or not there."""

    origins: tuple[Origin, ...]
    """The processes that recorded, a row each."""
    devices: tuple[Device, ...]
    device_times: tuple[timeline.DeviceTime, ...]
    submissions: int
    dispatched: int
    """Dispatches, copies and fills that ran."""
    timed: int
    """Those of them that have a time."""
    in_part: bool
    """Whether dispatches took turns at being timed; shares then cover all that ran, totals the timed ones."""
    kernels: tuple[groups.Group, ...]
    labels: tuple[groups.Group, ...]
    label_patterns: tuple[groups.Group, ...]
    """The same with numbers folded: 'decode/layer.*/attn'."""
    op_kinds: tuple[groups.Group, ...]
    shapes: tuple[groups.Group, ...]
    parts: Mapping[str, tuple[Part, ...]]
    """The dispatches by rank, host and process."""
    command_buffers: tuple[groups.BufferGroup, ...]
    regions: tuple[RegionGroup, ...]
    slowest: Mapping[str, tuple[SlowInstance, ...]]
    """The slowest instances of the regions, by name (`slowest.py`)."""
    repeated: str | None
    """The region that `per_instance_ns` counts by."""
    outside: Outside | None
    """The command buffers that were committed outside of it; None without such a region."""
    suspects: tuple[Suspects, ...]
    rates: tuple[Rates, ...]
    """What each command moved and computed per second, on each device."""
    points: tuple[Point, ...]
    """The kernels under the rooflines of their devices."""
    what_ifs: tuple[WhatIf, ...]
    replay_residue: float | None
    """How far replays under contention are from the measured time, as a part of it; of the worst device."""
    critical_paths: tuple[PlanPath, ...]
    drift: Drift
    perturbation: Perturbation
    machine: machine.Figures
    checks: tuple[Check, ...]
    """All validity checks, in the order in which reports show them."""
    measured: Check
    """The check that says which work has no times, and why; also in `checks`."""
    verdict: Verdict | None
    """Where to look first, with its confidence; None without suspects."""
    drops: tuple[tuple[str, int], ...]
    meta: Mapping[str, str]
    aside: Flags
    """The command buffers that suspects, what-ifs and efficiencies exclude: warm-ups and disturbed runs."""

    @property
    def suspect(self) -> Suspect | None:
        """The kernel that could save most; `verdict` has the confidence."""
        return None if self.verdict is None else self.verdict.named[0]

    @property
    def what_if_total_ns(self) -> float:
        """Typical command-buffer time, which savings are parts of (`Suspects.typical_ns`), of all devices together."""
        return sum(of_device.typical_ns for of_device in self.suspects)


def summarise(source: Recording | Columns, per: str | None = None) -> Summary:
    """Everything that reports show of a recording.

    `per` names the host region of the "per …" figures; by default it is the region with most instances.
    """
    columns = source if isinstance(source, Columns) else columns_of(source)
    columns = replace(columns, devices=with_distinct_names(columns))
    times = timeline.submission_times(columns)
    repeated = repeated_region(columns) if per is None else region_named(columns, per)
    instance = None if repeated is None else instances_of(columns, repeated)
    spent = groups.command_times(columns, instance)
    first = warm_ups(columns)
    disturbance = machine.disturbance(columns, times, first)
    aside = disturbance.aside
    columns = replace(columns, devices=tuple(raised(columns, number, aside) for number in range(len(columns.devices))))
    judged = measured_only(columns)
    scheduled = [schedules(judged, number, aside) for number in range(len(columns.devices))]
    reached = [rates(judged, number, aside) for number in range(len(columns.devices))]
    ranked = [suspects(judged, number, each, reached[number], spent) for number, each in enumerate(scheduled)]
    what_ifs = [what_if for of_device in ranked for what_if in of_device.what_ifs]
    paths = [
        _plan_path(columns, number, plan, runs)
        for number, each in enumerate(scheduled)
        for plan, runs in list(zip(each.plans, each.counts, strict=True))[:_MAX_PATHS]
    ]
    ranked = [of_device for of_device in ranked if of_device.ranked]
    drift, perturbation = validity.drift(columns, times, first), validity.perturbation(columns, times, first)
    measured = validity.measured(columns, times)
    regions = by_region(columns, times.sum_ns)
    missing = validity.uncounted_submissions(columns)
    return Summary(
        origins=columns.origins,
        devices=columns.devices,
        device_times=timeline.device_times(columns),
        submissions=len(columns.submissions),
        dispatched=int(spent.dispatched.sum()),
        timed=int(spent.first[-1]),
        in_part=spent.in_part,
        kernels=tuple(groups.by_kernel(columns, spent)),
        labels=tuple(groups.by_label(columns, spent)),
        label_patterns=tuple(groups.by_label(columns, spent, fold=True)),
        op_kinds=tuple(groups.by_op_kind(columns, spent)),
        shapes=tuple(groups.by_shape(columns, spent)),
        parts=by_process(columns, spent),
        command_buffers=tuple(
            groups.by_command_buffer(columns, times.interval_ns, times.queue_delay_ns, times.encode_ns)
        ),
        regions=tuple(regions),
        slowest=slowest(columns, regions, times.sum_ns, disturbance),
        repeated=repeated,
        outside=None if instance is None or repeated is None else outside(columns, repeated, instance),
        suspects=tuple(ranked),
        rates=tuple(reached),
        points=tuple(
            point
            for number, each in enumerate(reached)
            for point in points(columns, number, each, spent.device_busy_ns[number])
        ),
        what_ifs=tuple(sorted(what_ifs, key=lambda w: -w.on_path_ns if w.saved_ns is None else -w.saved_ns)),
        replay_residue=max((each.residue for each in scheduled if each.residue is not None), default=None),
        critical_paths=tuple(sorted(paths, key=lambda p: -p.schedule.wall_ns * p.schedule.submissions)[:_MAX_PATHS]),
        drift=drift,
        perturbation=perturbation,
        machine=machine.figures(columns, disturbance),
        checks=(
            drift.check,
            perturbation.check,
            machine.check(columns, disturbance),
            validity.host_cost(columns),
            validity.drops(columns),
            validity.clock(columns),
            validity.repetitions(columns),
            validity.warm_up(columns, times, first),
            measured,
        ),
        measured=measured,
        verdict=_verdict(ranked),
        drops=(
            *((drop.where, drop.count) for drop in columns.drops),
            *((("missing command buffers", missing),) if missing else ()),
        ),
        meta=columns.meta,
        aside=aside,
    )


def _plan_path(columns: Columns, device: int, plan: Schedule, runs: int) -> PlanPath:
    command = columns.plans.command[columns.plans.nodes(plan.plan)]
    return PlanPath(
        device=columns.devices[device].name,
        label=label_of(columns, plan.plan),
        schedule=plan,
        path=critical_path(plan),
        kernel=tuple(columns.commands.title(row) for row in command.tolist()),
        node_label=tuple(columns.commands.label[command].tolist()),
        runs=runs,
    )


# --- the closing line ----------------------------------------------------------------------------------------


def _verdict(ranked: Sequence[Suspects]) -> Verdict | None:
    """Over all devices. Kernels that lead in some resamples are named too, unless the first leads in nearly all."""
    pairs = [(suspect, device) for device in ranked for suspect in device.ranked]
    if not pairs:
        return None
    order = sorted(range(len(pairs)), key=lambda at: (-pairs[at][0].saving_ns, -pairs[at][0].total_ns))
    by_saving = [pairs[at][0] for at in order]
    first, device = pairs[order[0]]
    enough = device.well_measured >= ranking.ENOUGH_PART
    drawn = [each.drawn_ns for each in ranked]
    if any(len(each) == 0 for each in drawn):
        return Verdict(tuple(by_saving[:2]), 0.0, device.runs, device.list_label, False)
    if first.saving_share is not None and first.saving_share < _LITTLE:
        # No kernel saves much; name those that take most of the time.
        by_saving.sort(key=lambda suspect: -suspect.total_ns)
        largest = by_saving[0].total_ns
        alike = [suspect for suspect in by_saving if (1 + ranking.LEAD) * suspect.total_ns >= largest]
        return Verdict(tuple(alike[:_MOST_NAMED]), 0.0, device.runs, device.list_label, enough)
    if len(by_saving) == 1:
        return Verdict(tuple(by_saving), 1.0, device.runs, device.list_label, enough)
    leads = ranking.leading(np.concatenate(drawn, axis=1))[order]
    if leads[0] >= ranking.SURE or by_saving[1].saving_ns <= 0:
        return Verdict((first,), float(leads[0]), device.runs, device.list_label, enough)
    # Where none leads clearly, the next one comes too close.
    rivals = [at for at in range(1, len(by_saving)) if leads[at] > 1 - ranking.SURE] or [1]
    closest = tuple(by_saving[at] for at in [0, *rivals[: _MOST_NAMED - 1]])
    return Verdict(closest, float(leads[0]), device.runs, device.list_label, enough)


def look_first(summary: Summary) -> str:
    """The closing line of a report: the kernel to look at first, and why. The caller must escape it."""
    verdict = summary.verdict
    if verdict is None:
        return _without_suspects(summary) + _idle(summary)
    if len(verdict.named) > 1:
        return f"Look first at {_cannot_tell(verdict)}{_idle(summary)}"
    suspect = verdict.named[0]
    each = formatting.time(suspect.p50_ns)
    whose = f"{suspect.device}'s " if len(summary.device_times) > 1 else ""
    part = "" if suspect.busy_share is None else f" ({formatting.percent(suspect.busy_share)} of {whose}busy time)"
    total = "in the timed ones" if summary.in_part else "in total"
    takes = f"{each} per dispatch, {formatting.time(suspect.total_ns)} {total}{part}"
    why = "; ".join(suspect.reasons)
    unsure = "" if verdict.enough else f" (not certain: {_too_few(verdict)})"
    name = named(suspect.kernel, suspect.detail)
    return f"Look first at {name}: {takes}, {_gain(suspect)}{unsure}: {why}{_where(suspect)}{_idle(summary)}"


def _gain(suspect: Suspect) -> str:
    if suspect.saving_share is not None and suspect.saving_share < _LITTLE:
        share = formatting.percent(suspect.saving_share)
        most = f"could save most ({share})" if suspect.saving_ns else "takes the most time"
        return f"no kernel stands out; this one {most}"
    return f"could save {_saving(suspect)}"


def _saving(suspect: Suspect) -> str:
    if suspect.saving_share is None:
        return f"{formatting.time(suspect.saving_ns)} of dispatch time"
    if suspect.saving_is_bound:
        return f"up to {_amount(suspect.saving_share, suspect.saving_ns)}"
    return f"about {_amount(suspect.saving_share, suspect.saving_ns)}{_interval(suspect)}"


def _amount(share: float, saving_ns: float) -> str:
    return f"{formatting.percent(share)} ({formatting.time(saving_ns)}) of typical command-buffer time"


def _interval(suspect: Suspect) -> str:
    if suspect.saving_low is None or suspect.saving_high is None:
        return ""
    low, high = (formatting.percent(part) for part in (suspect.saving_low, suspect.saving_high))
    return "" if low == high else f" (95 % interval {low} to {high})"


def _where(suspect: Suspect) -> str:
    label = suspect.label and _most(suspect.label_part) + suspect.label
    place = suspect.place and _most(suspect.place_part) + suspect.place
    place = f"first encoded at {place}" if place and suspect.place_is_first else place
    where = ", ".join(filter(None, (label, place)))
    return f" [{where}]" if where else ""


def _most(part: float) -> str:
    return "" if part > _NEARLY_ALL else "mostly " if part >= _MOST else "among others "


def _cannot_tell(verdict: Verdict) -> str:
    """The kernels that this recording cannot tell apart, and what to do about it."""
    names = [named(suspect.kernel, suspect.detail) for suspect in verdict.named]
    listed = f"{', '.join(names[:-1])} or {names[-1]}"
    each = "; ".join(
        f"{named(suspect.kernel, suspect.detail)} could save {_saving(suspect)}{_where(suspect)}"
        for suspect in verdict.named
    )
    if all(suspect.saving_share is not None and suspect.saving_share < _LITTLE for suspect in verdict.named):
        return f"{listed}: no kernel stands out; these take the most time. {each}"
    why = "" if verdict.enough else f" ({_too_few(verdict)})"
    return f"{listed}: this recording cannot tell them apart{why}; record longer, or on an idle machine. {each}"


def _too_few(verdict: Verdict) -> str:
    which = repr(verdict.list_label) if verdict.list_label else "the longest command list"
    if verdict.runs >= machine.WANTED_RUNS:
        return f"{which} is too long to evaluate run by run"
    return f"{formatting.count(verdict.runs, 'undisturbed run')} of {which}, at least {machine.WANTED_RUNS} needed"


def _without_suspects(summary: Summary) -> str:
    if not summary.submissions:
        return "Nothing to look at first: no command buffer was recorded"
    longest = summary.command_buffers[0] if summary.command_buffers else None
    why = "dispatches were not timed"
    if summary.measured.status is not validity.Status.FINE:
        why += f" ({summary.measured.sentence})"
    if longest is None or longest.times is None:
        return f"Nothing to look at first: {why}"
    total = sum(b.times.total_ns for b in summary.command_buffers if b.times)
    name = f"command buffer {longest.name!r}" if longest.name else "the command buffers without a label"
    part = f" ({formatting.percent(longest.times.total_ns / total)} of command-buffer time)" if total else ""
    return f"Look first at {name}: {formatting.time(longest.times.total_ns)} in total{part}; {why}"


def _idle(summary: Summary) -> str:
    span, idle = sum(d.span_ns for d in summary.device_times), sum(d.idle_ns for d in summary.device_times)
    if span == 0 or idle < 0.5 * span:
        return ""
    worst = max(summary.device_times, key=lambda d: d.idle_ns)
    part = formatting.percent(worst.idle_ns / worst.span_ns)
    return f"; but {worst.device} was idle {part} of the time, mostly {worst.causes[0].what}"
