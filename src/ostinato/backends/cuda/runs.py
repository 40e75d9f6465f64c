"""A submission from its start to its release, and what it borrows: events, and memory that both sides see.

A list has events around it; a replay leaves its times in the ring of its graph."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.locks import ForkLock
from ..protocol import Inferred, Lowered, Memory, Status
from .api import Context, call
from .launchers import Started
from .memory import Pinned

if TYPE_CHECKING:
    from .graphs import NativeGraph

_KEPT = 64
"""Blocks of each size that are kept; sizes are powers of two."""


class Run:
    """One submission."""

    __slots__ = (
        "borrowed", "count", "end", "graph", "inferred", "interval", "lowered", "pairs", "result", "start", "started",
        "status", "times",
    )  # fmt: skip

    def __init__(self, count: int, start: int = 0, end: int = 0) -> None:
        self.started = Started()
        self.count = count
        self.start = start
        self.end = end
        self.lowered: Sequence[Lowered] | None = None  # where its order may be asked for
        self.inferred: Inferred | None = None
        self.graph: NativeGraph | None = None  # what it replays, until it is done
        self.interval: tuple[int, int] | None = None  # when a replay began and ended, in device time
        self.pairs: Memory | None = None
        self.result: Pinned | None = None  # where its times are
        self.borrowed: list[Pinned] = []  # until it is done
        self.status: Status | None = None
        self.times: np.ndarray | None = None

    @property
    def number(self) -> int:
        """What the device knows it by; valid once it started."""
        return int(self.started.number)

    @property
    def started_at(self) -> int:
        """Where the launcher says what became of it."""
        return ctypes.addressof(self.started)


class Stock:
    """Events and pinned memory, kept for the next submission.

    It also holds the memory that is lent. The garbage collector finalises a cycle in any order: a block that was only
    its borrower's could be freed and then given back, for the next one to crash on.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lock = ForkLock()
        self._events: list[int] = []
        self._memory: dict[int, list[Pinned]] = {}
        self._lent: set[Pinned] = set()
        self._closed = False

    def listed(self, count: int) -> Run:
        """A new submission of a list of so many commands."""
        return Run(count, self._event(), self._event())

    def _event(self) -> int:
        with self._lock:
            if self._events:
                return self._events.pop()
        with self._context.current():
            return int(call(self._context.cu.cuEventCreate, 0))

    def take(self, nbytes: int) -> Pinned:
        """Memory that host and device see; its contents are whatever they were."""
        size = max(256, 1 << (nbytes - 1).bit_length())
        with self._lock:
            kept = self._memory.setdefault(size, [])
            memory = kept.pop() if kept else None
        memory = memory or Pinned(self._context, size)
        with self._lock:
            self._lent.add(memory)
        return memory

    def give_back(self, memory: Pinned) -> None:
        """Memory that nobody looks at any more."""
        with self._lock:
            self._lent.discard(memory)
            if self._closed:
                memory.host = 0  # its context may be gone, and the address another's by now
                return
            kept = self._memory.setdefault(memory.nbytes, [])
            if len(kept) < _KEPT:
                kept.append(memory)

    def end(self, run: Run) -> None:
        """A submission is done, or did not start: what it borrowed goes back, but for its times."""
        while run.borrowed:
            self.give_back(run.borrowed.pop())

    def release(self, run: Run) -> None:
        """A submission is forgotten."""
        self.end(run)
        if run.result is not None:
            self.give_back(run.result)
            run.result = None
        if run.start:
            with self._lock:
                self._events += [run.start, run.end]
            run.start = run.end = 0

    def close(self) -> None:
        """Give all of it back."""
        with self._lock:
            events, self._events = self._events, []
            self._memory.clear()
            self._closed = True
        with self._context.current():
            for event in events:
                self._context.cu.cuEventDestroy(self._context.cu.CUevent(event))


def ticks_of(run: Run) -> np.ndarray | None:
    """Its times in device time, if it took any."""
    if run.result is None:
        return None
    found: Any = run.result.array(np.uint64)[: 2 * run.count]
    return np.array(found).reshape(-1, 2)
