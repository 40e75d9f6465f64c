"""Sets of addresses, as sorted lists of half-open ranges that do not overlap."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

Range = tuple[int, int]


def overlap(left: Range, right: Range) -> bool:
    """Whether they share at least one address."""
    return left[0] < right[1] and right[0] < left[1]


def merged(ranges: Iterable[Range], join_touching: bool = True) -> list[Range]:
    """The union of ranges; adjacent ranges become one range if `join_touching`."""
    union: list[Range] = []
    for begin, end in sorted(ranges):
        if begin >= end:
            continue
        if union and (begin <= union[-1][1] if join_touching else begin < union[-1][1]):
            if end > union[-1][1]:
                union[-1] = (union[-1][0], end)
        else:
            union.append((begin, end))
    return union


def without(ranges: Sequence[Range], removed: Sequence[Range]) -> list[Range]:
    """The addresses in the first set and not in the second."""
    kept: list[Range] = []
    for begin, end in ranges:
        at = max(bisect_right(removed, (begin,)) - 1, 0)
        while begin < end and at < len(removed) and removed[at][0] < end:
            if removed[at][1] > begin:
                if removed[at][0] > begin:
                    kept.append((begin, removed[at][0]))
                begin = removed[at][1]
            at += 1
        if begin < end:
            kept.append((begin, end))
    return kept


def common(ranges: Sequence[Range], others: Sequence[Range]) -> list[Range]:
    """The addresses in both sets."""
    return without(ranges, without(ranges, others))


def size(ranges: Iterable[Range]) -> int:
    """The number of addresses."""
    return sum(end - begin for begin, end in ranges)
