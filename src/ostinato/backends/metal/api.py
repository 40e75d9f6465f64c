"""PyObjC's Metal: finding it, and its errors in words.

Nothing of it is imported before `framework` is called. Everything else in this folder reaches Metal through the
`Framework` it was given, so tests can give one of their own.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ...errors import DeviceError, DeviceUnavailable


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
        raise DeviceUnavailable(f"metal: {error}; pip install 'ostinato[metal]' brings what is missing") from None
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
