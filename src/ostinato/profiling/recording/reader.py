"""A recording as columns: what reports, traces and statistics read, whether it is a file or still being written.

Everything is read when it is first asked for, checked, and kept; samples are read each time. What comes out holds
together: ids rise, every reference leads somewhere, nodes lie inside their plan, edges lead forward, times are
possible. A file of which that is not true is refused with a `RecordingError`, the only error that reading raises.

What an older version did not record is read as not given. `declaring.py` says how columns look.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, TypeVar

import numpy as np

from ...errors import RecordingError
from . import chunks, opening, schema, source_texts, tables, unwritten
from .declaring import NONE, Ints, Kind, Table
from .schema import (
    CommandConstants,
    Commands,
    CommandTerms,
    Device,
    Drop,
    HostSpans,
    Plans,
    Process,
    Regions,
    Samples,
    Source,
    Submissions,
    SubmissionValues,
)

MAX_SAMPLES_AT_ONCE = 50_000_000
"""What `samples()` takes into memory (33 bytes each); `sample_chunks()` has no limit."""

_Rows = TypeVar("_Rows")


@dataclass(frozen=True, slots=True)
class Lists:
    """The nodes of all plans, plan after plan, and what waits for what within each."""

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


class _InColumns(Generic[_Rows]):
    """A table of a recording, which is read when it is first asked for."""

    def __init__(self, rows: type[_Rows]) -> None:
        self._rows = rows

    def __get__(self, recording: Recording, owner: type[Recording]) -> _Rows:
        return recording.table(self._rows)


def open_recording(path: str | os.PathLike[str], *, pages: bool = True) -> Recording:
    """Open a file. It is data, whoever made it: nothing in it is executed and nothing is written.

    Without `pages`, damage is found in what is read, and not in the rest of the file.
    """
    return Recording(opening.open_file(path, pages=pages))


class Recording:
    """One recording, read-only; `close` it, or use it with `with`. May be shared between threads."""

    def __init__(self, source: opening.Source, texts: tables.Texts | None = None) -> None:
        self.path: Path | None = source.path
        """The file, or None for a recording that lives in memory."""
        self._given_texts = texts  # by id; otherwise all are read when the first is needed
        self._connection = source.connection
        self._lock = threading.RLock()
        self._read: dict[str, dict[str, Any]] = {}
        self._tables: dict[str, Any] = {}
        self._finalizer = weakref.finalize(self, source.close)

    def close(self) -> None:
        """Let go of the file. What was read stays usable."""
        with self._lock:
            self._finalizer()

    def __enter__(self) -> Recording:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Recording {'in memory' if self.path is None else str(self.path)!r}>"

    def copy_into(self, target: sqlite3.Connection) -> None:
        """Make an empty database hold the same."""
        with self._reading():
            self._connection.backup(target)

    def live_writer(self) -> int | None:
        """The pid of a process of this machine that is still recording into the file, if there is one."""
        with self._reading():
            return opening.is_live(self._connection)

    # --- tables ---------------------------------------------------------------------------------------------------

    @cached_property
    def version(self) -> int:
        """The version of the file."""
        with self._reading():
            return opening.version_of(self._connection)

    def columns(self, name: str) -> dict[str, Any]:
        """The columns of any table."""
        if name not in self._read:
            with self._reading():
                table = schema.TABLES[name]
                texts = self._texts if any(column.kind is Kind.TEXT for column in table.columns) else {}
                columns = tables.read(self._connection, table, self.version, texts)
                tables.check_times(table, columns)
                for column in table.columns:
                    if column.kind is Kind.REFERENCE:
                        ids = columns["id"] if column.table == name else self.columns(column.table)["id"]
                        columns[column.name] = tables.rows_of(table, column, ids, columns[column.name])
                self._read[name] = columns
        return self._read[name]

    def table(self, rows: type[_Rows]) -> _Rows:
        """A table that is declared as columns."""
        table = _declared(rows)
        if table.name not in self._tables:
            self._tables[table.name] = table.rows(**self.columns(table.name))
        made: _Rows = self._tables[table.name]
        return made

    def records(self, row: type[_Rows]) -> list[_Rows]:
        """The rows of a table that is declared as records."""
        table = _declared(row)
        columns = self.columns(table.name)
        listed = [column.scalars(columns[column.name]) for column in table.columns]
        names = [column.name for column in table.columns]
        return [table.rows(**dict(zip(names, values, strict=True))) for values in zip(*listed, strict=True)]

    @cached_property
    def processes(self) -> tuple[Process, ...]:
        """The processes that recorded; several after `merge`."""
        processes = self.records(Process)
        with self._reading():
            if not processes:
                raise RecordingError("says nothing about the process that made it")
        meta = self.columns("meta")
        facts = _facts(meta["process"], meta)
        return tuple(replace(process, meta=facts.get(row, {})) for row, process in enumerate(processes))

    @property
    def meta(self) -> Mapping[str, str]:
        """What is known about the first process; `docs/recording.md` lists the keys."""
        return self.processes[0].meta

    @cached_property
    def threads(self) -> Mapping[tuple[int, int], str]:
        """Names of host threads, by row of the process, and thread."""
        threads = self.columns("threads")
        keys = zip(threads["process"].tolist(), threads["thread"].tolist(), strict=True)
        return dict(zip(keys, threads["name"].tolist(), strict=True))

    @cached_property
    def drops(self) -> tuple[Drop, ...]:
        """Everything that was lost, and how much of it."""
        drops, notes = self.columns("drops"), self.columns("unwritten")
        lost: dict[tuple[int, str], tuple[int, int]] = {}
        rows = zip(*(drops[name].tolist() for name in ("process", "place", "count", "since_ns")), strict=True)
        for process, place, count, since_ns in rows:
            lost[process, place] = (count, since_ns)
        for process, note in zip(notes["process"].tolist(), notes["note"].tolist(), strict=True):
            with self._reading():
                unwritten_here = unwritten.read(note)
            for place, (count, since_ns) in unwritten_here.items():
                before, first_ns = lost.get((process, place), (0, since_ns))
                lost[process, place] = (before + count, min(first_ns, since_ns))
        return tuple(Drop(place, *pair, process) for (process, place), pair in sorted(lost.items()))

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        """The devices that worked."""
        details = self.columns("device_details")
        facts = _facts(details["device"], details)
        return tuple(replace(device, details=facts.get(row, {})) for row, device in enumerate(self.records(Device)))

    @cached_property
    def sources(self) -> Mapping[str, Source]:
        """The texts that kernels were compiled from, by digest, if the program was recorded with them."""
        rows = self.records(Source)
        with self._reading():
            if sum(row.size_bytes for row in rows if not row.left_out) > schema.MAX_SOURCES_BYTES:
                raise RecordingError(f"holds source texts of more than {schema.MAX_SOURCES_BYTES} bytes")
            return {
                row.digest: row if row.left_out else source_texts.checked(row, *self._blobs(Source, row.id))
                for row in rows
            }

    commands = _InColumns(Commands)
    """The different commands that occur in plans."""
    constants = _InColumns(CommandConstants)
    """The function constants and macros of the kernels of commands."""
    terms = _InColumns(CommandTerms)
    """What comes to bytes and flops of commands with every submission."""
    values = _InColumns(SubmissionValues)
    """The values of submissions that the terms depend on."""
    plans = _InColumns(Plans)
    """The command lists that were committed."""
    submissions = _InColumns(Submissions)
    """The command buffers that were committed."""
    regions = _InColumns(Regions)
    """The scopes of the host program."""
    host_spans = _InColumns(HostSpans)
    """What the host did. A span may be of a submission that never finished; its `submission` is then NONE."""

    # --- plans ----------------------------------------------------------------------------------------------------

    def plan_commands(self, plan: int) -> Ints:
        """The row of the command at each node of a plan, which is given by its id."""
        return self._plan(self._plan_row(plan))[0]

    def edges(self, plan: int) -> Ints:
        """Which node of a plan must end before which starts: pairs (before, after), of shape (n, 2), before < after."""
        return self._plan(self._plan_row(plan))[1]

    def plan_nodes(self, plan: int) -> Commands:
        """The commands of a plan, node by node."""
        return self.commands.where(self.plan_commands(plan))

    def lists(self) -> Lists:
        """All plans together."""
        read = [self._plan(row) for row in range(len(self.plans))]
        first = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.plans.nodes, dtype=np.int64)])
        commands = np.concatenate([np.zeros(0, np.int64), *(commands for commands, _ in read)])
        return Lists(first, commands, tuple((pairs[:, 0], pairs[:, 1]) for _, pairs in read))

    def _plan_row(self, plan: int) -> int:
        row = int(tables.position(self.plans.id, plan))
        if row >= len(self.plans) or self.plans.id[row] != plan:
            raise RecordingError(f"has no plan {plan}")
        return row

    def _plan(self, row: int) -> tuple[Ints, Ints]:
        """The commands and the edges of the plan in a row."""
        plan, nodes, edges, crc = (int(self.columns("plans")[name][row]) for name in ("id", "nodes", "edges", "crc"))
        with self._reading():
            node_commands, edge_pairs = self._blobs(Plans, plan)
            if (len(node_commands), len(edge_pairs)) != (4 * nodes, 8 * edges):
                raise RecordingError(f"plan {plan} is not as long as it says")
            if zlib.crc32(edge_pairs, zlib.crc32(node_commands)) != crc:
                raise RecordingError(f"plan {plan} does not match its checksum")
            commands = np.frombuffer(node_commands, "<u4").astype(np.int64)
            pairs = np.frombuffer(edge_pairs, "<u4").astype(np.int64).reshape(-1, 2)
            column = schema.TABLES["plan_nodes"].column("command")
            commands = tables.rows_of(schema.TABLES["plans"], column, self.commands.id, commands)
            if len(pairs) and not ((pairs[:, 0] < pairs[:, 1]).all() and pairs[:, 1].max() < nodes):
                raise RecordingError(f"the edges of plan {plan} do not lead from a node to a later one")
            return commands, pairs

    # --- the samples --------------------------------------------------------------------------------------------

    @cached_property
    def sample_count(self) -> int:
        """How many samples there are."""
        return int(self.columns("sample_chunks")["samples"].sum())

    def samples(self) -> Samples:
        """All samples, in the order in which submissions finished, those of one submission by node."""
        total = self.sample_count
        if total > MAX_SAMPLES_AT_ONCE:
            raise RecordingError(
                f"{total} samples are more than fit in memory at once ({MAX_SAMPLES_AT_ONCE}); use sample_chunks()"
            )
        together = _room(total)
        at = 0
        for part in self.sample_chunks():
            for name, column in part.by_name().items():
                getattr(together, name)[at : at + len(part)] = column
            at += len(part)
        return together

    def sample_chunks(self) -> Iterator[Samples]:
        """All samples in pieces of at most 1,048,576, so that any number of them fits."""
        for _, part in self.stored_chunks():
            yield part

    def stored_chunks(self) -> Iterator[tuple[chunks.Chunk, Samples]]:
        """The same, each with the form in which it is stored."""
        headers = self.columns("sample_chunks")
        for row in range(len(headers["id"])):
            yield self._chunk(row)

    def _chunk(self, row: int) -> tuple[chunks.Chunk, Samples]:
        submissions = self.submissions
        with self._reading():
            header = {name: int(column[row]) for name, column in self.columns("sample_chunks").items()}
            (data,) = self._blobs(schema.SampleChunks, header.pop("id"))
            chunk = chunks.Chunk(**header, data=data)
            decoded = chunks.decode(chunk)
            column = schema.TABLES["dispatches"].column("submission")
            rows = tables.rows_of(schema.TABLES["dispatches"], column, submissions.id, decoded.submission)
            if (decoded.last_node >= self._nodes[rows]).any():
                raise RecordingError("holds samples of nodes that their plan does not have")
            return chunk, decoded.samples(rows)

    def to_pandas(self) -> Any:
        """All dispatches as a `pandas.DataFrame` with the columns of the view `dispatch_report`. Needs pandas."""
        from .frames import to_pandas  # it reads recordings itself

        return to_pandas(self)

    def to_polars(self) -> Any:
        """The same as a `polars.DataFrame`. Needs Polars."""
        from .frames import to_polars

        return to_polars(self)

    def to_arrow(self) -> Any:
        """The same as a `pyarrow.Table`. Needs PyArrow."""
        from .frames import to_arrow

        return to_arrow(self)

    # --- what the others need -----------------------------------------------------------------------------------

    @cached_property
    def _texts(self) -> tables.Texts:
        if self._given_texts is not None:
            return self._given_texts
        strings = tables.read(self._connection, schema.TABLES["strings"], self.version, {})
        return {NONE: "", **dict(zip(strings["id"].tolist(), strings["text"].tolist(), strict=True))}

    @cached_property
    def _nodes(self) -> Ints:
        """How many nodes the plan of each submission has."""
        plan = self.submissions.plan
        return np.where(plan == NONE, 0, np.append(self.plans.nodes, 0)[plan])

    def _blobs(self, rows: type[Any], number: int) -> list[bytes]:
        """The bytes of a row."""
        table = _declared(rows)
        query = f"SELECT {', '.join(table.blobs)} FROM {table.name} NOT INDEXED WHERE id = ?"
        row = self._connection.execute(query, (number,)).fetchone() or ()
        if not row or not all(isinstance(blob, bytes) for blob in row):
            raise RecordingError(f"row {number} of the table {table.name} does not hold what it should hold")
        return list(row)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._lock, opening.reading(self.path):
            if not self._finalizer.alive:
                raise RecordingError("was closed")
            yield


def _declared(rows: Any) -> Table:
    """The table of a class, as it is declared now."""
    return schema.TABLES[rows.table.name]


def _facts(owner: Ints, columns: Mapping[str, Any]) -> dict[int, dict[str, str]]:
    """Keys and values by the row that they belong to."""
    facts: dict[int, dict[str, str]] = {}
    for row, key, value in zip(owner.tolist(), columns["key"].tolist(), columns["value"].tolist(), strict=True):
        facts.setdefault(row, {})[key] = value
    return facts


def _room(count: int) -> Samples:
    """Samples to be filled in."""
    submission, node, start_ns, end_ns = (np.empty(count, np.int64) for _ in range(4))
    return Samples(submission=submission, node=node, start_ns=start_ns, end_ns=end_ns, status=np.empty(count, np.int8))
