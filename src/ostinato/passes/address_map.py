"""The mapping between the addresses of two graphs: the same addresses, or those that `Graph.to` moved them to."""

from __future__ import annotations

from collections.abc import Sequence

from ..base.ranges import Range, merged, size, without
from ..errors import GraphError
from ..graph.graph import Graph
from .touched import written

_Moves = Sequence[tuple[int, int, int]]


class AddressMap:
    """From addresses of one graph to those of another, and back."""

    def __init__(self, moves: _Moves | None) -> None:
        self.is_identity = moves is None
        self._moves = sorted(moves or ())

    def there(self, ranges: Sequence[Range]) -> list[Range]:
        """Addresses of the first graph, translated to the second; those without a counterpart are left out."""
        return list(ranges) if self.is_identity else _moved(ranges, self._moves)

    def back(self, ranges: Sequence[Range]) -> list[Range]:
        """Addresses of the second graph, translated to the first; those without a counterpart are left out."""
        return list(ranges) if self.is_identity else _moved(ranges, _inverse(self._moves))


def correspondence(original: Graph, other: Graph) -> AddressMap:
    """The map from the memory of one graph to that of another; a `GraphError` when there is none."""
    needed = written(original)
    blocks = merged((memory.address, memory.address + memory.nbytes) for memory in other.memories.values())
    if original.queue is other.queue and not without(needed, blocks):
        return AddressMap(None)
    inverse = _inverse(original.moved_from)
    through = [
        (begin + start - source, begin + end - source, target)
        for source, stop, begin in original.moved_from
        for start, end, target in _cut_to(other.moved_from, source, stop)
    ]
    for moves in (other.moved_from, inverse, through):
        candidate = AddressMap(moves)
        there = candidate.there(needed)
        if size(there) == size(needed) and not without(there, blocks):
            return candidate
    raise GraphError(
        "verify: these two graphs do not use the same memory; compare a graph with what passes made of it, or with"
        " what graph.to(device) made of it"
    )


def _inverse(moves: _Moves) -> list[tuple[int, int, int]]:
    return sorted((to, to + end - begin, begin) for begin, end, to in moves)


def _cut_to(moves: _Moves, begin: int, end: int) -> list[tuple[int, int, int]]:
    """The parts of these moves whose source lies in a range."""
    parts = []
    for first, last, to in moves:
        start, stop = max(first, begin), min(last, end)
        if start < stop:
            parts.append((start, stop, to + start - first))
    return parts


def _moved(ranges: Sequence[Range], moves: _Moves) -> list[Range]:
    targets = [(to, to + end - start) for begin, stop in ranges for start, end, to in _cut_to(moves, begin, stop)]
    return merged(targets)
