"""Orders of numbered things as edges (before, after), which all lead forward: before < after."""

from __future__ import annotations

from collections.abc import Iterable


def transitive_reduction(count: int, edges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The fewest edges with the same order: those that do not follow from others, by `after`, its nearest first.

    It takes a bit of memory per pair of things.
    """
    waits: list[list[int]] = [[] for _ in range(count)]
    for before, after in edges:
        waits[after].append(before)
    ancestors = [0] * count
    kept = []
    for after, direct in enumerate(waits):
        above = 0
        # Ancestors all come before: seen from the nearest one, what is new is needed.
        for before in sorted(set(direct), reverse=True):
            if not above >> before & 1:
                kept.append((before, after))
                above |= ancestors[before] | 1 << before
        ancestors[after] = above
    return kept
