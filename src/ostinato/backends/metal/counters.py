"""Counter sample buffers: a few large ones, shared out in small parts.

Metal allows a process 32 of them at a time, of 4,096 samples each, and there can be many more submissions whose samples
are not read yet. So all submissions share a few large buffers and take as many parts as they need. Without a free part
a group is not sampled: work never waits or fails for it.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import numpy as np

from ...base.locks import ForkLock
from .api import Framework, error_text

MOST_BUFFERS = 8
MOST_SAMPLES = 4096
"""Samples per buffer: 32 KiB."""
PART = 64
"""Samples per part; one call resolves a part."""

_ERROR = np.uint64(2**64 - 1)


class Part(NamedTuple):
    """Some samples of a buffer."""

    buffer: Any
    first: int
    seen: np.ndarray
    """The values read last time: a sample that still has the same value was not written."""


class SampleBuffers:
    """The sample buffers of one device, created on demand."""

    def __init__(self, framework: Framework, device: Any) -> None:
        self._metal = framework.metal
        self._device = device
        self._lock = ForkLock()
        self._made = 0
        # Used without a lock, also by finalisers.
        self._free: deque[Part] = deque()
        self.counters = self._timestamps()
        """The set of counters that holds the time; None where the device has none."""
        self.refused = ""
        """Metal's error when it refused to create a buffer."""

    def _timestamps(self) -> Any:
        for counters in self._device.counterSets() or ():
            if str(counters.name()) == str(self._metal.MTLCommonCounterSetTimestamp):
                return counters
        return None

    def take(self) -> Part | None:
        """A part for `PART` samples; None when there is no room."""
        while True:
            try:
                return self._free.pop()
            except IndexError:
                if not self._add():
                    return None

    def give_back(self, parts: list[Part]) -> None:
        """Return parts whose samples were read or are not needed."""
        self._free.extend(parts)

    def _add(self) -> bool:
        """Add a buffer; returns whether there may be a free part now."""
        with self._lock:
            if self._free:
                return True
            if self._made >= MOST_BUFFERS or self.refused:
                return False
            description = self._metal.MTLCounterSampleBufferDescriptor.alloc().init()
            description.setCounterSet_(self.counters)
            description.setStorageMode_(self._metal.MTLStorageModeShared)
            description.setSampleCount_(MOST_SAMPLES)
            description.setLabel_("ostinato samples")
            made, error = self._device.newCounterSampleBufferWithDescriptor_error_(description, None)
            if made is None:
                self.refused = error_text(error)
                return False
            self._made += 1
            firsts = range(MOST_SAMPLES - PART, -1, -PART)
            self._free.extend(Part(made, first, np.zeros(PART, np.uint64)) for first in firsts)
            return True


class Taken:
    """The samples of one command buffer: a pair for each sampled group, in one part after another."""

    __slots__ = ("_buffers", "_parts")

    def __init__(self, buffers: SampleBuffers) -> None:
        self._buffers = buffers
        self._parts: list[tuple[Part, list[list[int]]]] = []

    def place(self, nodes: list[int]) -> tuple[Any, int] | None:
        """Buffer and index for the pair of a group; None when there is no free part, so no sample is taken."""
        if not self._parts or 2 * len(self._parts[-1][1]) >= PART:
            part = self._buffers.take()
            if part is None:
                return None
            self._parts.append((part, []))
        part, groups = self._parts[-1]
        groups.append(nodes)
        return part.buffer, part.first + 2 * (len(groups) - 1)

    def resolve(self, count: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Start and end of every node in ticks, of shape (count, 2), zeros without a sample; and which are bounds."""
        times = np.zeros((count, 2), np.uint64)
        shared: list[int] = []
        for part, groups in self._parts:
            data = part.buffer.resolveCounterRange_((part.first, 2 * len(groups)))
            if data is None:
                continue
            read = np.frombuffer(bytes(data), np.uint64)[: 2 * len(groups)]
            wrong = (read == part.seen[: read.size]) | (read == _ERROR) | (read == 0)
            part.seen[: read.size] = read
            ticks = read.reshape(-1, 2).copy()
            ticks[wrong.reshape(-1, 2).any(axis=1) | (ticks[:, 1] < ticks[:, 0])] = 0
            for nodes, pair in zip(groups, ticks, strict=False):
                times[nodes] = pair
                if len(nodes) > 1:
                    shared += nodes
        self._let_go()
        bounded = np.zeros(count, bool)
        bounded[shared] = True
        return times, bounded if shared else None

    def _let_go(self) -> None:
        parts, self._parts = self._parts, []
        self._buffers.give_back([part for part, _ in parts])

    def __del__(self) -> None:
        # For a submission that never started, or whose times were never read.
        self._let_go()
