"""The native hazard engine (hazards.cpp). `ir/hazards.py` is its reference implementation."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import numpy as np

from ..errors import OstinatoError, OutOfMemory
from . import HAZARDS
from .building import host_library

FENCE, BARRIER = 2**32 - 1, 2**32 - 2
"""Used as the number of accesses of a command that may touch anything, and of a barrier."""


@lru_cache(maxsize=1)
def _engine() -> Any:
    """The engine's function; None on a machine without a compiler."""
    try:
        library = host_library(
            "hazard engine", [HAZARDS, HAZARDS.with_name("ordering.cpp")], [HAZARDS.with_suffix(".h")]
        )
    except OstinatoError:
        return None
    pointer, u32, u64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
    library.ost_order.restype = u64
    library.ost_order.argtypes = (ctypes.c_char_p, pointer, u32, pointer, u64, pointer)
    return library.ost_order


def is_there() -> bool:
    """Whether this machine can run the engine. Builds it if necessary."""
    return _engine() is not None


def order(accesses: bytes, counts: np.ndarray) -> tuple[np.ndarray, tuple[int, int, int]]:
    """The edges (before, after), sorted by `after`, then `before`; and how many barriers, concurrent commands, ranges.

    `accesses` are the packed accesses of all commands, concatenated; `counts` (uint32) is how many each command has.
    """
    count = capacity = len(counts)
    numbers = (ctypes.c_uint32 * 3)()
    while True:
        pairs = np.empty((capacity, 2), np.uint32)
        n_edges = _engine()(accesses, counts.ctypes.data, count, pairs.ctypes.data, capacity, numbers)
        if n_edges == 2**64 - 1:
            raise OutOfMemory(f"no memory to analyse a list of {count} commands")
        if n_edges <= capacity:
            return pairs[:n_edges], tuple(numbers)
        capacity = n_edges
