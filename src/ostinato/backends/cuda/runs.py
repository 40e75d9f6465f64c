"""A submission from its start to its release, and what it borrows: events, and memory that both sides see.

A list has events around it; a replay leaves its times in the ring of its graph."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.locks import ForkLock
from ...errors import OstinatoError
from ...ir.command_list import CommandList
from ...ir.ordering import NOT_INFERRED, Inferred
from ..protocol import Memory, Outcome, Status, WorkerTime
from .api import Context, call
from .launchers import Started
from .memory import Pinned

if TYPE_CHECKING:
    from .driver import CudaBackend
    from .graphs import NativeGraph

_KEPT = 64
"""Blocks of each size that are kept; sizes are powers of two."""


_DONE = Status.unplaced(Outcome.DONE)


class CudaRun:
    """One submission."""

    __slots__ = (
        "_backend", "_samples", "_status", "borrowed", "commands", "count", "end", "graph", "interval", "pairs",
        "result", "start", "started",
    )  # fmt: skip

    def __init__(self, backend: CudaBackend, count: int, start: int = 0, end: int = 0) -> None:
        self._backend = backend
        self._status: Status | None = None
        self._samples: np.ndarray | None = None
        self.started = Started()
        self.count = count
        self.start = start
        self.end = end
        self.commands: CommandList | None = None  # where its order may be asked for
        self.graph: NativeGraph | None = None  # what it replays, until it is done
        self.interval: tuple[int, int] | None = None  # when a replay began and ended, in device time
        self.pairs: Memory | None = None
        self.result: Pinned | None = None  # where its times are
        self.borrowed: list[Pinned] = []  # until it is done

    @property
    def number(self) -> int:
        """What the device knows it by; valid once it started."""
        return int(self.started.number)

    @property
    def started_at(self) -> int:
        """Where the launcher says what became of it."""
        return ctypes.addressof(self.started)

    def wait(self, timeout_ns: int) -> bool:
        """Look at the word; a device that was lost, or closed, ends every wait."""
        return self._backend.wait_for(self.number, timeout_ns)

    def status(self) -> Status:
        """Well, or what became of it when the device was lost."""
        backend = self._backend
        if self._status is None:
            self._status = backend.lost_status(self) or _DONE
            if self._status is _DONE and self.pairs is not None:
                backend.pairs.give_back(self.pairs)
            if self.graph is not None and not backend.closed:
                self.interval = self.graph.ring.take(self.started.turn)
            self.graph = self.pairs = None
            backend.stock.end(self)
        return self._status

    def inferred(self) -> Inferred:
        """A stream needs no edges, so they are not looked for before somebody asks."""
        return NOT_INFERRED if self.commands is None else self.commands.order.inferred

    def times(self) -> tuple[int, int] | None:
        """In host time: what a replay left behind, or the events of a list, which a lost device does not tell."""
        backend = self._backend
        if self.interval is not None:
            return backend.clock.between(*self.interval) if all(self.interval) else None
        if backend.is_lost or not self.start:
            return None
        cu = backend.context.cu
        try:
            return backend.clock.interval(cu.CUevent(self.start), cu.CUevent(self.end))
        except OstinatoError:
            return None

    def samples(self) -> np.ndarray | None:
        """Its times, in host time; what was not run has none."""
        if self._samples is None and self.result is not None:
            ticks: Any = self.result.array(np.uint64)[: 2 * self.count]
            self._samples = self._backend.clock.host_ns_of(np.array(ticks).reshape(-1, 2))
        return self._samples

    def bounded(self) -> np.ndarray | None:
        """None: each has times of its own."""
        return None

    def worker_time(self) -> WorkerTime | None:
        """None: a GPU does not say how much of its time it had."""
        return None

    def release(self) -> None:
        """Keep its events and memory for the next one."""
        self._backend.stock.release(self)


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

    def event(self) -> int:
        """An event that nobody uses."""
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

    def end(self, run: CudaRun) -> None:
        """A submission is done, or did not start: what it borrowed goes back, but for its times."""
        while run.borrowed:
            self.give_back(run.borrowed.pop())

    def release(self, run: CudaRun) -> None:
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
