"""Liveness of a few byte ranges in a graph that is replayed repeatedly: which nodes read them, which overwrite them.

Memory is cut into pieces at the ends of the ranges of interest. Each node reads a piece, overwrites all of it without
reading it, or leaves it alone. A write that may leave some bytes unchanged counts as a read, since the old bytes stay
visible. Pieces are the leaves of a segment tree, so noting a use and asking for one take logarithmic time, however many
pieces a large block has.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from ..base.ranges import Range


class Uses:
    """Which nodes read and which overwrite some ranges. Nodes must be noted in ascending order."""

    def __init__(self, ranges: Iterable[Range]) -> None:
        self._cuts = sorted({address for span in ranges for address in span})
        self._leaves = 1 << max(len(self._cuts) - 1, 1).bit_length()
        self._reads: dict[int, list[int]] = {}
        self._kills: dict[int, list[int]] = {}

    def note(self, node: int, begin: int, end: int, overwrites: bool) -> None:
        """Record that a node reads these addresses, or overwrites all of them."""
        if overwrites:  # whole pieces only
            first, last = bisect_left(self._cuts, begin), self._last_before(end)
        else:
            first, last = max(self._last_before(begin), 0), bisect_left(self._cuts, end)
        table = self._kills if overwrites else self._reads
        left, right = first + self._leaves, min(last, len(self._cuts) - 1) + self._leaves
        while left < right:
            if left & 1:
                _append(table, left, node)
                left += 1
            if right & 1:
                right -= 1
                _append(table, right, node)
            left //= 2
            right //= 2

    def _last_before(self, address: int) -> int:
        """Index of the last cut at or before an address; −1 when there is none."""
        at = bisect_left(self._cuts, address)
        return at if at < len(self._cuts) and self._cuts[at] == address else at - 1

    def pieces(self, begin: int, end: int) -> range:
        """The pieces of one of the ranges."""
        return range(bisect_left(self._cuts, begin), bisect_left(self._cuts, end))

    def bounds(self, piece: int) -> Range:
        """The addresses of a piece."""
        return self._cuts[piece], self._cuts[piece + 1]

    def first_read(self, piece: int, after: int, before: int) -> int | None:
        """The first node between two (exclusive) that reads a piece."""
        return self._first(self._reads, piece, after, before)

    def first_overwrite(self, piece: int, after: int, before: int) -> int | None:
        """The first node between two (exclusive) that overwrites all of a piece."""
        return self._first(self._kills, piece, after, before)

    def _first(self, table: dict[int, list[int]], piece: int, after: int, before: int) -> int | None:
        earliest: int | None = None
        place = piece + self._leaves
        while place:
            nodes = table.get(place)
            if nodes is not None:
                at = bisect_left(nodes, after + 1)
                if at < len(nodes) and nodes[at] < before and (earliest is None or nodes[at] < earliest):
                    earliest = nodes[at]
            place //= 2
        return earliest


def _append(table: dict[int, list[int]], place: int, node: int) -> None:
    nodes = table.setdefault(place, [])
    if not nodes or nodes[-1] != node:
        nodes.append(node)
