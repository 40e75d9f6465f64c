"""A Metal without a Mac: the Objective-C surface that the Metal backend uses, in Python.

Kernels run on our CPU runtime. Metal's rules are enforced, and breaking one is loud (`rules.py`); a missing barrier is
a race that happens. There are two kinds of devices (`profiles.py`): Apple silicon, which samples counters at stage
boundaries only and has indirect command buffers, and a discrete GPU, which samples at dispatch boundaries.

`install()` makes them known to `open_device` as "metal-sim:apple" and "metal-sim:discrete".
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

from ostinato import device as front_door
from ostinato.backends.metal import MetalBackend
from ostinato.backends.metal.api import Framework
from ostinato.backends.protocol import Backend, Capabilities
from ostinato.errors import DeviceUnavailable, OstinatoError

from . import buffers, capture, counters, indirect, libraries
from .constants import CONSTANTS, STRINGS
from .device import Device, DeviceWithResidency
from .objects import autorelease_pool
from .profiles import PROFILES, Profile
from .rules import BrokenRule, require, unraised

__all__ = ["NAMES", "PROFILES", "BrokenRule", "framework", "install", "require", "unraised"]

CLASSES = {
    "MTLCaptureDescriptor": capture.CaptureDescriptor,
    "MTLCaptureManager": capture.CaptureManager,
    "MTLCompileOptions": libraries.CompileOptions,
    "MTLComputePassDescriptor": counters.ComputePassDescriptor,
    "MTLComputePipelineDescriptor": libraries.ComputePipelineDescriptor,
    "MTLCounterSampleBufferDescriptor": counters.CounterSampleBufferDescriptor,
    "MTLFunctionConstantValues": libraries.FunctionConstantValues,
    "MTLIndirectCommandBufferDescriptor": indirect.IndirectCommandBufferDescriptor,
    "MTLResidencySetDescriptor": buffers.ResidencySetDescriptor,
}
NAMES = ("metal-sim:apple", "metal-sim:discrete")
"""What the devices are opened by."""


def framework(profile: Profile, name: str | None = None) -> Framework:
    """Metal with one device."""
    kind = DeviceWithResidency if profile.residency else Device
    create = partial(kind, profile)
    module = SimpleNamespace(**CONSTANTS, **STRINGS, **CLASSES, MTLCreateSystemDefaultDevice=create)
    return Framework(module, autorelease_pool, _cores, str, name or f"metal-sim:{profile.name}")


def _cores() -> int:
    return 8


def _open(profile: Profile, options: Mapping[str, Any]) -> Backend:
    try:
        return MetalBackend(found=framework(profile), **options)
    except TypeError as error:  # "auto" asks every kind with the options of one
        raise DeviceUnavailable(str(error)) from None


def _availability(profile: Profile) -> tuple[Capabilities | None, str]:
    try:
        backend = MetalBackend(found=framework(profile))
    except OstinatoError as error:
        return None, str(error)
    backend.close()
    return backend.capabilities, ""


def install() -> None:
    """Let `open_device` know of the simulated devices."""
    kinds: Any = front_door._KINDS
    for name in NAMES:
        profile = PROFILES[name.partition(":")[2]]
        kinds[name] = front_door._Kind(partial(_availability, profile), partial(_open, profile))
