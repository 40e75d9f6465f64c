"""From what producers said to the rows of tables: texts and commands are stored once each, samples become chunks.

Only the writing thread (or whoever holds its lock) works here, on values that were queued without being looked at. A
value that cannot be stored is counted as a drop under its own name, and never stops the others.
"""

from __future__ import annotations

import hashlib
import sqlite3
import sys
import zlib
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from . import chunks, database
from .columns import AMOUNTS, LEVELS, NODE_KINDS, SPAN_KINDS, STATUSES, WORKER_TIME, PlanNode
from .schema import MAX_PLAN_EDGES, MAX_PLAN_NODES, MAX_TEXT_CHARACTERS, MAX_TIME_NS

# Beyond this many remembered texts, commands or plans all are forgotten and stored anew when they come again: a
# program that makes up a label per token costs room in the file, not memory.
_REMEMBERED = 100_000
_MOST_THREADS = 5_000
_INT64_MAX = (1 << 63) - 1

Row = tuple[Any, ...]
Insert = Callable[[sqlite3.Connection, str, Sequence[Row]], None]
ORDER = (
    *("processes", "strings", "threads", "devices", "device_details", "commands", "command_terms", "plans"),
    *("regions", "submissions", "submission_values", "host_spans", "sample_chunks"),
)


class Rows:
    """Rows waiting for the next transaction. `process` is the id under which they are stored."""

    __slots__ = (
        "_chunk_ids",
        "_commands",
        "_commands_stored",
        "_details",
        "_devices",
        "_drop",
        "_plan_aliases",
        "_plan_sizes",
        "_plans",
        "_regions",
        "_runs",
        "_span_ids",
        "_strings",
        "_strings_stored",
        "_submissions",
        "_threads",
        "device_updates",
        "meta",
        "process",
        "region_ends",
        "samples",
        "tables",
    )

    def __init__(self, process: int, drop: Callable[[str, int], None]) -> None:
        self.process = process
        self.tables: dict[str, list[Row]] = {name: [] for name in ORDER}
        self.meta: dict[str, str] = {}
        self.device_updates: list[tuple[str, float, int]] = []
        self.region_ends: list[tuple[int, int]] = []
        self.samples = 0
        """Samples stored so far, those waiting included."""
        self._drop = drop
        self._runs: list[chunks.Run] = []
        self._strings: dict[str, int] = {}
        self._strings_stored = 0
        self._commands: dict[PlanNode, int] = {}
        self._commands_stored = 0
        self._plans: dict[bytes, int] = {}
        self._plan_aliases = array("q", [0])
        self._plan_sizes = array("q", [0])
        self._devices: set[int] = set()
        self._details: set[tuple[int, str]] = set()
        self._submissions: dict[int, int] = {}
        self._regions = IdSet()
        self._threads: set[int] = set()
        self._span_ids = 0
        self._chunk_ids = 0

    def take(self, events: Sequence[tuple[Callable[..., None], Row]]) -> None:
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
                self.tables["sample_chunks"].append((self._chunk_ids, *chunk))
            if made.impossible:
                self._drop("times of dispatches that ended before they began", made.impossible)
            if made.misplaced:
                self._drop("samples of nodes that their plan does not have", made.misplaced)

    @property
    def waiting(self) -> bool:
        """Whether there is anything to store."""
        return any(self.tables.values()) or bool(self.meta or self.region_ends or self.device_updates)

    def clear(self) -> None:
        """The rows were stored."""
        for rows in self.tables.values():
            rows.clear()
        self.meta.clear()
        self.device_updates.clear()
        self.region_ends.clear()

    def store(self, connection: sqlite3.Connection, drops: Mapping[str, tuple[int, int]]) -> None:
        """Write everything in one transaction. A row that SQLite refuses is left out and counted; no room is raised."""
        try:
            self._store(connection, drops, database.insert)
        except (sqlite3.IntegrityError, sqlite3.ProgrammingError, OverflowError, ValueError):
            self._store(connection, drops, self._insert_carefully)
        self.clear()

    def _store(self, connection: sqlite3.Connection, drops: Mapping[str, tuple[int, int]], insert: Insert) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            for table in ORDER:
                insert(connection, table, self.tables[table])
            for end_ns, region in self.region_ends:
                connection.execute("UPDATE regions SET end_ns = max(?, begin_ns) WHERE id = ?", (end_ns, region))
            for name, measured, device in self.device_updates:
                connection.execute(f"UPDATE devices SET {name} = ? WHERE id = ?", (measured, device))
            facts = [(self.process, key, value) for key, value in self.meta.items()]
            database.insert(connection, "meta", facts, "INSERT OR REPLACE")
            lost = [(self.process, where, count, since_ns) for where, (count, since_ns) in drops.items()]
            database.insert(connection, "drops", lost, "INSERT OR REPLACE")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _insert_carefully(self, connection: sqlite3.Connection, table: str, rows: Sequence[Row]) -> None:
        lost = database.insert_carefully(connection, table, rows)
        if lost:
            self._drop(f"rows of {table} that SQLite refused", lost)

    # --- one method per kind of event; the names appear in the drops ---------------------------------------------

    def add_meta(self, key: str, value: str) -> None:
        self.meta[_clean(str(key))] = _clean(str(value))

    def add_process(self, pid: int, host: str, ranks: tuple[int | None, ...]) -> None:
        self.tables["processes"].append((self.process, pid, 0, 0, _clean(host), *ranks))

    def add_device(
        self,
        number: int,
        texts: tuple[str, str, str, str],
        clock_uncertainty_ns: int,
        ceilings: tuple[float | None, ...],
        details: Mapping[str, str],
    ) -> None:
        numbers = [self._text(text) for text in texts]
        self.tables["devices"].append(
            (number, self.process, *numbers, _amount(clock_uncertainty_ns), *(_ceiling(value) for value in ceilings))
        )
        self._devices.add(number)
        for key, value in details.items():
            self.add_detail(number, key, value)

    def add_detail(self, device: int, key: str, value: str) -> None:
        name = _clean(str(key))
        if device in self._devices and (device, name) not in self._details:
            self._details.add((device, name))
            self.tables["device_details"].append((device, name, _clean(str(value))))

    def add_ceiling(self, device: int, name: str, value: float) -> None:
        self.device_updates.append((name, float(value), device))

    def add_thread(self, thread: int, name: str) -> None:
        number = _whole(thread)
        if number not in self._threads and len(self._threads) < _MOST_THREADS:
            self._threads.add(number)
            self.tables["threads"].append((self.process, number, self._text(name)))

    def add_plan(
        self, number: int, device: int, count: int, describe: Callable[[], Sequence[PlanNode]], edges: np.ndarray | None
    ) -> None:
        """Store a plan, unless the same one is stored: then submissions of this one will name that one."""
        for column in (self._plan_aliases, self._plan_sizes):
            column.extend([0] * (number + 1 - len(column)))
        if device not in self._devices:
            raise ValueError("of an unknown device")
        pairs = np.empty((0, 2), np.int64) if edges is None else edges.reshape(-1, 2)
        if count > MAX_PLAN_NODES or len(pairs) > MAX_PLAN_EDGES:
            self._drop(f"plans of more than {MAX_PLAN_NODES} nodes or {MAX_PLAN_EDGES} edges", 1)
            return
        nodes = describe()
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
            self.tables["plans"].append((number, device, len(nodes), len(pairs), crc, commands, edge_pairs))
        self._plan_aliases[number] = self._plans[key]
        self._plan_sizes[number] = len(nodes)

    def add_submission(
        self,
        number: int,
        device: int,
        plan: int | None,
        ordinal: int,
        label: str | None,
        region: int | None,
        replay: bool,
        unsampled_probe: bool,
        level: str,
        times: tuple[int | None, ...],
        status: str,
        reason: str | None,
        error: str | None,
        thread: int,
        worker_time: tuple[int, ...] | None,
        values: Mapping[str, int],
    ) -> None:
        if device not in self._devices:
            raise ValueError("of an unknown device")
        known = plan if plan and 0 < plan < len(self._plan_aliases) and self._plan_aliases[plan] else 0
        self.tables["submissions"].append(
            (
                *(int(number), self.process, int(device), self._plan_aliases[known] or None, _amount(ordinal)),
                *(self._text(label), self._region(region), int(bool(replay)), int(bool(unsampled_probe))),
                *(_code(level, LEVELS), *self._spans(times)),
                *(_code(status, STATUSES), self._text(reason), self._text(error), _whole(thread)),
                *([None] * len(WORKER_TIME) if worker_time is None else map(_amount, worker_time)),
            )
        )
        for at, (name, value) in enumerate(values.items()):
            self.tables["submission_values"].append((int(number), at, self._text(name), _whole(value)))
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

    def add_host_span(
        self, kind: str, name: str | None, begin_ns: int, end_ns: int, thread: int, submission: int, region: int
    ) -> None:
        if end_ns < begin_ns:
            raise ValueError("ended before it began")
        row = (
            *(self._span_ids + 1, self.process, _code(kind, SPAN_KINDS), self._text(name)),
            *(_clock(begin_ns), _clock(end_ns), _whole(thread)),
            *(_amount(submission or 0) or None, self._region(region)),
        )
        self._span_ids += 1
        self.tables["host_spans"].append(row)

    def begin_region(self, number: int, name: str, begin_ns: int, thread: int, parent: int | None) -> None:
        parent = self._region(parent)
        row = (number, self.process, self._text(str(name)), _clock(begin_ns), None, _whole(thread))
        self.tables["regions"].append((*row, parent if parent is not None and parent < number else None))
        self._regions.add(number)

    def end_region(self, number: int, end_ns: int) -> None:
        """Usually the beginning still waits here too; a row that is stored already costs a statement of its own."""
        for index, row in enumerate(reversed(self.tables["regions"])):
            if row[0] == number:
                at = len(self.tables["regions"]) - 1 - index
                self.tables["regions"][at] = (*row[:4], max(_clock(end_ns), row[3]), *row[5:])
                return
            if index >= 1_000 or row[0] < number - 1_000:
                break
        self.region_ends.append((_clock(end_ns), number))

    def _spans(self, times: tuple[int | None, ...]) -> Row:
        """Begin and end of encode, commit and run; None for those that are not known or cannot be."""
        stored: list[int | None] = []
        for begin, end in zip(times[::2], times[1::2], strict=True):
            if any(time is not None and not 0 <= time < MAX_TIME_NS for time in (begin, end)) or (
                begin is not None and end is not None and end < begin
            ):
                self._drop("times of submissions that ended before they began", 1)
                begin = end = None
            stored += [None if begin is None else int(begin), None if end is None else int(end)]
        return tuple(stored)

    # --- what is stored once ------------------------------------------------------------------------------------

    def _text(self, text: str | None) -> int | None:
        if text is None:
            return None
        text = str(text)
        number = self._strings.get(text)
        if number is None:
            if len(self._strings) >= _REMEMBERED:
                self._strings.clear()
            self._strings_stored += 1
            number = self._strings[text] = self._strings_stored
            self.tables["strings"].append((number, _clean(text)))
        return number

    def _command(self, node: PlanNode) -> int:
        number = self._commands.get(node)
        if number is None:
            if node.kind not in NODE_KINDS:
                raise ValueError(f"a node of kind {node.kind!r}")
            row = (
                *(node.kind, self._text(node.kernel), self._text(node.label), self._text(node.specialisation)),
                self._text(node.op_kind),
                *(_amount(value) for value in (*node.threads, *node.group, node.groups)),
                *(_amount(node.bytes_read), _amount(node.bytes_written), int(bool(node.bytes_declared))),
                None if node.flops is None else _amount(node.flops),
                *(self._text(text) for text in (node.place, node.origin, node.source, node.digest)),
            )
            if len(row) != 20:
                raise ValueError("threads and group take three numbers each")
            terms = [
                (
                    *(_code(term.amount, AMOUNTS), at, self._text(term.param), _amount(term.factor)),
                    *(_whole(term.plus), None if term.upto is None else _amount(term.upto)),
                )
                for at, term in enumerate(node.terms)
            ]
            if len(self._commands) >= _REMEMBERED:
                self._commands.clear()
            self._commands_stored += 1
            number = self._commands[node] = self._commands_stored
            self.tables["commands"].append((number, *row))
            self.tables["command_terms"] += [(number, *term) for term in terms]
        return number

    def _region(self, region: int | None) -> int | None:
        return int(region) if region and region in self._regions else None


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


def _clean(text: str) -> str:
    """Text that every SQLite can hold: valid Unicode, of bounded length (interned, as many rows share it)."""
    if len(text) > MAX_TEXT_CHARACTERS:
        text = text[: MAX_TEXT_CHARACTERS - 1] + "…"
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-8", "backslashreplace").decode()[:MAX_TEXT_CHARACTERS]
    return sys.intern(text) if len(text) < 100 else text


def _code(word: str, words: Sequence[str]) -> int:
    if word not in words:
        raise ValueError(f"{word!r} is none of {', '.join(words)}")
    return words.index(word)


def _amount(value: int) -> int:
    """A count or a time that the file can hold; saturating."""
    return min(max(int(value), 0), _INT64_MAX)


def _whole(value: int) -> int:
    """A number of either sign that the file can hold; saturating."""
    return min(max(int(value), -_INT64_MAX), _INT64_MAX)


def _clock(value: int) -> int:
    """A time that the file can hold; saturating."""
    return min(max(int(value), 0), MAX_TIME_NS - 1)


def _ceiling(value: float | None) -> float | None:
    return None if value is None else float(value)
