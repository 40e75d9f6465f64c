"""Recordings that go wrong: a full disk is said in the file itself, and opening one happens whole or not at all."""

from __future__ import annotations

import gc
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from ostinato.profiling.analyse import summarise
from ostinato.profiling.recording import RecordingError, Writer, merge, open_recording, switching, unwritten
from ostinato.profiling.report import render
from recordings import fill, read_everything, read_file, write
from scripting import Script

# --- a full disk ----------------------------------------------------------------------------------------------------

_SUBMISSIONS = 4_000

_FILLS_THE_DISK = """
import os, resource, signal, time
from ostinato.profiling.recording import RecordingError, Writer
from recordings import NODES
path, limit, ending = sys.argv[1:]
if int(limit):
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
writer = Writer(path)
device = writer.device("cpu", "cpu")
plan = writer.plan(device, NODES)
for ordinal in range(1, 4001):
    label = os.urandom(64).hex()
    times = {"start_ns": ordinal, "end_ns": ordinal + 1}
    number = writer.submission(device=device, plan=plan, ordinal=ordinal, label=label, **times)
    writer.samples(number, 0, [ordinal], [ordinal + 1])
    if ordinal % 400 == 0:
        try:
            writer.flush()
        except RecordingError:
            pass
if ending == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
try:
    writer.close()
except RecordingError as problem:
    print("close:", problem)
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 600 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    options = ("-t", "tmpfs", "-o", "size=600k", "tmpfs", str(folder))
    try:
        subprocess.run(("mount", *options), check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as problem:
        pytest.skip(f"a small file system cannot be mounted here: {problem}")
    try:
        yield folder
    finally:
        subprocess.run(("umount", "-l", str(folder)), check=True)


@pytest.mark.parametrize("ending", ["close", "kill"])
@pytest.mark.parametrize("disk", ["full", "limited"])
def test_a_full_disk_is_said_in_the_file(
    request: pytest.FixtureRequest, tmp_path: Path, script: Script, disk: str, ending: str
) -> None:
    folder = request.getfixturevalue("small_disk") if disk == "full" else tmp_path
    path = folder / "run.ostinato"
    result = script(_FILLS_THE_DISK, str(path), "0" if disk == "full" else str(400_000), ending)
    if ending == "close":
        assert "is not complete" in result.stdout, result.stderr
    with open_recording(path) as recording:
        stored, samples = len(recording.submissions), read_everything(recording)
        assert 0 < stored < _SUBMISSIONS
        lost = {drop.where.partition(":")[0]: drop for drop in recording.drops}
        assert lost["submissions"].count == _SUBMISSIONS - stored
        assert lost["samples"].count == _SUBMISSIONS - samples
        assert "could not be written (" in lost["samples"].where
        summary = summarise(recording)
    check = next(one for one in summary.checks if one.name == "drops")
    assert check.status == "error"
    assert f"{_SUBMISSIONS - stored:,} submissions: could not be written" in check.sentence
    assert "nothing dropped" not in render(summary)
    merge([path], tmp_path / "merged.ostinato")
    with open_recording(tmp_path / "merged.ostinato") as merged:
        assert sum(drop.count for drop in merged.drops) == sum(drop.count for drop in lost.values())


def test_a_disk_that_has_room_again_leaves_no_word_of_it(tmp_path: Path) -> None:
    path = tmp_path / "run.ostinato"
    with Writer(path) as writer:
        pages = writer._connection.execute("PRAGMA page_count").fetchone()[0]
        writer._connection.execute(f"PRAGMA max_page_count = {pages}")
        fill(writer, 500)
        with pytest.raises(RecordingError, match="full"):
            writer.flush()
        with open_recording(path) as recording:
            assert {"submissions: could not be written (database or disk is full)", "a test"} <= {
                drop.where for drop in recording.drops
            }
        writer._connection.execute("PRAGMA max_page_count = 1000000")
    with open_recording(path) as recording:
        assert [(drop.where, drop.count) for drop in recording.drops] == [("a test", 7)]
        assert read_everything(recording) == 1_500


@pytest.mark.parametrize(
    "note", ["", "[]", "{", '{"a": 1}', '{"a": [1, -1]}', '{"a": [1, "x"]}', "[" * 1_000, "{}" + " " * 3_000]
)
def test_a_note_from_a_stranger_is_refused(note: str) -> None:
    with pytest.raises((RecordingError, ValueError, RecursionError)):  # all of them name the file where one is read
        unwritten.read(note)


def test_a_note_holds_what_fits(tmp_path: Path) -> None:
    path = write(tmp_path / "run.ostinato")
    note = unwritten.Note(path)
    lost = {f"\u2026{number} " * 60: (number, 5) for number in range(1, 100)}
    note.tell(lost)
    note.close()
    with open_recording(path) as recording:
        counts = [drop.count for drop in recording.drops if drop.where != "a test"]
        assert counts
        assert max(counts) == 99


def test_a_gap_in_the_numbers_of_submissions_is_seen_although_nobody_counted_it(tmp_path: Path) -> None:
    path = write(tmp_path / "run.ostinato", submissions=20)
    with sqlite3.connect(path) as database:
        for table in ("sample_chunks", "submission_values", "dispatches"):
            database.execute(f"DELETE FROM {table}")
        database.execute("DELETE FROM submissions WHERE id IN (5, 6, 11)")
        database.execute("DELETE FROM drops")
    with open_recording(path) as recording:
        check = next(one for one in summarise(recording).checks if one.name == "drops")
    assert check.status == "error"
    assert "3 command buffers missing" in check.sentence


# --- opening --------------------------------------------------------------------------------------------------------


def _after_lines(count: int, act: Callable[[], None], only: str) -> Callable[..., Any]:
    """A trace function that acts once, after so many lines of some files have run."""
    left = count

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        if only not in frame.f_code.co_filename:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                act()
        return trace

    return trace


def _interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(("files", "step"), [("writer.py", 1), ("database.py", 7), ("switching.py", 1)])
def test_an_interrupt_while_a_recording_is_opened_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: str, step: int
) -> None:
    complaints: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda one: complaints.append(repr(one.exc_value)))
    before = sys.getswitchinterval()
    path = tmp_path / "run.ostinato"
    interrupted = 0
    previous = sys.gettrace()
    while True:
        gc.disable()  # all that a writer makes stays among the youngest, so that the heap of other tests is left alone
        sys.settrace(_after_lines(interrupted * step + 1, _interrupt, f"/ostinato/profiling/recording/{files}"))
        try:
            writer = Writer(path)
        except KeyboardInterrupt:
            interrupted += 1
        else:
            break
        finally:
            sys.settrace(previous)
            gc.enable()
        gc.collect(0)
        assert sys.getswitchinterval() == before
        if path.exists():  # it was open, and the finaliser has closed it
            with open_recording(path) as recording:
                assert recording.processes[0].closed
            path.unlink()
        assert not list(tmp_path.iterdir())
    writer.close()
    assert interrupted > 5
    assert not complaints
    assert not switching._holders
    assert read_file(path) == 0


def test_a_kill_while_a_recording_is_opened_leaves_a_whole_one_or_none(tmp_path: Path, script: Script) -> None:
    result = script(
        """
        import os, signal
        from test_recording_loss import _after_lines
        from ostinato.profiling.recording import Writer
        for file, step in (("recording/writer.py", 3), ("recording/database.py", 11), ("recording/unwritten.py", 1)):
            lines = 0
            while True:
                lines += step
                child = os.fork()
                if child == 0:
                    sys.settrace(_after_lines(lines, lambda: os.kill(os.getpid(), signal.SIGKILL), file))
                    Writer(f"{sys.argv[1]}.{file[10]}{lines}.ostinato")
                    os._exit(0)
                if os.waitpid(child, 0)[1] == 0:
                    break
        """,
        str(tmp_path / "run"),
    )
    assert result.returncode == 0, result.stderr
    left = sorted(tmp_path.glob("*.ostinato"))
    assert len(left) > 5
    for path in left:
        with open_recording(path) as recording:
            assert read_everything(recording) == 0
            assert recording.meta["program"]
            assert not recording.processes[0].closed
    write(left[0])  # of a process that is no more: it can be replaced
    assert read_file(left[0]) == 9


def test_a_file_of_no_bytes_may_be_a_recording_that_was_interrupted(tmp_path: Path) -> None:
    (tmp_path / "run.ostinato").touch()
    with pytest.raises(RecordingError, match="interrupted while it was opened"):
        open_recording(tmp_path / "run.ostinato")


def test_a_recording_is_not_put_over_one_that_appeared_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.ostinato"
    first = Writer(path)
    fill(first)
    monkeypatch.setattr("ostinato.profiling.recording.opening.check_replaceable", lambda path: None)
    monkeypatch.setattr("ostinato.profiling.recording.database.remove", lambda path: None)
    with pytest.raises(RecordingError, match="cannot record into"):
        Writer(path)
    first.close()
    assert read_file(path) == 9
