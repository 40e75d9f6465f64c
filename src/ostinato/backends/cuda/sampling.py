"""The times of dispatches: memory where kernels leave them, and reading them off.

A sampled launch leaves a pair of times for each of its warps in a block of pairs (`sampling_cuda.h`). A small kernel
makes one pair of all pairs of a command and clears them for the next time. For a list of launches it runs when the
samples are asked for, on the stream of the memory pool; for a graph it is the graph's own last node, because the same
block serves the next replay: there it writes to where the replay says.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ...locks import ForkLock
from ..protocol import Memory
from .api import Context, call
from .memory import Pinned, Pool

RESOLVE_THREADS = 256


def resolve_blocks(count: int) -> int:
    """Blocks that read the times of so many commands off: a warp does one."""
    return -(-count * 32 // RESOLVE_THREADS)


class Pairs:
    """A cleared block of pairs, and the table of which belong to which command."""

    def __init__(self, pool: Pool, starts: np.ndarray) -> None:
        self.count = len(starts) - 1
        self.room = max(int(starts[-1]), 1)
        self._pool = pool
        self.memory: Memory = pool.allocate(16 * self.room)
        pool.clear(self.memory.address, 16 * self.room)
        self._starts = np.ascontiguousarray(starts, np.uint32)
        self.table: Memory = pool.allocate(self._starts.nbytes)
        pool.write(self.table.address, self._starts.view(np.uint8))

    def fits(self, starts: np.ndarray) -> bool:
        """Whether it serves a list that needs these pairs."""
        return len(starts) - 1 <= self.count and int(starts[-1]) <= self.room

    def describe(self, starts: np.ndarray) -> None:
        """From now on it serves such a list."""
        if not np.array_equal(starts, self._starts):
            self._starts = np.ascontiguousarray(starts, np.uint32)
            self._pool.write(self.table.address, self._starts.view(np.uint8))


class Resolver:
    """Reads times off blocks of pairs, and keeps blocks and host memory for the next time."""

    def __init__(self, context: Context, pool: Pool, kernel: Any) -> None:
        self._context = context
        self._pool = pool
        self.kernel = kernel
        self._lock = ForkLock()
        self._free: list[Pairs] = []
        self._results: dict[int, list[Pinned]] = {}

    def take(self, starts: np.ndarray) -> Pairs:
        """A block for a list."""
        with self._lock:
            for at, block in enumerate(self._free):
                if block.fits(starts):
                    del self._free[at]
                    break
            else:
                block = None
        if block is None:
            return Pairs(self._pool, starts)
        block.describe(starts)
        return block

    def give_back(self, block: Pairs) -> None:
        """A block that was resolved."""
        with self._lock:
            self._free.append(block)
            del self._free[:-4]

    def take_result(self, count: int) -> Pinned:
        """Host memory for the times of so many commands."""
        with self._lock:
            kept = self._results.setdefault(count, [])
            if kept:
                return kept.pop()
        return Pinned(self._context, 16 * max(count, 1))

    def give_back_result(self, count: int, memory: Pinned) -> None:
        """Host memory that was read."""
        with self._lock:
            kept = self._results.setdefault(count, [])
            if len(kept) < 64:
                kept.append(memory)
                return
        memory.free()

    def resolve(self, block: Pairs, count: int) -> np.ndarray:
        """The times of a list that is done, in device time; the block is cleared."""
        result = self.take_result(count)
        cu = self._context.cu
        with self._context.current():
            values = (block.table.address, block.memory.address, result.device, count)
            types = (*(ctypes.c_uint64,) * 3, ctypes.c_uint32)
            stream, blocks = self._pool.stream, resolve_blocks(count)
            call(cu.cuLaunchKernel, self.kernel, blocks, 1, 1, RESOLVE_THREADS, 1, 1, 0, stream, (values, types), 0)
            call(cu.cuStreamSynchronize, stream)
        found = result.array(np.uint64).reshape(-1, 2)[:count].copy()
        self.give_back_result(count, result)
        return found

    def close(self) -> None:
        """Give all of it back."""
        with self._lock:
            results, self._results = self._results, {}
            self._free.clear()
        for kept in results.values():
            for memory in kept:
                memory.free()
