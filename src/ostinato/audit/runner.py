"""Private CPU devices on which an audit runs work that may crash or hang.

A fault loses a device; the next run opens a new one. Kernels stay loaded, so what was compiled on a lost device can run
on the next. Work that does not end within its limit, or whose wait was interrupted, is abandoned together with its
device: nothing waits for it again, not even at exit, and its memory must stay allocated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, cast

import numpy as np

from .. import settings
from ..backends import registry
from ..backends.protocol import Status
from ..device import Device, open_device
from ..encode.reencode import MovedKernels
from ..errors import KernelFault, OstinatoError
from ..ir.command_list import CommandList
from ..ir.commands import Command, CompiledKernel, Dispatch, Ordering
from ..runtime.queue import keep_for_good
from ..runtime.submission import Submission


class _Follows(Protocol):
    """What a CPU device that checks kernels can do beyond a backend."""

    def track(self, address: int, unwritten: np.ndarray) -> None: ...
    def read_unwritten(self, address: int, into: np.ndarray) -> None: ...


class TookTooLong(OstinatoError):
    """A run did not end within its limit."""


class SlowCommand(TookTooLong):
    """A single command of the list did not end within its limit."""

    def __init__(self, message: str, node: int) -> None:
        super().__init__(message)
        self.node = node


class Runner:
    """Runs command lists on a private device, and replaces the device if they crash it."""

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._device: Device | None = None
        self._kernels: MovedKernels | None = None
        self._compiled: dict[tuple[int, str], CompiledKernel] = {}
        self.gave_up = False
        """Whether work was abandoned, and may still use its memory."""

    def device(self) -> Device:
        """The private device; a new one if the last was lost."""
        if self._device is None or not self._device._queue.usable:
            # OSTINATO_DEVICE is for the program, not for its audit.
            with settings.override(device=None):
                self._device = open_device("cpu", **self._options)
            self._kernels = MovedKernels(self._device._queue)
        return self._device

    def kernel(self, dispatch: Dispatch) -> CompiledKernel:
        """The kernel of a dispatch, compiled for this device."""
        key = (id(dispatch.kernel.origin), dispatch.kernel.name)
        if key not in self._compiled:
            self.device()
            assert self._kernels is not None
            self._compiled[key] = self._kernels.find(dispatch)._compiled
        return self._compiled[key]

    def listed(self, commands: Iterable[Command], ordering: Ordering) -> CommandList:
        """A list of commands whose kernels are this device's."""
        return CommandList.of(commands, ordering, self.device()._queue.backend.lower)

    def run(self, commands: CommandList, limit_s: float) -> Status:
        """Run a list and wait. The status tells of a fault."""
        queue = self.device()._queue
        queue.prints = False  # the program's own run prints
        submission = queue.submit(
            commands,
            lambda started: queue.backend.submit(commands, started),
            uses=(),
            keep=None,
            label="audit",
        )
        try:
            if not submission.wait(limit_s):
                self._leave_behind(submission)
                raise TookTooLong(f"it did not end within {limit_s:g} s")
        except KernelFault:
            queue.close()
        except KeyboardInterrupt:
            self._leave_behind(submission)
            raise
        assert submission._status is not None
        return submission._status

    def run_following(
        self, commands: CommandList, limit_s: float, followed: Sequence[tuple[int, np.ndarray]]
    ) -> Status:
        """The same on a device that checks kernels, which follows what is written of some memory.

        `followed` has addresses and arrays of bools, true for bytes that nobody has written. They are updated if the
        list runs to its end.
        """
        backend = cast(_Follows, self.device()._queue.backend)
        for address, unwritten in followed:
            backend.track(address, np.ascontiguousarray(unwritten))
        status = self.run(commands, limit_s)
        if not status.failed:
            for address, unwritten in followed:
                backend.read_unwritten(address, unwritten)
                backend.track(address, unwritten[:0])
        return status

    def _leave_behind(self, submission: Submission) -> None:
        submission._abandoned = True  # not waited for at exit
        keep_for_good((self._device, submission))
        self._device = None
        self.gave_up = True

    def close(self) -> None:
        """Close the device."""
        if self._device is not None:
            self._device.close()
            self._device = None


def cores() -> int:
    """How many workers a CPU device has."""
    capabilities, _ = registry.availability("cpu")
    return 1 if capabilities is None else capabilities.workers
