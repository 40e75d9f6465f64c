"""Saving what graphs write, and putting it back: for whoever replays a graph on the library's own account.

Exactly the bytes that may be written are saved. They are put back when the block ends, however it ends.
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
    """Addresses in one block of memory, and the block."""

    begin: int
    end: int
    backing: Backing

    def read(self) -> np.ndarray:
        """What is there now."""
        return self.backing.read(self.begin - self.backing.address, self.end - self.begin)

    def write(self, values: np.ndarray) -> None:
        """Put something there."""
        self.backing.write(self.begin - self.backing.address, values)


def pieces(graph: Graph, ranges: Sequence[Range]) -> list[Piece]:
    """Addresses of a graph's memory, in order; each address once, though blocks may overlap."""
    blocks = sorted(graph.memories.values(), key=lambda one: one.address)
    starts = [one.address for one in blocks]
    reaching: list[GraphMemory] = []  # of the blocks up to each, the one that ends last
    for one in blocks:
        last = reaching[-1] if reaching else one
        reaching.append(one if one.address + one.nbytes >= last.address + last.nbytes else last)
    found: list[Piece] = []
    for begin, end in merged(ranges):
        while begin < end:
            at = bisect_right(starts, begin) - 1
            block = reaching[at] if at >= 0 else None
            stop = begin if block is None else min(end, block.address + block.nbytes)
            if block is None or stop <= begin:
                raise GraphError(f"{end - begin} bytes at {begin:#x} are in no memory of the graph")
            if block.allocation is None:
                raise GraphError("this graph is on no device; graph.to(device) puts it on one")
            found.append(Piece(begin, stop, block.allocation.backing))
            begin = stop
    return found


def settle(graph: Graph) -> None:
    """Wait for committed work on a graph's memory; its error surfaces here unless somebody has seen it."""
    for memory in graph.memories.values():
        if memory.allocation is not None:
            memory.allocation.backing.settle()


def contents(windows: Sequence[Piece]) -> list[np.ndarray]:
    """A copy of what is there now."""
    return [one.read() for one in windows]


def put_back(windows: Sequence[Piece], saved: Sequence[np.ndarray]) -> None:
    """Write saved contents where they were."""
    for one, values in zip(windows, saved, strict=True):
        one.write(values)


def with_buffers(graph: Graph, params: Mapping[str, Any]) -> tuple[Graph, dict[str, Any]]:
    """The graph with the buffers among what a replay is given bound in it, and what is left to give."""
    buffers = {name: value for name, value in params.items() if isinstance(value, Buffer)}
    values = {name: value for name, value in params.items() if name not in buffers}
    unknown = [name for name in buffers if name not in graph.names]
    if unknown:
        raise GraphError(f"the graph has no buffer named {', '.join(map(repr, unknown))}")
    return rebound(graph, buffers) if buffers else graph, values


@contextmanager
def restored(*graphs: Graph) -> Iterator[None]:
    """Save what these graphs may write, and put it back when the block ends, also by an exception.

    Waits for committed work on their memory before either.
    """
    for graph in graphs:
        settle(graph)
    windows = [one for graph in graphs for one in pieces(graph, written(graph))]
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
    """Wait for all of them; the first error that nobody has seen yet."""
    failure: OstinatoError | None = None
    for graph in graphs:
        try:
            settle(graph)
        except OstinatoError as error:
            failure = failure or error
    return failure
