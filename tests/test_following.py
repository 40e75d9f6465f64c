"""A recording is read while it is written: only what is new, without holding up whoever writes it."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from ostinato.errors import RecordingError
from ostinato.profiling.analyse import summarise
from ostinato.profiling.analyse.live import DISTURBED_FROM, Picture, Window
from ostinato.profiling.analyse.validity import Status
from ostinato.profiling.recording import (
    PlanNode,
    Writer,
    chunks,
    following,
    merge,
    open_recording,
    opening,
    plan_kernels,
)
from ostinato.profiling.recording.database import side_files
from ostinato.profiling.recording.following import Follower, State
from ostinato.profiling.report import console
from ostinato.profiling.report.live import as_line, print_picture

WINDOW_NS = 5_000_000_000
MS = 1_000_000
NODES = [
    PlanNode("dispatch", "matvec", digest="a"),
    PlanNode("barrier", "barrier"),
    PlanNode("dispatch", "softmax", digest="b"),
    PlanNode("copy", "copy"),
]


class Program:
    """What a program records: command buffers of one list, each in a region, in the last seconds."""

    def __init__(self, path: Path, nodes: list[PlanNode] = NODES) -> None:
        self.writer = Writer(path)
        self.nodes = len(nodes)
        self.device = self.writer.device("cpu", "cpu")
        self.plan = self.writer.plan(self.device, nodes)
        self.began_ns = time.monotonic_ns() - 2_000 * MS
        self.ordinals = itertools.count(1)

    def token(self, at_ms: float, end: bool = True, **columns: Any) -> int:
        """A token at a time: dispatches one after the other of 1, 2, 3 … ms, committed 1 ms before."""
        begin = self.began_ns + round(at_ms * MS)
        region = self.writer.begin_region("token", begin - 2 * MS)
        starts = begin + np.cumsum(np.arange(self.nodes)) * MS
        ends = starts + np.arange(1, self.nodes + 1) * MS
        number = self.writer.submission(
            device=self.device,
            plan=self.plan,
            ordinal=next(self.ordinals),
            region=region,
            commit_begin_ns=begin - MS,
            commit_end_ns=begin - MS,
            start_ns=begin,
            end_ns=int(ends[-1]),
            **columns,
        )
        self.writer.samples(number, 0, starts, ends)
        if end:
            self.writer.end_region(region, int(ends[-1]))
        return region


class Viewer:
    """What `ostinato live` looks through."""

    def __init__(self, path: Path, window_ns: int = WINDOW_NS) -> None:
        self.follower, self.window = Follower(path, window_ns, DISTURBED_FROM), Window(window_ns)

    def look(self) -> Picture:
        return self.window.add(self.follower.read())


def shown(picture: Picture, width: int = 80) -> str:
    out = io.StringIO()
    print_picture(picture, Path("run.ostinato"), console(out, width))
    return out.getvalue()


def test_each_time_only_what_is_new_is_read_and_the_picture_adds_up(tmp_path: Path) -> None:
    path = tmp_path / "run.ostinato"
    program, viewer = Program(path), Viewer(path)
    program.writer.flush()
    waiting = viewer.look()
    assert waiting.state is State.RUNNING
    assert "waiting for the first command buffer" in shown(waiting)
    for at in (0, 100):
        program.token(at)
    program.writer.flush()
    news = viewer.follower.read()
    assert len(news.dispatches.kernel) == 6  # no barrier
    assert (news.submissions, news.samples, news.regions_begun) == (2, 8, 2)
    viewer.window.add(news)
    program.token(200)
    program.writer.flush()
    news = viewer.follower.read()
    assert len(news.dispatches.kernel) == 3
    assert (news.submissions, news.samples, news.regions_begun) == (3, 12, 3)
    picture = viewer.window.add(news)
    assert [(kernel.name, round(kernel.share * 8)) for kernel in picture.kernels] == [
        ("copy", 4),
        ("softmax", 3),
        ("matvec", 1),
    ]
    seconds = picture.window_ns / 1e9
    assert picture.buffers_per_s == pytest.approx(3 / seconds)
    assert picture.queue_depth == pytest.approx(3 * 11 * MS / picture.window_ns)
    assert picture.busy == pytest.approx(min(1.0, 3 * 8 * MS / picture.window_ns))
    (region,) = picture.regions
    assert (region.name, region.mean_ns) == ("token", 12 * MS)
    assert region.per_s == pytest.approx(3 / seconds)
    assert picture.kernels[0].mean_ns == 4 * MS
    program.writer.close()


def test_shares_are_those_of_a_report(tmp_path: Path) -> None:
    path = tmp_path / "run.ostinato"
    rng = np.random.default_rng(1)
    program, viewer = Program(path, [PlanNode("dispatch", f"k{n}", digest=f"{n}") for n in range(9)]), Viewer(path)
    for turn in range(5):
        number = program.writer.submission(
            device=program.device, plan=program.plan, ordinal=turn, start_ns=program.began_ns, end_ns=program.began_ns
        )
        starts = program.began_ns + rng.integers(0, 100 * MS, 9)
        program.writer.samples(number, 0, starts, starts + rng.integers(1, 50 * MS, 9))
    program.writer.close()
    picture = viewer.look()
    with open_recording(path) as recording:
        expected = {group.name: group.share for group in summarise(recording).kernels}
    assert {kernel.name: pytest.approx(kernel.share) for kernel in picture.kernels} == expected


def test_a_region_that_was_open_counts_when_it_ends_and_once(tmp_path: Path) -> None:
    path = tmp_path / "run.ostinato"
    program, viewer = Program(path), Viewer(path)
    region = program.token(100, end=False)
    program.writer.flush()
    assert viewer.look().regions == ()
    program.writer.end_region(region, program.began_ns + 150 * MS)
    program.writer.flush()
    for _ in range(2):
        picture = viewer.look()
        assert [r.per_s * picture.window_ns / 1e9 for r in picture.regions] == [pytest.approx(1)]
    assert picture.regions_begun == 1
    program.writer.close()


def test_a_region_that_was_open_ends_an_idle_time_when_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "run.ostinato"
    program, viewer = Program(path), Viewer(path)
    region = program.token(-60_000, end=False)
    program.writer.flush()
    assert viewer.look().idle_ns > 60_000 * MS
    program.writer.end_region(region, program.began_ns)
    program.writer.flush()
    assert viewer.look().idle_ns < 60_000 * MS
    program.writer.close()


def test_what_is_older_than_the_window_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "run.ostinato"
    program, viewer = Program(path), Viewer(path, window_ns=1_000 * MS)
    for at in (-9_000, 1_900):
        program.token(at)
    program.writer.flush()
    picture = viewer.look()
    assert picture.submissions == 2
    assert picture.buffers_per_s * picture.window_ns / 1e9 == pytest.approx(1)
    assert picture.regions[0].per_s * picture.window_ns / 1e9 == pytest.approx(1)
    assert sum(k.per_s for k in picture.kernels) * picture.window_ns / 1e9 == pytest.approx(3)
    program.writer.close()


def test_the_program_can_close_its_recording_tidily_while_it_is_watched(tmp_path: Path) -> None:
    path = tmp_path / "run.ostinato"
    program, viewer = Program(path), Viewer(path)
    program.token(0)
    program.writer.flush()
    assert viewer.look().state is State.RUNNING
    program.writer.close()
    assert not any(side.exists() for side in side_files(path))
    assert path.read_bytes()[18:20] == b"\1\1"  # no log
    picture = viewer.look()
    assert picture.state is State.ENDED
    assert picture.over
    assert "ended after" in shown(picture)


def test_closing_waits_a_moment_for_somebody_who_reads(tmp_path: Path) -> None:
    path = tmp_path / "run.ostinato"
    program = Program(path)
    program.writer.flush()
    reader = opening.open_file(path)
    reader.connection.execute("COMMIT")  # it holds the file, but no snapshot
    threading.Timer(0.1, reader.close).start()
    program.writer.close()
    assert path.read_bytes()[18:20] == b"\1\1"


def test_what_could_not_be_read_comes_with_the_next_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.ostinato"
    program, viewer = Program(path), Viewer(path)
    program.token(0)
    program.writer.flush()

    def fail(*arguments: object) -> None:
        raise RecordingError("not now")

    with monkeypatch.context() as patch:
        patch.setattr(chunks, "decode", fail)
        with pytest.raises(RecordingError, match="not now"):
            viewer.look()
    picture = viewer.look()
    assert (picture.submissions, picture.regions_begun, picture.samples) == (1, 1, 4)
    assert len(picture.kernels) == 3
    assert len(picture.regions) == 1
    program.writer.close()


def test_command_buffers_without_timed_dispatches_count_as_busy_once_where_they_overlap(tmp_path: Path) -> None:
    path = tmp_path / "run.ostinato"
    program, viewer = Program(path), Viewer(path)
    timed = [("command_buffers", False), ("dispatches", True), ("command_buffers", False)]
    for (level, probe), begin_ms, end_ms in zip(timed, (0, 4, 200), (10, 14, 206), strict=True):
        begin_ns, end_ns = (program.began_ns + at_ms * MS for at_ms in (begin_ms, end_ms))
        program.writer.submission(
            *(), device=program.device, plan=program.plan, ordinal=1, level=level, probe=probe, start_ns=begin_ns,
            end_ns=end_ns,
        )  # fmt: skip
    program.writer.flush()
    news = viewer.follower.read()
    assert sum(buffers.unsampled_ns for buffers in news.buffers) == 20 * MS
    picture = viewer.window.add(news)
    assert picture.busy == pytest.approx(min(20 * MS / picture.window_ns, 1))
    assert picture.kernels == ()
    assert "no dispatch is timed" in shown(picture)
    program.writer.close()


@pytest.mark.parametrize("level", ["command_buffers", "dispatches"])
def test_a_command_buffer_that_began_before_the_window_counts_from_the_start_of_the_window(
    tmp_path: Path, level: str
) -> None:
    path = tmp_path / "run.ostinato"
    program, viewer = Program(path, [PlanNode("dispatch", "long"), PlanNode("dispatch", "short")]), Viewer(path)
    begin_ns, end_ns = program.began_ns - 60_000 * MS, program.began_ns
    for start_ns in (begin_ns, end_ns - 2_000 * MS):
        number = program.writer.submission(
            *(), device=program.device, plan=program.plan, ordinal=1, level=level, commit_begin_ns=start_ns,
            commit_end_ns=start_ns, start_ns=start_ns, end_ns=end_ns,
        )  # fmt: skip
    if level == "dispatches":
        program.writer.samples(number, 0, [begin_ns, end_ns - 2_000 * MS], [end_ns, end_ns])
    program.writer.close()
    with contextlib.closing(sqlite3.connect(path)) as database:  # it began with what it recorded
        database.execute("UPDATE processes SET start_monotonic_ns = ?", (begin_ns,))
        database.commit()
    picture = viewer.look()
    assert WINDOW_NS <= picture.window_ns < WINDOW_NS * 1.06
    assert picture.queue_depth == pytest.approx(1 + 2_000 * MS / picture.window_ns)
    assert picture.busy == pytest.approx(1)
    if level == "dispatches":
        assert [(kernel.name, kernel.mean_ns) for kernel in picture.kernels] == [
            ("long", 60_000 * MS),
            ("short", 2_000 * MS),
        ]
        assert picture.kernels[1].share == pytest.approx(1_000 * MS / picture.window_ns)


def test_a_program_that_was_killed_is_told_from_one_that_runs(tmp_path: Path) -> None:
    path = tmp_path / "run.ostinato"
    text = "import os, sys, time\nfrom pathlib import Path\nsys.path[:0] = sys.argv[2:]\n"
    text += "from test_following import Program\nprogram = Program(Path(sys.argv[1]))\nprogram.token(0)\n"
    text += "program.writer.flush()\nprint('written', flush=True)\ntime.sleep(100)\n"
    arguments = [sys.executable, "-c", text, str(path), str(Path(__file__).parent)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"written\n"
        viewer = Viewer(path)
        assert viewer.look().state is State.RUNNING
        process.kill()
        process.wait()
    picture = viewer.look()
    assert picture.state is State.KILLED
    assert picture.over
    assert picture.submissions == 1
    assert "killed after" in shown(picture)


def test_a_recording_of_another_machine_may_or_may_not_be_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.ostinato"
    program = Program(path)
    program.writer.flush()
    monkeypatch.setattr(following, "boot", lambda: "another one")
    picture = Viewer(path).look()
    assert picture.state is State.UNKNOWN
    assert "whether it runs is not known" in shown(picture)
    program.writer.close()


def test_a_process_of_another_user_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.ostinato"
    program = Program(path)
    program.writer.flush()

    def refuse(pid: int, number: int) -> None:
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", refuse)
        assert Viewer(path).look().state is State.RUNNING
    program.writer.close()


def test_another_recording_of_the_same_name_is_not_taken_for_the_first(tmp_path: Path) -> None:
    path = tmp_path / "run.ostinato"
    Program(path).writer.close()
    viewer = Viewer(path)
    viewer.look()
    kept = path.rename(tmp_path / "kept.ostinato")  # so that its inode is not used again
    Program(path).writer.close()
    with pytest.raises(RecordingError, match="replaced"):
        viewer.look()
    assert kept.exists()


def test_of_too_many_dispatches_the_newest_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.ostinato"
    program = Program(path)
    for at in range(0, 1000, 10):
        program.token(at)
    program.writer.flush()
    monkeypatch.setattr(following, "_MOST_SAMPLES", 41)
    news = Follower(path, WINDOW_NS, DISTURBED_FROM).read()
    assert news.in_part
    assert news.samples == 400
    assert len(news.dispatches.kernel) == 30
    assert news.dispatches.start_ns.min() == program.began_ns + 900 * MS
    picture = Viewer(path).look()
    assert picture.busy is None
    assert "newest dispatches only" in " ".join(shown(picture).split())
    monkeypatch.setattr(following, "_MOST_SAMPLES", 1000)
    monkeypatch.setattr(following, "_MOST_RUNS", 7)
    assert len(Follower(path, WINDOW_NS, DISTURBED_FROM).read().dispatches.kernel) == 21
    program.writer.close()


def test_of_a_merged_recording_the_newest_chunks_are_looked_at_wherever_they_are(tmp_path: Path) -> None:
    newer, older, merged = (tmp_path / f"{name}.ostinato" for name in ("newer", "older", "merged"))
    for path, at_ms in ((newer, 0), (older, -60_000)):
        program = Program(path)
        for turn in range(3):
            program.token(at_ms + 100 * turn)
            program.writer.flush()  # a chunk each
        program.writer.close()
    merge([newer, older], merged)
    news = Follower(merged, WINDOW_NS, DISTURBED_FROM).read()
    assert len(news.dispatches.kernel) == 9
    assert not news.in_part


def test_no_more_chunks_are_decoded_than_can_be_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.ostinato"
    program = Program(path)
    for _ in range(9):
        number = program.writer.submission(device=program.device, plan=program.plan, ordinal=1)  # its end is not known
        long_ago = program.began_ns - 60_000 * MS + np.arange(4)
        program.writer.samples(number, 0, long_ago, long_ago + MS)
        program.writer.flush()
    program.token(0)
    program.writer.flush()
    monkeypatch.setattr(following, "_MOST_RUNS", 4)
    with mock.patch.object(chunks, "decode", wraps=chunks.decode) as decode:
        news = Follower(path, WINDOW_NS, DISTURBED_FROM).read()
    assert decode.call_count == 4
    assert len(news.dispatches.kernel) == 3
    assert news.in_part
    program.writer.close()


def test_lists_that_are_too_much_to_read_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.ostinato"
    program = Program(path)
    for number in range(5):
        program.plan = program.writer.plan(program.device, [PlanNode("dispatch", f"k{number}")] * 4)
        program.token(100 * number)
    program.writer.flush()
    monkeypatch.setattr(plan_kernels, "_MOST_NEW_NODES", 10)
    viewer = Viewer(path)
    picture = viewer.look()
    assert {kernel.name for kernel in picture.kernels} == {"k4", "k3"}
    assert picture.in_part
    program.writer.close()


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=8),
    st.integers(0, 9),
    st.integers(0, 40),
)
def test_the_last_runs_of_a_chunk_are_those_of_the_whole(lengths: list[int], most_runs: int, most_samples: int) -> None:
    rng = np.random.default_rng(sum(lengths))
    runs = []
    for number, length in enumerate(lengths, 1):
        starts = rng.integers(0, 1 << 40, length)
        nodes = np.sort(rng.choice(20, length, replace=False)).astype(np.int64).tobytes()
        ends = starts + rng.integers(0, 1 << 20, length)
        runs.append(chunks.Run(number, length, 20, nodes, starts.tobytes(), ends.tobytes(), None))
    (chunk,) = chunks.encode(runs).chunks
    whole, some = chunks.decode(chunk), chunks.decode(chunk, most_runs, most_samples)
    kept = len(some.counts)
    assert 1 <= kept <= max(most_runs, 1)
    assert kept == 1 or some.counts.sum() <= most_samples
    assert kept == len(lengths) or kept == most_runs or whole.counts[-kept - 1 :].sum() > most_samples or most_runs == 0
    for name in ("submission", "last_node", "counts"):
        assert getattr(some, name).tolist() == getattr(whole, name)[-kept:].tolist()
    samples = int(some.counts.sum())
    for name in ("node", "start_ns", "end_ns", "status"):
        assert getattr(some, name).tolist() == getattr(whole, name)[-samples:].tolist()


def test_checks_say_what_was_lost_and_who_disturbs(tmp_path: Path) -> None:
    path = tmp_path / "run.ostinato"
    program, viewer = Program(path), Viewer(path)
    program.token(0, worked_ns=20 * MS, lost_ns=0, joined=2)
    program.writer.flush()
    drops, machine, measured = viewer.look().checks
    assert {drops.status, machine.status, measured.status} == {Status.FINE}
    for at in (100, 200):
        program.token(at, worked_ns=20 * MS, lost_ns=5 * MS, joined=2)
    program.writer.drop("a test", 7)
    program.writer.submission(device=program.device, plan=program.plan, ordinal=9, executed=False, error="it broke")
    program.writer.flush()
    drops, machine, measured = viewer.look().checks
    assert (drops.status, drops.sentence) == (Status.ERROR, "7 dropped (7 a test)")
    assert machine.status is Status.ERROR
    assert machine.sentence == "other programs took 16.7 % of the workers' time; 2 of 3 runs disturbed"
    assert (measured.status, measured.sentence) == (Status.NOTED, "1 command buffer failed")
    assert "drops: 7 dropped (7 a test)" in as_line(viewer.look())
    program.writer.close()


def test_kernels_of_one_name_are_told_apart_and_texts_are_read_once(tmp_path: Path) -> None:
    path = tmp_path / "run.ostinato"
    nodes = [PlanNode("dispatch", "work", digest=str(n), constants=(("N", str(n)),)) for n in (4, 8)]
    program, viewer = Program(path, nodes), Viewer(path)
    program.token(0)
    program.writer.flush()
    assert [kernel.name for kernel in viewer.look().kernels] == ["work [N=8]", "work [N=4]"]
    program.writer.close()


HOSTILE = ("[red]x[/red]", "\x1b[2J\x1b]0;title\x07", "\u202eevil", "a\nb", "name_" * 30)


@pytest.mark.parametrize("width", [120, 80, 40])
def test_hostile_names_neither_act_nor_break_the_picture(tmp_path: Path, width: int) -> None:
    path = tmp_path / "run.ostinato"
    program, viewer = Program(path, [PlanNode("dispatch", name, digest=name) for name in HOSTILE]), Viewer(path)
    program.token(0)
    for name in HOSTILE:
        region = program.writer.begin_region(name, program.began_ns)
        program.writer.end_region(region, program.began_ns + MS)
        program.writer.drop(name)
        program.writer.device(name, name, held_back_by=name)
    program.writer.meta("program", "".join(HOSTILE))
    program.writer.flush()
    picture = viewer.look()
    text = shown(picture, width)
    assert max(map(cell_len, text.splitlines())) <= width
    for shape in (text, as_line(picture)):
        assert not any(ord(c) < 32 and c != "\n" for c in shape)
        assert "\u202e" not in shape
        assert "[red]x[/red]" in shape
    assert "\n" not in as_line(picture)
    program.writer.close()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE sample_chunks SET data = zeroblob(length(data))",
        "UPDATE plans SET node_commands = x'ffffffff'",
        "UPDATE submissions SET plan = 77",
        "DELETE FROM submissions",
        "UPDATE submissions SET end_ns = 'late'",
        "UPDATE regions SET name = 99",
        "UPDATE regions SET end_ns = 9223372036854775807, begin_ns = -9223372036854775807",
    ],
)
def test_damage_is_an_error_that_names_the_file(tmp_path: Path, change: str) -> None:
    path = tmp_path / "run.ostinato"
    program = Program(path)
    program.token(0)
    program.writer.close()
    with sqlite3.connect(path) as connection:
        connection.execute(change)
    connection.close()
    with pytest.raises(RecordingError, match=r"run\.ostinato"):
        Viewer(path).look()
