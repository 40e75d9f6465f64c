"""The in-order queue of a device.

`Queue` passes lists of commands to the backend and keeps every submission (and through it the memory it uses)
until the device is done with it. Finished submissions are dropped at the next commit, allocation or wait, whether or
not anyone waits for them. The queue also knows whether the device is usable: not after `close`, not in a forked child,
and on some devices not after a fault.

On the other devices a fault ends only its submission. `FaultMarks` tells which memory it leaves undefined, and so which
submissions, in flight or committed later, depend on it; those are not run, the others are.

At exit the process waits for committed work, except for work that was still running after a wait was given up: it may
never end. Its memory is then never released, because the device still uses it.
"""

from __future__ import annotations

import atexit
import ctypes
import math
import os
import sys
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, ClassVar, Protocol

from .. import settings
from ..backends.protocol import Backend, Run
from ..base.locks import ForkLock
from ..errors import (
    ArgumentError,
    DependencyFailed,
    DeviceClosed,
    DeviceLost,
    ForkedDevice,
    KernelFault,
    OstinatoError,
    SettingError,
)
from ..ir.command_list import CapturedNode, CommandList
from ..ir.commands import Barrier, Ordering
from . import submission as submissions
from . import tracing
from .fault_marks import FaultMarks
from .residency import ResidencySet
from .submission import WAIT_SLICE_NS, Submission
from .tracing import Trace
from .tuned import Choices

EXIT_WAIT_S = 60.0
"""How long the process waits for committed work at exit; OSTINATO_EXIT_WAIT overrides it."""
EXIT_NOTE_S = 5.0
"""After how long it prints that it is waiting."""

_queues: weakref.WeakSet[Queue] = weakref.WeakSet()
_opened: Counter[str] = Counter()
"""How many devices of each name this process has opened."""


class OnQueue(Protocol):
    """An object with a queue, such as a `Device`; for modules in the layers below the device."""

    @property
    def _queue(self) -> Queue: ...


def queue_of(device: Any, what: str) -> Queue:
    """The queue of a device that a caller passed; raises for anything else."""
    queue = getattr(device, "_queue", None)
    if not isinstance(queue, Queue):
        raise ArgumentError(f"{what}: expected an open Device, got {type(device).__name__}")
    return queue


class Used(Protocol):
    """Something that refers to the last submission that used it: a block of memory, or all memory of a graph."""

    last_use: weakref.ref[Submission] | None


class Queue:
    """The in-order queue of one device."""

    exiting: ClassVar[bool] = False
    """Whether the process is exiting; native objects are no longer released then. Finalisers may run when the
    interpreter has cleared the names of this module, so it is not one of them."""

    __slots__ = (
        "__weakref__",
        "_closed",
        "_fault",
        "_forked",
        "_in_flight",
        "_lock",
        "backend",
        "barrier",
        "marks",
        "name",
        "number",
        "options",
        "prints",
        "quick",
        "residency",
        "submitted",
        "tuned",
        "usable",
    )

    def __init__(self, backend: Backend, options: Mapping[str, Any] | None = None) -> None:
        self.backend = backend
        self.options = dict(options or {})
        """What its device was opened with."""
        self.name = backend.capabilities.name
        _opened[self.name] += 1
        self.number = _opened[self.name]
        """Counts the devices of this name that the process has opened, from 1."""
        barrier = Barrier()
        self.barrier = CapturedNode(barrier, lowered=backend.lower(barrier))
        self.residency = ResidencySet(backend.update_residency)
        self.marks = FaultMarks()
        self.tuned: Choices | None = None
        """Choices that operations prefer to their own rules."""
        self.prints = False
        """Whether a kernel of it may print."""
        self.usable = True
        self.quick: Any = None
        """Native code that ends submissions without Python (graph/starting.py); None without."""
        self._fault: KernelFault | None = None  # the last
        self._closed = False
        self._forked = False
        self._in_flight: deque[Submission] = deque()
        self.submitted = 0
        """How many lists were submitted, started or not."""
        self._lock = ForkLock()
        _queues.add(self)

    @property
    def title(self) -> str:
        """The name of its device, with a number if the process opened an earlier device of that name."""
        return repr(self.name) if self.number == 1 else f"{self.name!r} #{self.number}"

    def submit(
        self,
        commands: CommandList,
        start: Callable[[list[Run]], None],
        *,
        uses: Collection[Used],
        keep: object,
        label: str | None,
        trace: Trace | None = None,
    ) -> Submission:
        """Submit commands, to run after everything submitted before.

        `start` passes them to the backend, with the contract of `Backend.submit`. `uses` is the memory they use, and
        `keep` is kept alive until the work is done.
        """
        self.reap()
        with self._lock:
            if not self.usable:
                self.check()
            self.residency.flush()
            self.submitted += 1
            submission = Submission(self, self.submitted, commands, keep, label)
            submission._blocked_by = self.marks.commit(commands) if self.marks else None
            if submission._blocked_by is not None:
                # An empty list takes its place in the queue, so that it ends in order without running.
                start = self._start_nothing
                if trace is not None:
                    trace.sampled = False
            if trace is not None:
                submission._trace = trace
                trace.ordinal = submission.ordinal
                trace.commit_begin_ns = time.monotonic_ns()
            started: list[Run] = []
            # Ctrl-C may come between any two of these steps, so everything that keeps the memory alive is in place
            # before the work starts, and `started` alone tells whether it did.
            try:
                self._in_flight.append(submission)
                this_use = weakref.ref(submission)
                for used in uses:
                    used.last_use = this_use
                block = self.backend.annotated(label)
                if block is None:
                    start(started)
                else:
                    with block:
                        start(started)
            finally:
                if started:
                    submission._run = started[0]
                else:
                    self._withdraw(submission, uses)
                if trace is not None:
                    trace.commit_end_ns = time.monotonic_ns()
        return submission

    def _withdraw(self, submission: Submission, uses: Collection[Used]) -> None:
        """Drop a submission that did not start. The one before it in the queue becomes the last use again."""
        if submission in self._in_flight:
            self._in_flight.remove(submission)
        if self.marks:
            self._judge_again()
        before = weakref.ref(self._in_flight[-1]) if self._in_flight else None
        for used in uses:
            used.last_use = before

    def _start_nothing(self, started: list[Run]) -> None:
        self.backend.submit(CommandList((), Ordering.SERIAL), started)

    def finished(self, submission: Submission, error: OstinatoError | None, faulted: bool) -> None:
        """Handle the end of the first submission in flight: an error of it may keep later ones from running.

        Called once per submission, with the lock held. The backend resumes once per fault, and stops its queue again
        at the next one.
        """
        if isinstance(error, KernelFault):
            self._fault = error.to_cite()
        if self.backend.capabilities.after_fault:
            self.usable = self.usable and error is None
            return
        fault = error.cause if isinstance(error, DependencyFailed) else self._fault if error is not None else None
        self.marks.finish(submission._commands, fault)
        known = error is None or submission._blocked_by is not None
        newly_blocked = [] if known else self._judge_again(submission)
        if faulted:
            self.backend.resume(newly_blocked)

    def _judge_again(self, finished: Submission | None = None) -> list[Run]:
        """Find the submissions in flight that use memory left undefined by a fault; returns the newly blocked runs."""
        in_flight = [submission for submission in self._in_flight if submission is not finished]
        faults = self.marks.judge_again([(submission._commands, submission._blocked_by) for submission in in_flight])
        newly_blocked = []
        for submission, fault in zip(in_flight, faults, strict=True):
            if fault is not submission._blocked_by:
                submission._blocked_by = fault
                if submission._run is not None:
                    newly_blocked.append(submission._run)
        return newly_blocked

    def not_run(self, title: str, reason: str) -> OstinatoError:
        """The error of a submission that the device refused after a fault."""
        fault = self._fault
        if not self.backend.capabilities.after_fault:
            why = f" ({reason})" if reason else ""
            return DependencyFailed(f"{title} was not run{why}; it follows a fault: {fault}", fault)
        return DeviceLost(f"{title} was not run: the device was lost: {fault}", fault)

    def reap(self) -> None:
        """Drop submissions that are done. They finish in order, so the loop stops at the first unfinished one."""
        if self._in_flight and not self._forked and (self.quick is None or not self.quick.reap()):
            self._reap_by_python()

    def _reap_by_python(self) -> None:
        with self._lock:
            while self._in_flight:
                first = self._in_flight[0]
                if first._run is None or not first._run.wait(0):
                    break
                first._finish()
                if first._status is None:
                    break  # this is a finaliser that interrupted the thread finishing it
                # A finaliser that ran in between may have removed it.
                if self._in_flight and self._in_flight[0] is first:
                    self._in_flight.popleft()

    def reap_through(self, submission: Submission) -> None:
        """Drop everything up to a submission that is done.

        The submissions before it are done too, or about to be, and are finished first: one of them may have the fault
        for which the others were not run.
        """
        self.reap()
        while submission._status is None and self._in_flight:
            run = self._in_flight[0]._run
            if run is not None:
                run.wait(WAIT_SLICE_NS)
            self.reap()

    def check(self) -> None:
        """Raise unless the device can be used."""
        if not self.usable:
            self.check_process()
            if self._fault is not None and self.backend.capabilities.after_fault:
                self._fault.note_told()
                raise DeviceLost(f"device {self.name!r} was lost: {self._fault}", self._fault)
            raise DeviceClosed(f"device {self.name!r} was closed")

    def check_process(self) -> None:
        """Raise in a forked child. A lost or closed device passes: its memory can still be read."""
        if self._forked:
            raise ForkedDevice(
                f"device {self.name!r} belongs to the parent of this process; a forked child must open its own"
                " (or be started with the 'spawn' method)"
            )

    def close(self) -> None:
        """Finish submitted work, unless a wait for it was given up, and refuse new work from now on.

        The native device is released with the last object that needs it, so a waiting thread is never cut off.
        """
        self.check_process()
        self.usable = False
        self._closed = True
        self._drain()

    @property
    def in_flight_count(self) -> int:
        """Number of submissions that are not known to be done."""
        self.reap()
        return len(self._in_flight)

    def _abandoned(self) -> bool:
        return any(submission._abandoned or submission._timed_out for submission in tuple(self._in_flight))

    def _drain(self, deadline_ns: int | None = None) -> bool:
        """Wait for committed work, unless a wait for it was given up; False when the deadline came first."""
        self.reap()
        while (pending := tuple(self._in_flight)) and not self._abandoned():
            if not pending[-1]._wait_until(deadline_ns):
                return False
        return True

    def __del__(self) -> None:
        if self.exiting or getattr(self, "_forked", True):
            return
        self._drain()
        tracing.forget_lists(self.backend)
        if self._in_flight:
            keep_for_good(self)
        else:
            self.backend.close()

    def __repr__(self) -> str:
        return f"Queue({self.name!r}, {len(self._in_flight)} in flight)"


def settle(queues: Iterable[Queue] | None = None) -> int:
    """Wait until all work submitted so far, to these queues or to all, is done and traced; does not raise its errors.

    Work is not waited for if an earlier wait for it was interrupted. If an earlier wait timed out, it gets as long as
    at exit. Returns the number of submissions that are still running.
    """
    left = 0
    for queue in list(_queues) if queues is None else queues:
        if queue._forked:
            continue
        queue.reap()
        if not queue._in_flight:
            continue
        interrupted = any(submission._abandoned for submission in queue._in_flight)
        limit_s = settings.seconds("exit_wait", EXIT_WAIT_S) if queue._abandoned() else math.inf
        deadline_ns = None if math.isinf(limit_s) else time.monotonic_ns() + int(limit_s * 1e9)
        if interrupted or not queue._in_flight[-1]._wait_until(deadline_ns):
            left += len(queue._in_flight)
        queue.reap()
    return left


def settle_at_exit() -> None:
    """Wait for committed work of every device before the process ends, for no longer than the `exit_wait` setting.

    What is left counts as abandoned afterwards, so that nothing waits for it again.
    """
    # After Ctrl-C the process exits at once.
    interrupted = issubclass(getattr(sys, "last_type", None) or Exception, KeyboardInterrupt)
    try:
        limit_s = 0.0 if interrupted else settings.seconds("exit_wait", EXIT_WAIT_S)
    except SettingError as error:
        limit_s = EXIT_WAIT_S
        _say(str(error))
    begin_ns = time.monotonic_ns()
    note_ns = begin_ns + int(min(EXIT_NOTE_S, limit_s) * 1e9)
    end_ns = None if math.isinf(limit_s) else begin_ns + int(limit_s * 1e9)
    queues = [queue for queue in list(_queues) if not queue._forked]
    try:
        drained = [queue._drain(note_ns) for queue in queues]
        if not all(drained) and limit_s > EXIT_NOTE_S:
            limit = "until they end" if end_ns is None else f"for up to {limit_s:g} s"
            _say(f"waiting {limit} for {_unfinished(queues)} before exiting; OSTINATO_EXIT_WAIT sets the limit")
            for queue in queues:
                queue._drain(end_ns)
    except KeyboardInterrupt:
        pass
    given_up = [queue for queue in queues if queue._in_flight and not queue._abandoned()]
    if given_up and limit_s:
        _say(f"exiting without waiting any longer for {_unfinished(given_up)}")
    for queue in queues:
        for submission in queue._in_flight:
            submission._abandoned = True


def _unfinished(queues: Iterable[Queue]) -> str:
    return " and ".join(
        f"{len(queue._in_flight)} submission{'s' if len(queue._in_flight) > 1 else ''} on {queue.name!r}"
        for queue in queues
        if queue._in_flight
    )


def _say(sentence: str) -> None:
    if sys.stderr is not None:
        print(f"ostinato: {sentence}", file=sys.stderr, flush=True)


def keep_for_good(thing: object) -> None:
    """Keep an object alive even when the interpreter clears its modules: a device still uses its memory."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _finish_at_exit() -> None:
    try:
        settle_at_exit()
        for submission in list(submissions.failed):
            if not submission._queue._forked:
                submission._report()
    finally:
        Queue.exiting = True
        for queue in list(_queues):
            if queue._in_flight and not queue._forked:
                keep_for_good(queue)


def _disown_in_child() -> None:
    for queue in list(_queues):
        queue._forked = True
        queue.usable = False


atexit.register(_finish_at_exit)
os.register_at_fork(after_in_child=_disown_in_child)
