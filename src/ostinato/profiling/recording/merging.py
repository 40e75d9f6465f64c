"""One recording of several: of the processes of one job, each of which recorded into a file of its own.

Ids are renumbered, texts stored once, times brought to one clock (`alignment.py` says when that is possible). All that
is known about each process is kept, with what was added to its times and how far off they may be.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import RecordingError
from . import chunks, database, expansion, opening
from .alignment import Shift, align
from .columns import NONE, WORKER_TIME, Ints
from .reader import Recording, open_recording
from .schema import MAX_TIME_NS

Columns = list[list[Any]]


def merge(
    paths: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    wall_clock_error_ns: int | None = None,
) -> None:
    """Write one recording that holds all of several, on one clock.

    `wall_clock_error_ns` is how far the wall clocks of different machines may be apart; without it their recordings
    are refused. An older recording at `output` is replaced.
    """
    target = Path(os.path.abspath(output))
    sources = [Path(path).resolve() for path in paths]
    if not sources:
        raise RecordingError("nothing to merge")
    if target.resolve() in sources:
        raise RecordingError(f"{target} is one of the recordings to merge; choose another name")
    opening.check_replaceable(target)
    with ExitStack() as stack:
        recordings = [stack.enter_context(open_recording(path)) for path in sources]
        shifts = align(recordings, wall_clock_error_ns)
        unfinished = target.with_name(target.name + ".part")
        database.remove(unfinished)
        database.create(unfinished, stack)
        connection = database.open_for_writing(unfinished)
        try:
            _fill(connection, recordings, shifts, [path.name for path in sources])
            expansion.expand_tables(connection, unfinished, expansion.MOST_AT_CLOSING)
            database.make_plain(connection)
            connection.close()
            database.remove(target)
            os.replace(unfinished, target)
        except (sqlite3.Error, OSError) as problem:
            raise RecordingError(f"cannot write {target}: {problem}") from problem
        finally:
            connection.close()
            database.remove(unfinished)


class _Texts:
    """Texts of the merged file, each stored once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str | None) -> int | None:
        return None if text is None else self._numbers.setdefault(text, len(self._numbers) + 1)

    def numbers(self, texts: Iterable[str | None]) -> list[int | None]:
        return [self.number(text) for text in texts]

    def rows(self) -> Iterable[tuple[int, str]]:
        return ((number, text) for text, number in self._numbers.items())


def _fill(
    connection: sqlite3.Connection, recordings: Sequence[Recording], shifts: Sequence[Shift], files: Sequence[str]
) -> None:
    texts = _Texts()
    used = dict.fromkeys(("process", "device", "command", "plan", "region", "submission", "span", "chunk"), 0)
    connection.execute("BEGIN IMMEDIATE")
    for recording, shift, file in zip(recordings, shifts, files, strict=True):
        copy = _Copy(connection, recording, shift, texts, dict(used))
        copy.facts(file)
        copy.plans()
        copy.work()
        copy.samples()
        used = copy.last
    database.insert_many(connection, "strings", 2, texts.rows())
    connection.execute("COMMIT")


class _Copy:
    """One recording on its way into the merged one: `base` is added to its ids, `last` are the highest ids used."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        recording: Recording,
        shift: Shift,
        texts: _Texts,
        base: Mapping[str, int],
    ) -> None:
        self._connection = connection
        self._recording = recording
        self._shift = shift
        self._texts = texts
        self._base = base
        self.last = dict(base)

    def facts(self, file: str) -> None:
        """Processes, devices, drops, and all that is known about them."""
        recording, base, text = self._recording, self._base, self._texts.number
        for process in recording.processes:
            number = self._use("process", process.id)
            offset = process.clock_offset_ns + self._shift.offset_ns
            uncertainty = process.clock_uncertainty_ns + self._shift.uncertainty_ns
            ranks = (process.rank, process.local_rank, process.world_size)
            self._insert("processes", [(number, process.pid, offset, uncertainty, process.host, *ranks)])
            meta = {"file": file} | {key: value for key, value in process.meta.items() if key != "expanded"}
            self._insert("meta", [(number, *fact) for fact in meta.items()])
        for (owner, thread), name in recording.threads.items():
            self._insert("threads", [(owner + base["process"], thread, text(name))])
        for device in recording.devices:
            number = self._use("device", device.id)
            names = self._texts.numbers((device.name, device.backend, device.description, device.sampling))
            ceilings = (device.copy_bytes_per_s, device.flops_per_s, device.timestamp_cost_ns, device.dispatch_cost_ns)
            row = (number, device.process + base["process"], *names, device.clock_uncertainty_ns, *ceilings)
            self._insert("devices", [row])
            self._insert("device_details", [(number, *fact) for fact in device.details.items()])
        for drop in recording.drops:
            since_ns = max(drop.since_ns + self._shift.offset_ns, 0)
            self._insert("drops", [(drop.process + base["process"], drop.where, drop.count, since_ns)])

    def plans(self) -> None:
        """Commands and the plans made of them."""
        recording, numbers = self._recording, self._texts.numbers
        commands = recording.commands
        columns: list[list[Any]] = [
            self._ids("command", commands.id),
            commands.kind,
            numbers(commands.kernel),
            numbers(commands.label),
        ]
        columns += [numbers(commands.specialisation), numbers(commands.op_kind)]
        columns += [*commands.threads.T.tolist(), *commands.group.T.tolist(), commands.groups.tolist()]
        columns += [commands.bytes_read.tolist(), commands.bytes_written.tolist()]
        columns += [commands.bytes_declared.astype(int).tolist(), _optional(commands.flops)]
        columns += [numbers(commands.place), numbers(commands.origin)]
        columns += [numbers(commands.source), numbers(commands.digest)]
        self._insert_columns("commands", columns)
        terms = recording.terms
        columns = [self._refer("command", terms.command), terms.amount.tolist(), terms.number.tolist()]
        columns += [numbers(terms.param), terms.factor.tolist(), terms.plus.tolist(), _optional(terms.upto)]
        self._insert_columns("command_terms", columns)
        for plan, device in zip(recording.plans.id.tolist(), recording.plans.device.tolist(), strict=True):
            nodes = (recording.plan_commands(plan) + self._base["command"]).astype("<u4").tobytes()
            edges = recording.edges(plan).astype("<u4").tobytes()
            crc = zlib.crc32(edges, zlib.crc32(nodes))
            row = (self._use("plan", plan), device + self._base["device"], len(nodes) // 4, len(edges) // 8, crc)
            self._insert("plans", [(*row, nodes, edges)])

    def work(self) -> None:
        """Regions, submissions and host spans."""
        numbers, refer, times = self._texts.numbers, self._refer, self._times

        regions = self._recording.regions
        columns: list[list[Any]] = [
            self._ids("region", regions.id),
            refer("process", regions.process),
            numbers(regions.name),
        ]
        columns += [times(regions.begin_ns), times(regions.end_ns), regions.thread.tolist()]
        columns += [refer("region", regions.parent)]
        self._insert_columns("regions", columns)

        done = self._recording.submissions
        columns = [self._ids("submission", done.id), refer("process", done.process), refer("device", done.device)]
        columns += [refer("plan", done.plan), done.ordinal.tolist(), numbers(done.label), refer("region", done.region)]
        columns += [done.replay.astype(int).tolist(), done.unsampled_probe.astype(int).tolist(), done.level.tolist()]
        columns += [times(done.encode_begin_ns), times(done.encode_end_ns)]
        columns += [times(done.commit_begin_ns), times(done.commit_end_ns), times(done.start_ns), times(done.end_ns)]
        columns += [done.status.tolist(), numbers(done.reason), numbers(done.error), done.thread.tolist()]
        columns += [_optional(getattr(done, name)) for name in WORKER_TIME]
        self._insert_columns("submissions", columns)

        values = self._recording.values
        columns = [refer("submission", values.submission), values.number.tolist()]
        columns += [numbers(values.param), values.value.tolist()]
        self._insert_columns("submission_values", columns)

        spans = self._recording.host_spans
        columns = [self._ids("span", spans.id), refer("process", spans.process), spans.kind.tolist()]
        columns += [numbers(spans.name), times(spans.begin_ns), times(spans.end_ns), spans.thread.tolist()]
        columns += [refer("submission", spans.submission), refer("region", spans.region)]
        self._insert_columns("host_spans", columns)

    def samples(self) -> None:
        """The chunks, renumbered; what they hold is not touched."""
        for chunk, samples in self._recording.stored_chunks():
            if int(samples.end_ns.max()) + self._shift.offset_ns >= MAX_TIME_NS:
                raise RecordingError("its times cannot be brought to the common clock")
            self.last["chunk"] += 1
            moved = chunks.moved(chunk, self._base["submission"], self._shift.offset_ns)
            self._insert("sample_chunks", [(self.last["chunk"], *moved)])

    def _insert(self, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            database.insert_many(self._connection, table, len(rows[0]), rows)

    def _insert_columns(self, table: str, columns: Columns) -> None:
        database.insert_many(self._connection, table, len(columns), zip(*columns, strict=True))

    def _use(self, what: str, number: int) -> int:
        self.last[what] = max(self.last[what], number + self._base[what])
        return number + self._base[what]

    def _ids(self, what: str, ids: Ints) -> list[int]:
        if len(ids):
            self._use(what, int(ids[-1]))
        moved: list[int] = (ids + self._base[what]).tolist()
        return moved

    def _refer(self, what: str, ids: Ints) -> list[int | None]:
        return _optional(np.where(ids == NONE, NONE, ids + self._base[what]))

    def _times(self, times: Ints) -> list[int | None]:
        moved = np.where(times == NONE, NONE, times + self._shift.offset_ns)
        if len(moved) and int(moved.max()) >= MAX_TIME_NS:
            raise RecordingError("its times cannot be brought to the common clock")
        return _optional(moved)


def _optional(column: Ints) -> list[int | None]:
    return [None if value == NONE else value for value in column.tolist()]
