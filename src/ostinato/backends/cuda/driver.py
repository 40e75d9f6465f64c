"""The CUDA backend: implements `Backend` on one device's primary context and one stream.

Work is launched on a single stream, so submissions run in order. The launches of a list run one after another, those of
a graph concurrently as its edges allow. A word in host-visible memory holds the number of the submission that finished
last: the stream writes it after a list, a graph's last node writes it itself. Waiting reads that word. After a fault,
when no call of the driver works any more, it still tells how far the device got. The stream is a blocking one, so that
it stays ordered with the default stream of torch and other libraries in the process.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from itertools import compress, starmap
from pathlib import Path
from typing import Any

import numpy as np

from ... import msl, settings
from ...errors import DeviceError, DeviceUnavailable, OstinatoError
from ...ir.command_list import CommandList
from ...ir.commands import Barrier, Command, CompiledKernel, Dispatch, Ordering
from ...msl import Module
from ...native import hazard_engine
from .. import copy_fill, records
from ..conditions import Conditions
from ..printing import chosen
from ..protocol import (
    GATES,
    Capabilities,
    Level,
    Log,
    Memory,
    NativeCalls,
    NativeReplay,
    Outcome,
    Run,
    Status,
    sampling_level,
)
from . import launchers, launches, nsight
from .api import Context, bindings, call, error_text, is_lost
from .clocks import DeviceClock
from .compiling import cubin, nvrtc, version
from .conditions import conditions
from .graphs import NativeGraph
from .kernels import Entries, compiled
from .logs import DeviceLog, LogCopy, may_print, numbered
from .memory import Pinned, Pool, order
from .runs import DONE, CudaRun, Stock
from .sampling import RESOLVE_THREADS, Pairs, resolve_blocks

MAX_THREADS_PER_GROUP = 1024
MAX_INLINE_BYTES = 4096
SIMD_WIDTH = 32

_HERE = Path(__file__).parent
_DLPACK_CUDA = 2
_EDGES_NS = 2_000
"""Time before a graph's first and after its last dispatch, about a microsecond each; 1.8 µs in all on an H200."""
_AFTER_FAULT = (
    "the CUDA context of this process is lost, also for torch, CuPy and every other library in the process, and"
    " cannot be recreated; start a new process"
)
_SLICE_NS = 50_000_000
"""A native wait cannot be interrupted, so Ctrl-C is handled between waits of this length."""


class CudaBackend:
    """One NVIDIA device."""

    def __init__(
        self,
        ordinal: int = 0,
        sampling: str = "dispatches",
        native: bool = True,
        nvtx: bool | None = None,
        debug: bool = False,
        tf32: bool = False,
    ) -> None:
        for option, value in (("debug", debug), ("tf32", tf32)):
            if not isinstance(value, bool):
                raise DeviceUnavailable(f"{option}={value!r}: expected True or False")
        level = sampling_level(sampling)
        _check_compiler()
        self._ranges = nsight.find(nvtx)
        self.context = Context(ordinal)
        self.closed = False
        self._last_finished = 0
        self._lost = 0
        self._entries: Entries = {}
        self._transfers: Mapping[str, CompiledKernel] | None = None
        setting = settings.get("debug")
        self._debug = debug if setting is None else setting is True
        self._tf32 = tf32
        self._log: DeviceLog | None = None
        try:
            self._open(native, level)
        except BaseException:
            self.close()
            raise

    def _open(self, native: bool, sampling: Level) -> None:
        context, cu = self.context, self.context.cu
        major, minor = context.capability
        # The instructions of Hopper's warpgroups are in no architecture but its own.
        self._architecture = f"sm_{major}{minor}" + ("a" if (major, minor) == (9, 0) else "")
        self.dependent_launch = (major, minor) >= (9, 0)
        with context.current():
            self.pool = Pool(context)
            self.stock = Stock(context)
            self.pairs = Pairs(self.pool)
            self._stream = call(cu.cuStreamCreate, int(cu.CUstream_flags.CU_STREAM_DEFAULT))
            self._done = Pinned(context, 64)
            self.done_address = self._done.device
            support = call(cu.cuModuleLoadData, cubin((_HERE / "support.cu").read_text(), self._support_options()))
            self.support = {name: call(cu.cuModuleGetFunction, support, name.encode()) for name in _SUPPORT}
            self.clock = DeviceClock(context, self.support["ost_pairs"], self.support["ost_mark"])
            step_ns = self._timer_step_ns(self.support["ost_step"])
        hazard_engine.is_there()  # builds the engine, if necessary, before any work needs it
        at = (context, int(self._stream), self._done.host, self._done.device)
        self.launcher: launchers.Launcher = launchers.make(*at) if native else launchers.PlainLauncher(*at)
        self._staged = Pinned(context, launchers.STAGED_BYTES)
        self.launcher.read_through(int(self.pool.stream), self._staged.host)
        self.capabilities = Capabilities(
            name=f"cuda:{context.ordinal}",
            backend="cuda",
            description=context.name,
            workers=context.attribute("MULTIPROCESSOR_COUNT"),
            max_threads_per_group=MAX_THREADS_PER_GROUP,
            simd_width=SIMD_WIDTH,
            threadgroup_memory_bytes=context.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            max_inline_bytes=MAX_INLINE_BYTES,
            shared_memory=False,
            sampling=sampling,
            clock_uncertainty_ns=self.clock.uncertainty_ns,
            timer_step_ns=step_ns,
            edges_ns=_EDGES_NS,
            dlpack_device=(_DLPACK_CUDA, context.ordinal),
            after_fault=_AFTER_FAULT,
            cache_bytes=context.attribute("L2_CACHE_SIZE"),
            prints=True,
            multiplies_tensors=(major, minor) >= (8, 0),
            gates=GATES | {"debug"},
            details=_details(context, self._architecture, self.launcher.kind),
        )

    # --- kernels and memory ----------------------------------------------------------------------------------

    def compile(
        self, module: Module, constants: Mapping[int | str, object], only: Collection[str] | None = None
    ) -> Mapping[str, CompiledKernel]:
        """Translate, compile (or take from the cache) and load."""
        translation = module.translate("cuda", constants, only, **chosen(module, self._debug).options)
        with self.context.current():
            if translation.log_sites and self._log is None:
                self._log = DeviceLog(self.pool, self.stock)
            return compiled(self.context, self._architecture, translation, self._entries, self._tf32)

    def build_instrumented(self, entries: Iterable[int]) -> None:
        """Compile the instrumented variants, which time themselves, of all kernels that have none yet."""
        with self.context.current():
            for entry in dict.fromkeys(entries):
                code, variant = self._entries[entry]
                code.build_sampled(variant)

    def allocate(self, nbytes: int) -> Memory:
        """Allocate a block of the pool."""
        return self.pool.allocate(nbytes)

    def adopt(self, array: np.ndarray) -> Memory | None:
        """None: the device has its own memory and cannot share an array's."""
        return None

    def read(self, memory: Memory, offset: int, into: np.ndarray) -> None:
        """Copy memory to the host, and wait for the copy."""
        self.pool.read(memory.address + offset, into)

    def write(self, memory: Memory, offset: int, values: np.ndarray) -> None:
        """Copy bytes from the host, and wait for the copy."""
        self.pool.write(memory.address + offset, values)

    def clear(self, memory: Memory, offset: int, nbytes: int) -> None:
        """Set bytes to zero, and wait until it is done."""
        self.pool.clear(memory.address + offset, nbytes)

    @property
    def stream(self) -> int | None:
        """The stream that all work is launched on."""
        return int(self._stream)

    def expose(self, memory: Memory, offset: int, nbytes: int) -> None:
        """Nothing to do: the device does not follow what is written."""

    def lend(self, stream: Any) -> object:
        """Make another stream wait for ours: DLPack's None and 1 are the legacy default stream, -1 means no ordering.

        The caller keeps the returned object with the shared memory: memory that is freed after it is dropped waits for
        the other stream.
        """
        if stream == -1:
            return None
        other = 1 if stream is None else int(stream)
        with self.context.current():
            order(self._cu, self._stream, self._cu.CUstream(other))
        return None if other == 1 else _Loan(self.pool, other)

    def borrow(self, stream: int) -> None:
        """Make work that is started from now on wait for what another stream has queued."""
        with self.context.current():
            order(self._cu, self._cu.CUstream(stream), self._stream)

    def update_residency(self, added: Sequence[int], removed: Sequence[int]) -> None:
        """Nothing to do: allocated memory is always resident."""

    # --- work ------------------------------------------------------------------------------------------------

    def lower(self, command: Command) -> bytes:
        """The command's record; copies and fills become launches too."""
        if isinstance(command, Barrier):
            return records.barrier()
        if isinstance(command, Dispatch):
            dispatch = command
        else:
            dispatch = copy_fill.dispatch_of(command, self._transfer_kernels())
        with self.context.current():
            printed_to = self._log.address if self._log is not None and dispatch.kernel.log_sites else 0
            return launches.lowered(dispatch, dispatch.kernel.code, printed_to)

    def _transfer_kernels(self) -> Mapping[str, CompiledKernel]:
        if self._transfers is None:
            self._transfers = self.compile(msl.parse(copy_fill.SOURCE), {})
        return self._transfers

    def submit(self, commands: CommandList, started: list[Run], sample: bool = False, retain: bool = True) -> None:
        """Start all launches of the list in one call."""
        prints = self._log is not None and may_print(commands)
        joined = b"".join(numbered(commands) if prints else commands.lowered)
        starts = self._sample_starts(joined, commands) if sample and len(commands) else None
        run = CudaRun(self, len(commands), self.stock.event(), self.stock.event())
        if commands.ordering is Ordering.INFERRED:
            run.commands = commands
        reading, at = None, None
        if starts is not None:
            reading, at = self._reading(run, starts), starts.ctypes.data
        address = None if reading is None else ctypes.addressof(reading)
        arguments = (joined, len(commands), address, at, run.start, run.end, run.started_at)
        self._start(self.launcher.submit, arguments, run, started)
        if prints:
            self._copy_log(run)

    def _copy_log(self, run: CudaRun) -> None:
        assert self._log is not None
        with self.context.current():
            run.log_copy = self._log.copy(self._cu, self._stream)

    def read_log(self, copied: LogCopy) -> Log | None:
        """What a submission printed, from the copy of the log behind it."""
        assert self._log is not None
        if self.closed:
            return None
        with self.context.current():
            return self._log.read(self._cu, copied)

    def _reading(self, run: CudaRun, starts: np.ndarray) -> launchers.Reading:
        """Where the times of a list go. The table is in host memory that the device reads, so nothing is copied."""
        run.pairs = self.pairs.take(int(starts[-1]))
        run.result = self._result(run.count)
        table = self.stock.take(starts.nbytes)
        run.borrowed.append(table)
        ctypes.memmove(table.host, starts.ctypes.data, starts.nbytes)
        addresses = (int(self.support["ost_resolve"]), table.device, run.pairs.address, run.result.device)
        return launchers.Reading(*addresses, resolve_blocks(run.count, int(starts[-1])), RESOLVE_THREADS, run.count)

    def _result(self, count: int) -> Pinned:
        memory = self.stock.take(16 * count)
        ctypes.memset(memory.host, 0, 16 * count)
        return memory

    def _sample_starts(self, joined: bytes, commands: CommandList) -> np.ndarray:
        while True:
            starts, missing = self.launcher.slots(joined, commands.lowered)
            if not missing:
                return starts
            self.build_instrumented([missing])

    def instantiate(self, commands: CommandList) -> NativeGraph:
        """Build a native graph with the edges of the list's order."""
        return NativeGraph(self, commands)

    def instantiate_movable(self, commands: CommandList) -> NativeGraph:
        """Build a native graph that `moved` accepts."""
        return NativeGraph(self, commands, movable=True)

    def moved(
        self, graph: NativeGraph, nodes: np.ndarray, positions: np.ndarray, addresses: list[int] | np.ndarray
    ) -> NativeGraph | None:
        """Change addresses in a graph. Replays that have started keep the old ones."""
        return None if graph.move(nodes, positions, addresses) else graph

    def prepare_samples(self, work: NativeGraph | CommandList) -> bool:
        """Compile missing instrumented variants and, for a graph, build the graph of them; True if there was work."""
        if isinstance(work, NativeGraph):
            if work.is_sampled or not work.count:
                return False
            work.sampled()
            return True
        entries = [launch.entry for launch in map(launches.launch_of, work.lowered) if launch is not None]
        missing = [entry for entry in entries if not self._entries[entry][1].functions.sampled]
        self.build_instrumented(missing)
        return bool(missing)

    def annotated(self, label: str | None) -> AbstractContextManager[None] | None:
        """An NVTX range, which Nsight shows; None when no tool is attached."""
        return None if self._ranges is None else self._ranges.range(label)

    def replay(self, graph: NativeGraph, values: bytes, sample: bool, started: list[Run]) -> None:
        """Start the graph in one call, whatever its length."""
        if graph.backend is not self:
            raise ValueError("a graph is replayed on the device that it was made for")
        if len(values) < graph.value_bytes:
            raise ValueError(f"a replay of this graph takes {graph.value_bytes} bytes of values, got {len(values)}")
        if not graph.is_aligned:
            graph.realign()
        run = CudaRun(self, graph.count)
        run.graph = graph
        executable, result = graph.executable, 0
        if sample and graph.count:
            executable = graph.sampled()
            run.result = self._result(graph.count)
            result = run.result.device
        status = graph.catch_up(executable != graph.executable)
        if status:
            self.stock.release(run)
            raise self._refused(status, 0)
        arguments = (graph.ring.address, executable, values, result, run.started_at)
        while not self._start(self.launcher.replay, arguments, run, started):
            try:
                while not self.wait_for(graph.ring.oldest, _SLICE_NS):
                    pass
                graph.ring.make_room()
            except BaseException:
                self.stock.release(run)
                raise
        if graph.prints:
            self._copy_log(run)

    def native_calls(self) -> NativeCalls | None:
        """What native code needs to start and end replays; None with the Python launcher, or if a tool wants labels."""
        if self._ranges is not None:
            return None
        addresses = self.launcher.quick_calls()
        return None if addresses is None else NativeCalls(CudaRun, DONE, None, *addresses)

    def native_replay(self, graph: NativeGraph) -> NativeReplay | None:
        """What starts a replay of a graph; None if it prints, as its log is copied behind every replay."""
        if graph.prints:
            return None
        calls = self.launcher.quick_calls()
        if calls is None:
            return None
        run = CudaRun(self, graph.count)
        run.graph, run.started, run.quick_ring = graph, None, graph.ring.address
        return NativeReplay((calls[0], graph.ring.address, graph.executable), run, partial(self._failed, graph))

    def _start(self, start: launchers.Start, arguments: tuple[Any, ...], run: CudaRun, started: list[Run]) -> bool:
        """Call `start`, and append the run if it started; False when a graph has too many replays under way.

        With the native launcher there is no interpreter step in between, so an interrupt cannot separate the two. The
        Python launcher waits for work that an interrupt cut short before it raises.
        """
        before = len(started)
        codes: dict[str, int] = {}
        noted = map(codes.setdefault, ("status",), starmap(start, (arguments,)))
        try:
            started.extend(compress((run,), map(operator.not_, noted)))
        finally:
            if len(started) == before and codes.get("status") != launchers.FULL:
                self._take_back(run)
        if len(started) > before:
            return True
        if codes["status"] == launchers.FULL:
            return False
        raise self._refused(codes["status"], run.launched)

    def _failed(self, graph: NativeGraph, status: int) -> None:
        """Raise the error of a replay that native code could not start."""
        graph.misalign()
        with suppress(OstinatoError):
            graph.realign()
        raise self._refused(status, 0)

    def _refused(self, status: int, begun: int) -> DeviceError:
        """The error for work that the driver refused after so many launches."""
        if is_lost(status):
            self._lost = self._lost or status
        what = f"{begun} of its launches ran, and have finished" if begun else "none of it was started"
        return DeviceError(f"{self.capabilities.name}: {error_text(status)}; {what}")

    def _take_back(self, run: CudaRun) -> None:
        # A launch may have written to the pairs, so they cannot be reused as cleared ones.
        run.pairs = None
        self.stock.release(run)
        if run.graph is not None:
            run.graph.misalign()
            with suppress(OstinatoError):
                run.graph.realign()

    def wait_for(self, number: int, timeout_ns: int) -> bool:
        """Wait until the submission with this number is done, or the device is lost; False on timeout."""
        if self._lost or self.closed:
            return True
        waited = self.launcher.wait(number, timeout_ns)
        if waited < 0 and is_lost(-waited):
            self._lost = -waited
            return True
        return waited > 0

    @property
    def is_lost(self) -> bool:
        """Whether a fault has made the context unusable."""
        return bool(self._lost)

    def resume(self, skipped: Collection[Run]) -> None:
        """Nothing to do: nothing runs after a fault."""

    def lost_status(self, run: CudaRun) -> Status | None:
        """The status of a submission that a lost device did not finish; None when it finished."""
        behind = (run.number - self._finished()) & 0xFFFFFFFF
        if self._lost and 0 < behind < 1 << 31:
            return Status.unplaced(Outcome.FAULTED if behind == 1 else Outcome.NOT_RUN, error_text(self._lost))
        return None

    def conditions(self) -> Conditions:
        """The state of the device, from NVML."""
        return conditions(self.context.bus_id)

    def close(self) -> None:
        """Wait for running work and release everything; also after an opening that failed part-way."""
        if self.closed:
            return
        with suppress(OstinatoError), self.context.current():
            if hasattr(self, "_stream"):
                self._cu.cuStreamSynchronize(self._stream)
        if hasattr(self, "_done"):
            self._last_finished = self._finished()
        self.closed = True
        with suppress(OstinatoError), self.context.current():
            for part in ("clock", "stock", "_done", "_staged"):
                if hasattr(self, part):
                    getattr(self, part).close()
            if hasattr(self, "_stream"):
                self._cu.cuStreamDestroy(self._stream)
            if hasattr(self, "pool"):
                self.pool.close()
        self.context.release()

    # --- helpers ---------------------------------------------------------------------------------------------

    @property
    def _cu(self) -> Any:
        return self.context.cu

    def _finished(self) -> int:
        """The number of the submission that finished last."""
        at = self._done.host  # the garbage collector may have closed it already
        return ctypes.c_uint32.from_address(at).value if at else self._last_finished

    def _support_options(self) -> list[str]:
        return [f"--gpu-architecture={self._architecture}", "--std=c++17"]

    def _timer_step_ns(self, kernel: Any) -> float:
        memory = self.pool.allocate(8)
        stream = self.pool.stream
        call(self._cu.cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, stream, ((memory.address,), (ctypes.c_uint64,)), 0)
        step_bytes = np.empty(8, np.uint8)
        self.pool.read(memory.address, step_bytes)
        return float(step_bytes.view(np.uint64)[0])

    def __repr__(self) -> str:
        return f"CudaBackend({self.context.ordinal}, {self.launcher.kind} launcher)"


_SUPPORT = ("ost_begin", "ost_end", "ost_resolve", "ost_resolve_end", "ost_pairs", "ost_mark", "ost_step")


class _Loan:
    """Memory shared with another library: memory freed after this is dropped waits for that library's stream."""

    __slots__ = ("_pool", "_stream")

    def __init__(self, pool: Pool, stream: int) -> None:
        self._pool = pool
        self._stream = stream

    def __del__(self) -> None:
        self._pool.wait_for(self._stream)


def _check_compiler() -> None:
    nvrtc()
    supported = bindings().cuDriverGetVersion()[1] // 1000
    major, minor = version()
    if major > supported:
        raise DeviceUnavailable(
            f"cuda: the driver supports CUDA {supported}, but the compiler library is that of CUDA {major}.{minor};"
            " update the driver"
        )


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
