"""The part of a backend that deals with memory shared with the host."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from .protocol import Memory


class HostMemory:
    """The methods of `Backend` that are the same for all devices that share memory with the host."""

    def read(self, memory: Memory, offset: int, into: np.ndarray) -> None:
        """Copy memory into a flat array of bytes."""
        ctypes.memmove(into.ctypes.data, memory.address + offset, into.nbytes)

    def write(self, memory: Memory, offset: int, values: np.ndarray) -> None:
        """Copy a flat array of bytes into memory."""
        ctypes.memmove(memory.address + offset, values.ctypes.data, values.nbytes)

    def clear(self, memory: Memory, offset: int, nbytes: int) -> None:
        """Set bytes of memory to zero."""
        ctypes.memset(memory.address + offset, 0, nbytes)

    def expose(self, memory: Memory, offset: int, nbytes: int) -> None:
        """Nothing to do: the device does not follow what is written."""

    @property
    def stream(self) -> int | None:
        """None: there is no stream for other libraries to wait for."""
        return None

    def lend(self, stream: Any) -> object:
        """Nothing to do: a buffer waits for its work before it is shared."""
        return None

    def borrow(self, stream: int) -> None:
        """Nothing to do: other libraries have no queue on this device."""
