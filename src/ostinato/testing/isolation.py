"""Running a kernel in a child process, so that a fault or a kernel that never ends costs that process only.

The child (`isolated_runs`) opens the device once and serves one job after the other; a new one is started after a
fault, a timeout or a crash. A job is one line of JSON; the contents of buffers go through files in a private folder,
which the child overwrites with the results.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import errors
from ..base.locks import ForkLock
from ..errors import DeviceError, KernelFault, OstinatoError

_START_S = 120.0
"""For opening the device and compiling, beside the time that the kernel itself may take."""


class TookTooLong(Exception):
    """The kernel did not end in time; the text says what that means for what follows."""


@dataclass(frozen=True, slots=True)
class Job:
    """One dispatch, as plain data."""

    device: str
    source: str
    constants: list[tuple[int | str, bool | int | float]]
    cuda: str | None
    """CUDA source for some of its kernels."""
    kernel: str
    inline: dict[int, str]
    """Values that are not buffers: their bytes in hexadecimal, by index."""
    threads: tuple[int, int, int]
    group_size: tuple[int, int, int]
    shared: dict[int, int]


def run_isolated(job: Job, arrays: Mapping[int, np.ndarray], timeout_s: float) -> dict[int, np.ndarray]:
    """The contents of the buffers after the job has run on them in a child process."""
    with tempfile.TemporaryDirectory(prefix="ostinato-") as folder, _lock:
        for index, array in arrays.items():
            (Path(folder) / str(index)).write_bytes(array.tobytes())
        request = asdict(job) | {"folder": folder, "buffers": list(arrays), "timeout_s": timeout_s}
        key = os.getpid(), job.device
        child = _children.get(key) or _children.setdefault(key, _Child(job.device))
        try:
            reply = child.ask(request, timeout_s + _START_S)
            if reply["outcome"] == "timeout":
                raise TookTooLong(f"it still ran after {timeout_s:g} s; its process was ended")
        except BaseException:
            child.end()
            del _children[key]
            raise
        if reply["outcome"] == "error":
            kind = getattr(errors, reply["type"], DeviceError)
            if not reply["usable"]:
                child.end()
                del _children[key]
            raise kind(reply["message"]) if issubclass(kind, OstinatoError) else DeviceError(reply["message"])
        return {
            index: np.frombuffer((Path(folder) / str(index)).read_bytes(), array.dtype).reshape(array.shape)
            for index, array in arrays.items()
        }


class _Child:
    """The process of one device."""

    def __init__(self, device: str) -> None:
        # It finds what this process finds, such as backends that a conftest.py puts on the path.
        kept = {
            name: value
            for name, value in os.environ.items()
            if name != "OSTINATO_DEVICE" and not name.startswith("OSTINATO_PROFILE")
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ostinato.testing.isolated_runs", device],
            env=kept | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def ask(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        """The reply to a request."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        deadline, received = time.monotonic() + limit_s, b""
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._death(request["kernel"]) from None
        while not received.endswith(b"\n"):
            ready, _, _ = select.select([self._process.stdout], [], [], max(deadline - time.monotonic(), 0.0))
            if not ready:
                raise TookTooLong(f"its process gave no answer within {limit_s:g} s and was ended")
            piece = os.read(self._process.stdout.fileno(), 1 << 16)
            if not piece:
                raise self._death(request["kernel"])
            received += piece
        reply: dict[str, Any] = json.loads(received)
        return reply

    def _death(self, kernel: str) -> KernelFault:
        status = self._process.wait()
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        return KernelFault(f"kernel {kernel!r} ended the process that ran it ({how})", kernel)

    def end(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.communicate()


_lock = ForkLock()
_children: dict[tuple[int, str], _Child] = {}


@atexit.register
def _end_all() -> None:
    for (process, _), child in _children.items():
        if process == os.getpid():
            child.end()
