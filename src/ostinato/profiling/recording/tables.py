"""Reading the rows of a table as checked columns.

SQLite keeps whatever type a row was given, whatever the schema says, and a damaged file may repeat or shuffle its
pages. So every value is checked for type and range, and ids must rise from row to row, which also ends a reading that
would otherwise go round in circles.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import RecordingError
from .columns import AMOUNTS, LEVELS, NODE_KINDS, NONE, SPAN_KINDS, STATUSES, Ints
from .schema import MAX_CHUNK_SAMPLES, MAX_PLAN_EDGES, MAX_PLAN_NODES, MAX_TEXT_CHARACTERS, MAX_TIME_NS

_ROWS_AT_ONCE = 20_000
_MOST_FACTS = 10_000
_INT64 = (-(1 << 63), 1 << 63)

Texts = Mapping[int, str | None]


@dataclass(frozen=True, slots=True)
class Number:
    """A column of integers in [low, high); `optional` ones may be NULL, which becomes NONE."""

    name: str
    low: int = 0
    high: int = 1 << 63
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """A column of numbers of texts."""

    name: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Word:
    """A column of texts that stand in the row itself: one of a few, or any if none are given."""

    name: str
    choice: Sequence[str] = ()


Column = Number | Text | Word


def time(name: str, optional: bool = False) -> Number:
    """A column of times."""
    return Number(name, high=MAX_TIME_NS, optional=optional)


def flag(name: str) -> Number:
    """A column of 0 and 1."""
    return Number(name, high=2)


def anything(name: str) -> Number:
    """A column of integers that mean nothing to us, such as the ids of threads."""
    return Number(name, *_INT64)


def read(
    connection: sqlite3.Connection, table: str, columns: Sequence[Column], texts: Texts, key: int = 1
) -> list[Any]:
    """The columns of a table whose first one is its rising id: arrays of int64, and lists of text.

    Where several columns identify a row together, `key` says how many of the first do.
    """
    names = ", ".join(
        f"ifnull({column.name}, {NONE})" if not isinstance(column, Word) and column.optional else column.name
        for column in columns
    )
    # An index that somebody added may disagree with its table.
    order = ", ".join(column.name for column in columns[:key])
    cursor = connection.execute(f"SELECT {names} FROM {table} NOT INDEXED ORDER BY {order}")
    pieces: list[list[Any]] = [[] for _ in columns]
    last = np.zeros((1, key), np.int64)
    while rows := cursor.fetchmany(_ROWS_AT_ONCE):
        for column, values, piece in zip(columns, zip(*rows, strict=True), pieces, strict=True):
            piece.append(_checked(table, column, values, texts))
        ids = np.concatenate([last, np.stack([piece[-1] for piece in pieces[:key]], axis=1)])
        if not _rise(ids):
            raise RecordingError(f"the ids of the table {table} do not rise")
        last = ids[-1:]
    return [
        [text for piece in made for text in piece]
        if isinstance(column, (Text, Word))
        else (np.concatenate(made) if made else np.empty(0, np.int64))
        for column, made in zip(columns, pieces, strict=True)
    ]


def _rise(ids: Ints) -> bool:
    """Whether each row of ids comes after the one before it: by the first that differs."""
    rises, same = np.zeros(len(ids) - 1, np.bool_), np.ones(len(ids) - 1, np.bool_)
    for step in np.diff(ids, axis=0).T:
        rises |= same & (step > 0)
        same &= step == 0
    return bool(rises.all())


def _checked(table: str, column: Column, values: tuple[Any, ...], texts: Texts) -> Any:
    def refuse(why: str) -> RecordingError:
        return RecordingError(f"the column {column.name} of the table {table} {why}")

    types = set(map(type, values))
    if isinstance(column, Word):
        if types != {str} or max(map(len, values)) > MAX_TEXT_CHARACTERS:
            raise refuse("holds something else than text")
        if column.choice and not set(values) <= set(column.choice):
            raise refuse(f"holds something else than {', '.join(column.choice)}")
        return values
    if types != {int}:
        raise refuse("holds something else than integers")
    if isinstance(column, Text):
        try:
            found = [texts[value] for value in values]
        except KeyError:
            raise refuse("refers to a text that is not there") from None
        if not column.optional and None in found:
            raise refuse("lacks a text")
        return found
    numbers = np.array(values, np.int64)
    low = min(column.low, NONE) if column.optional else column.low
    if int(numbers.min()) < low or int(numbers.max()) >= column.high:
        raise refuse("holds a number that is out of range")
    return numbers


def read_texts(connection: sqlite3.Connection) -> Texts:
    """All texts by their number; NONE stands for no text."""
    ids, words = read(connection, "strings", (Number("id"), Word("text")), {})
    return {NONE: None, **dict(zip(ids.tolist(), words, strict=True))}


def read_facts(connection: sqlite3.Connection, query: str, types: Sequence[type | tuple[type, ...]]) -> list[Any]:
    """The few rows of a small query, each value of the type it should have."""
    rows = connection.execute(query).fetchmany(_MOST_FACTS + 1)
    if len(rows) > _MOST_FACTS:
        raise RecordingError(f"has more than {_MOST_FACTS} facts where a few are expected")
    for row in rows:
        for value, expected in zip(row, types, strict=True):
            if not isinstance(value, expected) or (isinstance(value, str) and len(value) > MAX_TEXT_CHARACTERS):
                raise RecordingError(f"holds {str(value)[:40]!r} where that cannot stand")
    return rows


def refer(ids: Ints, references: Ints, what: str, optional: bool = False) -> None:
    """Refuse references to rows that are not there."""
    wanted = references[references != NONE] if optional else references
    if not present(ids, wanted).all():
        raise RecordingError(f"refers to a {what} that is not there")


def present(ids: Ints, wanted: Ints) -> Any:
    """Which of the wanted ids are in a rising column of ids."""
    if not len(ids):
        return np.zeros(len(wanted), np.bool_)
    at = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    return ids[at] == wanted


_RUN = [time(f"{what}_{edge}_ns", optional=True) for what in ("encode", "commit") for edge in ("begin", "end")]
_RUN += [time("start_ns", optional=True), time("end_ns", optional=True)]
_SIZES = [Number(f"{what}_{axis}") for what in ("threads", "group") for axis in "xyz"]

PROCESSES: Sequence[Column] = [
    Number("id"),
    Number("pid"),
    anything("clock_offset_ns"),
    time("clock_uncertainty_ns"),
    Word("host"),
    *(Number(name, optional=True) for name in ("rank", "local_rank", "world_size")),
]
COMMANDS: Sequence[Column] = [
    Number("id"),
    Word("kind", NODE_KINDS),
    Text("kernel"),
    Text("label", optional=True),
    Text("specialisation"),
    Text("op_kind", optional=True),
    *_SIZES,
    Number("groups"),
    Number("bytes_read"),
    Number("bytes_written"),
    flag("bytes_declared"),
    Number("flops", optional=True),
    Text("place", optional=True),
    Text("origin", optional=True),
    Text("source", optional=True),
    Text("digest", optional=True),
]
TERMS: Sequence[Column] = [
    Number("command", 1),
    Number("amount", high=len(AMOUNTS)),
    Number("number"),
    Text("param"),
    Number("factor"),
    Number("plus", -(1 << 63) + 1),
    Number("upto", optional=True),
]
VALUES: Sequence[Column] = [Number("submission", 1), Number("number"), Text("param"), anything("value")]
PLANS: Sequence[Column] = [
    Number("id"),
    Number("device"),
    Number("nodes", high=MAX_PLAN_NODES + 1),
    Number("edges", high=MAX_PLAN_EDGES + 1),
]
SUBMISSIONS: Sequence[Column] = [
    Number("id"),
    Number("process"),
    Number("device"),
    Number("plan", optional=True),
    Number("ordinal"),
    Text("label", optional=True),
    Number("region", optional=True),
    flag("replay"),
    flag("unsampled_probe"),
    Number("level", high=len(LEVELS)),
    *_RUN,
    Number("status", high=len(STATUSES)),
    Text("reason", optional=True),
    Text("error", optional=True),
    anything("thread"),
    time("worked_ns", optional=True),
    time("lost_ns", optional=True),
    time("late_ns", optional=True),
    Number("joined", optional=True),
]
REGIONS: Sequence[Column] = [
    Number("id"),
    Number("process"),
    Text("name"),
    time("begin_ns"),
    time("end_ns", optional=True),
    anything("thread"),
    Number("parent", optional=True),
]
HOST_SPANS: Sequence[Column] = [
    Number("id"),
    Number("process"),
    Number("kind", high=len(SPAN_KINDS)),
    Text("name", optional=True),
    time("begin_ns"),
    time("end_ns"),
    anything("thread"),
    Number("submission", optional=True),
    Number("region", optional=True),
]
CHUNK_SIZES: Sequence[Column] = [Number("id"), Number("samples", 1, MAX_CHUNK_SAMPLES + 1)]
