"""Everything that a report shows, worked out once: tables, suspects, critical paths and truth checks.

`summarise` is a pure function of a recording; reports print what it returns and work out nothing themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..recording.reader import Recording
from . import critical_path as paths
from . import groups, timeline, truth, wording
from .columns import Columns, Device, Flags, Floats, with_distinct_names
from .kernels import named
from .reading import columns_of
from .schedules import Schedules, schedules, warm_ups
from .suspects import Suspect, Suspects, suspects
from .truth import Check, Drift, Perturbation

_TOP = 10
_MAX_PATHS = 3
_LITTLE = 0.02
"""A saving below this part of the wall is no finding."""


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
class Summary:
    """What is known about a recording. A figure that was not measured is None or not there."""

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
    drops: tuple[tuple[str, int], ...]
    meta: Mapping[str, str]

    @property
    def busy_ns(self) -> int:
        """Busy time of all devices."""
        return sum(d.busy_ns for d in self.device_times)

    @property
    def suspect(self) -> Suspect | None:
        """The first of all."""
        found = [s for one in self.suspects for s in one.ranked]
        return min(found, key=lambda s: (-s.saving_ns, -s.total_ns), default=None)


def summarise(source: Recording | Columns, per: str | None = None) -> Summary:
    """Works out everything that reports show.

    `per` names the region of the host that figures "per …" count by; without it, that is the one with most instances.
    """
    columns = source if isinstance(source, Columns) else columns_of(source)
    columns = replace(columns, devices=with_distinct_names(columns.devices))
    times = timeline.submission_times(columns)
    repeated = groups.repeated_region(columns) if per is None else groups.region_named(columns, per)
    instance = None if repeated is None else groups.instances_of(columns, repeated)
    spent = groups.command_times(columns, instance)
    first = warm_ups(columns)
    ranked, what_ifs, plan_paths, residues = [], [], [], []
    for number in range(len(columns.devices)):
        found = schedules(columns, number, first)
        one = suspects(columns, number, found, spent)
        if one.ranked:
            ranked.append(one)
        what_ifs += _what_ifs(columns, number, found)
        residues += [] if found.residue is None else [found.residue]
        plan_paths += [_plan_path(columns, number, plan) for plan in found.plans[:_MAX_PATHS]]
    drift, perturbation = truth.drift(columns, times, first), truth.perturbation(columns, times, first)
    ran = groups.dispatched(columns)
    return Summary(
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
            truth.host_cost(columns),
            truth.drops(columns),
            truth.clock(columns),
            truth.repetitions(columns),
            truth.warm_up(columns, times, first),
            truth.measured(columns, times),
        ),
        drops=tuple((drop.where, drop.count) for drop in columns.drops),
        meta=columns.meta,
    )


def _what_ifs(columns: Columns, device: int, schedules: Schedules) -> list[WhatIf]:
    """The ten kernels that take most time on the device, each twice as fast."""
    if not schedules.plans:
        return []
    code, names = groups.kernel_codes(columns)
    of_node = [code[columns.plans.command[columns.plans.nodes(plan.plan)]] for plan in schedules.plans]
    spent, on_path = np.zeros(len(names)), np.zeros(len(names))
    for plan, kernel in zip(schedules.plans, of_node, strict=True):
        chosen = kernel >= 0
        spent += np.bincount(kernel[chosen], plan.duration_ns[chosen] * plan.submissions, minlength=len(names))
        path = np.array(paths.path_of(plan), np.int64)
        path = path[chosen[path]]
        on_path += np.bincount(kernel[path], plan.duration_ns[path] * plan.submissions, minlength=len(names))
    kernels = np.argsort(-spent, kind="stable")[:_TOP]
    kernels = kernels[spent[kernels] > 0]
    faster = [
        np.where(kernel[:, None] == kernels, plan.duration_ns[:, None] / 2, plan.duration_ns[:, None])
        for plan, kernel in zip(schedules.plans, of_node, strict=True)
    ]
    saved = schedules.saved_ns(faster)
    unknown = schedules.unknown([kernel[:, None] == kernels for kernel in of_node])
    saved = np.where(unknown, np.nan, saved)
    return [
        WhatIf(
            kernel=names[number][0],
            detail=names[number][1],
            device=columns.devices[device].name,
            device_row=device,
            on_path_ns=float(on_path[number]),
            saved_ns=None if np.isnan(one) else float(one),
            saved_share=None if np.isnan(one) or not schedules.wall_ns else float(one) / schedules.wall_ns,
        )
        for number, one in zip(kernels.tolist(), saved, strict=True)
    ]


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


def look_first(summary: Summary) -> str:
    """The line that closes every report: the kernel to look at first, and why. Not escaped."""
    suspect = summary.suspect
    if suspect is None:
        return _without_suspects(summary) + _idle(summary)
    each = wording.time(suspect.p50_ns)
    name = named(suspect.kernel, suspect.detail)
    whose = f"{suspect.device}'s " if len(summary.device_times) > 1 else ""
    part = "" if suspect.busy_share is None else f" ({wording.percent(suspect.busy_share)} of {whose}busy time)"
    all_ = "in those that were timed" if summary.in_part else "in all"
    takes = f"takes {each} a dispatch, {wording.time(suspect.total_ns)} {all_}{part}"
    why = "; ".join(suspect.reasons)
    place = f"first encoded at {suspect.place}" if suspect.place and suspect.place_is_first else suspect.place
    where = ", ".join(filter(None, (suspect.label, place)))
    where = f" [{where}]" if where else ""
    if suspect.saving_share is None:
        gain = f"could save {wording.time(suspect.saving_ns)} of dispatch time"
    elif suspect.saving_share < _LITTLE:
        most = f"could save most ({wording.percent(suspect.saving_share)})" if suspect.saving_ns else "takes most time"
        gain = f"no kernel stands out, this one {most}"
    else:
        about = "up to" if suspect.saving_is_bound else "about"
        gain = f"could save {about} {wording.percent(suspect.saving_share)}"
    return f"Look first at {name}: {takes}, {gain}: {why}{where}{_idle(summary)}"


def _without_suspects(summary: Summary) -> str:
    if not summary.submissions:
        return "Nothing to look at first: no command buffer was recorded"
    longest = summary.command_buffers[0] if summary.command_buffers else None
    why = "dispatches were not timed"
    measured = summary.checks[-1]
    if measured.status is not truth.Status.FINE:
        why += f" ({measured.sentence})"
    if longest is None or longest.times is None:
        return f"Nothing to look at first: {why}"
    total = sum(b.times.total_ns for b in summary.command_buffers if b.times)
    name = f"command buffer {longest.name!r}" if longest.name else "the command buffers without a label"
    part = f" ({wording.percent(longest.times.total_ns / total)} of command-buffer time)" if total else ""
    return f"Look first at {name}: takes {wording.time(longest.times.total_ns)} in all{part}; {why}"


def _idle(summary: Summary) -> str:
    span, idle = sum(d.span_ns for d in summary.device_times), sum(d.idle_ns for d in summary.device_times)
    if span == 0 or idle < 0.5 * span:
        return ""
    worst = max(summary.device_times, key=lambda d: d.idle_ns)
    part = wording.percent(worst.idle_ns / worst.span_ns)
    return f"; but {worst.device} was idle {part} of the time (mostly {worst.causes[0].what})"
