"""Which runs of two contenders may be compared: undisturbed ones, in which as many workers took part.

A short list is often over before all workers have come: sometimes two run it, sometimes one does all. These are two
different times, and a contender that happened to get the second worker more often would look faster. So one number of
workers is chosen for all sides, and runs with any other do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .columns import ABSENT, Columns, Flags
from .lists import warm_ups
from .machine import Disturbance, disturbance, unusually_long
from .statistics import median
from .timeline import submission_times

_COMMON = 0.2
"""The part of the runs of every side that must have the same number of workers."""
_PRESENT = 0.9
"""Workers took part throughout if they worked for this part of the run."""


def comparable(sides: Sequence[tuple[Columns, Flags]]) -> list[Flags]:
    """Of the given runs of each side, those that count. Each side runs one list."""
    steady = _without_outliers(sides, [_unhindered(columns, present) for columns, present in sides])
    joined = [columns.submissions.joined[chosen] for (columns, _), chosen in zip(sides, steady, strict=True)]
    if not all(each.size and (each > 0).all() for each in joined):
        return steady
    # The number of workers that the side with fewest such runs still has most of.
    shares = {
        count: min(float((each == count).mean()) for each in joined)
        for count in np.unique(np.concatenate(joined)).tolist()
    }
    chosen = max(shares, key=shares.__getitem__)
    if shares[chosen] < _COMMON:  # the contenders differ in how many workers they have use for
        return steady
    alike = [each & (columns.submissions.joined == chosen) for (columns, _), each in zip(sides, steady, strict=True)]
    throughout = [each & _throughout(columns, chosen) for (columns, _), each in zip(sides, alike, strict=True)]
    often = all(2 * int(few.sum()) >= int(each.sum()) for few, each in zip(throughout, alike, strict=True))
    return throughout if often else alike


def undisturbed(columns: Columns, present: Flags) -> Flags:
    """Of the given runs of one recording, those that count.

    Where most runs of a recording lack a worker, those are what is measured.
    """
    runs = _disturbance(columns, present)
    whole: Flags = present & ~runs.aside
    steady: Flags = present & ~(runs.preempted | runs.outlier | runs.warm_up)
    return whole if 2 * int(whole.sum()) >= int(steady.sum()) else steady


def _unhindered(columns: Columns, present: Flags) -> Flags:
    runs = _disturbance(columns, present)
    unhindered: Flags = present & ~(runs.preempted | runs.warm_up)
    return unhindered


def _without_outliers(sides: Sequence[tuple[Columns, Flags]], chosen: Sequence[Flags]) -> list[Flags]:
    """Leaves unusually long runs out, by one rule for all sides.

    A rule for each would leave the long runs of one side in and those of the other out where these are nearly as many.
    """
    relative = []
    for (columns, _), which in zip(sides, chosen, strict=True):
        took = (columns.submissions.end_ns - columns.submissions.start_ns).astype(np.float64)
        relative.append(took / max(median(took[which]), 1.0) if which.any() else took)
    together = np.concatenate([each[which] for each, which in zip(relative, chosen, strict=True)])
    long = unusually_long(together)
    limit = together[long].min() if long.any() else np.inf
    return [which & (each < limit) for each, which in zip(relative, chosen, strict=True)]


def _disturbance(columns: Columns, present: Flags) -> Disturbance:
    # Equal lists are one list of a recording; runs of another contender are not outliers of this one.
    subs = columns.submissions
    columns = replace(columns, submissions=replace(subs, plan=np.where(present, subs.plan, ABSENT)))
    return disturbance(columns, submission_times(columns), warm_ups(columns))


def _throughout(columns: Columns, workers: int) -> Flags:
    subs = columns.submissions
    present: Flags = subs.worked_ns >= _PRESENT * workers * np.maximum(subs.end_ns - subs.start_ns, 1)
    return present
