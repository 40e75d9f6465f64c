"""Cold caches: a kernel that walks through more memory than the last-level cache holds, outside of what is timed."""

from __future__ import annotations

from ..encode.encoder import capture
from ..graph.replay import Replayable
from ..runtime.buffer import allocate
from ..runtime.library import compile_library
from ..runtime.queue import Queue

_UNKNOWN_BYTES = 256 << 20
"""Used where a device does not say how large its cache is: larger than any known."""
_LEAST_BYTES = 64 << 20
_TIMES = 2
LABEL = "flush of the caches, not measured"
"""Of its command buffers, in reports of a recording that was kept."""

_SOURCE = """
#include <metal_stdlib>
using namespace metal;

// Reads and writes: a store that bypasses the cache would leave the old lines in it.
kernel void flush_caches(device uint4 *x [[buffer(0)]], uint id [[thread_position_in_grid]]) { x[id] = x[id] + 1u; }
"""


def flush_bytes(queue: Queue) -> int:
    """How much memory a flush walks through."""
    cache = queue.backend.capabilities.cache_bytes
    return max(_TIMES * cache, _LEAST_BYTES) if cache else _UNKNOWN_BYTES


def flush_of(queue: Queue) -> Replayable:
    """A replay that leaves nothing else in the caches of a device."""
    size = flush_bytes(queue)
    kernel = compile_library(queue, _SOURCE)["flush_caches"]
    memory = allocate(queue, size // 16 * 4, "uint32")
    return capture(queue, lambda enc: enc.dispatch(kernel, memory, threads=size // 16), LABEL).instantiate()
