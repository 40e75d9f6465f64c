"""The times of dispatches: the memory that kernels write them to, and the kernel that collects them.

A sampled launch writes a pair of times for each of its warps to a block of pairs (`sampling_cuda.h`). A small kernel,
the last of the list or graph, reduces all pairs of a command to one and writes it to host memory that belongs to the
submission. It clears the pairs of a list. Those of a graph, which are its own, keep the times of earlier replays until
they are overwritten, and are told by being earlier. So reading samples is reading host memory: it needs no call of the
driver and no wait, and works after the device was lost.
"""

from __future__ import annotations

import numpy as np

from ...base.locks import ForkLock
from ..protocol import Memory
from .memory import Pool

RESOLVE_THREADS = 256
_COMMANDS_PER_BLOCK = RESOLVE_THREADS // 32
_BLOCKS, _MOST_BLOCKS = 128, 1024
_MANY_PAIRS = 1 << 16
_KEPT = 8
_KEPT_BYTES = 64 << 20


def resolve_blocks(count: int, pairs: int) -> int:
    """The number of blocks that collect the times of `count` commands: one per command if there are few.

    With many pairs one per command up to as many as the device runs at a time; with few, more blocks only take longer.
    """
    most = _BLOCKS if pairs <= _MANY_PAIRS else _MOST_BLOCKS
    return max(min(count, most), -(-count // _COMMANDS_PER_BLOCK))


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
