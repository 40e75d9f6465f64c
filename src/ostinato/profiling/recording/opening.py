"""Opening files that anybody may have made: read-only, nothing in them executed, refused when they are not ours.

What a kill leaves behind opens too. SQLite's log (`-wal`) is used where it lies beside the file; in a folder where
SQLite cannot work with it, file and log are copied to a private folder first. A file that came without its log opens
with what it holds. A rollback journal is never played back: it may name other files to delete.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import RecordingError
from ...version import __version__
from . import schema, statements
from .database import side_files
from .declaring import FIRST_VERSION
from .provenance import boot
from .schema import APPLICATION_ID, MAX_BLOB_BYTES, MAX_FILE_BYTES

_BUSY_S = 2.0
_CHECKED_BYTES = 1 << 26
"""Files up to this size have the structure of all that is read checked at once; larger ones as they are read. Where
nobody can be writing to it, such a file is read into memory as a whole: SQLite would read page after page."""
_MOST_OBJECTS = 1_000
_SMALL_LENGTH = 1 << 20
_OPTIONS: dict[str, Any] = {"timeout": _BUSY_S, "isolation_level": None, "check_same_thread": False}


@dataclass(frozen=True, slots=True)
class Source:
    """An open file: its connection, and what has to be cleared away with it."""

    connection: sqlite3.Connection
    path: Path | None
    temporary: Path | None = None
    """The folder of a private copy."""
    borrowed: bool = False

    def close(self) -> None:
        """Close the connection, unless it is borrowed, and remove a private copy; more than once is harmless."""
        if not self.borrowed:
            self.connection.close()
        if self.temporary is not None:
            shutil.rmtree(self.temporary, ignore_errors=True)


@contextmanager
def reading(path: Path | None) -> Iterator[None]:
    """Whatever a damaged file makes SQLite, NumPy or Python raise comes out as one error that names the file."""
    name = "the recording" if path is None else path.name
    try:
        yield
    except RecordingError as problem:
        if str(problem).startswith(name):
            raise
        raise RecordingError(f"{name}: {problem}") from problem
    except sqlite3.Error as problem:
        text = str(problem)
        if "locked" in text:
            raise RecordingError(f"{name} is locked by a program that writes to it") from problem
        raise RecordingError(f"{name} is damaged or not a recording: {text}") from problem
    except (ValueError, TypeError, OverflowError, IndexError, KeyError, RecursionError, MemoryError) as problem:
        raise RecordingError(f"{name} is damaged: {type(problem).__name__}: {problem}") from problem


def open_file(path: str | os.PathLike[str], checked: bool = False, pages: bool = True) -> Source:
    """Open a recording read-only, or say why it cannot be believed.

    `checked` says that the same file was opened before: its schema and its pages are not checked again. Without
    `pages` those of a small file are checked as they are read, like those of a large one.
    """
    given = Path(path)
    try:
        real = given.resolve(strict=True)
        status = real.stat()
    except (OSError, RuntimeError, ValueError) as problem:
        raise RecordingError(f"cannot open {given}: {getattr(problem, 'strerror', None) or problem}") from problem
    if not stat.S_ISREG(status.st_mode):
        raise RecordingError(f"{given} is not a file")
    if status.st_size == 0:
        raise RecordingError(f"{given} is empty: not a recording, or one that was interrupted while it was opened")
    if status.st_size > MAX_FILE_BYTES:
        raise RecordingError(f"{given} has {status.st_size} bytes; recordings have at most {MAX_FILE_BYTES}")
    wal, shm, journal = (_size(side) for side in side_files(real))
    if wal is not None or shm is not None:
        attempts: tuple[Callable[[Path], Source], ...] = (_beside_its_log, _copied_with_its_log)
    elif journal is not None:
        attempts = (_beside_its_log, _alone)
    else:
        attempts = (_alone,)
    with reading(given):
        for attempt in attempts:
            try:
                source = attempt(real)
            except sqlite3.OperationalError as problem:
                if attempt is attempts[-1] or not _another_way_may_work(problem):
                    raise
                continue
            try:
                # The log grows while it is written; what the snapshot holds is in it by now.
                _limit(source.connection, status.st_size + (_size(side_files(real)[0]) or 0))
                if not checked:
                    _check(source.connection, whole=journal is not None, pages=pages)
            except (sqlite3.DatabaseError, RecordingError) as problem:
                source.close()
                if attempt is _alone and _was_being_written(real):
                    raise RecordingError(
                        f"{problem}. It was being written when the program ended or it was copied; the file"
                        f" {side_files(real)[0].name} that lay beside it holds what is missing"
                    ) from problem
                raise
            return source
    raise AssertionError("every attempt either returns or raises")


def is_live(connection: sqlite3.Connection) -> int | None:
    """The pid of a process of this machine that is still recording into a file, if there is one."""
    query = "SELECT pid FROM processes WHERE boot = ? AND NOT closed"
    for (pid,) in connection.execute(query, (boot(),)).fetchmany(100):
        if isinstance(pid, int) and runs(pid):
            return pid
    return None


def runs(pid: int) -> bool:
    """Whether there is such a process."""
    try:
        if pid > 0:
            os.kill(pid, 0)
    except PermissionError:  # of another user
        return True
    except (OSError, OverflowError):
        return False
    return pid > 0


def check_replaceable(path: Path) -> None:
    """Refuse to replace anything but a recording that nobody is writing."""
    if not os.path.lexists(path):
        return
    if not path.is_file():
        raise RecordingError(f"{path} exists and is not replaced: it is not a file")
    if path.stat().st_size == 0:
        return
    try:
        with contextlib.closing(open_file(path)) as source, reading(path):
            process = is_live(source.connection)
    except RecordingError as problem:
        raise RecordingError(f"{path} exists and is not replaced: {problem}") from problem
    if process is not None:
        raise RecordingError(f"process {process} is recording into {path}; each process needs a file of its own")


def _size(side: Path) -> int | None:
    """How long a file beside a recording is; None if there is none."""
    try:
        status = side.lstat()
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_FILE_BYTES:
        raise RecordingError(f"{side.name} beside the recording is not a file of SQLite")
    return status.st_size


def _another_way_may_work(problem: sqlite3.OperationalError) -> bool:
    text = str(problem)
    return "unable to open" in text or "readonly" in text or "read-only" in text or "disk I/O" in text


def _was_being_written(path: Path) -> bool:
    """Whether the header says that there is a log."""
    with path.open("rb") as file:
        return file.read(20)[18:] == b"\2\2"


def _beside_its_log(path: Path) -> Source:
    return Source(_connect(path, "mode=ro"), path)


def _alone(path: Path) -> Source:
    try:
        small = path.stat().st_size <= _CHECKED_BYTES and not _was_being_written(path)
        contents = path.read_bytes() if small else b""
    except OSError as problem:
        raise RecordingError(f"cannot be read: {problem.strerror}") from problem
    if contents:
        return Source(_prepared(sqlite3.connect(":memory:", **_OPTIONS), contents), path)
    # "Immutable" means: no locks and no side files, so it also works where nothing can be written.
    return Source(_connect(path, "mode=ro&immutable=1"), path)


def _copied_with_its_log(path: Path) -> Source:
    folder = Path(tempfile.mkdtemp(prefix="ostinato-"))
    try:
        copy = folder / path.name
        shutil.copyfile(path, copy)
        log = side_files(path)[0]
        if log.exists():
            shutil.copyfile(log, side_files(copy)[0])
        return Source(_connect(copy, "mode=ro"), path, folder)
    except OSError as problem:
        shutil.rmtree(folder, ignore_errors=True)
        raise RecordingError(f"cannot copy it to a folder where its log can be read: {problem}") from problem
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _connect(path: Path, options: str) -> sqlite3.Connection:
    return _prepared(sqlite3.connect(f"{path.as_uri()}?{options}", uri=True, **_OPTIONS))


def _prepared(connection: sqlite3.Connection, contents: bytes = b"") -> sqlite3.Connection:
    """The connection with what a recording from elsewhere calls for, and with a file's contents if they are given."""
    try:
        if contents:
            connection.deserialize(contents)
        restrict(connection)
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # takes the snapshot
    except BaseException:
        connection.close()
        raise
    return connection


def restrict(connection: sqlite3.Connection) -> None:
    """Nothing that a schema says is trusted, and nothing can be written."""
    for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "query_only = ON", "mmap_size = 0"):
        connection.execute(f"PRAGMA {pragma}")
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, 100_000)


def _limit(connection: sqlite3.Connection, size: int) -> None:
    """No value can be longer than the file (and its log) that it stands in."""
    length = min(MAX_BLOB_BYTES, max(size, _SMALL_LENGTH)) + _SMALL_LENGTH
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, length)


def _check(connection: sqlite3.Connection, whole: bool, pages: bool) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise RecordingError("is a database of SQLite, but not a recording")
    version = version_of(connection)
    _check_version(version)
    _check_schema(connection, version)
    count, size = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    if whole or (pages and count * size <= _CHECKED_BYTES):
        for table in schema.TABLES.values():
            # Nothing is read of the tables that repeat others, which may be most of a file.
            if table.since <= version and table.name not in schema.EXPANDED:
                damage = connection.execute(f"PRAGMA quick_check({table.name})").fetchone()[0]
                if damage != "ok":
                    raise RecordingError(f"is damaged: {damage}")


def version_of(connection: sqlite3.Connection) -> int:
    """The version that a file says it is of."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def _check_version(version: int) -> None:
    newest = schema.VERSION
    reads = f"version {newest}" if newest == FIRST_VERSION else f"versions {FIRST_VERSION} to {newest}"
    if version > newest:
        raise RecordingError(
            f"is of version {version}, made by a newer ostinato; this one ({__version__}) reads {reads}. Update"
            " ostinato, or read it with the version that made it"
        )
    if version < 1:
        raise RecordingError(f"is of version {version}, which never existed")
    if version < FIRST_VERSION:
        raise RecordingError(
            f"is of version {version}, made by an older ostinato; this one ({__version__}) reads {reads}, and nothing"
            " upgrades files that old. Record again, or read it with the version that made it"
        )


def _check_schema(connection: sqlite3.Connection, version: int) -> None:
    objects = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchmany(_MOST_OBJECTS + 1)
    if len(objects) > _MOST_OBJECTS:
        raise RecordingError("has far more tables than a recording")
    ours = statements.definitions(version)
    for kind, name, sql in objects:
        expected = ours.pop((kind, name), None)
        if expected is not None:
            if sql != expected:
                raise RecordingError(f"its {kind} {name!r} is not what version {version} says")
        elif kind not in ("table", "index"):
            raise RecordingError(f"contains the {kind} {name!r}; recordings from elsewhere must not bring their own")
        elif str(sql).upper().startswith("CREATE VIRTUAL"):
            raise RecordingError(f"contains the virtual table {name!r}; recordings must not bring their own")
    if ours:
        raise RecordingError(f"lacks the {' '.join(next(iter(ours)))}")
