"""Checked calls of the driver's functions, and the text of its errors.

Nothing of CUDA is imported, loaded or initialised before a function of this module is called.
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
"""The bindings and the compiler are those of CUDA 13, whose code needs a driver of CUDA 13 or newer."""

OUT_OF_MEMORY, NOT_READY = 2, 600
_NO_DEVICE = 100
_LOST = frozenset({214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 999})
"""Errors after which a context is unusable: memory or link errors, illegal address, timeout, assert, …"""


def bindings() -> Any:
    """The driver's functions; raises `DeviceUnavailable` with the reason when there are none."""
    driver, process = _initialised()
    if process != os.getpid():
        raise DeviceUnavailable(
            "cuda: CUDA cannot be used in a forked child of a process that used it; start the child with 'spawn'"
        )
    return driver


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
    """Call a function of the driver and return its results; an error status raises."""
    status, *results = function(*arguments)
    if int(status):
        raise failure(int(status), function.__name__)
    return results[0] if len(results) == 1 else tuple(results)


def failure(status: int, doing: str) -> DeviceError:
    """The exception for an error status of the driver."""
    kind = OutOfMemory if status == OUT_OF_MEMORY else DeviceError
    return kind(f"cuda: {error_text(status)} (from {doing})")


def error_text(status: int) -> str:
    """The driver's description of an error."""
    cu = bindings()
    result = cu.CUresult(status)
    name, text = cu.cuGetErrorName(result)[1], cu.cuGetErrorString(result)[1]
    if not name or not text:
        return f"error {status}"
    return f"{text.decode()} ({name.decode()})"


def is_lost(status: int) -> bool:
    """Whether the process's context is unusable after this error."""
    return status in _LOST


class Context:
    """A device's primary context, shared with torch and other libraries in the process."""

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
        """Make it the thread's current context in a `with` block; blocks may be nested."""
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
        """A device attribute of the driver."""
        kind = getattr(self.cu.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(call(self.cu.cuDeviceGetAttribute, kind, self.device))

    @property
    def name(self) -> str:
        """The product name of the device."""
        raw = call(self.cu.cuDeviceGetName, 128, self.device)
        text: str = raw.split(b"\0")[0].decode(errors="replace")
        return text

    @property
    def bus_id(self) -> str:
        """The PCI bus id, as NVML uses it."""
        raw = call(self.cu.cuDeviceGetPCIBusId, 32, self.device)
        text: str = raw.split(b"\0")[0].decode(errors="replace")
        return text

    @property
    def capability(self) -> tuple[int, int]:
        """Major and minor version of its architecture."""
        return self.attribute("COMPUTE_CAPABILITY_MAJOR"), self.attribute("COMPUTE_CAPABILITY_MINOR")

    def release(self) -> None:
        """Release the context."""
        self.cu.cuDevicePrimaryCtxRelease(self.device)
