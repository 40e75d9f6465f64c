"""Buffers of counter samples: few, and lent out in small parts.

Metal gives a process 32 of them at a time, of 4,096 samples each, and submissions that were not read off yet can be
many more. So a few large ones serve all, a submission borrows as many parts as it needs, and what finds no room is not
sampled: work never waits or fails for it.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import numpy as np

from ...base.locks import ForkLock
from .api import Framework, words

MOST_BUFFERS = 8
MOST_SAMPLES = 4096
"""Of one buffer: 32 KiB."""
PART = 64
"""Samples of a part; each is resolved by one call."""

_ERROR = np.uint64(2**64 - 1)


class Part(NamedTuple):
    """Some samples of a buffer."""

    buffer: Any
    first: int
    seen: np.ndarray
    """What was read off last: what reads the same again was not written since."""


class SampleBuffers:
    """Those of one device; made when they are needed."""

    def __init__(self, framework: Framework, device: Any) -> None:
        self._metal = framework.metal
        self._device = device
        self._lock = ForkLock()
        self._made = 0
        # Taken from and given back to without a lock, also by finalisers.
        self._free: deque[Part] = deque()
        self.counters = self._timestamps()
        """The set of counters that holds the time; None where the device has none."""
        self.refused = ""
        """What Metal said when it would not make one."""

    def _timestamps(self) -> Any:
        for one in self._device.counterSets() or ():
            if str(one.name()) == str(self._metal.MTLCommonCounterSetTimestamp):
                return one
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
        """Parts whose samples were read off, or are not wanted."""
        self._free.extend(parts)

    def _add(self) -> bool:
        """One more buffer; says whether it is worth looking for a part again."""
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
                self.refused = words(error)
                return False
            self._made += 1
            firsts = range(MOST_SAMPLES - PART, -1, -PART)
            self._free.extend(Part(made, first, np.zeros(PART, np.uint64)) for first in firsts)
            return True


class Taken:
    """The samples of one command buffer: a pair for each of some groups, in part after part."""

    __slots__ = ("_buffers", "_parts")

    def __init__(self, buffers: SampleBuffers) -> None:
        self._buffers = buffers
        self._parts: list[tuple[Part, list[list[int]]]] = []

    def place(self, nodes: list[int]) -> tuple[Any, int] | None:
        """Where the pair of a group goes, buffer and index; None when there is no room, and so no sample."""
        if not self._parts or 2 * len(self._parts[-1][1]) >= PART:
            part = self._buffers.take()
            if part is None:
                return None
            self._parts.append((part, []))
        part, groups = self._parts[-1]
        groups.append(nodes)
        return part.buffer, part.first + 2 * (len(groups) - 1)

    def resolve(self, count: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Start and end of every node in ticks, of shape (count, 2), zeros for what has none; and which are bounds."""
        found = np.zeros((count, 2), np.uint64)
        shared: list[int] = []
        for part, groups in self._parts:
            data = part.buffer.resolveCounterRange_((part.first, 2 * len(groups)))
            if data is None:
                continue
            told = np.frombuffer(bytes(data), np.uint64)[: 2 * len(groups)]
            wrong = (told == part.seen[: told.size]) | (told == _ERROR) | (told == 0)
            part.seen[: told.size] = told
            ticks = told.reshape(-1, 2).copy()
            ticks[wrong.reshape(-1, 2).any(axis=1) | (ticks[:, 1] < ticks[:, 0])] = 0
            for nodes, pair in zip(groups, ticks, strict=False):
                found[nodes] = pair
                if len(nodes) > 1:
                    shared += nodes
        self._let_go()
        bounded = np.zeros(count, bool)
        bounded[shared] = True
        return found, bounded if shared else None

    def _let_go(self) -> None:
        parts, self._parts = self._parts, []
        self._buffers.give_back([part for part, _ in parts])

    def __del__(self) -> None:
        # Of a submission that never started, or that nobody asked for its times.
        self._let_go()
