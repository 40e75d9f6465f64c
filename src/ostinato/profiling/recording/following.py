"""Reading a recording while another process writes it: each time only what came since the last time.

Every `read` opens the file, reads in one short transaction and closes it again. So the program is never held up, and
can turn its recording into a plain file when it ends. What a read takes is bounded: of very many dispatches only the
newest are looked at, and the result says so. Sums over command buffers and regions are made by SQLite and cover all.

Sums are per step of time (a twentieth of the window), by the time at which something ended, so that a reader can add up
the last seconds.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...errors import RecordingError
from . import chunks, opening, schema, tables
from .declaring import NONE, Ints
from .plan_kernels import Kernel, Kernels, Texts
from .provenance import boot
from .reader import Recording
from .schema import UNAVAILABLE, Device, Drop, Process

_STEPS = 20
"""In a window."""
_LATE_NS = 1_000_000_000
"""A program writes several times a second; what has not come after this time is not there."""
_MOST_SAMPLES = 30_000
_MOST_RUNS = 4_000
_MOST_OPEN_REGIONS = 1_000
_MOST_NOTES = 100
_OWNERS = schema.TABLES["submissions"].only("id", "device", "plan")


class State(StrEnum):
    """What became of the program that records."""

    RUNNING = "running"
    ENDED = "ended"
    KILLED = "killed"
    """It is gone and did not close its recording."""
    UNKNOWN = "not known"
    """The recording is not closed, and was made on another machine or before the last start of this one."""


class RegionStep(NamedTuple):
    """The regions of one name that ended in one step of time."""

    step: int
    name: str
    ended: int
    """How many."""
    total_ns: int


class BufferStep(NamedTuple):
    """The command buffers of a device (by its id) that ended in one step of time."""

    step: int
    device: int
    ended: int
    """How many."""
    in_flight_ns: int
    """From commit to end, added up over those whose commit was recorded."""
    committed: int
    """How many those are."""
    worked_ns: int
    """Time in which workers had work of them, added up over those whose workers reported it."""
    lost_ns: int
    """The part of it in which other programs ran on their cores."""
    reported: int
    """How many those are."""
    disturbed: int
    """How many of those lost more than the part that was asked for."""


@dataclass(frozen=True, slots=True)
class Dispatches:
    """Timed dispatches: the id of the device, the position of the kernel in `News.kernels`, start and end."""

    device: Ints
    kernel: Ints
    start_ns: Ints
    end_ns: Ints


@dataclass(frozen=True, slots=True)
class News:
    """What came since the last time, and how things stand."""

    state: State
    until_ns: int
    """The moment that the recording reaches: of a running program at most a second ago, otherwise its last event."""
    last_ns: int
    """When something last ended; 0 if nothing did."""
    now_ns: int
    step_ns: int
    """How long a step of time is; steps are counted from 0 on the clock."""
    processes: tuple[Process, ...]
    devices: tuple[Device, ...]
    drops: tuple[Drop, ...]
    kernels: Sequence[Kernel]
    """All that were seen so far."""
    regions: tuple[RegionStep, ...]
    buffers: tuple[BufferStep, ...]
    dispatches: Dispatches
    in_part: bool
    """Whether dispatches were left out because there were too many."""
    submissions: int
    """Command buffers recorded in all."""
    failed: int
    """How many of them failed."""
    samples: int
    """Dispatches with a time, in all."""
    regions_begun: int
    """Regions in all."""
    file_bytes: int


class _Facts(NamedTuple):
    written_ns: int
    """When the program last wrote."""
    changing: tuple[object, ...]
    """What changes when one of the others does."""
    processes: tuple[Process, ...]
    devices: tuple[Device, ...]
    drops: tuple[Drop, ...]


class Follower:
    """Reads one recording again and again.

    Looks at the last `window_ns` only. A command buffer is disturbed if other programs took more than the part
    `disturbed_from` of its workers' time.
    """

    def __init__(self, path: Path, window_ns: int, disturbed_from: float) -> None:
        self.path = path
        self._window_ns = window_ns
        self._step_ns = max(window_ns // _STEPS, 1)
        self._disturbed_from = disturbed_from
        self._file: tuple[int, int] | None = None
        self._facts: _Facts | None = None
        self._texts: dict[int, str] = {}
        self._submission = self._region = self._chunk = 0  # the last ids that were read
        self._last_ns = 0
        self._submissions = self._failed = self._samples = self._regions_begun = 0
        self._open_regions: list[int] = []
        self._kernels = Kernels()

    def read(self) -> News:
        """What came since the last call. Raises `RecordingError` if the file is no recording, or another one now."""
        checked = self._file is not None
        with closing(opening.open_file(self.path, checked)) as source, opening.reading(self.path):
            self._check_file()
            texts = Texts(source.connection, self._texts)
            return self._news(Recording(source, texts), source.connection, texts, copied=source.temporary is not None)

    def _check_file(self) -> None:
        status = self.path.stat()
        if self._file is not None and self._file != (status.st_dev, status.st_ino):
            raise RecordingError("was replaced by another recording")
        self._file = (status.st_dev, status.st_ino)

    def _news(self, recording: Recording, connection: sqlite3.Connection, texts: Texts, copied: bool) -> News:
        facts = self._facts = self._read_facts(recording, connection)
        state = _state(connection, facts.processes)
        if state is State.RUNNING and copied:
            raise RecordingError("cannot be read while it is written, as its file system has no shared memory")
        before = self._submission, self._region
        self._count(connection)
        now_ns = time.monotonic_ns()
        until_ns = self._last_ns
        if state is State.RUNNING or not until_ns:
            until_ns = max(facts.written_ns, now_ns - _LATE_NS if state is State.RUNNING else 0)
        since_ns = (until_ns - self._window_ns) // self._step_ns * self._step_ns
        dispatches, in_part = self._new_dispatches(recording, connection, texts, since_ns)
        return News(
            state=state,
            until_ns=until_ns,
            last_ns=self._last_ns,
            now_ns=now_ns,
            step_ns=self._step_ns,
            processes=facts.processes,
            devices=facts.devices,
            drops=facts.drops,
            kernels=self._kernels.seen,
            regions=self._new_regions(connection, texts, before[1], since_ns),
            buffers=self._new_buffers(connection, before[0], since_ns),
            dispatches=dispatches,
            in_part=in_part,
            submissions=self._submissions,
            failed=self._failed,
            samples=self._samples,
            regions_begun=self._regions_begun,
            file_bytes=self.path.stat().st_size,
        )

    def _read_facts(self, recording: Recording, connection: sqlite3.Connection) -> _Facts:
        """What is known of processes and devices, and what was lost. Most of it stays the same while a program runs."""
        ((written_ns, *sums),) = _integers(
            connection,
            """SELECT ifnull(max(end_monotonic_ns), 0), count(*), ifnull(sum(closed), 0),
 (SELECT count(*) FROM devices), (SELECT ifnull(sum(count), 0) FROM drops) FROM processes NOT INDEXED""",
        )
        notes = connection.execute("SELECT note FROM unwritten NOT INDEXED").fetchmany(_MOST_NOTES)
        if self._facts is not None and self._facts.changing == (*sums, *notes):
            return self._facts._replace(written_ns=written_ns)
        return _Facts(written_ns, (*sums, *notes), recording.processes, recording.devices, recording.drops)

    def _count(self, connection: sqlite3.Connection) -> None:
        """Count what is new, and move on to it."""
        query = "SELECT ifnull(max(id), ?), count(*), ifnull(max(end_ns), 0), {} FROM {} NOT INDEXED WHERE id > ?"
        given = (self._submission, self._submission)
        ((last, count, last_ns, failed),) = _integers(connection, query.format("count(error)", "submissions"), given)
        self._submission, self._submissions, self._failed = last, self._submissions + count, self._failed + failed
        given = (self._region, self._region)
        ((last, count, region_ns, _),) = _integers(connection, query.format("0", "regions"), given)
        self._region, self._regions_begun = last, self._regions_begun + count
        self._last_ns = max(self._last_ns, last_ns, region_ns)

    # --- regions and command buffers ------------------------------------------------------------------------------

    def _new_regions(
        self, connection: sqlite3.Connection, texts: Texts, after: int, since_ns: int
    ) -> tuple[RegionStep, ...]:
        columns = f"end_ns / {self._step_ns}, name, count(*), sum(end_ns - begin_ns) FROM regions NOT INDEXED"
        new = "id > ? AND id <= ? AND end_ns >= ?"
        rows = _integers(connection, f"SELECT {columns} WHERE {new} GROUP BY 1, 2", (after, self._region, since_ns))
        marks = ",".join("?" * len(self._open_regions))
        ended = f"id IN ({marks}) AND end_ns >= ?"
        rows += _integers(connection, f"SELECT {columns} WHERE {ended} GROUP BY 1, 2", (*self._open_regions, since_ns))
        still = f"SELECT id FROM regions NOT INDEXED WHERE end_ns IS NULL AND (id > ? AND id <= ? OR id IN ({marks}))"
        limit = f"ORDER BY id DESC LIMIT {_MOST_OPEN_REGIONS}"
        open_now = _integers(connection, f"{still} {limit}", (after, self._region, *self._open_regions))
        self._open_regions = [number for (number,) in open_now]
        return tuple(RegionStep(step, texts[name], count, total_ns) for step, name, count, total_ns in rows)

    def _new_buffers(self, connection: sqlite3.Connection, after: int, since_ns: int) -> tuple[BufferStep, ...]:
        query = f"""SELECT end_ns / {self._step_ns}, device, count(*),
 ifnull(sum(max(end_ns - commit_end_ns, 0)), 0), count(commit_end_ns),
 ifnull(sum(worked_ns), 0), ifnull(sum(min(lost_ns, worked_ns)), 0), count(worked_ns),
 ifnull(sum(lost_ns > ? * worked_ns), 0)
 FROM submissions NOT INDEXED WHERE id > ? AND id <= ? AND end_ns >= ? GROUP BY 1, 2"""
        rows = _integers(connection, query, (self._disturbed_from, after, self._submission, since_ns))
        return tuple(BufferStep(*row) for row in rows)

    # --- dispatches -----------------------------------------------------------------------------------------------

    def _new_dispatches(
        self, recording: Recording, connection: sqlite3.Connection, texts: Texts, since_ns: int
    ) -> tuple[Dispatches, bool]:
        """The newest first, until they are older than the window or more than can be looked at; whether they were."""
        table = schema.TABLES["sample_chunks"]
        headers = tables.read(connection, table, recording.version, {}, "id > ?", (self._chunk,))
        ids = headers.pop("id").tolist()
        self._chunk = ids[-1] if ids else self._chunk
        self._samples += int(headers["samples"].sum())
        runs, samples = _MOST_RUNS, _MOST_SAMPLES
        self._kernels.begin(recording, connection, texts)
        parts = [Dispatches(*(np.zeros(0, np.int64),) * 4)]
        in_part = False
        for row in reversed(range(len(ids))):
            if runs <= 0 or samples <= 0:
                in_part = True
                break
            (data,) = recording._blobs(schema.SampleChunks, ids[row])
            chunk = chunks.Chunk(**{name: int(column[row]) for name, column in headers.items()}, data=data)
            decoded = chunks.decode(chunk, runs, samples)
            if decoded.end_ns.max() < since_ns:
                break
            runs, samples = runs - len(decoded.counts), samples - len(decoded.node)
            part, all_known = self._dispatches(recording, connection, decoded, since_ns)
            in_part |= len(decoded.node) < chunk.samples or not all_known
            parts.append(part)
        columns = ("device", "kernel", "start_ns", "end_ns")
        return Dispatches(*(np.concatenate([getattr(part, name) for part in parts]) for name in columns)), in_part

    def _dispatches(
        self, recording: Recording, connection: sqlite3.Connection, decoded: chunks.Decoded, since_ns: int
    ) -> tuple[Dispatches, bool]:
        """The dispatches of a chunk that ended in the window; whether the plans of all were read."""
        reached = int(decoded.submission.min()), int(decoded.submission.max())
        owners = tables.read(connection, _OWNERS, recording.version, {}, "id BETWEEN ? AND ?", reached)
        samples = schema.TABLES["dispatches"]
        rows = tables.rows_of(samples, samples.column("submission"), owners["id"], decoded.submission)
        plans, plan = np.unique(owners["plan"][rows], return_inverse=True)
        kernels = self._kernels.of(plans.tolist())
        sizes = np.array([len(nodes) for nodes in kernels])
        if ((decoded.last_node >= sizes[plan]) & (sizes[plan] > 0)).any():
            raise RecordingError("holds samples of nodes that their plan does not have")
        chosen = np.repeat(sizes[plan] > 0, decoded.counts)
        chosen &= (decoded.status != UNAVAILABLE) & (decoded.end_ns >= since_ns)
        node = (np.repeat((np.cumsum(sizes) - sizes)[plan], decoded.counts) + decoded.node)[chosen]
        kernel = np.concatenate(kernels)[node]
        device = np.repeat(owners["device"][rows], decoded.counts)[chosen]
        start_ns, end_ns = decoded.start_ns[chosen], decoded.end_ns[chosen]
        if (kernel == NONE).any():
            device, kernel, start_ns, end_ns = (c[kernel != NONE] for c in (device, kernel, start_ns, end_ns))
        return Dispatches(device, kernel, start_ns, end_ns), bool((sizes > 0).all())


def _state(connection: sqlite3.Connection, processes: Sequence[Process]) -> State:
    if all(process.closed for process in processes):
        return State.ENDED
    if opening.is_live(connection) is not None:
        return State.RUNNING
    here = all(process.boot == boot() for process in processes if not process.closed)
    return State.KILLED if here else State.UNKNOWN


def _integers(connection: sqlite3.Connection, query: str, values: Sequence[float] = ()) -> list[tuple[int, ...]]:
    """The rows of a query, which must all be integers: SQLite keeps whatever type a row was given."""
    rows: list[tuple[Any, ...]] = connection.execute(query, values).fetchall()
    if any(type(value) is not int for row in rows for value in row):
        raise RecordingError("holds something else than integers where it should")
    return rows
