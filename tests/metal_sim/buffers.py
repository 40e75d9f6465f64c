"""Buffers and residency sets."""

from __future__ import annotations

import mmap
import weakref
from typing import Any

import numpy as np

from .objects import Description, Object
from .rules import require, unraised


class VarList:
    """What PyObjC gives for a pointer without a length."""

    def __init__(self, memory: np.ndarray) -> None:
        self._memory = memory

    def as_buffer(self, count: int) -> memoryview:
        assert count <= self._memory.nbytes
        return self._memory.data[:count]


_not_copied: weakref.WeakSet[Buffer] = weakref.WeakSet()


class Buffer(Object):
    """MTLBuffer in shared storage, whose hazards Metal tracks.

    Memory of a buffer that was freed while in flight is kept, so that the process lives to tell of it.
    """

    def __init__(self, memory: np.ndarray) -> None:
        super().__init__()
        self.memory = memory
        self.address = memory.ctypes.data
        self.in_flight = 0
        """Command buffers that do not retain it and are not done."""

    @classmethod
    def of_length(cls, nbytes: int) -> Buffer:
        page = mmap.PAGESIZE
        raw = np.empty(nbytes + page, np.uint8)
        start = -raw.ctypes.data % page
        return cls(raw[start : start + nbytes])

    @classmethod
    def over_memory(cls, memory: np.ndarray) -> Buffer:
        """One over memory of the host. Metal takes any; but it orders work by buffers, so two with bytes in common are
        a race that it does not see."""
        begin, end = memory.ctypes.data, memory.ctypes.data + memory.nbytes
        for other in _not_copied:
            require(end <= other.address or other.address + other.length() <= begin, "two buffers share memory")
        made = cls(memory)
        _not_copied.add(made)
        return made

    def length(self) -> int:
        return int(self.memory.nbytes)

    def contents(self) -> VarList:
        return VarList(self.memory)

    def __del__(self) -> None:
        if getattr(self, "in_flight", 0):
            unraised.append(f"buffer {self._label!r} was freed while a command buffer that does not retain it used it")


class ResidencySetDescriptor(Description):
    """MTLResidencySetDescriptor."""


class ResidencySet(Object):
    """MTLResidencySet: changes are staged, then committed."""

    def __init__(self) -> None:
        super().__init__()
        self.staged: list[Any] = []
        self.allocations: list[Any] = []
        self.commits = 0

    def addAllocation_(self, buffer: Buffer) -> None:
        require(isinstance(buffer, Buffer), "a residency set holds allocations")
        self.staged.append(buffer)

    def removeAllocation_(self, buffer: Buffer) -> None:
        require(not buffer.in_flight, "a buffer left the residency set while it was in flight")
        self.staged = [one for one in self.staged if one is not buffer]

    def commit(self) -> None:
        self.allocations = list(self.staged)
        self.commits += 1
