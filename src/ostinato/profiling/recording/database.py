"""SQLite as the writing side uses it: creating a recording, storing rows in few statements, closing it tidily.

The file is in WAL mode while it is written: a killed process leaves a file and a log that together are whole, readers
never stop the writer, and after every `checkpoint` the file alone holds everything stored so far. A tidy end turns it
back into a plain file that opens anywhere, also where nothing can be written.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing, suppress
from itertools import chain
from pathlib import Path
from typing import Any

from ...errors import RecordingError
from . import schema, statements
from .declaring import Table

# Every statement gives up the interpreter lock, and a busy program takes milliseconds to give it back. So rows go in
# by the thousand.
_ROWS_PER_STATEMENT = 1_500
_STATEMENTS_KEPT = 8
_BUSY_S = 1.0
_READERS_S = 0.5
"""How long a closing recording waits for somebody who reads it at that moment, such as `ostinato live`."""
_MOST_PREFIX = 200

Row = Sequence[Any]

OPENING = ".opening-"
"""In the name of the folder in which a recording is made before it appears."""


def side_files(path: Path) -> tuple[Path, ...]:
    """The files that SQLite may keep beside one."""
    return tuple(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal"))


def remove(path: Path) -> None:
    """Remove a file and what SQLite kept beside it."""
    try:
        for file in (path, *side_files(path)):
            file.unlink(missing_ok=True)
    except OSError as problem:
        raise RecordingError(f"cannot replace {path}: {problem.strerror}") from problem


def create_temporary(fill: Callable[[sqlite3.Connection], None]) -> sqlite3.Connection:
    """A private recording with what `fill` stores in it, gone when it is closed."""
    connection = sqlite3.connect("", isolation_level=None, check_same_thread=False, cached_statements=_STATEMENTS_KEPT)
    _define(connection)
    fill(connection)
    return connection


def create(path: Path, undo: ExitStack, fill: Callable[[sqlite3.Connection], None] | None = None) -> None:
    """A new recording with what `fill` stores in it. There must be no file of that name.

    The file appears whole or not at all: it is made in a folder beside it, which a kill may leave behind, with
    `OPENING` in its name. That it is removed again is put on `undo` before it appears, so that no interrupt can come
    in between.
    """
    try:
        prefix = f"{path.name[:_MOST_PREFIX]}{OPENING}"
        with tempfile.TemporaryDirectory(prefix=prefix, dir=path.parent, ignore_cleanup_errors=True) as folder:
            made = Path(folder, "new")
            os.close(os.open(made, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
            with closing(_connect(made)) as connection:
                connection.execute("PRAGMA synchronous = OFF")
                connection.execute("PRAGMA journal_mode = OFF")
                _define(connection)
                if fill is not None:
                    fill(connection)
                connection.execute("PRAGMA journal_mode = WAL")
            undo.callback(_remove_that, path, made.stat())
            _put_in_place(made, path)
    except (OSError, sqlite3.Error) as problem:
        raise RecordingError(f"cannot record into {path}: {problem}") from problem


def _remove_that(path: Path, made: os.stat_result) -> None:
    """Remove a file, unless another one has that name."""
    with suppress(OSError):
        if os.path.samestat(path.stat(), made):
            remove(path)


def _define(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {schema.VERSION}")
    for statement in statements.definitions(schema.VERSION).values():
        connection.execute(statement)
    connection.execute("COMMIT")


def _put_in_place(made: Path, path: Path) -> None:
    """Give a file its name, unless there is one of that name."""
    try:
        os.link(made, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if os.path.lexists(path):
            raise
        os.rename(made, path)


def open_for_writing(path: Path) -> sqlite3.Connection:
    """A connection in WAL mode to a file that exists."""
    connection = _connect(path)
    try:
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    except sqlite3.Error:
        mode = None
    if mode != "wal":
        # No shared memory on this file system. Alone on the file SQLite needs none.
        connection.close()
        connection = _connect(path)
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    return connection


def _connect(path: Path) -> sqlite3.Connection:
    uri = f"{path.resolve().as_uri()}?mode=rw"
    connection = sqlite3.connect(
        uri,
        uri=True,
        timeout=_BUSY_S,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=_STATEMENTS_KEPT,
    )
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def insert(connection: sqlite3.Connection, table: Table, rows: Sequence[Row], verb: str = "INSERT") -> None:
    """Store rows with as few statements as possible."""
    if not rows:
        return
    variables = connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER)
    most = min(_ROWS_PER_STATEMENT, variables // len(rows[0]))
    for at in range(0, len(rows), most):
        piece = rows[at : at + most]
        values = list(chain.from_iterable(piece))
        connection.execute(statements.insert(table, len(piece), verb), values)


def insert_carefully(connection: sqlite3.Connection, table: Table, rows: Sequence[Row]) -> int:
    """Store the rows that can be stored, after `insert` could not store all; how many were lost."""
    lost = 0
    for row in rows:
        try:
            connection.execute(statements.insert(table), row)
        except sqlite3.OperationalError:
            raise
        except (sqlite3.Error, OverflowError, ValueError):
            lost += 1
    return lost


def insert_many(connection: sqlite3.Connection, table: Table, rows: Iterable[Row]) -> None:
    """Store any number of rows one by one: faster than `insert` when the interpreter has nothing else to do."""
    connection.executemany(statements.insert(table), rows)


def checkpoint(connection: sqlite3.Connection) -> None:
    """Bring the file itself up to date. A reader in the way only puts it off."""
    with suppress(sqlite3.OperationalError):
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def make_plain(connection: sqlite3.Connection) -> None:
    """Leave WAL mode, unless somebody keeps reading: then the file stays whole, with its log beside it."""
    end = time.monotonic() + _READERS_S
    while True:
        with suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            if connection.execute("PRAGMA journal_mode = DELETE").fetchall() != [("wal",)]:
                return
        if time.monotonic() > end:
            return
        time.sleep(_READERS_S / 50)
