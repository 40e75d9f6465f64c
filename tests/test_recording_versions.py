"""Versions of recordings: a column is declared once, older files are read, newer ones refused, and files upgraded."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from keep_recording import KEPT, expectations
from ostinato.cli import main
from ostinato.profiling.analyse import summarise
from ostinato.profiling.recording import (
    RecordingError,
    Writer,
    expand,
    merge,
    open_recording,
    schema,
    statements,
    upgrade,
)
from ostinato.profiling.recording.declaring import (
    InColumns,
    Ints,
    Reals,
    Texts,
    code,
    flag,
    identity,
    integer,
    real,
    reference,
    table,
    text,
    time,
)
from recordings import START_NS, fill, read_file, write

THIS, NEXT = schema.VERSION, schema.VERSION + 1


@table("submissions")
class HotSubmissions(schema.Submissions):
    """Submissions with more columns than there are."""

    heat_mk: Ints = integer(optional=True, since=NEXT)
    draught: Reals = real(optional=True, since=NEXT)
    mood: Texts = text(optional=True, since=NEXT)
    weather: Texts = code(("dry", "wet"), optional=True, since=NEXT)
    watched: Ints = flag(optional=True, since=NEXT)
    cooled_ns: Ints = time(optional=True, since=NEXT)


@table("notes", since=NEXT)
class Notes(InColumns):
    """A table that older versions do not have."""

    id: Ints = identity()
    submission: Ints = reference("submissions")
    text: Texts = text()


MORE: dict[str, Any] = {
    "heat_mk": 290_000, "draught": 0.5, "mood": "calm", "weather": "wet", "watched": True, "cooled_ns": START_NS + 5,
}  # fmt: skip


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return write(tmp_path / "old.ostinato")


@pytest.fixture
def next_version(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next version, with more columns and a table more; `old` was written before."""
    monkeypatch.setattr(schema, "VERSION", NEXT)
    monkeypatch.setitem(schema.TABLES, "submissions", HotSubmissions.table)
    monkeypatch.setitem(schema.TABLES, "notes", Notes.table)


def hot(path: Path) -> Path:
    with Writer(path) as writer:
        fill(writer)
        writer.submission(device=1, plan=1, ordinal=4, **MORE)
        writer._rows._add("notes", id=1, submission=2, text="look here")
    return path


@pytest.mark.usefixtures("next_version")
def test_a_column_that_is_declared_is_written_read_and_merged(tmp_path: Path) -> None:
    paths = [hot(tmp_path / f"{name}.ostinato") for name in "ab"]
    with sqlite3.connect(paths[1]) as database:
        database.execute("UPDATE processes SET pid = 7")
    merge(paths, tmp_path / "both.ostinato")
    for path, times in ((paths[0], 1), (tmp_path / "both.ostinato", 2)):
        with open_recording(path) as recording:
            submissions = recording.submissions
            assert isinstance(submissions, HotSubmissions)
            for name, value in MORE.items():
                given = getattr(submissions, name)[submissions.ordinal == 4].tolist()
                assert given == [value] * times, name
            assert submissions.heat_mk[:3].tolist() == [-1, -1, -1]
            notes = recording.table(Notes)
            assert notes.text.tolist() == ["look here"] * times
            assert submissions.ordinal[notes.submission].tolist() == [2] * times


@pytest.mark.usefixtures("next_version")
def test_what_an_older_version_did_not_record_is_not_given(old: Path) -> None:
    assert read_file(old) == 9
    with open_recording(old) as recording:
        submissions = recording.submissions
        assert isinstance(submissions, HotSubmissions)
        assert recording.version == THIS
        assert (
            submissions.heat_mk.tolist() == submissions.watched.tolist() == submissions.cooled_ns.tolist() == [-1] * 3
        )
        assert [value != value for value in submissions.draught.tolist()] == [True] * 3
        assert submissions.mood.tolist() == submissions.weather.tolist() == [""] * 3
        assert len(recording.table(Notes)) == 0
        assert len(summarise(recording).kernels) == 3


@pytest.mark.usefixtures("next_version")
def test_an_older_file_is_upgraded_in_its_place_and_says_the_same(old: Path, tmp_path: Path) -> None:
    with open_recording(old) as recording:
        written_anew = ("strings", "processes", "unwritten")
        sources = recording.sources
        before = {name: recording.columns(name) for name in schema.TABLES if name not in written_anew}
        facts = recording.processes, recording.drops, recording.samples().by_name()
    said: list[str] = []
    assert upgrade(old, progress=said.append) == (THIS, NEXT)
    assert upgrade(old) == (NEXT, NEXT)
    assert "samples" in said
    assert [path.name for path in tmp_path.iterdir()] == [old.name]
    with open_recording(old) as recording:
        assert recording.version == NEXT
        assert recording.sources == sources
        for name, columns in before.items():
            for column, values in columns.items():
                if column != "crc":
                    assert str(recording.columns(name)[column].tolist()) == str(values.tolist()), (name, column)
        assert (recording.processes, recording.drops) == facts[:2]
        samples = recording.samples().by_name()
        assert all((samples[name] == column).all() for name, column in facts[2].items())
    expand(old)
    with closing(sqlite3.connect(old)) as database:
        assert database.execute("SELECT heat_mk FROM submissions").fetchall() == [(None,)] * 3


@pytest.mark.usefixtures("next_version")
def test_an_upgrade_that_fails_leaves_the_old_file_as_it_was(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = old.read_bytes()

    def fail(*arguments: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("ostinato.profiling.recording.database.insert_many", fail)
    for output in (None, tmp_path / "new.ostinato"):
        with pytest.raises(RecordingError, match="full"):
            upgrade(old, output)
    assert old.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [old.name]


def test_a_recording_that_is_being_written_is_not_upgraded(tmp_path: Path) -> None:
    with Writer(tmp_path / "live.ostinato"), pytest.raises(RecordingError, match="still recording"):
        upgrade(tmp_path / "live.ostinato")


@pytest.mark.usefixtures("next_version")
def test_what_a_kill_left_in_the_log_is_upgraded_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "killed.ostinato"
    with monkeypatch.context() as patch:
        patch.setattr(schema, "VERSION", THIS)
        patch.setitem(schema.TABLES, "submissions", schema.Submissions.table)
        patch.delitem(schema.TABLES, "notes")
        with Writer(tmp_path / "run.ostinato") as writer:
            fill(writer)
            writer._write(checkpoint=False)
            for side in ("", "-wal"):
                path.with_name(path.name + side).write_bytes(Path(f"{writer.path}{side}").read_bytes())
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA wal_autocheckpoint = 0")
        database.execute("UPDATE processes SET pid = 0")
        database.commit()
        log = Path(f"{path}-wal").read_bytes()
    Path(f"{path}-wal").write_bytes(log)
    assert upgrade(path) == (THIS, NEXT)
    assert not Path(f"{path}-wal").exists()
    assert read_file(path) == 9


def test_a_newer_file_is_refused_with_both_versions(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "VERSION", NEXT)
    written = write(old.with_name("new.ostinato"))
    monkeypatch.setattr(schema, "VERSION", THIS)
    refused = rf"new.ostinato: is of version {NEXT}.*reads versions 4 to {THIS}.*Update ostinato"
    with pytest.raises(RecordingError, match=refused):
        open_recording(written)


def test_a_column_that_older_files_lack_must_be_optional() -> None:
    with pytest.raises(TypeError, match="must be optional"):

        @table("submissions")
        class Broken(schema.Submissions):
            heat_mk: Ints = integer(since=NEXT)


def test_the_command_upgrades_and_replaces_no_other_file_unasked(old: Path, tmp_path: Path, next_version: None) -> None:
    run = CliRunner().invoke
    other = write(tmp_path / "other.ostinato")
    refused = run(main, ["upgrade", str(old), "-o", str(other)])
    assert refused.exit_code == 1
    assert "--force" in refused.output
    made = run(main, ["upgrade", str(old), "-o", str(other), "--force"])
    assert (made.exit_code, made.output) == (0, f"{other} is of version {NEXT} now; it was of version {THIS}\n")
    made = run(main, ["upgrade", str(other)])
    assert (made.exit_code, made.output) == (0, f"{other} is of version {NEXT} already; nothing was written\n")
    with open_recording(old) as recording:
        assert recording.version == THIS


# --- recordings of every version from 4 on ------------------------------------------------------------------------


def test_a_recording_of_this_version_is_kept() -> None:
    assert (KEPT / f"version-{schema.VERSION}.ostinato").exists(), "run `python tests/keep_recording.py`"


@pytest.mark.parametrize("path", sorted(KEPT.glob("*.ostinato")), ids=lambda path: path.stem)
def test_kept_recordings_are_read_as_they_were(path: Path) -> None:
    assert expectations(path) == json.loads(path.with_suffix(".json").read_text())


@pytest.mark.parametrize("path", sorted(KEPT.glob("*.ostinato")), ids=lambda path: path.stem)
def test_kept_recordings_say_the_same_when_they_are_upgraded(path: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copy(path, tmp_path))
    before, _ = upgrade(copy)
    assert expectations(copy) == json.loads(path.with_suffix(".json").read_text()) | {"version": THIS}
    with open_recording(copy) as recording:
        commands = recording.commands
        if before < 5:
            assert commands.file.tolist() == commands.source_digest.tolist() == commands.execution.tolist() == [""] * 4
            assert commands.line.tolist() == [-1] * 4
            assert recording.sources == {}
    expand(copy)
    with closing(sqlite3.connect(copy)) as database:
        assert database.execute("SELECT count(*) FROM dispatch_report WHERE line IS NULL").fetchone() > (0,)


def test_every_table_and_column_is_documented() -> None:
    page = (Path(__file__).parent.parent / "docs" / "recording.md").read_text()
    assert f"## Tables, version {schema.VERSION}" in page
    rows = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `")}
    for name, declared in schema.TABLES.items():
        for column in declared.columns:
            shown = f"{column.name}_x/y/z" if len(column.sql_names) > 1 else column.name
            assert f"`{shown}`" in rows[name], f"{name}.{column.name}"
        assert all(f"`{blob}`" in rows[name] for blob in declared.blobs)
    view = page.split("### The view dispatch_report\n")[1].partition("\n#")[0]
    cells = [line.split("|")[1] for line in view.splitlines() if line.startswith("| `")]
    listed = [name.removesuffix("_x/y/z") for cell in cells for name in re.findall(r"`([\w/]+)`", cell)]
    assert sorted(listed) == sorted(statements.REPORT)
