"""Ostinato runs Metal compute kernels on any machine.

    import numpy as np, ostinato as ost

    dev = ost.open_device()
    inc = dev.library(source)["inc_one"]
    x, y = dev.array(np.arange(256, dtype=np.float32)), dev.empty(256, np.float32)
    enc = dev.command_encoder()
    enc.dispatch(inc, x, y, threads=256)
    enc.commit_and_wait()
    print(y.numpy())

The public interface is what this module names.
"""

from . import counters, kernel_profile, ops, passes, settings
from . import gated_profile as _gated_profile  # noqa: F401  its gate acts from the first commit on
from .amounts import Amount
from .audit import Audit, Finding
from .backends.protocol import Capabilities
from .buffer import Buffer
from .commands import UNKNOWN, CapturedOpKind, DispatchKind
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
)
from .device import Device, DeviceInfo, devices, open_device
from .encoder import CommandEncoder
from .errors import (
    ArgumentError,
    BufferAccessError,
    CacheError,
    ConstantError,
    CopyError,
    DependencyFailed,
    DeviceClosed,
    DeviceError,
    DeviceLost,
    DeviceUnavailable,
    EncoderError,
    FaultedBuffer,
    ForkedDevice,
    FreedBuffer,
    GeometryError,
    GraphChanged,
    GraphError,
    GraphFileError,
    KernelCompileError,
    KernelFault,
    KernelNotFound,
    LabelError,
    ModelError,
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
    UncommittedWork,
    UnobservedError,
    UnsupportedFeature,
    ViewError,
    WrongDevice,
)
from .graph import CapturedNode, Graph
from .graph_file import load_graph
from .params import Param, param, per
from .pipeline import Kernel, KernelRegistry, Library
from .pool import BufferPool
from .profile import Profile, profile
from .replay import Replayable
from .residency import ResidencySet
from .submission import Submission
from .tracing import region
from .version import __version__

__all__ = [
    "UNKNOWN",
    "Amount",
    "ArgumentError",
    "Audit",
    "Buffer",
    "BufferAccessError",
    "BufferPool",
    "CacheError",
    "Capabilities",
    "CapturedNode",
    "CapturedOpKind",
    "CommandEncoder",
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
    "DispatchKind",
    "EncoderError",
    "FaultedBuffer",
    "Finding",
    "ForkedDevice",
    "FreedBuffer",
    "GeometryError",
    "Graph",
    "GraphChanged",
    "GraphError",
    "GraphFileError",
    "Kernel",
    "KernelCompileError",
    "KernelFault",
    "KernelNotFound",
    "KernelRegistry",
    "LabelError",
    "Library",
    "ModelError",
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
    "UncommittedWork",
    "UnobservedError",
    "UnsupportedFeature",
    "ViewError",
    "WrongDevice",
    "__version__",
    "auto_barrier_concurrent_count",
    "auto_barrier_count",
    "barrier_count",
    "barrier_total_ns",
    "cmd_buf_count",
    "counters",
    "devices",
    "dispatch_count",
    "kernel_profile",
    "load_graph",
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
]
