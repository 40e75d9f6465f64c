"""The same samples as plain rows: for people with `sqlite3` in a terminal and for tools that know no chunks.

The chunks stay what this library reads. A recording is expanded when it is closed, if it is small; `expand` does it
for any other. `save` writes a recording into a new file.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np

from ...errors import RecordingError
from . import database, opening, schema
from .declaring import Ints
from .opening import Source
from .reader import Recording
from .schema import EXPANDED, UNAVAILABLE, Samples

MOST_AT_CLOSING = 1_000_000
"""Rows that closing a recording expands on its own; more would hold up the end of the program."""


def expand(path: str | os.PathLike[str]) -> int:
    """Fill the plain tables of a closed recording from its chunks; the number of samples. Twice is harmless."""
    with closing(opening.open_file(path)) as source:
        writer = opening.is_live(source.connection)
        if writer is not None:
            raise RecordingError(f"process {writer} is still recording into {path}; expand it when that has ended")
    real = Path(path).resolve()
    try:
        connection = database.open_for_writing(real)
        try:
            count = expand_tables(connection, real) or 0
            database.make_plain(connection)
        finally:
            connection.close()
    except sqlite3.Error as problem:
        raise RecordingError(f"cannot expand {path}: {problem}") from problem
    return count


def expand_tables(connection: sqlite3.Connection, path: Path | None = None, at_most: int | None = None) -> int | None:
    """The same on an open connection, in one transaction; None if that came to more rows than allowed."""
    recording = Recording(Source(connection, path, borrowed=True))
    plans = recording.plans
    if at_most is not None and recording.sample_count + int((plans.nodes + plans.edges).sum()) > at_most:
        return None
    tables = schema.TABLES
    connection.execute("BEGIN IMMEDIATE")
    try:
        for table in EXPANDED:
            connection.execute(f"DELETE FROM {table}")
        lists = recording.lists()
        command = recording.commands.id[lists.command]
        for row, plan in enumerate(plans.id.tolist()):
            nodes = enumerate(command[lists.nodes(row)].tolist())
            database.insert_many(connection, tables["plan_nodes"], ((plan, *node) for node in nodes))
            edges = zip(*(nodes.tolist() for nodes in lists.edges[row]), strict=True)
            database.insert_many(connection, tables["plan_edges"], ((plan, *edge) for edge in edges))
        for part in recording.sample_chunks():
            database.insert_many(connection, tables["dispatches"], _plain(part, recording.submissions.id))
        connection.execute("UPDATE processes SET expanded = 1")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    return recording.sample_count


def _plain(samples: Samples, ids: Ints) -> Iterator[tuple[int | None, ...]]:
    columns: dict[str, list[int | None]] = {name: column.tolist() for name, column in samples.by_name().items()}
    columns["submission"] = ids[samples.submission].tolist()
    for at in np.flatnonzero(samples.status == UNAVAILABLE).tolist():
        columns["start_ns"][at] = columns["end_ns"][at] = None
    return zip(*columns.values(), strict=True)


def save(recording: Recording, path: str | os.PathLike[str]) -> None:
    """Write all of a recording into a new file."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        target = sqlite3.connect(path, isolation_level=None)
        try:
            recording.copy_into(target)
            expand_tables(target, at_most=MOST_AT_CLOSING)
            target.execute("PRAGMA journal_mode = DELETE").fetchall()
        finally:
            target.close()
    except (OSError, sqlite3.Error) as problem:
        raise RecordingError(f"cannot save a recording as {path}: {problem}") from problem
