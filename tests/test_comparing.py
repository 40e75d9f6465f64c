"""`ostinato compare` of recordings, folders, programs, graphs and baselines: verdicts and exit statuses."""

from __future__ import annotations

import io
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

import ostinato as ost
from made_runs import spread_out, write_in_turns, write_run
from ostinato.cli.group import main, still_line
from ostinato.measure import baselines, spreads
from ostinato.measure.programs import Command, recorded
from ostinato.profiling.analyse.comparison import Key
from ostinato.profiling.analyse.units import read_unit
from ostinato.profiling.analyse.verdicts import Spread, Spreads
from ostinato.profiling.recording import Writer

TIMES = {"matmul": 200_000.0, "softmax": 50_000.0}
SLOWER = {"matmul": 260_000.0, "softmax": 50_000.0}


def ostinato(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["compare", *map(str, arguments)], env={"COLUMNS": "100"})


def runs(folder: Path, a: dict[str, float], b: dict[str, float], count: int = 6) -> tuple[Path, Path]:
    return write_in_turns(folder, spread_out(a, 0.001, count, 1), spread_out(b, 0.001, count, 2))


# --- recordings ----------------------------------------------------------------------------------------------


def test_a_slower_kernel_ends_with_1_and_is_named(tmp_path: Path) -> None:
    done = ostinato(*runs(tmp_path, TIMES, SLOWER))
    assert done.exit_code == 1, done.output
    closing = done.stdout.rstrip().splitlines()[-1]
    assert closing.startswith("SLOWER: graph token (1.2")
    assert "kernel matmul (1.30" in closing
    assert "softmax" not in closing


def test_the_same_program_ends_with_0_also_strictly(tmp_path: Path) -> None:
    done = ostinato(*runs(tmp_path, TIMES, TIMES), "--strict")
    assert done.exit_code == 0, done.output
    assert done.stdout.rstrip().splitlines()[-1].startswith("SAME: ")


def test_a_faster_program_ends_with_0(tmp_path: Path) -> None:
    done = ostinato(*runs(tmp_path, SLOWER, TIMES), "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["verdict"] == "faster"
    (matmul,) = (row for row in report["rows"] if row["name"] == "matmul")
    assert (matmul["label"], matmul["grid"]) == ("decode/layer.*/matmul", "256×1×1 / 64×1×1")
    assert matmul["ratio"]["low"] < 200 / 260 < matmul["ratio"]["high"]


def test_delta_is_what_counts_as_the_same(tmp_path: Path) -> None:
    sides = runs(tmp_path, TIMES, SLOWER)
    assert ostinato(*sides, "--delta", "40%", "--strict").exit_code == 0
    assert ostinato(*sides, "--delta", "0.2").exit_code == 1


def test_neighbouring_runs_cancel_what_changes_slowly(tmp_path: Path) -> None:
    drift = [float(np.exp(0.05 * number)) for number in range(8)]
    a = [{name: ns * factor for name, ns in TIMES.items()} for factor in drift]
    b = [{name: ns * factor * 1.1 for name, ns in TIMES.items()} for factor in drift]
    sides = write_in_turns(tmp_path, a, b)
    report = json.loads(ostinato(*sides, "--json").stdout)
    assert report["paired"]
    assert {row["verdict"] for row in report["rows"]} == {"slower"}
    (sides[1] / "7.ostinato").unlink()
    apart = json.loads(ostinato(*sides, "--json").stdout)
    assert not apart["paired"]
    assert {row["verdict"] for row in apart["rows"]} == {"cannot tell"}


def test_two_single_recordings_have_intervals_and_no_verdict(tmp_path: Path) -> None:
    a = write_run(tmp_path / "a.ostinato", TIMES, noise=0.01)
    b = write_run(tmp_path / "b.ostinato", SLOWER, noise=0.01)
    done = ostinato(a, b, "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert {row["verdict"] for row in report["rows"]} == {"cannot tell"}
    for row in report["rows"]:
        assert row["ratio"] is None
        assert row["a"]["interval"]["low"] < row["a"]["median_ns"] < row["a"]["interval"]["high"]
    assert "ostinato calibrate --processes" in report["notes"][0]
    assert ostinato(a, b, "--strict").exit_code == 3


def test_a_calibration_lets_single_recordings_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = Spreads(((1_000.0, Spread(0.01, 19)),))
    monkeypatch.setattr("ostinato.cli.compare.known_spreads", lambda devices: known)
    a, b, near = (
        write_run(tmp_path / f"{name}.ostinato", {name: ns * factor for name, ns in TIMES.items()})
        for name, factor in (("a", 1.0), ("b", 1.3), ("near", 1.02))
    )
    slower = ostinato(a, b)
    assert slower.exit_code == 1
    assert "in one calibration. It does not show what changes over hours" in " ".join(slower.stdout.split())
    assert ostinato(a, near, "--strict").exit_code == 3
    tiny = write_run(tmp_path / "tiny.ostinato", {"matmul": 900.0})
    other = write_run(tmp_path / "other.ostinato", {"matmul": 2_000.0})
    assert ostinato(tiny, other).exit_code == 0  # shorter than anything that was calibrated


def test_recordings_that_were_not_made_in_turns_have_no_verdict(tmp_path: Path) -> None:
    for side, times in (("A", TIMES), ("B", SLOWER)):
        for number in range(6):
            write_run(tmp_path / side / f"{number}.ostinato", times)
    done = ostinato(tmp_path / "A", tmp_path / "B")
    assert done.exit_code == 0, done.output
    assert "were not made in turns" in done.stdout
    assert done.stdout.rstrip().splitlines()[-1].startswith("CANNOT TELL: ")


def test_a_folder_in_a_folder_is_one_run_of_several_processes(tmp_path: Path) -> None:
    for number in range(5):
        for side, times in (("A", TIMES), ("B", SLOWER)) if number % 2 == 0 else (("B", SLOWER), ("A", TIMES)):
            for process in range(2):
                write_run(tmp_path / side / f"{number}" / f"{process}.ostinato", times)
    done = ostinato(tmp_path / "A", tmp_path / "B", "--json")
    assert done.exit_code == 1, done.output
    report = json.loads(done.stdout)
    assert {row["a"]["units"] for row in report["rows"]} == {5}
    assert "5 runs, 10 processes" in report["about"][0]


def test_what_is_only_on_one_side_is_listed(tmp_path: Path) -> None:
    more = TIMES | {"extra": 10_000.0}
    done = ostinato(*runs(tmp_path, TIMES, more))
    assert "Only in B: kernel extra in decode/layer.*/extra (256×1×1 / 64×1×1)" in done.stdout
    assert "Only in A" not in done.stdout


def test_what_never_ran_undisturbed_is_not_missing(tmp_path: Path) -> None:
    a = write_run(tmp_path / "a.ostinato", TIMES)
    b = write_run(tmp_path / "b.ostinato", TIMES, lost=0.5)
    done = ostinato(a, b)
    assert "Only in" not in done.stdout
    assert "workers' time taken by other programs: A 0 %, B 50.0 %" in done.stdout
    report = json.loads(ostinato(a, b, "--json").stdout)
    for row in report["rows"]:
        assert (row["a"]["units"], row["b"]["units"], row["b"]["runs"]) == (1, 0, 0)
        assert row["b"]["median_ns"] == pytest.approx(row["a"]["median_ns"], rel=1e-6)


def test_different_devices_are_refused_unless_allowed(tmp_path: Path) -> None:
    a = write_run(tmp_path / "a.ostinato", TIMES, "two cores")
    b = write_run(tmp_path / "b.ostinato", TIMES, "four cores")
    done = ostinato(a, b)
    assert done.exit_code == 2
    assert "A on two cores (cpu, 2 workers), B on four cores (cpu, 2 workers)" in done.stderr
    allowed = ostinato(a, b, "--allow-different-devices")
    assert allowed.exit_code == 0, allowed.output
    assert "CANNOT TELL" in allowed.stdout
    assert "  device: A two cores (cpu, 2 workers), B four cores (cpu, 2 workers)\n" in allowed.stdout


def test_nothing_in_common_is_not_comparable(tmp_path: Path) -> None:
    a = write_run(tmp_path / "a.ostinato", TIMES)
    b = tmp_path / "b.ostinato"
    with Writer(b) as writer:
        writer.device("cpu", "cpu", description="two cores", workers=2)
    done = ostinato(a, b)
    assert done.exit_code == 2
    assert "nothing to compare: no kernel, label or graph with a time is in both (" in done.stderr
    assert "0 only in B" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "give A and B"),
        (("{a}",), "give A and B"),
        (("{a}", "{text}"), "not a recording"),
        (("{a}", "{newer}"), "is of version 99, made by a newer ostinato"),
        (("{a}", "{empty}"), "there are no recordings"),
        (("{a}", "{graph}"), "a saved graph is compared with another saved graph"),
        (("{a}", "{a}", "--json", "--markdown"), "exclude each other"),
        (("{a}", "{a}", "--delta", "2"), "not a part between 0 and 1"),
        (("{a}", "{a}", "--save", "x"), "this one records nothing"),
        (("{a}", "{a}", "--keep"), "go together"),
        (("{a}", "{a}", "--runs", "10"), "--runs applies to commands, not to recordings"),
        (("{a}", "{a}", "--seconds", "3"), "--seconds applies to saved graphs, not to recordings"),
        (("{a}", "{a}", "--device", "cpu"), "--device applies to saved graphs, not to recordings"),
        (("{graph}", "{graph}", "--runs", "10"), "--runs applies to commands, not to saved graphs"),
        (("{graph}", "{graph}", "--allow-different-devices"), "applies to commands and recordings, not to saved"),
        (("--seconds", "3", "--", "one", "--", "two"), "--seconds applies to saved graphs, not to commands"),
        (("--baseline", "b", "--baselines", "{empty}", "{a}", "--runs", "10"), "--runs applies to commands"),
        (("--baseline", "main", "{a}"), "go together"),
        (("--baseline", "main", "--baselines", "{empty}"), "give the recordings"),
        (("--baseline", "../main", "--baselines", "{empty}", "{a}"), "'../main' is not a name"),
        (("--baseline", "main", "--baselines", "{empty}", "{a}"), "there is no baseline 'main' of two cores"),
        (("--", "one"), "give two commands"),
        (("--", "one", "--", "two", "--", "three"), "give two commands"),
        (("--", "--", "two"), "give two commands"),
        (("{a}", "--", "one", "--", "two"), "not both"),
        (("--", "{empty}/missing", "--", "true"), "No such file or directory"),
        (("--", sys.executable, "-c", "print('why')\nexit(3)", "--", "true"), "exit status 3; its last line: why"),
        (
            (
                "--",
                sys.executable,
                "-c",
                "print('why')\nprint('ostinato: recorded in x; to see it: …')\nexit(3)",
                "--",
                "true",
            ),
            "exit status 3; its last line: why",
        ),
        (("--", sys.executable, "-c", "", "--", "true"), "recorded nothing"),
    ],
)
def test_what_cannot_be_compared_is_one_sentence_and_ends_with_2(
    arguments: tuple[str, ...], problem: str, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("no recording")
    (tmp_path / "graph").write_bytes(b"PK\3\4")
    write_run(tmp_path / "a", TIMES)
    shutil.copyfile(tmp_path / "a", tmp_path / "newer")
    with closing(sqlite3.connect(tmp_path / "newer")) as newer:
        newer.execute("PRAGMA user_version = 99")
    files = {name: tmp_path / name for name in ("a", "text", "empty", "graph", "newer")}
    done = ostinato(*(argument.format(**files) for argument in arguments))
    assert done.exit_code == 2, done.output
    assert problem in done.stderr
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) <= 4  # click's usage and the sentence
    assert list((tmp_path / "empty").iterdir()) == []


def test_an_interrupt_is_not_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ostinato.cli.compare.run_in_turns", interrupted)
    assert ostinato("--", "one", "--", "two").exit_code == 130


def test_an_error_that_nobody_foresaw_is_not_a_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ostinato.cli.compare.read_unit", lambda *arguments: 1 / 0)
    a, b = (write_run(tmp_path / f"{name}.ostinato", TIMES) for name in "ab")
    done = ostinato(a, b)
    assert done.exit_code == 2
    assert "ZeroDivisionError" in done.stderr


def test_runs_of_different_programs_are_taken_together_and_that_is_said(tmp_path: Path) -> None:
    a, b = runs(tmp_path, TIMES, TIMES)
    for file in sorted(a.iterdir())[:2]:
        with closing(sqlite3.connect(file)) as database:
            database.execute("UPDATE meta SET value = 'other.py' WHERE key = 'program'")
            database.commit()
    first, second = json.loads(ostinato(a, b, "--json").stdout)["about"]
    assert first.startswith("A: 2 different programs, taken together: 4 runs of ")
    assert ", 2 runs of other.py (6 runs" in first
    assert "different programs" not in second


def test_a_recording_is_not_compared_with_itself(tmp_path: Path) -> None:
    a = write_run(tmp_path / "a.ostinato", TIMES)
    (tmp_path / "link").symlink_to(a)
    done = ostinato(a, tmp_path / "link")
    assert done.exit_code == 2
    assert done.stderr == "error: A and B are the same recordings\n"


def test_a_closed_pipe_is_not_a_verdict(tmp_path: Path) -> None:
    a, b = (write_run(tmp_path / f"{name}.ostinato", TIMES) for name in "ab")
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "ostinato", "compare", str(a), str(b)]
    tables, report = (
        subprocess.Popen([*command, *options], stdout=writer, stderr=subprocess.PIPE) for options in ([], ["--json"])
    )
    os.close(writer)
    assert [(process.communicate()[1], process.returncode) for process in (tables, report)] == [(b"", 2), (b"", 2)]


# --- programs ------------------------------------------------------------------------------------------------

PROGRAM = """
import sys
import numpy as np
import ostinato as ost

with ost.open_device("cpu") as dev:
    work = dev.library(
        "kernel void work(device float *x [[buffer(0)]], constant uint &n [[buffer(1)]],"
        " uint id [[thread_position_in_grid]]) { for (uint i = 0; i < n; ++i) x[id] = x[id] * 0.5f + 1.0f; }"
    )["work"]
    x = dev.zeros(1024, np.float32)
    run = dev.capture(lambda enc: enc.dispatch(work, x, int(sys.argv[-1]), threads=1024), label="work").instantiate()
    for _ in range(50):
        run.replay().wait()
print("--", "done")
"""

MADE_BEFORE = """
import os, sys

folder = sys.argv[-1]
first = sorted(os.listdir(folder))[0]
os.rename(os.path.join(folder, first), os.environ["OSTINATO_PROFILE_FILE"].format(pid=os.getpid()))
"""


def test_a_program_is_recorded_through_its_environment(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    unit = read_unit(recorded(Command("A", (sys.executable, str(script), "--fast", "200")), tmp_path / "run"))
    assert Key("graph", "work", grid="1") in unit.times
    assert unit.origins[0].program == "program.py --fast 200"
    assert (tmp_path / "run" / "output.txt").read_text().startswith("-- done\n")


def test_two_programs_run_in_turns_and_can_be_compared_again(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(MADE_BEFORE)
    a, b = runs(tmp_path / "made", TIMES, SLOWER, 5)
    python = (sys.executable, "-I", "-S", script)
    saved = tmp_path / "runs"
    done = ostinato("--runs", "5", "--save", saved, "--", *python, "--fast", a, "--", *python, b)
    assert done.exit_code == 1, done.output
    assert "SLOWER: graph token (" in done.stdout
    assert sorted(path.name for path in (saved / "B").iterdir()) == list("12345")
    again = ostinato(saved / "A", saved / "B", "--json")
    assert again.exit_code == 1, again.output
    ran = [(file.stat().st_mtime_ns, file.parts[-3]) for file in saved.glob("*/*/output.txt")]
    assert "".join(side for _, side in sorted(ran)) == "ABBAABBAAB"
    kept = ostinato("--save", saved, "--", "true", "--", "true")
    assert kept.exit_code == 2
    assert "exists already" in kept.stderr


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_beside_a_measurement_is_a_line_that_stands_still(
    terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.StringIO()
    monkeypatch.setattr(out, "isatty", lambda: terminal)
    monkeypatch.setattr(sys, "stderr", out)
    monkeypatch.setenv("COLUMNS", "20")
    with still_line() as show:
        show("run 1 of 10: \x1b]0;title and much more")
    lines = out.getvalue().split("\r\x1b[K")
    assert lines == (["", "run 1 of 10: \\x1b]…", ""] if terminal else [""])


# --- saved graphs --------------------------------------------------------------------------------------------


def test_saved_graphs_are_replayed_in_turns(dev: ost.Device, kernels: ost.Library, tmp_path: Path) -> None:
    for name, count in (("a", 4), ("b", 16)):
        x = dev.zeros(4096, np.float32)

        def encode(enc: ost.CommandEncoder, x: ost.Buffer = x, count: int = count) -> None:
            for _ in range(count):
                enc.dispatch(kernels["bump"], x, threads=4096)

        dev.capture(encode, label="bumps").save(tmp_path / f"{name}.ostgraph")
    saved = tmp_path / "run.ostinato"
    graphs = tmp_path / "a.ostgraph", tmp_path / "b.ostgraph"
    done = ostinato(*graphs, "--device", "cpu", "--seconds", "0.5", "--save", saved, "--json")
    report = json.loads(done.stdout)
    assert (report["unit"], report["paired"], report["names"]) == ("round", True, ["A", "B"])
    (graph,) = (row for row in report["rows"] if row["kind"] == "graph")
    assert (graph["name"], graph["grid"]) == ("bumps", "4 → 16")
    assert graph["verdict"] in ("slower", "cannot tell")  # how busy the machine is, is not up to a test
    assert done.exit_code == any(row["verdict"] == "slower" for row in report["rows"])
    assert report["differences"] is None
    assert saved.exists()


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(
    dev: ost.Device, kernels: ost.Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(*arguments: object) -> None:
        raise AssertionError("it measured")

    monkeypatch.setattr("ostinato.measure.comparing.Rounds", measured)
    x = dev.zeros(64, np.float32)
    graphs = tmp_path / "a.ostgraph", tmp_path / "b.ostgraph"
    for path in graphs:
        dev.capture(lambda enc: enc.dispatch(kernels["bump"], x, threads=64)).save(path)
    (tmp_path / "kept").write_text("kept")
    for file, problem in (("kept", "kept' exists already; name another file"), ("no/x", "there is no folder")):
        done = ostinato(*graphs, "--device", "cpu", "--save", tmp_path / file)
        assert done.exit_code == 2
        assert problem in done.stderr
    assert (tmp_path / "kept").read_text() == "kept"


# --- baselines -----------------------------------------------------------------------------------------------


def test_a_baseline_is_kept_compared_with_and_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = Spreads(((1_000.0, Spread(0.001, 19)),))
    monkeypatch.setattr("ostinato.cli.compare.known_spreads", lambda devices: known)
    a, b = write_run(tmp_path / "a.ostinato", TIMES), write_run(tmp_path / "b.ostinato", SLOWER)
    options = ("--baselines", tmp_path / "perf", "--baseline", "main")
    first = ostinato(*options, a, "--keep")
    assert first.exit_code == 0, first.output
    assert "baseline 'main': 1 run kept" in first.stderr
    assert ostinato(*options, b).exit_code == 1
    assert ostinato(*options, a, "--strict").exit_code == 0
    assert ostinato(*options, b, "--keep").exit_code == 1  # it says so, and keeps it
    assert ostinato(*options, b, "--strict").exit_code == 0
    (device,) = (tmp_path / "perf" / "main").iterdir()
    assert sorted(path.name for path in device.iterdir()) == ["1", "2"]
    assert ostinato(device / "2", b, "--strict").exit_code == 0
    other = write_run(tmp_path / "other.ostinato", TIMES, "four cores")
    assert ostinato(*options, other).exit_code == 2


def test_a_baseline_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    recording = write_run(tmp_path / "a.ostinato", TIMES)
    kept = baselines.keep_baseline(tmp_path / "perf", "main", ["cpu"], [[recording]])
    with pytest.raises(FileNotFoundError):
        baselines.keep_baseline(tmp_path / "perf", "main", ["cpu"], [[recording], [tmp_path / "missing"]])
    assert baselines.kept_baseline(tmp_path / "perf", "main", ["cpu"]) == kept
    assert list(kept.parent.iterdir()) == [kept]


def test_the_last_baseline_stays_for_readers_and_what_killed_writers_left_goes(tmp_path: Path) -> None:
    recording = write_run(tmp_path / "a.ostinato", TIMES)
    kept = baselines.keep_baseline(tmp_path / "perf", "main", ["cpu"], [[recording]])
    stale, recent = kept.parent / ".unfinished-stale", kept.parent / ".unfinished-recent"
    (stale / "baseline").mkdir(parents=True)
    recent.mkdir()
    os.utime(stale, (0, 0))
    for _ in range(2):
        baselines.keep_baseline(tmp_path / "perf", "main", ["cpu"], [[recording]])
    assert sorted(path.name for path in kept.parent.iterdir()) == [recent.name, "2", "3"]


def test_a_baseline_of_a_killed_program_keeps_its_log(tmp_path: Path) -> None:
    recording = write_run(tmp_path / "a.ostinato", TIMES)
    (tmp_path / "a.ostinato-wal").write_bytes(b"log")
    kept = baselines.keep_baseline(tmp_path / "perf", "main", ["cpu"], [[recording]])
    assert (kept / "1" / "1.ostinato-wal").read_bytes() == b"log"


@settings(max_examples=30)
@given(st.text(max_size=8) | st.sampled_from(["..", ".", "", "/etc", "a/b", "a\0", "-x", "a" * 101]))
def test_the_name_of_a_baseline_never_leaves_its_folder(name: str) -> None:
    folder = Path("perf")
    try:
        place = baselines._place(folder, name, ["cpu\0../.."])
    except ost.ArgumentError:
        return
    assert place.parent.parent == folder
    assert place.parent.name == name
    assert ".." not in place.parts


# --- how much processes differ -------------------------------------------------------------------------------


def test_processes_of_one_program_are_calibrated_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spreads, "LEAST_PROCESSES", 2)
    rows = spreads.calibrate_processes("cpu", 2)
    assert {(row.calibrations, row.processes) for row in rows} == {(1, 2)}
    assert [row.median_ns for row in rows] == sorted(row.median_ns for row in rows)
    assert all(row.two_recordings > row.deviation > 0 for row in rows)
    names = {row.name for row in rows}
    assert {"graph tiny", "kernel spread_arithmetic tiny", "kernel spread_copy tiny"} <= names
    kind = next(info for info in ost.devices() if info.name == "cpu").capabilities
    assert kind is not None
    known = spreads.known_spreads([f"{kind.description} (cpu, {kind.workers} workers)"])
    assert known is not None
    assert len(known.by_time) == len(rows)
    assert known.at(rows[0].median_ns / 2) is None
    assert spreads.known_spreads(["another device"]) is None


def test_several_calibrations_count_what_differs_between_them() -> None:
    generator = np.random.default_rng(7)

    def made(*middles: float) -> tuple[tuple[float, ...], ...]:
        return tuple(tuple(np.exp(generator.normal(middle, 0.01, 20)).tolist()) for middle in middles)

    (single,) = made(0.0)
    assert spreads._spread((single,)).deviation == pytest.approx(np.log(single).std(ddof=1))
    assert spreads._spread((single,)).freedom == 19
    hours = spreads._spread(made(0.0, 0.1, -0.1))
    assert hours.deviation == pytest.approx(0.1, rel=0.1)
    assert hours.freedom == 2
    alike = spreads._spread(made(0.0, 0.0, 0.0))
    assert alike.deviation == pytest.approx(0.01, rel=0.2)
    assert alike.freedom > 30


@given(st.lists(st.lists(st.floats(1, 1e6), min_size=5, max_size=70).map(tuple), min_size=1, max_size=9).map(tuple))
def test_the_newest_processes_of_calibrations_are_kept(calibrations: tuple[tuple[float, ...], ...]) -> None:
    kept = spreads._newest(calibrations)
    flat, all_times = ([ns for times in each for ns in times] for each in (kept, calibrations))
    assert flat == all_times[-60:]
    assert spreads._read(json.dumps({"a": kept})) == {"a": kept}
    assert spreads._spread(kept).deviation >= 0


@given(st.lists(st.tuples(st.integers(1, 9), st.floats(0, 1)), max_size=6), st.integers(1, 9))
def test_a_spread_is_the_largest_of_the_next_shorter_kernel_and_all_longer_ones(
    rows: list[tuple[int, float]], time_ns: int
) -> None:
    spread = Spreads(tuple((at, Spread(deviation, 4)) for at, deviation in sorted(rows))).at(time_ns)
    shorter = [row for row in sorted(rows) if row[0] <= time_ns]
    if not shorter:
        assert spread is None
    else:
        assert spread is not None
        assert spread.deviation == max([shorter[-1][1], *(deviation for at, deviation in rows if at > time_ns)])


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"a": 1}', '{"a": [1, 2]}', '{"a": [[1, 2, 3, 4, -5]]}', '{"a": [[true, 1, 1, 1, 1]]}', "{" * 9999],
)
def test_a_damaged_calibration_counts_as_none(text: str) -> None:
    assert spreads._read(text) == {}
