"""Private CPU devices on which an audit runs things that may go wrong.

A fault loses a device; the next run gets a fresh one. Kernels stay loaded for good, so what was compiled on a lost
device can be run on the next. Work that does not end within its limit, or whose wait was interrupted, is left behind
together with its device: nobody waits for it again, not even when the process ends, and its memory must be left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import settings
from ..backends import registry
from ..backends.protocol import Status
from ..device import Device, open_device
from ..encode.reencode import MovedKernels
from ..errors import KernelFault, OstinatoError
from ..ir.commands import Command, CompiledKernel, Dispatch, Ordering
from ..runtime.queue import keep_for_good
from ..runtime.submission import Submission


class TookTooLong(OstinatoError):
    """A run did not end within its limit."""


class SlowCommand(TookTooLong):
    """The run of one command, on what the ones before it left: whoever runs the list has to expect the same."""

    def __init__(self, message: str, node: int) -> None:
        super().__init__(message)
        self.node = node


class Runner:
    """Runs lists of commands on a device of its own, whatever they do to it."""

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._device: Device | None = None
        self._kernels: MovedKernels | None = None
        self._compiled: dict[tuple[int, str], CompiledKernel] = {}
        self.gave_up = False
        """Whether work of it was left behind, and may still use the memory that it was given."""

    def device(self) -> Device:
        """A device that can be used."""
        if self._device is None or not self._device._queue.usable:
            # The gate that overrides a device's name is for the program, not for its audit.
            with settings.override(device=None):
                self._device = open_device("cpu", **self._options)
            self._kernels = MovedKernels(self._device._queue)
        return self._device

    def kernel(self, dispatch: Dispatch) -> CompiledKernel:
        """The kernel of a dispatch, as compiled for this device."""
        key = (id(dispatch.kernel.origin), dispatch.kernel.name)
        if key not in self._compiled:
            self.device()
            assert self._kernels is not None
            self._compiled[key] = self._kernels.find(dispatch)._compiled
        return self._compiled[key]

    def run(self, commands: Sequence[Command], ordering: Ordering, limit_s: float) -> Status:
        """Run commands whose kernels are this device's, and wait. A fault is told by the status."""
        backend = self.device()._queue.backend
        return self.run_lowered(commands, [backend.lower(command) for command in commands], ordering, limit_s)

    def run_lowered(
        self, commands: Sequence[Command], lowered: Sequence[bytes], ordering: Ordering, limit_s: float
    ) -> Status:
        """The same for commands that are lowered already."""
        queue = self.device()._queue
        submission = queue.submit(
            commands,
            lambda handle: queue.backend.submit(lowered, ordering, handle),
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

    def _leave_behind(self, submission: Submission) -> None:
        submission._abandoned = True  # nobody shall wait for it when the process ends
        keep_for_good((self._device, submission))
        self._device = None
        self.gave_up = True

    def close(self) -> None:
        """End the device."""
        if self._device is not None:
            self._device.close()
            self._device = None


def cores() -> int:
    """How many workers a CPU device has."""
    capabilities, _ = registry.availability("cpu")
    return 1 if capabilities is None else capabilities.workers
