"""The driver's functions, called with a check, and its errors in words.

Nothing of CUDA is imported, loaded or started before a function of this module is called.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from ...base.extras import install_command
from ...errors import DeviceError, DeviceUnavailable, OutOfMemory

OLDEST_DRIVER = 13000
"""The bindings and the compiler are those of CUDA 13, and code for it runs on drivers of CUDA 13 only."""

OUT_OF_MEMORY, NOT_READY = 2, 600
_NO_DEVICE = 100
_LOST = frozenset({214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 999})
"""Errors that end a context: memory or link errors, illegal address, timeout, assert, illegal instruction, …"""


def bindings() -> Any:
    """The driver's functions; raises `DeviceUnavailable` with the reason when there are none."""
    found, process = _initialised()
    if process != os.getpid():
        raise DeviceUnavailable(
            "cuda: it cannot be used in a forked child of a process that used it; start the child with 'spawn'"
        )
    return found


@lru_cache(maxsize=1)
def _initialised() -> tuple[Any, int]:
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise DeviceUnavailable(f"cuda: {error}; {install_command('cuda')} brings what is missing") from None
    try:
        status, *_ = driver.cuInit(0)
    except Exception:  # the loader's own kinds of errors, by version
        raise DeviceUnavailable("cuda: there is no NVIDIA driver on this machine") from None
    if int(status) == _NO_DEVICE:
        raise DeviceUnavailable("cuda: the driver sees no device (CUDA_VISIBLE_DEVICES may hide it)")
    if int(status):
        raise DeviceUnavailable(f"cuda: the driver could not be started: error {int(status)} ({status.name})")
    version = driver.cuDriverGetVersion()[1]
    if version < OLDEST_DRIVER:
        raise DeviceUnavailable(
            f"cuda: the driver supports CUDA {_version(version)}; {_version(OLDEST_DRIVER)} or newer is needed:"
            " update the driver"
        )
    return driver, os.getpid()


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def call(function: Callable[..., tuple[Any, ...]], *arguments: Any) -> Any:
    """What a function of the driver gives; its error raised as ours."""
    status, *found = function(*arguments)
    if int(status):
        raise failure(int(status), function.__name__)
    return found[0] if len(found) == 1 else tuple(found)


def failure(status: int, doing: str) -> DeviceError:
    """An error of the driver."""
    kind = OutOfMemory if status == OUT_OF_MEMORY else DeviceError
    return kind(f"cuda: {words(status)} (from {doing})")


def words(status: int) -> str:
    """What the driver says of an error."""
    cu = bindings()
    result = cu.CUresult(status)
    name, text = cu.cuGetErrorName(result)[1], cu.cuGetErrorString(result)[1]
    if not name or not text:
        return f"error {status}"
    return f"{text.decode()} ({name.decode()})"


def is_lost(status: int) -> bool:
    """Whether after this error nothing works any more in this process's context."""
    return status in _LOST


class Context:
    """A device's primary context, which torch and others in the process use too."""

    def __init__(self, ordinal: int) -> None:
        self.cu = cu = bindings()
        count = call(cu.cuDeviceGetCount)
        if not 0 <= ordinal < count:
            raise DeviceUnavailable(f"cuda:{ordinal}: there {'is 1 device' if count == 1 else f'are {count} devices'}")
        self.ordinal = ordinal
        self.device = call(cu.cuDeviceGet, ordinal)
        self.handle = call(cu.cuDevicePrimaryCtxRetain, self.device)
        self._process = os.getpid()

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make it the thread's own for the length of a block; blocks may be nested."""
        if self._process != os.getpid():
            raise DeviceError(f"cuda:{self.ordinal}: it belongs to the parent of this process")
        pushed = False
        try:
            call(self.cu.cuCtxPushCurrent, self.handle)
            pushed = True
            yield
        finally:
            if pushed:
                self.cu.cuCtxPopCurrent()

    def attribute(self, name: str) -> int:
        """A number that the driver knows about the device."""
        kind = getattr(self.cu.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(call(self.cu.cuDeviceGetAttribute, kind, self.device))

    @property
    def name(self) -> str:
        """What its maker calls it."""
        raw = call(self.cu.cuDeviceGetName, 128, self.device)
        text: str = raw.split(b"\0")[0].decode(errors="replace")
        return text

    @property
    def bus_id(self) -> str:
        """Where it sits, as NVML and others know it."""
        raw = call(self.cu.cuDeviceGetPCIBusId, 32, self.device)
        text: str = raw.split(b"\0")[0].decode(errors="replace")
        return text

    @property
    def capability(self) -> tuple[int, int]:
        """Major and minor version of its architecture."""
        return self.attribute("COMPUTE_CAPABILITY_MAJOR"), self.attribute("COMPUTE_CAPABILITY_MINOR")

    def release(self) -> None:
        """Give the context back to the driver."""
        self.cu.cuDevicePrimaryCtxRelease(self.device)
