"""The times of dispatches: the memory that kernels write them to, and the kernel that collects them.

A sampled launch writes a pair of times for each of its warps to a block of pairs (`sampling_cuda.h`). A small kernel,
the last of the list or graph, reduces all pairs of a command to one, writes it to host memory that belongs to the
submission, and clears the pairs for the next use. So reading samples is reading host memory: it needs no call of the
driver and no wait, and works after the device was lost.
"""

from __future__ import annotations

import numpy as np

from ...base.locks import ForkLock
from ..protocol import Memory
from .memory import Pool

RESOLVE_THREADS = 256
_COMMANDS_PER_BLOCK = RESOLVE_THREADS // 32
_BLOCKS = 128
_KEPT = 8
_KEPT_BYTES = 64 << 20


def resolve_blocks(count: int) -> int:
    """The number of blocks that collect the times of `count` commands: one per command if there are few."""
    return max(min(count, _BLOCKS), -(-count // _COMMANDS_PER_BLOCK))


class Pairs:
    """Blocks of cleared pairs for lists, kept for reuse. Sizes are powers of two."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._lock = ForkLock()
        self._free: list[Memory] = []

    def take(self, room: int) -> Memory:
        """A block with room for this many pairs."""
        nbytes = 16 << max(room - 1, 0).bit_length()
        with self._lock:
            for at, block in enumerate(self._free):
                if block.nbytes == nbytes:
                    return self._free.pop(at)
        return cleared(self._pool, nbytes)

    def give_back(self, block: Memory) -> None:
        """Return a block whose pairs have been collected, and so cleared."""
        with self._lock:
            self._free.append(block)
            while len(self._free) > _KEPT or sum(block.nbytes for block in self._free) > _KEPT_BYTES:
                del self._free[0]


def cleared(pool: Pool, nbytes: int) -> Memory:
    """Memory filled with zeros."""
    block = pool.allocate(nbytes)
    pool.clear(block.address, nbytes)
    return block


def table_of(pool: Pool, starts: np.ndarray) -> Memory:
    """The table of the first pair of each command, in device memory."""
    block = pool.allocate(starts.nbytes)
    pool.write(block.address, np.ascontiguousarray(starts).view(np.uint8))
    return block
