"""A graph on other memory: where buffers lie in physical memory changes how well they fit in the caches.

Two equal kernels on different buffers can differ by a tenth, run after run, because of that alone. A measurement that
moves to fresh copies of its buffers again and again sees that difference as what it is: chance. Contenders whose
buffers hold the same use the same copies, and do not differ by it at all.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..graph.graph import Graph
from ..graph.memory import NamedRange, memory_contents, overlapping
from ..graph.rebinding import rebound
from ..graph.replay import Replayable
from ..runtime.buffer import Buffer, allocate

MOST = 30
"""Placements that are made at most."""
LEAST = 5
"""With fewer, their differences cannot be estimated."""
_MOST_BYTES = 256 << 20
"""What all copies of a graph's memory may take. What is larger fits in no cache, and lies alike anywhere."""
_ALIGNMENT = 64


def places_for(graph: Graph) -> int:
    """How many placements of a graph's memory there is room for; 0 if not even one."""
    nbytes = sum(end - begin for begin, end, _ in overlapping(graph.memories.values()))
    return min(MOST, _MOST_BYTES // max(nbytes, 1))


def placements(graphs: Sequence[Graph], count: int, seconds: float) -> list[list[Replayable]]:
    """Each graph on `count` fresh copies of its memory, or on as many as can be made in that time, at least one.

    Memory of the same size and contents is one copy for all graphs, so that only what they do with it differs.
    """
    end = time.monotonic() + seconds
    stretches = [_stretches(graph) for graph in graphs]
    runs: list[list[Replayable]] = [[] for _ in graphs]
    for number in range(count):
        if number and time.monotonic() >= end:
            break
        taken: list[tuple[_Stretch, Buffer]] = []
        for graph, of_graph, its_runs in zip(graphs, stretches, runs, strict=True):
            buffers: list[Buffer] = []
            for stretch in of_graph:
                alike = (buffer for other, buffer in taken if other.alike(stretch) and buffer not in buffers)
                shared = next(alike, None)
                buffers.append(_copy(graph, stretch) if shared is None else shared)
            taken += zip(of_graph, buffers, strict=True)
            its_runs.append(_moved(graph, of_graph, buffers).instantiate())
    return runs


def elsewhere(graph: Graph) -> Graph:
    """The graph on a fresh copy of all memory that it uses."""
    stretches = _stretches(graph)
    return _moved(graph, stretches, [_copy(graph, stretch) for stretch in stretches])


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Consecutive memory of a graph."""

    begin: int
    memory: int
    """Number of the memory that it begins with."""
    contents: bytes

    @property
    def offset(self) -> int:
        """Borrowed memory may begin at any address; keeping its offset keeps the alignment of what is in it."""
        return self.begin % _ALIGNMENT

    def alike(self, other: _Stretch) -> bool:
        """Whether one copy can serve for both."""
        return self.offset == other.offset and self.contents == other.contents


def _stretches(graph: Graph) -> list[_Stretch]:
    stretches = []
    for begin, end, members in overlapping(graph.memories.values()):
        contents = bytearray(end - begin)
        for memory in members:
            known = memory_contents(memory, 0, memory.nbytes)
            assert known is not None
            contents[memory.address - begin : memory.address - begin + memory.nbytes] = known
        stretches.append(_Stretch(begin, members[0].number, bytes(contents)))
    return stretches


def _copy(graph: Graph, stretch: _Stretch) -> Buffer:
    memory = allocate(graph.queue, len(stretch.contents) + stretch.offset, np.uint8)
    memory._allocation().backing.write(stretch.offset, np.frombuffer(stretch.contents, np.uint8))
    return memory.view(np.uint8, (len(stretch.contents),), stretch.offset)


def _moved(graph: Graph, stretches: Sequence[_Stretch], buffers: Sequence[Buffer]) -> Graph:
    """The graph with its memory replaced by these buffers, one for each stretch."""
    names = {}
    for number, stretch in enumerate(stretches):
        name, size = f"memory {number}", len(stretch.contents)
        names[name] = NamedRange(name, stretch.memory, stretch.begin, stretch.begin + size, np.dtype(np.uint8), (size,))
    moved = rebound(replace(graph, names=names), dict(zip(names, buffers, strict=True)))
    return replace(
        moved, memories={number: kept for number, kept in moved.memories.items() if number not in graph.memories}
    )
