"""What a recording holds, as it is handed out: small frozen records, and columns of NumPy arrays of equal length.

Times are integers, nanoseconds of one clock: the monotonic clock of the host. In a column of integers `NONE` (-1)
stands for "not given"; no time, count or id is negative. Texts are lists of `str`, with None for "not given". They are
the words of whoever made the recording, so whatever shows them escapes them.

Ids (of submissions, plans, commands, regions, devices, processes) start at 1 and rise from row to row; they are not
positions. `position(column_of_ids, ids)` translates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Codes = NDArray[np.int8]
Texts = list[str | None]

NONE = -1

STATUSES = ("measured", "bounded", "unavailable")
MEASURED, BOUNDED, UNAVAILABLE = range(3)
"""How good a time is. Bounded: below the resolution of the clock, or known only from its neighbours."""

LEVELS = ("command_buffers", "dispatches")
"""What was sampled of a submission."""

NODE_KINDS = ("dispatch", "barrier", "copy", "fill")

SPAN_KINDS = ("encode", "commit", "wait", "region", "compile", "setup")


WORKER_TIME = ("worked_ns", "lost_ns", "late_ns", "joined")
"""What a device's workers say of a submission."""

AMOUNTS = ("bytes_read", "bytes_written", "flops")
"""The amounts of a command."""


class PlanTerm(NamedTuple):
    """A part of an amount that depends on a value of the submission: factor · min(max(value + plus, 0), upto)."""

    amount: str
    """Of `AMOUNTS`."""
    param: str
    factor: int
    plus: int = 0
    upto: int | None = None


class PlanNode(NamedTuple):
    """One command of a list, as it is described to a writer. (A tuple, because many are hashed and compared.)"""

    kind: str
    kernel: str
    label: str | None = None
    specialisation: str = ""
    op_kind: str | None = None
    threads: tuple[int, int, int] = (0, 0, 0)
    group: tuple[int, int, int] = (0, 0, 0)
    groups: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    bytes_declared: bool = False
    """True: the program said so. False: all bytes that were bound, an upper bound."""
    flops: int | None = None
    place: str | None = None
    origin: str | None = None
    source: str | None = None
    """The file that the kernel was compiled from; None for a text."""
    digest: str | None = None
    """Of the kernel's source and function constants."""
    terms: tuple[PlanTerm, ...] = ()
    """What comes to its bytes and flops with every submission."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process that recorded, and what is known about where and how it ran."""

    id: int
    pid: int
    clock_offset_ns: int
    """What `merge` added to its times; 0 where it was not merged or shares the clock."""
    clock_uncertainty_ns: int
    """How far its times may be off against those of the first process."""
    host: str
    rank: int | None
    """Its number among the processes of a job, as the launcher told it; None where none did."""
    local_rank: int | None
    world_size: int | None
    meta: Mapping[str, str]

    @property
    def closed(self) -> bool:
        """Whether it ended its recording properly; False after a kill, and while it runs."""
        return self.meta.get("closed") == "1"


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """One device: what it is, what it can sample, and the ceilings measured on it (None: not measured)."""

    id: int
    process: int
    name: str
    backend: str
    description: str
    sampling: str
    clock_uncertainty_ns: int
    copy_bytes_per_s: float | None
    flops_per_s: float | None
    timestamp_cost_ns: float | None
    dispatch_cost_ns: float | None
    details: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Drop:
    """Something that was lost: where, how many, and when that began."""

    where: str
    count: int
    since_ns: int
    process: int


@dataclass(frozen=True, slots=True)
class Plans:
    """Command lists, one a row; submissions refer to them."""

    id: Ints
    device: Ints
    nodes: Ints
    edges: Ints


@dataclass(frozen=True, slots=True)
class Commands:
    """Commands, one a row. In `Recording.commands` each different one once; in `Recording.plan_nodes` one for each
    node of a plan, in order, `id` then saying which of the different ones it is."""

    id: Ints
    kind: list[str]
    """Of `NODE_KINDS`."""
    kernel: list[str]
    label: Texts
    specialisation: list[str]
    op_kind: Texts
    threads: Ints
    """Of shape (n, 3)."""
    group: Ints
    """Of shape (n, 3)."""
    groups: Ints
    bytes_read: Ints
    bytes_written: Ints
    bytes_declared: Flags
    flops: Ints
    place: Texts
    origin: Texts
    source: Texts
    digest: Texts

    def __len__(self) -> int:
        return len(self.id)


@dataclass(frozen=True, slots=True)
class Terms:
    """What comes to the amounts of commands with every submission, one part a row: each is
    factor · min(max(value + plus, 0), upto), where `value` is that of a parameter."""

    command: Ints
    amount: Ints
    """Index into `AMOUNTS`."""
    number: Ints
    param: list[str]
    factor: Ints
    plus: Ints
    upto: Ints

    def __len__(self) -> int:
        return len(self.command)


@dataclass(frozen=True, slots=True)
class Values:
    """The values that submissions were given and that amounts of their commands depend on, one a row."""

    submission: Ints
    number: Ints
    param: list[str]
    value: Ints

    def __len__(self) -> int:
        return len(self.submission)


@dataclass(frozen=True, slots=True)
class Submissions:
    """Command buffers, one a row."""

    id: Ints
    process: Ints
    pid: Ints
    device: Ints
    plan: Ints
    ordinal: Ints
    label: Texts
    region: Ints
    replay: Flags
    unsampled_probe: Flags
    """Dispatch sampling was left out on purpose, to measure what it costs."""
    level: Codes
    """Index into `LEVELS`."""
    encode_begin_ns: Ints
    encode_end_ns: Ints
    commit_begin_ns: Ints
    commit_end_ns: Ints
    start_ns: Ints
    end_ns: Ints
    status: Codes
    """Index into `STATUSES`."""
    reason: Texts
    error: Texts
    thread: Ints
    worked_ns: Ints
    """Time in which the device's workers had work of it, added up over them."""
    lost_ns: Ints
    """The part of that in which the system ran other programs on their cores."""
    late_ns: Ints
    """How long after its start they took part, added up."""
    joined: Ints
    """How many of them did."""

    def __len__(self) -> int:
        return len(self.id)


@dataclass(frozen=True, slots=True)
class Regions:
    """Scopes of the host program, one a row; `end_ns` is NONE for one that was still open."""

    id: Ints
    process: Ints
    name: list[str]
    begin_ns: Ints
    end_ns: Ints
    thread: Ints
    parent: Ints

    def __len__(self) -> int:
        return len(self.id)


@dataclass(frozen=True, slots=True)
class HostSpans:
    """What the host did, one a row."""

    id: Ints
    process: Ints
    kind: Codes
    """Index into `SPAN_KINDS`."""
    name: Texts
    begin_ns: Ints
    end_ns: Ints
    thread: Ints
    submission: Ints
    region: Ints

    def __len__(self) -> int:
        return len(self.id)


@dataclass(frozen=True, slots=True)
class Samples:
    """Times of commands, one a row. What is unavailable has 0 as start and end."""

    submission: Ints
    node: NDArray[np.int32]
    start_ns: Ints
    end_ns: Ints
    status: Codes
    """Index into `STATUSES`."""

    def __len__(self) -> int:
        return len(self.submission)


def position(ids: Ints, wanted: NDArray[Any]) -> Ints:
    """The row at which each wanted id stands in a rising column of ids; all of them must be in it."""
    return np.searchsorted(ids, wanted).astype(np.int64, copy=False)
