"""Device memory: our own memory pool, and copies from and to the host.

Allocations, frees, reads and writes by the host use a stream of their own, and every call waits for it. Memory that is
allocated or freed has no running work (submissions keep what they use), so none of this has to wait for the queue. The
stream is a blocking one, so that it stays ordered with the default stream of other libraries in the process.
"""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress
from typing import Any

import numpy as np

from ...errors import OutOfMemory
from ..protocol import Memory
from .api import OUT_OF_MEMORY, Context, call, failure


class _Block:
    """A block of the pool, freed when it is dropped."""

    __slots__ = ("_address", "_pool")

    def __init__(self, pool: Pool, address: int) -> None:
        self._pool = pool
        self._address = address

    def __del__(self) -> None:
        self._pool.free(self._address)


class Pool:
    """The memory of one device."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._cu = cu = context.cu
        self.stream = call(cu.cuStreamCreate, int(cu.CUstream_flags.CU_STREAM_DEFAULT))
        props = cu.CUmemPoolProps()
        props.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        props.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        props.location.id = context.ordinal
        self._pool = call(cu.cuMemPoolCreate, props)
        keep = cu.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        call(cu.cuMemPoolSetAttribute, self._pool, keep, cu.cuuint64_t(2**64 - 1))
        self._closed = False

    def allocate(self, nbytes: int) -> Memory:
        """Allocate a block; an empty one still has an address."""
        cu = self._cu
        with self._context.current():
            free, total = call(cu.cuMemGetInfo)
            if nbytes > total:
                raise self._out_of_memory(nbytes, free, total)
            wanted = max(nbytes, 1)
            status, address = cu.cuMemAllocFromPoolAsync(wanted, self._pool, self.stream)
            if int(status) == OUT_OF_MEMORY:
                # The pool's free memory may be fragmented.
                call(cu.cuStreamSynchronize, self.stream)
                call(cu.cuMemPoolTrimTo, self._pool, 0)
                status, address = cu.cuMemAllocFromPoolAsync(wanted, self._pool, self.stream)
            if int(status) == OUT_OF_MEMORY:
                raise self._out_of_memory(nbytes, *call(cu.cuMemGetInfo))
            if int(status):
                raise failure(int(status), "allocating memory")
            call(cu.cuStreamSynchronize, self.stream)
        return Memory(int(address), nbytes, _Block(self, int(address)))

    def _out_of_memory(self, nbytes: int, free: int, total: int) -> OutOfMemory:
        return OutOfMemory(
            f"cuda:{self._context.ordinal}: no memory for {nbytes} bytes; {free} of {total} bytes are free"
        )

    def free(self, address: int) -> None:
        """Free a block; does nothing after the device was lost or closed."""
        if self._closed:
            return
        # at the end of the interpreter, in a forked child, or with the context gone
        with suppress(Exception), self._context.current():
            self._cu.cuMemFreeAsync(self._cu.CUdeviceptr(address), self.stream)

    def wait_for(self, stream: int) -> None:
        """Make later frees wait for what another stream has queued: it may still use the memory."""
        # as in `free`
        with suppress(Exception), self._context.current():
            order(self._cu, self._cu.CUstream(stream), self.stream)

    def read(self, address: int, into: np.ndarray) -> None:
        """Copy to the host."""
        self._copy(self._cu.cuMemcpyDtoHAsync, into.ctypes.data, self._cu.CUdeviceptr(address), into.nbytes)

    def write(self, address: int, values: np.ndarray) -> None:
        """Copy from the host."""
        self._copy(self._cu.cuMemcpyHtoDAsync, self._cu.CUdeviceptr(address), values.ctypes.data, values.nbytes)

    def clear(self, address: int, nbytes: int) -> None:
        """Set to zero."""
        self._copy(self._cu.cuMemsetD8Async, self._cu.CUdeviceptr(address), 0, nbytes)

    def _copy(self, function: Any, *arguments: Any) -> None:
        with self._context.current():
            call(function, *arguments, self.stream)
            call(self._cu.cuStreamSynchronize, self.stream)

    def close(self) -> None:
        """Release everything."""
        self._closed = True
        with self._context.current():
            self._cu.cuStreamDestroy(self.stream)
            self._cu.cuMemPoolDestroy(self._pool)


def order(cu: Any, first: Any, second: Any) -> None:
    """Make stream `second` wait for what stream `first` has queued so far."""
    event = call(cu.cuEventCreate, int(cu.CUevent_flags.CU_EVENT_DISABLE_TIMING))
    try:
        call(cu.cuEventRecord, event, first)
        call(cu.cuStreamWaitEvent, second, event, 0)
    finally:
        cu.cuEventDestroy(event)


class Pinned:
    """Pinned host memory, which the device reads and writes too.

    The driver frees it only when the device is idle. So its owner chooses when to close it, and at exit it is left to
    the operating system.
    """

    def __init__(self, context: Context, nbytes: int) -> None:
        self._context = context
        self.host = 0
        with context.current():
            flags = context.cu.CU_MEMHOSTALLOC_PORTABLE | context.cu.CU_MEMHOSTALLOC_DEVICEMAP
            self.host = int(call(context.cu.cuMemHostAlloc, nbytes, flags))
            self.device = int(call(context.cu.cuMemHostGetDevicePointer, self.host, 0))
        self.nbytes = nbytes
        ctypes.memset(self.host, 0, nbytes)

    def array(self, dtype: Any) -> np.ndarray:
        """An array over the memory; it must not outlive this object."""
        window = (ctypes.c_uint8 * self.nbytes).from_address(self.host)
        return np.ctypeslib.as_array(window).view(dtype)

    def close(self) -> None:
        """Free the memory."""
        host, self.host = getattr(self, "host", 0), 0
        if host:
            # in a forked child, or with the context gone
            with suppress(Exception), self._context.current():
                self._context.cu.cuMemFreeHost(host)

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.close()
