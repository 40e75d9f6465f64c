"""Comparing what two runs left in memory: bit for bit, or to a tolerance where the bytes are floating-point numbers.

What a byte is, is read off the argument of the last dispatch that wrote it, or that used it where only copies wrote it.
Where there are several graphs over the same memory, the first knows best.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.ranges import Range
from ..errors import ArgumentError
from ..graph.graph import Graph
from ..ir.commands import BufferBinding, Dispatch

Tolerance = float | Mapping[str, float]

_FLOATS = frozenset({"float32", "float16", "bfloat16"})
_MOST_SHOWN = 16


@dataclass(frozen=True, slots=True)
class Difference:
    """Bytes of one buffer that differ."""

    buffer: str
    """The buffer's name, or "memory N"."""
    begin: int
    """First byte that differs, counted from the start of the buffer."""
    end: int
    """The one after the last."""
    count: int
    """How many bytes between them differ."""
    dtype: str | None
    """The type of the numbers there, where it is known."""
    expected: float | int | None
    """The first number that differs, as the original left it."""
    found: float | int | None

    def __str__(self) -> str:
        where = f"{self.buffer}[{self.begin}:{self.end}]"
        what = "" if self.dtype is None else f"; first {self.dtype} {self.found!r}, expected {self.expected!r}"
        return f"{where}: {self.count} bytes differ{what}"


class Region:
    """Some addresses, laid out one after the other in one array of bytes."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        self.ranges = list(ranges)
        lengths = np.array([end - begin for begin, end in ranges], np.int64)
        self._begins = np.array([begin for begin, _ in ranges], np.int64)
        self._offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes in all."""
        return int(self._offsets[-1])

    def addresses(self, offsets: np.ndarray) -> np.ndarray:
        """The addresses of places in the array."""
        at = np.searchsorted(self._offsets, offsets, side="right") - 1
        return np.asarray(offsets - self._offsets[at] + self._begins[at])

    def offsets(self, addresses: np.ndarray) -> np.ndarray:
        """The places of addresses in the array."""
        at = np.searchsorted(self._begins, addresses, side="right") - 1
        return np.asarray(addresses - self._begins[at] + self._offsets[at])

    def hold(self, addresses: np.ndarray, nbytes: int) -> np.ndarray:
        """For each address, whether that many bytes from there on are all in it, side by side."""
        at = self.part_of(addresses)
        return np.asarray((at >= 0) & (addresses + nbytes <= self._begins[at] + np.diff(self._offsets)[at]))

    def part_of(self, addresses: np.ndarray) -> np.ndarray:
        """For each address, which of the ranges it is in."""
        return np.asarray(np.searchsorted(self._begins, addresses, side="right") - 1)


def checked_tolerance(tolerance: Any) -> Tolerance:
    """A number, or one for each dtype."""
    given = tolerance if isinstance(tolerance, Mapping) else {"": tolerance}
    for name, value in given.items():
        if isinstance(tolerance, Mapping) and name not in _FLOATS:
            raise ArgumentError(f"verify: tolerance is for {', '.join(sorted(_FLOATS))}, not {name!r}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise ArgumentError(f"verify: a tolerance is a number that is not negative, not {value!r}")
    return dict(tolerance) if isinstance(tolerance, Mapping) else float(tolerance)


def mismatches(
    graphs: Sequence[Graph],
    region: Region,
    expected: np.ndarray,
    found: np.ndarray,
    tolerance: Tolerance,
    within: Sequence[Range] | None = None,
) -> np.ndarray:
    """The addresses, ascending, of bytes that differ by more than the tolerance; only those within some, if given."""
    addresses = region.addresses(np.flatnonzero(expected != found))
    if within is not None:
        addresses = addresses[_inside(addresses, within)]
    if not tolerance or not len(addresses):
        return addresses
    open_ = np.ones(len(addresses), bool)  # not yet known what they are
    wrong = np.zeros(len(addresses), bool)
    for binding, dtype in _typed(graphs):
        first, last = np.searchsorted(addresses, (binding.address, binding.address + binding.nbytes))
        here = np.flatnonzero(open_[first:last]) + first
        if not len(here):
            continue
        open_[here] = False
        if dtype.name not in _FLOATS:
            wrong[here] = True
            continue
        elements = (addresses[here] - binding.address) // dtype.itemsize
        kept = elements < binding.nbytes // dtype.itemsize
        kept &= region.hold(binding.address + elements * dtype.itemsize, dtype.itemsize)
        wrong[here[~kept]] = True
        here, elements = here[kept], elements[kept]
        starts = region.offsets(binding.address + elements * dtype.itemsize)
        places = starts[:, None] + np.arange(dtype.itemsize)
        one, other = (values[places].view(dtype)[:, 0].astype(np.float64) for values in (expected, found))
        allowed = tolerance.get(dtype.name, 0.0) if isinstance(tolerance, Mapping) else tolerance
        with np.errstate(invalid="ignore"):
            near = np.abs(one - other) <= allowed + allowed * np.abs(one)
        wrong[here] = ~(near | (one == other) | (np.isnan(one) & np.isnan(other)))
        if not open_.any():
            break
    return addresses[wrong | open_]


def differences(
    graphs: Sequence[Graph], region: Region, expected: np.ndarray, found: np.ndarray, addresses: np.ndarray
) -> tuple[Difference, ...]:
    """Mismatches as a person wants to see them: a line for each stretch of memory, the first few of them."""
    told: list[Difference] = []
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
                numbers = (one[start : start + dtype.itemsize].view(dtype)[0] for one in (expected, found))
                values = [one.item() if dtype.name != "bfloat16" else float(one) for one in numbers]
                name = dtype.name
                break
        told.append(Difference(buffer, begin, end, len(wrong), name, *values))
    return tuple(told)


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
