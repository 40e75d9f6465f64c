"""Which dispatches a timeline shows of a recording that has more than a browser can hold.

Whole command buffers are chosen, as many as there is room for: the first of each device, the slowest of each command
list and of each label, those with the slowest dispatch of each kernel, those of the longest regions, and others evenly
spaced in time. Of one that is too large by
itself, the longest dispatches are shown.
"""

from __future__ import annotations

import numpy as np

from ...analyse.columns import ABSENT, Columns, Flags, Ints, Samples
from .packing import numbered

_FIRST = 3
_GROUPS = 100
"""Lists, and labels, whose slowest command buffer is shown."""
_REGIONS = 10
"""Of each name, the longest."""
_LARGE = 10
"""A command buffer may take this part of the room, where there are so many."""


def chosen_dispatches(columns: Columns, timed: Samples, kernel: Ints, most: int) -> Flags:
    """Which of the dispatches that have a time are shown: all of them where there are at most so many.

    `kernel` numbers the kernel of each of them.
    """
    if len(timed) <= most:
        return np.ones(len(timed), bool)
    count = np.bincount(timed.submission, minlength=len(columns.submissions))
    sampled = np.flatnonzero(count)
    room = np.minimum(count, most // min(_LARGE, sampled.size))
    telling, others = _by_interest(columns, timed, kernel, sampled)
    taken = telling[np.cumsum(room[telling]) <= most]
    if others.size:
        left = int((most - room[taken].sum()) / room[others].mean())
        spaced = others[np.unique(np.linspace(0, others.size - 1, left).astype(np.int64))]
        taken = np.concatenate([taken, spaced[np.cumsum(room[spaced]) <= most - room[taken].sum()]])
    shown = np.isin(timed.submission, taken)
    for submission in taken[count[taken] > room[taken]].tolist():
        rows = np.flatnonzero(timed.submission == submission)
        short = np.argsort(timed.start_ns[rows] - timed.end_ns[rows], kind="stable")[room[submission] :]
        shown[rows[short]] = False
    return shown


def _by_interest(columns: Columns, timed: Samples, kernel: Ints, sampled: Ints) -> tuple[Ints, Ints]:
    """Command buffers that tell something, the most telling first; and all others, in order of start."""
    subs = columns.submissions
    rows = sampled[np.argsort(subs.start_ns[sampled], kind="stable")]
    length = subs.end_ns[rows] - subs.start_ns[rows]
    firsts = [rows[subs.device[rows] == device][:_FIRST] for device in range(len(columns.devices))]
    by_list = subs.plan[rows] * (len(columns.devices) + 1) + subs.device[rows]
    slowest = [rows[_longest(key, length, 1, _GROUPS)] for key in (by_list, numbered(subs.label[rows].tolist())[1])]
    telling = np.concatenate([*firsts, *slowest, _with_slowest(timed, kernel), _in_long_regions(columns, rows)])
    telling = telling[np.sort(np.unique(telling, return_index=True)[1])]
    return telling, rows[~np.isin(rows, telling)]


def _with_slowest(timed: Samples, kernel: Ints) -> Ints:
    """The command buffers with the slowest dispatch of each kernel, of which the slowest come first."""
    by_length = np.argsort(timed.end_ns - timed.start_ns, kind="stable")
    of = kernel[by_length]
    last: Ints = np.zeros(kernel.max() + 2, np.int64)  # one more for -1, what has no number
    last[of] = np.arange(of.size)  # of several the last one stays, which is the longest
    slowest = by_length[np.sort(last[np.unique(of)])[::-1]]
    return timed.submission[slowest[:_GROUPS]]


def _in_long_regions(columns: Columns, rows: Ints) -> Ints:
    """The command buffers, given in order of start, that started in one of the longest regions of its name."""
    regions = columns.regions
    ended = np.flatnonzero(regions.end_ns != ABSENT)
    begin, end = regions.begin_ns[ended], regions.end_ns[ended]
    longest = _longest(numbered(regions.name[ended].tolist())[1], end - begin, _REGIONS, _REGIONS * _GROUPS)
    start = columns.submissions.start_ns[rows]
    first, last = np.searchsorted(start, begin[longest]), np.searchsorted(start, end[longest])
    # A region that holds much of the recording says nothing about which of its command buffers to show.
    few = last - first <= max(rows.size // _REGIONS, 1)
    pieces = [rows[a:b] for a, b in zip(first[few].tolist(), last[few].tolist(), strict=True)]
    return np.concatenate([np.zeros(0, np.int64), *pieces])


def _longest(group: Ints, length: Ints, each: int, most: int) -> Ints:
    """Rows of the longest of each group, the longest of all first."""
    order = np.lexsort((-length, group))
    heads = np.flatnonzero(np.diff(group[order], prepend=-2))
    rank = np.arange(order.size) - np.repeat(heads, np.diff(heads, append=order.size))
    kept = order[rank < each]
    return kept[np.argsort(-length[kept], kind="stable")][:most]
