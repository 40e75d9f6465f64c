"""A pool of buffers: memory that is reused instead of being allocated again.

`take` returns a buffer; `release`, `Buffer.free` and dropping every reference return it to the pool. Memory is reused
only when nothing can reach it any more: no view, no uncommitted encoder, no running submission, no NumPy window. Until
then `take` allocates. So a block of memory never has two owners, whatever the order of events.
"""

from __future__ import annotations

import math
import weakref
from collections import deque
from typing import Any

from ..base.copies import refuse_copy
from ..errors import PoolError
from ..ir.dtypes import Shape, checked_dtype, checked_shape
from .allocation import Allocation, Backing, Lease
from .buffer import Buffer
from .queue import OnQueue, queue_of

_SMALLEST_BYTES = 256


class _Shelf:
    """Free memory by size class. Separate from the pool, so that memory in use does not keep the pool alive."""

    __slots__ = ("__weakref__", "free")

    def __init__(self) -> None:
        self.free: dict[int, deque[Backing]] = {}

    def put(self, backing: Backing) -> None:
        # Called when the last reference is dropped, in any thread and by the garbage collector: no locks.
        self.free.setdefault(backing.nbytes, deque()).append(backing)

    def get(self, nbytes: int) -> Backing | None:
        try:
            return self.free[nbytes].pop()
        except (KeyError, IndexError):
            return None


class BufferPool:
    """Recycles the memory of buffers of one device."""

    def __init__(self, device: OnQueue) -> None:
        self._queue = queue_of(device, "BufferPool")
        self._shelf = _Shelf()
        self._leases: weakref.WeakValueDictionary[int, Allocation] = weakref.WeakValueDictionary()
        self._made = 0

    def take(self, shape: Shape, dtype: Any) -> Buffer:
        """A buffer with undefined contents, for this caller alone."""
        extent, element = checked_shape(shape), checked_dtype(dtype)
        self._queue.check()
        self._queue.reap()
        nbytes = _size_class(math.prod(extent) * element.itemsize)
        backing = self._shelf.get(nbytes)
        if backing is None:
            memory = self._queue.backend.allocate(nbytes)
            backing = Backing(memory, self._queue.backend, self._queue.residency, self._queue.marks)
            self._made += 1
        allocation = Allocation(backing, _recycler(self._shelf))
        self._leases[backing.number] = allocation
        return Buffer(self._queue, Lease(allocation), 0, extent, element)

    def release(self, buffer: Buffer) -> None:
        """Return a buffer from `take` to the pool. Using it or its views afterwards raises."""
        if not isinstance(buffer, Buffer):
            raise PoolError(f"expected a Buffer of this pool, got {type(buffer).__name__}")
        allocation = buffer._allocation()
        if self._leases.get(allocation.backing.number) is not allocation:
            raise PoolError(f"{buffer!r} does not come from this pool")
        if buffer._view:
            raise PoolError(f"{buffer!r} is a view; release the buffer that take() returned")
        buffer.free()

    def trim(self) -> None:
        """Release free memory to the device."""
        self._shelf.free.clear()

    @property
    def allocated_count(self) -> int:
        """Blocks of memory allocated so far."""
        return self._made

    @property
    def free_bytes(self) -> int:
        """Memory ready to be taken."""
        return sum(nbytes * len(blocks) for nbytes, blocks in list(self._shelf.free.items()))

    @property
    def in_use_count(self) -> int:
        """Blocks that something can still reach."""
        self._queue.reap()
        return len(self._leases)

    __reduce_ex__ = refuse_copy

    def __repr__(self) -> str:
        return f"BufferPool({self.in_use_count} in use, {self.free_bytes} bytes free, on {self._queue.name!r})"


def _recycler(shelf: _Shelf) -> Any:
    """A function that puts memory back on the shelf if the pool still exists, and else drops it."""
    reference = weakref.ref(shelf)

    def recycle(backing: Backing) -> None:
        live_shelf = reference()
        if live_shelf is not None:
            live_shelf.put(backing)

    return recycle


def _size_class(nbytes: int) -> int:
    """The next power of two: few classes, so that memory is often reused; at most half is wasted."""
    return max(_SMALLEST_BYTES, 1 << (nbytes - 1).bit_length()) if nbytes else _SMALLEST_BYTES
