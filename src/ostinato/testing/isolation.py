"""Running a kernel in a child process, so that a fault or a kernel that never ends costs that process only.

The child (`isolated_runs`) opens the device once and serves one job after the other; a new one is started after a
fault, a timeout or a crash. The contents of buffers go through files in a private folder, which the child overwrites
with the results.
"""

from __future__ import annotations

import atexit
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from .. import errors
from ..base.children import Child, ChildEnded, NoAnswer
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
        child = _children.get(key) or _children.setdefault(key, Child("ostinato.testing.isolated_runs"))
        usable = False
        try:
            reply = child.ask(request, timeout_s + _START_S)
            usable = reply["outcome"] == "done" or reply.get("usable", False)
        except ChildEnded as ended:
            message = f"kernel {job.kernel!r} ended the process that ran it, which {ended}"
            raise KernelFault(message, job.kernel) from None
        except NoAnswer:
            raise TookTooLong(f"its process gave no answer within {timeout_s + _START_S:g} s and was ended") from None
        finally:
            if not usable:
                child.end()
                del _children[key]
        if reply["outcome"] == "timeout":
            raise TookTooLong(f"it still ran after {timeout_s:g} s; its process was ended")
        if reply["outcome"] == "error":
            raise _error(reply["type"], reply["message"])
        return {
            index: np.frombuffer((Path(folder) / str(index)).read_bytes(), array.dtype).reshape(array.shape)
            for index, array in arrays.items()
        }


def _error(kind_name: str, message: str) -> OstinatoError:
    kind = getattr(errors, kind_name, DeviceError)
    try:
        error: OstinatoError = kind(message)
    except TypeError:  # it needs its cause, which stayed in the child
        return DeviceError(message)
    return error


_lock = ForkLock()
_children: dict[tuple[int, str], Child] = {}


@atexit.register
def _end_all() -> None:
    for (process, _), child in _children.items():
        if process == os.getpid():
            child.end()
