"""What the analysis reads: a recording as NumPy columns, all in memory.

Everything in `analyse/` is a function over these; where they come from (a file, a writer, a test) is not its business.
The tables are those of the recording (`recording/schema.py`), with little added. Times are integer nanoseconds of the
host's monotonic clock, and `ABSENT` stands for a number that is not given; text is "" for none. Tables refer to each
other by *row*, from 0.

A plan is a list of nodes, and a node refers to a command: what is static is kept once, however often it is encoded.
Nodes of all plans lie one after another; `Plans.first[p]` is where those of the p-th plan begin.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ..recording import schema
from ..recording.declaring import NONE as ABSENT
from ..recording.declaring import Flags, Ints, Texts
from ..recording.declaring import Reals as Floats
from ..recording.reader import Lists as Plans
from ..recording.schema import (
    BOUNDED,
    MEASURED,
    UNAVAILABLE,
    CommandTerms,
    Drop,
    HostSpans,
    Regions,
    Samples,
    Source,
    Submissions,
    SubmissionValues,
)
from ..recording.tables import objects
from .kernels import named
from .origin import Origin

__all__ = [
    "ABSENT",
    "BOUNDED",
    "MEASURED",
    "UNAVAILABLE",
    "Columns",
    "Drop",
    "Flags",
    "Floats",
    "HostSpans",
    "Ints",
    "Plans",
    "Regions",
    "Samples",
    "Submissions",
    "Texts",
]


@dataclass(frozen=True, slots=True)
class Device(schema.Device):
    """A device of the recording, and what the analysis finds out about it."""

    driver: str = field(default="", kw_only=True)
    """What runs it: the version of the driver, of the compiler, or of the system."""
    tuned: str = field(default="", kw_only=True)
    """The file of tuned choices that it was opened with; empty without one."""
    raised: tuple[str, ...] = field(default=(), kw_only=True)
    """Which ceilings dispatches of the recording itself have raised, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands(schema.Commands):
    """The different commands: dispatches, barriers, copies and fills with all that is static about them."""

    detail: Texts
    """What tells the kernel from others of its name (`kernels.details`); with the name, its identity."""

    def title(self, row: int) -> str:
        """The kernel of a command as reports name it."""
        return named(str(self.kernel[row]), str(self.detail[row]))


@dataclass(frozen=True, slots=True)
class Columns:
    """A whole recording."""

    devices: tuple[Device, ...]
    commands: Commands
    plans: Plans
    submissions: Submissions
    samples: Samples
    """Of those that were sampled; `node` is the row of the node, counted over all plans."""
    regions: Regions
    host_spans: HostSpans
    drops: tuple[Drop, ...] = ()
    meta: Mapping[str, str] = field(default_factory=dict)
    began_ns: int | None = None
    """When it began, on the wall clock."""
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
    terms: CommandTerms = field(default_factory=CommandTerms.without_rows)
    values: SubmissionValues = field(default_factory=SubmissionValues.without_rows)
    sources: Mapping[str, Source] = field(default_factory=dict)
    """The source texts that were recorded, by digest; `sources.source_of` finds the one of a command."""


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
    partly: Flags = columns.submissions.ran & lacking & timed
    return partly


def with_distinct_names(columns: Columns) -> tuple[Device, ...]:
    """The devices with names that tell them apart: 'cpu', 'cpu #2', and of several processes 'cpu of rank 1'."""
    taken: set[str] = set()
    devices = []
    for device in columns.devices:
        own = f"{device.name} of {columns.origins[device.process].name}" if len(columns.origins) > 1 else device.name
        devices.append(replace(device, name=distinct(own, taken)))
    return tuple(devices)


def distinct(name: str, taken: set[str]) -> str:
    """The name, with a number behind it if it is taken; then it is taken too."""
    numbered, number = name, 1
    while numbered in taken:
        number += 1
        numbered = f"{name} #{number}"
    taken.add(numbered)
    return numbered


def ints(values: Iterable[int | None]) -> Ints:
    """A column of integers; None becomes `ABSENT`."""
    return np.array([ABSENT if v is None else v for v in values], dtype=np.int64)


def amounts(column: Ints) -> Floats:
    """A column of amounts as floats, with NaN for "not known"."""
    return np.where(column == ABSENT, np.nan, column.astype(np.float64))


def texts(values: Iterable[str | None]) -> Texts:
    """A column of text; None becomes ""."""
    return objects(["" if v is None else v for v in values])
