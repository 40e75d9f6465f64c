"""Blocks of memory between guard regions, which fault on any access.

Guard regions are as large as the address space allows, so that an index that is wrong by 2³² still hits one. They take
no memory: only addresses are reserved.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import OutOfMemory

# The first size that the system grants is used. An element of 16 bytes at index 2³²-1 is 64 GiB away.
_GUARD_BYTES = (160 << 30, 40 << 30, 8 << 30, 1 << 30, 64 << 20, 1 << 20)
# The rest of the process needs addresses too, of 128 TiB in total.
_MOST_BYTES = 16 << 40
_NO_ACCESS = 0
_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x40 if sys.platform == "darwin" else 0x4000)
_FAILED = ctypes.c_void_p(-1).value


def _system() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = (
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_longlong
    )  # fmt: skip
    library.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    library.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    return library


@dataclass(frozen=True, slots=True)
class Room:
    """A block to be allocated: its size, and its address modulo an alignment."""

    nbytes: int
    alignment: int = 1
    phase: int = 0


class Bytes:
    """Memory at an address, for NumPy; the holder of an array must keep the memory alive."""

    __slots__ = ("__array_interface__",)

    def __init__(self, address: int, nbytes: int) -> None:
        self.__array_interface__ = {"version": 3, "shape": (nbytes,), "typestr": "|u1", "data": (address, False)}


def bytes_at(address: int, nbytes: int) -> np.ndarray:
    """The bytes at an address, without a copy."""
    return np.asarray(Bytes(address, nbytes)) if nbytes else np.empty(0, np.uint8)


class Arena:
    """Blocks between guards, each against the guard behind it (`at_end`) or the guard before it."""

    _base = 0

    def __init__(self, rooms: Sequence[Room], at_end: bool) -> None:
        self._system = _system()
        page = mmap.PAGESIZE
        usable = [-(-(room.nbytes + room.alignment - 1) // page) * page if room.nbytes else 0 for room in rooms]
        for guard_bytes in _GUARD_BYTES:
            self._total = guard_bytes + sum(size + guard_bytes for size in usable)
            if self._total > _MOST_BYTES:
                continue
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
            base = self._system.mmap(None, self._total, _NO_ACCESS, flags, -1, 0)
            if base not in (None, _FAILED):
                break
        else:
            raise OutOfMemory(f"no address space for {sum(usable)} bytes between guard pages")
        self._base = base
        self.nowhere: int = base
        """An address that faults on any access."""
        self.rooms = tuple(rooms)
        self.addresses: list[int] = []
        """Where each block starts."""
        start = base + guard_bytes
        for room, size in zip(rooms, usable, strict=True):
            end = start + size
            if size and self._system.mprotect(start, size, mmap.PROT_READ | mmap.PROT_WRITE) != 0:
                self.close()
                raise OutOfMemory(f"no memory for {size} bytes between guard pages")
            if at_end:
                address = end - room.nbytes
                address -= (address - room.phase) % room.alignment
            else:
                address = start + (room.phase - start) % room.alignment
            self.addresses.append(address)
            start = end + guard_bytes

    def block(self, room: int) -> np.ndarray:
        """The bytes of a block; not to be used once the arena is closed."""
        return bytes_at(self.addresses[room], self.rooms[room].nbytes)

    def close(self) -> None:
        """Free the address space."""
        base, self._base = self._base, 0
        if base:
            self._system.munmap(base, self._total)

    def __enter__(self) -> Arena:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()
