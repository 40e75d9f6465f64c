"""The replays of a graph that are under way: a ring of slots in memory that host and device share.

A graph begins with a kernel that reads the replay's number and values from a slot, and ends with one that writes the
replay's start and end there and marks it as done. So starting a replay is filling a slot and launching, and its times
are read without calling the driver. Slots are used in turn: both sides count the replays, the device in the graph's own
memory.

A slot is free again when its times have been read: when the queue finishes the replay, or when the ring is full.
"""

from __future__ import annotations

import ctypes
import struct
from typing import TYPE_CHECKING

from .memory import Pinned

if TYPE_CHECKING:
    from .runs import Stock

ARENA_BYTES = 64
"""Size of the device's state of a graph, before the values (`Arena` of support.cu). The count of replays is first."""

_MOST_SLOTS, _FEWEST_SLOTS = 256, 8
_ENOUGH_BYTES = 64 << 10
_LINE_BYTES = 64
TIMES = struct.Struct("=2Q")
"""Start and end of a replay."""


class Slot(ctypes.Structure):
    """`Slot` of support.cu and launcher.cpp."""

    _fields_ = (
        ("turn", ctypes.c_uint32),
        ("number", ctypes.c_uint32),
        ("result", ctypes.c_uint64),
        ("begin", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
    )


SLOT_BYTES = ctypes.sizeof(Slot)


class RingFields(ctypes.Structure):
    """`Ring` of launcher.cpp."""

    _fields_ = (
        ("slots", ctypes.c_uint64),
        ("mask", ctypes.c_uint32),
        ("stride", ctypes.c_uint32),
        ("bytes", ctypes.c_uint32),
        ("turn", ctypes.c_uint32),
        ("settled", ctypes.c_uint32),
        ("uneven", ctypes.c_uint32),
    )

    def slot(self, turn: int) -> Slot:
        """The slot of a replay."""
        return Slot.from_address(self.slots + (turn & self.mask) * self.stride)

    @property
    def is_full(self) -> bool:
        """Whether there is no free slot for the next replay."""
        return bool((self.turn - self.settled) & 0xFFFFFFFF > self.mask)


class Ring:
    """The slots of one graph. Callers hold the queue's lock."""

    def __init__(self, stock: Stock, value_bytes: int) -> None:
        stride = -(-(SLOT_BYTES + value_bytes) // _LINE_BYTES) * _LINE_BYTES
        count = _MOST_SLOTS
        while count > _FEWEST_SLOTS and count * stride > _ENOUGH_BYTES:
            count //= 2
        self._stock = stock
        self._memory: Pinned = stock.take(count * stride)
        self.device = self._memory.device
        self.fields = RingFields(self._memory.host, count - 1, stride, value_bytes)
        self.address = ctypes.addressof(self.fields)
        self._bytes = memoryview((ctypes.c_char * (count * stride)).from_address(self._memory.host)).cast("B")
        self._mask, self._stride = count - 1, stride
        self._saved: dict[int, bytes] = {}

    @property
    def oldest(self) -> int:
        """The number of the replay whose slot becomes free next."""
        return int(self.fields.slot(self.fields.settled).number)

    def take(self, turn: int) -> bytes:
        """Start and end of a finished replay in device time, as `TIMES` packs them; zeros if it did not run.

        Call once per replay.
        """
        times = self._saved.pop(turn, None)
        if times is None:
            times = self._times(turn)
            if turn == self.fields.settled:
                self._settle_one()
        return times

    def make_room(self) -> None:
        """Save the times of the oldest replay, which is done, so that its slot becomes free."""
        turn = self.fields.settled
        self._saved[turn] = self._times(turn)
        self._settle_one()

    def settle(self) -> None:
        """Save the times of all replays, which are done, so that all slots become free."""
        while self.fields.settled != self.fields.turn:
            self.make_room()

    def _times(self, turn: int) -> bytes:
        at = (turn & self._mask) * self._stride + Slot.begin.offset
        return bytes(self._bytes[at : at + TIMES.size])

    def _settle_one(self) -> None:
        self.fields.settled = (self.fields.settled + 1) & 0xFFFFFFFF

    def release(self) -> None:
        """Return its memory; nothing uses it any more."""
        self._stock.give_back(self._memory)
