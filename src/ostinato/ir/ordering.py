"""Which commands of a list wait for which, and how many barriers a device without edges needs for that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..native import hazard_engine
from .commands import Barrier, Command, Dispatch, Ordering, packed
from .hazards import HazardTracker, accesses_of, barrier_edges, serial_edges


class Inferred(NamedTuple):
    """The inferred order of a list, counted for a device that has barriers rather than edges."""

    barriers: int
    """Commands that need a barrier before them on such a device."""
    concurrent: int
    """Commands that need no barrier."""
    ranges: int
    """Ranges of memory tracked at the end of the list."""


NOT_INFERRED = Inferred(0, 0, 0)


class Order(NamedTuple):
    """The order of a list."""

    edges: np.ndarray
    """Pairs (before, after), of shape (n, 2), sorted by `after`, then `before`."""
    inferred: Inferred
    """Zeros when the order follows from barriers alone."""


def order(commands: Sequence[Command], ordering: Ordering) -> Order:
    """The order that a list runs in."""
    if ordering is Ordering.INFERRED:
        return infer(commands)
    if ordering is Ordering.SERIAL:
        return Order(serial_edges(len(commands)), NOT_INFERRED)
    edges = barrier_edges([isinstance(command, Barrier) for command in commands])
    return Order(_sorted(edges), NOT_INFERRED)


def infer(commands: Sequence[Command]) -> Order:
    """The order that the commands' memory and the barriers require."""
    if not hazard_engine.is_there():
        return infer_plainly(commands)
    spans = [command.spans if type(command) is Dispatch else packed(accesses_of(command)) for command in commands]
    if all(spans):  # nearly every list, and much faster
        counts = np.fromiter(map(len, spans), np.uint32, len(spans)) // 16  # type: ignore[arg-type]
    else:
        counts = np.array([_count(*pair) for pair in zip(commands, spans, strict=True)], np.uint32)
    edges, numbers = hazard_engine.order(b"".join(filter(None, spans)), counts)
    return Order(edges, Inferred(*numbers))


def infer_plainly(commands: Sequence[Command]) -> Order:
    """The order that `infer` gives, by the engine in Python."""
    tracker = HazardTracker()
    pairs = [
        (before, after) for after, command in enumerate(commands) for before in tracker.add(after, accesses_of(command))
    ]
    edges = _sorted(np.array(pairs, np.uint32).reshape(-1, 2))
    by_hand = [isinstance(command, Barrier) for command in commands]
    barriers = sum(barriers_before(edges, by_hand)) - sum(by_hand)
    return Order(edges, Inferred(barriers, len(commands) - sum(by_hand) - barriers, len(tracker)))


def barriers_before(edges: np.ndarray, is_barrier: Sequence[bool]) -> list[bool]:
    """For each command, whether a device that runs groups of commands between barriers needs a barrier before it.

    A group ends where a command waits for another of the same group, and at each explicit barrier (marked too).
    """
    latest = np.full(len(is_barrier), -1, np.int64)
    if len(edges):
        np.maximum.at(latest, edges[:, 1].astype(np.int64), edges[:, 0].astype(np.int64))
    marks, first = [], 0
    for node, (before, by_hand) in enumerate(zip(latest.tolist(), is_barrier, strict=True)):
        needed = by_hand or before >= first
        if needed:
            first = node + 1 if by_hand else node
        marks.append(needed)
    return marks


def _count(command: Command, spans: bytes | None) -> int:
    if spans is not None:
        return len(spans) // 16
    return hazard_engine.BARRIER if type(command) is Barrier else hazard_engine.FENCE


def _sorted(edges: np.ndarray) -> np.ndarray:
    return edges[np.lexsort((edges[:, 0], edges[:, 1]))]
