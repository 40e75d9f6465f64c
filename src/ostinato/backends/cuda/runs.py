"""A submission from its start to its release, with the events and shared memory that it borrows.

A list is timed by events around it; a replay writes its times to the ring of its graph."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.locks import ForkLock
from ...errors import OstinatoError
from ...ir.command_list import CommandList
from ...ir.ordering import NOT_INFERRED, Inferred
from ..protocol import Log, Memory, Outcome, Status, WorkerTime
from .api import Context, call
from .launchers import Started
from .logs import LogCopy
from .memory import Pinned
from .rings import TIMES

if TYPE_CHECKING:
    from .driver import CudaBackend
    from .graphs import NativeGraph

_KEPT = 64
"""Blocks of each size that are kept for reuse; sizes are powers of two."""

DONE = Status.unplaced(Outcome.DONE)


class CudaRun:
    """One submission."""

    __slots__ = (
        "_backend", "_samples", "_status", "borrowed", "commands", "count", "end", "graph", "interval", "log_copy",
        "pairs", "quick_number", "quick_ring", "quick_turn", "result", "start", "started",
    )  # fmt: skip

    def __init__(self, backend: CudaBackend, count: int, start: int = 0, end: int = 0) -> None:
        self._backend = backend
        self._status: Status | None = None
        self._samples: np.ndarray | None = None
        self.started: Started | None = Started()
        # Of a replay that native code started, in place of `started`: its number, which replay of its graph it is, and
        # the address of the graph's ring.
        self.quick_number: int | None = None
        self.quick_turn: int | None = None
        self.quick_ring: int | None = None
        self.count = count
        self.start = start
        self.end = end
        self.commands: CommandList | None = None  # set if its order is inferred
        self.graph: NativeGraph | None = None  # what it replays, until it is done
        self.interval: bytes | None = None  # start and end of a replay, in device time
        self.pairs: Memory | None = None
        self.result: Pinned | None = None  # the times of its commands
        self.borrowed: list[Pinned] = []  # until it is done
        self.log_copy: LogCopy | None = None  # of what it prints

    @property
    def number(self) -> int:
        """Its number on the device; valid once it has started."""
        return int(self.quick_number or 0 if self.started is None else self.started.number)

    @property
    def _turn(self) -> int:
        """Which replay of its graph it is."""
        return int(self.quick_turn or 0 if self.started is None else self.started.turn)

    @property
    def launched(self) -> int:
        """How many of its launches have started."""
        return 0 if self.started is None else int(self.started.launched)

    @property
    def started_at(self) -> int:
        """The address of the `Started` that the launcher fills."""
        assert self.started is not None
        return ctypes.addressof(self.started)

    def wait(self, timeout_ns: int) -> bool:
        """Wait for the device's word; a lost or closed device ends every wait."""
        return self._backend.wait_for(self.number, timeout_ns)

    def status(self) -> Status:
        """Done, or faulted or not run if the device was lost. Returns what it borrowed."""
        backend = self._backend
        if self._status is None:
            self._status = backend.lost_status(self) or DONE
            if self._status is DONE and self.pairs is not None:
                backend.pairs.give_back(self.pairs)
            if self.graph is not None and not backend.closed:
                self.interval = self.graph.ring.take(self._turn)
            self.graph = self.pairs = None
            backend.stock.end(self)
        return self._status

    def inferred(self) -> Inferred:
        """The inferred order, in numbers; inferred on demand, because a stream needs no edges."""
        return NOT_INFERRED if self.commands is None else self.commands.order.inferred

    def times(self) -> tuple[int, int] | None:
        """Start and end in host time, of a replay from its ring, of a list from events; None if the device is lost."""
        backend = self._backend
        if self.interval is not None:
            begin, end = TIMES.unpack(self.interval)
            return backend.clock.between(begin, end) if begin and end else None
        if backend.is_lost or not self.start:
            return None
        cu = backend.context.cu
        try:
            return backend.clock.interval(cu.CUevent(self.start), cu.CUevent(self.end))
        except OstinatoError:
            return None

    def samples(self) -> np.ndarray | None:
        """The times of its commands in host time; zeros for those that did not run."""
        if self._samples is None and self.result is not None:
            ticks: Any = self.result.array(np.uint64)[: 2 * self.count]
            self._samples = self._backend.clock.host_ns_of(np.array(ticks).reshape(-1, 2))
        return self._samples

    def bounded(self) -> np.ndarray | None:
        """None: each command has its own times."""
        return None

    def worker_time(self) -> WorkerTime | None:
        """None: a GPU does not report it."""
        return None

    def log(self) -> Log | None:
        """What its kernels printed; waits for the copy that is queued behind it."""
        return None if self.log_copy is None else self._backend.read_log(self.log_copy)

    def release(self) -> None:
        """Return its events and memory for reuse."""
        self._backend.stock.release(self)


class Stock:
    """Events and pinned memory, reused by later submissions.

    It also refers to memory in use. The garbage collector finalises a cycle in any order: a block that only its
    borrower refers to could be freed first and returned afterwards, and the next borrower would crash.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lock = ForkLock()
        self._events: list[int] = []
        self._memory: dict[int, list[Pinned]] = {}
        self._lent: set[Pinned] = set()
        self._closed = False

    def event(self) -> int:
        """An unused event."""
        with self._lock:
            if self._events:
                return self._events.pop()
        with self._context.current():
            return int(call(self._context.cu.cuEventCreate, 0))

    def take(self, nbytes: int) -> Pinned:
        """Memory that host and device share, with undefined contents."""
        size = max(256, 1 << (nbytes - 1).bit_length())
        with self._lock:
            kept = self._memory.setdefault(size, [])
            memory = kept.pop() if kept else None
        memory = memory or Pinned(self._context, size)
        with self._lock:
            self._lent.add(memory)
        return memory

    def give_back(self, memory: Pinned) -> None:
        """Return memory that nothing uses any more."""
        with self._lock:
            self._lent.discard(memory)
            if self._closed:
                memory.host = 0  # its context may be gone, and the address reused
                return
            kept = self._memory.setdefault(memory.nbytes, [])
            if len(kept) < _KEPT:
                kept.append(memory)

    def end(self, run: CudaRun) -> None:
        """Return what a submission borrowed, except its times, when it is done or did not start."""
        while run.borrowed:
            self.give_back(run.borrowed.pop())

    def release(self, run: CudaRun) -> None:
        """Return everything that a submission borrowed."""
        self.end(run)
        if run.result is not None:
            self.give_back(run.result)
            run.result = None
        if run.log_copy is not None:
            self.give_back(run.log_copy.memory)
            with self._lock:
                self._events.append(run.log_copy.event)
            run.log_copy = None
        if run.start:
            with self._lock:
                self._events += [run.start, run.end]
            run.start = run.end = 0

    def close(self) -> None:
        """Release all events and memory."""
        with self._lock:
            events, self._events = self._events, []
            self._memory.clear()
            self._closed = True
        with self._context.current():
            for event in events:
                self._context.cu.cuEventDestroy(self._context.cu.CUevent(event))
