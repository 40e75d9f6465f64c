"""A device's one in-order queue.

`Queue` hands lists of commands to the backend and keeps every submission (and through it the memory it uses)
until the device is done with it; finished ones are let go at the next commit, allocation or wait, whether or
not anybody waits for them. It also knows whether the device can still be used: a fault loses it, `close` ends
it, and a fork leaves the child with something it must not touch.
"""

from __future__ import annotations

import atexit
import itertools
import os
import sys
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Protocol

from . import submission as submissions
from . import tracing
from .backends.protocol import Backend, Native
from .commands import Barrier, Command
from .errors import ArgumentError, DeviceClosed, DeviceLost, ForkedDevice, KernelFault
from .locks import ForkLock
from .residency import ResidencySet
from .submission import WAIT_SLICE_NS, Submission
from .tracing import Trace

_queues: weakref.WeakSet[Queue] = weakref.WeakSet()
_opened: Counter[str] = Counter()
"""How many devices of each name this process has opened."""


class OnQueue(Protocol):
    """Anything that works on a device's queue: how modules below the device take one."""

    @property
    def _queue(self) -> Queue: ...


def queue_of(device: Any, what: str) -> Queue:
    """The queue of a device that a caller passed."""
    queue = getattr(device, "_queue", None)
    if not isinstance(queue, Queue):
        raise ArgumentError(f"{what}: expected an open Device, got {type(device).__name__}")
    return queue


class Used(Protocol):
    """Something that remembers the last submission that used it: a block of memory, or all the memory of a graph."""

    last_use: weakref.ref[Submission] | None


class Queue:
    """The in-order queue of one device."""

    __slots__ = (
        "__weakref__",
        "_closed",
        "_fault",
        "_fault_seen",
        "_forked",
        "_in_flight",
        "_lock",
        "_ordinals",
        "backend",
        "barrier",
        "name",
        "number",
        "residency",
        "usable",
    )

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.name = backend.capabilities.name
        _opened[self.name] += 1
        self.number = _opened[self.name]
        """Which of the devices of this name that the process has opened it is."""
        self.barrier = backend.lower(Barrier())
        self.residency = ResidencySet(backend.update_residency)
        self.usable = True
        self._fault: KernelFault | None = None
        self._fault_seen = False
        self._closed = False
        self._forked = False
        self._in_flight: deque[Submission] = deque()
        self._ordinals = itertools.count(1)
        self._lock = ForkLock()
        _queues.add(self)

    @property
    def title(self) -> str:
        """The name of its device, with a number where an earlier one had the same."""
        return repr(self.name) if self.number == 1 else f"{self.name!r} #{self.number}"

    def submit(
        self,
        commands: Sequence[Command],
        start: Callable[[list[Native]], None],
        *,
        uses: Collection[Used],
        keep: object,
        label: str | None,
        trace: Trace | None = None,
    ) -> Submission:
        """Start commands after everything submitted before.

        `start` hands them to the backend, with the contract of `Backend.submit`; `uses` is what remembers its last
        submission, and `keep` is held until the work is done.
        """
        self.reap()
        with self._lock:
            if not self.usable:
                self.check()
            self.residency.flush()
            submission = Submission(self, next(self._ordinals), commands, keep, label)
            if trace is not None:
                submission._trace = trace
                trace.ordinal = submission.ordinal
                trace.commit_begin_ns = time.monotonic_ns()
            handle: list[Native] = []
            # Ctrl-C may come between any two of these steps, so all that keeps the memory is in place before the
            # work starts, and whether it did is known from the handle alone.
            try:
                self._in_flight.append(submission)
                this_use = weakref.ref(submission)
                for used in uses:
                    used.last_use = this_use
                block = self.backend.annotated(label)
                if block is None:
                    start(handle)
                else:
                    with block:
                        start(handle)
            finally:
                if handle:
                    submission._native = handle[0]
                else:
                    self._withdraw(submission, uses)
                if trace is not None:
                    trace.commit_end_ns = time.monotonic_ns()
        return submission

    def _withdraw(self, submission: Submission, uses: Collection[Used]) -> None:
        """Forget a submission that did not start. What came before it in the queue is then the last use again."""
        if submission in self._in_flight:
            self._in_flight.remove(submission)
        before = weakref.ref(self._in_flight[-1]) if self._in_flight else None
        for used in uses:
            used.last_use = before

    def reap(self) -> None:
        """Let go of submissions that are done. They finish in order, so the first unfinished one ends it."""
        if not self._in_flight or self._forked:
            return
        with self._lock:
            while self._in_flight:
                first = self._in_flight[0]
                if first._native is None or not self.backend.wait(first._native, 0):
                    break
                first._finish()
                # A finaliser that ran in between may have reaped too.
                if self._in_flight and self._in_flight[0] is first:
                    self._in_flight.popleft()

    def reap_through(self, submission: Submission) -> None:
        """Let go of everything up to a submission that is done.

        Those before it are done too, or about to say so, and go first: the first of them may hold the reason why
        the others were not run.
        """
        self.reap()
        while submission._status is None and self._in_flight:
            native = self._in_flight[0]._native
            if native is not None:
                self.backend.wait(native, WAIT_SLICE_NS)
            self.reap()

    def check(self) -> None:
        """Raise unless the device can be used."""
        if not self.usable:
            self.check_process()
            if self._fault is not None:
                self._fault_seen = True
                raise DeviceLost(f"device {self.name!r} was lost: {self._fault}", self._fault)
            raise DeviceClosed(f"device {self.name!r} was closed")

    def check_process(self) -> None:
        """Raise in a forked child; what only reads memory is still possible on a lost or closed device."""
        if self._forked:
            raise ForkedDevice(
                f"device {self.name!r} belongs to the parent of this process; a forked child must open its own"
                " (or be started with the 'spawn' method)"
            )

    def close(self) -> None:
        """Finish what was submitted and refuse everything from now on.

        The native device goes when the last object that needs it goes, so a waiting thread is never cut off.
        """
        self.check_process()
        self.usable = False
        self._closed = True
        while self._in_flight:
            self._in_flight[-1]._wait_until(None)

    @property
    def in_flight_count(self) -> int:
        """Submissions not yet seen to be done."""
        self.reap()
        return len(self._in_flight)

    def _lost(self, fault: KernelFault) -> None:
        if self._fault is None:
            self._fault = fault
        self.usable = False

    def _abandoned(self) -> bool:
        return any(submission._abandoned for submission in self._in_flight)

    def _drain(self) -> None:
        """The end of the process or of the last reference: committed work runs, its errors are reported.

        Work whose wait was given up with Ctrl-C may never end and is not waited for again.
        """
        self.reap()
        while self._in_flight and not self._abandoned():
            self._in_flight[-1]._wait_until(None)

    def __del__(self) -> None:
        if submissions.exiting or getattr(self, "_forked", True):
            return
        self._drain()
        tracing.forget_plans(self.backend)
        if not self._in_flight:
            self.backend.close()

    def __repr__(self) -> str:
        return f"Queue({self.name!r}, {len(self._in_flight)} in flight)"


def settle(queues: Iterable[Queue] | None = None) -> int:
    """Wait until what was submitted so far, to these queues or to all, is done and has reported; raises no error of it.

    Work whose wait was given up with Ctrl-C may never end, and is not waited for again; gives how much of it there is.
    """
    given_up = 0
    for queue in list(_queues) if queues is None else queues:
        if queue._forked:
            continue
        queue.reap()
        if queue._abandoned():
            given_up += len(queue._in_flight)
        elif queue._in_flight:
            queue._in_flight[-1]._wait_until(None)
            queue.reap()
    return given_up


def _finish_at_exit() -> None:
    # Who pressed Ctrl-C wants to leave, not to wait for work that may never end.
    interrupted = issubclass(getattr(sys, "last_type", None) or Exception, KeyboardInterrupt)
    try:
        for queue in list(_queues):
            if not queue._forked:
                queue.reap() if interrupted else queue._drain()
        for submission in list(submissions.failed):
            if not submission._queue._forked:
                submission._report()
    finally:
        submissions.exiting = True


def _disown_in_child() -> None:
    for queue in list(_queues):
        queue._forked = True
        queue.usable = False


atexit.register(_finish_at_exit)
os.register_at_fork(after_in_child=_disown_in_child)
