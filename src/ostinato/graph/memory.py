"""The memory of a graph: its blocks, the ranges of it that have names, and finding what lies at an address."""

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
    """What it held when the graph was saved, if that was saved too; only without an allocation."""


@dataclass(frozen=True, slots=True)
class NamedRange:
    """Bytes of a graph's memory that go by a name, and can be bound to another buffer at replay."""

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
    """Things that lie at addresses, and may overlap."""

    def __init__(self, ranges: Iterable[tuple[int, int, _T]]) -> None:
        self._ranges = sorted(ranges, key=itemgetter(0))
        self._begins = [begin for begin, _, _ in self._ranges]
        self._furthest = list(accumulate((end for _, end, _ in self._ranges), max))

    def holding(self, begin: int, end: int) -> _T | None:
        """One that holds all of these addresses: the last to begin, if there are several."""
        at = bisect_right(self._begins, begin) - 1
        while at >= 0 and self._furthest[at] >= end:
            if end <= self._ranges[at][1]:
                return self._ranges[at][2]
            at -= 1
        return None


def overlapping(memories: Iterable[GraphMemory]) -> list[tuple[int, int, list[GraphMemory]]]:
    """Blocks by the memory they share: begin and end of each stretch of addresses, ascending, and the blocks in it."""
    stretches: list[tuple[int, int, list[GraphMemory]]] = []
    for memory in sorted(memories, key=lambda one: one.address):
        end = memory.address + memory.nbytes
        if stretches and memory.address < stretches[-1][1]:
            begin, last, members = stretches[-1]
            stretches[-1] = (begin, max(last, end), [*members, memory])
        else:
            stretches.append((memory.address, end, [memory]))
    return stretches


def memory_contents(memory: GraphMemory, offset: int, nbytes: int) -> bytes | None:
    """Bytes of one block, after committed work on it is done; None when they are not known."""
    if memory.allocation is None:
        return None if memory.contents is None else memory.contents[offset : offset + nbytes]
    memory.allocation.backing.settle()
    return memory.allocation.backing.read(offset, nbytes).tobytes()
