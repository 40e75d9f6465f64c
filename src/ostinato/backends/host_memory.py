"""What a backend does with memory that the host sees too."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from .protocol import Memory


class HostMemory:
    """The part of `Backend` that is the same wherever host and device share their memory."""

    def read(self, memory: Memory, offset: int, into: np.ndarray) -> None:
        """The host sees the memory."""
        ctypes.memmove(into.ctypes.data, memory.address + offset, into.nbytes)

    def write(self, memory: Memory, offset: int, values: np.ndarray) -> None:
        """As `read`."""
        ctypes.memmove(memory.address + offset, values.ctypes.data, values.nbytes)

    def clear(self, memory: Memory, offset: int, nbytes: int) -> None:
        """As `read`."""
        ctypes.memset(memory.address + offset, 0, nbytes)

    @property
    def stream(self) -> int | None:
        """There is none that other libraries would know."""
        return None

    def lend(self, stream: Any) -> object:
        """Nothing to do: whoever shares the memory has waited."""
        return None

    def borrow(self, stream: int) -> None:
        """There are no queues of others."""
