"""A device's one in-order queue.

`Queue` hands lists of commands to the backend and keeps every submission (and through it the memory it uses)
until the device is done with it; finished ones are let go at the next commit, allocation or wait, whether or
not anybody waits for them. It also knows whether the device can still be used: `close` ends it, a fork leaves the child
with something it must not touch, and on some devices a fault loses it.

On the others a fault ends its submission. `FaultMarks` says which memory it leaves behind, and so which submissions,
queued behind it or committed later, depend on it; those are not run, and the others are.

The end of the process waits for committed work, except for work that has outlived a wait that was given up: it may
never end. Its memory is then kept to the last, because the device still uses it.
"""

from __future__ import annotations

import atexit
import ctypes
import itertools
import math
import os
import sys
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable
from typing import Any, Protocol

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

EXIT_WAIT_S = 60.0
"""How long the end of the process waits for committed work, unless OSTINATO_EXIT_WAIT says otherwise."""
EXIT_NOTE_S = 5.0
"""After how long it says so."""

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
        "_forked",
        "_in_flight",
        "_lock",
        "_ordinals",
        "backend",
        "barrier",
        "marks",
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
        barrier = Barrier()
        self.barrier = CapturedNode(barrier, lowered=backend.lower(barrier))
        self.residency = ResidencySet(backend.update_residency)
        self.marks = FaultMarks()
        self.usable = True
        self._fault: KernelFault | None = None  # the last
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
        commands: CommandList,
        start: Callable[[list[Run]], None],
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
            submission._blocked_by = self.marks.commit(commands) if self.marks else None
            if submission._blocked_by is not None:
                # It takes its place in the queue, so that it ends when its turn comes, and nothing of it runs.
                start = self._start_nothing
                if trace is not None:
                    trace.sampled = False
            if trace is not None:
                submission._trace = trace
                trace.ordinal = submission.ordinal
                trace.commit_begin_ns = time.monotonic_ns()
            started: list[Run] = []
            # Ctrl-C may come between any two of these steps, so all that keeps the memory is in place before the
            # work starts, and whether it did is known from that list alone.
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
        """Forget a submission that did not start. What came before it in the queue is then the last use again."""
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
        """The first of the submissions in flight has ended: what its error, if it has one, means for those behind it.

        Called with the lock held, once for each. The backend resumes once for each fault: behind the next one it holds
        its queue back again.
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
        """Find out which submissions in flight depend on what was left behind; gives those that did not before."""
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
        """Let go of submissions that are done. They finish in order, so the first unfinished one ends it."""
        if not self._in_flight or self._forked:
            return
        with self._lock:
            while self._in_flight:
                first = self._in_flight[0]
                if first._run is None or not first._run.wait(0):
                    break
                first._finish()
                if first._status is None:
                    break  # whoever takes it down has been interrupted by a finaliser, which is this one
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
        """Raise in a forked child; what only reads memory is still possible on a lost or closed device."""
        if self._forked:
            raise ForkedDevice(
                f"device {self.name!r} belongs to the parent of this process; a forked child must open its own"
                " (or be started with the 'spawn' method)"
            )

    def close(self) -> None:
        """Finish what was submitted, unless a wait for it was given up, and refuse everything from now on.

        The native device goes when the last object that needs it goes, so a waiting thread is never cut off.
        """
        self.check_process()
        self.usable = False
        self._closed = True
        self._drain()

    @property
    def in_flight_count(self) -> int:
        """Submissions not yet seen to be done."""
        self.reap()
        return len(self._in_flight)

    def _abandoned(self) -> bool:
        return any(submission._abandoned or submission._timed_out for submission in tuple(self._in_flight))

    def _drain(self, deadline_ns: int | None = None) -> bool:
        """Wait until committed work has run, if it can be expected to end; False when the deadline came first."""
        self.reap()
        while (pending := tuple(self._in_flight)) and not self._abandoned():
            if not pending[-1]._wait_until(deadline_ns):
                return False
        return True

    def __del__(self) -> None:
        if submissions.exiting or getattr(self, "_forked", True):
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
    """Wait until what was submitted so far, to these queues or to all, is done and has reported; raises no error of it.

    Work whose wait was interrupted may never end, and is not waited for again. Work that outlived a timeout may have
    been asked after too early, and gets as long as the end of the process would wait. Gives how much is left.
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
    """Wait for committed work of every device before the process ends, but for no longer than the setting says.

    What is left counts as given up afterwards, so that nobody waits for it a second time.
    """
    # Who pressed Ctrl-C wants to leave, not to wait for work that may never end.
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
    """Never let go of it, not even when the interpreter clears its modules: a device still uses its memory."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _finish_at_exit() -> None:
    try:
        settle_at_exit()
        for submission in list(submissions.failed):
            if not submission._queue._forked:
                submission._report()
    finally:
        submissions.exiting = True
        for queue in list(_queues):
            if queue._in_flight and not queue._forked:
                keep_for_good(queue)


def _disown_in_child() -> None:
    for queue in list(_queues):
        queue._forked = True
        queue.usable = False


atexit.register(_finish_at_exit)
os.register_at_fork(after_in_child=_disown_in_child)
