"""The backend protocol: the operations that a device, an encoder and a queue need.

A backend compiles modules, allocates memory, lowers single commands to a form of its own (which the encoder memoises),
and runs a list of them in one call. It can also make a list ready once and replay it many times, at a cost that does
not depend on its length. It knows nothing of encoders, buffers or devices. Work that it has started is a `Run`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ..errors import DeviceUnavailable, OstinatoError
from ..ir.command_list import CommandList
from ..ir.commands import Command, CompiledKernel
from ..ir.ordering import Inferred
from .conditions import Conditions
from .kernel_findings import KernelFinding

if TYPE_CHECKING:
    from ..msl import Module

_numbers = count(1)


class Level(IntEnum):
    """What is timed, or can be: nothing, whole command buffers, or every dispatch."""

    OFF = 0
    COMMAND_BUFFERS = 1
    DISPATCHES = 2


GATES = frozenset({"unretained_refs", "no_residency", "profile_barriers", "profile_cb", "profile_dispatch"})
"""The settings that every backend supports."""


def sampling_level(sampling: Any) -> Level:
    """The level with this name, from the option `sampling`; raises `DeviceUnavailable` for any other value."""
    return read_level("sampling", sampling, DeviceUnavailable)


def read_level(option: str, name: Any, refused: type[OstinatoError]) -> Level:
    """The level with this name, the value of an option; raises for any other value."""
    if not isinstance(name, str) or name.upper() not in Level.__members__:
        known = ", ".join(repr(level.name.lower()) for level in Level)
        raise refused(f"{option}={name!r}: expected one of {known}")
    return Level[name.upper()]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a device can do, with every limit that checks use."""

    name: str
    """The name to open it by."""
    backend: str
    description: str
    workers: int
    """Threads or multiprocessors that run groups concurrently."""
    max_threads_per_group: int
    simd_width: int
    threadgroup_memory_bytes: int
    max_inline_bytes: int
    shared_memory: bool
    """Whether the host shares the memory, so that `as_numpy()` is a window and not a copy."""
    sampling: Level = Level.DISPATCHES
    """The highest level that it can time."""
    sampling_reason: str = ""
    """Why it cannot time more, if there is a reason."""
    clock_uncertainty_ns: float = 0.0
    """The uncertainty of its times in host time."""
    timer_step_ns: float = 0.0
    """The resolution of its timer; a dispatch that seems shorter is only bounded."""
    edges_ns: float = 0.0
    """Typical time of a submission before its first and after its last dispatch."""
    dlpack_device: tuple[int, int] = (1, 0)
    """DLPack's type and number of its memory."""
    after_fault: str = ""
    """What is lost after a fault, and what to do then; empty where a fault ends only its submission."""
    encodes_at_replay: bool = False
    """Whether a replay encodes every dispatch again, so that the device can start before all of it is encoded."""
    plain_loops: bool = False
    """Whether threads are iterations of loops on a core, so that cooperation between threads only adds cost."""
    multiplies_tensors: bool = False
    """Whether `matmul2d` of half and bfloat in device memory is the fastest way to multiply matrices."""
    first_come: bool = False
    """Whether overlapping dispatches get workers in the order they start, and very short ones only one; otherwise they
    divide the workers by their sizes."""
    cache_bytes: int = 0
    """The size of its last-level cache, or of all of them together; 0 where that is not known."""
    catches_faults: bool = True
    """Whether a kernel that crashes raises a `KernelFault`; otherwise it ends the process."""
    prints: bool = False
    """Whether os_log and printf in kernels print: its runs have a `log`."""
    checks_kernels: bool = False
    """Whether it checks every access of kernels; a fault then names the line that encoded the dispatch."""
    gates: frozenset[str] = frozenset()
    """The settings (names of the table in `settings.py`) that the device supports."""
    details: Mapping[str, str] = field(default_factory=dict)
    """Facts for people: compiler, processor, versions."""


@dataclass(frozen=True, slots=True)
class Memory:
    """A block of device memory. Dropping the last reference to `owner` releases it."""

    address: int
    nbytes: int
    owner: object = field(repr=False)
    number: int = field(default_factory=_numbers.__next__)
    """Never reused."""


class Outcome(Enum):
    """How a submission ended."""

    DONE = "done"
    FAULTED = "faulted"
    """A kernel faulted."""
    NOT_RUN = "not run"
    """It was not run because of an earlier fault."""


@dataclass(frozen=True, slots=True)
class Status:
    """How a submission ended."""

    outcome: Outcome
    node: int
    """Index of the command at fault."""
    signal: int
    address: int
    access: str
    """The kind of access that faulted: a "read" or "write" of unmapped memory, a "misaligned" access, "no address" for
    an invalid address, or "" when it is not known."""
    thread: tuple[int, int, int] | None
    """Position in the grid of the thread at fault; None when it is not known."""
    reason: str = ""
    """The driver's description of the error, if there is one."""
    findings: tuple[KernelFinding, ...] = ()
    """What the checks of the device found."""
    findings_lost: int = 0
    """How many reports were dropped because the device's table of findings was full."""

    @property
    def failed(self) -> bool:
        """Whether it has no results: it faulted, or was not run."""
        return self.outcome is not Outcome.DONE

    @classmethod
    def unplaced(cls, outcome: Outcome, reason: str = "") -> Status:
        """A status from a device that does not report where a fault happened."""
        return cls(outcome, -1, 0, 0, "", None, reason)


class WorkerTime(NamedTuple):
    """Time of the device's workers during a submission, summed over the workers."""

    worked_ns: int
    """Time in which they had work of the submission."""
    lost_ns: int
    """The part of that in which the operating system ran other programs on their cores."""
    late_ns: int
    """Time from the start of the submission until they joined."""
    joined: int
    """Number of workers that joined."""


class Log(NamedTuple):
    """What the kernels of a submission printed."""

    records: bytes
    """As in `msl/include/ostinato/logging.h`, in any order but that of each thread; they end at a size of 0."""
    dropped: int
    """How many more there were."""
    lost: str = ""
    """Why the records could not be read, if so."""


class Run(Protocol):
    """A submission that has started. All but `wait` and `inferred` are called only once it is done."""

    def wait(self, timeout_ns: int) -> bool:
        """Wait until it is done; False when `timeout_ns` (never negative) passed first."""
        ...

    def status(self) -> Status:
        """How it ended."""
        ...

    def inferred(self) -> Inferred:
        """What the backend found when it inferred the order; available before it is done.

        Asked only of a run whose list had no order when it was submitted; zeros when nothing was inferred.
        """
        ...

    def times(self) -> tuple[int, int] | None:
        """Start and end, in ns of the monotonic clock; None when they are not known."""
        ...

    def samples(self) -> np.ndarray | None:
        """Start and end of each command, in ns of the monotonic clock.

        Of shape (commands, 2) and type uint64, with zeros for commands that did not run; None when it is not sampled.
        """
        ...

    def bounded(self) -> np.ndarray | None:
        """Which commands of `samples` ran only somewhere between the two times; None when none are such bounds."""
        ...

    def worker_time(self) -> WorkerTime | None:
        """The time of the device's workers, if it was sampled; None when it is not known."""
        ...

    def log(self) -> Log | None:
        """What its kernels printed, also after a fault; asked only on a device that prints."""
        ...

    def release(self) -> None:
        """Release the run; nothing is called on it afterwards."""
        ...


class NativeCalls(NamedTuple):
    """The functions with which native code starts and ends replays by itself; native/hot_path/ has their contract.

    A backend that has them returns them from its method `native_calls()`. Its `native_replay(executable)` returns what
    starts one executable. Both may return None, and both may be missing.
    """

    run_class: type
    done: Status
    """The status of a run that ended well."""
    make_run: Callable[[int], Run] | None
    """Makes a run, which is a number, from its key; None if runs are copies of the template in `NativeReplay`."""
    context: int
    start: int
    wait: int
    finish: int
    release: int
    read: int


class NativeReplay(NamedTuple):
    """What native code needs to start one executable."""

    fixed: tuple[int, ...]
    """The first argument of `start`."""
    run: Run | None
    """The template of its runs."""
    failed: Callable[[int], None] | None
    """Called with the result of a start that failed, to raise the error; None if Python may try it again."""


Executable = Any
"""An object of a backend: a command list that it has made ready to be replayed."""


class Backend(Protocol):
    """One open device of one kind."""

    @property
    def capabilities(self) -> Capabilities:
        """What this device can do."""
        ...

    def compile(
        self, module: Module, constants: Mapping[int | str, object], only: Collection[str] | None = None
    ) -> Mapping[str, CompiledKernel]:
        """Compile a module's kernels, or only some of them, with these function constants (by index or name).

        Kernels that take long may be left out after a check that they compile, unless one is asked for alone.
        """
        ...

    def allocate(self, nbytes: int) -> Memory:
        """Allocate memory with undefined contents, aligned for any type."""
        ...

    def adopt(self, array: np.ndarray) -> Memory | None:
        """Memory over the bytes of a contiguous, writable host array; None when they cannot be shared."""
        ...

    def read(self, memory: Memory, offset: int, into: np.ndarray) -> None:
        """Copy memory into a flat array of bytes. No running work writes to it."""
        ...

    def write(self, memory: Memory, offset: int, values: np.ndarray) -> None:
        """Copy a flat array of bytes into memory. No running work uses it."""
        ...

    def clear(self, memory: Memory, offset: int, nbytes: int) -> None:
        """Set bytes of memory to zero. No running work uses them."""
        ...

    def expose(self, memory: Memory, offset: int, nbytes: int) -> None:
        """Called when the host gets a window on these bytes, which it may write at any time from now on."""
        ...

    @property
    def stream(self) -> int | None:
        """The stream (as in DLPack) on which other libraries can wait for its queue; None if there is none."""
        ...

    def lend(self, stream: Any) -> object:
        """Make another library's stream, given as in DLPack, wait for everything submitted so far.

        The caller keeps the returned object as long as the memory is shared.
        """
        ...

    def borrow(self, stream: int) -> None:
        """Make everything submitted from now on wait for what another library's stream has queued."""
        ...

    def lower(self, command: Command) -> Any:
        """The form of a command that `submit` takes: any object but None. Depends on the command alone."""
        ...

    def submit(self, commands: CommandList, started: list[Run], sample: bool = False, retain: bool = True) -> None:
        """Start a list of commands after all earlier ones and return at once; with `sample`, time each command.

        Without `retain` the backend need not keep the memory of its commands; the queue does until the work is done.

        Append the run to `started` if, and as soon as, it has started: without a moment in between at which a signal
        handler (Ctrl-C) could raise.
        """
        ...

    def instantiate(self, commands: CommandList) -> Executable:
        """Make a list of commands ready to be replayed; nothing runs.

        Dropping the returned object releases it, at any time, even while it runs.
        """
        ...

    def replay(self, executable: Executable, values: bytes, sample: bool, started: list[Run]) -> None:
        """Start an instantiated list after all earlier work and return at once, with the contract of `submit`.

        `values` holds the value of each parameter at the list's `value_offsets`. Every replay uses its own values,
        however many are queued.
        """
        ...

    def prepare_samples(self, work: Executable | CommandList) -> bool:
        """Prepare what timing a list or an executable needs; True if there was something to prepare."""
        ...

    def annotated(self, label: str | None) -> AbstractContextManager[None] | None:
        """A context manager that labels work in the platform's own tools; None when no tool is attached."""
        ...

    def resume(self, skipped: Collection[Run]) -> None:
        """Continue after a fault, once its submission has been handled.

        If it can, a backend stops its queue at a fault until this is called, and then does not run the `skipped` runs;
        their outcome is NOT_RUN. Otherwise it may have run them.
        """
        ...

    def conditions(self) -> Conditions:
        """What the device says of itself right now: its clock, what holds that back. Often nothing."""
        ...

    def update_residency(self, added: Sequence[int], removed: Sequence[int]) -> None:
        """Make allocations (by number) resident, and others no longer resident."""
        ...

    def close(self) -> None:
        """Finish submitted work and release everything. Called once, with no submission left."""
        ...
