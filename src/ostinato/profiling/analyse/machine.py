"""Which runs other programs disturbed, and what the rest of the machine did meanwhile.

A *run* is one submission of a command list. Where the workers of a device say how much of their time they got (the CPU
backend's read their threads' processor time), a run of which other programs took more than a small part is disturbed.
So is one for which workers came much later than for others of its list, or not at all. What no clock shows, another
program's memory traffic or a stolen virtual processor, makes a run stand out from the others: such strays are set aside
too. Suspects, what-ifs and efficiencies are worked out from the rest; tables keep everything.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from . import formatting
from .columns import ABSENT, Columns, Device, Flags, Floats, Ints
from .statistics import percentiles
from .timeline import SubmissionTimes
from .validity import Check, Status

LOST_PART = 0.02
"""A run of which other programs took more than this part of the workers' time is disturbed."""
WANTED_RUNS = 8
"""Fewer undisturbed runs of a list are no ground for a ranking."""
_STRAY_RANGES, _STRAY_PART = 3.0, 0.25
"""A run is a stray when it is longer than the upper quartile by so many interquartile ranges, and by this part."""
_STRAY_TIME = 0.25
_ALL_HANDS = 0.9
"""Workers were there when they worked for this part of the time, of a run or of what they do in the best runs."""
_OFTEN = 0.2
"""Fewer workers than the most that ever came count where at least this part of the runs had no more throughout."""
_MANY = 0.1
"""From this part of the runs on, that they were disturbed is worth a note."""
_UNSTEADY = 0.1
"""Neighbouring runs of a list that differ by more than this, in the middle, are not steady."""


@dataclass(frozen=True, slots=True)
class Disturbance:
    """What kept runs from being like the others, one entry per submission."""

    warm_up: Flags
    known: Flags
    """Whether the workers said how much of their time they got."""
    preempted: Flags
    """Other programs took a part of the workers' time."""
    short_handed: Flags
    """Workers took part for less of the time than in other runs of its list: they came late, or not at all."""
    stray: Flags
    """Much longer than the other runs of its list, for a reason that no clock shows."""
    lost_part: float | None
    """Of the workers' time of all runs together; None where none of it is known."""
    unsteady: float | None
    """By how much neighbouring runs of a list differ, in the middle; None with too few of them."""

    @property
    def aside(self) -> Flags:
        """What conclusions leave out: disturbed runs and warm-ups."""
        found: Flags = self.preempted | self.short_handed | self.stray | self.warm_up
        return found


def disturbance(columns: Columns, times: SubmissionTimes, warm_up: Flags) -> Disturbance:
    """Looks at every submission that ran."""
    subs = columns.submissions
    known = subs.ran & (subs.worked_ns != ABSENT) & (subs.lost_ns != ABSENT) & (subs.worked_ns > 0)
    worked = np.where(known, subs.worked_ns, 0)
    lost = np.where(known, np.minimum(subs.lost_ns, worked), 0)
    preempted: Flags = known & (lost > LOST_PART * worked)
    short_handed, stray = np.zeros(len(subs), bool), np.zeros(len(subs), bool)
    changes: list[Floats] = []
    for listed in _lists(columns, subs.ran & ~preempted & ~warm_up):
        rows = _with_all_hands(columns, times, listed)
        short_handed[np.setdiff1d(listed, rows)] = True
        took = times.interval_ns[rows].astype(np.float64)
        low, middle, high = percentiles(took, (25.0, 50.0, 75.0))
        limit = high + max(_STRAY_RANGES * (high - low), _STRAY_PART * middle)
        long = took > limit
        # Runs that hold much of the time are the program's own, such as a loop that depends on data.
        if float(took[long].sum()) <= _STRAY_TIME * float(took.sum()):
            stray[rows] = long
        # Neighbours, because a list may take longer and longer for a reason of its own: a growing context, say.
        if rows.size >= WANTED_RUNS and middle > 0:
            changes.append(np.abs(np.diff(took[took <= limit])) / middle)
    together = np.concatenate(changes) if changes else np.zeros(0)
    return Disturbance(
        warm_up,
        known,
        preempted,
        short_handed,
        stray,
        float(lost.sum() / worked.sum()) if worked.sum() else None,
        float(np.median(together)) if together.size else None,
    )


def _with_all_hands(columns: Columns, times: SubmissionTimes, rows: Ints) -> Ints:
    """The runs of a list for which workers were there, or all of them where it makes no difference.

    Usually those are most runs, and the others are left out: a worker came late, or went away in between. Where they
    are few, the machine is short of cores. Then only runs are alike in which one number of workers was there all the
    time: a worker that comes and goes makes some dispatches shorter than others.
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


def _lists(columns: Columns, chosen: Flags) -> list[Ints]:
    """The chosen submissions, list by list and device by device, in order of their starts."""
    subs = columns.submissions
    rows = np.flatnonzero(chosen & (subs.plan >= 0))
    key = subs.plan[rows] * max(len(columns.devices), 1) + subs.device[rows]
    order = np.lexsort((subs.start_ns[rows], key))
    heads = np.flatnonzero(np.diff(key[order], prepend=-1))
    return np.split(rows[order], heads[1:]) if rows.size else []


def check(columns: Columns, found: Disturbance) -> Check:
    """Whether other programs got into what was timed."""
    subs = columns.submissions
    ran = int((subs.ran & (subs.plan >= 0)).sum())
    if not ran:
        return Check("machine", Status.NOT_JUDGED, "nothing ran")
    parts, status = [], Status.FINE
    disturbed, strays = int(found.preempted.sum()), int((found.stray & ~found.preempted).sum())
    if found.lost_part is None:
        parts.append("how much of their time the workers got is not recorded")
        status = Status.NOT_JUDGED
    else:
        parts.append(f"other programs took {formatting.percent(found.lost_part)} of the workers' time")
    if disturbed:
        parts.append(f"{disturbed:,} of {formatting.count(ran, 'run')} disturbed and set aside")
    late = int((found.short_handed & ~found.preempted).sum())
    if late:
        parts.append(f"in {formatting.count(late, 'run')} workers came late or not at all, set aside")
    if strays:
        parts.append(f"{formatting.count(strays, 'run')} much longer than the others of the same list, set aside too")
    if found.unsteady is not None and found.unsteady > _UNSTEADY:
        parts.append(f"neighbouring runs of a list differ by {formatting.percent(found.unsteady)} all the same")
        status = Status.NOTED
    if disturbed + late + strays > _MANY * ran or (found.lost_part or 0.0) > LOST_PART:
        status = Status.NOTED
    for device in columns.devices:
        told = _conditions(device)
        if told:
            parts.append(told)
        if device.held_back_by or device.other_processes:
            status = Status.NOTED
    if any(device.ceilings_busy for device in columns.devices):
        parts.append("busy when the ceilings were measured, so efficiencies may be too high")
        status = Status.NOTED
    if any(device.raised for device in columns.devices):
        parts.append("kernels exceeded a ceiling, which was too low")
        status = Status.NOTED
    if disturbed + strays > 0.5 * ran:
        status = Status.ERROR
        parts.append("record on an idle machine")
    return Check("machine", status, "; ".join([*parts, *_load(columns)]))


def _conditions(device: Device) -> str:
    """What a device said of itself."""
    parts = []
    if device.sm_mhz is not None and device.sm_max_mhz:
        parts.append(f"its clock at {device.sm_mhz:,.0f} of {device.sm_max_mhz:,.0f} MHz")
    if device.held_back_by:
        parts.append(f"held back by {device.held_back_by}")
    if device.other_processes:
        parts.append(f"used by {formatting.count(device.other_processes, 'other program')}")
    return f"{device.name}: {', '.join(parts)}" if parts else ""


def _load(columns: Columns) -> list[str]:
    """What the operating system said of the machine, as far as the recording has it."""
    if not columns.origins:
        return []
    parts, first = [], columns.origins[0]
    if first.cores[0]:
        loads = (f"{load:.2f}" for load in first.load if load is not None)
        if told := " to ".join(dict.fromkeys(loads)):
            parts.append(f"load {told} on {formatting.count(first.cores[0], 'core')}")
    if first.run_delay_ns:
        parts.append(f"its workers waited {formatting.time(first.run_delay_ns)} for a core")
    if first.involuntary_switches:
        parts.append(formatting.count(first.involuntary_switches, "involuntary switch", "involuntary switches"))
    if first.steal_ns:
        parts.append(f"{formatting.time(first.steal_ns)} stolen by the hypervisor")
    return parts
