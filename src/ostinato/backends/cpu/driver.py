"""The CPU backend: compiles translated kernels, loads them, and drives the C++ runtime through ctypes."""

from __future__ import annotations

import ctypes
import os
import platform
import time
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import lru_cache, partial
from itertools import pairwise, starmap
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from ... import settings
from ...base import host
from ...base.locks import ForkLock
from ...errors import DeviceError, DeviceUnavailable, OstinatoError, OutOfMemory
from ...ir.command_list import CommandList
from ...ir.commands import Command, CompiledKernel, Ordering
from ...ir.ordering import Inferred
from ...native import toolchain
from ...native.building import address_of
from ..conditions import Conditions
from ..host_memory import HostMemory
from ..printing import chosen, log_bytes
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
    WorkerTime,
    sampling_level,
)
from ..records import ARGUMENTS_AT, pack
from .building import runtime_library
from .checking import Checks
from .findings import read_findings
from .kernels import MAX_THREADS_PER_GROUP, compile_kernels

if TYPE_CHECKING:
    from ...msl import Module

SIMD_WIDTH = 32
THREADGROUP_MEMORY_BYTES = 32 << 10
LARGEST_THREADGROUP_MEMORY_BYTES = 64 << 20
MAX_INLINE_BYTES = 4096
_MOST_RED_ZONES_BYTES = 64 << 10

_ABI_VERSION = 4
_MEMORY_ALIGNMENT = 128
_ACCESSES = ("", "read", "write", "misaligned", "no address")
_TOO_MANY_EDGES, _NO_MEMORY = 2, 0
_lock = ForkLock()
_MODES = {Ordering.SERIAL: 0, Ordering.BARRIERS: 1, Ordering.INFERRED: 3}
_MODE_EDGES = 2
_OUTCOMES = (Outcome.DONE, Outcome.FAULTED, Outcome.NOT_RUN)
_DONE = Status(Outcome.DONE, node=0, signal=0, address=0, access="", thread=None)
_Numbers = ctypes.c_uint32 * 3
_MOVE = ctypes.PYFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4, ctypes.c_uint64)


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


class _GraphParts(NamedTuple):
    """What a graph of the runtime is made of."""

    records: np.ndarray
    """The bytes of all records."""
    starts: np.ndarray
    """Where each begins."""
    order: tuple[int, int | None, int]
    edges: np.ndarray
    """The memory that `order` points to."""
    params: np.ndarray
    uses: np.ndarray
    value_bytes: int


class _Places(NamedTuple):
    """Arguments of a graph's dispatches."""

    nodes: np.ndarray
    positions: np.ndarray
    nodes_at: int
    positions_at: int
    words: np.ndarray
    """Where they stand in the records."""
    numbers: list[int]
    """The same; writing a few takes NumPy longer."""
    given: ctypes.Array[ctypes.c_uint64]
    """Room for their addresses."""


class _Executable:
    """The driver's reference to a graph of the runtime; the runtime itself keeps graphs that are running."""

    __slots__ = ("__weakref__", "_places", "_release", "device", "parts", "pointer", "value_bytes")

    def __init__(
        self, device: int | None, value_bytes: int, release: Callable[[int], None], parts: _GraphParts | None = None
    ) -> None:
        # A list that the native call fills, so that no interrupt can come in between.
        self.pointer: list[int] = []
        # Its own reference, because at interpreter exit the backend may be gone first.
        self._release = release
        self.device = device
        self.value_bytes = value_bytes
        self.parts = parts
        """What it was made of, with the addresses of now, if others with other addresses are to be made of that."""
        self._places: _Places | None = None

    def places(self, nodes: np.ndarray, positions: np.ndarray) -> _Places:
        """Where arguments stand; callers pass the same arrays again and again, and do not change them."""
        known = self._places
        if known is None or known.nodes is not nodes or known.positions is not positions:
            assert self.parts is not None
            words = (self.parts.starts[nodes] + ARGUMENTS_AT) // 8 + positions
            given = (ctypes.c_uint64 * len(words))()
            starts = (nodes.ctypes.data, positions.ctypes.data)
            self._places = known = _Places(nodes, positions, *starts, words, words.tolist(), given)
        return known

    def __del__(self) -> None:
        if hasattr(self, "_release"):
            for native in self.pointer:
                self._release(native)


class CpuRun(int):
    """A submission of the runtime, by its address. (A number, because one is made without a step of the interpreter.)

    Each backend has a subclass of its own, which knows the runtime.
    """

    __slots__ = ()
    runtime: ClassVar[Any]

    def wait(self, timeout_ns: int) -> bool:
        """Wait, with the interpreter lock released."""
        return bool(self.runtime.ost_wait(self, timeout_ns))

    def status(self) -> Status:
        """How it ended, from the runtime."""
        native = self._native_status()
        findings, lost = read_findings(self.runtime, self)
        if not native.error:
            return replace(_DONE, findings=findings, findings_lost=lost) if findings else _DONE
        return Status(
            outcome=_OUTCOMES[native.error],
            node=native.node,
            signal=native.signal,
            address=native.address,
            access=_ACCESSES[native.access],
            thread=tuple(native.thread) if native.thread_known else None,
            findings=findings,
            findings_lost=lost,
        )

    def inferred(self) -> Inferred:
        """The inferred order, in numbers, from the hazard engine."""
        numbers = _Numbers()
        self.runtime.ost_inferred(self, numbers)
        return Inferred(*numbers[:])

    def times(self) -> tuple[int, int] | None:
        """Start and end by the host's clock, which the workers read."""
        native = self._native_status()
        return (native.start_ns, native.end_ns) if native.start_ns else None

    def samples(self) -> np.ndarray | None:
        """A copy of the runtime's table, which is freed with the submission."""
        count = ctypes.c_uint64()
        table = self.runtime.ost_samples(self, ctypes.byref(count))
        if not table:
            return None
        copied = np.empty((count.value, 2), np.uint64)
        ctypes.memmove(copied.ctypes.data, table, copied.nbytes)
        return copied

    def bounded(self) -> np.ndarray | None:
        """None: each command has its own times."""
        return None

    def worker_time(self) -> WorkerTime | None:
        """The workers' own measurements."""
        native = self._native_status()
        if not native.worked_ns:
            return None
        return WorkerTime(native.worked_ns, native.lost_ns, native.late_ns, native.joined)

    def log(self) -> Log | None:
        """A copy of the runtime's records, which are freed with the submission."""
        nbytes, dropped = ctypes.c_uint64(), ctypes.c_uint64()
        records = self.runtime.ost_log(self, ctypes.byref(nbytes), ctypes.byref(dropped))
        if not records and not dropped.value:
            return None
        return Log(ctypes.string_at(records, nbytes.value) if records else b"", dropped.value)

    def release(self) -> None:
        """Drop the driver's reference to it."""
        self.runtime.ost_release(self)

    def _native_status(self) -> _Status:
        native = _Status()
        self.runtime.ost_status(self, ctypes.byref(native))
        return native


class CpuBackend(HostMemory):
    """The machine's own cores as a device."""

    def __init__(
        self,
        workers: int | None = None,
        threadgroup_memory: int = THREADGROUP_MEMORY_BYTES,
        checked: bool | str = False,
        debug: bool = False,
        sampling: str = "dispatches",
        overflow: bool = False,
        nan: bool = False,
        unwritten: bool = False,
    ) -> None:
        if not isinstance(checked, bool) and checked != "bounds":
            raise DeviceUnavailable(f'checked={checked!r}: expected True, False or "bounds"')
        if not isinstance(debug, bool):
            raise DeviceUnavailable(f"debug={debug!r}: expected True or False")
        if checked and debug:
            raise DeviceUnavailable(f"checked={checked!r} and debug=True: kernels are built for one of them")
        setting = settings.get("debug")
        # The setting is about the program's kernels, which the checks of `audit` run on devices of their own.
        self._debug = not checked and (debug if setting is None else setting is True)
        self._checks = Checks(overflow, nan, unwritten, checked == "bounds") if checked else None
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
        for option, value in (("overflow", overflow), ("nan", nan), ("unwritten", unwritten)):
            if not isinstance(value, bool):
                raise DeviceUnavailable(f"{option}={value!r}: expected True or False")
            if value and checked is not True:
                raise DeviceUnavailable(f"{option}=True: only a device with checked=True looks for it")
        if self._debug:
            count = 1  # one thread after the other, or a step over one would run others beside it
        level = sampling_level(sampling)
        if checked:
            count = 1  # the history of accesses is kept by one worker
        self._runtime: Any = runtime_library()
        _declare(self._runtime)
        # A thread that lets go of the interpreter for a call this short may wait long until it has it again.
        self._move = _MOVE(address_of(self._runtime.ost_graph_move))
        self.capabilities = replace(
            _capabilities(toolchain.find(), count, threadgroup_memory, level), checks_kernels=bool(checked)
        )
        # A checked kernel's arrays lie apart.
        arena_bytes = threadgroup_memory * 2 + _MOST_RED_ZONES_BYTES if checked else threadgroup_memory
        bits = 0 if self._checks is None else self._checks.runtime_bits
        reason = ctypes.create_string_buffer(256)
        with _lock:
            self._device: int | None = self._runtime.ost_open(count, arena_bytes, bits, reason, len(reason))
        if not self._device:
            raise DeviceUnavailable(f"cpu: {reason.value.decode(errors='replace')}")
        self._runtime.ost_limit_log(self._device, log_bytes())
        runs = type("CpuRun", (CpuRun,), {"__slots__": (), "runtime": self._runtime})
        self._runs = runs
        self._make_run: Callable[[int], Run] = partial(int.__new__, runs)
        self._submit = self._runtime.ost_submit
        self._replay = self._runtime.ost_replay

    def compile(
        self, module: Module, constants: Mapping[int | str, object], only: Collection[str] | None = None
    ) -> Mapping[str, CompiledKernel]:
        """Native code, from the cache if it has been compiled before."""
        printing = chosen(module, self._checks is not None or self._debug)
        return compile_kernels(module, constants, only, self._checks, self._debug, printing)

    def allocate(self, nbytes: int) -> Memory:
        """Allocate memory aligned to a pair of cache lines; an empty block still has an address."""
        red_zone = _MEMORY_ALIGNMENT if self._checks is not None else 0  # an access past the end is in no other block
        try:
            owner = np.empty(max(nbytes, 1) + _MEMORY_ALIGNMENT + red_zone, np.uint8)
        except (MemoryError, ValueError):
            raise OutOfMemory(f"cpu: no memory for {nbytes} bytes") from None
        start = owner.ctypes.data
        address = start + -start % _MEMORY_ALIGNMENT
        if self._checks is not None and nbytes:
            self._runtime.ost_track(self._device, address, nbytes, None)
            weakref.finalize(owner, self._untrack, address).atexit = False
        return Memory(address, nbytes, owner)

    def _untrack(self, address: int) -> None:
        if self._device:
            self._runtime.ost_track(self._device, address, 0, None)

    def track(self, address: int, unwritten: np.ndarray) -> None:
        """Have a device that checks kernels follow memory of the caller's: an array of bools, true for each byte that
        nobody has written. With an empty array the memory is forgotten."""
        self._runtime.ost_track(self._device, address, unwritten.nbytes, unwritten.ctypes.data)

    def read_unwritten(self, address: int, into: np.ndarray) -> None:
        """Set an array of bools to what is unwritten now, of memory that `track` follows."""
        self._runtime.ost_unwritten(self._device, address, into.nbytes, into.ctypes.data)

    def write(self, memory: Memory, offset: int, values: np.ndarray) -> None:
        """Copy a flat array of bytes into memory."""
        super().write(memory, offset, values)
        self.expose(memory, offset, values.nbytes)

    def clear(self, memory: Memory, offset: int, nbytes: int) -> None:
        """Set bytes of memory to zero."""
        super().clear(memory, offset, nbytes)
        self.expose(memory, offset, nbytes)

    def expose(self, memory: Memory, offset: int, nbytes: int) -> None:
        """A device that checks kernels takes these bytes as written."""
        if self._checks is not None:
            self._runtime.ost_written(self._device, memory.address + offset, nbytes)

    def adopt(self, array: np.ndarray) -> Memory | None:
        """Share the array's memory: the device can use all host memory."""
        return Memory(array.ctypes.data, array.nbytes, array)

    def lower(self, command: Command) -> bytes:
        """The command's record."""
        return pack(command, self._checks is not None)

    def submit(self, commands: CommandList, started: list[Run], sample: bool = False, retain: bool = True) -> None:
        """Start the whole list in one call. The runtime infers the order if it is not known yet."""
        lowered = commands.lowered
        records = b"".join(lowered)
        order = _order(commands) if commands.is_ordered else (_MODES[commands.ordering], None, 0)
        call = (self._device, records, len(records), len(lowered), *order, sample)
        # Signal handlers run between steps of the interpreter; from the call to the list there is none.
        started.extend(map(self._make_run, filter(None, starmap(self._submit, (call,)))))
        if not started:
            raise self._refused(f"a list of {len(lowered)} commands")

    def instantiate(self, commands: CommandList) -> _Executable:
        """Build the runtime's graph, with a table of the arguments that are parameters."""
        return self._made(_parts(commands), False)

    def instantiate_movable(self, commands: CommandList) -> _Executable:
        """Build a graph that `moved` accepts."""
        return self._made(_parts(commands), True)

    def moved(
        self, executable: _Executable, nodes: np.ndarray, positions: np.ndarray, addresses: list[int] | np.ndarray
    ) -> _Executable | None:
        """Change addresses in the graph, or build another one with these while it runs."""
        if self._checks is not None:
            return None  # its history knows memory by commands
        parts, places = executable.parts, executable.places(nodes, positions)
        assert parts is not None
        given: Any = places.given
        if isinstance(addresses, list):
            given[:] = addresses
        else:
            given = addresses.ctypes.data
        count = len(places.words)
        changed = self._move(executable.pointer[0], places.nodes_at, places.positions_at, given, count)
        if not changed:
            parts = parts._replace(records=parts.records.copy())
        if isinstance(addresses, list):
            slots = parts.records.data.cast("Q")
            for word, address in zip(places.numbers, addresses, strict=True):
                slots[word] = address
        else:
            parts.records.view(np.uint64)[places.words] = addresses
        return executable if changed else self._made(parts, True)

    def _made(self, parts: _GraphParts, movable: bool) -> _Executable:
        release = self._runtime.ost_graph_release
        executable = _Executable(self._device, parts.value_bytes, release, parts if movable else None)
        count = len(parts.starts)
        call = (
            *(self._device, parts.records.ctypes.data, parts.records.nbytes, count, *parts.order),
            *(parts.params.ctypes.data, len(parts.params), parts.uses.ctypes.data, len(parts.uses), parts.value_bytes),
        )
        executable.pointer.extend(filter(None, starmap(self._runtime.ost_graph_make, (call,))))
        if not executable.pointer:
            raise self._refused(f"a graph of {count} commands")
        return executable

    def prepare_samples(self, work: Any) -> bool:
        """False: the workers read the clock around each command, so there is nothing to prepare."""
        return False

    def annotated(self, label: str | None) -> AbstractContextManager[None] | None:
        """None: no platform tool shows labels of a CPU device."""
        return None

    def replay(self, executable: _Executable, values: bytes, sample: bool, started: list[Run]) -> None:
        """Start the graph in one call, whatever its length."""
        if executable.device != self._device:
            raise ValueError("a graph is replayed on the device that it was made for")
        if len(values) < executable.value_bytes:
            raise ValueError(
                f"a replay of this graph takes {executable.value_bytes} bytes of values, got {len(values)}"
            )
        call = (self._device, executable.pointer[0], values, sample)
        # As in `submit`: no step of the interpreter from the call to the list.
        started.extend(map(self._make_run, filter(None, starmap(self._replay, (call,)))))
        if not started:
            raise self._refused("a replay of a graph")

    def native_calls(self) -> NativeCalls:
        """What native code needs to start and end replays."""
        names = ("ost_quick_start", "ost_quick_wait", "ost_quick_finish", "ost_quick_release", "ost_quick_read")
        addresses = (address_of(getattr(self._runtime, name)) for name in names)
        return NativeCalls(self._runs, _DONE, self._make_run, 0, *addresses)

    def native_replay(self, executable: _Executable) -> NativeReplay:
        """What starts a replay of a graph."""
        assert self._device is not None
        return NativeReplay((self._device, executable.pointer[0]), None, None)

    def _refused(self, what: str) -> DeviceError:
        """The error for the last call of this thread, which the runtime refused."""
        reason = self._runtime.ost_refusal()
        if reason == _NO_MEMORY:
            return OutOfMemory(f"cpu: no memory for {what}")
        if reason == _TOO_MANY_EDGES:
            return DeviceError(f"cpu: {what} has 2**32 or more pairs of commands that wait for each other; split it")
        return DeviceError(f"cpu: the runtime does not accept {what}; this is a bug in ostinato")

    def resume(self, skipped: Collection[Run]) -> None:
        """Continue after a fault: the runtime stops its queue there until this call."""
        for run in skipped:
            assert isinstance(run, CpuRun)
            self._runtime.ost_skip(run)
        self._runtime.ost_resume(self._device)

    def conditions(self) -> Conditions:
        """Empty: conditions of the host are recorded with the process."""
        return Conditions()

    def update_residency(self, added: Sequence[int], removed: Sequence[int]) -> None:
        """Nothing to do: host memory is always resident."""

    def close(self) -> None:
        """End the worker threads."""
        device, self._device = self._device, None
        if device:
            self._runtime.ost_close(device)

    def __repr__(self) -> str:
        return f"CpuBackend({self.capabilities.workers} workers)"


def _parts(commands: CommandList) -> _GraphParts:
    params: dict[tuple[int, int], int] = {}
    uses = [
        (use.node, use.position, params.setdefault((use.start, use.nbytes), len(params))) for use in commands.param_uses
    ]
    lowered = commands.lowered
    sizes = np.fromiter(map(len, lowered), np.int64, len(lowered))
    records = np.frombuffer(bytearray().join(lowered), np.uint8)
    edges = commands.order.edges
    tables = (np.array(list(params), np.uint32), np.array(uses, np.uint32))
    return _GraphParts(records, sizes.cumsum() - sizes, _order(commands), edges, *tables, commands.value_bytes)


def _order(commands: CommandList) -> tuple[int, int | None, int]:
    """The order of a list for the runtime: a mode, and the list's edges if they are inferred."""
    if commands.ordering is not Ordering.INFERRED:
        return _MODES[commands.ordering], None, 0
    edges = commands.order.edges
    return _MODE_EDGES, edges.ctypes.data, len(edges)


def availability() -> tuple[Capabilities | None, str]:
    """The capabilities of a CPU device opened without options, or None and the reason why it cannot be opened."""
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
        description=host.processor(),
        workers=workers,
        max_threads_per_group=MAX_THREADS_PER_GROUP,
        simd_width=SIMD_WIDTH,
        threadgroup_memory_bytes=threadgroup_memory,
        max_inline_bytes=MAX_INLINE_BYTES,
        shared_memory=True,
        sampling=sampling,
        clock_uncertainty_ns=_clock_step_ns(),
        timer_step_ns=_clock_step_ns(),
        plain_loops=True,
        first_come=True,
        prints=True,
        cache_bytes=host.cache_bytes(),
        gates=GATES | {"debug"},
        details={"compiler": f"{compiler.command[0]} ({compiler.version})", "machine": platform.machine()},
    )


@lru_cache(maxsize=1)
def _clock_step_ns() -> float:
    """The resolution of the host's clock, which the workers read."""
    readings = [time.monotonic_ns() for _ in range(200)]
    steps = [after - before for before, after in pairwise(readings) if after > before]
    return float(min(steps, default=1))


def _declare(library: ctypes.CDLL) -> None:
    pointer, u32, u64, i64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int64
    for name, result, arguments in (
        ("ost_abi_version", u32, ()),
        ("ost_open", pointer, (u32, u64, u32, ctypes.c_char_p, u64)),
        ("ost_limit_log", None, (pointer, u64)),
        ("ost_close", None, (pointer,)),
        ("ost_submit", pointer, (pointer, ctypes.c_char_p, u64, u64, u32, pointer, u64, u32)),
        ("ost_inferred", None, (pointer, pointer)),
        (
            "ost_graph_make",
            pointer,
            (pointer, pointer, u64, u64, u32, pointer, u64, pointer, u64, pointer, u64, u64),
        ),
        ("ost_graph_release", None, (pointer,)),
        ("ost_replay", pointer, (pointer, pointer, ctypes.c_char_p, u32)),
        ("ost_samples", pointer, (pointer, pointer)),
        ("ost_log", pointer, (pointer, pointer, pointer)),
        ("ost_findings", pointer, (pointer, pointer, pointer)),
        ("ost_track", None, (pointer, u64, u64, pointer)),
        ("ost_unwritten", None, (pointer, u64, u64, pointer)),
        ("ost_written", None, (pointer, u64, u64)),
        ("ost_add_image", None, (u64, u64)),
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
    runtime_version = library.ost_abi_version()
    if runtime_version != _ABI_VERSION:
        raise DeviceError(f"the CPU runtime has ABI version {runtime_version}, the driver {_ABI_VERSION}")
