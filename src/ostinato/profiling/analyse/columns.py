"""What the analysis reads: a recording as NumPy columns, all in memory.

Everything in `analyse/` is a function over these; where they come from (a file, a writer, a test) is not its business.
Times are integer nanoseconds of the host's monotonic clock, and `ABSENT` stands for a time that does not exist.
Amounts (bytes, flops) are floats with NaN for "not known". Text is Python strings, "" for none.

A plan is a list of nodes, and a node refers to a command: what is static is kept once, however often it is encoded.
Nodes of all plans lie one after another; `Plans.first[p]` is where those of the p-th plan begin. Everything refers to
everything by *row*, not by the ids of the file. `reading.py` brings a recording into this shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..recording.columns import BOUNDED, MEASURED, UNAVAILABLE, Drop
from ..recording.columns import NONE as ABSENT
from .kernels import named
from .origin import Origin

__all__ = ["ABSENT", "BOUNDED", "MEASURED", "UNAVAILABLE", "Columns", "Drop"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Texts = NDArray[np.object_]


NEVER_RAN = "it did not run"
"""The reason that a recorder gives for a submission that was given up before it started."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device as it was when recorded, with the ceilings that calibration measured; None where it did not."""

    name: str
    backend: str = ""
    description: str = ""
    sampling: str = ""
    driver: str = ""
    """What runs it: the version of the driver, of the compiler, or of the system."""
    process: int = 0
    """Row of the process that used it."""
    clock_uncertainty_ns: float | None = None
    """How well its times are known in host time."""
    timer_step_ns: float | None = None
    """The shortest time that it can tell from none."""
    edges_ns: float = 0.0
    """About how much of a submission's time lies around its dispatches, though nothing is wrong."""
    workers: int | None = None
    """Cores, or multiprocessors: how many threadgroups it runs at the same time at least."""
    copy_bytes_per_s: float | None = None
    flops_per_s: float | None = None
    timestamp_cost_ns: float | None = None
    """What sampling one dispatch adds to its command buffer."""
    copy_spread: float | None = None
    """By how much the best rounds of the copy differed, as a part."""
    flops_spread: float | None = None
    copy_measured: str = ""
    """When, in UTC as ISO 8601 writes it; "" if that is not known."""
    flops_measured: str = ""
    ceilings_busy: bool = False
    """The machine was busy when they were measured, so they may be too low."""
    sm_mhz: float | None = None
    """The lowest clock of its multiprocessors that was seen, of the two moments at which it was read."""
    sm_max_mhz: float | None = None
    held_back_by: str = ""
    """What held its clock back at one of them, in words."""
    other_processes: int = 0
    """Programs that used it at the same time."""
    raised: tuple[str, ...] = ()
    """Which ceilings dispatches of the recording itself have raised, in words."""


@dataclass(frozen=True, slots=True)
class Commands:
    """The different commands: dispatches, barriers, copies and fills with all that is static about them."""

    kind: Texts
    label: Texts
    kernel: Texts
    specialisation: Texts
    detail: Texts
    """What tells the kernel from others of its name (`kernels.details`); with the name, its identity."""
    op_kind: Texts
    threads: Ints
    """(n, 3): the grid in threads."""
    group: Ints
    """(n, 3): one threadgroup."""
    groups: Ints
    bytes_read: Floats
    bytes_written: Floats
    declared: Flags
    """Whether the bytes are declared; otherwise they are what is bound, an upper bound."""
    flops: Floats
    place: Texts

    def __len__(self) -> int:
        return len(self.kind)

    def title(self, row: int) -> str:
        """The kernel of a command as reports name it."""
        return named(str(self.kernel[row]), str(self.detail[row]))


@dataclass(frozen=True, slots=True)
class Terms:
    """What comes to the amounts of commands with every submission: factor · min(max(value + plus, 0), upto) each."""

    command: Ints
    """Row of the command."""
    amount: Ints
    """0 bytes read, 1 bytes written, 2 flops."""
    param: Ints
    """Column of `Columns.values`."""
    factor: Floats
    plus: Floats
    upto: Floats
    """Infinite where there is no limit."""

    def __len__(self) -> int:
        return len(self.command)


def no_terms() -> Terms:
    """The terms of a recording that has none."""
    rows = np.zeros(0, np.int64)
    return Terms(rows, rows, rows, np.zeros(0), np.zeros(0), np.zeros(0))


@dataclass(frozen=True, slots=True)
class Plans:
    """Command lists: the nodes of all plans, plan after plan, and what waits for what within each."""

    first: Ints
    """Where the nodes of each plan begin, and one more entry for where the last one's end."""
    command: Ints
    """Row of each node's command."""
    edges: tuple[tuple[Ints, Ints], ...]
    """Per plan: (before, after), by node of that plan."""

    def __len__(self) -> int:
        return len(self.first) - 1

    def nodes(self, plan: int) -> slice:
        """The rows of one plan's nodes."""
        return slice(int(self.first[plan]), int(self.first[plan + 1]))


@dataclass(frozen=True, slots=True)
class Submissions:
    """One row per command buffer."""

    device: Ints
    plan: Ints
    ordinal: Ints
    label: Texts
    region: Ints
    """Row of the innermost region it was committed in, or -1."""
    replay: Flags
    sampled: Flags
    """Whether its dispatches were sampled (level 'dispatches', and not left out as a probe)."""
    probe: Flags
    """Left unsampled on purpose, to see what sampling costs."""
    encode_begin_ns: Ints
    encode_end_ns: Ints
    commit_begin_ns: Ints
    commit_end_ns: Ints
    start_ns: Ints
    end_ns: Ints
    status: Texts
    reason: Texts
    error: Texts
    thread: Ints
    process: Ints
    worked_ns: Ints
    """Time in which the device's workers had work of it, added up over them."""
    lost_ns: Ints
    """The part of that in which the system ran other programs on their cores."""
    late_ns: Ints
    """How long after its start they took part, added up."""
    joined: Ints
    """How many of them did."""

    def __len__(self) -> int:
        return len(self.device)

    @property
    def ran(self) -> Flags:
        """Which have an interval on the device."""
        found: Flags = (self.start_ns != ABSENT) & (self.end_ns != ABSENT)
        return found

    @property
    def done(self) -> Flags:
        """Which ran to their end, timed or not."""
        found: Flags = (self.error == "") & (self.ran | (self.reason != NEVER_RAN))
        return found


@dataclass(frozen=True, slots=True)
class Samples:
    """One row per dispatch that was sampled."""

    submission: Ints
    """Row of the submission."""
    node: Ints
    """Row of the node, counted over all plans."""
    start_ns: Ints
    end_ns: Ints
    status: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.node)

    def where(self, chosen: Any) -> Samples:
        """The rows that a mask or an index picks."""
        return Samples(
            self.submission[chosen],
            self.node[chosen],
            self.start_ns[chosen],
            self.end_ns[chosen],
            self.status[chosen],
        )


def usable(samples: Samples) -> Samples:
    """The samples that have a time."""
    without = samples.status == UNAVAILABLE
    return samples.where(~without) if without.any() else samples


def partly_timed(columns: Columns) -> Flags:
    """Which submissions have times of some of their dispatches and not of others, as where those take turns.

    What such a submission did between the times that it has is not known.
    """
    samples, size = columns.samples, len(columns.submissions)
    without = samples.where(samples.status == UNAVAILABLE)
    real = columns.commands.kind[columns.plans.command[without.node]] != "barrier"
    lacking = np.bincount(without.submission[real], minlength=size) > 0
    timed = np.bincount(usable(samples).submission, minlength=size) > 0
    found: Flags = columns.submissions.ran & lacking & timed
    return found


@dataclass(frozen=True, slots=True)
class Regions:
    """Named scopes of the host: "token", "prefill"."""

    name: Texts
    begin_ns: Ints
    end_ns: Ints
    thread: Ints
    process: Ints
    parent: Ints
    """Row of the region around it, or -1."""

    def __len__(self) -> int:
        return len(self.name)


@dataclass(frozen=True, slots=True)
class HostSpans:
    """What host threads were doing: 'encode', 'commit', 'wait', 'region', 'compile' or 'setup'."""

    kind: Texts
    name: Texts
    begin_ns: Ints
    end_ns: Ints
    thread: Ints
    submission: Ints
    """Row of the submission it belongs to, or -1."""
    process: Ints

    def __len__(self) -> int:
        return len(self.kind)


@dataclass(frozen=True, slots=True)
class Columns:
    """A whole recording."""

    devices: tuple[Device, ...]
    commands: Commands
    plans: Plans
    submissions: Submissions
    samples: Samples
    regions: Regions
    host_spans: HostSpans
    drops: tuple[Drop, ...] = ()
    meta: Mapping[str, str] = field(default_factory=dict)
    pids: tuple[int, ...] = (0,)
    """The processes that recorded; `process` columns hold rows of it."""
    origins: tuple[Origin, ...] = ()
    """What is known about each of them; empty where nothing is."""
    thread_names: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """By row of the process, and thread."""
    closed: bool = True
    """Whether every process ended its recording properly."""
    missing_submissions: int = 0
    """How many numbers are left out between those of the submissions that are there."""
    terms: Terms = field(default_factory=no_terms)
    values: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    """(submissions, parameters): the values that terms depend on; NaN where a submission has none."""


def with_distinct_names(columns: Columns) -> tuple[Device, ...]:
    """The devices with names that tell them apart: 'cpu', 'cpu #2', and of several processes 'cpu of rank 1'."""
    taken: set[str] = set()
    found = []
    for device in columns.devices:
        own = f"{device.name} of {columns.origins[device.process].name}" if len(columns.origins) > 1 else device.name
        name, number = own, 1
        while name in taken:
            number += 1
            name = f"{own} #{number}"
        taken.add(name)
        found.append(replace(device, name=name))
    return tuple(found)


def ints(values: Iterable[int | None]) -> Ints:
    """A column of integers; None becomes `ABSENT`."""
    return np.array([ABSENT if v is None else v for v in values], dtype=np.int64)


def floats(values: Iterable[float | None]) -> Floats:
    """A column of amounts; None becomes NaN."""
    return np.array([np.nan if v is None else v for v in values], dtype=np.float64)


def texts(values: Iterable[str | None]) -> Texts:
    """A column of text; None becomes ""."""
    listed = ["" if v is None else v for v in values]
    column = np.empty(len(listed), dtype=object)
    column[:] = listed
    return column
