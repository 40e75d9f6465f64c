"""Which commands of a lowered list wait for which, and what that comes to for a device that has barriers.

`infer` asks the compiled hazard engine of the CPU runtime; `infer_plainly` is the same in Python.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import OutOfMemory
from ...ir import hazards
from .. import records
from ..protocol import Inferred, Lowered


def infer(runtime: Any, lowered: Sequence[Lowered]) -> tuple[np.ndarray, Inferred]:
    """The edges as pairs (before, after), by the compiled engine."""
    records = b"".join(lowered)
    count = capacity = len(lowered)
    numbers = (ctypes.c_uint32 * 3)()
    while True:
        pairs = np.empty((capacity, 2), np.uint32)
        found = runtime.ost_edges(records, len(records), count, pairs.ctypes.data, capacity, numbers)
        if found == 2**64 - 1:
            raise OutOfMemory(f"no memory to analyse a list of {count} commands")
        if found <= capacity:
            return pairs[:found], Inferred(*numbers)
        capacity = found


def barriers_before(edges: np.ndarray, is_barrier: Sequence[bool]) -> list[bool]:
    """Before which commands of a list a device that has barriers, and runs a group of commands at once, needs one.

    A group ends where a command waits for another of the same group, and at each barrier by hand, which is marked too.
    """
    latest = np.full(len(is_barrier), -1, np.int64)
    if len(edges):
        np.maximum.at(latest, edges[:, 1].astype(np.int64), edges[:, 0].astype(np.int64))
    found, first = [], 0
    for node, (before, by_hand) in enumerate(zip(latest.tolist(), is_barrier, strict=True)):
        needed = by_hand or before >= first
        if needed:
            first = node + 1 if by_hand else node
        found.append(needed)
    return found


def infer_plainly(lowered: Sequence[Lowered]) -> tuple[np.ndarray, Inferred]:
    """The same, by the engine in Python."""
    tracker = hazards.HazardTracker()
    pairs: list[tuple[int, int]] = []
    for node, one in enumerate(lowered):
        pairs += [(other, node) for other in tracker.add(node, records.accesses_in(one))]
    edges = np.array(pairs, np.uint32).reshape(-1, 2)
    by_hand = [records.is_barrier(one) for one in lowered]
    barriers = sum(barriers_before(edges, by_hand)) - sum(by_hand)
    return edges, Inferred(barriers, len(lowered) - sum(by_hand) - barriers, len(tracker))
