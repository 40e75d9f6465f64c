"""Which addresses of one graph stand for which of another: the same ones, or those that `Graph.to` moved them to."""

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
        """Addresses of the first graph, as the second has them; those that it has not are left out."""
        return list(ranges) if self.is_identity else _moved(ranges, self._moves)

    def back(self, ranges: Sequence[Range]) -> list[Range]:
        """The other way."""
        return list(ranges) if self.is_identity else _moved(ranges, _inverse(self._moves))


def correspondence(one: Graph, other: Graph) -> AddressMap:
    """How the memory of two graphs corresponds; an error when it does not."""
    needed = written(one)
    blocks = merged((memory.address, memory.address + memory.nbytes) for memory in other.memories.values())
    if one.queue is other.queue and not without(needed, blocks):
        return AddressMap(None)
    inverse = _inverse(one.moved_from)
    through = [
        (begin + start - source, begin + end - source, target)
        for source, stop, begin in one.moved_from
        for start, end, target in _cut_to(other.moved_from, source, stop)
    ]
    for moves in (other.moved_from, inverse, through):
        found = AddressMap(moves)
        there = found.there(needed)
        if size(there) == size(needed) and not without(there, blocks):
            return found
    raise GraphError(
        "verify: these two graphs do not use the same memory; compare a graph with what passes made of it, or with"
        " what graph.to(device) made of it"
    )


def _inverse(moves: _Moves) -> list[tuple[int, int, int]]:
    return sorted((to, to + end - begin, begin) for begin, end, to in moves)


def _cut_to(moves: _Moves, begin: int, end: int) -> list[tuple[int, int, int]]:
    """The part of some moves that starts from these addresses."""
    found = []
    for first, last, to in moves:
        start, stop = max(first, begin), min(last, end)
        if start < stop:
            found.append((start, stop, to + start - first))
    return found


def _moved(ranges: Sequence[Range], moves: _Moves) -> list[Range]:
    found = [(to, to + end - start) for begin, stop in ranges for start, end, to in _cut_to(moves, begin, stop)]
    return merged(found)
