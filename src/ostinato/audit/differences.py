"""Ranges of addresses where bytes differ, and unions of ranges that keep adjacent blocks apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from ..base import ranges
from ..base.ranges import Range

_NEAR = 8  # changed bytes this close to each other are one change, since numbers rarely change in all of their bytes


def merged(spans: Iterable[Range]) -> list[Range]:
    """The union of ranges. Adjacent ranges stay apart: they are different blocks, with a guard in between."""
    return ranges.merged(spans, join_touching=False)


def changes(now: np.ndarray, before: np.ndarray | int, address: int) -> Iterator[Range]:
    """Ranges of addresses where bytes differ."""
    if np.array_equal(now, before) if isinstance(before, np.ndarray) else bool((now == before).all()):
        return
    differing = np.flatnonzero(now != before)
    gaps = np.flatnonzero(np.diff(differing) > _NEAR)
    firsts = differing[np.concatenate(([0], gaps + 1))]
    lasts = differing[np.concatenate((gaps, [len(differing) - 1]))]
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        yield address + first, address + last + 1


def joined(changed: list[Range]) -> list[Range]:
    """Ranges that are close to each other, joined."""
    runs: list[Range] = []
    for begin, end in sorted(changed):
        if runs and begin <= runs[-1][1] + _NEAR:
            runs[-1] = runs[-1][0], max(runs[-1][1], end)
        else:
            runs.append((begin, end))
    return runs
