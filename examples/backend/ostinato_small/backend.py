"""The backend: compiles kernels, owns the device's memory, and hands command lists to the threads of device.cpp."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np

from ostinato import msl
from ostinato.backends import copy_fill, cpu
from ostinato.backends.conditions import Conditions
from ostinato.backends.cpu.kernels import compile_kernels
from ostinato.backends.protocol import GATES, Capabilities, Level, Memory, Outcome, Run, Status
from ostinato.backends.records import shared_offsets
from ostinato.backends.registry import BackendKind
from ostinato.errors import DeviceUnavailable, OutOfMemory
from ostinato.ir.command_list import CommandList
from ostinato.ir.commands import Barrier, Binding, BufferBinding, Command, Dispatch, InlineBinding
from ostinato.ir.ordering import Inferred, barriers_before
from ostinato.native.building import host_library

RUNTIME = Path(cpu.__file__).parent / "runtime"
SOURCES = (Path(__file__).parent / "device.cpp", RUNTIME / "fiber.cpp")
HEADERS = tuple(RUNTIME / name for name in ("abi.h", "clock.h", "fiber.h", "worker.h"))
ALIGNMENT = 128
DEVICE_SPACE = 1 << 48  # what an address of the device has on top of the host's
CAPABILITIES = Capabilities(
    name="small",
    backend="small",
    description="two threads of the host",
    workers=2,
    max_threads_per_group=1024,
    simd_width=32,
    threadgroup_memory_bytes=32 << 10,
    max_inline_bytes=4096,
    shared_memory=False,
    sampling=Level.COMMAND_BUFFERS,
    dlpack_device=(12, 0),  # DLPack's "extension": no other library takes it for memory that it can read
    plain_loops=True,
    catches_faults=False,
    gates=GATES,
)

Place = tuple[int, object]  # an address of the host, and what keeps the memory there


class Launch(ctypes.Structure):
    """A dispatch as a kernel reads it (`Dispatch` in abi.h). Without an entry point it does nothing: a barrier."""

    _fields_ = (
        ("entry", ctypes.c_uint64),
        *((name, ctypes.c_uint32 * 3) for name in ("grid", "group_size", "groups")),
        *((name, ctypes.c_void_p) for name in ("args", "shared_offsets")),
    )

    def point_to(self, places: Sequence[Place], offsets: Sequence[int]) -> Launch:
        """Set where its arguments are, and where each piece of threadgroup memory starts."""
        self.places, self.offsets = places, (ctypes.c_uint32 * len(offsets))(*offsets)
        self.addresses = (ctypes.c_uint64 * len(places))(*(address for address, _ in places))
        self.args, self.shared_offsets = ctypes.addressof(self.addresses), ctypes.addressof(self.offsets)
        return self


class NativeRun(ctypes.Structure):
    """`Run` in device.cpp."""

    names = "launches waits count next running start_ns end_ns done after"
    _fields_ = tuple((name, ctypes.c_uint64) for name in names.split())


class SmallRun:
    """One submission: a command list that was started."""

    def __init__(self, backend: SmallBackend, commands: CommandList, launches: Sequence[Launch]) -> None:
        self.backend, self.commands, self.launches = backend, commands, launches
        by_hand, count = [isinstance(command, Barrier) for command in commands.commands], len(launches)
        self.pointers = (ctypes.c_void_p * count)(*map(ctypes.addressof, launches))
        self.waits = (ctypes.c_uint8 * count)(*barriers_before(commands.order.edges, by_hand))
        self.native = NativeRun(ctypes.addressof(self.pointers), ctypes.addressof(self.waits), count)

    def wait(self, timeout_ns: int) -> bool:
        call = self.backend.device, ctypes.byref(self.native), ctypes.c_uint64(timeout_ns)
        return bool(self.backend.library.small_wait(*call))

    def status(self) -> Status:
        return Status.unplaced(Outcome.DONE)

    def inferred(self) -> Inferred:
        return self.commands.order.inferred

    def times(self) -> tuple[int, int] | None:
        return self.native.start_ns, self.native.end_ns

    def samples(self) -> Any:
        """None: only command buffers are timed."""

    bounded = log = worker_time = release = samples


class SmallBackend:
    """One open device."""

    capabilities = CAPABILITIES
    compile = staticmethod(compile_kernels)
    stream = None

    def __init__(self) -> None:
        self.copy_fill_kernels = compile_kernels(msl.parse(copy_fill.SOURCE), {})
        self.library = host_library("small backend", SOURCES, HEADERS)
        self.library.small_open.restype = ctypes.c_void_p
        self.device = ctypes.c_void_p(self.library.small_open(CAPABILITIES.threadgroup_memory_bytes))
        if not self.device:
            raise DeviceUnavailable("small: its threads could not be started")

    def close(self) -> None:
        self.library.small_close(self.device)

    def allocate(self, nbytes: int) -> Memory:
        address, owner = reserve(nbytes)
        return Memory(DEVICE_SPACE + address, nbytes, owner)

    def read(self, memory: Memory, offset: int, into: np.ndarray) -> None:
        ctypes.memmove(into.ctypes.data, memory.address - DEVICE_SPACE + offset, into.nbytes)

    def write(self, memory: Memory, offset: int, values: np.ndarray) -> None:
        ctypes.memmove(memory.address - DEVICE_SPACE + offset, values.ctypes.data, values.nbytes)

    def clear(self, memory: Memory, offset: int, nbytes: int) -> None:
        ctypes.memset(memory.address - DEVICE_SPACE + offset, 0, nbytes)

    def lower(self, command: Command) -> Launch:
        if isinstance(command, Barrier):
            return Launch()
        if not isinstance(command, Dispatch):
            command = copy_fill.dispatch_of(command, self.copy_fill_kernels)
        offsets, _ = shared_offsets(command.kernel.threadgroup_bytes, command.shared)
        launch = Launch(command.kernel.code, command.threads, command.group_size, command.groups)
        return launch.point_to([place(binding) for binding in command.bindings], offsets)

    def submit(self, commands: CommandList, started: list[Run], sample: bool = False, retain: bool = True) -> None:
        self.start(commands, commands.lowered, started)

    def instantiate(self, commands: CommandList) -> CommandList:
        return commands

    def replay(self, commands: CommandList, values: bytes, sample: bool, started: list[Run]) -> None:
        """Start the list with copies of the launches that take parameters, which point to the values of this replay."""
        launches, (address, owner) = list(commands.lowered), reserve(len(values), values)
        for use in commands.param_uses:
            launch, places = launches[use.node], list(launches[use.node].places)
            places[use.position] = address + use.start, owner
            launches[use.node] = Launch.from_buffer_copy(launch).point_to(places, launch.offsets)
        self.start(commands, launches, started)

    def start(self, commands: CommandList, launches: Sequence[Launch], started: list[Run]) -> None:
        run = SmallRun(self, commands, launches)
        # Signal handlers run between steps of the interpreter; from the call to the list there is none.
        started.extend(compress((run,), map(self.library.small_submit, (self.device,), (ctypes.byref(run.native),))))

    def nothing(self, *given: object) -> Any:
        """For what this device has no use for."""

    adopt = expose = lend = borrow = prepare_samples = annotated = resume = update_residency = nothing

    def conditions(self) -> Conditions:
        return Conditions()


def place(binding: Binding) -> Place:
    """Where an argument is; a parameter gets its value from a replay, an unused argument none."""
    if isinstance(binding, BufferBinding):
        return binding.address - DEVICE_SPACE, None
    return reserve(len(binding.data), binding.data) if isinstance(binding, InlineBinding) else reserve(binding.nbytes)


def reserve(nbytes: int, data: bytes = b"") -> Place:
    """Memory that is aligned for any type, with these bytes in it."""
    try:
        owner = np.empty(nbytes + ALIGNMENT, np.uint8)
    except (MemoryError, ValueError):
        raise OutOfMemory(f"small: no memory for {nbytes} bytes") from None
    address = owner.ctypes.data + -owner.ctypes.data % ALIGNMENT
    ctypes.memmove(address, data, len(data))
    return address, owner


KIND = BackendKind("small", SmallBackend)
