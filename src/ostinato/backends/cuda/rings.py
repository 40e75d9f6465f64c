"""The replays of a graph that are under way: a ring of slots in memory that host and device see.

A graph begins with a kernel that takes the replay's number and values out of a slot, and ends with one that leaves
there when the replay began and ended, and says that it is done. So to start a replay is to fill a slot and to launch,
and its times are read without asking the driver. Slots are used in turn: both sides count the replays, the device in
the graph's own memory.

A slot is free again when the times in it have been taken. They are when the queue hears that the replay is done, or
when the ring is full.
"""

from __future__ import annotations

import ctypes
import struct
from typing import TYPE_CHECKING

from .memory import Pinned

if TYPE_CHECKING:
    from .runs import Stock

ARENA_BYTES = 64
"""What the device keeps of a graph, before the values (`Arena` of support.cu). The count of replays stands first."""

_MOST_SLOTS, _FEWEST_SLOTS = 256, 8
_ENOUGH_BYTES = 64 << 10
_LINE_BYTES = 64
_TIMES = struct.Struct("=2Q")


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
        ("zero", ctypes.c_uint32),
    )

    def slot(self, turn: int) -> Slot:
        """The slot of a replay."""
        return Slot.from_address(self.slots + (turn & self.mask) * self.stride)

    @property
    def is_full(self) -> bool:
        """Whether the next replay has no slot yet."""
        return bool((self.turn - self.settled) & 0xFFFFFFFF > self.mask)


class Ring:
    """The slots of one graph. Used by whoever holds the queue's lock."""

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
        self._saved: dict[int, tuple[int, int]] = {}

    @property
    def oldest(self) -> int:
        """The number of the replay whose slot is the next to become free."""
        return int(self.fields.slot(self.fields.settled).number)

    def take(self, turn: int) -> tuple[int, int]:
        """When a replay that is done began and ended, in device time; zeros if it did not. Asked once of each."""
        found = self._saved.pop(turn, None)
        if found is None:
            found = self._times(turn)
            if turn == self.fields.settled:
                self._settle_one()
        return found

    def make_room(self) -> None:
        """Take down the times of the oldest replay, which is done, before somebody asked."""
        turn = self.fields.settled
        self._saved[turn] = self._times(turn)
        self._settle_one()

    def settle(self) -> None:
        """The same for all of them."""
        while self.fields.settled != self.fields.turn:
            self.make_room()

    def _times(self, turn: int) -> tuple[int, int]:
        begin, end = _TIMES.unpack_from(self._bytes, (turn & self._mask) * self._stride + Slot.begin.offset)
        return begin, end

    def _settle_one(self) -> None:
        self.fields.settled = (self.fields.settled + 1) & 0xFFFFFFFF

    def release(self) -> None:
        """Nothing uses it any more."""
        self._stock.give_back(self._memory)
