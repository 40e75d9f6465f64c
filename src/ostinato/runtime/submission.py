"""Committed work: one command buffer in the queue of a device.

An error of a submission is never lost: `wait`, `await` and reading a buffer that the submission used raise it,
`Submission.error` returns it, and every error that follows from it cites it. If none of that happened, an
`UnobservedError` warning reports it when the submission is dropped or the process ends.
"""

from __future__ import annotations

import math
import numbers
import signal
import time
import warnings
import weakref
from collections import Counter
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from .. import counters
from ..backends.protocol import Outcome, Run, Status
from ..base.copies import refuse_copy
from ..errors import (
    ArgumentError,
    DependencyFailed,
    DeviceLost,
    KernelCheckError,
    KernelFault,
    OstinatoError,
    UnobservedError,
)
from ..ir.command_list import CommandList
from ..ir.commands import Dispatch, Ordering
from . import kernel_log, tracing
from .kernel_log import LogMessage
from .tracing import Trace

if TYPE_CHECKING:
    from ..audit.findings import Finding
    from .queue import Queue

# A native wait cannot be interrupted, so it is cut into slices of this length, between which Ctrl-C is handled.
WAIT_SLICE_NS = 50_000_000

failed: weakref.WeakSet[Submission] = weakref.WeakSet()
"""Live submissions that ended with an error."""

_MOST_FINDINGS = 10
"""Findings in the text of an error."""

_NO_COMMANDS = CommandList((), Ordering.SERIAL)


class Submission:
    """One committed command buffer. Wait for it, `await` it, or ask whether it is done."""

    __slots__ = (
        "__weakref__",
        "_abandoned",
        "_blocked_by",
        "_commands",
        "_earlier",
        "_error",
        "_finishing",
        "_kept",
        "_log",
        "_log_dropped",
        "_observed",
        "_queue",
        "_run",
        "_status",
        "_timed_out",
        "_times",
        "_trace",
        "_use",
        "findings",
        "findings_lost",
        "label",
        "ordinal",
        "rebind_ns",
    )

    def __init__(
        self,
        queue: Queue,
        ordinal: int,
        commands: CommandList,
        keep: object,
        label: str | None,
    ) -> None:
        self._queue = queue
        self._run: Run | None = None  # until it has started
        self._commands = commands
        self._kept = keep
        self._status: Status | None = None
        self._finishing = False
        self._times: tuple[int, int] | None = None
        self._error: OstinatoError | None = None
        self._observed = False
        self._abandoned = False  # a wait for it was interrupted or cancelled
        self._timed_out = False  # a wait for it timed out
        self._blocked_by: KernelFault | None = None  # it uses memory that this fault left undefined
        self._trace: Trace | None = None
        self._log: tuple[LogMessage, ...] = ()
        self._log_dropped = 0
        self.label = label
        """The label it was committed with, or None."""
        self.ordinal = ordinal
        """Its number on this device, from 1."""
        self._earlier: tuple[Submission, ...] = ()  # earlier parts of the same replay of a split graph
        self._use: object = (
            None  # keeps the graph's `SharedUse` alive, so that reading its memory raises an error of it
        )
        self.findings: tuple[Finding, ...] = ()
        """What the checks of the device found, errors and notes; empty until it is done, and without checks."""
        self.findings_lost = 0
        """How many reports of the checks were dropped because the device's table of findings was full.

        Threads that do the same at the same place are one finding of the table, but are dropped one by one.
        """
        self.rebind_ns = 0
        """Host time spent on binding other buffers before it started."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is done; False when `timeout` seconds passed first. Raises its error if it failed.

        A timeout or Ctrl-C gives up the wait; the work goes on, and the device stays usable. Neither the exit of the
        process nor `Device.close` waits for work that is still running after a wait for it was given up.
        """
        quick = self._queue.quick
        if timeout is None and quick is not None and quick.wait(self):
            return True
        counters.add_sync()
        begin_ns = time.monotonic_ns() if self._trace is not None else 0
        try:
            if not self._wait_until(_deadline_ns(timeout)):
                self._timed_out = True
                return False
        finally:
            if begin_ns:
                tracing.host_span("wait", self.label or "", begin_ns, submission=(self._queue, self.ordinal))
        self._raise_error()
        return True

    @property
    def done(self) -> bool:
        """Whether it has ended, with or without an error. Never waits."""
        if self._status is None:
            self._queue.check_process()
            self._queue.reap()
        return self._status is not None

    @property
    def gpu_time(self) -> tuple[int, int] | None:
        """Start and end on the device, in ns of the monotonic clock; None until it is done, or if it never ran."""
        if not self.done or self._status is None or self._status.outcome is Outcome.NOT_RUN:
            return None
        last, first = self._own_times(), (self._earlier[0] if self._earlier else self)._own_times()
        return None if first is None or last is None else (first[0], last[1])

    def _own_times(self) -> tuple[int, int] | None:
        """Start and end of this part of a replay, read from the device on first use."""
        if self._times is None and self._status is not None and self._status.outcome is not Outcome.NOT_RUN:
            assert self._run is not None
            self._times = self._run.times()
        return self._times

    @property
    def error(self) -> OstinatoError | None:
        """Its error; None while it runs and if it succeeded."""
        return self._observe() if self.done else None

    @property
    def log(self) -> tuple[LogMessage, ...]:
        """What its kernels printed (os_log, printf), by command and in the order of threads; empty until it is done.

        At most `OSTINATO_LOG_BYTES` of records are kept; `log_dropped` counts the messages that did not fit.
        """
        return tuple(message for part in (*self._earlier, self) for message in part._log) if self.done else ()

    @property
    def log_dropped(self) -> int:
        """How many messages of its kernels did not fit into the log; 0 until it is done."""
        return sum(part._log_dropped for part in (*self._earlier, self)) if self.done else 0

    def __await__(self) -> Generator[Any, None, Submission]:
        return self._wait_in_loop().__await__()

    async def _wait_in_loop(self) -> Submission:
        import asyncio  # a program that awaits has loaded it already

        counters.add_sync()
        pause_s = 0.0
        try:
            while not self.done:
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s + 0.0001, 0.002)
        except BaseException:  # cancelled, interrupted, or never awaited again
            self._abandoned = not self.done
            raise
        self._raise_error()
        return self

    def _wait_until(self, deadline_ns: int | None) -> bool:
        if self._status is not None:
            return True
        self._queue.check_process()
        if self._run is None:
            with self._queue._lock:  # held by whoever is starting it
                pass
            if self._run is None:
                return True
        run = self._run
        slice_ns = WAIT_SLICE_NS
        try:
            while True:
                if deadline_ns is not None:
                    slice_ns = min(WAIT_SLICE_NS, max(deadline_ns - time.monotonic_ns(), 0))
                if run.wait(slice_ns):
                    break
                if deadline_ns is not None and time.monotonic_ns() >= deadline_ns:
                    return False
                self._queue.reap()  # after a fault the queue stops until the faulted submission is finished
        except KeyboardInterrupt:
            self._abandoned = True
            raise
        self._queue.reap_through(self)
        return True

    def _settle(self) -> None:
        """Wait on behalf of a buffer that it used; raises its error unless it was raised or read before."""
        begin_ns = time.monotonic_ns() if self._trace is not None else 0
        self._wait_until(None)
        if begin_ns:
            tracing.host_span("wait", self.label or "", begin_ns, submission=(self._queue, self.ordinal))
        if not self._seen():
            self._raise_error()

    def _raise_error(self) -> None:
        error = self._observe()
        if error is not None:
            raise error.with_traceback(None)

    def _observe(self) -> OstinatoError | None:
        """The error, marked as observed; of several failed parts, that of the first."""
        failed = [part for part in (*self._earlier, self) if part._error is not None]
        for part in failed:
            part._observed = True
            fault = _fault_of(part._error)
            if fault is not None:
                fault.note_told()
        return failed[0]._error if failed else None

    def _finish(self) -> None:
        """Record how it ended, and release what it kept. Called when it is done; may be called again."""
        with self._queue._lock:
            if self._status is not None or self._finishing:
                return
            self._finishing = True
            try:
                self._record_end()
            finally:
                self._finishing = False  # after an interrupt, the next call starts over

    def _record_end(self) -> None:
        assert self._run is not None
        status = self._run.status()
        error: OstinatoError | None = None
        faulted = status.outcome is Outcome.FAULTED
        if status.findings:
            from ..audit.kernels import findings_about

            self.findings = findings_about(self._commands.nodes, status.findings)
            self.findings_lost = status.findings_lost
        if faulted:
            error = self._describe_findings(status) if self.findings else self._describe_fault(status)
        if self._blocked_by is not None:
            error = self._describe_blocked(self._blocked_by)
            status = Status.unplaced(Outcome.NOT_RUN)
        elif status.outcome is Outcome.NOT_RUN:
            error = self._queue.not_run(self._title(), status.reason)
        if self._queue.prints and status.outcome is not Outcome.NOT_RUN:
            self._read_log()
        self._queue.finished(self, error, faulted)
        self._error, self._status = error, status
        if error is not None:
            failed.add(self)
        if self._trace is not None:
            error_text = None if error is None else str(error)
            tracing.finish(self._trace, self._own_times(), self._run, error_text)
            self._trace = None
        self._commands = _NO_COMMANDS
        self._kept = None

    def _read_log(self) -> None:
        assert self._run is not None
        log = self._run.log()
        if log is not None:
            self._log, log = kernel_log.read_log(log, self._commands)
            self._log_dropped = log.dropped
            kernel_log.show(self._log, log, self._title())

    def _describe_findings(self, status: Status) -> KernelFault:
        """The error for what the device's checks found."""
        node = self._commands.nodes[status.node] if 0 <= status.node < len(self._commands) else None
        shown = "\n".join(str(finding) for finding in self.findings[:_MOST_FINDINGS])
        more = len(self.findings) - _MOST_FINDINGS
        text = f"{self._title()}: {shown}" + (f"\n… and {more} more" if more > 0 else "")
        if self.findings_lost:
            text += f"\nthe table of findings was full; further reports that were dropped: {self.findings_lost:,}"
        kernel = None if node is None else node.name
        return KernelCheckError(text, self.findings, kernel, self.label, self.findings_lost)

    def _describe_fault(self, status: Status) -> KernelFault:
        if status.node < 0:
            return self._describe_unplaced(status)
        node = self._commands.nodes[status.node] if status.node < len(self._commands) else None
        name, scope = ("a command", None) if node is None else (node.name, node.label)
        try:
            signal_name = signal.Signals(status.signal).name
        except ValueError:
            signal_name = f"signal {status.signal}"
        where = f" in scope {scope!r}" if scope else ""
        thread = f", thread {status.thread}" if status.thread else ""
        reason = f"{_reason(signal_name, status)} ({signal_name})"
        return KernelFault(
            f"kernel {name!r}, command {status.node}{where} of {self._title()}{thread}: {reason}",
            kernel=name,
            label=self.label,
            signal=status.signal,
            address=status.address,
            thread=status.thread,
        )

    def _describe_blocked(self, fault: KernelFault) -> DependencyFailed:
        return DependencyFailed(
            f"{self._title()} has no results, because it uses memory that a fault left undefined ({fault}); overwrite"
            " those buffers (write, fill or copy) first, or accept() them as they are",
            fault,
        )

    def _describe_unplaced(self, status: Status) -> KernelFault:
        """The error for a fault that the device reports without naming the dispatch that caused it."""
        names = Counter(
            (f"{command.label}/" if command.label else "") + command.kernel.name
            for command in self._commands.commands
            if isinstance(command, Dispatch)
        )
        listed = ", ".join(f"{name} × {count}" if count > 1 else name for name, count in names.most_common(8))
        more = f" and {len(names) - 8} more" if len(names) > 8 else ""
        after_fault = self._queue.backend.capabilities.after_fault
        return KernelFault(
            f"{self._title()}: {status.reason or 'fault'}; in flight were {listed or 'no dispatches'}{more};"
            " `ostinato check` finds accesses outside of buffers" + (f"; {after_fault}" if after_fault else ""),
            kernel=next(iter(names)).rpartition("/")[2] if len(names) == 1 else "",
            label=self.label,
            signal=status.signal,
            address=status.address,
        )

    def _title(self) -> str:
        return f"submission {self.ordinal}" + (f" {self.label!r}" if self.label else "")

    def _seen(self) -> bool:
        """Whether the error, or the fault that it follows from, was raised or read."""
        if self._error is None or self._observed:
            return True
        fault = _fault_of(self._error)
        return fault is not None and fault.told

    def _report(self) -> None:
        if not self._seen():
            self._observed = True
            warnings.warn(f"this error was never observed: {self._error}", UnobservedError, stacklevel=2)

    def __del__(self) -> None:
        if not hasattr(self, "_status"):  # an interrupt came in __init__
            return
        # Unfinished here means that the whole device is garbage, and the queue finishes and releases it.
        if self._status is not None and not self._queue._forked:
            self._report()
            if not self._queue.exiting:
                assert self._run is not None
                self._run.release()

    __reduce_ex__ = refuse_copy

    def __repr__(self) -> str:
        if self._status is None:
            state = "running"
        elif self._error is not None:
            state = f"failed: {self._error}"
        else:
            times = self._own_times()
            state = "done" if times is None else f"done in {(times[1] - times[0]) / 1000:.1f} µs"
        return f"<Submission {self.ordinal} on {self._queue.name!r}{f' {self.label!r}' if self.label else ''}, {state}>"

    def _repr_html_(self) -> str:
        from .notebook import submission_html

        return submission_html(self)


def _fault_of(error: OstinatoError | None) -> KernelFault | None:
    """The fault that an error is or follows from; None if there is none."""
    if isinstance(error, DeviceLost | DependencyFailed):
        error = error.cause
    return error if isinstance(error, KernelFault) else None


def _reason(signal_name: str, status: Status) -> str:
    if status.access == "misaligned":
        return f"misaligned access to {status.address:#x}: a vector is read and written at a multiple of its size"
    if signal_name in ("SIGSEGV", "SIGBUS"):
        # The fault does not tell a buffer's memory from a stack, so both causes are named.
        where = f"access to {status.address:#x}" if status.address else "access to an unmapped address"
        return (
            f"{where}, outside its buffers"
            " (or its private arrays are too large for a thread's stack); `ostinato check` finds such accesses"
        )
    return {
        "SIGFPE": "integer division by zero or overflow",
        "SIGILL": "code with undefined behaviour, or an illegal instruction",
        "SIGTRAP": "integer division by zero, or code with undefined behaviour",
    }.get(signal_name, "fault")


def _deadline_ns(timeout: Any) -> int | None:
    """The end of a wait of `timeout` seconds on the monotonic clock; None for no limit."""
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
