"""Saving and restoring the memory that graphs write, for passes that replay a graph to measure or compare it.

Exactly the bytes that may be written are saved. They are restored when the block ends, also by an exception.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.ranges import Range, merged
from ..errors import GraphError, OstinatoError
from ..graph.graph import Graph
from ..graph.memory import GraphMemory
from ..graph.rebinding import rebound
from ..runtime.allocation import Backing
from ..runtime.buffer import Buffer
from .touched import written


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """A range of addresses in one block of memory."""

    begin: int
    end: int
    backing: Backing

    def read(self) -> np.ndarray:
        """A copy of the current contents."""
        return self.backing.read(self.begin - self.backing.address, self.end - self.begin)

    def write(self, values: np.ndarray) -> None:
        """Overwrite the contents."""
        self.backing.write(self.begin - self.backing.address, values)


def pieces(graph: Graph, ranges: Sequence[Range]) -> list[Piece]:
    """Address ranges of a graph, cut at its blocks of memory, in order; each address once, even if blocks overlap."""
    blocks = sorted(graph.memories.values(), key=lambda block: block.address)
    starts = [block.address for block in blocks]
    reaching: list[GraphMemory] = []  # for each block: of all blocks up to it, the one that ends last
    for memory in blocks:
        last = reaching[-1] if reaching else memory
        reaching.append(memory if memory.address + memory.nbytes >= last.address + last.nbytes else last)
    parts: list[Piece] = []
    for begin, end in merged(ranges):
        while begin < end:
            at = bisect_right(starts, begin) - 1
            block = reaching[at] if at >= 0 else None
            stop = begin if block is None else min(end, block.address + block.nbytes)
            if block is None or stop <= begin:
                raise GraphError(f"{end - begin} bytes at {begin:#x} are in no memory of the graph")
            if block.allocation is None:
                raise GraphError("this graph is on no device; call graph.to(device) first")
            parts.append(Piece(begin, stop, block.allocation.backing))
            begin = stop
    return parts


def settle(graph: Graph) -> None:
    """Wait for committed work on a graph's memory; raises its error unless that was raised before."""
    for memory in graph.memories.values():
        if memory.allocation is not None:
            memory.allocation.backing.settle()


def contents(windows: Sequence[Piece]) -> list[np.ndarray]:
    """Copies of the current contents."""
    return [piece.read() for piece in windows]


def put_back(windows: Sequence[Piece], saved: Sequence[np.ndarray]) -> None:
    """Write the saved contents back."""
    for piece, values in zip(windows, saved, strict=True):
        piece.write(values)


def with_buffers(graph: Graph, params: Mapping[str, Any]) -> tuple[Graph, dict[str, Any]]:
    """The graph with the buffers among `params` bound, and the remaining values for its replays."""
    buffers = {name: value for name, value in params.items() if isinstance(value, Buffer)}
    values = {name: value for name, value in params.items() if name not in buffers}
    unknown = [name for name in buffers if name not in graph.names]
    if unknown:
        raise GraphError(f"the graph has no buffer named {', '.join(map(repr, unknown))}")
    return rebound(graph, buffers) if buffers else graph, values


@contextmanager
def restored(*graphs: Graph) -> Iterator[None]:
    """Save the memory that these graphs may write, and restore it when the block ends, also by an exception.

    Waits for committed work on that memory before it saves and before it restores.
    """
    for graph in graphs:
        settle(graph)
    windows = [piece for graph in graphs for piece in pieces(graph, written(graph))]
    saved = contents(windows)
    try:
        yield
    except BaseException:
        _settle_all(graphs)
        put_back(windows, saved)
        raise
    failure = _settle_all(graphs)
    put_back(windows, saved)
    if failure is not None:
        raise failure


def _settle_all(graphs: Sequence[Graph]) -> OstinatoError | None:
    """Wait for all of them; returns the first error that was not raised before."""
    failure: OstinatoError | None = None
    for graph in graphs:
        try:
            settle(graph)
        except OstinatoError as error:
            failure = failure or error
    return failure
