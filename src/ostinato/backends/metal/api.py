"""PyObjC's Metal: loading it, and the text of its errors.

Nothing of it is imported before `framework` is called. Everything else in this folder uses Metal through the
`Framework` that it was passed, so tests can pass a simulated one.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ...base.extras import install_command
from ...errors import DeviceError, DeviceUnavailable

_SIZES: Mapping[str, Any] = {
    "retval": {"type": b"v"},
    "arguments": {2: {"type": b"{MTLSize=QQQ}"}, 3: {"type": b"{MTLSize=QQQ}"}},
}
METADATA: Mapping[tuple[bytes, bytes], Mapping[str, Any]] = {
    (b"NSObject", b"newComputePipelineStateWithDescriptor:options:reflection:error:"): {
        "retval": {"type": b"@"},
        "arguments": {
            2: {"type": b"@"},
            3: {"type": b"Q"},
            4: {"type": b"^@", "type_modifier": b"o"},
            5: {"type": b"^@", "type_modifier": b"o"},
        },
    },
    (b"MTLFunctionConstantValues", b"setConstantValue:type:atIndex:"): {
        "arguments": {2: {"type_modifier": b"n", "c_array_of_variable_length": True}},
    },
    (b"NSObject", b"concurrentDispatchThreads:threadsPerThreadgroup:"): _SIZES,
    (b"NSObject", b"concurrentDispatchThreadgroups:threadsPerThreadgroup:"): _SIZES,
}
"""Metadata that PyObjC lacks for some methods, by class and selector. Without it a reflection would not be returned,
and a constant could not be passed."""


@dataclass(frozen=True, slots=True)
class Framework:
    """Metal, as PyObjC provides it."""

    metal: Any
    """The module `Metal`."""
    pool: Callable[[], AbstractContextManager[Any]]
    """An autorelease pool for the length of a block."""
    cores: Callable[[], int | None]
    """The number of cores of the device; None when it is not known."""
    file_url: Callable[[str], Any]
    """The URL of a file."""
    name: str = "metal"
    """The name of its device in ostinato."""


@lru_cache(maxsize=1)
def framework() -> Framework:
    """This machine's Metal; raises `DeviceUnavailable` with the reason when there is none."""
    if sys.platform != "darwin":
        raise DeviceUnavailable("metal: this machine is not a Mac")
    try:
        import Foundation
        import Metal
        import objc
    except ImportError as error:
        raise DeviceUnavailable(f"metal: {error}; {install_command('metal')} brings what is missing") from None
    for (class_name, selector), description in METADATA.items():
        objc.registerMetaDataForSelector(class_name, selector, description)
    return Framework(Metal, objc.autorelease_pool, _cores, Foundation.NSURL.fileURLWithPath_)


@lru_cache(maxsize=1)
def _cores() -> int | None:
    """The number of cores from the I/O registry; Metal does not report it."""
    command = ["/usr/sbin/ioreg", "-r", "-d", "1", "-c", "AGXAccelerator"]
    try:
        registry = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    count = re.search(r'"gpu-core-count"\s*=\s*(\d+)', registry)
    return int(count[1]) if count else None


def default_device(framework: Framework) -> Any:
    """The system's preferred device."""
    device = framework.metal.MTLCreateSystemDefaultDevice()
    if device is None:
        raise DeviceUnavailable(f"{framework.name}: Metal sees no device (a virtual machine, or no graphics session?)")
    return device


def error_text(error: Any) -> str:
    """Metal's description of an error."""
    if error is None:
        return "no reason given"
    return str(error.localizedDescription())


def checked(result: tuple[Any, Any], doing: str) -> Any:
    """The object of a call that returns an object and an error; raises the error."""
    created, error = result
    if created is None:
        raise DeviceError(f"metal: {error_text(error)} (from {doing})")
    return created
