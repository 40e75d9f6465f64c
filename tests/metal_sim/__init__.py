"""A Metal without a Mac: the Objective-C surface that the Metal backend uses, in Python.

Kernels run on our CPU runtime. Metal's rules are enforced, and breaking one is loud (`rules.py`); a missing barrier is
a race that happens. There are two kinds of devices (`profiles.py`): Apple silicon, which samples counters at stage
boundaries only and has indirect command buffers, and a discrete GPU, which samples at dispatch boundaries.

`install()` makes them known to `open_device` as "metal-sim:apple" and "metal-sim:discrete".
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import plug_ins
from ostinato.backends.metal import MetalBackend
from ostinato.backends.metal.api import Framework
from ostinato.backends.protocol import Backend
from ostinato.backends.registry import BackendKind, kind

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
    create = partial(DeviceWithResidency if profile.residency else Device, profile)
    module = SimpleNamespace(**CONSTANTS, **STRINGS, **CLASSES, MTLCreateSystemDefaultDevice=create)
    return Framework(module, autorelease_pool, _cores, str, name or f"metal-sim:{profile.name}")


def _cores() -> int:
    return 8


def _open(profile: Profile, **options: Any) -> Backend:
    return MetalBackend(framework=framework(profile), **options)


def _kind(name: str) -> BackendKind:
    profile = PROFILES[name.partition(":")[2]]
    return BackendKind(name, partial(_open, profile), kind("metal").options)


APPLE, DISCRETE = map(_kind, NAMES)


def install() -> None:
    """Let `open_device` know of the simulated devices."""
    plug_ins.show("ostinato-metal-sim", dict(zip(NAMES, ("metal_sim:APPLE", "metal_sim:DISCRETE"), strict=True)))
