"""Everything that a report shows, worked out once: tables, suspects, critical paths and truth checks.

`summarise` is a pure function of a recording; reports print what it returns and work out nothing themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..recording.reader import Recording
from . import critical_path as paths
from . import formatting, groups, machine, ranking, timeline, validity
from .by_process import Part, by_process
from .columns import Columns, Device, Flags, Floats, with_distinct_names
from .kernels import named
from .lists import warm_ups
from .origin import Origin
from .reading import columns_of
from .roofline import raised
from .schedules import schedules
from .suspects import Suspect, Suspects, WhatIf, suspects
from .validity import Check, Drift, Perturbation

_MAX_PATHS = 3
_MOST, _NEARLY_ALL = 0.5, 0.99
_MOST_NAMED = 3
"""Kernels that one line names."""
_LITTLE = 0.02
"""A saving below this part of the wall is no finding."""


@dataclass(frozen=True, slots=True)
class PlanPath:
    """The critical path of one command list, by medians over its submissions."""

    device: str
    device_row: int
    label: str
    """Of its command buffers, if they have one."""
    submissions: int
    wall_ns: float
    nodes: tuple[int, ...]
    """The nodes on the path, in order."""
    execution_ns: float
    gap_ns: float
    kernel: tuple[str, ...]
    """Of every node of the list."""
    node_label: tuple[str, ...]
    start_ns: Floats
    duration_ns: Floats
    slack_ns: Floats
    measured: Flags


@dataclass(frozen=True, slots=True)
class Verdict:
    """Where to look first."""

    named: tuple[Suspect, ...]
    """The one that could save most, and those that the recording cannot tell from it."""
    confidence: float
    """The part of the resamples in which the first leads."""
    runs: int
    """Undisturbed runs of the command list that takes most of the time."""
    enough: bool
    """Whether most of the time is in lists with enough undisturbed runs for a ranking."""

    @property
    def sure(self) -> bool:
        """Whether the first would be named first again."""
        return len(self.named) == 1 and self.enough and self.confidence >= ranking.SURE


@dataclass(frozen=True, slots=True)
class Summary:
    """What is known about a recording. A figure that was not measured is None or not there."""

    origins: tuple[Origin, ...]
    """What it is of: a row for each process."""
    devices: tuple[Device, ...]
    device_times: tuple[timeline.DeviceTime, ...]
    submissions: int
    dispatched: int
    """Dispatches, copies and fills that ran."""
    timed: int
    """Those of them that have a time."""
    in_part: bool
    """Whether dispatches took turns at being timed; shares are of all that ran, totals of those that were timed."""
    kernels: tuple[groups.Group, ...]
    labels: tuple[groups.Group, ...]
    label_patterns: tuple[groups.Group, ...]
    """The same with numbers folded: 'decode/layer.*/attn'."""
    op_kinds: tuple[groups.Group, ...]
    shapes: tuple[groups.Group, ...]
    parts: Mapping[str, tuple[Part, ...]]
    """The dispatches by rank, host and process."""
    command_buffers: tuple[groups.BufferGroup, ...]
    regions: tuple[groups.RegionGroup, ...]
    repeated: str | None
    """The region that `per_instance_ns` counts by."""
    outside: groups.Outside | None
    """What was committed outside of it; None without one."""
    suspects: tuple[Suspects, ...]
    what_ifs: tuple[WhatIf, ...]
    replay_residue: float | None
    """How far replays of what shared a full device are from what was measured, as a part of it; of the worst device."""
    critical_paths: tuple[PlanPath, ...]
    drift: Drift
    perturbation: Perturbation
    checks: tuple[Check, ...]
    """All checks, drift and perturbation first."""
    verdict: Verdict | None
    """Where to look first, and how sure that is; None without suspects."""
    drops: tuple[tuple[str, int], ...]
    meta: Mapping[str, str]

    @property
    def busy_ns(self) -> int:
        """Busy time of all devices."""
        return sum(d.busy_ns for d in self.device_times)

    @property
    def suspect(self) -> Suspect | None:
        """The one that could save most; `verdict` says how sure that is."""
        return None if self.verdict is None else self.verdict.named[0]


def summarise(source: Recording | Columns, per: str | None = None) -> Summary:
    """Works out everything that reports show.

    `per` names the region of the host that figures "per …" count by; without it, that is the one with most instances.
    """
    columns = source if isinstance(source, Columns) else columns_of(source)
    columns = replace(columns, devices=with_distinct_names(columns))
    times = timeline.submission_times(columns)
    repeated = groups.repeated_region(columns) if per is None else groups.region_named(columns, per)
    instance = None if repeated is None else groups.instances_of(columns, repeated)
    spent = groups.command_times(columns, instance)
    first = warm_ups(columns)
    disturbance = machine.disturbance(columns, times, first)
    aside = disturbance.aside
    columns = replace(columns, devices=tuple(raised(columns, number, aside) for number in range(len(columns.devices))))
    ranked: list[Suspects] = []
    what_ifs: list[WhatIf] = []
    plan_paths, residues = [], []
    for number in range(len(columns.devices)):
        found = schedules(columns, number, aside)
        one = suspects(columns, number, found, aside, spent)
        if one.ranked:
            ranked.append(one)
        what_ifs += one.what_ifs
        residues += [] if found.residue is None else [found.residue]
        plan_paths += [_plan_path(columns, number, plan) for plan in found.plans[:_MAX_PATHS]]
    drift, perturbation = validity.drift(columns, times, first), validity.perturbation(columns, times, first)
    ran = groups.dispatched(columns)
    return Summary(
        origins=columns.origins,
        devices=columns.devices,
        device_times=timeline.device_times(columns),
        submissions=len(columns.submissions),
        dispatched=int(ran.sum()),
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
        regions=tuple(groups.by_region(columns, times.sum_ns)),
        repeated=repeated,
        outside=None if instance is None or repeated is None else groups.outside(columns, repeated, instance),
        suspects=tuple(ranked),
        what_ifs=tuple(sorted(what_ifs, key=lambda w: -w.on_path_ns if w.saved_ns is None else -w.saved_ns)),
        replay_residue=max(residues, default=None),
        critical_paths=tuple(sorted(plan_paths, key=lambda p: -p.wall_ns * p.submissions)[:_MAX_PATHS]),
        drift=drift,
        perturbation=perturbation,
        checks=(
            drift.check,
            perturbation.check,
            machine.check(columns, disturbance),
            validity.host_cost(columns),
            validity.drops(columns),
            validity.clock(columns),
            validity.repetitions(columns),
            validity.warm_up(columns, times, first),
            validity.measured(columns, times),
        ),
        verdict=_verdict(ranked),
        drops=(
            *((drop.where, drop.count) for drop in columns.drops),
            *(
                (("command buffers that are missing", lost),)
                if (lost := validity.uncounted_submissions(columns))
                else ()
            ),
        ),
        meta=columns.meta,
    )


def _plan_path(columns: Columns, device: int, plan: paths.Schedule) -> PlanPath:
    found = paths.critical_path(plan)
    command = columns.plans.command[columns.plans.nodes(plan.plan)]
    labels = columns.submissions.label[columns.submissions.plan == plan.plan]
    return PlanPath(
        device=columns.devices[device].name,
        device_row=device,
        label=next((label for label in labels.tolist() if label), ""),
        submissions=plan.submissions,
        wall_ns=plan.wall_ns,
        nodes=found.nodes,
        execution_ns=found.execution_ns,
        gap_ns=found.gap_ns,
        kernel=tuple(columns.commands.title(row) for row in command.tolist()),
        node_label=tuple(columns.commands.label[command].tolist()),
        start_ns=plan.start_ns,
        duration_ns=plan.duration_ns,
        slack_ns=found.slack_ns,
        measured=plan.measured,
    )


# --- the closing line ----------------------------------------------------------------------------------------


def _verdict(ranked: Sequence[Suspects]) -> Verdict | None:
    """Over all devices. Whoever leads in some resamples is not told from the first, unless that leads in nearly all."""
    found = [suspect for one in ranked for suspect in one.ranked]
    if not found:
        return None
    order = sorted(range(len(found)), key=lambda at: (-found[at].saving_ns, -found[at].total_ns))
    whose = next(one for one in ranked if one.device_row == found[order[0]].device_row)
    enough = whose.well_measured >= _MOST
    drawn = [one.drawn_ns for one in ranked]
    if any(len(one) == 0 for one in drawn):
        return Verdict(tuple(found[at] for at in order[:2]), 0.0, whose.runs, False)
    share = found[order[0]].saving_share
    if share is not None and share < _LITTLE:
        # Nobody saves much; then it is about who takes most of the time.
        order.sort(key=lambda at: -found[at].total_ns)
        largest = found[order[0]].total_ns
        alike = [found[at] for at in order if (1 + ranking.LEAD) * found[at].total_ns >= largest]
        return Verdict(tuple(alike[:_MOST_NAMED]), 0.0, whose.runs, enough)
    leads = ranking.leading(np.concatenate(drawn, axis=1))
    confidence = float(leads[order[0]])
    if len(found) == 1:
        return Verdict(tuple(found), 1.0, whose.runs, enough)
    if confidence >= ranking.SURE or found[order[1]].saving_ns <= 0:
        return Verdict((found[order[0]],), confidence, whose.runs, enough)
    # Where nobody leads clearly it is the next one that comes too close.
    rivals = [at for at in order[1:] if leads[at] > 1 - ranking.SURE] or order[1:2]
    return Verdict(tuple(found[at] for at in [order[0], *rivals[: _MOST_NAMED - 1]]), confidence, whose.runs, enough)


def look_first(summary: Summary) -> str:
    """The line that closes every report: the kernel to look at first, and why. Not escaped."""
    verdict = summary.verdict
    if verdict is None:
        return _without_suspects(summary) + _idle(summary)
    if len(verdict.named) > 1:
        return f"Look first at {_cannot_tell(verdict)}{_idle(summary)}"
    suspect = verdict.named[0]
    each = formatting.time(suspect.p50_ns)
    whose = f"{suspect.device}'s " if len(summary.device_times) > 1 else ""
    part = "" if suspect.busy_share is None else f" ({formatting.percent(suspect.busy_share)} of {whose}busy time)"
    all_ = "in those that were timed" if summary.in_part else "in all"
    takes = f"takes {each} a dispatch, {formatting.time(suspect.total_ns)} {all_}{part}"
    why = "; ".join(suspect.reasons)
    unsure = "" if verdict.enough else f" (not certain: {_too_few(verdict)})"
    name = named(suspect.kernel, suspect.detail)
    return f"Look first at {name}: {takes}, {_gain(suspect)}{unsure}: {why}{_where(suspect)}{_idle(summary)}"


def _gain(suspect: Suspect) -> str:
    if suspect.saving_share is not None and suspect.saving_share < _LITTLE:
        most = (
            f"could save most ({formatting.percent(suspect.saving_share)})" if suspect.saving_ns else "takes most time"
        )
        return f"no kernel stands out, this one {most}"
    return f"could save {_saving(suspect)}"


def _saving(suspect: Suspect) -> str:
    if suspect.saving_share is None:
        return f"{formatting.time(suspect.saving_ns)} of dispatch time"
    if suspect.saving_is_bound:
        return f"up to {formatting.percent(suspect.saving_share)}"
    return f"about {formatting.percent(suspect.saving_share)}{_interval(suspect)}"


def _interval(suspect: Suspect) -> str:
    if suspect.saving_low is None or suspect.saving_high is None:
        return ""
    low, high = (formatting.percent(part) for part in (suspect.saving_low, suspect.saving_high))
    return "" if low == high else f" ({low} to {high})"


def _where(suspect: Suspect) -> str:
    label = suspect.label and _most(suspect.label_part) + suspect.label
    place = suspect.place and _most(suspect.place_part) + suspect.place
    place = f"first encoded at {place}" if place and suspect.place_is_first else place
    where = ", ".join(filter(None, (label, place)))
    return f" [{where}]" if where else ""


def _most(part: float) -> str:
    return "" if part > _NEARLY_ALL else "mostly " if part >= _MOST else "among others "


def _cannot_tell(verdict: Verdict) -> str:
    """The ones that this recording does not tell apart, and what would."""
    names = [named(suspect.kernel, suspect.detail) for suspect in verdict.named]
    listed = f"{', '.join(names[:-1])} or {names[-1]}"
    each = "; ".join(
        f"{named(suspect.kernel, suspect.detail)} could save {_saving(suspect)}{_where(suspect)}"
        for suspect in verdict.named
    )
    if all(suspect.saving_share is not None and suspect.saving_share < _LITTLE for suspect in verdict.named):
        return f"{listed}: no kernel stands out, these take most time. {each}"
    why = "" if verdict.enough else f" ({_too_few(verdict)})"
    return f"{listed}: this recording cannot tell{why}; record longer or on an idle machine. {each}"


def _too_few(verdict: Verdict) -> str:
    if verdict.runs >= machine.WANTED_RUNS:
        return "the command list is too long to look at run by run"
    return f"{formatting.count(verdict.runs, 'undisturbed run')}, {machine.WANTED_RUNS} are wanted"


def _without_suspects(summary: Summary) -> str:
    if not summary.submissions:
        return "Nothing to look at first: no command buffer was recorded"
    longest = summary.command_buffers[0] if summary.command_buffers else None
    why = "dispatches were not timed"
    measured = next(check for check in summary.checks if check.name == "measured")
    if measured.status is not validity.Status.FINE:
        why += f" ({measured.sentence})"
    if longest is None or longest.times is None:
        return f"Nothing to look at first: {why}"
    total = sum(b.times.total_ns for b in summary.command_buffers if b.times)
    name = f"command buffer {longest.name!r}" if longest.name else "the command buffers without a label"
    part = f" ({formatting.percent(longest.times.total_ns / total)} of command-buffer time)" if total else ""
    return f"Look first at {name}: takes {formatting.time(longest.times.total_ns)} in all{part}; {why}"


def _idle(summary: Summary) -> str:
    span, idle = sum(d.span_ns for d in summary.device_times), sum(d.idle_ns for d in summary.device_times)
    if span == 0 or idle < 0.5 * span:
        return ""
    worst = max(summary.device_times, key=lambda d: d.idle_ns)
    part = formatting.percent(worst.idle_ns / worst.span_ns)
    return f"; but {worst.device} was idle {part} of the time (mostly {worst.causes[0].what})"
