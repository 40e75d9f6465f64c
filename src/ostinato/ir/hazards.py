"""The hazard engine: which commands must wait for which, and why.

An access is a half-open range of addresses, read or written. A device has one address space, so two buffers over the
same memory conflict, and a view conflicts only on its own bytes. Memory is cut into disjoint segments; each knows its
last writer and its readers since then. A read depends on the writers of the segments it touches (RAW), a write on the
readers since the last write (WAR), or on the writer where there were none (WAW). Segments split where an access begins
or ends inside one, so adjacent ranges do not conflict. A fence, and a command whose accesses are unknown, depends on
everything before it, and everything after depends on it.

An edge that is implied through one other predecessor is left out. This file is the reference implementation.
`native/hazards.cpp` does the same in native code, for lists that are ordered while a program waits. The tests compare
both with a byte-by-byte oracle.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .commands import Access, Barrier, Command, Copy, Fill


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why ``after`` must wait for ``before``: ``kind`` is "RAW", "WAR" or "WAW", on these addresses."""

    before: int
    after: int
    kind: str
    begin: int
    end: int


class _Segment:
    __slots__ = ("end", "readers", "writer")

    def __init__(self, end: int, writer: int | None, readers: list[int]) -> None:
        self.end = end
        self.writer = writer
        self.readers = readers


class HazardTracker:
    """Takes commands in order and returns what each must wait for."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._segments: dict[int, _Segment] = {}
        self._fence: int | None = None
        self._sinks: dict[int, None] = {}
        self._predecessors: dict[int, tuple[int, ...]] = {}

    def __len__(self) -> int:
        """How many ranges are tracked."""
        return len(self._begins)

    def reset(self) -> None:
        """Forget all commands."""
        self.__init__()  # type: ignore[misc]

    def add(self, node: int, accesses: Iterable[Access] | None) -> tuple[int, ...]:
        """Add the next command; returns the commands it must wait for, ascending.

        ``None`` means that its accesses are unknown.
        """
        if accesses is None:
            return self.fence(node)
        listed = list(accesses)
        for access in listed:
            # All cuts first: a later cut would split a segment that was already visited.
            for _ in self._touched(access.begin, access.end):
                pass
        waited_for: set[int] = set()
        reads: list[_Segment] = []
        writes: list[_Segment] = []
        for access in listed:
            for segment in self._touched(access.begin, access.end):
                (writes if access.write else reads).append(segment)
                if segment.writer is not None and not (access.write and segment.readers):
                    waited_for.add(segment.writer)
                if access.write:
                    waited_for.update(segment.readers)
        # A command does not wait for itself, so it is entered only after all segments were visited.
        for segment in writes:
            segment.writer, segment.readers = node, []
        for segment in reads:
            if segment.writer != node and (not segment.readers or segment.readers[-1] != node):
                segment.readers.append(node)
        if self._fence is not None and not any(other > self._fence for other in waited_for):
            waited_for = {self._fence}
        return self._keep(node, waited_for)

    def fence(self, node: int) -> tuple[int, ...]:
        """Add a barrier, or a command that may touch anything; returns the commands it must wait for."""
        predecessors = self._keep(node, set(self._sinks))
        self._begins.clear()
        self._segments.clear()
        self._fence = node
        return predecessors

    def _keep(self, node: int, waited_for: set[int]) -> tuple[int, ...]:
        implied = {other for before in waited_for for other in self._predecessors[before]}
        predecessors = tuple(sorted(waited_for - implied))
        self._predecessors[node] = predecessors
        for other in predecessors:
            self._sinks.pop(other, None)
        self._sinks[node] = None
        return predecessors

    def _touched(self, begin: int, end: int) -> Iterator[_Segment]:
        """The segments that make up a range, cut and created so that they cover it exactly."""
        if begin >= end:
            return
        if (exact := self._segments.get(begin)) is not None and exact.end == end:
            yield exact
            return
        self._cut(begin)
        self._cut(end)
        at = bisect_right(self._begins, begin - 1)
        position = begin
        while position < end:
            following = self._begins[at] if at < len(self._begins) else end
            if following > position:
                stop = min(following, end)
                self._begins.insert(at, position)
                self._segments[position] = _Segment(stop, None, [])
            segment = self._segments[position]
            yield segment
            position = segment.end
            at += 1

    def _cut(self, address: int) -> None:
        """Split the segment that has ``address`` inside it, if there is one."""
        at = bisect_right(self._begins, address) - 1
        if at < 0:
            return
        segment = self._segments[self._begins[at]]
        if self._begins[at] < address < segment.end:
            self._begins.insert(at + 1, address)
            self._segments[address] = _Segment(segment.end, segment.writer, list(segment.readers))
            segment.end = address


def accesses_of(command: Command) -> tuple[Access, ...] | None:
    """The memory that a command uses; None for a barrier, and when it is not known."""
    if isinstance(command, Barrier):
        return None
    if isinstance(command, Fill):
        return (command.target.access(True),)
    if isinstance(command, Copy):
        return (command.target.access(True), command.source.access(False))
    return command.accesses


def edges(commands: Sequence[Iterable[Access] | None]) -> list[tuple[int, int]]:
    """The dependency edges (before, after) of a list of commands; ``None`` is a fence or an unknown access."""
    tracker = HazardTracker()
    return [(before, after) for after, accesses in enumerate(commands) for before in tracker.add(after, accesses)]


def serial_edges(count: int) -> np.ndarray:
    """The edges of a list in which each command waits for the previous one."""
    nodes = np.arange(count)
    return np.stack([nodes[:-1], nodes[1:]], axis=1)


def barrier_edges(is_barrier: Sequence[bool]) -> np.ndarray:
    """The edges of a list that only barriers order: each waits for the commands before it, and those after it wait."""
    pairs: list[tuple[int, int]] = []
    first, barrier = 0, None
    for node, barrier_here in enumerate(is_barrier):
        if barrier_here:
            pairs += [(before, node) for before in range(first, node)]
            if barrier is not None and first == node:
                pairs.append((barrier, node))
            first, barrier = node + 1, node
        elif barrier is not None:
            pairs.append((barrier, node))
    return np.array(pairs, np.int64).reshape(-1, 2)


def conflicts(before: int, first: Iterable[Access], after: int, second: Iterable[Access]) -> list[Conflict]:
    """Every hazard that makes command `after` wait for command `before`, with the addresses it is on."""
    later_accesses = list(second)
    listed = []
    for earlier in first:
        for later in later_accesses:
            if (earlier.write or later.write) and earlier.overlaps(later):
                kind = ("WAW" if later.write else "RAW") if earlier.write else "WAR"
                begin, end = max(earlier.begin, later.begin), min(earlier.end, later.end)
                listed.append(Conflict(before, after, kind, begin, end))
    return listed
