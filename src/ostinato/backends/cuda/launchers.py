"""Starting work: a list of launches, or a graph, and waiting for it.

`NativeLauncher` does each in one call of `launcher.cpp`; `PlainLauncher` does the same through the driver's Python
functions, for machines without a C++ compiler. Both return the driver's error status, or 0.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ...errors import DeviceError, OstinatoError
from ...native.building import address_of, host_library
from . import launches
from .api import NOT_READY, Context
from .kernels import Functions
from .rings import SLOT_BYTES, RingFields
from .updates import Nodes, NodeSpec, Rows

FULL = -2
"""The result of `replay` when the next slot of the ring is not free."""

STAGED_BYTES = 8 * 4096
"""Pinned memory for small reads, in pieces of 4,096 bytes."""

_SOURCE = Path(__file__).with_name("launcher.cpp")
_LARGEST_PAUSE_S = 0.0005
_LOOK_NS = 1_000_000

Start = Callable[..., int]
_FEW_ROWS = 8


class Reading(ctypes.Structure):
    """`Reading` of launcher.cpp: where the times of a list go, and the kernel that reduces them to one pair each."""

    _fields_ = (
        ("kernel", ctypes.c_uint64),
        ("table", ctypes.c_uint64),
        ("pairs", ctypes.c_uint64),
        ("result", ctypes.c_uint64),
        ("blocks", ctypes.c_uint32),
        ("threads", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
        ("zero", ctypes.c_uint32),
    )


class Started(ctypes.Structure):
    """`Started` of launcher.cpp: the submission's number once it has started, the number of launches, and which replay
    of its graph it is."""

    _fields_ = (
        ("number", ctypes.c_uint32),
        ("launched", ctypes.c_uint32),
        ("turn", ctypes.c_uint32),
        ("zero", ctypes.c_uint32),
    )


class Launcher(Protocol):
    """Starts work on one stream. Submissions get ascending numbers, modulo 2³².

    `submit(records, count, reading, starts, start, end, started)` launches a list, between the events `start` and
    `end`. With the address of a `Reading`, every launch is timed, into the pairs that the numbers at `starts` select.
    `replay(ring, graph, values, result, started)` writes the values, and the address for the times of dispatches, to
    the next slot of the ring (the address of a `RingFields`) and launches a graph; or returns `FULL`. Both fill the
    `Started` at the last address. If a part fails, they wait for the launches that had started.
    """

    kind: str

    @property
    def submit(self) -> Start: ...

    @property
    def replay(self) -> Start: ...

    def slots(self, records: bytes, lowered: Sequence[bytes]) -> tuple[np.ndarray, int]:
        """The first pair of each command, and the entry of a kernel without an instrumented variant, or 0."""
        ...

    def update(self, nodes: Nodes, rows: Rows) -> int:
        """Give these rows of a graph's nodes their parameters as they are now; an error status, or 0."""
        ...

    def quick_calls(self) -> tuple[int, ...] | None:
        """The launcher's address, and its functions for the hot path: start, wait, finish, release, read; or None."""
        ...

    def read_through(self, stream: int, staged: int) -> None:
        """Let small reads of the hot path use this stream and `STAGED_BYTES` of pinned memory."""
        ...

    @property
    def wait(self) -> Start:
        """Takes a number and a timeout in ns; returns 1 if the submission is done, 0 on timeout, or minus an error."""
        ...


class _Fields(ctypes.Structure):
    """`Launcher` of launcher.cpp."""

    _fields_ = (
        ("context", ctypes.c_uint64),
        ("stream", ctypes.c_uint64),
        ("done", ctypes.c_uint64),
        ("done_address", ctypes.c_uint64),
        ("functions", ctypes.c_void_p * 10),
        ("read_stream", ctypes.c_uint64),
        ("staged", ctypes.c_uint64),
        ("looked_ns", ctypes.c_int64),
        ("number", ctypes.c_uint32),
        ("taken", ctypes.c_uint32),
        ("lost", ctypes.c_uint32),
    )


class NativeLauncher:
    """Starts work through launcher.cpp."""

    kind = "native"

    def __init__(self, context: int, stream: int, done: int, done_address: int, driver: str = "libcuda.so.1") -> None:
        library: Any = host_library("CUDA launcher", [_SOURCE], linking=("-ldl",))
        u32, u64, pointer = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p
        for name, result, arguments in (
            ("ost_cuda_open", ctypes.c_int, (pointer, ctypes.c_char_p)),
            ("ost_cuda_slots", u64, (ctypes.c_char_p, u64, pointer)),
            ("ost_cuda_submit", ctypes.c_int, (pointer, ctypes.c_char_p, u64, pointer, pointer, u64, u64, pointer)),
            ("ost_cuda_replay", ctypes.c_int, (pointer, pointer, u64, ctypes.c_char_p, u64, pointer)),
            ("ost_cuda_wait", ctypes.c_int, (pointer, u32, ctypes.c_int64)),
            ("ost_cuda_update", ctypes.c_int, (pointer, u64, pointer, pointer, u64)),
        ):
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        self._fields = _Fields(context, stream, done, done_address)
        self._at = ctypes.addressof(self._fields)
        if library.ost_cuda_open(self._at, driver.encode()):
            raise DeviceError("cuda: the driver library lacks functions that are needed; update the driver")
        self._library = library
        # Partials of native functions: calling one takes no interpreter step.
        self.submit: Start = partial(library.ost_cuda_submit, self._at)
        self.replay: Start = partial(library.ost_cuda_replay, self._at)
        self.wait: Start = partial(library.ost_cuda_wait, self._at)
        self._update: Start = partial(library.ost_cuda_update, self._at)
        # A thread that lets go of the interpreter for a call this short may wait long until it has it again.
        prototype = ctypes.PYFUNCTYPE(ctypes.c_int, pointer, u64, pointer, pointer, u64)
        self._update_few: Start = partial(prototype(address_of(library.ost_cuda_update)), self._at)

    def update(self, nodes: Nodes, rows: Rows) -> int:
        """Give nodes their parameters, in one call."""
        _, at, count = rows
        update = self._update_few if count <= _FEW_ROWS else self._update
        return update(nodes.executable, nodes.specs_at, at, count)

    def quick_calls(self) -> tuple[int, ...] | None:
        """The addresses; nothing is to be released."""
        names = ("ost_quick_start", "ost_quick_wait", "ost_quick_finish", "ost_quick_read")
        start, wait, finish, read = (address_of(getattr(self._library, name)) for name in names)
        return self._at, start, wait, finish, 0, read if self._fields.staged else 0

    def read_through(self, stream: int, staged: int) -> None:
        """Let small reads use this stream and `STAGED_BYTES` of pinned memory."""
        self._fields.read_stream, self._fields.staged = stream, staged

    def slots(self, records: bytes, lowered: Sequence[bytes]) -> tuple[np.ndarray, int]:
        """The first pair of each command, and an entry without an instrumented variant, in one pass."""
        starts = np.empty(len(lowered) + 1, np.uint32)
        return starts, self._library.ost_cuda_slots(records, len(lowered), starts.ctypes.data)


class PlainLauncher:
    """Starts work through the driver's Python functions."""

    kind = "python"

    def __init__(self, context: Context, stream: int, done: int, done_address: int) -> None:
        self._context = context
        self._cu = context.cu
        self._stream = self._cu.CUstream(stream)
        self._done = ctypes.c_uint32.from_address(done)
        self._done_address = self._cu.CUdeviceptr(done_address)
        self._looked_ns = 0
        self._number = 0

    def update(self, nodes: Nodes, rows: Rows) -> int:
        """Give nodes their parameters, one call each."""
        cu = self._cu
        specs = (NodeSpec * (int(rows.numbers.max(initial=0)) + 1)).from_address(nodes.specs_at)
        kernel = cu.CUDA_KERNEL_NODE_PARAMS()
        kernel.gridDimY = kernel.gridDimZ = kernel.blockDimY = kernel.blockDimZ = 1
        with self._context.current():
            for row in rows.numbers.tolist():
                spec = specs[row]
                pointers = (ctypes.c_void_p * 1)(spec.params)
                kernel.func, kernel.kernelParams = cu.CUfunction(spec.function), ctypes.addressof(pointers)
                kernel.gridDimX, kernel.blockDimX, kernel.sharedMemBytes = spec.blocks, spec.threads, spec.shared_bytes
                executable, node = cu.CUgraphExec(nodes.executable), cu.CUgraphNode(spec.node)
                (status,) = cu.cuGraphExecKernelNodeSetParams(executable, node, kernel)
                if int(status):
                    return int(status)
        return 0

    def quick_calls(self) -> tuple[int, ...] | None:
        """None: it is not native."""
        return None

    def read_through(self, stream: int, staged: int) -> None:
        """Nothing to do: it has no hot path."""

    def slots(self, records: bytes, lowered: Sequence[bytes]) -> tuple[np.ndarray, int]:
        """The first pair of each command, and an entry without an instrumented variant, record by record."""
        for record in lowered:
            launch = launches.launch_of(record)
            if launch is not None and not Functions.from_address(launch.entry).sampled:
                return np.empty(0, np.uint32), launch.entry
        return launches.sample_starts(lowered), 0

    def submit(
        self, records: bytes, count: int, reading: int | None, starts: int | None, start: int, end: int, started: int
    ) -> int:
        """Launch a list, one call per launch."""
        return self._whole(started, lambda out: self._launch_list(records, count, reading, starts, start, end, out))

    def replay(self, ring: int, graph: int, values: bytes, result: int, started: int) -> int:
        """Fill a slot and launch a graph."""
        fields = RingFields.from_address(ring)
        if fields.is_full:
            return FULL
        return self._whole(started, lambda out: self._launch_graph(fields, graph, values, result, out))

    def _whole(self, started: int, launch: Callable[[Started], int]) -> int:
        """Launch, and after a failure (Ctrl-C included) wait for what had started."""
        out = Started.from_address(started)
        try:
            with self._context.current():
                status = launch(out)
                if status and out.launched:
                    out.number = 0
                    self._cu.cuStreamSynchronize(self._stream)
        except BaseException:
            with self._context.current():
                self._cu.cuStreamSynchronize(self._stream)
            raise
        return status

    def _launch_list(
        self, records: bytes, count: int, reading: int | None, starts: int | None, start: int, end: int, out: Started
    ) -> int:
        cu, stream = self._cu, self._stream
        begins = None if starts is None else (ctypes.c_uint32 * (count + 1)).from_address(starts)
        read = None if reading is None else Reading.from_address(reading)
        (status,) = cu.cuEventRecord(cu.CUevent(start), stream)
        at = 0
        for index in range(count):
            if int(status):
                return int(status)
            nbytes = int.from_bytes(records[at : at + 4], "little")
            record = records[at : at + nbytes]
            at += nbytes
            launch = launches.launch_of(record)
            if launch is None:
                continue
            params = ctypes.create_string_buffer(record[launch.params_at :])
            functions = Functions.from_address(launch.entry)
            function = functions.plain
            if read is not None and begins is not None:
                function = functions.sampled
                room = begins[index + 1] - begins[index]
                launches.aim(params, launch, read.pairs + 16 * begins[index], room)
            pointers = launches.param_pointers(params)
            (status,) = cu.cuLaunchKernel(
                cu.CUfunction(function), launch.blocks, 1, 1, launch.threads, 1, 1, launch.shared_bytes,
                stream, ctypes.addressof(pointers), 0,
            )  # fmt: skip
            out.launched += not int(status)
        if read is not None and not int(status):
            values = (read.table, read.pairs, read.result, read.count)
            types = (*(ctypes.c_uint64,) * 3, ctypes.c_uint32)
            kernel = cu.CUfunction(read.kernel)
            (status,) = cu.cuLaunchKernel(kernel, read.blocks, 1, 1, read.threads, 1, 1, 0, stream, (values, types), 0)
        return int(status) or self._finish(end, out)

    def _launch_graph(self, ring: RingFields, graph: int, values: bytes, result: int, out: Started) -> int:
        cu = self._cu
        slot = ring.slot(ring.turn)
        # The number is used up before the launch: after an interrupt that hides the launch, no other gets the same.
        self._number = number = (self._number + 1) & 0xFFFFFFFF
        slot.turn, slot.number, slot.result, slot.begin, slot.end = ring.turn, number, result, 0, 0
        ctypes.memmove(ctypes.addressof(slot) + SLOT_BYTES, values, ring.bytes)
        (status,) = cu.cuGraphLaunch(cu.CUgraphExec(graph), self._stream)
        if int(status):
            self._number = (number - 1) & 0xFFFFFFFF
            cu.cuStreamSynchronize(self._stream)
            return int(status)
        out.turn, out.number, out.launched = ring.turn, number, 1
        ring.turn = (ring.turn + 1) & 0xFFFFFFFF
        return 0

    def _finish(self, end: int, out: Started) -> int:
        cu = self._cu
        (status,) = cu.cuEventRecord(cu.CUevent(end), self._stream)
        if not int(status):
            self._number = out.number = (self._number + 1) & 0xFFFFFFFF
            (status,) = cu.cuStreamWriteValue32(self._stream, self._done_address, cu.cuuint32_t(out.number), 0)
        return int(status)

    def wait(self, number: int, timeout_ns: int) -> int:
        """Poll for the end of a submission, with growing pauses."""
        deadline_ns = time.monotonic_ns() + timeout_ns
        pause_s = 0.0
        while (self._done.value - number) & 0xFFFFFFFF >= 1 << 31:
            now_ns = time.monotonic_ns()
            if now_ns - self._looked_ns > _LOOK_NS:
                self._looked_ns = now_ns
                with self._context.current():
                    (status,) = self._cu.cuStreamQuery(self._stream)
                if int(status) not in (0, NOT_READY):
                    return -int(status)
            if now_ns >= deadline_ns:
                return 0
            time.sleep(pause_s)
            pause_s = min(pause_s + 0.00001, _LARGEST_PAUSE_S)
        return 1


def make(context: Context, stream: int, done: int, done_address: int) -> Launcher:
    """The native launcher if it can be built, else the Python one."""
    try:
        return NativeLauncher(int(context.handle), stream, done, done_address)
    except (OstinatoError, OSError):
        return PlainLauncher(context, stream, done, done_address)
