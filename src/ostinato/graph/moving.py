"""Other buffers for named ones by changing addresses, where nothing else changes.

Where the new buffers meet no other memory of the graph, every dispatch waits for the same dispatches as before: what
overlapped still does, and nothing else. Then only addresses in the native form change, and a `Mover` says which. It
looks at a graph once for each set of names; binding costs a few microseconds, and what the backend takes. In all other
cases it says None: then the graph is made anew, with all checks (rebinding.py).

Binding mostly comes after a wait, when little of the program is in the caches. So a few places take few steps of the
interpreter, and none of NumPy's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ..base.ranges import Range, merged, overlap
from ..ir.commands import BufferBinding, Dispatch
from ..runtime.buffer import Buffer
from .graph import Graph

_FEW = 8
"""So many addresses at most are a list."""


class Mover:
    """The places in a graph's commands where the addresses of some named buffers stand."""

    __slots__ = (
        "_alignments",
        "_begins",
        "_deltas",
        "_ends",
        "_few",
        "_known",
        "_name_of",
        "_names",
        "_possible",
        "nodes",
        "positions",
    )

    def __init__(self, graph: Graph, names: Sequence[str]) -> None:
        self._known = [graph.names[name] for name in names]
        self._names = tuple(names)
        ranges = [(known.begin, known.end) for known in self._known]
        places: list[tuple[int, int, int, int]] = []
        alignments: set[tuple[int, int, int]] = set()
        others: list[Range] = list(graph.dropped)
        self._possible = True
        for index, node in enumerate(graph.nodes):
            command = node.command
            accesses = node.accesses or ()
            for used in [
                *((binding.address, binding.address + binding.nbytes) for binding in node.buffers),
                *((access.begin, access.end) for access in accesses),
            ]:
                at = _holder(used, ranges)
                if at is None:
                    others.append(used)
                elif not isinstance(command, Dispatch):
                    self._possible = False  # copies and fills are encoded by their addresses
            if not isinstance(command, Dispatch):
                continue
            for position, binding in enumerate(command.bindings):
                if not isinstance(binding, BufferBinding):
                    continue
                at = _holder((binding.address, binding.address + binding.nbytes), ranges)
                if at is None:
                    continue
                delta = binding.address - ranges[at][0]
                places.append((index, position, at, delta))
                alignment = command.kernel.argument_alignments[position]
                if alignment:
                    alignments.add((at, alignment, delta % alignment))
        taken = merged(others)
        # A range that other memory overlaps partly cannot be taken out of it; two names may not share bytes either.
        self._possible &= not any(_meets(taken, *each) for each in ranges)
        self._possible &= not any(overlap(a, b) for at, a in enumerate(ranges) for b in ranges[:at])
        self._begins = [begin for begin, _ in taken]
        self._ends = [end for _, end in taken]
        self._alignments = tuple(alignments)
        table = np.array(places, np.int64).reshape(-1, 4)
        self.nodes = np.ascontiguousarray(table[:, 0])
        """Indices of the nodes, ascending; one for each place."""
        self.positions = np.ascontiguousarray(table[:, 1])
        """Positions among the bindings of the node."""
        self._name_of, self._deltas = np.ascontiguousarray(table[:, 2]), table[:, 3].astype(np.uint64)
        self._few = None if len(places) > _FEW else [(at, delta) for _, _, at, delta in places]

    def addresses(self, buffers: Mapping[str, Buffer]) -> list[int] | np.ndarray | None:
        """The new address of each place; None where more than addresses would change, or has to be checked."""
        if not self._possible:
            return None
        begins: list[int] = []
        spans: list[Range] = []
        for name, known in zip(self._names, self._known, strict=True):
            buffer = buffers[name]
            if buffer.dtype is not known.dtype and buffer.dtype != known.dtype:
                return None
            begin = buffer._allocation().backing.address + buffer._offset
            end = begin + known.nbytes
            at = bisect_right(self._begins, begin)
            if (at > 0 and self._ends[at - 1] > begin) or (at < len(self._begins) and self._begins[at] < end):
                return None
            if spans and any(overlap((begin, end), other) for other in spans):
                return None
            begins.append(begin)
            spans.append((begin, end))
        for at, alignment, delta in self._alignments:
            if (begins[at] + delta) % alignment:
                return None
        if self._few is not None:
            return [begins[at] + delta for at, delta in self._few]
        moved: np.ndarray = np.array(begins, np.uint64)[self._name_of] + self._deltas
        return moved


def _holder(used: Range, ranges: Sequence[Range]) -> int | None:
    """The first of these ranges that holds all of another."""
    return next((at for at, (begin, end) in enumerate(ranges) if begin <= used[0] and used[1] <= end), None)


def _meets(taken: Iterable[Range], begin: int, end: int) -> bool:
    return any(overlap((begin, end), each) for each in taken)
