"""A submission of the Metal backend, from its start to its release, and how it ended.

Metal calls `completed` on a thread of its own when a command buffer is done. Everything that only the command buffer
knows (status, error text, times) is recorded there, so that nothing is lost and nothing waits for it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.ordering import NOT_INFERRED, Inferred
from ..protocol import Log, Memory, Outcome, Status, WorkerTime
from .api import error_text
from .clocks import host_ns

if TYPE_CHECKING:
    from .driver import MetalBackend

# Metal's error for a command buffer that did not finish because of another one's fault.
_NOT_RUN_WORDS = ("SubmissionsIgnored", "InnocentVictim")


class MetalRun:
    """One command buffer."""

    __slots__ = (
        "_backend", "_bounded", "_failed_status", "_inferred", "_samples", "_times", "count", "error", "event", "kept",
        "sampled", "staging",
    )  # fmt: skip

    def __init__(
        self, backend: MetalBackend, count: int, failed_status: int, inferred: Inferred = NOT_INFERRED
    ) -> None:
        self._backend = backend
        self._failed_status = failed_status
        self._inferred = inferred
        self._times: tuple[int, int] | None = None
        self._samples: np.ndarray | None = None
        self._bounded: np.ndarray | None = None
        self.count = count
        self.event = threading.Event()
        self.error: str | None = None
        """Metal's error text, if it failed."""
        self.kept: Any = None
        """Objects to keep alive until it is done, besides the caller's memory."""
        self.staging: Memory | None = None
        """The memory with the values of a replay."""
        self.sampled: Any = None
        """Its samples (`counters.Taken`), until they are read."""

    def completed(self, command_buffer: Any) -> None:
        """Called by Metal."""
        try:
            if command_buffer.status() == self._failed_status:
                self.error = error_text(command_buffer.error())
            start_s, end_s = command_buffer.GPUStartTime(), command_buffer.GPUEndTime()
            if start_s > 0 and end_s >= start_s:
                self._times = host_ns(start_s), host_ns(end_s)
        except BaseException as error:  # must not propagate into Metal
            self.error = f"the completion handler failed: {error!r}"
        finally:
            self.kept = None
            self.event.set()

    def wait(self, timeout_ns: int) -> bool:
        """Wait until Metal reports that it is done."""
        return self.event.is_set() if not timeout_ns else self.event.wait(timeout_ns / 1e9)

    def status(self) -> Status:
        """Done, or from Metal's error: faulted, or not run because of another fault."""
        if self.staging is not None:
            self._backend.staging.give_back(self.staging)
            self.staging = None
        if self.error is None:
            return Status.unplaced(Outcome.DONE)
        not_run = any(word in self.error for word in _NOT_RUN_WORDS)
        return Status.unplaced(Outcome.NOT_RUN if not_run else Outcome.FAULTED, self.error)

    def inferred(self) -> Inferred:
        """The inferred order of its commands."""
        return self._inferred

    def times(self) -> tuple[int, int] | None:
        """The times of its command buffer; None when it failed."""
        return self._times if self.error is None and not self._backend.no_times else None

    def samples(self) -> np.ndarray | None:
        """Its samples in host time, resolved on first use."""
        if self.sampled is not None:
            sampled, self.sampled = self.sampled, None
            ticks, self._bounded = self._backend.resolved(sampled, self.count)
            self._samples = self._backend.host_ns_of(ticks)
            self._samples[(ticks == 0) | (self.error is not None)] = 0
        return self._samples

    def bounded(self) -> np.ndarray | None:
        """The commands that were timed together with others."""
        return self._bounded

    def worker_time(self) -> WorkerTime | None:
        """None: a GPU does not report it."""
        return None

    def log(self) -> Log | None:
        """None: its kernels do not print."""
        return None

    def release(self) -> None:
        """Return its sample buffers for reuse."""
        self.samples()
