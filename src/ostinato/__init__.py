"""Ostinato runs Metal compute kernels on any machine.

    import numpy as np, ostinato as ost

    dev = ost.open_device()
    inc = dev.library(source)["inc_one"]
    x, y = dev.array(np.arange(256, dtype=np.float32)), dev.empty(256, np.float32)
    enc = dev.command_encoder()
    enc.dispatch(inc, x, y, threads=256)
    enc.commit_and_wait()
    print(y.numpy())

The public interface is what this module names. A name is loaded when it is first used: importing the package costs next
to nothing, and a program pays only for the parts that it needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import (
    ArgumentError,
    BufferAccessError,
    CacheError,
    ComparisonError,
    ConstantError,
    CopyError,
    DependencyFailed,
    DeviceClosed,
    DeviceError,
    DeviceLost,
    DeviceUnavailable,
    Diagnostic,
    EncoderError,
    FaultedBuffer,
    FleetError,
    ForkedDevice,
    FreedBuffer,
    GeometryError,
    GraphChanged,
    GraphError,
    GraphFileError,
    KernelCheckError,
    KernelCompileError,
    KernelFault,
    KernelNotFound,
    LabelError,
    MissingPackage,
    ModelError,
    NoKernels,
    OstinatoError,
    OstinatoWarning,
    OutOfMemory,
    PoolError,
    RecordingError,
    RecordingWarning,
    SamplingWarning,
    SettingError,
    SettingWarning,
    TensorNotFound,
    ToolchainError,
    TuningError,
    UncommittedWork,
    UnknownAttribute,
    UnobservedError,
    UnsupportedFeature,
    UsageError,
    ViewError,
    WrongDevice,
)
from .version import __version__

if TYPE_CHECKING:
    from . import counters, models, ops, passes, settings, testing
    from .audit import Audit, Finding
    from .backends.protocol import Capabilities
    from .counters import (
        Counts,
        auto_barrier_concurrent_count,
        auto_barrier_count,
        barrier_count,
        barrier_total_ns,
        cmd_buf_count,
        dispatch_count,
        reset_counters,
        sync_count,
        timed_barrier_count,
    )
    from .device import Device, DeviceInfo, devices, open_device
    from .encode.encoder import CommandEncoder
    from .graph.file import load_graph
    from .graph.graph import Graph
    from .graph.replay import Replayable
    from .ir.command_list import CapturedNode
    from .ir.commands import UNKNOWN, CapturedOpKind, DispatchKind
    from .ir.costs import Amount
    from .ir.params import Param, param, per
    from .measure.benching import Bench, bench
    from .measure.comparing import compare
    from .measure.tuning import Tuning, tune
    from .profiling import kernel_profile
    from .profiling.analyse.comparison import Comparison
    from .profiling.analyse.verdicts import Verdict
    from .profiling.session import Profile, profile
    from .runtime.buffer import Buffer
    from .runtime.kernel_log import LogMessage
    from .runtime.library import Kernel, KernelRegistry, Library
    from .runtime.pool import BufferPool
    from .runtime.residency import ResidencySet
    from .runtime.submission import Submission
    from .runtime.tracing import region

__all__ = [
    "UNKNOWN",
    "Amount",
    "ArgumentError",
    "Audit",
    "Bench",
    "Buffer",
    "BufferAccessError",
    "BufferPool",
    "CacheError",
    "Capabilities",
    "CapturedNode",
    "CapturedOpKind",
    "CommandEncoder",
    "Comparison",
    "ComparisonError",
    "ConstantError",
    "CopyError",
    "Counts",
    "DependencyFailed",
    "Device",
    "DeviceClosed",
    "DeviceError",
    "DeviceInfo",
    "DeviceLost",
    "DeviceUnavailable",
    "Diagnostic",
    "DispatchKind",
    "EncoderError",
    "FaultedBuffer",
    "Finding",
    "FleetError",
    "ForkedDevice",
    "FreedBuffer",
    "GeometryError",
    "Graph",
    "GraphChanged",
    "GraphError",
    "GraphFileError",
    "Kernel",
    "KernelCheckError",
    "KernelCompileError",
    "KernelFault",
    "KernelNotFound",
    "KernelRegistry",
    "LabelError",
    "Library",
    "LogMessage",
    "MissingPackage",
    "ModelError",
    "NoKernels",
    "OstinatoError",
    "OstinatoWarning",
    "OutOfMemory",
    "Param",
    "PoolError",
    "Profile",
    "RecordingError",
    "RecordingWarning",
    "Replayable",
    "ResidencySet",
    "SamplingWarning",
    "SettingError",
    "SettingWarning",
    "Submission",
    "TensorNotFound",
    "ToolchainError",
    "Tuning",
    "TuningError",
    "UncommittedWork",
    "UnknownAttribute",
    "UnobservedError",
    "UnsupportedFeature",
    "UsageError",
    "Verdict",
    "ViewError",
    "WrongDevice",
    "__version__",
    "auto_barrier_concurrent_count",
    "auto_barrier_count",
    "barrier_count",
    "barrier_total_ns",
    "bench",
    "cmd_buf_count",
    "compare",
    "counters",
    "devices",
    "dispatch_count",
    "kernel_profile",
    "load_graph",
    "models",
    "open_device",
    "ops",
    "param",
    "passes",
    "per",
    "profile",
    "region",
    "reset_counters",
    "settings",
    "sync_count",
    "testing",
    "timed_barrier_count",
    "tune",
]

_LOADED_WHEN_USED = {
    "audit": "Audit Finding",
    "backends.protocol": "Capabilities",
    "counters": (
        "Counts auto_barrier_concurrent_count auto_barrier_count barrier_count barrier_total_ns "
        "cmd_buf_count dispatch_count reset_counters sync_count timed_barrier_count"
    ),
    "device": "Device DeviceInfo devices open_device",
    "measure.tuning": "Tuning tune",
    "encode.encoder": "CommandEncoder",
    "graph.file": "load_graph",
    "graph.graph": "Graph",
    "graph.replay": "Replayable",
    "ir.command_list": "CapturedNode",
    "ir.commands": "UNKNOWN CapturedOpKind DispatchKind",
    "ir.costs": "Amount",
    "ir.params": "Param param per",
    "measure.benching": "Bench bench",
    "measure.comparing": "compare",
    "profiling.analyse.comparison": "Comparison",
    "profiling.analyse.verdicts": "Verdict",
    "profiling.session": "Profile profile",
    "runtime.buffer": "Buffer",
    "runtime.kernel_log": "LogMessage",
    "runtime.library": "Kernel KernelRegistry Library",
    "runtime.pool": "BufferPool",
    "runtime.residency": "ResidencySet",
    "runtime.submission": "Submission",
    "runtime.tracing": "region",
}
"""Public names, by the module that has them; type checkers see them in the imports above."""

_MODULES = {"kernel_profile": "profiling.kernel_profile"} | {
    name: name for name in ("counters", "models", "ops", "passes", "settings", "testing")
}
"""Public modules, by where they are."""

_MODULE_OF = {name: module for module, names in _LOADED_WHEN_USED.items() for name in names.split()}


if not TYPE_CHECKING:  # type checkers know all names

    def __getattr__(name: str) -> Any:
        if name in _MODULE_OF:
            value = getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
        elif name in _MODULES:
            value = import_module(f".{_MODULES[name]}", __name__)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return list(__all__)
