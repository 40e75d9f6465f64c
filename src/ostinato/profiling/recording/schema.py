"""The tables of a recording, each declared once, and the sizes beyond which a file is not believed.

A new column is a line here, with the version that it came with (`since`), where its value is made and where it is used.
It must be optional: older files lack it. A new version keeps everything that an older one has under the same name, and
`VERSION` goes up. `docs/recording.md` explains the tables to those who read the file with other tools.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from .declaring import (
    NONE,
    Codes,
    Declared,
    Flags,
    InColumns,
    Ints,
    Kind,
    Table,
    Texts,
    code,
    flag,
    identity,
    integer,
    real,
    reference,
    signed,
    sizes,
    table,
    text,
    time,
    word,
)

APPLICATION_ID = 0x4F535449
"""'OSTI', in the header of the file."""
VERSION = 5
SUFFIX = ".ostinato"

MAX_FILE_BYTES = 1 << 36
MAX_TEXT_CHARACTERS = 1 << 16
MAX_CHUNK_SAMPLES = 1 << 20
MAX_CHUNK_BYTES = 1 << 26
MAX_PLAN_NODES = 1 << 21
MAX_PLAN_EDGES = 1 << 24
MAX_BLOB_BYTES = 8 * MAX_PLAN_EDGES
MAX_SOURCE_BYTES = 1 << 20
"""Of one source text."""
MAX_SOURCES_BYTES = 1 << 26
"""Of all of them, which are held in memory."""
MAX_SOURCES = 10_000
_FEW = 10_000

STATUSES = ("measured", "bounded", "unavailable")
MEASURED, BOUNDED, UNAVAILABLE = range(3)
"""How good a time is. Bounded: below the resolution of the clock, or known only from its neighbours."""
LEVELS = ("command_buffers", "dispatches")
"""What was sampled of a submission."""
NODE_KINDS = ("dispatch", "barrier", "copy", "fill")
SPAN_KINDS = ("encode", "commit", "wait", "region", "compile", "setup")
LEFT_OUT = ("larger than 1 MiB", "no room: the texts together are larger than 64 MiB", "not UTF-8")
TOO_LARGE, NO_ROOM, NOT_TEXT = LEFT_OUT
"""Why a source text is not in a recording."""
AMOUNTS = ("bytes_read", "bytes_written", "flops")
"""The amounts of a command, which may depend on values of a submission."""


@table("processes", records=True)
class Process(Declared):
    """A process that recorded, and what is known about where and how it ran."""

    id: int = identity()
    pid: int = integer()
    clock_offset_ns: int = signed(default=0)
    """What `merge` added to its times; 0 where it was not merged or shares the clock."""
    clock_uncertainty_ns: int = integer(default=0)
    """How far its times may be off against those of the first process."""
    host: str = word()
    rank: int | None = integer(optional=True)
    """Its number among the processes of a job, as the launcher said; None where none did."""
    local_rank: int | None = integer(optional=True)
    world_size: int | None = integer(optional=True)
    boot: str = word(optional=True)
    """Which start of which machine its clock belongs to."""
    time_namespace: str = word(optional=True)
    start_monotonic_ns: int | None = integer(optional=True)
    """When it began, on both clocks of the host, and how far apart the two readings may be."""
    start_realtime_ns: int | None = integer(optional=True)
    start_uncertainty_ns: int | None = integer(optional=True)
    end_monotonic_ns: int | None = integer(optional=True)
    """The same when it last wrote."""
    end_realtime_ns: int | None = integer(optional=True)
    end_uncertainty_ns: int | None = integer(optional=True)
    start_cores: int | None = integer(optional=True)
    """How many cores it could use."""
    end_cores: int | None = integer(optional=True)
    start_load: float | None = real(optional=True)
    """The average number of running programs on the host over a minute."""
    end_load: float | None = real(optional=True)
    git_changed: bool | None = flag(optional=True)
    """Whether tracked files of the project differed from its revision."""
    overhead_ns: int | None = integer(optional=True)
    """Time of the program's own threads that profiling took."""
    run_delay_ns: int | None = integer(optional=True)
    """How long the workers of its CPU devices waited for a core."""
    involuntary_switches: int | None = integer(optional=True)
    steal_ns: int | None = integer(optional=True)
    """Time that the hypervisor gave to others."""
    closed: bool = flag(default=False)
    """Whether it ended its recording properly; False after a kill, and while it runs."""
    expanded: bool = flag(default=False)
    meta: Mapping[str, str] = field(default_factory=dict)
    """The rest that is known, from the table `meta`."""


@table("meta", key=("process", "key"), most_rows=_FEW)
class Meta(InColumns):
    """Facts about processes that are read by people."""

    process: Ints = reference("processes")
    key: Texts = word()
    value: Texts = word()


@table("strings")
class Strings(InColumns):
    """Texts that rows of other tables refer to."""

    id: Ints = identity()
    text: Texts = word()


@table("threads", key=("process", "thread"), most_rows=_FEW)
class Threads(InColumns):
    """Names of host threads."""

    process: Ints = reference("processes")
    thread: Ints = signed()
    name: Texts = text()


@table("devices", records=True, most_rows=_FEW)
class Device(Declared):
    """A device as it was when recorded, with the ceilings measured on it; None where they were not."""

    id: int = identity(default=0)
    process: int = reference("processes", default=0)
    name: str = text(kw_only=False)
    backend: str = text(default="", kw_only=False)
    description: str = text(default="")
    sampling: str = text(default="")
    clock_uncertainty_ns: float | None = real(optional=True, default=None)
    """How well its times are known in host time."""
    timer_step_ns: float | None = real(optional=True, default=None)
    """The shortest time that it can tell from none."""
    edges_ns: float = real(default=0.0)
    """About how much of a submission's time lies around its dispatches, though nothing is wrong."""
    workers: int | None = integer(low=1, optional=True, default=None)
    """Cores, or multiprocessors: how many threadgroups it runs at the same time at least."""
    first_come: bool = flag(default=False)
    """Overlapping dispatches get workers in the order they start, and very short ones only one."""
    copy_bytes_per_s: float | None = real(optional=True, default=None)
    copy_spread: float | None = real(optional=True, default=None)
    """By how much the best rounds of the copy differed, as a part."""
    copy_measured_ns: int | None = integer(optional=True, default=None)
    """When, on the wall clock."""
    flops_per_s: float | None = real(optional=True, default=None)
    flops_spread: float | None = real(optional=True, default=None)
    flops_measured_ns: int | None = integer(optional=True, default=None)
    ceilings_busy: bool = flag(default=False)
    """The machine was busy when they were measured, so they may be too low."""
    timestamp_cost_ns: float | None = real(optional=True, default=None)
    """What sampling one dispatch adds to its command buffer."""
    sm_mhz: float | None = real(optional=True, default=None)
    """The lowest clock of its multiprocessors that was seen, of the two moments at which it was read."""
    sm_max_mhz: float | None = real(optional=True, default=None)
    held_back_by: str = word(default="")
    """What held its clock back at one of them, in words."""
    other_processes: int = integer(default=0)
    """Programs that used it at the same time."""
    details: Mapping[str, str] = field(default_factory=dict)
    """The rest that is known, from the table `device_details`."""


@table("device_details", key=("device", "key"), most_rows=_FEW)
class DeviceDetails(InColumns):
    """Facts about devices that are read by people."""

    device: Ints = reference("devices")
    key: Texts = word()
    value: Texts = word()


@table("commands")
class Commands(InColumns):
    """Commands: of a table each different one, of a plan one for each node."""

    id: Ints = identity()
    kind: Texts = word(NODE_KINDS)
    kernel: Texts = text()
    label: Texts = text(optional=True)
    specialisation: Texts = text(default="")
    op_kind: Texts = text(optional=True)
    threads: Ints = sizes()
    """The grid in threads, of shape (n, 3)."""
    group: Ints = sizes()
    """One threadgroup, of shape (n, 3)."""
    groups: Ints = integer(default=0)
    bytes_read: Ints = integer(default=0)
    bytes_written: Ints = integer(default=0)
    bytes_declared: Flags = flag(default=False)
    """Whether the program said so; otherwise the bytes are all that were bound, an upper bound."""
    flops: Ints = integer(optional=True)
    place: Texts = text(optional=True)
    origin: Texts = text(optional=True)
    source: Texts = text(optional=True)
    """The file that the kernel was compiled from; "" for a text."""
    digest: Texts = text(optional=True)
    """Of the kernel's source and function constants."""
    file: Texts = text(optional=True, since=5)
    """The file with the kernel's function: `source`, or a file that it includes; "" for a text."""
    line: Ints = integer(low=1, optional=True, since=5)
    """The line of the function in it."""
    source_digest: Texts = text(optional=True, since=5)
    """Of that file, or of the text: SHA-256, hexadecimal."""
    execution: Texts = text(optional=True, since=5)
    """How the device runs the kernel's threads, and why, 'loop: its threads never meet'."""


@table("sources", records=True, blobs=("text",), most_rows=MAX_SOURCES, since=5)
class Source(Declared):
    """A text that kernels were compiled from, as it was written. Recorded only when that is asked for."""

    id: int = identity()
    digest: str = word()
    """What `source_digest` of commands refers to."""
    size_bytes: int = integer()
    """In UTF-8."""
    left_out: str = code(LEFT_OUT, optional=True)
    """Why the text is not here; "" if it is."""
    text: str = ""


@table("command_constants", key=("command", "number"))
class CommandConstants(InColumns):
    """The function constants and macros that the kernels of commands were compiled with."""

    command: Ints = reference("commands")
    number: Ints = integer()
    name: Texts = text()
    value: Texts = text()


@table("command_terms", key=("command", "number"))
class CommandTerms(InColumns):
    """What comes to the amounts of commands with every submission, one part a row: each is
    factor · min(max(value + plus, 0), upto), where `value` is that of a parameter."""

    command: Ints = reference("commands")
    number: Ints = integer()
    amount: Texts = code(AMOUNTS)
    param: Texts = text()
    factor: Ints = integer()
    plus: Ints = signed(default=0)
    upto: Ints = integer(optional=True)


@table("plans", blobs=("node_commands", "edge_pairs"))
class Plans(InColumns):
    """Command lists; submissions refer to them."""

    id: Ints = identity()
    device: Ints = reference("devices")
    nodes: Ints = integer(high=MAX_PLAN_NODES + 1)
    edges: Ints = integer(high=MAX_PLAN_EDGES + 1)
    crc: Ints = integer()


@table("regions")
class Regions(InColumns):
    """Named scopes of the host program, such as "token"; `end_ns` is `NONE` for one that was still open."""

    id: Ints = identity()
    process: Ints = reference("processes")
    name: Texts = text()
    begin_ns: Ints = time()
    end_ns: Ints = time(optional=True, after="begin_ns")
    thread: Ints = signed(default=0)
    parent: Ints = reference("regions", optional=True)
    """The region around it."""


@table("submissions")
class Submissions(InColumns):
    """Command buffers."""

    id: Ints = identity()
    process: Ints = reference("processes")
    device: Ints = reference("devices")
    plan: Ints = reference("plans", optional=True)
    ordinal: Ints = integer()
    label: Texts = text(optional=True)
    region: Ints = reference("regions", optional=True)
    """The innermost region it was committed in."""
    replay: Flags = flag(default=False)
    probe: Flags = flag(default=False)
    """Left unsampled on purpose, to see what sampling costs."""
    level: Texts = code(LEVELS, default="dispatches")
    encode_begin_ns: Ints = time(optional=True)
    encode_end_ns: Ints = time(optional=True, after="encode_begin_ns")
    commit_begin_ns: Ints = time(optional=True)
    commit_end_ns: Ints = time(optional=True, after="commit_begin_ns")
    start_ns: Ints = time(optional=True)
    end_ns: Ints = time(optional=True, after="start_ns")
    status: Texts = code(STATUSES, default="measured")
    executed: Flags = flag(default=True)
    """False for one that was given up before it started."""
    reason: Texts = text(optional=True)
    error: Texts = text(optional=True)
    thread: Ints = signed(default=0)
    worked_ns: Ints = integer(optional=True)
    """Time in which the device's workers had work of it, added up over them."""
    lost_ns: Ints = integer(optional=True)
    """The part of that in which the system ran other programs on their cores."""
    late_ns: Ints = integer(optional=True)
    """How long after its start they took part, added up."""
    joined: Ints = integer(optional=True)
    """How many of them did."""

    @property
    def sampled(self) -> Flags:
        """Whether its dispatches were sampled."""
        sampled: Flags = (self.level == "dispatches") & ~self.probe
        return sampled

    @property
    def ran(self) -> Flags:
        """Which have an interval on the device."""
        timed: Flags = (self.start_ns != NONE) & (self.end_ns != NONE)
        return timed

    @property
    def done(self) -> Flags:
        """Which ran to their end, timed or not."""
        done: Flags = (self.error == "") & (self.ran | self.executed)
        return done


@table("submission_values", key=("submission", "number"))
class SubmissionValues(InColumns):
    """The values that submissions were given and that amounts of their commands depend on."""

    submission: Ints = reference("submissions")
    number: Ints = integer()
    param: Texts = text()
    value: Ints = signed()


@table("host_spans")
class HostSpans(InColumns):
    """What host threads were doing."""

    id: Ints = identity()
    process: Ints = reference("processes")
    kind: Texts = code(SPAN_KINDS)
    name: Texts = text(optional=True)
    begin_ns: Ints = time()
    end_ns: Ints = time(after="begin_ns")
    thread: Ints = signed(default=0)
    submission: Ints = reference("submissions", optional=True, may_be_lost=True)
    """What it waited for or committed."""
    region: Ints = reference("regions", optional=True)


@table("drops", key=("process", "place"), most_rows=_FEW)
class Drops(InColumns):
    """What was lost."""

    process: Ints = reference("processes")
    place: Texts = word()
    count: Ints = integer()
    since_ns: Ints = integer()


@table("unwritten", key=("process",), most_rows=_FEW)
class Unwritten(InColumns):
    """What the disk had no room for."""

    process: Ints = reference("processes")
    note: Texts = word()


@table("sample_chunks", blobs=("data",))
class SampleChunks(InColumns):
    """Many samples each, as they were written."""

    id: Ints = identity()
    submission_first: Ints = integer()
    submission_last: Ints = integer()
    runs: Ints = integer()
    samples: Ints = integer(low=1, high=MAX_CHUNK_SAMPLES + 1)
    crc: Ints = integer()


@table("plan_nodes", key=("plan", "node"))
class PlanNodes(InColumns):
    """What the blobs of plans hold, for other tools."""

    plan: Ints = reference("plans")
    node: Ints = integer()
    command: Ints = reference("commands")


@table("plan_edges", key=())
class PlanEdges(InColumns):
    """The same for their edges."""

    plan: Ints = reference("plans")
    before: Ints = integer()
    after: Ints = integer()


@table("dispatches", key=())
class Samples(InColumns):
    """Times of commands; what is unavailable has 0 as start and end. The table repeats them for other tools."""

    submission: Ints = reference("submissions")
    node: Ints = integer(high=MAX_PLAN_NODES)
    start_ns: Ints = time(optional=True)
    end_ns: Ints = time(optional=True)
    status: Codes = integer(high=len(STATUSES))
    """Index into `STATUSES`."""


_DECLARED: tuple[Any, ...] = (
    *(Process, Meta, Strings, Threads, Device, DeviceDetails, Commands, CommandConstants, CommandTerms, Source, Plans),
    *(Regions, Submissions, SubmissionValues, HostSpans, Drops, Unwritten, SampleChunks, PlanNodes, PlanEdges, Samples),
)
TABLES: dict[str, Table] = {rows.table.name: rows.table for rows in _DECLARED}
"""All tables by name, in the order in which rows are stored."""
EXPANDED = ("plan_nodes", "plan_edges", "dispatches")
"""The tables that repeat, for other tools, what blobs hold."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Something that was lost: where, how many, and when that began."""

    where: str
    count: int
    since_ns: int
    process: int = 0


class PlanTerm(NamedTuple):
    """A row of `command_terms`, as it is described to a writer."""

    amount: str
    param: str
    factor: int
    plus: int = 0
    upto: int | None = None


_DESCRIBED = [column for column in TABLES["commands"].columns if column.kind is not Kind.IDENTITY]

if TYPE_CHECKING:

    class PlanNode(tuple[Any, ...]):
        """One command of a list, as it is described to a writer: a row of `commands`, its constants and its terms.

        `text` is the source that `source_digest` is of, in bytes, if it is to be recorded.
        """

        _fields: ClassVar[tuple[str, ...]]

        def __new__(cls, *values: Any, **columns: Any) -> PlanNode: ...
        def __getattr__(self, name: str) -> Any: ...

else:
    # A tuple, because many are hashed and compared.
    PlanNode = namedtuple(
        "PlanNode",
        [*(column.name for column in _DESCRIBED), "terms", "constants", "text"],
        defaults=[*(column.default for column in _DESCRIBED[2:]), (), (), None],
    )
