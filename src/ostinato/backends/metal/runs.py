"""A submission of the Metal backend, from its start to its release, and how it ended.

Metal calls `completed` on a thread of its own when a command buffer is done: everything that can only be asked of the
command buffer (status, error text, times) is taken down there, so nothing is lost and nobody has to wait for it.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from ..protocol import Inferred, Memory
from .api import words
from .clocks import host_ns


class Run:
    """One command buffer."""

    __slots__ = (
        "bounded", "count", "error", "event", "failed_status", "inferred", "kept", "samples", "staging", "taken",
        "times",
    )  # fmt: skip

    def __init__(self, count: int, failed_status: int) -> None:
        self.count = count
        self.failed_status = failed_status
        self.event = threading.Event()
        self.error: str | None = None
        """Metal's own text, when it failed."""
        self.times: tuple[int, int] | None = None
        self.kept: Any = None
        """What must live until it is done, besides the memory of the caller."""
        self.staging: Memory | None = None
        """Where the values of a replay stand."""
        self.inferred: Inferred | None = None
        self.samples: Any = None
        self.bounded: np.ndarray | None = None
        self.taken: np.ndarray | None = None

    def completed(self, command_buffer: Any) -> None:
        """Called by Metal."""
        try:
            if command_buffer.status() == self.failed_status:
                self.error = words(command_buffer.error())
            start_s, end_s = command_buffer.GPUStartTime(), command_buffer.GPUEndTime()
            if start_s > 0 and end_s >= start_s:
                self.times = host_ns(start_s), host_ns(end_s)
        except BaseException as error:  # it cannot be raised into Metal
            self.error = f"the completion handler failed: {error!r}"
        finally:
            self.kept = None
            self.event.set()
