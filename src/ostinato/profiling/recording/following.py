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
_COMMAND_BUFFERS = schema.LEVELS.index("command_buffers")
_CHUNKS = schema.TABLES["sample_chunks"]
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
    """From commit to end, as far as it is in the window; added up over those whose commit was recorded."""
    committed: int
    """How many those are."""
    unsampled_ns: int
    """Time in the window in which those ran whose dispatches were not sampled. Where some overlap it counts once, for
    the first; unless they came with different reads."""
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


class _Position(NamedTuple):
    """How far a recording was read: the last ids, and what was counted up to them."""

    submission: int = 0
    region: int = 0
    chunk: int = 0
    last_ns: int = 0
    """When something last ended."""
    submissions: int = 0
    failed: int = 0
    samples: int = 0
    regions_begun: int = 0
    open_regions: tuple[int, ...] = ()


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
        self._file: tuple[object, ...] | None = None
        self._facts: _Facts | None = None
        self._texts: dict[int, str] = {}
        self._kernels = Kernels()
        self._position = _Position()

    def read(self) -> News:
        """What came since the last call. Raises `RecordingError` if the file is no recording, or another one now."""
        checked = self._file is not None
        with closing(opening.open_file(self.path, checked)) as source, opening.reading(self.path):
            file_bytes = self._check_file(source.connection)
            texts = Texts(source.connection, self._texts)
            recording = Recording(source, texts)
            self._kernels.begin(recording, source.connection, texts)
            # Moved on only when all was read: what a failure left unread comes with the next call.
            news, self._position = self._news(recording, source, file_bytes)
            return news

    def _check_file(self, connection: sqlite3.Connection) -> int:
        """How many bytes the file has, which must be the one of the last time."""
        try:
            status = self.path.stat()
        except OSError as problem:  # it was removed after it was opened
            raise RecordingError(f"cannot be read: {problem.strerror}") from problem
        # A new file may get the inode of the one that it replaces.
        begun = "SELECT pid, start_monotonic_ns, start_realtime_ns FROM processes NOT INDEXED ORDER BY id LIMIT 1"
        file = (status.st_dev, status.st_ino, connection.execute(begun).fetchone())
        if self._file is not None and self._file != file:
            raise RecordingError("was replaced by another recording")
        self._file = file
        return status.st_size

    def _news(self, recording: Recording, source: opening.Source, file_bytes: int) -> tuple[News, _Position]:
        connection = source.connection
        facts = self._facts = self._read_facts(recording, connection)
        state = _state(facts.processes)
        if state is State.RUNNING and source.temporary is not None:
            raise RecordingError("cannot be read while it is written, as its file system has no shared memory")
        before, after = self._position, _counted(connection, self._position)
        now_ns = time.monotonic_ns()
        until_ns = after.last_ns
        if state is State.RUNNING or not until_ns:
            until_ns = max(facts.written_ns, now_ns - _LATE_NS if state is State.RUNNING else 0)
        since_ns = (until_ns - self._window_ns) // self._step_ns * self._step_ns
        regions, open_regions = self._new_regions(connection, recording._texts, before, after, since_ns)
        buffers = self._new_buffers(connection, before, after, since_ns)
        headers = tables.read(connection, _CHUNKS, recording.version, {}, "id > ?", (before.chunk,))
        newest = _newest_chunks(connection, before.chunk, since_ns)
        dispatches, in_part = self._new_dispatches(recording, connection, headers, newest, since_ns)
        after = after._replace(
            open_regions=open_regions,
            chunk=int(headers["id"].max(initial=before.chunk)),
            samples=before.samples + int(headers["samples"].sum()),
        )
        news = News(
            state=state,
            until_ns=until_ns,
            last_ns=after.last_ns,
            now_ns=now_ns,
            step_ns=self._step_ns,
            processes=facts.processes,
            devices=facts.devices,
            drops=facts.drops,
            kernels=self._kernels.seen,
            regions=regions,
            buffers=buffers,
            dispatches=dispatches,
            in_part=in_part,
            submissions=after.submissions,
            failed=after.failed,
            samples=after.samples,
            regions_begun=after.regions_begun,
            file_bytes=file_bytes,
        )
        return news, after

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

    # --- regions and command buffers ------------------------------------------------------------------------------

    def _new_regions(
        self, connection: sqlite3.Connection, texts: tables.Texts, before: _Position, after: _Position, since_ns: int
    ) -> tuple[tuple[RegionStep, ...], tuple[int, ...]]:
        """The regions that ended, and the ids of those that are open."""
        sums = f"SELECT end_ns / {self._step_ns}, name, count(*), sum(end_ns - begin_ns) FROM regions NOT INDEXED"
        marks = ",".join("?" * len(before.open_regions))
        mine = f"(id > ? AND id <= ? OR id IN ({marks}))"
        ids = before.region, after.region, *before.open_regions
        rows = _integers(connection, f"{sums} WHERE {mine} AND end_ns >= ? GROUP BY 1, 2", (*ids, since_ns))
        still = f"SELECT id FROM regions NOT INDEXED WHERE {mine} AND end_ns IS NULL ORDER BY id DESC LIMIT ?"
        open_now = _integers(connection, still, (*ids, _MOST_OPEN_REGIONS))
        ended = tuple(RegionStep(step, texts[name], count, total_ns) for step, name, count, total_ns in rows)
        return ended, tuple(number for (number,) in open_now)

    def _new_buffers(
        self, connection: sqlite3.Connection, before: _Position, after: _Position, since_ns: int
    ) -> tuple[BufferStep, ...]:
        step = f"end_ns / {self._step_ns}"
        new = "FROM submissions NOT INDEXED WHERE id > :before AND id <= :after AND end_ns >= :since"
        values = {"before": before.submission, "after": after.submission, "since": since_ns}
        earlier = "PARTITION BY device ORDER BY start_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
        alone = f"""SELECT {step}, device, ifnull(sum(max(end_ns - max(start_ns, reached_ns, :since), 0)), 0)
 FROM (SELECT end_ns, device, start_ns, ifnull(max(end_ns) OVER ({earlier}), 0) AS reached_ns
 {new} AND (probe OR level = {_COMMAND_BUFFERS})) GROUP BY 1, 2"""
        unsampled_ns = {(at, device): ns for at, device, ns in _integers(connection, alone, values)}
        sums = f"""SELECT {step}, device, count(*),
 ifnull(sum(max(end_ns - max(commit_end_ns, :since), 0)), 0), count(commit_end_ns),
 ifnull(sum(worked_ns), 0), ifnull(sum(min(lost_ns, worked_ns)), 0), count(worked_ns),
 ifnull(sum(lost_ns > {self._disturbed_from} * worked_ns), 0) {new} GROUP BY 1, 2"""
        return tuple(
            BufferStep(at, device, ended, in_flight_ns, committed, unsampled_ns.get((at, device), 0), *of_workers)
            for at, device, ended, in_flight_ns, committed, *of_workers in _integers(connection, sums, values)
        )

    # --- dispatches -----------------------------------------------------------------------------------------------

    def _new_dispatches(
        self,
        recording: Recording,
        connection: sqlite3.Connection,
        headers: dict[str, Any],
        newest: Sequence[int],
        since_ns: int,
    ) -> tuple[Dispatches, bool]:
        """Those of the newest chunks, until they are more than can be looked at; whether they were."""
        runs, samples = _MOST_RUNS, _MOST_SAMPLES
        parts: list[chunks.Decoded] = []
        in_part = False
        for row in np.searchsorted(headers["id"], newest).tolist():
            if runs <= 0 or samples <= 0:
                in_part = True
                break
            header = {name: int(column[row]) for name, column in headers.items()}
            (data,) = recording._blobs(schema.SampleChunks, header.pop("id"))
            chunk = chunks.Chunk(**header, data=data)
            part = chunks.decode(chunk, runs, samples)
            runs, samples = runs - len(part.counts), samples - len(part.node)
            if part.end_ns.max() >= since_ns:
                in_part |= len(part.node) < chunk.samples
                parts.append(part)
        if not parts:
            return Dispatches(*(np.zeros(0, np.int64),) * 4), in_part
        dispatches, all_known = self._dispatches(recording, connection, chunks.joined(parts), since_ns)
        return dispatches, in_part or not all_known

    def _dispatches(
        self, recording: Recording, connection: sqlite3.Connection, decoded: chunks.Decoded, since_ns: int
    ) -> tuple[Dispatches, bool]:
        """The dispatches that ended in the window; whether the plans of all were read."""
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


def _newest_chunks(connection: sqlite3.Connection, after: int, since_ns: int) -> list[int]:
    """The ids of chunks that may reach into the window, the newest first: in a merged file ids do not rise with time.

    One more than can be looked at, at most. The time of a chunk is the end of its last submission.
    """
    query = """SELECT c.id FROM sample_chunks c LEFT JOIN submissions s ON s.id = c.submission_last
 WHERE c.id > ? AND ifnull(s.end_ns >= ?, 1) ORDER BY s.end_ns DESC, c.id DESC LIMIT ?"""
    return [number for (number,) in _integers(connection, query, (after, since_ns, _MOST_RUNS + 1))]


def _counted(connection: sqlite3.Connection, before: _Position) -> _Position:
    """How far the recording goes now."""
    query = "SELECT ifnull(max(id), ?), count(*), ifnull(max(end_ns), 0), {} FROM {} NOT INDEXED WHERE id > ?"
    values = before.submission, before.submission
    ((submission, count, buffer_ns, failed),) = _integers(
        connection, query.format("count(error)", "submissions"), values
    )
    values = before.region, before.region
    ((region, begun, region_ns, _),) = _integers(connection, query.format("0", "regions"), values)
    were_open = f"SELECT ifnull(max(end_ns), 0) FROM regions WHERE id IN ({','.join('?' * len(before.open_regions))})"
    ((ended_ns,),) = _integers(connection, were_open, before.open_regions)
    return before._replace(
        submission=submission,
        region=region,
        last_ns=max(before.last_ns, buffer_ns, region_ns, ended_ns),
        submissions=before.submissions + count,
        failed=before.failed + failed,
        regions_begun=before.regions_begun + begun,
    )


def _state(processes: Sequence[Process]) -> State:
    writing = [process for process in processes if not process.closed]
    if not writing:
        return State.ENDED
    here = [process.pid for process in writing if process.boot == boot()]
    if any(map(opening.runs, here)):
        return State.RUNNING
    return State.KILLED if len(here) == len(writing) else State.UNKNOWN


def _integers(
    connection: sqlite3.Connection, query: str, values: Sequence[int] | dict[str, int] = ()
) -> list[tuple[int, ...]]:
    """The rows of a query, which must all be integers: SQLite keeps whatever type a row was given."""
    rows: list[tuple[Any, ...]] = connection.execute(query, values).fetchall()
    if any(type(value) is not int for row in rows for value in row):
        raise RecordingError("holds something else than integers where it should")
    return rows
