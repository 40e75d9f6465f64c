"""Buffers: typed, shaped, exact ranges of device memory.

A buffer is a contiguous range of an allocation with a dtype and a shape. Views share the memory and have exact bounds;
offsets in a view of a view count from that view. `numpy()` and `write()` wait for committed work on the memory;
`as_numpy()` returns a window that does not wait. Contents that a fault left undefined cannot be read until they have
been overwritten or `accept()`ed.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import ml_dtypes  # noqa: F401  (teaches NumPy the name "bfloat16")
import numpy as np

from .. import counters
from ..backends.protocol import Memory
from ..base.copies import refuse_copy
from ..errors import ArgumentError, BufferAccessError, FreedBuffer, UsageError, ViewError
from ..ir.dtypes import DType, Shape, checked_dtype, checked_shape
from . import dlpack
from .allocation import Allocation, Backing, Lease, Window
from .queue import Queue

_SMALL_BYTES = 4096
"""What native code reads by itself, without more of Python than this."""


class Buffer:
    """A typed range of device memory. Made by a device, a pool, or as a view of another buffer."""

    __slots__ = ("_lease", "_nbytes", "_offset", "_queue", "_serial", "_view", "dtype", "shape")

    def __init__(
        self,
        queue: Queue,
        lease: Lease,
        offset: int,
        shape: tuple[int, ...],
        dtype: DType,
        view: bool = False,
    ) -> None:
        allocation = lease.allocation
        assert allocation is not None
        self._queue = queue
        self._lease = lease
        self._offset = offset
        self._view = view
        self.shape = shape
        """Extent along each axis; the elements lie in C order."""
        self.dtype = dtype
        """NumPy dtype of an element."""
        self._nbytes = math.prod(shape) * dtype.itemsize
        self._serial = allocation.backing.serial(offset, self._nbytes, dtype)

    # --- properties ----------------------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """Bytes in the range."""
        return self._nbytes

    @property
    def size(self) -> int:
        """Elements in the range."""
        return math.prod(self.shape)

    @property
    def byte_offset(self) -> int:
        """Where the range starts, counted from the start of the allocation."""
        return self._offset

    @property
    def freed(self) -> bool:
        """Whether this buffer, or the one it is a view of, was freed."""
        return self._lease.allocation is None

    def __len__(self) -> int:
        if not self.shape:
            raise ViewError("a buffer without axes has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        kind = f", view at byte {self._offset}" if self._view else ""
        state = ", freed" if self.freed else ""
        return f"Buffer({self.shape}, {self.dtype.name}, {self._nbytes} bytes on {self._queue.name!r}{kind}{state})"

    def _repr_html_(self) -> str:
        from .notebook import buffer_html

        return buffer_html(self)

    # --- contents ------------------------------------------------------------------------------------------

    def numpy(self) -> np.ndarray:
        """A copy of the contents, after all committed work on this memory is done. Counts as a sync."""
        quick, allocation = self._queue.quick, self._lease.allocation
        if quick is not None and allocation is not None and 0 < self._nbytes <= _SMALL_BYTES:
            contents = quick.read(allocation.backing, self._offset, self._nbytes)
            if contents is not None:
                return np.ndarray(self.shape, self.dtype, contents)
        return self._contents(self._settled())

    def write(self, values: Any) -> None:
        """Replace the contents, after all committed work on this memory is done. Counts as a sync.

        An array must have this buffer's dtype and shape; other sequences are converted to the dtype.
        """
        array = values if isinstance(values, np.ndarray | np.generic) else self._converted(values)
        if array.dtype != self.dtype or array.shape != self.shape:
            raise ArgumentError(
                f"write to {self!r}: expected {self.dtype.name} of shape {self.shape},"
                f" got {array.dtype.name} of shape {array.shape}"
            )
        self._allocation()
        self._queue.check()
        self._settled().backing.write(self._offset, np.asarray(array))

    def as_numpy(self) -> np.ndarray:
        """A window on the memory itself: no copy, no wait. It keeps the memory alive, even after `free()`.

        Only where the host can reach the device's memory (`Capabilities.shared_memory`).
        """
        self._queue.check_process()
        if not self._queue.backend.capabilities.shared_memory:
            raise BufferAccessError(
                f"{self!r}: the host cannot map the memory of this device; numpy() returns a copy, write() fills it"
            )
        allocation = self._allocation()
        self._queue.reap()
        self._check_contents(allocation)
        return self._window(allocation)

    def accept(self) -> None:
        """Allow reading the contents as they are, though a fault may have left them partly written.

        Waits for committed work on this memory, but does not raise its errors. Counts as a sync.
        """
        allocation = self._allocation()
        self._queue.check_process()
        counters.add_sync()
        submission = allocation.backing.latest_use()
        if submission is not None:
            submission._wait_until(None)
        allocation.backing.accept(self._offset, self._nbytes)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("an array of a buffer's contents is always a copy; as_numpy() returns a window")
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        """Share the memory with another library.

        For host memory, waits until all committed work on it is done, which counts as a sync. For device memory,
        returns at once; later work of the other library on `stream` waits for everything committed so far.
        """
        backend = self._queue.backend
        if backend.capabilities.shared_memory:
            allocation = self._settled()
            self._check_contents(allocation)
            return dlpack.export(self._window(allocation), **options)
        allocation = self._allocation()
        self._queue.check()
        if options.get("copy"):
            raise BufferError(f"{self!r}: its memory is shared without a copy; make the copy in the other library")
        if options.get("dl_device") not in (None, backend.capabilities.dlpack_device):
            raise BufferError(f"{self!r}: its memory is on {backend.capabilities.dlpack_device} and cannot be moved")
        allocation.backing.expose(self._offset, self._nbytes)
        owner = (allocation, self._queue, backend.lend(stream))
        address = allocation.backing.address + self._offset
        return dlpack.export_memory(address, self.shape, self.dtype, backend.capabilities.dlpack_device, owner)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._queue.backend.capabilities.dlpack_device

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """For libraries that read the CUDA array interface; it names the stream to wait for."""
        backend = self._queue.backend
        if backend.stream is None:
            raise AttributeError(f"{self!r} is not in the memory of a CUDA device")
        if self.dtype == dlpack.BFLOAT16:
            raise AttributeError(f"{self!r}: the CUDA array interface has no bfloat16; use DLPack")
        self._queue.check()
        backing = self._allocation().backing
        backing.expose(self._offset, self._nbytes)
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (backing.address + self._offset, False),
            "version": 3,
            "strides": None,
            "stream": backend.stream,
        }

    # --- views ---------------------------------------------------------------------------------------------

    def __getitem__(self, index: int | slice) -> Buffer:
        """A view of rows: `buf[a:b]` keeps the axis, `buf[i]` drops it. Bounds outside the buffer are an error."""
        if not self.shape:
            raise ViewError(f"{self!r} has no axis to index")
        rows = self.shape[0]
        row_bytes = math.prod(self.shape[1:]) * self.dtype.itemsize
        if isinstance(index, slice):
            first, stop = self._bounds(index, rows)
            shape = (stop - first, *self.shape[1:])
        else:
            try:
                position = operator.index(index)
            except TypeError:
                raise ViewError(f"{self!r} can be indexed by an integer or a slice, not {index!r}") from None
            if not -rows <= position < rows:
                raise ViewError(f"index {position} is outside {self!r}")
            first = position % rows
            shape = self.shape[1:]
        self._allocation()
        return Buffer(self._queue, self._lease, self._offset + first * row_bytes, shape, self.dtype, True)

    if not TYPE_CHECKING:  # a type checker reports it by itself

        def __setitem__(self, index: object, value: object) -> None:
            raise UsageError(
                f"{self!r} does not support assignment: buffer[a:b].write(values) writes now, after committed work on"
                " the memory; encoder.fill and encoder.copy record a command"
            )

    def view(self, dtype: Any = None, shape: Shape | None = None, byte_offset: int = 0) -> Buffer:
        """A view of the bytes from `byte_offset` (counted from this view) on, with another dtype or shape.

        Without `shape` the view extends to the end of this buffer: in the same shape if it starts at 0 and
        the elements keep their size, else with one axis.
        """
        allocation = self._allocation()
        seen_as = self.dtype if dtype is None else checked_dtype(dtype)
        start = operator.index(byte_offset)
        if not 0 <= start <= self._nbytes:
            raise ViewError(f"byte offset {start} is outside {self!r}")
        if shape is not None:
            extent = checked_shape(shape)
        elif start == 0 and seen_as.itemsize == self.dtype.itemsize:
            extent = self.shape
        else:
            count, rest = divmod(self._nbytes - start, seen_as.itemsize)
            if rest:
                raise ViewError(f"{self._nbytes - start} bytes of {self!r} are not a whole number of {seen_as.name}")
            extent = (count,)
        needed = math.prod(extent) * seen_as.itemsize
        if start + needed > self._nbytes:
            raise ViewError(f"a view of {needed} bytes at byte {start} ends outside {self!r}, which has {self._nbytes}")
        if (allocation.backing.address + self._offset + start) % seen_as.alignment:
            raise ViewError(f"byte {start} of {self!r} is not aligned for {seen_as.name} ({seen_as.alignment} bytes)")
        return Buffer(self._queue, self._lease, self._offset + start, extent, seen_as, True)

    # --- freeing -------------------------------------------------------------------------------------------

    def free(self) -> None:
        """Release the memory now: this buffer and all views of it can no longer be used.

        Work already encoded or committed keeps the memory until it is done. Freeing twice is an error. Memory from
        a pool returns to it.
        """
        self._allocation()
        self._lease.allocation = None

    __reduce_ex__ = refuse_copy

    # --- for the encoder -----------------------------------------------------------------------------------

    def _allocation(self) -> Allocation:
        allocation = self._lease.allocation
        if allocation is None:
            raise FreedBuffer(f"{self!r} cannot be used any more")
        return allocation

    def _settled(self) -> Allocation:
        allocation = self._allocation()
        self._queue.check_process()
        counters.add_sync()
        allocation.backing.settle()
        return allocation

    def _check_contents(self, allocation: Allocation) -> None:
        allocation.backing.check_contents(self._offset, self._nbytes, self)

    def _contents(self, allocation: Allocation) -> np.ndarray:
        self._check_contents(allocation)
        contents = allocation.backing.read(self._offset, self._nbytes)
        return contents.view(self.dtype).reshape(self.shape) if self._nbytes else np.empty(self.shape, self.dtype)

    def _window(self, allocation: Allocation) -> np.ndarray:
        allocation.backing.expose(self._offset, self._nbytes)
        return Window(allocation, self._offset, self._nbytes).array(self.shape, self.dtype)

    def _converted(self, values: Any) -> np.ndarray:
        try:
            return np.asarray(values, dtype=self.dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise ArgumentError(f"write to {self!r}: {error}") from None

    def _bounds(self, index: slice, rows: int) -> tuple[int, int]:
        if index.step not in (None, 1):
            raise ViewError(f"a view of {self!r} must be contiguous; step {index.step!r} is not")
        try:
            first = 0 if index.start is None else operator.index(index.start)
            stop = rows if index.stop is None else operator.index(index.stop)
        except TypeError:
            raise ViewError(f"the bounds of {index!r} are not integers") from None
        first += rows if first < 0 else 0
        stop += rows if stop < 0 else 0
        if not 0 <= first <= stop <= rows:
            raise ViewError(f"rows {index.start}:{index.stop} lie outside {self!r}")
        return first, stop


def allocate(queue: Queue, shape: Shape, dtype: Any) -> Buffer:
    """A new buffer of undefined content."""
    extent, element = checked_shape(shape), checked_dtype(dtype)
    queue.check()
    queue.reap()
    memory = queue.backend.allocate(math.prod(extent) * element.itemsize)
    backing = Backing(memory, queue.backend, queue.residency, queue.marks)
    return Buffer(queue, Lease(Allocation(backing)), 0, extent, element)


def adopt(queue: Queue, memory: Memory, shape: tuple[int, ...], dtype: Any) -> Buffer:
    """A buffer over memory of another library, whose owner it keeps alive."""
    queue.check()
    backing = Backing(memory, queue.backend, queue.residency, queue.marks, written=True)
    return Buffer(queue, Lease(Allocation(backing)), 0, shape, checked_dtype(dtype))
