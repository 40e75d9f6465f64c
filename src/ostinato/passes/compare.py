"""Comparing what two runs left in memory: bit for bit, or to a tolerance where the bytes are floating-point numbers.

The type of a byte comes from the argument of the last dispatch that wrote it, or read it where only copies wrote it.
If several graphs use the same memory, the first that knows the type decides.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.ranges import Range
from ..base.tolerances import FLOATS, Tolerance, allowed_for, near
from ..graph.graph import Graph
from ..ir.commands import BufferBinding, Dispatch

_MOST_SHOWN = 16


@dataclass(frozen=True, slots=True)
class Difference:
    """Bytes of one buffer that differ."""

    buffer: str
    """The buffer's name, or "memory N"."""
    begin: int
    """First byte that differs, counted from the start of the buffer."""
    end: int
    """Byte after the last that differs."""
    count: int
    """How many bytes in [begin, end) differ."""
    dtype: str | None
    """The element type, where it is known."""
    expected: float | int | None
    """The first number that differs, as the original graph left it."""
    found: float | int | None
    """The same number, as the other graph left it."""

    @property
    def numbers(self) -> tuple[str, str]:
        """The first number that differs and the expected one, as text; empty where the element type is not known."""
        return ("", "") if self.dtype is None else (f"{self.dtype} {self.found!r}", repr(self.expected))

    def __str__(self) -> str:
        where = f"{self.buffer}[{self.begin}:{self.end}]"
        first, expected = self.numbers
        return f"{where}: {self.count} bytes differ" + (f"; first {first}, expected {expected}" if first else "")


class Region:
    """Address ranges, concatenated into one array of bytes."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        self.ranges = list(ranges)
        lengths = np.array([end - begin for begin, end in ranges], np.int64)
        self._begins = np.array([begin for begin, _ in ranges], np.int64)
        self._offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)

    @property
    def nbytes(self) -> int:
        """Total size in bytes."""
        return int(self._offsets[-1])

    def addresses(self, offsets: np.ndarray) -> np.ndarray:
        """The addresses of offsets in the array."""
        at = np.searchsorted(self._offsets, offsets, side="right") - 1
        return np.asarray(offsets - self._offsets[at] + self._begins[at])

    def offsets(self, addresses: np.ndarray) -> np.ndarray:
        """The offsets of addresses in the array."""
        at = np.searchsorted(self._begins, addresses, side="right") - 1
        return np.asarray(addresses - self._begins[at] + self._offsets[at])

    def hold(self, addresses: np.ndarray, nbytes: int) -> np.ndarray:
        """For each address, whether that many bytes from it on lie in one range."""
        at = self.part_of(addresses)
        return np.asarray((at >= 0) & (addresses + nbytes <= self._begins[at] + np.diff(self._offsets)[at]))

    def part_of(self, addresses: np.ndarray) -> np.ndarray:
        """For each address, which of the ranges it is in."""
        return np.asarray(np.searchsorted(self._begins, addresses, side="right") - 1)


def mismatches(
    graphs: Sequence[Graph],
    region: Region,
    expected: np.ndarray,
    actual: np.ndarray,
    tolerance: Tolerance,
    within: Sequence[Range] | None = None,
) -> np.ndarray:
    """The ascending addresses of bytes that differ by more than the tolerance; only those `within` ranges, if given."""
    addresses = region.addresses(np.flatnonzero(expected != actual))
    if within is not None:
        addresses = addresses[_inside(addresses, within)]
    if not tolerance or not len(addresses):
        return addresses
    open_ = np.ones(len(addresses), bool)  # type not yet known
    wrong = np.zeros(len(addresses), bool)
    for binding, dtype in _typed(graphs):
        first, last = np.searchsorted(addresses, (binding.address, binding.address + binding.nbytes))
        here = np.flatnonzero(open_[first:last]) + first
        if not len(here):
            continue
        open_[here] = False
        if dtype.name not in FLOATS:
            wrong[here] = True
            continue
        elements = (addresses[here] - binding.address) // dtype.itemsize
        kept = elements < binding.nbytes // dtype.itemsize
        kept &= region.hold(binding.address + elements * dtype.itemsize, dtype.itemsize)
        wrong[here[~kept]] = True
        here, elements = here[kept], elements[kept]
        starts = region.offsets(binding.address + elements * dtype.itemsize)
        places = starts[:, None] + np.arange(dtype.itemsize)
        left, right = (values[places].view(dtype)[:, 0] for values in (expected, actual))
        wrong[here] = ~near(left, right, allowed_for(tolerance, dtype))
        if not open_.any():
            break
    return addresses[wrong | open_]


def differences(
    graphs: Sequence[Graph], region: Region, expected: np.ndarray, actual: np.ndarray, addresses: np.ndarray
) -> tuple[Difference, ...]:
    """Mismatches to show: one per stretch of memory, the first few of them."""
    shown: list[Difference] = []
    if not len(addresses):
        return ()
    parts = region.part_of(addresses)
    for part in np.unique(parts)[:_MOST_SHOWN]:
        wrong = addresses[parts == part]
        first, last = int(wrong[0]), int(wrong[-1]) + 1
        buffer, begin, end = graphs[0].place_of(first, last)
        values: list[float | int | None] = [None, None]
        name: str | None = None
        for binding, dtype in _typed(graphs):
            element = (first - binding.address) // dtype.itemsize
            place = np.array([binding.address + element * dtype.itemsize])
            if 0 <= element < binding.nbytes // dtype.itemsize and region.hold(place, dtype.itemsize)[0]:
                start = int(region.offsets(place)[0])
                numbers = (memory[start : start + dtype.itemsize].view(dtype)[0] for memory in (expected, actual))
                values = [number.item() if dtype.name != "bfloat16" else float(number) for number in numbers]
                name = dtype.name
                break
        shown.append(Difference(buffer, begin, end, len(wrong), name, *values))
    return tuple(shown)


def _typed(graphs: Sequence[Graph]) -> Iterator[tuple[BufferBinding, np.dtype[Any]]]:
    """Bindings with a known element type: those that are written, the last first; then those that are read."""
    for writes in (True, False):
        for node in itertools.chain.from_iterable(reversed(graph.nodes) for graph in graphs):
            if not isinstance(node.command, Dispatch):
                continue
            for argument, binding in zip(node.command.kernel.signature.arguments, node.command.bindings, strict=True):
                if isinstance(binding, BufferBinding) and binding.writes is writes and argument.scalar is not None:
                    yield binding, np.dtype(argument.scalar)


def _inside(addresses: np.ndarray, ranges: Sequence[Range]) -> np.ndarray:
    if not ranges:
        return np.zeros(len(addresses), bool)
    begins = np.array([begin for begin, _ in ranges], np.int64)
    ends = np.array([end for _, end in ranges], np.int64)
    at = np.searchsorted(begins, addresses, side="right") - 1
    return np.asarray((at >= 0) & (addresses < ends[np.maximum(at, 0)]))
