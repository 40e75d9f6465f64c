"""Buffers in shared storage: host and device see the same bytes, so reading needs no copy.

Blocks are identified by the number of their `Memory`. The residency set (macOS 15 and newer) is attached to the queue.
A block is removed from it only when the work that was in flight at that time is done.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from threading import Event
from typing import Any, NamedTuple

import numpy as np

from ...errors import OutOfMemory
from ..protocol import Memory
from .api import Framework, checked


class Block(NamedTuple):
    """The buffer that holds a memory."""

    buffer: Any
    start: int
    """Byte of the buffer that it begins at."""


class _Owner:
    """The owner of a `Memory`; its block is dropped with it."""

    __slots__ = ("__weakref__", "_blocks", "_kept", "_number")

    def __init__(self, blocks: dict[int, Block], kept: object) -> None:
        self._blocks = blocks
        self._kept = kept
        self._number = 0

    def own(self, number: int, block: Block) -> None:
        self._number = number
        self._blocks[number] = block

    def __del__(self) -> None:
        self._blocks.pop(self._number, None)


class Blocks:
    """The memory of one device."""

    def __init__(self, framework: Framework, device: Any) -> None:
        self._metal = framework.metal
        self._name = framework.name
        self._device = device
        self._by_number: dict[int, Block] = {}

    def __getitem__(self, number: int) -> Block:
        return self._by_number[number]

    def buffer(self, nbytes: int, label: str) -> Any:
        """A device buffer that is not registered as a block."""
        nbytes = max(nbytes, 1)
        most = self._device.maxBufferLength()
        buffer = None
        if nbytes <= most:
            buffer = self._device.newBufferWithLength_options_(nbytes, self._metal.MTLResourceStorageModeShared)
        if buffer is None:
            raise OutOfMemory(f"{self._name}: no memory for {nbytes} bytes; one buffer has at most {most}")
        buffer.setLabel_(label)
        return buffer

    def allocate(self, nbytes: int) -> Memory:
        """A new block; an empty one still has an address."""
        owner = _Owner(self._by_number, None)
        buffer = self.buffer(nbytes, "")
        memory = Memory(host_address(buffer), nbytes, owner)
        owner.own(memory.number, Block(buffer, 0))
        buffer.setLabel_(f"ostinato {memory.number} ({nbytes} bytes)")
        return memory

    def write(self, memory: Memory, values: bytes) -> None:
        """Write bytes to the beginning of a memory."""
        ctypes.memmove(memory.address, values, len(values))

    def adopt(self, array: np.ndarray) -> Memory | None:
        """Memory over the array's own bytes, if they lie in a block already or begin a page; else None."""
        address = array.ctypes.data
        owner = _Owner(self._by_number, array)
        page = mmap.PAGESIZE
        shares = False
        for block in list(self._by_number.values()):
            begin = host_address(block.buffer)
            end = begin + block.buffer.length()
            if begin <= address and address + array.nbytes <= end:
                memory = Memory(address, array.nbytes, owner)
                owner.own(memory.number, Block(block.buffer, address - begin))
                return memory
            shares = shares or (address < end and begin < address + -(-array.nbytes // page) * page)
        # Metal orders work by buffer: it would not see that two buffers share bytes.
        if shares or address % page:
            return None
        # The rest of the last page is mapped too.
        buffer = self._device.newBufferWithBytesNoCopy_length_options_deallocator_(
            _pages(array, page),
            -(-array.nbytes // page) * page,
            self._metal.MTLResourceStorageModeShared,
            None,
        )
        if buffer is None or host_address(buffer) != address:
            return None
        memory = Memory(address, array.nbytes, owner)
        owner.own(memory.number, Block(buffer, 0))
        buffer.setLabel_(f"ostinato {memory.number} ({array.nbytes} bytes, adopted)")
        return memory


def host_address(buffer: Any) -> int:
    """The host address of a buffer."""
    return int(np.frombuffer(buffer.contents().as_buffer(buffer.length()), np.uint8).ctypes.data)


def _pages(array: np.ndarray, page: int) -> memoryview:
    """The whole pages that an array lies in."""
    nbytes = -(-array.nbytes // page) * page
    return memoryview((ctypes.c_uint8 * nbytes).from_address(array.ctypes.data))


class Residency:
    """The residency set of a queue; does nothing where the system has none."""

    def __init__(self, framework: Framework, device: Any, queue: Any, blocks: Blocks) -> None:
        self._blocks = blocks
        self._resident: dict[int, Any] = {}
        self._staged: list[Any] = []
        self._leaving: list[tuple[Sequence[Event], Any]] = []
        self._set: Any = None
        # The method exists since macOS 15.
        if not hasattr(device, "newResidencySetWithDescriptor_error_"):
            return
        description = framework.metal.MTLResidencySetDescriptor.alloc().init()
        description.setLabel_("ostinato")
        self._set = checked(device.newResidencySetWithDescriptor_error_(description, None), "making a residency set")
        queue.addResidencySet_(self._set)

    @property
    def present(self) -> bool:
        """Whether there is a set."""
        return self._set is not None

    def update(self, added: Sequence[int], removed: Sequence[int], in_flight: Sequence[Event]) -> None:
        """Stage changes to the set, by number of block, for the next `flush`; `in_flight` is the work running now."""
        if self._set is None:
            return
        for number in added:
            try:
                self._resident[number] = self._blocks[number].buffer
            except KeyError:
                continue  # freed between the staging and now
            self._staged.append(self._resident[number])
        for number in removed:
            leaving = self._resident.pop(number, None)
            if leaving is not None:
                self._leaving.append((in_flight, leaving))

    def flush(self) -> bool:
        """Apply staged changes in one step; True if a block was removed. Blocks still in use are removed later."""
        if not self._staged and not self._leaving:
            return False
        staged, self._staged = self._staged, []
        for buffer in staged:
            self._set.addAllocation_(buffer)
        waiting: list[tuple[Sequence[Event], Any]] = []
        gone: list[tuple[Sequence[Event], Any]] = []
        for entry in self._leaving:
            (gone if all(event.is_set() for event in entry[0]) else waiting).append(entry)
        self._leaving = waiting
        kept = {id(buffer) for buffer in self._resident.values()} | {id(buffer) for _, buffer in waiting}
        for buffer in {id(buffer): buffer for _, buffer in gone if id(buffer) not in kept}.values():
            self._set.removeAllocation_(buffer)
        if staged or gone:
            self._set.commit()
        return bool(gone)
