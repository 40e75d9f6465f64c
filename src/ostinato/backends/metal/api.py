"""PyObjC's Metal: finding it, and its errors in words.

Nothing of it is imported before `framework` is called. Everything else in this folder reaches Metal through the
`Framework` it was given, so tests can give one of their own.
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
"""What PyObjC has to be told of some methods, by class and selector: its own description of them is not complete, so a
reflection would not come back and a constant could not be passed."""


@dataclass(frozen=True, slots=True)
class Framework:
    """Metal, as PyObjC offers it."""

    metal: Any
    """The module `Metal`."""
    pool: Callable[[], AbstractContextManager[Any]]
    """An autorelease pool for the length of a block."""
    cores: Callable[[], int | None]
    """How many cores the device has; None when that cannot be found out."""
    file_url: Callable[[str], Any]
    """The URL of a file."""
    name: str = "metal"
    """What its device is called here."""


@lru_cache(maxsize=1)
def framework() -> Framework:
    """The machine's own; raises `DeviceUnavailable` with the reason when there is none."""
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
    """Metal does not tell; the registry of devices does."""
    command = ["/usr/sbin/ioreg", "-r", "-d", "1", "-c", "AGXAccelerator"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    told = re.search(r'"gpu-core-count"\s*=\s*(\d+)', found)
    return int(told[1]) if told else None


def default_device(found: Framework) -> Any:
    """The system's preferred device."""
    device = found.metal.MTLCreateSystemDefaultDevice()
    if device is None:
        raise DeviceUnavailable(f"{found.name}: Metal sees no device (a virtual machine, or no graphics session?)")
    return device


def words(error: Any) -> str:
    """What Metal says of an error."""
    if error is None:
        return "no reason given"
    return str(error.localizedDescription())


def checked(result: tuple[Any, Any], doing: str) -> Any:
    """The object of a call that gives an object and an error."""
    found, error = result
    if found is None:
        raise DeviceError(f"metal: {words(error)} (from {doing})")
    return found
