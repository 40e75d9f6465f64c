"""Recordings from strangers are data: damaged, forged or newer ones are refused with one error, and nothing runs."""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import shutil
import sqlite3
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ostinato.profiling.recording import RecordingError, Writer, chunks, expand, merge, open_recording
from ostinato.profiling.recording.schema import TABLES, VERSION
from recordings import fill, read_file, write

quickly = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small recording that was not expanded, so that damage hits what is read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ostinato.profiling.recording.expansion.MOST_AT_CLOSING", 0)
        return write(tmp_path_factory.mktemp("good") / "good.ostinato", 5).read_bytes()


@pytest.fixture
def copy(good: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "stranger.ostinato"
    path.write_bytes(good)
    return path


def edit(path: Path, *statements: str, values: tuple[Any, ...] = ()) -> None:
    """Change a file as anybody can."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        for statement in statements:
            database.execute(statement, values)
        database.commit()


def read_or_refuse(path: Path) -> None:
    """Either all of it can be read, or it is refused; any other outcome is an error."""
    with contextlib.suppress(RecordingError):
        read_file(path)


# --- what is not a recording --------------------------------------------------------------------------------------


def test_files_that_are_not_recordings_are_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("Dear reader, " * 100)
    (tmp_path / "empty").touch()
    edit(tmp_path / "database", "CREATE TABLE t(x)")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    expected = {
        "text": "not a database", "empty": "is empty", "database": "not a recording", "pipe": "is not a file",
        "loop": "cannot open", "nowhere": "No such file", ".": "is not a file", "nul\0": "cannot open",
    }  # fmt: skip
    for name, reason in expected.items():
        with pytest.raises(RecordingError, match=reason):
            open_recording(tmp_path / name)


def test_newer_recordings_are_refused_with_advice(copy: Path) -> None:
    edit(copy, f"PRAGMA user_version = {VERSION + 1}")
    advice = rf"stranger.ostinato.*version {VERSION + 1}, made by a newer ostinato.*reads version.*{VERSION}.*Update"
    with pytest.raises(RecordingError, match=advice):
        open_recording(copy)
    edit(copy, "PRAGMA user_version = 0")
    with pytest.raises(RecordingError, match="never existed"):
        open_recording(copy)


def test_older_recordings_are_not_called_damaged(copy: Path) -> None:
    """Their tables differ, and that is not held against them."""
    for version in (1, 2, 3):
        edit(copy, "DROP TABLE IF EXISTS command_terms", f"PRAGMA user_version = {version}")
        with pytest.raises(RecordingError, match=rf"version {version}, made by an older .*Record again") as caught:
            open_recording(copy)
        assert "damaged" not in str(caught.value)


def test_files_too_large_to_be_believed_are_refused(copy: Path) -> None:
    os.truncate(copy, 1 << 37)  # a hole: takes no room
    with pytest.raises(RecordingError, match="at most"):
        open_recording(copy)


# --- nothing that a file brings is run ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("CREATE TRIGGER t AFTER INSERT ON meta BEGIN DELETE FROM strings; END", "trigger 't'"),
        ("CREATE VIEW v AS SELECT load_extension('evil')", "view 'v'"),
        ("CREATE VIRTUAL TABLE f USING fts5(x)", "virtual table 'f'"),
        ("DROP VIEW dispatch_report", "lacks the view dispatch_report"),
        ("ALTER TABLE strings ADD COLUMN more", "'strings' is not what"),
        ("DROP TABLE drops", "lacks the table drops"),
    ],
)
def test_a_schema_that_is_not_ours_is_refused(copy: Path, statement: str, what: str) -> None:
    edit(copy, statement)
    with pytest.raises(RecordingError, match=what):
        open_recording(copy)


def test_a_view_under_our_name_is_refused_too(copy: Path) -> None:
    edit(copy, "DROP VIEW dispatch_report", "CREATE VIEW dispatch_report AS SELECT randomblob(1000000000)")
    with pytest.raises(RecordingError, match="'dispatch_report' is not what"):
        open_recording(copy)
    edit(copy, "DROP VIEW dispatch_report", "DROP TABLE strings", "CREATE VIEW strings AS SELECT 1 AS id, 'x' AS text")
    with pytest.raises(RecordingError, match="view 'strings'"):
        open_recording(copy)


def test_tables_and_indices_that_somebody_added_do_no_harm(copy: Path) -> None:
    expand(copy)
    edit(copy, "CREATE TABLE notes(x)", "CREATE INDEX quick ON submissions(start_ns)", "ANALYZE")
    assert read_file(copy) == 15


def test_opening_never_writes(copy: Path) -> None:
    before = copy.read_bytes()
    with open_recording(copy) as recording:
        for statement in ("DELETE FROM meta", "ATTACH ':memory:' AS other"):
            with pytest.raises(sqlite3.Error):
                recording._connection.execute(statement)
    assert copy.read_bytes() == before
    assert [file.name for file in copy.parent.iterdir()] == [copy.name]


def test_a_forged_journal_is_not_played_back(copy: Path, tmp_path: Path) -> None:
    """Rolling one back deletes the "super-journal" that it names, which may be any file."""
    precious = tmp_path / "precious.txt"
    precious.write_text("\0")
    name = str(precious).encode()
    magic = bytes.fromhex("d9d505f920a163d7")
    header = magic + struct.pack(">IIIII", 0, 0, 1, 512, 4096)
    checksum = sum(name) & 0xFFFFFFFF
    tail = struct.pack(">I", 4096 // 4096) + name + struct.pack(">II", len(name), checksum) + magic
    Path(f"{copy}-journal").write_bytes(header.ljust(512, b"\0") + tail)
    read_or_refuse(copy)
    assert precious.exists()
    assert Path(f"{copy}-journal").exists()


@pytest.mark.parametrize("side", ["-wal", "-shm", "-journal"])
def test_side_files_that_lead_elsewhere_are_refused(copy: Path, tmp_path: Path, side: str) -> None:
    target = tmp_path / "target.txt"
    target.write_text("mine")
    Path(f"{copy}{side}").symlink_to(target)
    with pytest.raises(RecordingError, match="not a file of SQLite"):
        open_recording(copy)
    assert target.read_text() == "mine"


@given(st.binary(max_size=5000))
@quickly
def test_any_log_beside_a_file_is_survived(good: bytes, tmp_path: Path, log: bytes) -> None:
    path = tmp_path / "stranger.ostinato"
    wal_mode = good[:18] + b"\2\2" + good[20:]
    path.write_bytes(wal_mode)
    Path(f"{path}-wal").write_bytes(log)
    Path(f"{path}-shm").unlink(missing_ok=True)
    read_or_refuse(path)


def test_a_file_that_cannot_be_read_is_named(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(RecordingError, match=r"stranger\.ostinato: cannot be read: Permission denied"):
        open_recording(copy)


@pytest.fixture(params=["checked at once", "checked while read"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files have their structure checked when they are opened; large ones only where they are read."""
    if request.param == "checked while read":
        monkeypatch.setattr("ostinato.profiling.recording.opening._CHECKED_BYTES", 0)


# --- damage -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("size")
@given(st.lists(st.tuples(st.integers(0, 1 << 30), st.integers(1, 255)), min_size=1, max_size=12))
@quickly
def test_flipped_bytes_are_refused_or_harmless(good: bytes, tmp_path: Path, flips: list[tuple[int, int]]) -> None:
    damaged = bytearray(good)
    for at, bits in flips:
        damaged[at % len(good)] ^= bits
    path = tmp_path / "damaged.ostinato"
    path.write_bytes(damaged)
    read_or_refuse(path)


@pytest.mark.usefixtures("size")
@given(st.data())
@quickly
def test_flipped_bytes_in_the_headers_of_pages_are_refused_or_harmless(
    good: bytes, tmp_path: Path, data: st.DataObject
) -> None:
    """Where the structure of the file stands, and damage does most."""
    damaged = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        page = data.draw(st.integers(0, len(good) // 4096 - 1))
        damaged[page * 4096 + data.draw(st.integers(0, 130))] = data.draw(st.integers(0, 255))
    path = tmp_path / "damaged.ostinato"
    path.write_bytes(damaged)
    read_or_refuse(path)


@pytest.mark.usefixtures("size")
@given(st.integers(0, 1 << 30), st.binary(max_size=100))
@quickly
def test_files_cut_short_are_refused_or_harmless(good: bytes, tmp_path: Path, length: int, rest: bytes) -> None:
    path = tmp_path / "short.ostinato"
    path.write_bytes(good[: length % len(good)] + rest)
    read_or_refuse(path)


_COLUMNS = {name: table.sql_names for name, table in TABLES.items()}
_EDITS = st.sampled_from([(table, column) for table, columns in _COLUMNS.items() for column in columns])
_VALUES = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([-1, 0, 1, 2, 3, 4, 5, 100, 2**31, 2**32, 2**40, 2**62, 2**63 - 1, -(2**63)]),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["\x1b[2J\x07", "\0", "x" * 200_000, "5", "🂡"]),
    st.binary(max_size=64),
)


@pytest.mark.usefixtures("size")
@given(st.lists(st.tuples(_EDITS, _VALUES, st.integers(0, 20)), min_size=1, max_size=4))
@quickly
@example([(("sample_chunks", "samples"), 2**62, 0)])
@example([(("plans", "nodes"), 2**40, 0)])
@example([(("submissions", "plan"), None, 0)])
def test_edited_rows_are_refused_or_harmless(
    good: bytes, tmp_path: Path, edits: list[tuple[tuple[str, str], Any, int]]
) -> None:
    path = tmp_path / "edited.ostinato"
    path.write_bytes(good)
    with contextlib.closing(sqlite3.connect(path)) as database:
        # What a stranger's own SQLite would let pass.
        database.execute("PRAGMA ignore_check_constraints = ON")
        for (table, column), value, row in edits:
            with contextlib.suppress(sqlite3.Error, UnicodeEncodeError):
                keys = database.execute(f"SELECT {_COLUMNS[table][0]} FROM {table}").fetchall()
                if keys:
                    key = keys[row % len(keys)][0]
                    where = f"WHERE {_COLUMNS[table][0]} = ?"
                    database.execute(f"UPDATE OR REPLACE {table} SET {column} = ? {where}", (value, key))
        database.commit()
    read_or_refuse(path)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("UPDATE submissions SET start_ns = -5", "start_ns .*out of range"),
        ("UPDATE submissions SET start_ns = end_ns + 1", "ended before they began"),
        ("UPDATE submissions SET status = 9", "status .*out of range"),
        ("UPDATE submissions SET ordinal = 'first'", "ordinal .*something else than integers"),
        ("UPDATE submissions SET ordinal = 1.5", "ordinal .*something else than integers"),
        ("UPDATE submissions SET label = 4711", "label .*refers to a text that is not there"),
        ("UPDATE submissions SET device = 2", "refers to a device that is not there"),
        ("UPDATE submissions SET plan = 2", "refers to a plan that is not there"),
        ("UPDATE submissions SET plan = NULL", "nodes that their plan does not have"),
        ("DELETE FROM submissions WHERE id = 2", "refers to a submission that is not there"),
        ("UPDATE regions SET parent = id", "inside a later one"),
        ("UPDATE regions SET parent = 4 WHERE id = 2", "inside a later one"),
        ("UPDATE commands SET kind = 'spell'", "something else than dispatch"),
        ("UPDATE commands SET bytes_read = -1", "bytes_read .*out of range"),
        ("UPDATE command_terms SET amount = 3", "amount .*out of range"),
        ("UPDATE command_terms SET factor = -1", "factor .*out of range"),
        ("UPDATE command_terms SET command = 77", "refers to a command that is not there"),
        ("UPDATE command_terms SET param = 4711", "param .*refers to a text that is not there"),
        ("UPDATE submission_values SET value = 'ten'", "value .*something else than integers"),
        (
            "UPDATE submission_values SET submission = 77 WHERE submission = 1",
            "refers to a submission that is not there",
        ),
        ("UPDATE strings SET text = x'05'", "something else than text"),
        ("UPDATE drops SET count = -1", "count .*out of range"),
        ("UPDATE devices SET copy_bytes_per_s = -1", "copy_bytes_per_s .*out of range"),
        ("UPDATE devices SET copy_bytes_per_s = 'fast'", "copy_bytes_per_s .*something else than numbers"),
        ("UPDATE devices SET workers = 0", "workers .*out of range"),
        ("UPDATE devices SET ceilings_busy = 2", "ceilings_busy .*out of range"),
        ("UPDATE command_constants SET value = 4711", "value .*refers to a text that is not there"),
        ("UPDATE processes SET host = x'05'", "host .*something else than text"),
        ("UPDATE processes SET rank = -7", "rank .*out of range"),
        ("UPDATE unwritten SET note = '[]'", "what could not be written"),
        ("UPDATE unwritten SET note = x'05'", "note .*something else than text"),
        ("UPDATE unwritten SET note = '{'", "damaged"),
        ("DELETE FROM processes", "nothing about the process"),
        ("UPDATE sample_chunks SET samples = samples + 1", "claims|add up|shorter"),
        ("UPDATE sample_chunks SET samples = 2000000000", "out of range"),
        ("UPDATE sample_chunks SET crc = crc + 1", "checksum"),
        ("UPDATE sample_chunks SET data = zeroblob(1000)", "checksum"),
        ("UPDATE sample_chunks SET data = 'text'", "does not hold"),
        ("UPDATE plans SET nodes = 3", "not as long as it says"),
        ("UPDATE commands SET line = 0", "line .*out of range"),
        ("UPDATE commands SET line = 'first'", "line .*something else than integers"),
        ("UPDATE commands SET file = 4711", "file .*refers to a text that is not there"),
        ("UPDATE sources SET text = 'text'", "does not hold"),
        ("UPDATE sources SET text = zeroblob(5)", "source text 1 is not as long as it says"),
        ("UPDATE sources SET text = zeroblob(size_bytes)", "source text 1 does not match its digest"),
        ("UPDATE sources SET digest = x'05'", "digest .*something else than text"),
        ("UPDATE sources SET left_out = 3", "left_out .*out of range"),
        ("UPDATE sources SET size_bytes = 68000000", "more than 67108864 bytes"),
        (
            "INSERT INTO sources SELECT value + 9, '', 0, 0, x'' FROM generate_series(1, 20000)",
            "more than 10000 rows in the table sources",
        ),
        ("UPDATE plans SET edge_pairs = zeroblob(24)", "checksum"),
        ("INSERT INTO meta SELECT 1, 'key' || value, '' FROM generate_series(1, 20000)", "10000"),
    ],
)
def test_what_does_not_hold_together_is_named(copy: Path, statement: str, reason: str) -> None:
    if "generate_series" in statement:
        numbers = "WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n LIMIT 20000)"
        statement = statement.replace("generate_series(1, 20000)", f"({numbers} SELECT * FROM n)")
    edit(copy, statement)
    with pytest.raises(RecordingError, match=f"(?s)stranger.ostinato.*({reason})"):
        read_file(copy)


def test_a_forged_plan_with_a_right_checksum_is_refused(copy: Path) -> None:
    for second in ((2, 1), (1, 9)):
        pairs = np.array([(0, 1), second, (0, 3)])
        with contextlib.closing(sqlite3.connect(copy)) as database:
            (nodes,) = database.execute("SELECT node_commands FROM plans").fetchone()
            edges = pairs.astype("<u4").tobytes()
            crc = zlib.crc32(edges, zlib.crc32(nodes))
            database.execute("UPDATE plans SET edge_pairs = ?, crc = ?", (edges, crc))
            database.commit()
        with pytest.raises(RecordingError, match="later one"):
            read_file(copy)


_WIDE = st.integers(-(2**63), 2**63 - 1)


@given(
    st.lists(st.lists(_WIDE | st.integers(-2, 6), min_size=1, max_size=4), min_size=8, max_size=8), st.integers(0, 5)
)
@quickly
def test_forged_chunks_with_right_checksums_are_refused_or_possible(columns: list[list[int]], extra: int) -> None:
    runs, samples = len(columns[0]), len(columns[4])
    rows = [runs] * 4 + [samples] * 4
    data = b"".join(
        chunks.pack(np.resize(np.array(column, np.int64), size)) for column, size in zip(columns, rows, strict=True)
    ) + bytes(extra)
    chunk = chunks.Chunk(min(columns[0]), max(columns[0]), runs, samples, zlib.crc32(data), data)
    with contextlib.suppress(RecordingError):
        decoded = chunks.decode(chunk)
        assert (decoded.node >= 0).all()
        assert (decoded.start_ns >= 0).all()
        assert (decoded.start_ns <= decoded.end_ns).all()
        assert (decoded.end_ns < 2**62).all()


@pytest.mark.parametrize(
    ("text", "reason"), [(b"x" * (1 << 20) + b"y", "larger than"), (b"\xff\xfe no text", "is not text")]
)
def test_a_forged_source_with_a_right_digest_is_refused(copy: Path, text: bytes, reason: str) -> None:
    values = (hashlib.sha256(text).hexdigest(), len(text), text)
    edit(copy, "UPDATE sources SET digest = ?, size_bytes = ?, text = ?", values=values)
    with pytest.raises(RecordingError, match=f"stranger.ostinato.*{reason}"):
        read_file(copy)


def test_a_small_file_cannot_claim_many_samples(copy: Path) -> None:
    claimed = 1 << 20
    constant = bytes(9)
    data = constant * 6 + b"\0" * 9 + constant
    edit(copy, "UPDATE sample_chunks SET samples = ?, data = ?, crc = ?", values=(claimed, data, zlib.crc32(data)))
    with pytest.raises(RecordingError, match="claims"):
        read_file(copy)


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Half a gigabyte more than now, and no further."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 29), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
@pytest.mark.usefixtures("little_memory", "size")
def test_pages_that_lead_to_the_same_pages_again_do_not_go_on_for_ever(good: bytes, tmp_path: Path) -> None:
    """A tree of SQLite whose branches all lead to one leaf would repeat its rows a million times."""
    path = tmp_path / "bomb.ostinato"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.deserialize(good)
        with contextlib.closing(sqlite3.connect(path)) as target:
            database.backup(target)
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.executemany("INSERT INTO strings VALUES (?, ?)", ((n, "x" * 300) for n in range(100, 30_000)))
        database.commit()
        (root,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'strings'").fetchone()
    file = bytearray(path.read_bytes())

    def children(page: int) -> list[int]:
        at = (page - 1) * 4096
        if file[at] != 5:
            return []
        (cells,) = struct.unpack_from(">H", file, at + 3)
        return [at + pointer for (pointer,) in struct.iter_unpack(">H", file[at + 12 : at + 12 + 2 * cells])]

    for cell in children(root):
        (child,) = struct.unpack_from(">I", file, cell)
        below = children(child)
        if below:
            (leaf,) = struct.unpack_from(">I", file, below[0])
            for deeper in below:
                struct.pack_into(">I", file, deeper, leaf)
    path.write_bytes(file)
    begin = time.monotonic()
    with pytest.raises(RecordingError):
        read_file(path)
    assert time.monotonic() - begin < 5


def test_functions_on_damaged_files_refuse_them_too(copy: Path, tmp_path: Path) -> None:
    edit(copy, "UPDATE sample_chunks SET crc = crc + 1")
    before = copy.read_bytes()
    uses: list[Callable[[], object]] = [lambda: expand(copy), lambda: merge([copy], tmp_path / "merged.ostinato")]
    for use in uses:
        with pytest.raises(RecordingError, match="checksum"):
            use()
    assert not (tmp_path / "merged.ostinato").exists()
    assert sorted(file.name for file in tmp_path.iterdir()) == [copy.name]
    assert len(copy.read_bytes()) == len(before)


def test_a_stranger_cannot_keep_a_recording_from_being_made(tmp_path: Path) -> None:
    """A damaged file of the same name is not silently replaced, and the message says what to do."""
    path = tmp_path / "run.ostinato"
    path.write_bytes(b"SQLite format 3\0" + bytes(5000))
    with pytest.raises(RecordingError, match="exists and is not replaced"):
        Writer(path)
    path.unlink()
    shutil.copy(write(tmp_path / "other.ostinato"), path)
    with Writer(path) as writer:
        fill(writer)
    assert read_file(path) == 9
