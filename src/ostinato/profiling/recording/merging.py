"""Recordings written anew: several made into one, and one of an older version made into one of this version.

To merge is to renumber: ids are shifted, texts and sources stored once, times brought to one clock (`alignment.py`
says when that is possible). All that is known about each process is kept, with what was added to its times and how far
off they may be. To upgrade is to merge a single recording, which changes nothing but its version. What happens to a
column follows from its declaration, so a new one needs nothing here.

The new file appears whole or not at all, and until then the old one stays as it is.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import RecordingError
from . import chunks, database, expansion, opening, schema, source_texts
from .alignment import Shift, align
from .declaring import MAX_TIME_NS, NONE, Column, Ints, Kind
from .reader import Recording, open_recording

_SPECIAL = ("strings", "processes", "meta", "drops", "unwritten", "sources", "plans", "sample_chunks", *schema.EXPANDED)
"""Tables of which more is known than that their columns are copied."""

Progress = Callable[[str], None]


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
        facts = [{"file": path.name} for path in sources]
        _write(target, recordings, shifts, facts, lambda _: None)


def upgrade(
    path: str | os.PathLike[str], output: str | os.PathLike[str] | None = None, *, progress: Progress = lambda _: None
) -> tuple[int, int]:
    """Write a recording of an older version as one of this version, in its place or as another file.

    Gives both versions; where they are the same, nothing is written. What the older version did not record stays
    unrecorded. A recording that is being written is refused. If anything goes wrong, the old file is as it was.
    """
    source = Path(path).resolve()
    target = source if output is None else Path(os.path.abspath(output))
    with open_recording(source) as recording:
        versions = (recording.version, schema.VERSION)
        writer = opening.is_live(recording._connection)
        if writer is not None:
            raise RecordingError(f"process {writer} is still recording into {path}; upgrade it when that has ended")
    if versions[0] == versions[1]:
        return versions
    if target.resolve() == source:
        _fold_log(source)
    else:
        opening.check_replaceable(target)
    with open_recording(source) as recording:
        _write(target, [recording], [Shift(0, 0)], [{}], progress)
    return versions


def _fold_log(path: Path) -> None:
    """Bring SQLite's log, if there is one, into the file: it must not lie beside the one that comes into its place."""
    if not any(side.exists() for side in database.side_files(path)):
        return
    try:
        connection = database.open_for_writing(path)
        database.make_plain(connection)
        connection.close()
    except sqlite3.Error as problem:
        raise RecordingError(f"cannot upgrade {path}: {problem}") from problem
    if any(side.exists() for side in database.side_files(path)):
        raise RecordingError(f"cannot upgrade {path}: another program has it open")


def _write(
    target: Path,
    recordings: Sequence[Recording],
    shifts: Sequence[Shift],
    facts: Sequence[Mapping[str, str]],
    progress: Progress,
) -> None:
    """Make a file of recordings and put it in its place."""
    unfinished = target.with_name(target.name + ".part")
    database.remove(unfinished)
    with ExitStack() as undo:
        database.create(unfinished, undo)
        connection = database.open_for_writing(unfinished)
        try:
            _fill(connection, recordings, shifts, facts, progress)
            progress("plain tables")
            expansion.expand_tables(connection, unfinished, expansion.MOST_AT_CLOSING)
            database.make_plain(connection)
            connection.close()
            for side in database.side_files(target):
                side.unlink(missing_ok=True)
            os.replace(unfinished, target)
        except (sqlite3.Error, OSError) as problem:
            raise RecordingError(f"cannot write {target}: {problem}") from problem
        finally:
            connection.close()
            database.remove(unfinished)


def _fill(
    connection: sqlite3.Connection,
    recordings: Sequence[Recording],
    shifts: Sequence[Shift],
    facts: Sequence[Mapping[str, str]],
    progress: Progress,
) -> None:
    texts: dict[str, int] = {}
    base = dict.fromkeys(schema.TABLES, 0)
    connection.execute("BEGIN IMMEDIATE")
    for recording, shift, more in zip(recordings, shifts, facts, strict=True):
        copy = _Copy(connection, recording, shift, texts, base)
        copy.processes(more)
        for name in schema.TABLES:
            if name not in _SPECIAL:
                progress(name.replace("_", " "))
                copy.table(name, recording.columns(name))
        copy.plans()
        progress("samples")
        copy.samples()
        base = copy.last
    database.insert_many(connection, schema.TABLES["strings"], ((number, text) for text, number in texts.items()))
    _fill_sources(connection, recordings)
    connection.execute("COMMIT")


def _fill_sources(connection: sqlite3.Connection, recordings: Sequence[Recording]) -> None:
    """The source texts of all recordings, each once."""
    made, table = source_texts.SourceRows(), schema.TABLES["sources"]
    every = source_texts.together(source for recording in recordings for source in recording.sources.values())
    rows = [row for row in map(made.row_of, every) if row is not None]
    code = {word: number for number, word in enumerate(schema.LEFT_OUT)}
    stored = [row | {"left_out": code.get(row["left_out"])} for row in rows]
    database.insert_many(connection, table, ([row[name] for name in table.sql_names] for row in stored))


class _Copy:
    """One recording on its way into the new one: `base` is added to its ids, `last` are the highest ids used.

    `texts` are those of the new file by their ids; each is stored once.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        recording: Recording,
        shift: Shift,
        texts: dict[str, int],
        base: Mapping[str, int],
    ) -> None:
        self._connection, self._recording, self._shift = connection, recording, shift
        self._texts, self._base, self.last = texts, base, dict(base)

    def processes(self, facts: Mapping[str, str]) -> None:
        """The processes with the shift of their clock, what is known of them, and what they lost."""
        recording, shift = self._recording, self._shift
        columns = dict(recording.columns("processes"))
        columns["clock_offset_ns"] = columns["clock_offset_ns"] + shift.offset_ns
        columns["clock_uncertainty_ns"] = columns["clock_uncertainty_ns"] + shift.uncertainty_ns
        columns["expanded"] = np.zeros(len(columns["id"]), np.bool_)
        self.table("processes", columns)
        meta = [
            (row, *fact)
            for row, process in enumerate(recording.processes)
            for fact in {**facts, **process.meta}.items()
        ]
        self._insert_rows("meta", meta)
        lost = [
            (drop.process, drop.where, drop.count, max(drop.since_ns + shift.offset_ns, 0)) for drop in recording.drops
        ]
        self._insert_rows("drops", lost)

    def plans(self) -> None:
        """The plans, whose blobs name commands."""
        recording, blobs = self._recording, []
        columns = dict(recording.columns("plans"))
        lists = recording.lists()
        commands = (recording.commands.id[lists.command] + self._base["commands"]).astype("<u4")
        for row, pairs in enumerate(lists.edges):
            nodes, edges = commands[lists.nodes(row)].tobytes(), np.stack(pairs, axis=1).astype("<u4").tobytes()
            blobs.append((nodes, edges, zlib.crc32(edges, zlib.crc32(nodes))))
        columns["crc"] = np.array([crc for _, _, crc in blobs], np.int64)
        self.table("plans", columns, [[nodes for nodes, _, _ in blobs], [edges for _, edges, _ in blobs]])

    def samples(self) -> None:
        """The chunks, renumbered; what they hold is not touched."""
        for chunk, samples in self._recording.stored_chunks():
            self._check_times(samples.end_ns)
            self.last["sample_chunks"] += 1
            moved = chunks.moved(chunk, self._base["submissions"], self._shift.offset_ns)
            row = {"id": self.last["sample_chunks"], **moved._asdict()}
            table = schema.TABLES["sample_chunks"]
            database.insert_many(self._connection, table, [[row[name] for name in table.sql_names]])

    def table(self, name: str, columns: Mapping[str, Any], blobs: Sequence[Sequence[bytes]] = ()) -> None:
        """The rows of a table, and the bytes that belong to them."""
        table = schema.TABLES[name]
        stored: list[Sequence[Any]] = []
        for column in table.columns:
            values = columns[column.name]
            parts = values.T if column.kind is Kind.SIZES else [values]
            stored += [self._stored(name, column, part) for part in parts]
        if len(columns[table.columns[0].name]):
            database.insert_many(self._connection, table, zip(*stored, *blobs, strict=True))

    def _insert_rows(self, name: str, rows: Sequence[tuple[Any, ...]]) -> None:
        table = schema.TABLES[name]
        values = zip(*rows, strict=True) if rows else [()] * len(table.columns)
        dtypes = [object if column.kind is Kind.WORD else np.int64 for column in table.columns]
        columns = [np.array(column, dtype) for column, dtype in zip(values, dtypes, strict=True)]
        self.table(name, dict(zip((column.name for column in table.columns), columns, strict=True)))

    def _stored(self, table: str, column: Column, values: Any) -> list[Any]:
        """A column as the new file holds it."""
        if column.kind is Kind.TEXT:
            return [None if column.optional and not text else self._text(text) for text in values.tolist()]
        if column.kind is Kind.CODE:
            codes = {word: number for number, word in enumerate(column.words)}
            return [codes.get(word) for word in values.tolist()]
        if column.kind is Kind.IDENTITY:
            values = values + self._base[table]
            self.last[table] = max(self.last[table], int(values.max(initial=0)))
        elif column.kind is Kind.REFERENCE:
            ids = np.append(self._recording.columns(column.table)["id"], 0)
            values = np.where(values == NONE, NONE, ids[values] + self._base[column.table])
        elif column.kind is Kind.TIME:
            self._check_times(values)
            values = np.where(values == NONE, NONE, values + self._shift.offset_ns)
        elif column.kind is Kind.FLAG:
            values = values.astype(np.int64)
        listed: list[Any] = values.tolist()
        if column.kind is Kind.WORD or not column.optional:
            return listed
        return [None if value == NONE or value != value else value for value in listed]

    def _text(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts) + 1)

    def _check_times(self, times: Ints) -> None:
        if int(times.max(initial=0)) + self._shift.offset_ns >= MAX_TIME_NS:
            raise RecordingError("its times cannot be brought to the common clock")
