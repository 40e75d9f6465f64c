"""The CUDA backend: what `Backend` asks for, on one device's primary context and one stream.

Work is launched on a single stream, so submissions run in order; within a list launches follow one another, within a
graph they run beside each other as its edges allow. A word in memory that the host sees says which submission finished
last: waiting is looking at it, and after a fault, when no call to the driver works any more, it still says how far the
device came. The stream is a blocking one, so that the order with the default stream of torch and others in the process
is kept both ways.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from itertools import compress, starmap
from pathlib import Path
from typing import Any

import numpy as np

from ... import hazards, msl
from ...commands import Barrier, Command, CompiledKernel, Dispatch, Ordering
from ...errors import DeviceError, DeviceUnavailable, OstinatoError
from ...locks import ForkLock
from ...msl import Module
from .. import records, transfers
from ..cpu.driver import hazard_engine
from ..inference import infer, infer_plainly
from ..protocol import Capabilities, Inferred, Level, Lowered, Memory, Native, Status
from . import launchers, launches, ranges
from .api import Context, bindings, call, is_lost, words
from .clocks import DeviceClock
from .compiling import cubin, nvrtc, version
from .graphs import NativeGraph
from .kernels import Entries, compiled
from .memory import Pinned, Pool
from .sampling import Pairs, Resolver

MAX_THREADS_PER_GROUP = 1024
MAX_INLINE_BYTES = 4096
SIMD_WIDTH = 32

_GATES = frozenset({"unretained_refs", "no_residency", "profile_barriers", "profile_cb", "profile_dispatch"})
_HERE = Path(__file__).parent
_DLPACK_CUDA = 2
_FAULT, _NOT_RUN = 1, 2
_NO_INFERENCE = Inferred(0, 0, 0)


class _Run:
    """A submission, from its start to its release."""

    __slots__ = (
        "count", "end", "graph", "inferred", "lowered", "number",
        "pairs", "result", "staging", "start", "status", "times",
    )  # fmt: skip

    def __init__(self, number: int, count: int, start: int, end: int) -> None:
        self.number = number
        self.count = count
        self.start = start
        self.end = end
        self.lowered: Sequence[Lowered] | None = None  # while its order may be asked for
        self.inferred: Inferred | None = None
        self.graph: NativeGraph | None = None
        self.pairs: Pairs | None = None
        self.result: Pinned | None = None
        self.staging: Pinned | None = None
        self.status: Status | None = None
        self.times: np.ndarray | None = None


class CudaBackend:
    """One NVIDIA device."""

    def __init__(
        self, ordinal: int = 0, sampling: str = "dispatches", native: bool = True, nvtx: bool | None = None
    ) -> None:
        if not isinstance(sampling, str) or sampling.upper() not in Level.__members__:
            raise DeviceUnavailable(
                f"sampling={sampling!r}: expected one of {', '.join(one.name.lower() for one in Level)}"
            )
        _check_compiler()
        self.context = context = Context(ordinal)
        self._cu = cu = context.cu
        major, minor = context.capability
        self._architecture = f"sm_{major}{minor}"
        self.dependent_launch = (major, minor) >= (9, 0)
        self.closed = False
        self._lost = 0
        self._lock = ForkLock()
        self._entries: Entries = {}
        self._events: list[int] = []
        self._staging: dict[int, list[Pinned]] = {}
        self._transfers: Mapping[str, CompiledKernel] | None = None
        self._number = 0
        with context.current():
            self.pool = Pool(context)
            self._stream = call(cu.cuStreamCreate, int(cu.CUstream_flags.CU_STREAM_DEFAULT))
            self._done = Pinned(context, 64)
            support = call(cu.cuModuleLoadData, cubin((_HERE / "support.cu").read_text(), self._support_options()))
            kernels = {name: call(cu.cuModuleGetFunction, support, name.encode()) for name in _SUPPORT}
            self.resolve_in_graph = kernels["ost_resolve_to"]
            self._resolver = Resolver(context, self.pool, kernels["ost_resolve"])
            self._clock = DeviceClock(context, kernels["ost_pairs"], kernels["ost_mark"])
            step_ns = self._timer_step_ns(kernels["ost_step"])
        at = (context, int(self._stream), self._done.host, self._done.device)
        self._launcher = launchers.make(*at) if native else launchers.PlainLauncher(*at)
        self._engine: Any = _engine()
        self._ranges = ranges.find(nvtx)
        self.capabilities = Capabilities(
            name=f"cuda:{ordinal}",
            backend="cuda",
            description=context.name,
            workers=context.attribute("MULTIPROCESSOR_COUNT"),
            max_threads_per_group=MAX_THREADS_PER_GROUP,
            simd_width=SIMD_WIDTH,
            threadgroup_memory_bytes=context.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            max_inline_bytes=MAX_INLINE_BYTES,
            shared_memory=False,
            sampling=Level[sampling.upper()],
            clock_uncertainty_ns=self._clock.uncertainty_ns,
            timer_step_ns=step_ns,
            dlpack_device=(_DLPACK_CUDA, ordinal),
            gates=_GATES,
            details=_details(context, self._architecture, self._launcher.kind),
        )

    # --- kernels and memory ----------------------------------------------------------------------------------

    def compile(
        self, module: Module, constants: Mapping[int | str, object], only: Collection[str] | None = None
    ) -> Mapping[str, CompiledKernel]:
        """Translate, compile (or find in the cache) and load."""
        translation = module.translate("cuda", constants, only)
        with self.context.current():
            return compiled(self.context, self._architecture, translation, self._entries)

    def build_twins(self, entries: Iterable[int]) -> None:
        """Compile the twins, which take times, of all kernels that have none yet."""
        with self.context.current():
            for entry in dict.fromkeys(entries):
                code, variant = self._entries[entry]
                code.build_sampled(variant)

    def allocate(self, nbytes: int) -> Memory:
        """A block of the pool."""
        return self.pool.allocate(nbytes)

    def adopt(self, array: np.ndarray) -> Memory | None:
        """The device has memory of its own."""
        return None

    def read(self, memory: Memory, offset: int, into: np.ndarray) -> None:
        """By a copy that is waited for."""
        self.pool.read(memory.address + offset, into)

    def write(self, memory: Memory, offset: int, values: np.ndarray) -> None:
        """By a copy that is waited for."""
        self.pool.write(memory.address + offset, values)

    def clear(self, memory: Memory, offset: int, nbytes: int) -> None:
        """By the driver."""
        self.pool.clear(memory.address + offset, nbytes)

    @property
    def stream(self) -> int | None:
        """The stream that all work is launched on."""
        return int(self._stream)

    def lend(self, stream: Any) -> None:
        """Have another stream wait for ours: DLPack's None and 1 are the legacy default stream, -1 wants no order."""
        if stream == -1:
            return
        cu = self._cu
        with self.context.current():
            event = call(cu.cuEventCreate, int(cu.CUevent_flags.CU_EVENT_DISABLE_TIMING))
            call(cu.cuEventRecord, event, self._stream)
            call(cu.cuStreamWaitEvent, cu.CUstream(1 if stream is None else int(stream)), event, 0)
            call(cu.cuEventDestroy, event)

    def update_residency(self, added: Sequence[int], removed: Sequence[int]) -> None:
        """Nothing to do: what is allocated is resident."""

    # --- work ------------------------------------------------------------------------------------------------

    def lower(self, command: Command) -> Lowered:
        """The command's record; copies and fills are launches too."""
        if isinstance(command, Barrier):
            return records.barrier()
        if isinstance(command, Dispatch):
            dispatch = command
        else:
            dispatch = transfers.dispatch_of(command, self._transfer_kernels())
        with self.context.current():
            return launches.lowered(dispatch, dispatch.kernel.code)

    def _transfer_kernels(self) -> Mapping[str, CompiledKernel]:
        if self._transfers is None:
            self._transfers = self.compile(msl.parse(transfers.SOURCE), {})
        return self._transfers

    def submit(
        self,
        lowered: Sequence[Lowered],
        ordering: Ordering,
        handle: list[Native],
        sample: bool = False,
        retain: bool = True,
    ) -> None:
        """Launch by launch, in one call."""
        joined = b"".join(lowered)
        starts = self._sample_starts(joined, lowered) if sample else None
        run = self._run(len(lowered))
        if ordering is Ordering.INFERRED:
            run.lowered = lowered
        pairs = 0
        if starts is not None:
            run.pairs = self._resolver.take(starts)
            pairs = run.pairs.memory.address
        at = None if starts is None else starts.ctypes.data
        call_ = (joined, len(lowered), pairs, at, run.start, run.end, run.number)
        self._start(self._launcher.submit, call_, run, handle)

    def _sample_starts(self, joined: bytes, lowered: Sequence[Lowered]) -> np.ndarray:
        while True:
            starts, missing = self._launcher.slots(joined, lowered)
            if not missing:
                return starts
            self.build_twins([missing])

    def edges(self, lowered: Sequence[Lowered]) -> np.ndarray:
        """What the hazard engine finds."""
        return self._infer(lowered)[0]

    def _infer(self, lowered: Sequence[Lowered]) -> tuple[np.ndarray, Inferred]:
        return infer_plainly(lowered) if self._engine is None else infer(self._engine, lowered)

    def instantiate(
        self, commands: Sequence[Command], lowered: Sequence[Lowered], ordering: Ordering, values: Mapping[str, int]
    ) -> tuple[Native, Inferred]:
        """A native graph with the edges of the ordering."""
        inferred = _NO_INFERENCE
        if ordering is Ordering.INFERRED:
            edges, inferred = self._infer(lowered)
        elif ordering is Ordering.SERIAL:
            edges = hazards.serial_edges(len(lowered))
        else:
            edges = hazards.barrier_edges([isinstance(command, Barrier) for command in commands])
        return NativeGraph(self, commands, lowered, edges, values), inferred

    def prepare_samples(self, work: Native | Sequence[Lowered]) -> bool:
        """Compile the twins of kernels that have none, and build a graph's own twin."""
        if isinstance(work, NativeGraph):
            if work.is_sampled:
                return False
            work.sampled()
            return True
        found = [launch.entry for launch in map(launches.launch_of, work) if launch is not None]
        missing = [entry for entry in found if not self._entries[entry][1].functions.sampled]
        self.build_twins(missing)
        return bool(missing)

    def annotated(self, label: str | None) -> AbstractContextManager[None] | None:
        """A range of NVTX, which Nsight shows."""
        return None if self._ranges is None else self._ranges.range(label)

    def replay(self, graph: Native, values: bytes, sample: bool, handle: list[Native]) -> None:
        """One call, whatever the length of the list."""
        if graph.backend is not self:
            raise ValueError("a graph is replayed on the device that it was made for")
        if len(values) < graph.value_bytes:
            raise ValueError(f"a replay of this graph takes {graph.value_bytes} bytes of values, got {len(values)}")
        run = self._run(graph.count)
        run.graph = graph
        executable, nbytes = graph.executable, graph.value_bytes
        if sample and graph.count:
            executable = graph.sampled()
            run.result = self._resolver.take_result(graph.count)
            values = values[: graph.result_at].ljust(graph.result_at, b"\0") + run.result.device.to_bytes(16, "little")
            nbytes = len(values)
        staging = 0
        if nbytes:
            run.staging = self._take_staging(nbytes)
            staging = run.staging.host
        call_ = (executable, graph.arena.address, staging, values, nbytes, run.start, run.end, run.number)
        self._start(self._launcher.replay, call_, run, handle)

    def _run(self, count: int) -> _Run:
        with self._lock:
            events = [self._events.pop() for _ in range(min(2, len(self._events)))]
        if len(events) < 2:
            with self.context.current():
                events += [int(call(self._cu.cuEventCreate, 0)) for _ in range(2 - len(events))]
        return _Run((self._number + 1) & 0xFFFFFFFF, count, *events)

    def _start(self, start: Any, arguments: tuple[Any, ...], run: _Run, handle: list[Native]) -> None:
        """Call, and put the run into the handle if it started: with no step of the interpreter in between."""
        before = len(handle)
        codes: dict[str, int] = {}
        noted = map(codes.setdefault, ("status",), starmap(start, (arguments,)))
        try:
            handle.extend(compress((run,), map(operator.not_, noted)))
        finally:
            if len(handle) > before:
                self._number = run.number
        if len(handle) == before:
            self._failed_to_start(codes["status"])

    def _failed_to_start(self, status: int) -> None:
        if is_lost(status):
            self._lost = self._lost or status
        raise DeviceError(f"{self.capabilities.name}: {words(status)}; the work was not started")

    def inferred(self, submission: Native) -> Inferred:
        """What the hazard engine found; a stream needs no edges, so it is looked for only when it is asked for."""
        run: _Run = submission
        if run.inferred is None:
            run.inferred = _NO_INFERENCE if run.lowered is None else self._infer(run.lowered)[1]
            run.lowered = None
        return run.inferred

    def wait(self, submission: Native, timeout_ns: int) -> bool:
        """Look at the word; a device that was lost ends every wait."""
        if self._lost:
            return True
        found = self._launcher.wait(submission.number, timeout_ns)
        if found < 0:
            self._lost = -found
        return found != 0

    def status(self, submission: Native) -> Status:
        """Well, or what became of it when the device was lost."""
        run: _Run = submission
        if run.status is None:
            run.status = self._found(run)
            run.lowered = run.graph = None
            if run.staging is not None:
                self._give_back_staging(run.staging)
                run.staging = None
        return run.status

    def _found(self, run: _Run) -> Status:
        behind = (run.number - ctypes.c_uint32.from_address(self._done.host).value) & 0xFFFFFFFF
        if self._lost and 0 < behind < 1 << 31:
            error = _FAULT if behind == 1 else _NOT_RUN
            return _status(error, words(self._lost))
        return _status(0)

    def times(self, submission: Native) -> tuple[int, int] | None:
        """Those of its events, in host time; None once the device is lost, which then cannot be asked any more."""
        run: _Run = submission
        if self._lost or not run.start:
            return None
        try:
            with self.context.current():
                self._clock.renew()
                start = self._clock.event_ticks(self._cu.CUevent(run.start))
                end = self._clock.event_ticks(self._cu.CUevent(run.end))
        except OstinatoError:
            return None
        fit = self._clock.line.fit
        return fit.host_ns(start), fit.host_ns(end)

    def samples(self, submission: Native) -> np.ndarray | None:
        """Its times, read off once, in host time."""
        run: _Run = submission
        if run.times is None:
            run.times = self._resolved(run)
        return run.times

    def _resolved(self, run: _Run) -> np.ndarray | None:
        ticks: np.ndarray | None = None
        if run.result is not None:
            ticks = run.result.array(np.uint64).reshape(-1, 2)[: run.count].copy()
            run.result.array(np.uint64)[:] = 0
            self._resolver.give_back_result(run.count, run.result)
            run.result = None
        elif run.pairs is not None:
            block, run.pairs = run.pairs, None
            if self._lost:
                return np.zeros((run.count, 2), np.uint64)
            try:
                ticks = self._resolver.resolve(block, run.count)
            except OstinatoError:
                return np.zeros((run.count, 2), np.uint64)
            self._resolver.give_back(block)
        if ticks is None:
            return None
        found = self._clock.line.fit.host_ns_of(ticks).astype(np.uint64)
        found[ticks == 0] = 0
        return found

    def bounded(self, submission: Native) -> np.ndarray | None:
        """None: each has times of its own."""
        return None

    def release(self, submission: Native) -> None:
        """Keep its events for the next one."""
        run: _Run = submission
        self._resolved(run)
        with self._lock:
            self._events += (run.start, run.end)
        run.start = run.end = 0

    def close(self) -> None:
        """Wait for what runs and give everything back."""
        if self.closed:
            return
        self.closed = True
        with self.context.current():
            self._cu.cuStreamSynchronize(self._stream)
            self._clock.close()
            self._resolver.close()
            for event in self._events:
                self._cu.cuEventDestroy(self._cu.CUevent(event))
            for kept in self._staging.values():
                for memory in kept:
                    memory.free()
            self._cu.cuStreamDestroy(self._stream)
            self._done.free()
        self.pool.close()
        self.context.release()

    # --- small things ----------------------------------------------------------------------------------------

    def _take_staging(self, nbytes: int) -> Pinned:
        size = records.rounded(nbytes, 256)
        with self._lock:
            kept = self._staging.setdefault(size, [])
            if kept:
                return kept.pop()
        return Pinned(self.context, size)

    def _give_back_staging(self, memory: Pinned) -> None:
        with self._lock:
            self._staging.setdefault(memory.nbytes, []).append(memory)

    def _support_options(self) -> list[str]:
        return [f"--gpu-architecture={self._architecture}", "--std=c++17"]

    def _timer_step_ns(self, kernel: Any) -> float:
        memory = self.pool.allocate(8)
        stream = self.pool.stream
        call(self._cu.cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, stream, ((memory.address,), (ctypes.c_uint64,)), 0)
        found = np.empty(8, np.uint8)
        self.pool.read(memory.address, found)
        return float(found.view(np.uint64)[0])

    def __repr__(self) -> str:
        return f"CudaBackend({self.context.ordinal}, {self._launcher.kind} launcher)"


_SUPPORT = ("ost_resolve", "ost_resolve_to", "ost_pairs", "ost_mark", "ost_step")


def availability() -> tuple[Capabilities | None, str]:
    """The capabilities of the first device, or the reason why there is none to use."""
    try:
        _check_compiler()
        with _closing(CudaBackend(0)) as backend:
            return backend.capabilities, ""
    except OstinatoError as error:
        return None, str(error)


class _closing:
    def __init__(self, backend: CudaBackend) -> None:
        self._backend = backend

    def __enter__(self) -> CudaBackend:
        return self._backend

    def __exit__(self, *_: object) -> None:
        self._backend.close()


def _check_compiler() -> None:
    nvrtc()
    found = bindings().cuDriverGetVersion()[1] // 1000
    major, minor = version()
    if major > found:
        raise DeviceUnavailable(
            f"cuda: the driver runs code of CUDA {found}, the compiler library makes that of {major}.{minor};"
            f" update the driver, or install the compiler of CUDA {found} (pip install 'nvidia-cuda-nvrtc<{found + 1}')"
        )


@lru_cache(maxsize=1)
def _engine() -> Any:
    try:
        return hazard_engine()
    except OstinatoError:
        return None  # no compiler: the hazard engine in Python does the same


def _status(error: int, reason: str = "") -> Status:
    return Status(error, -1, 0, 0, "", None, reason)


def _details(context: Context, architecture: str, launcher: str) -> dict[str, str]:
    driver = call(context.cu.cuDriverGetVersion)
    with context.current():
        _, total = call(context.cu.cuMemGetInfo)
    return {
        "compiler": "NVRTC {}.{}".format(*version()),
        "driver": f"CUDA {driver // 1000}.{driver % 1000 // 10}",
        "architecture": architecture,
        "memory": f"{total >> 20} MiB",
        "launcher": launcher,
    }
