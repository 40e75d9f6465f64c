"""The memory of a graph: its blocks, its named ranges, and a lookup by address."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter
from typing import Any, Generic, TypeVar

import numpy as np

from ..runtime.allocation import Allocation

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, eq=False)
class GraphMemory:
    """One block of memory that a graph uses."""

    number: int
    address: int
    nbytes: int
    allocation: Allocation | None
    """What keeps it alive; None when the graph is on no device."""
    contents: bytes | None = None
    """Its contents from a graph file, if they were saved; only without an allocation."""


@dataclass(frozen=True, slots=True)
class NamedRange:
    """A named range of a graph's memory, for which a replay can bind another buffer."""

    name: str
    memory: int
    """Number of the memory."""
    begin: int
    """First address."""
    end: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes in the range."""
        return self.end - self.begin


class RangeIndex(Generic[_T]):
    """Items by the address range they cover; ranges may overlap."""

    def __init__(self, ranges: Iterable[tuple[int, int, _T]]) -> None:
        self._ranges = sorted(ranges, key=itemgetter(0))
        self._begins = [begin for begin, _, _ in self._ranges]
        self._furthest = list(accumulate((end for _, end, _ in self._ranges), max))

    def holding(self, begin: int, end: int) -> _T | None:
        """The item that holds all of these addresses, of several the one that begins last; None if none does."""
        at = bisect_right(self._begins, begin) - 1
        while at >= 0 and self._furthest[at] >= end:
            if end <= self._ranges[at][1]:
                return self._ranges[at][2]
            at -= 1
        return None


def overlapping(memories: Iterable[GraphMemory]) -> list[tuple[int, int, list[GraphMemory]]]:
    """Blocks grouped by overlap: begin, end and blocks of each contiguous stretch of addresses, ascending."""
    stretches: list[tuple[int, int, list[GraphMemory]]] = []
    for memory in sorted(memories, key=lambda memory: memory.address):
        end = memory.address + memory.nbytes
        if stretches and memory.address < stretches[-1][1]:
            begin, last, members = stretches[-1]
            stretches[-1] = (begin, max(last, end), [*members, memory])
        else:
            stretches.append((memory.address, end, [memory]))
    return stretches


def memory_contents(memory: GraphMemory, offset: int, nbytes: int) -> bytes | None:
    """Bytes of a block, after waiting for committed work that uses it; None when they are not known."""
    if memory.allocation is None:
        return None if memory.contents is None else memory.contents[offset : offset + nbytes]
    memory.allocation.backing.settle()
    return memory.allocation.backing.read(offset, nbytes).tobytes()
