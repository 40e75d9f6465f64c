"""From what producers said to the rows of tables: texts and commands are stored once each, samples become chunks.

Only the writing thread (or whoever holds its lock) works here, on values that were queued without being looked at. A
value that cannot be stored is counted as a drop under its own name, and never stops the others.
"""

from __future__ import annotations

import hashlib
import math
import sqlite3
import sys
import zlib
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from . import chunks, database, schema, statements
from .declaring import MAX_TIME_NS, Column, Kind, Table
from .schema import MAX_PLAN_EDGES, MAX_PLAN_NODES, MAX_TEXT_CHARACTERS, PlanNode
from .source_texts import SourceRows

# Beyond this many remembered texts, commands or plans all are forgotten and stored anew when they come again: a
# program that makes up a label per token costs room in the file, not memory.
_REMEMBERED = 100_000
_MOST_THREADS = 5_000

Row = list[Any]
Insert = Callable[[sqlite3.Connection, Table, Sequence[Row]], None]
Describe = Callable[[], tuple[Sequence[PlanNode], np.ndarray | None]]
"""Gives the nodes of a plan, and its edges as pairs (before, after)."""


class Rows:
    """Rows waiting for the next transaction. `process` is the id under which they are stored."""

    def __init__(self, process: int, drop: Callable[[str, int], None]) -> None:
        self.process = process
        self.samples = 0
        """Samples stored so far, those waiting included."""
        self._drop = drop
        self._waiting: dict[str, list[Row]] = {name: [] for name in schema.TABLES}
        self._updates: dict[tuple[str, int], dict[str, Any]] = {}
        self._meta: dict[str, str] = {}
        self._forms = {name: _Form(table, self._encoder) for name, table in schema.TABLES.items()}
        self._runs: list[chunks.Run] = []
        self._strings: dict[str, int] = {}
        self._strings_stored = 0
        self._commands: dict[PlanNode, int] = {}
        self._commands_stored = 0
        # Live lists bring the same nodes again and again, and to hash one costs more than all the rest. By identity:
        # `_commands` keeps each node that is named here.
        self._same_commands: dict[int, int] = {}
        self._sources = SourceRows()
        self._plans: dict[bytes, int] = {}
        self._plan_aliases = array("q", [0])
        self._plan_sizes = array("q", [0])
        self._devices: set[int] = set()
        self._details: set[tuple[int, str]] = set()
        self._submissions: dict[int, int] = {}
        self._regions = IdSet()
        self._open_regions: dict[int, Row] = {}
        self._new_regions: set[int] = set()
        self._threads: set[int] = set()
        self._span_ids = 0
        self._chunk_ids = 0

    def take(self, events: Sequence[tuple[Callable[..., None], tuple[Any, ...]]]) -> None:
        """Turn queued calls into rows."""
        for store, arguments in events:
            try:
                store(*arguments)
            except Exception as problem:
                what = store.__name__.removeprefix("add_").replace("_", " ")
                self._drop(f"{what} that cannot be stored: {problem}"[:200], 1)
        if self._runs:
            runs, self._runs = self._runs, []
            try:
                made = chunks.encode(runs)
            except Exception as problem:
                self._drop(f"samples that cannot be stored: {problem}"[:200], sum(run.length for run in runs))
                return
            for chunk in made.chunks:
                self._chunk_ids += 1
                self.samples += chunk.samples
                self._add("sample_chunks", id=self._chunk_ids, **chunk._asdict())
            if made.impossible:
                self._drop("times of dispatches that ended before they began", made.impossible)
            if made.misplaced:
                self._drop("samples of nodes that their plan does not have", made.misplaced)

    @property
    def waiting(self) -> bool:
        """Whether there is anything to store."""
        return any(self._waiting.values()) or bool(self._meta or self._updates)

    def store(self, connection: sqlite3.Connection, drops: Mapping[str, tuple[int, int]]) -> None:
        """Write everything in one transaction. A row that SQLite refuses is left out and counted; no room is raised."""
        try:
            self._store(connection, drops, database.insert)
        except (sqlite3.IntegrityError, sqlite3.ProgrammingError, OverflowError, ValueError):
            self._store(connection, drops, self._insert_carefully)
        for rows in self._waiting.values():
            rows.clear()
        self._meta.clear()
        self._updates.clear()
        self._new_regions.clear()

    def _store(self, connection: sqlite3.Connection, drops: Mapping[str, tuple[int, int]], insert: Insert) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            for name, rows in self._waiting.items():
                insert(connection, schema.TABLES[name], rows)
            for (name, number), columns in self._updates.items():
                statement = statements.update(schema.TABLES[name], columns)
                connection.execute(statement, (*columns.values(), number))
            facts = [[self.process, key, value] for key, value in self._meta.items()]
            database.insert(connection, schema.TABLES["meta"], facts, "INSERT OR REPLACE")
            lost = [[self.process, place, count, since_ns] for place, (count, since_ns) in drops.items()]
            database.insert(connection, schema.TABLES["drops"], lost, "INSERT OR REPLACE")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _insert_carefully(self, connection: sqlite3.Connection, table: Table, rows: Sequence[Row]) -> None:
        lost = database.insert_carefully(connection, table, rows)
        if lost:
            self._drop(f"rows of {table.name} that SQLite refused", lost)

    # --- one method per kind of event; the names appear in the drops ---------------------------------------------

    def add_meta(self, key: str, value: str) -> None:
        self._meta[clean(str(key))] = clean(str(value))

    def add_process(self, columns: Mapping[str, Any]) -> None:
        self._add("processes", id=self.process, **columns)

    def add_process_facts(self, columns: Mapping[str, Any]) -> None:
        self._change("processes", self.process, columns)

    def add_device(self, number: int, columns: Mapping[str, Any], details: Mapping[str, str]) -> None:
        self._add("devices", id=number, **columns)
        self._devices.add(number)
        for key, value in details.items():
            self.add_detail(number, key, value)

    def add_device_facts(self, number: int, columns: Mapping[str, Any]) -> None:
        if number in self._devices:
            self._change("devices", number, columns)

    def add_detail(self, device: int, key: str, value: str) -> None:
        name = clean(str(key))
        if device in self._devices and (device, name) not in self._details:
            self._details.add((device, name))
            self._add("device_details", device=device, key=name, value=value)

    def add_thread(self, thread: int, name: str) -> None:
        if thread not in self._threads and len(self._threads) < _MOST_THREADS:
            self._threads.add(thread)
            self._add("threads", thread=thread, name=name)

    def add_plan(self, number: int, device: int, count: int, describe: Describe) -> None:
        """Store a plan, unless the same one is stored: then submissions of this one will name that one."""
        for column in (self._plan_aliases, self._plan_sizes):
            column.extend([0] * (number + 1 - len(column)))
        if device not in self._devices:
            raise ValueError("of an unknown device")
        nodes, edges = describe() if count <= MAX_PLAN_NODES else ((), None)
        pairs = np.empty((0, 2), np.int64) if edges is None else np.asarray(edges, np.int64).reshape(-1, 2)
        if count > MAX_PLAN_NODES or len(pairs) > MAX_PLAN_EDGES:
            self._drop(f"plans of more than {MAX_PLAN_NODES} nodes or {MAX_PLAN_EDGES} edges", 1)
            return
        if len(nodes) != count:
            raise ValueError(f"described with {len(nodes)} nodes instead of {count}")
        forward = (pairs[:, 0] >= 0) & (pairs[:, 0] < pairs[:, 1]) & (pairs[:, 1] < len(nodes))
        if not forward.all():
            self._drop("edges that do not lead from a node to a later one", int(np.count_nonzero(~forward)))
            pairs = pairs[forward]
        commands = np.fromiter((self._command(node) for node in nodes), "<u4", len(nodes)).tobytes()
        edge_pairs = pairs.astype("<u4").tobytes()
        key = hashlib.blake2b(b"%d %d " % (device, len(commands)) + commands + edge_pairs, digest_size=16).digest()
        if key not in self._plans:
            if len(self._plans) >= _REMEMBERED:
                self._plans.clear()
            self._plans[key] = number
            crc = zlib.crc32(edge_pairs, zlib.crc32(commands))
            self._add(
                *("plans",), id=number, device=device, nodes=len(nodes), edges=len(pairs), crc=crc,
                node_commands=commands, edge_pairs=edge_pairs,
            )  # fmt: skip
        self._plan_aliases[number] = self._plans[key]
        self._plan_sizes[number] = len(nodes)

    def add_submission(self, number: int, columns: dict[str, Any], values: Mapping[str, int]) -> None:
        if columns["device"] not in self._devices:
            raise ValueError("of an unknown device")
        plan = columns["plan"]
        known = plan if plan and 0 < plan < len(self._plan_aliases) and self._plan_aliases[plan] else 0
        columns["plan"], columns["region"] = self._plan_aliases[known], self._region(columns.get("region"))
        self._add("submissions", id=number, **columns)
        for at, (name, value) in enumerate(values.items()):
            self._add("submission_values", submission=number, number=at, param=name, value=value)
        # Samples come soon after their submission, so the latest are enough to remember.
        if len(self._submissions) >= _REMEMBERED:
            del self._submissions[next(iter(self._submissions))]
        self._submissions[number] = self._plan_sizes[known]

    def add_samples(
        self, submission: int, count: int, nodes: int | bytes, start_ns: bytes, end_ns: bytes, status: bytes | None
    ) -> None:
        size = self._submissions.get(submission)
        if not size:
            self._drop("samples of a submission without a plan", count)
        elif isinstance(nodes, int) and not 0 <= nodes <= size - count:
            self._drop("samples of nodes that their plan does not have", count)
        else:
            self._runs.append(chunks.Run(submission, count, size, nodes, start_ns, end_ns, status))

    def add_host_span(self, columns: dict[str, Any]) -> None:
        columns["region"] = self._region(columns.get("region"))
        self._add("host_spans", id=self._span_ids + 1, **columns)
        self._span_ids += 1

    def begin_region(self, number: int, columns: dict[str, Any]) -> None:
        parent = self._region(columns.get("parent"))
        columns["parent"] = parent if parent is not None and parent < number else None
        self._open_regions[number] = self._add("regions", id=number, **columns)
        self._regions.add(number)
        self._new_regions.add(number)

    def end_region(self, number: int, end_ns: int) -> None:
        """Usually the beginning still waits here too; a row that is stored already costs a statement of its own."""
        row = self._open_regions.pop(number, None)
        if row is None:
            return
        begin, end = (self._forms["regions"].at[name] for name in ("begin_ns", "end_ns"))
        row[end] = min(max(int(end_ns), row[begin]), MAX_TIME_NS - 1)
        if number not in self._new_regions:
            self._updates["regions", number] = {"end_ns": row[end]}

    # --- rows -----------------------------------------------------------------------------------------------------

    def _add(self, name: str, /, **columns: Any) -> Row:
        """Make a row of a table of what is given; the rest is the process, the column's default, or NULL."""
        form = self._forms[name]
        if form.of_process:
            columns["process"] = self.process
        for begin, end in form.times:
            if not _possible(columns.get(begin.name), columns.get(end.name)):
                if not begin.optional:
                    raise ValueError("ended before it began")
                self._drop(f"times of {name} that ended before they began", 1)
                columns[begin.name] = columns[end.name] = None
        row: Row = []
        for key, default, optional, encode in form.encoders:
            value = columns.pop(key, default)
            if value is not None:
                row.append(encode(value))
            elif optional:
                row.append(None)
            else:
                raise ValueError(f"without {key}")
        row += [columns.pop(blob) for blob in form.table.blobs]
        if columns:
            form.refuse_unknown(columns)
        for at in form.sizes:
            row[at : at + 1] = row[at]
        self._waiting[name].append(row)
        return row

    def _change(self, name: str, number: int, columns: Mapping[str, Any]) -> None:
        form = self._forms[name]
        form.refuse_unknown(columns)
        encoders = {key: encode for key, _, _, encode in form.encoders}
        changed = {key: None if value is None else encoders[key](value) for key, value in columns.items()}
        self._updates.setdefault((name, number), {}).update(changed)

    def _encoder(self, column: Column) -> Callable[[Any], Any]:
        """What makes a value of the file of one that a producer gave; numbers saturate."""
        low, most = column.low, column.high - 1
        if column.kind is Kind.TEXT:
            return self._optional_text if column.optional else self._text
        if column.kind is Kind.WORD:
            words = column.words
            return (lambda value: _one_of(value, words)) if words else (lambda value: clean(str(value)))
        if column.kind is Kind.CODE:
            words, codes = column.words, {word: number for number, word in enumerate(column.words)}
            return lambda value: codes[value] if value in codes else codes[_one_of(value, words)]
        if column.kind is Kind.FLAG:
            return lambda value: int(bool(value))
        if column.kind is Kind.REAL:
            return _real
        if column.kind is Kind.SIZES:
            return _sizes
        if column.kind is Kind.REFERENCE:
            return lambda value: int(value) or None
        return lambda value: value if type(value) is int and low <= value <= most else min(max(int(value), low), most)

    # --- what is stored once ------------------------------------------------------------------------------------

    def _optional_text(self, text: str) -> int | None:
        return self._text(text) if text else None

    def _text(self, text: str) -> int:
        text = str(text)
        number = self._strings.get(text)
        if number is None:
            if len(self._strings) >= _REMEMBERED:
                self._strings.clear()
            self._strings_stored += 1
            number = self._strings[text] = self._strings_stored
            self._waiting["strings"].append([number, clean(text)])
        return number

    def _command(self, node: PlanNode) -> int:
        number = self._same_commands.get(id(node)) or self._commands.get(node)
        if number is None:
            columns = node._asdict()
            terms, constants, text = (columns.pop(name) for name in ("terms", "constants", "text"))
            number = self._commands_stored + 1
            self._add("commands", id=number, **columns)
            self._commands_stored = number
            if len(self._commands) >= _REMEMBERED:
                self._commands.clear()
                self._same_commands.clear()
            self._commands[node] = self._same_commands[id(node)] = number
            for at, term in enumerate(terms):
                self._add("command_terms", command=number, number=at, **term._asdict())
            for at, (name, value) in enumerate(constants):
                self._add("command_constants", command=number, number=at, name=name, value=value)
            source = self._sources.row(node.source_digest, text) if text is not None else None
            if source is not None:
                self._add("sources", **source)
        return number

    def _region(self, region: int | None) -> int | None:
        return int(region) if region and region in self._regions else None


class _Form:
    """How rows of a table are made."""

    def __init__(self, table: Table, encoder: Callable[[Column], Callable[[Any], Any]]) -> None:
        self.table = table
        self.encoders = [(column.name, column.default, column.optional, encoder(column)) for column in table.columns]
        self.sizes = [at for at, column in reversed(list(enumerate(table.columns))) if column.kind is Kind.SIZES]
        self.times = [(table.column(column.after), column) for column in table.columns if column.after]
        self.at = {name: number for number, name in enumerate(table.sql_names)}
        self.of_process = "process" in self.at

    def refuse_unknown(self, columns: Mapping[str, Any]) -> None:
        if unknown := sorted(columns.keys() - {key for key, *_ in self.encoders} - set(self.table.blobs)):
            raise ValueError(f"the table {self.table.name} has no column {unknown[0]!r}")


class IdSet:
    """A set of ids that come almost in order, at one bit each."""

    __slots__ = ("_bits",)

    def __init__(self) -> None:
        self._bits = bytearray()

    def add(self, number: int) -> None:
        at = number >> 3
        if at >= len(self._bits):
            self._bits.extend(bytes(at + 1 - len(self._bits)))
        self._bits[at] |= 1 << (number & 7)

    def __contains__(self, number: int) -> bool:
        at = number >> 3
        return 0 <= at < len(self._bits) and bool(self._bits[at] >> (number & 7) & 1)


def clean(text: str) -> str:
    """Text that every SQLite can hold: valid Unicode, of bounded length (interned, as many rows share it)."""
    if len(text) > MAX_TEXT_CHARACTERS:
        text = text[: MAX_TEXT_CHARACTERS - 1] + "…"
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-8", "backslashreplace").decode()[:MAX_TEXT_CHARACTERS]
    return sys.intern(text) if len(text) < 100 else text


def _possible(begin_ns: int | None, end_ns: int | None) -> bool:
    """Whether something may have begun and ended then, as far as that is known."""
    return (begin_ns is None or 0 <= begin_ns < MAX_TIME_NS) and (
        end_ns is None or (begin_ns or 0) <= end_ns < MAX_TIME_NS
    )


def _one_of(word: str, words: Sequence[str]) -> str:
    if word not in words:
        raise ValueError(f"{word!r} is none of {', '.join(words)}")
    return word


def _sizes(values: Sequence[int]) -> list[int]:
    x, y, z = values
    return [min(max(int(value), 0), (1 << 63) - 1) for value in (x, y, z)]


def _real(value: float) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{number} is not a number that can be stored")
    return max(number, 0.0)
