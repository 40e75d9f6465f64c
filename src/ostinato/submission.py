"""Committed work: the device's one in-order queue, and the submissions in it.

`Queue` hands lists of commands to the backend and keeps every submission (and through it the memory it uses)
until the device is done with it; finished ones are let go at the next commit, allocation or wait, whether or
not anybody waits for them. It also knows whether the device can still be used: a fault loses it, `close` ends
it, and a fork leaves the child with something it must not touch.

An error of a submission is never lost: it is raised by `wait`, `await` and by reading a buffer that the
submission used, it can be read as `Submission.error`, every later use of the device cites it, and if none of
that happened it is reported as an `UnobservedError` warning when the submission is dropped or the process ends.
"""

from __future__ import annotations

import asyncio
import atexit
import itertools
import math
import numbers
import os
import signal
import sys
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Collection, Generator, Sequence
from typing import Any, Protocol

from . import counters, tracing
from .backends.protocol import Backend, Native, Status
from .commands import Command, Dispatch
from .copies import refuse_copy
from .errors import (
    ArgumentError,
    DeviceClosed,
    DeviceLost,
    ForkedDevice,
    KernelFault,
    OstinatoError,
    UnobservedError,
)
from .locks import ForkLock
from .residency import ResidencySet
from .tracing import Trace

# A native wait cannot be interrupted, so Ctrl-C is noticed between slices of this length.
_WAIT_SLICE_NS = 50_000_000

_queues: weakref.WeakSet[Queue] = weakref.WeakSet()
_failed: weakref.WeakSet[Submission] = weakref.WeakSet()
_exiting = False


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
        "name",
        "residency",
        "usable",
    )

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.name = backend.capabilities.name
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
                self.backend.wait(native, _WAIT_SLICE_NS)
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
        if _exiting or getattr(self, "_forked", True):
            return
        self._drain()
        tracing.forget_plans(self.backend)
        if not self._in_flight:
            self.backend.close()

    def __repr__(self) -> str:
        return f"Queue({self.name!r}, {len(self._in_flight)} in flight)"


class Submission:
    """One committed command buffer. Wait for it, `await` it, or ask whether it is done."""

    __slots__ = (
        "__weakref__",
        "_abandoned",
        "_commands",
        "_earlier",
        "_error",
        "_kept",
        "_native",
        "_observed",
        "_queue",
        "_status",
        "_trace",
        "_use",
        "label",
        "ordinal",
        "rebind_ns",
    )

    def __init__(
        self,
        queue: Queue,
        ordinal: int,
        commands: Sequence[Command],
        keep: object,
        label: str | None,
    ) -> None:
        self._queue = queue
        self._native: Native | None = None  # until it has started
        self._commands = commands
        self._kept = keep
        self._status: Status | None = None
        self._error: OstinatoError | None = None
        self._observed = False
        self._abandoned = False
        self._trace: Trace | None = None
        self.label = label
        """The label it was committed with, or None."""
        self.ordinal = ordinal
        """Its number on this device, from 1."""
        self._earlier: tuple[Submission, ...] = ()  # of the same replay, which a split graph makes in several parts
        self._use: object = None  # what the memory of a graph knows its last use by; an error can be found through it
        self.rebind_ns = 0
        """Host time that binding other buffers took before it started."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is done; False when `timeout` seconds passed first. Raises its error if it failed.

        Ctrl-C abandons the wait; the work goes on and the device is usable when it ends.
        """
        counters.add_sync()
        begin_ns = time.monotonic_ns() if self._trace is not None else 0
        try:
            if not self._wait_until(_deadline_ns(timeout)):
                return False
        finally:
            if begin_ns:
                tracing.host_span("wait", self.label or "", begin_ns, submission=(self._queue, self.ordinal))
        self._raise_error()
        return True

    @property
    def done(self) -> bool:
        """Whether the device is finished with it, well or not. Never waits."""
        if self._status is None:
            self._queue.check_process()
            self._queue.reap()
        return self._status is not None

    @property
    def gpu_time(self) -> tuple[int, int] | None:
        """When the device started and ended it, in ns of the monotonic clock; None until done, or if it never ran."""
        if not self.done or self._status is None or self._status.error == 2:
            return None
        first = self._earlier[0]._status if self._earlier else None
        return (first or self._status).start_ns, self._status.end_ns

    @property
    def error(self) -> OstinatoError | None:
        """What went wrong; None while it runs and if nothing did."""
        return self._observe() if self.done else None

    def __await__(self) -> Generator[Any, None, Submission]:
        return self._wait_in_loop().__await__()

    async def _wait_in_loop(self) -> Submission:
        counters.add_sync()
        pause_s = 0.0
        while not self.done:
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s + 0.0001, 0.002)
        self._raise_error()
        return self

    def _wait_until(self, deadline_ns: int | None) -> bool:
        if self._status is not None:
            return True
        self._queue.check_process()
        if self._native is None:
            with self._queue._lock:  # held by whoever is starting it
                pass
            if self._native is None:
                return True
        slice_ns = _WAIT_SLICE_NS
        try:
            while True:
                if deadline_ns is not None:
                    slice_ns = min(_WAIT_SLICE_NS, max(deadline_ns - time.monotonic_ns(), 0))
                if self._queue.backend.wait(self._native, slice_ns):
                    break
                if deadline_ns is not None and time.monotonic_ns() >= deadline_ns:
                    return False
        except KeyboardInterrupt:
            self._abandoned = True
            raise
        self._queue.reap_through(self)
        return True

    def _settle(self) -> None:
        """Wait on behalf of a buffer it used: its error surfaces here unless somebody has seen it already."""
        self._wait_until(None)
        if not self._seen():
            self._raise_error()

    def _raise_error(self) -> None:
        error = self._observe()
        if error is not None:
            raise error.with_traceback(None)

    def _observe(self) -> OstinatoError | None:
        """The error, of which somebody knows from now on; of several parts the first that failed has the cause."""
        failed = [part for part in (*self._earlier, self) if part._error is not None]
        for part in failed:
            part._observed = True
        return failed[0]._error if failed else None

    def _finish(self) -> None:
        """Take down how it ended, and let go of what it held. Called when it is done; more than once is harmless."""
        with self._queue._lock:
            if self._status is not None:
                return
            status = self._queue.backend.status(self._native)
            error: OstinatoError | None = None
            if status.error == 1:
                error = self._describe_fault(status)
            elif status.error:
                cause = self._queue._fault
                error = DeviceLost(f"{self._title()} was not run: the device was lost: {cause}", cause)
            if self._status is not None:
                return
            self._error, self._status = error, status
            if error is not None:
                _failed.add(self)
            if isinstance(error, KernelFault):
                self._queue._lost(error)
            if self._trace is not None:
                ran = status.error != 2
                tracing.finish(
                    self._trace,
                    status.start_ns if ran else None,
                    status.end_ns if ran else None,
                    self._native,
                    None if error is None else str(error),
                )
                self._trace = None
            self._commands = ()
            self._kept = None

    def _describe_fault(self, status: Status) -> KernelFault:
        command = self._commands[status.node] if status.node < len(self._commands) else None
        name = command.kernel.name if isinstance(command, Dispatch) else type(command).__name__.lower()
        scope = getattr(command, "label", None)
        try:
            signal_name = signal.Signals(status.signal).name
        except ValueError:
            signal_name = f"signal {status.signal}"
        # Where in a kernel's memory an address lies is not known here, so both causes are named.
        access = (
            f"access to {status.address:#x}, outside its buffers"
            " (or its private arrays are too large for a thread's stack)"
        )
        reason = {
            "SIGFPE": "integer division by zero or overflow",
            "SIGSEGV": access,
            "SIGBUS": access,
            "SIGILL": "illegal instruction",
        }.get(signal_name, "fault")
        where = f" in scope {scope!r}" if scope else ""
        return KernelFault(
            f"kernel {name!r}, command {status.node}{where} of {self._title()}: {reason} ({signal_name})",
            kernel=name,
            label=self.label,
            signal=status.signal,
            address=status.address,
        )

    def _title(self) -> str:
        return f"submission {self.ordinal}" + (f" {self.label!r}" if self.label else "")

    def _seen(self) -> bool:
        """Whether somebody knows of the error: of this one, or of the fault that it follows from."""
        if self._error is None or self._observed:
            return True
        fault = self._error.cause if isinstance(self._error, DeviceLost) else self._error
        return self._queue._fault_seen and fault is self._queue._fault

    def _report(self) -> None:
        if not self._seen():
            self._observed = True
            warnings.warn(f"nobody looked at this error: {self._error}", UnobservedError, stacklevel=2)

    def __del__(self) -> None:
        if not hasattr(self, "_status"):  # an interrupt came while it was made
            return
        # Unfinished here means that the whole device is garbage: the queue finishes and releases then.
        if self._status is not None and not self._queue._forked:
            self._report()
            if not _exiting:
                self._queue.backend.release(self._native)

    __reduce_ex__ = refuse_copy

    def __repr__(self) -> str:
        if self._status is None:
            state = "running"
        elif self._error is not None:
            state = f"failed: {self._error}"
        else:
            state = f"done in {(self._status.end_ns - self._status.start_ns) / 1000:.1f} µs"
        return f"<Submission {self.ordinal} on {self._queue.name!r}{f' {self.label!r}' if self.label else ''}, {state}>"


def _deadline_ns(timeout: Any) -> int | None:
    """When a wait of so many seconds ends; None for never."""
    if timeout is None:
        return None
    try:
        seconds = float(timeout) if isinstance(timeout, numbers.Real) else math.nan
    except OverflowError:
        seconds = math.inf if timeout > 0 else -math.inf
    if math.isnan(seconds):
        raise ArgumentError(f"wait: a timeout is a number of seconds or None, not {timeout!r}")
    nanoseconds = max(seconds, 0.0) * 1e9
    return None if math.isinf(nanoseconds) else time.monotonic_ns() + int(nanoseconds)


def settle() -> None:
    """Wait until all that was submitted so far, on any device, is done and has reported. Raises none of its errors."""
    for queue in list(_queues):
        if not queue._forked and queue._in_flight:
            queue._in_flight[-1]._wait_until(None)
            queue.reap()


def _finish_at_exit() -> None:
    global _exiting
    # Who pressed Ctrl-C wants to leave, not to wait for work that may never end.
    interrupted = issubclass(getattr(sys, "last_type", None) or Exception, KeyboardInterrupt)
    try:
        for queue in list(_queues):
            if not queue._forked:
                queue.reap() if interrupted else queue._drain()
        for submission in list(_failed):
            if not submission._queue._forked:
                submission._report()
    finally:
        _exiting = True


def _disown_in_child() -> None:
    for queue in list(_queues):
        queue._forked = True
        queue.usable = False


atexit.register(_finish_at_exit)
os.register_at_fork(after_in_child=_disown_in_child)
