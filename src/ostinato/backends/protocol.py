"""What a backend is: the few operations that a device, an encoder and a queue need from it.

A backend compiles modules, hands out memory, turns single commands into opaque lowered bytes (which the
encoder memoises), and runs a list of lowered commands in one call; or makes it ready once, and runs it many times at a
cost that does not depend on its length. It knows nothing of encoders, buffers or devices. `Native` objects are its own;
callers only hand them back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ..errors import DeviceUnavailable
from ..ir.commands import Command, CompiledKernel, Ordering
from .conditions import Conditions

if TYPE_CHECKING:
    from ..msl import Module

_numbers = count(1)


class Level(IntEnum):
    """How much of the time of submitted work is taken down, or can be."""

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


@dataclass(frozen=True, slots=True)
class Status:
    """How a submission ended."""

    error: int
    """0 none, 1 a fault in a kernel, 2 not run because of an earlier fault."""
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

    @classmethod
    def unplaced(cls, error: int, reason: str = "") -> Status:
        """Of a device that says that something went wrong, and not where."""
        return cls(error, -1, 0, 0, "", None, reason)


class Inferred(NamedTuple):
    """The order inferred for a list, in the terms of a device that has barriers rather than edges."""

    barriers: int
    """Commands that such a device would put a barrier in front of."""
    concurrent: int
    """Commands that need none."""
    ranges: int
    """Ranges of memory tracked at the end of the list."""


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


Native = Any
Lowered = bytes


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

    def lower(self, command: Command) -> Lowered:
        """The form of a command that `submit` takes. Depends on nothing but the command."""
        ...

    def submit(
        self,
        lowered: Sequence[Lowered],
        ordering: Ordering,
        handle: list[Native],
        sample: bool = False,
        retain: bool = True,
    ) -> None:
        """Start a list of commands after all earlier ones and return at once; `sample` takes down their times.

        Without `retain` the backend need not keep the memory of its commands; the queue does until the work is done.

        The submission is appended to `handle` if, and as soon as, it has started: with no moment in between at which
        an exception of a signal handler (Ctrl-C) could come.
        """
        ...

    def edges(self, lowered: Sequence[Lowered]) -> np.ndarray:
        """The edges inferred for a list, which is not run: pairs (before, after), of shape (n, 2) and type uint32."""
        ...

    def instantiate(
        self, commands: Sequence[Command], lowered: Sequence[Lowered], ordering: Ordering, values: Mapping[str, int]
    ) -> tuple[Native, Inferred]:
        """Make a list of commands, given in both forms, ready to be replayed; nothing runs.

        `values` says at which byte of the block given to each replay the value of each parameter stands. The graph is
        given back when the returned object is dropped, which is possible at any time, even while it runs.
        """
        ...

    def prepare_samples(self, work: Native | Sequence[Lowered]) -> bool:
        """Make ready what taking times of a graph, or of a list, needs; says whether there was something to make."""
        ...

    def annotated(self, label: str | None) -> AbstractContextManager[None] | None:
        """A block that the platform's own tools show under this label; None when none of them looks."""
        ...

    def replay(self, graph: Native, values: bytes, sample: bool, handle: list[Native]) -> None:
        """Start an instantiated list after all earlier work, and return at once; otherwise like `submit`.

        Every replay sees its own `values`, however many of them are queued.
        """
        ...

    def inferred(self, submission: Native) -> Inferred:
        """What inferring the order of a submission's commands came to; zeros when nothing was inferred."""
        ...

    def wait(self, submission: Native, timeout_ns: int) -> bool:
        """Wait for a submission; False when the time (never negative) ran out first."""
        ...

    def status(self, submission: Native) -> Status:
        """How a finished submission ended."""
        ...

    def resume(self, skipped: Collection[Native]) -> None:
        """Go on after a fault, once its submission has been looked at.

        A backend that can holds back what is queued behind a fault until this is called, and then does not run those
        that are `skipped`; they end with error 2. One that cannot may have run them.
        """
        ...

    def times(self, submission: Native) -> tuple[int, int] | None:
        """When a finished submission started and ended, in ns of the monotonic clock; None when that is not known."""
        ...

    def samples(self, submission: Native) -> np.ndarray | None:
        """When each command of a finished submission started and ended, in ns of the monotonic clock.

        Of shape (commands, 2) and type uint64, with zeros for what was not run; None when no times were asked for.
        """
        ...

    def bounded(self, submission: Native) -> np.ndarray | None:
        """Which commands of `samples` ran at some time between the two moments, and not all of it; None when none."""
        ...

    def worker_time(self, submission: Native) -> WorkerTime | None:
        """How much of their time the workers of a finished, sampled submission got; None where that is not known."""
        ...

    def conditions(self) -> Conditions:
        """What the device says of itself right now: its clock, what holds that back. Often nothing."""
        ...

    def release(self, submission: Native) -> None:
        """Forget a finished submission."""
        ...

    def update_residency(self, added: Sequence[int], removed: Sequence[int]) -> None:
        """Make allocations (by number) resident, and no longer so."""
        ...

    def close(self) -> None:
        """Finish what was submitted and give everything back. Called once, with no submission left."""
        ...
