"""Reading the rows of a table as checked columns.

SQLite keeps whatever type a row was given, whatever the schema says, and a damaged file may repeat or shuffle its
pages. So every value is checked for type and range, and ids must rise from row to row, which also ends a reading that
would otherwise go round in circles.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import RecordingError
from . import statements
from .declaring import NONE, Column, Ints, Kind, Table
from .schema import MAX_TEXT_CHARACTERS

_ROWS_AT_ONCE = 20_000

Texts = Mapping[int, str]


def read(
    connection: sqlite3.Connection,
    table: Table,
    version: int,
    texts: Texts,
    where: str = "",
    values: Sequence[int] = (),
) -> dict[str, Any]:
    """The columns of a table by name, as `declaring.py` describes them; references are ids still.

    `where` is a condition on the rows, with a `?` for each of the `values`.
    """
    known = table.at(version)
    pieces: dict[str, list[Any]] = {column.name: [] for column in known.columns}
    count, last = 0, None
    if table.since <= version:
        cursor = connection.execute(statements.select(known, where), values)
        while rows := cursor.fetchmany(_ROWS_AT_ONCE):
            count += len(rows)
            if count > table.most_rows:
                raise RecordingError(f"has more than {table.most_rows} rows in the table {table.name}")
            stored = iter(zip(*rows, strict=True))
            for column in known.columns:
                parts = [_checked(table, column, next(stored), texts) for _ in column.sql_names]
                pieces[column.name].append(np.stack(parts, axis=1) if len(parts) > 1 else parts[0])
            last = _check_key(table, {name: made[-1] for name, made in pieces.items()}, last)
    return {
        column.name: np.concatenate(pieces[column.name]) if pieces.get(column.name) else column.missing(count)
        for column in table.columns
    }


def _check_key(table: Table, piece: Mapping[str, Any], last: Any) -> Any:
    """Refuse rows whose key does not rise; gives the last one. Where a part of the key is text, they are few."""
    key = [piece[name] for name in table.key]
    if not key or any(column.dtype == object for column in key):
        return None
    ids = np.stack(key, axis=1)
    together = ids if last is None else np.concatenate([last, ids])
    rises, same = np.zeros(len(together) - 1, np.bool_), np.ones(len(together) - 1, np.bool_)
    for step in np.diff(together, axis=0).T:
        rises |= same & (step > 0)
        same &= step == 0
    if not rises.all():
        raise RecordingError(f"the ids of the table {table.name} do not rise")
    return ids[-1:]


def _checked(table: Table, column: Column, values: tuple[Any, ...], texts: Texts) -> Any:
    def refuse(why: str) -> RecordingError:
        return RecordingError(f"the column {column.name} of the table {table.name} {why}")

    types = set(map(type, values))
    if column.kind is Kind.WORD:
        if types != {str} or max(map(len, values)) > MAX_TEXT_CHARACTERS:
            raise refuse("holds something else than text")
        if column.words and not set(values) <= set(column.words):
            raise refuse(f"holds something else than {', '.join(column.words)}")
        return objects(values)
    if column.kind is Kind.REAL:
        if not types <= ({int, float, type(None)} if column.optional else {int, float}):
            raise refuse("holds something else than numbers")
        reals = np.array([np.nan if value is None else value for value in values], np.float64)
        if not ((reals >= 0) & (reals < np.inf) | np.isnan(reals)).all():
            raise refuse("holds a number that is out of range")
        return reals
    if types != {int}:
        raise refuse("holds something else than integers")
    if column.kind is Kind.TEXT:
        try:
            named = objects([texts[value] for value in values])
        except KeyError:
            raise refuse("refers to a text that is not there") from None
        if not column.optional and NONE in values:
            raise refuse("lacks a text")
        return named
    numbers = np.array(values, np.int64)
    given = numbers[numbers != NONE] if column.optional else numbers
    if len(given) and (int(given.min()) < column.low or int(given.max()) >= column.high):
        raise refuse("holds a number that is out of range")
    if column.kind is Kind.CODE:
        return objects([*column.words, ""])[numbers]  # NONE is the last of them
    return numbers.astype(np.bool_) if column.kind is Kind.FLAG and not column.optional else numbers


def objects(values: Any) -> NDArray[np.object_]:
    """A column of texts."""
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def check_times(table: Table, columns: Mapping[str, Any]) -> None:
    """Refuse what ended before it began."""
    for column in table.columns:
        if column.after:
            begin, end = columns[column.after], columns[column.name]
            if ((begin != NONE) & (end != NONE) & (end < begin)).any():
                raise RecordingError(f"holds {table.name.replace('_', ' ')} that ended before they began")


def rows_of(table: Table, column: Column, ids: Ints, wanted: Ints) -> Ints:
    """References as rows of the table that they lead to, NONE for those not given."""
    if not len(wanted):
        return wanted
    rows = position(ids, wanted)
    there = ids[np.minimum(rows, len(ids) - 1)] == wanted if len(ids) else np.zeros(len(wanted), np.bool_)
    lost = ~there & (wanted != NONE) if column.optional else ~there
    if lost.any() and not column.may_be_lost:
        raise RecordingError(f"refers to a {column.table[:-1]} that is not there")
    if column.table == table.name and (there & (rows >= np.arange(len(rows)))).any():
        raise RecordingError(f"holds a {column.table[:-1]} inside a later one")
    return np.where(there, rows, NONE)


def position(ids: Ints, wanted: Any) -> Ints:
    """The row at which each wanted id stands in a rising column of ids; all of them must be in it."""
    if len(ids) and int(ids[-1]) - int(ids[0]) + 1 == len(ids):
        # Ids without a hole need no search, and there may be ten million to look up.
        return np.clip(np.asarray(wanted, np.int64) - int(ids[0]), 0, len(ids))
    return np.asarray(np.searchsorted(ids, wanted), np.int64)
