"""Times in a form that is small enough to draw: histograms, and series over the recording.

Both are computed from all values, for all kinds of them at once: `code` numbers the kind of each value, its kernel say.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .columns import Flags, Floats, Ints
from .statistics import order_of

BINS = 48
MOST_POINTS = 600
"""Of the series of one kind; longer ones are drawn in groups of values that follow each other."""
_NARROWEST = 1.02
"""The least ratio of the two ends of a histogram: equal times need a width too."""


@dataclass(frozen=True, slots=True)
class Histograms:
    """Values in `BINS` bins of equal width on a logarithmic axis; one row per kind."""

    low_ns: Floats
    """Where the first bin begins: at the least value, and at 1 ns for what is shorter. NaN without values."""
    high_ns: Floats
    counts: Ints
    """(kinds, bins)"""


def histograms(code: Ints, values_ns: Ints, size: int) -> Histograms:
    """The histogram of the values of each code from 0 to `size` - 1."""
    values = np.maximum(values_ns, 1).astype(np.float64)
    low, high = np.full(size, np.inf), np.zeros(size)
    np.minimum.at(low, code, values)
    np.maximum.at(high, code, values)
    high = np.maximum(high, low * _NARROWEST)
    low, high = (np.where(np.isfinite(low), end, np.nan) for end in (low, high))
    per_bin = BINS / np.log(high / low)
    place = (np.log(values / low[code]) * per_bin[code]).astype(np.int64)
    counts = np.bincount(code * BINS + np.minimum(place, BINS - 1), minlength=size * BINS)
    return Histograms(low, high, counts.reshape(size, BINS))


@dataclass(frozen=True, slots=True)
class Series:
    """Values in order of their moments, in groups of neighbours where there are many; one kind after another."""

    first: Ints
    """Where the groups of each kind begin, and one more."""
    at_ns: Ints
    """The moment of the first value of each group."""
    low_ns: Ints
    median_ns: Ints
    high_ns: Ints
    aside: Ints
    """0 if no value of the group is set aside, 1 if some are, 2 if all are."""


def series(
    code: Ints, at_ns: Ints, values_ns: Ints, aside: Flags, size: int, most: int = MOST_POINTS
) -> tuple[Series, Ints]:
    """The series of each code from 0 to `size` - 1, and the row of the largest value of each (-1 without values)."""
    order = order_of(code, size) if _rising(at_ns) else np.lexsort((at_ns, code))
    code, at, values, aside = code[order], at_ns[order], values_ns[order], aside[order]
    counts = np.bincount(code, minlength=size)
    begin = np.cumsum(counts) - counts
    groups = np.minimum(counts, most)
    first = np.concatenate([[0], np.cumsum(groups)])
    group = first[code] + (np.arange(code.size) - begin[code]) * groups[code] // np.maximum(counts, 1)[code]
    heads = np.flatnonzero(np.diff(group, prepend=-1))
    sizes = np.diff(heads, append=code.size)
    if not heads.size:
        none = np.zeros(0, np.int64)
        return Series(first, none, none, none, none, none), np.full(size, -1)
    # One sort of plain integers puts the values of all groups in order: the group is in the upper bits, the time in
    # the others. A time that is too long for them is cut: beyond 19 hours with 131,072 groups, an hour with 2 million.
    bits = 63 - int(group[-1]).bit_length()
    longest = (1 << bits) - 1
    ordered = np.sort((group << bits) | np.minimum(values, longest)) & longest
    median = (ordered[heads + (sizes - 1) // 2] + ordered[heads + sizes // 2]) // 2
    set_aside = np.add.reduceat(aside.astype(np.int64), heads)
    high = np.maximum.reduceat(values, heads)
    made = Series(
        first,
        at[heads],
        np.minimum.reduceat(values, heads),
        median,
        high,
        (set_aside > 0).astype(np.int64) + (set_aside == sizes),
    )
    return made, _largest(order, code, values, counts)


def _largest(order: Ints, code: Ints, values: Ints, counts: Ints) -> Ints:
    """The row of the first largest value of each code; `code` rises, and `order` has the rows."""
    some = np.flatnonzero(counts)
    heads = np.flatnonzero(np.diff(code, prepend=-1))
    most = np.maximum.reduceat(values, heads)
    at = np.flatnonzero(values == np.repeat(most, counts[some]))
    rows = np.full(counts.size, -1)
    rows[code[at[::-1]]] = order[at[::-1]]
    return rows


def _rising(values: Ints) -> bool:
    return not (np.diff(values) < 0).any()
