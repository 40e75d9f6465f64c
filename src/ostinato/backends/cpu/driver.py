"""The CPU backend: compiles translated kernels, loads them, and drives the C++ runtime through ctypes."""

from __future__ import annotations

import ctypes
import os
import platform
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from itertools import pairwise, starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.locks import ForkLock
from ...errors import DeviceError, DeviceUnavailable, OstinatoError, OutOfMemory
from ...ir.commands import Command, CompiledKernel, Ordering
from ..conditions import Conditions
from ..host_memory import HostMemory
from ..native import toolchain
from ..native.building import kernel_library, runtime_library
from ..native.ordering import infer, infer_plainly
from ..protocol import GATES, Capabilities, Inferred, Level, Lowered, Memory, Native, Status, WorkerTime, sampling_level
from ..records import pack, parameters

if TYPE_CHECKING:
    from ...msl import Module, Translation

MAX_THREADS_PER_GROUP = 1024
SIMD_WIDTH = 32
THREADGROUP_MEMORY_BYTES = 32 << 10
LARGEST_THREADGROUP_MEMORY_BYTES = 64 << 20
MAX_INLINE_BYTES = 4096

_ABI_VERSION = 2
_MEMORY_ALIGNMENT = 128
_ACCESSES = ("", "read", "write", "misaligned", "no address")
_TOO_MANY_EDGES, _NO_MEMORY = 2, 0
_lock = ForkLock()
_MODES = {Ordering.SERIAL: 0, Ordering.BARRIERS: 1, Ordering.INFERRED: 3}


class _KernelInfo(ctypes.Structure):
    """`KernelInfo` of runtime/abi.h."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("entry", ctypes.c_uint64),
        ("threadgroup_bytes", ctypes.c_uint32),
        ("max_threads", ctypes.c_uint32),
        ("fibers", ctypes.c_uint32),
        ("n_args", ctypes.c_uint32),
        ("arg_sizes", ctypes.POINTER(ctypes.c_uint32)),
        ("arg_aligns", ctypes.POINTER(ctypes.c_uint32)),
    )


class _Status(ctypes.Structure):
    """`ost_status_t` of runtime/runtime.cpp."""

    _fields_ = (
        ("done", ctypes.c_uint32),
        ("error", ctypes.c_uint32),
        ("signal", ctypes.c_int32),
        ("node", ctypes.c_uint32),
        ("address", ctypes.c_uint64),
        ("start_ns", ctypes.c_uint64),
        ("end_ns", ctypes.c_uint64),
        ("access", ctypes.c_uint32),
        ("thread_known", ctypes.c_uint32),
        ("thread", ctypes.c_uint32 * 3),
        ("zero", ctypes.c_uint32),
        ("worked_ns", ctypes.c_uint64),
        ("lost_ns", ctypes.c_uint64),
        ("late_ns", ctypes.c_uint64),
        ("joined", ctypes.c_uint64),
    )


class _Graph:
    """The driver's hold on a graph of the runtime, which itself keeps what is still running."""

    __slots__ = ("_release", "device", "handle", "value_bytes")

    def __init__(self, device: int | None, value_bytes: int, release: Callable[[int], None]) -> None:
        # A list, which the native call fills: no interrupt comes between the two.
        self.handle: list[int] = []
        # Its own, because at the end of the interpreter the backend may go first.
        self._release = release
        self.device = device
        self.value_bytes = value_bytes

    def __del__(self) -> None:
        if hasattr(self, "_release"):
            for native in self.handle:
                self._release(native)


class CpuBackend(HostMemory):
    """The machine's own cores as a device."""

    def __init__(
        self,
        workers: int | None = None,
        threadgroup_memory: int = THREADGROUP_MEMORY_BYTES,
        checked: bool = False,
        sampling: str = "dispatches",
    ) -> None:
        count = usable_cores() if workers is None else workers
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise DeviceUnavailable(f"workers={workers!r}: expected a positive integer")
        if (
            isinstance(threadgroup_memory, bool)
            or not isinstance(threadgroup_memory, int)
            or not 0 < threadgroup_memory <= LARGEST_THREADGROUP_MEMORY_BYTES
        ):
            raise DeviceUnavailable(
                f"threadgroup_memory={threadgroup_memory!r}: expected 1 to {LARGEST_THREADGROUP_MEMORY_BYTES} bytes"
            )
        if not isinstance(checked, bool):
            raise DeviceUnavailable(f"checked={checked!r}: expected True or False")
        level = sampling_level(sampling)
        self._checked = checked
        self._toolchain = toolchain.find()
        self._runtime: Any = runtime_library(self._toolchain)
        _declare(self._runtime)
        self.capabilities = _capabilities(self._toolchain, count, threadgroup_memory, level)
        reason = ctypes.create_string_buffer(256)
        with _lock:
            self._device: int | None = self._runtime.ost_open(count, threadgroup_memory, reason, len(reason))
        if not self._device:
            raise DeviceUnavailable(f"cpu: {reason.value.decode(errors='replace')}")
        self._submit = self._runtime.ost_submit
        self._replay = self._runtime.ost_replay
        self._wait = self._runtime.ost_wait

    def compile(
        self, module: Module, constants: Mapping[int | str, object], only: Collection[str] | None = None
    ) -> Mapping[str, CompiledKernel]:
        """Translate, compile (or find in the cache), load, and read the kernel table.

        Checked, kernels are made for finding faults and not for speed: each thread is a fiber, so that a fault names
        it, and nothing is vectorised, so that no access is made that the source does not make.
        """
        translation = module.translate("cpu", constants, only, fibers=self._checked)
        library = kernel_library(self._toolchain, translation, self._checked)
        count = ctypes.c_uint32.in_dll(library, "__ost_kernel_count").value
        table = (_KernelInfo * count).in_dll(library, "__ost_kernels") if count else ()
        return {kernel.name: kernel for kernel in (_compiled(info, translation) for info in table)}

    def allocate(self, nbytes: int) -> Memory:
        """Memory aligned to a cache line pair; an empty block still has an address."""
        try:
            owner = np.empty(max(nbytes, 1) + _MEMORY_ALIGNMENT, np.uint8)
        except (MemoryError, ValueError):
            raise OutOfMemory(f"cpu: no memory for {nbytes} bytes") from None
        start = owner.ctypes.data
        return Memory(start + -start % _MEMORY_ALIGNMENT, nbytes, owner)

    def adopt(self, array: np.ndarray) -> Memory | None:
        """Any memory of the host is the device's too."""
        return Memory(array.ctypes.data, array.nbytes, array)

    def lower(self, command: Command) -> Lowered:
        """The command's record."""
        return pack(command)

    def submit(
        self,
        lowered: Sequence[Lowered],
        ordering: Ordering,
        handle: list[Native],
        sample: bool = False,
        retain: bool = True,
    ) -> None:
        """One call for the whole list."""
        records = b"".join(lowered)
        call = (self._device, records, len(records), len(lowered), _MODES[ordering], None, 0, sample)
        # Signal handlers run between steps of the interpreter; from the call to the list there is none.
        handle.extend(filter(None, starmap(self._submit, (call,))))
        if not handle:
            raise self._refused(f"a list of {len(lowered)} commands")

    def inferred(self, submission: Native) -> Inferred:
        """What the hazard engine found."""
        numbers = (ctypes.c_uint32 * 3)()
        self._runtime.ost_inferred(submission, numbers)
        return Inferred(*numbers)

    def edges(self, lowered: Sequence[Lowered]) -> np.ndarray:
        """What the hazard engine finds for a list that is not run."""
        return infer(self._runtime, lowered)[0]

    def instantiate(
        self, commands: Sequence[Command], lowered: Sequence[Lowered], ordering: Ordering, values: Mapping[str, int]
    ) -> tuple[Native, Inferred]:
        """Build the runtime's graph, and say which arguments of which nodes are parameters."""
        params: dict[tuple[int, int], int] = {}
        uses = [
            (node, position, params.setdefault((values[name], nbytes), len(params)))
            for node, command in enumerate(commands)
            for position, name, nbytes in parameters(command)
        ]
        value_bytes = max((start + nbytes for start, nbytes in params), default=0)
        records = b"".join(lowered)
        param_table, use_table = np.array(list(params), np.uint32), np.array(uses, np.uint32)
        graph = _Graph(self._device, value_bytes, self._runtime.ost_graph_release)
        call = (
            *(self._device, records, len(records), len(lowered), _MODES[ordering], None, 0),
            *(param_table.ctypes.data, len(params), use_table.ctypes.data, len(uses), value_bytes),
        )
        graph.handle.extend(filter(None, starmap(self._runtime.ost_graph_make, (call,))))
        if not graph.handle:
            raise self._refused(f"a graph of {len(lowered)} commands")
        numbers = (ctypes.c_uint32 * 3)()
        self._runtime.ost_graph_inferred(graph.handle[0], numbers)
        return graph, Inferred(*numbers)

    def prepare_samples(self, work: Native | Sequence[Lowered]) -> bool:
        """Nothing to make: the workers read the clock around what they run."""
        return False

    def annotated(self, label: str | None) -> AbstractContextManager[None] | None:
        """No tool of the platform looks at a CPU device."""
        return None

    def replay(self, graph: Native, values: bytes, sample: bool, handle: list[Native]) -> None:
        """One call, whatever the length of the list."""
        if graph.device != self._device:
            raise ValueError("a graph is replayed on the device that it was made for")
        if len(values) < graph.value_bytes:
            raise ValueError(f"a replay of this graph takes {graph.value_bytes} bytes of values, got {len(values)}")
        call = (self._device, graph.handle[0], values, sample)
        # As in `submit`: no step of the interpreter from the call to the list.
        handle.extend(filter(None, starmap(self._replay, (call,))))
        if not handle:
            raise self._refused("a replay of a graph")

    def _refused(self, what: str) -> DeviceError:
        """Why the runtime gave nothing for the last call of this thread."""
        reason = self._runtime.ost_refusal()
        if reason == _NO_MEMORY:
            return OutOfMemory(f"cpu: no memory for {what}")
        if reason == _TOO_MANY_EDGES:
            return DeviceError(f"cpu: {what} has 2**32 or more pairs of commands that wait for each other; split it")
        return DeviceError(f"cpu: the runtime does not understand {what}; this is a defect of ostinato")

    def resume(self, skipped: Collection[Native]) -> None:
        """The runtime holds back what is queued behind a fault until it is told to go on."""
        for submission in skipped:
            self._runtime.ost_skip(submission)
        self._runtime.ost_resume(self._device)

    def wait(self, submission: Native, timeout_ns: int) -> bool:
        """Wait without holding the interpreter up."""
        return bool(self._wait(submission, timeout_ns))

    def status(self, submission: Native) -> Status:
        """What the runtime says about a finished submission."""
        found = _Status()
        self._runtime.ost_status(submission, ctypes.byref(found))
        return Status(
            error=found.error,
            node=found.node,
            signal=found.signal,
            address=found.address,
            access=_ACCESSES[found.access],
            thread=tuple(found.thread) if found.thread_known else None,
        )

    def times(self, submission: Native) -> tuple[int, int] | None:
        """What the runtime took down."""
        found = _Status()
        self._runtime.ost_status(submission, ctypes.byref(found))
        return (found.start_ns, found.end_ns) if found.start_ns else None

    def samples(self, submission: Native) -> np.ndarray | None:
        """A copy of the runtime's table, which ends with the submission."""
        count = ctypes.c_uint64()
        table = self._runtime.ost_samples(submission, ctypes.byref(count))
        if not table:
            return None
        found = np.empty((count.value, 2), np.uint64)
        ctypes.memmove(found.ctypes.data, table, found.nbytes)
        return found

    def bounded(self, submission: Native) -> np.ndarray | None:
        """None: each has times of its own."""
        return None

    def worker_time(self, submission: Native) -> WorkerTime | None:
        """What the workers read off their own clocks."""
        found = _Status()
        self._runtime.ost_status(submission, ctypes.byref(found))
        return WorkerTime(found.worked_ns, found.lost_ns, found.late_ns, found.joined) if found.worked_ns else None

    def conditions(self) -> Conditions:
        """Nothing: what there is to say of the host is said of the process."""
        return Conditions()

    def release(self, submission: Native) -> None:
        """Drop the driver's hold on a submission."""
        self._runtime.ost_release(submission)

    def update_residency(self, added: Sequence[int], removed: Sequence[int]) -> None:
        """Nothing to do: the memory of a CPU is always resident."""

    def close(self) -> None:
        """End the worker threads."""
        device, self._device = self._device, None
        if device:
            self._runtime.ost_close(device)

    def __repr__(self) -> str:
        return f"CpuBackend({self.capabilities.workers} workers)"


@lru_cache(maxsize=1)
def _engine_if_any() -> Any:
    try:
        return hazard_engine()
    except OstinatoError:
        return None


def infer_order(lowered: Sequence[Lowered]) -> tuple[np.ndarray, Inferred]:
    """What `infer` finds, on a machine without a compiler too: there the hazard engine in Python does the same."""
    engine = _engine_if_any()
    return infer_plainly(lowered) if engine is None else infer(engine, lowered)


def hazard_engine() -> Any:
    """The runtime, for whoever only wants to know which commands of a list wait for which."""
    runtime = runtime_library(toolchain.find())
    _declare(runtime)
    return runtime


def availability() -> tuple[Capabilities | None, str]:
    """The capabilities of a CPU device opened without options, or the reason why there can be none."""
    try:
        return _capabilities(toolchain.find(), usable_cores(), THREADGROUP_MEMORY_BYTES, Level.DISPATCHES), ""
    except OstinatoError as error:
        return None, str(error)


def usable_cores() -> int:
    """Cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def _capabilities(
    compiler: toolchain.Toolchain, workers: int, threadgroup_memory: int, sampling: Level
) -> Capabilities:
    return Capabilities(
        name="cpu",
        backend="cpu",
        description=_processor(),
        workers=workers,
        max_threads_per_group=MAX_THREADS_PER_GROUP,
        simd_width=SIMD_WIDTH,
        threadgroup_memory_bytes=threadgroup_memory,
        max_inline_bytes=MAX_INLINE_BYTES,
        shared_memory=True,
        sampling=sampling,
        clock_uncertainty_ns=_clock_step_ns(),
        timer_step_ns=_clock_step_ns(),
        gates=GATES,
        details={"compiler": f"{compiler.command[0]} ({compiler.version})", "machine": platform.machine()},
    )


@lru_cache(maxsize=1)
def _clock_step_ns() -> float:
    """How far apart two readings of the clock are at least: the workers read the host's own."""
    readings = [time.monotonic_ns() for _ in range(200)]
    steps = [after - before for before, after in pairwise(readings) if after > before]
    return float(min(steps, default=1))


@lru_cache(maxsize=1)
def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _declare(library: ctypes.CDLL) -> None:
    pointer, u32, u64, i64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int64
    for name, result, arguments in (
        ("ost_abi_version", u32, ()),
        ("ost_open", pointer, (u32, u64, ctypes.c_char_p, u64)),
        ("ost_close", None, (pointer,)),
        ("ost_submit", pointer, (pointer, ctypes.c_char_p, u64, u64, u32, pointer, u64, u32)),
        ("ost_inferred", None, (pointer, pointer)),
        (
            "ost_graph_make",
            pointer,
            (pointer, ctypes.c_char_p, u64, u64, u32, pointer, u64, pointer, u64, pointer, u64, u64),
        ),
        ("ost_graph_inferred", None, (pointer, pointer)),
        ("ost_graph_release", None, (pointer,)),
        ("ost_replay", pointer, (pointer, pointer, ctypes.c_char_p, u32)),
        ("ost_samples", pointer, (pointer, pointer)),
        ("ost_edges", u64, (ctypes.c_char_p, u64, u64, pointer, u64, pointer)),
        ("ost_wait", ctypes.c_int, (pointer, i64)),
        ("ost_status", None, (pointer, pointer)),
        ("ost_release", None, (pointer,)),
        ("ost_now_ns", u64, ()),
        ("ost_refusal", u32, ()),
        ("ost_skip", None, (pointer,)),
        ("ost_resume", None, (pointer,)),
    ):
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    found = library.ost_abi_version()
    if found != _ABI_VERSION:
        raise DeviceError(f"the CPU runtime speaks version {found}, the driver {_ABI_VERSION}")


def _compiled(info: _KernelInfo, translation: Translation) -> CompiledKernel:
    name = info.name.decode()
    return CompiledKernel(
        name=name,
        signature=translation.kernels[name],
        max_threads_per_group=min(info.max_threads, MAX_THREADS_PER_GROUP),
        threadgroup_bytes=info.threadgroup_bytes,
        argument_bytes=tuple(info.arg_sizes[: info.n_args]),
        argument_alignments=tuple(info.arg_aligns[: info.n_args]),
        code=info.entry,
        execution=translation.executions[name],
    )
