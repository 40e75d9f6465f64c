"""Which runs other programs disturbed, and how busy the machine was.

A *run* is one submission of a command list. Where the workers of a device report how much of their time they got (those
of the CPU backend read their threads' CPU time), a run is disturbed if other programs took more than a small part of
it. So is one whose workers came much later than in other runs of its list, or not at all. Some causes show in no clock,
such as memory traffic of another program or a stolen virtual CPU: they make a run an outlier of its list. All these
runs are excluded from suspects, what-ifs and efficiencies; tables include them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from . import formatting
from .columns import ABSENT, Columns, Device, Flags, Floats, Ints
from .lists import runs_by_list
from .statistics import percentiles
from .timeline import SubmissionTimes
from .validity import Check, Status

LOST_PART = 0.02
"""A run is disturbed if other programs took more than this part of the workers' time."""
WANTED_RUNS = 8
"""Undisturbed runs of a list that a ranking needs at least."""
_STRAY_RANGES, _STRAY_PART = 3.0, 0.25
"""An outlier is longer than the upper quartile by so many interquartile ranges, and by this part of the median."""
_STRAY_TIME = 0.25
_ALL_HANDS = 0.9
"""Workers were present if they worked for this part of the run, or of what they do in the best runs."""
_OFTEN = 0.2
"""Fewer than the most workers ever seen are accepted where at least this part of the runs had exactly that many."""
_MANY = 0.1
"""Disturbed runs are noted from this part of all runs on."""
_UNSTEADY = 0.1
"""Consecutive runs of a list whose median difference is larger are not steady."""


@dataclass(frozen=True, slots=True)
class Disturbance:
    """Why runs differ from the others of their list, one entry per submission."""

    warm_up: Flags
    known: Flags
    """Whether the workers reported how much of their time they got."""
    preempted: Flags
    """Other programs took a part of the workers' time."""
    short_handed: Flags
    """Workers were present for less of the time than in other runs of the list: they came late, or not at all."""
    outlier: Flags
    """Much longer than the other runs of the list, for a reason that no clock shows."""
    lost_part: float | None
    """The part of the workers' time, over all runs, that other programs took; None where it is not known."""
    unsteady: float | None
    """The median difference of consecutive runs of a list, as a part; None with too few of them."""

    @property
    def aside(self) -> Flags:
        """The runs that conclusions exclude: disturbed runs and warm-ups."""
        excluded: Flags = self.preempted | self.short_handed | self.outlier | self.warm_up
        return excluded


def disturbance(columns: Columns, times: SubmissionTimes, warm_up: Flags) -> Disturbance:
    """Classifies every submission that ran."""
    subs = columns.submissions
    known = subs.ran & (subs.worked_ns != ABSENT) & (subs.lost_ns != ABSENT) & (subs.worked_ns > 0)
    worked = np.where(known, subs.worked_ns, 0)
    lost = np.where(known, np.minimum(subs.lost_ns, worked), 0)
    preempted: Flags = known & (lost > LOST_PART * worked)
    short_handed, outlier = np.zeros(len(subs), bool), np.zeros(len(subs), bool)
    changes: list[Floats] = []
    for listed in runs_by_list(columns, subs.ran & ~preempted & ~warm_up):
        rows = _with_all_hands(columns, times, listed)
        short_handed[np.setdiff1d(listed, rows)] = True
        took = times.interval_ns[rows].astype(np.float64)
        outlier[rows] = long = unusually_long(took)
        middle = percentiles(took, (50.0,))[0]
        # Consecutive runs, because a list may take longer and longer by itself: a growing context, say.
        if rows.size >= WANTED_RUNS and middle > 0:
            changes.append(np.abs(np.diff(took[~long])) / middle)
    together = np.concatenate(changes) if changes else np.zeros(0)
    return Disturbance(
        warm_up,
        known,
        preempted,
        short_handed,
        outlier,
        float(lost.sum() / worked.sum()) if worked.sum() else None,
        float(np.median(together)) if together.size else None,
    )


def unusually_long(took: Floats) -> Flags:
    """The runs that are much longer than the others of their list.

    None of them if they hold much of the time: then they belong to the program, such as a loop that depends on data.
    """
    low, middle, high = percentiles(took, (25.0, 50.0, 75.0))
    long: Flags = took > high + max(_STRAY_RANGES * (high - low), _STRAY_PART * middle)
    return long if float(took[long].sum()) <= _STRAY_TIME * float(took.sum()) else np.zeros(took.size, bool)


def _with_all_hands(columns: Columns, times: SubmissionTimes, rows: Ints) -> Ints:
    """The runs of a list in which all workers were present, or all runs where that makes no difference.

    Usually those are most runs, and in the others a worker came late, or went away in between. Where they are few, the
    machine is short of cores. Then only runs with one constant number of workers are comparable: a worker that comes
    and goes makes some dispatches shorter than others.
    """
    subs = columns.submissions
    rows_known = rows[(subs.joined[rows] > 0) & (subs.worked_ns[rows] > 0)]
    if rows_known.size < WANTED_RUNS:
        return rows
    joined = subs.joined[rows_known]
    hands = subs.worked_ns[rows_known] / np.maximum(times.interval_ns[rows_known], 1)
    choices = [hands >= _ALL_HANDS * hands.max()]
    enough = [rows_known.size / 2]
    for count in np.unique(joined)[::-1].tolist():
        choices.append((joined == count) & (hands >= _ALL_HANDS * count))
        enough.append(0 if count == joined.max() else _OFTEN * rows_known.size)
    for chosen, least in zip(choices, enough, strict=True):
        if int(chosen.sum()) >= max(least, WANTED_RUNS):
            return np.asarray(rows_known[chosen], np.int64)
    return np.asarray(rows_known[hands >= _ALL_HANDS * np.sort(hands)[-WANTED_RUNS]], np.int64)


@dataclass(frozen=True, slots=True)
class Figures:
    """How many runs were disturbed, and how much."""

    runs: int
    disturbed: int
    """Runs of which other programs took a part."""
    late: int
    """Other runs, whose workers came late or not at all."""
    outliers: int
    """Other runs that are unusually long."""
    lost_part: float | None
    unsteady: float | None


def figures(columns: Columns, runs: Disturbance) -> Figures:
    """What the check judges by."""
    subs = columns.submissions
    return Figures(
        int((subs.ran & (subs.plan >= 0)).sum()),
        int(runs.preempted.sum()),
        int((runs.short_handed & ~runs.preempted).sum()),
        int((runs.outlier & ~runs.preempted).sum()),
        runs.lost_part,
        runs.unsteady,
    )


def check(columns: Columns, runs: Disturbance) -> Check:
    """Whether other programs disturbed the measurement."""
    counted = figures(columns, runs)
    ran, disturbed, late, outliers = counted.runs, counted.disturbed, counted.late, counted.outliers
    if not ran:
        return Check("machine", Status.NOT_JUDGED, "nothing ran")
    parts, noted = [], (runs.lost_part or 0.0) > LOST_PART
    if runs.lost_part is None:
        parts.append("how much CPU time the workers got was not recorded")
    else:
        parts.append(f"other programs took {formatting.percent(runs.lost_part)} of the workers' time")
    reasons = ((disturbed, "disturbed"), (late, "with late or missing workers"), (outliers, "unusually long"))
    excluded = ", ".join(f"{count:,} {reason}" for count, reason in reasons if count)
    if excluded:
        parts.append(f"excluded of {formatting.count(ran, 'run')}: {excluded}")
    if runs.unsteady is not None and runs.unsteady > _UNSTEADY:
        parts.append(f"consecutive runs of a list still differ by {formatting.percent(runs.unsteady)}")
        noted = True
    for device in columns.devices:
        parts += _conditions(device)
        noted |= bool(device.held_back_by or device.other_processes)
    if any(device.ceilings_busy for device in columns.devices):
        parts.append("the machine was busy when the ceilings were measured, so efficiencies may be too high")
        noted = True
    if any(device.raised for device in columns.devices):
        parts.append("a kernel exceeded a measured ceiling, which was raised")
        noted = True
    noted |= disturbed + late + outliers > _MANY * ran
    status = Status.NOTED if noted else Status.NOT_JUDGED if runs.lost_part is None else Status.FINE
    if disturbed + outliers > 0.5 * ran:
        status = Status.ERROR
        parts.append("record on an idle machine")
    return Check("machine", status, "; ".join([*parts, *_load(columns)]))


def _conditions(device: Device) -> list[str]:
    """What a device reported of itself."""
    parts = []
    if device.sm_mhz is not None and device.sm_max_mhz:
        parts.append(f"clock at {device.sm_mhz:,.0f} of {device.sm_max_mhz:,.0f} MHz")
    if device.held_back_by:
        parts.append(f"throttled by {device.held_back_by}")
    if device.other_processes:
        parts.append(f"used by {formatting.count(device.other_processes, 'other program')}")
    return [f"{device.name}: {', '.join(parts)}"] if parts else []


def _load(columns: Columns) -> list[str]:
    """What the operating system reported of the machine, as far as it was recorded."""
    if not columns.origins:
        return []
    parts, first = [], columns.origins[0]
    if first.cores[0]:
        loads = (f"{load:.2f}" for load in first.load if load is not None)
        if reported := " to ".join(dict.fromkeys(loads)):
            parts.append(f"load {reported} on {formatting.count(first.cores[0], 'core')}")
    if first.run_delay_ns:
        parts.append(f"threads waited {formatting.time(first.run_delay_ns)} for a core")
    if first.involuntary_switches:
        switches = first.involuntary_switches
        parts.append(formatting.count(switches, "involuntary context switch", "involuntary context switches"))
    if first.steal_ns:
        parts.append(f"{formatting.time(first.steal_ns)} of steal time")
    return parts
