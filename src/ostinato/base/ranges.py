"""Sets of addresses, as sorted lists of half-open ranges that do not overlap."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

Range = tuple[int, int]


def overlap(one: Range, other: Range) -> bool:
    """Whether they share at least one address."""
    return one[0] < other[1] and other[0] < one[1]


def merged(ranges: Iterable[Range], join_touching: bool = True) -> list[Range]:
    """The same addresses, each once; ranges that only touch become one too, unless they are to stay apart."""
    found: list[Range] = []
    for begin, end in sorted(ranges):
        if begin >= end:
            continue
        if found and (begin <= found[-1][1] if join_touching else begin < found[-1][1]):
            if end > found[-1][1]:
                found[-1] = (found[-1][0], end)
        else:
            found.append((begin, end))
    return found


def without(ranges: Sequence[Range], removed: Sequence[Range]) -> list[Range]:
    """What is in the first set and not in the second."""
    found: list[Range] = []
    for begin, end in ranges:
        at = max(bisect_right(removed, (begin,)) - 1, 0)
        while begin < end and at < len(removed) and removed[at][0] < end:
            if removed[at][1] > begin:
                if removed[at][0] > begin:
                    found.append((begin, removed[at][0]))
                begin = removed[at][1]
            at += 1
        if begin < end:
            found.append((begin, end))
    return found


def common(ranges: Sequence[Range], others: Sequence[Range]) -> list[Range]:
    """What is in both sets."""
    return without(ranges, without(ranges, others))


def size(ranges: Iterable[Range]) -> int:
    """How many addresses there are in it."""
    return sum(end - begin for begin, end in ranges)
