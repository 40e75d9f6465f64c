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
    runs: list[list[Replayable]] = [[] for _ in graphs]
    for number in range(count):
        if number and time.monotonic() >= end:
            break
        blocks: list[_Block] = []
        for which, graph in enumerate(graphs):
            runs[which].append(elsewhere(graph, blocks).instantiate())
    return runs


@dataclass(slots=True)
class _Block:
    """A copy of a stretch of memory."""

    contents: bytes
    buffer: Buffer
    users: list[Graph]


def elsewhere(graph: Graph, blocks: list[_Block] | None = None) -> Graph:
    """The graph on a fresh copy of all memory that it uses; copies for other graphs that fit are used too."""
    blocks = [] if blocks is None else blocks
    names: dict[str, NamedRange] = {}
    buffers: dict[str, Buffer] = {}
    for number, (begin, end, members) in enumerate(overlapping(graph.memories.values())):
        contents = bytearray(end - begin)
        for memory in members:
            known = memory_contents(memory, 0, memory.nbytes)
            assert known is not None
            contents[memory.address - begin : memory.address - begin + memory.nbytes] = known
        block = next((each for each in blocks if graph not in each.users and each.contents == contents), None)
        if block is None:
            blocks.append(block := _Block(bytes(contents), _copy(graph, contents, begin % _ALIGNMENT), []))
        block.users.append(graph)
        name = f"memory {number}"
        names[name] = NamedRange(name, members[0].number, begin, end, np.dtype(np.uint8), (end - begin,))
        buffers[name] = block.buffer
    moved = rebound(replace(graph, names=names), buffers)
    return replace(
        moved, memories={number: kept for number, kept in moved.memories.items() if number not in graph.memories}
    )


def _copy(graph: Graph, contents: bytearray, offset: int) -> Buffer:
    # Borrowed memory may begin at any address; keeping its offset keeps the alignment of what is in it.
    memory = allocate(graph.queue, len(contents) + offset, np.uint8)
    memory._allocation().backing.write(offset, np.frombuffer(contents, np.uint8))
    return memory.view(np.uint8, (len(contents),), offset)
