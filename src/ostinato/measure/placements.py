"""A graph on other memory: where buffers lie in physical memory changes how well they fit in the caches.

Two equal kernels on different buffers can differ by a tenth, run after run, because of that alone. A measurement that
moves to fresh copies of its buffers again and again sees that difference as what it is: chance.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

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

    The graphs take turns at being first: memory that is allocated later may be worse.
    """
    end = time.monotonic() + seconds
    runs: list[list[Replayable]] = [[] for _ in graphs]
    for number in range(count):
        if number and time.monotonic() >= end:
            break
        order = range(len(graphs))
        for which in reversed(order) if number % 2 else order:
            runs[which].append(elsewhere(graphs[which]).instantiate())
    return runs


def elsewhere(graph: Graph) -> Graph:
    """The graph on a fresh copy of all memory that it uses."""
    names: dict[str, NamedRange] = {}
    buffers: dict[str, Buffer] = {}
    for number, (begin, end, members) in enumerate(overlapping(graph.memories.values())):
        # Borrowed memory may begin at any address; keeping its offset keeps the alignment of what is in it.
        offset, nbytes = begin % _ALIGNMENT, end - begin
        block = allocate(graph.queue, nbytes + offset, np.uint8)
        for memory in members:
            contents = memory_contents(memory, 0, memory.nbytes)
            assert contents is not None
            block._allocation().backing.write(offset + memory.address - begin, np.frombuffer(contents, np.uint8))
        name = f"memory {number}"
        names[name] = NamedRange(name, members[0].number, begin, end, np.dtype(np.uint8), (nbytes,))
        buffers[name] = block.view(np.uint8, (nbytes,), offset)
    return rebound(replace(graph, names=names), buffers)
