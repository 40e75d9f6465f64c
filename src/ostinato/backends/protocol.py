"""What a backend is: the few operations that a device, an encoder and a queue need from it.

A backend compiles modules, hands out memory, turns single commands into a form of its own (which the encoder memoises),
and runs a list of them in one call; or makes the list ready once, and replays it many times at a cost that does not
depend on its length. It knows nothing of encoders, buffers or devices. What it has started is a `Run`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ..errors import DeviceUnavailable
from ..ir.command_list import CommandList
from ..ir.commands import Command, CompiledKernel
from ..ir.ordering import Inferred
from .conditions import Conditions

if TYPE_CHECKING:
    from ..msl import Module

_numbers = count(1)


class Level(IntEnum):
    """How much of the time of submitted work is measured, or can be."""

    OFF = 0
    COMMAND_BUFFERS = 1
    DISPATCHES = 2


GATES = frozenset({"unretained_refs", "no_residency", "profile_barriers", "profile_cb", "profile_dispatch"})
"""The settings that every backend acts on."""


def sampling_level(sampling: Any) -> Level:
    """What a device was asked to be able to time, by its name."""
    if not isinstance(sampling, str) or sampling.upper() not in Level.__members__:
        raise DeviceUnavailable(
            f"sampling={sampling!r}: expected one of {', '.join(one.name.lower() for one in Level)}"
        )
    return Level[sampling.upper()]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a device can do; every limit that the checks use stands here."""

    name: str
    """The name that opens it."""
    backend: str
    description: str
    workers: int
    """Threads or multiprocessors that run groups at the same time."""
    max_threads_per_group: int
    simd_width: int
    threadgroup_memory_bytes: int
    max_inline_bytes: int
    shared_memory: bool
    """Whether the host sees the same memory, so that `as_numpy()` is a window and not a copy."""
    sampling: Level = Level.DISPATCHES
    """The most that it can time."""
    sampling_reason: str = ""
    """Why it cannot time more, where there is a reason to tell."""
    clock_uncertainty_ns: float = 0.0
    """How well its times are known in host time."""
    timer_step_ns: float = 0.0
    """The shortest time that it can tell from none; a dispatch that seems shorter is only bounded."""
    edges_ns: float = 0.0
    """About how much of a submission's time lies around its dispatches, though nothing is wrong."""
    dlpack_device: tuple[int, int] = (1, 0)
    """What DLPack calls its memory: kind and number."""
    after_fault: str = ""
    """What a fault takes along, and what to do then; empty where it ends its submission and the device goes on."""
    encodes_at_replay: bool = False
    """Whether a replay encodes every dispatch anew, so that the device can start before all of it is encoded."""
    plain_loops: bool = False
    """Whether threads are iterations of loops on a core, so that kernels whose threads work together only cost."""
    first_come: bool = False
    """Whether overlapping dispatches get workers in the order they start, and very short ones only one; otherwise they
    divide the workers by their sizes."""
    catches_faults: bool = True
    """Whether a kernel that crashes is a `KernelFault`; where not, it ends the process."""
    gates: frozenset[str] = frozenset()
    """The settings (names of the table in `settings.py`) that the device can act on."""
    details: Mapping[str, str] = field(default_factory=dict)
    """Facts for people: compiler, processor, versions."""


@dataclass(frozen=True, slots=True)
class Memory:
    """A block of device memory. Dropping the last reference to `owner` gives it back."""

    address: int
    nbytes: int
    owner: object = field(repr=False)
    number: int = field(default_factory=_numbers.__next__)
    """Never used twice."""


class Outcome(Enum):
    """What became of a submission."""

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
    """What was wrong at the address: a "read" or "write" of memory that is not there, a "misaligned" access, "no
    address" for one that no memory can have, or "" when that is not known."""
    thread: tuple[int, int, int] | None
    """Position in the grid of the thread at fault; None when that is not known."""
    reason: str = ""
    """What the device's driver says of the error, where it says something."""

    @property
    def failed(self) -> bool:
        """Whether it has no results: it faulted, or was not run."""
        return self.outcome is not Outcome.DONE

    @classmethod
    def unplaced(cls, outcome: Outcome, reason: str = "") -> Status:
        """Of a device that says what happened, and not where."""
        return cls(outcome, -1, 0, 0, "", None, reason)


class WorkerTime(NamedTuple):
    """The time of a device's workers that a submission had, added up over the workers."""

    worked_ns: int
    """Time in which they had work of it."""
    lost_ns: int
    """The part of that in which the system ran other programs on their cores."""
    late_ns: int
    """How long after its start they took part."""
    joined: int
    """How many did."""


class Run(Protocol):
    """One submission, from its start on. Everything but `wait` is asked once it is done."""

    def wait(self, timeout_ns: int) -> bool:
        """Wait until it is done; False when the time (never negative) ran out first."""
        ...

    def status(self) -> Status:
        """How it ended."""
        ...

    def inferred(self) -> Inferred:
        """What inferring its order came to; may be asked before it is done. Zeros when nothing was inferred."""
        ...

    def times(self) -> tuple[int, int] | None:
        """When it started and ended, in ns of the monotonic clock; None when that is not known."""
        ...

    def samples(self) -> np.ndarray | None:
        """When each command started and ended, in ns of the monotonic clock.

        Of shape (commands, 2) and type uint64, with zeros for what was not run; None when no times were asked for.
        """
        ...

    def bounded(self) -> np.ndarray | None:
        """Which commands of `samples` ran at some time between the two moments, and not all of it; None when none."""
        ...

    def worker_time(self) -> WorkerTime | None:
        """How much of their time the device's workers got, if it was sampled; None where that is not known."""
        ...

    def release(self) -> None:
        """It is not asked anything any more."""
        ...


Executable = Any
"""A command list that a backend has made ready to be replayed: an object of its own."""


class Backend(Protocol):
    """One open device of one kind."""

    @property
    def capabilities(self) -> Capabilities:
        """What this device can do."""
        ...

    def compile(
        self, module: Module, constants: Mapping[int | str, object], only: Collection[str] | None = None
    ) -> Mapping[str, CompiledKernel]:
        """Compile a module's kernels, or some of them, for these values (by index or name) of its constants."""
        ...

    def allocate(self, nbytes: int) -> Memory:
        """Get memory, aligned for any type, of undefined content."""
        ...

    def adopt(self, array: np.ndarray) -> Memory | None:
        """Memory over the bytes of a contiguous, writable array of the host; None when they cannot be shared."""
        ...

    def read(self, memory: Memory, offset: int, into: np.ndarray) -> None:
        """Copy memory, which nothing that runs may write to, into a flat array of bytes."""
        ...

    def write(self, memory: Memory, offset: int, values: np.ndarray) -> None:
        """Copy a flat array of bytes into memory that nothing that runs may use."""
        ...

    def clear(self, memory: Memory, offset: int, nbytes: int) -> None:
        """Set bytes of memory, which nothing that runs may use, to zero."""
        ...

    @property
    def stream(self) -> int | None:
        """What other libraries on the device know its queue by (the stream of DLPack); None where there is no such."""
        ...

    def lend(self, stream: Any) -> object:
        """Have another library's queue, named as in DLPack, wait for all that was submitted so far.

        What it gives is kept as long as the memory is lent.
        """
        ...

    def borrow(self, stream: int) -> None:
        """Have what is submitted from now on wait for what another library's queue holds."""
        ...

    def lower(self, command: Command) -> Any:
        """The form of a command that `submit` takes: any object but None. Depends on nothing but the command."""
        ...

    def submit(self, commands: CommandList, started: list[Run], sample: bool = False, retain: bool = True) -> None:
        """Start a list of commands after all earlier ones and return at once; `sample` asks for their times.

        Without `retain` the backend need not keep the memory of its commands; the queue does until the work is done.

        The run is appended to `started` if, and as soon as, it has started: with no moment in between at which
        an exception of a signal handler (Ctrl-C) could come.
        """
        ...

    def instantiate(self, commands: CommandList) -> Executable:
        """Make a list of commands ready to be replayed; nothing runs.

        It is given back when the returned object is dropped, which is possible at any time, even while it runs.
        """
        ...

    def replay(self, executable: Executable, values: bytes, sample: bool, started: list[Run]) -> None:
        """Start an instantiated list after all earlier work, and return at once; otherwise like `submit`.

        `values` has the value of each parameter where the list's `value_offsets` say. Every replay sees its own,
        however many of them are queued.
        """
        ...

    def prepare_samples(self, work: Executable | CommandList) -> bool:
        """Make ready what taking times needs, of a list or of one that is replayed; says whether there was something
        to make."""
        ...

    def annotated(self, label: str | None) -> AbstractContextManager[None] | None:
        """A block that the platform's own tools show under this label; None when none of them looks."""
        ...

    def resume(self, skipped: Collection[Run]) -> None:
        """Go on after a fault, once its submission has been looked at.

        A backend that can holds back what is queued behind a fault until this is called, and then does not run those
        that are `skipped`; their outcome is NOT_RUN. One that cannot may have run them.
        """
        ...

    def conditions(self) -> Conditions:
        """What the device says of itself right now: its clock, what holds that back. Often nothing."""
        ...

    def update_residency(self, added: Sequence[int], removed: Sequence[int]) -> None:
        """Make allocations (by number) resident, and no longer so."""
        ...

    def close(self) -> None:
        """Finish what was submitted and give everything back. Called once, with no submission left."""
        ...
