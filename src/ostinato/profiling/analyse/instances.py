"""The instances of a host region one by one: how long each took, and what was different in the slow ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .columns import ABSENT, Columns, Flags, Floats, Ints, usable
from .groups import sampled_whole
from .regions import instances_of


@dataclass(frozen=True, slots=True)
class Instances:
    """All ended instances of one name, in the order in which they began; an entry each."""

    row: Ints
    """Of the table of regions."""
    begin_ns: Ints
    wall_ns: Ints
    submissions: Ints
    """Command buffers that were committed in it."""
    dispatch_ns: Ints
    """The sum of the times of its dispatches; `ABSENT` where not all were timed."""
    running_ns: Ints
    """Time inside of it in which one of its command buffers ran; `ABSENT` where one of them has no times."""

    def __len__(self) -> int:
        return len(self.row)


def instances(columns: Columns, name: str, sum_ns: Ints) -> Instances:
    """The instances of a name. `sum_ns` has the dispatch time of each submission (`timeline.SubmissionTimes`)."""
    regions = columns.regions
    row = np.flatnonzero((regions.name == name) & (regions.end_ns != ABSENT))
    row = row[np.argsort(regions.begin_ns[row], kind="stable")]
    within = instances_of(columns, name)
    place = np.full(len(regions) + 1, -1)
    place[row] = np.arange(row.size)
    number = place[within]
    inside = number >= 0
    dispatch_ns = np.full(row.size, ABSENT)
    whole = place[sampled_whole(columns, within)]
    whole = whole[whole >= 0]
    spent = np.bincount(number[inside], weights=np.maximum(sum_ns[inside], 0), minlength=row.size)
    dispatch_ns[whole] = spent[whole].astype(np.int64)
    return Instances(
        row,
        regions.begin_ns[row],
        regions.end_ns[row] - regions.begin_ns[row],
        np.bincount(number[inside], minlength=row.size),
        dispatch_ns,
        _running(columns, number, regions.begin_ns[row], regions.end_ns[row]),
    )


def _running(columns: Columns, number: Ints, begin: Ints, end: Ints) -> Ints:
    """The union of the intervals of command buffers inside their instances, all instances at once."""
    subs = columns.submissions
    chosen = np.flatnonzero((number >= 0) & subs.ran)
    order = chosen[np.lexsort((subs.start_ns[chosen], number[chosen]))]
    owner = number[order]
    start = np.clip(subs.start_ns[order], begin[owner], end[owner]) - begin[owner]
    stop = np.clip(subs.end_ns[order], begin[owner], end[owner]) - begin[owner]
    # Each instance gets a stretch of its own on one line, so that what was reached never comes from the one before.
    stretch = np.cumsum(end - begin) - (end - begin)
    start, stop = start + stretch[owner], stop + stretch[owner]
    reached = np.maximum.accumulate(np.concatenate([[0], stop]))[:-1] if stop.size else stop
    added = np.maximum(stop - np.maximum(start, reached), 0)
    running = np.bincount(owner, weights=added, minlength=begin.size).astype(np.int64)
    without = np.unique(number[(number >= 0) & ~subs.ran & subs.executed])
    running[without] = ABSENT
    return running


def kernel_excess(columns: Columns, given: Instances, name: str, kernel: Ints, chosen: Ints, size: int) -> Floats:
    """(chosen, kernels): how much longer each kernel took in some instances than in the mean of all.

    Only instances in which all dispatches were timed count; the rows of others are NaN. `kernel` numbers the kernel of
    each command from 0 to `size` - 1 (-1: none), and `chosen` has positions in `given`.
    """
    within = instances_of(columns, name)
    place = np.full(len(columns.regions) + 1, -1)
    place[given.row] = np.arange(len(given))
    whole: Flags = np.append(given.dispatch_ns != ABSENT, False)
    samples = usable(columns.samples)
    number = place[within][samples.submission]
    which = kernel[columns.plans.command[samples.node]]
    used = whole[number] & (which >= 0)
    number, which = number[used], which[used]
    duration = (samples.end_ns - samples.start_ns)[used]
    mean = np.bincount(which, weights=duration, minlength=size) / max(int(whole.sum()), 1)
    position = np.full(len(given), -1)
    position[chosen] = np.arange(chosen.size)
    mine = position[number] >= 0
    key = position[number[mine]] * size + which[mine]
    spent = np.bincount(key, weights=duration[mine], minlength=chosen.size * size).reshape(chosen.size, size)
    return np.where(whole[chosen][:, None], spent - mean, np.nan)


def outline(values: Ints, most: int, kept: Ints) -> Ints:
    """The positions of at most `most` values, and of those `kept`, that show the whole: all, or extremes of stretches.

    Of each stretch of neighbours the least and the largest are taken, so that no outlier is lost.
    """
    if values.size <= most:
        return np.arange(values.size)
    stretch = np.arange(values.size) * (most // 2) // values.size
    heads = np.flatnonzero(np.diff(stretch, prepend=-1))
    order = np.lexsort((values, stretch))
    last = np.append(heads[1:], values.size) - 1
    return np.unique(np.concatenate([order[heads], order[last], kept]))
