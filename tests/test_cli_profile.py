"""`ostinato profile`, `report`, `merge` and `calibrate`, as processes of their own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = """
import sys
import numpy as np
import ostinato as ost

dev = ost.open_device("cpu")
bump = dev.library(
    "kernel void bump(device float *x [[buffer(0)]], uint id [[thread_position_in_grid]]) { x[id] += 1.0f; }"
)["bump"]
x = dev.zeros(4096, np.float32)

def token(enc):
    for layer in range(3):
        with enc.scope(f"decode/layer.{layer}"):
            enc.dispatch(bump, x, threads=4096, bytes_read=x.nbytes, bytes_written=x.nbytes)

def main():
    run = dev.capture(token, label="token").instantiate()
    for _ in range(int(sys.argv[1])):
        with ost.region("token"):
            run.replay()
    print("done", x.numpy()[0])

if __name__ == "__main__":
    main()
    sys.exit(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "decode.py"
    path.write_text(PROGRAM)
    return path


def ostinato(*arguments: object, folder: Path, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ostinato", *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env=os.environ | {"COLUMNS": "100"},
    )


def test_a_program_is_recorded_and_its_status_passed_on(program: Path, tmp_path: Path) -> None:
    done = ostinato("profile", "decode.py", "10", "7", folder=tmp_path)
    assert done.returncode == 7, done.stderr
    assert "done 30.0" in done.stdout
    assert "recorded in decode.ostinato" in done.stdout
    assert "\n\ndecode.py 10 7\n" in done.stdout  # not the command that recorded it
    assert done.stdout.rstrip().splitlines()[-1].startswith("Look first at bump: ")
    assert max(map(len, done.stdout.rstrip().splitlines()[:-1])) <= 100
    again = ostinato("report", "decode.ostinato", folder=tmp_path)
    assert again.returncode == 0
    assert again.stdout.rstrip().splitlines()[-1] == done.stdout.rstrip().splitlines()[-1]


def test_a_report_groups_and_counts_by_what_is_asked_for(program: Path, tmp_path: Path) -> None:
    assert ostinato("profile", "decode.py", "10", folder=tmp_path).returncode == 0
    plain = ostinato("report", "decode.ostinato", folder=tmp_path).stdout
    assert "Kernels\n" in plain
    assert "Labels\n" in plain
    assert "Op kinds" not in plain
    grouped = ostinato("report", "decode.ostinato", "--by", "op", "--by", "shape", folder=tmp_path)
    assert grouped.returncode == 0, grouped.stderr
    assert "Op kinds\n" in grouped.stdout
    assert "threads 4096×1×1" in " ".join(grouped.stdout.split())
    assert "Kernels\n" not in grouped.stdout
    per = ostinato("report", "decode.ostinato", "--per", "token", "--json", folder=tmp_path)
    assert json.loads(per.stdout)["repeated_region"] == "token"
    wrong = ostinato("report", "decode.ostinato", "--per", "layer", folder=tmp_path)
    assert wrong.returncode == 2
    assert "there is no region named 'layer' in this recording; there are: 'token'" in " ".join(wrong.stderr.split())
    assert ostinato("report", "decode.ostinato", "--by", "colour", folder=tmp_path).returncode == 2


def test_with_json_standard_output_holds_only_the_json(program: Path, tmp_path: Path) -> None:
    done = ostinato("profile", "--json", "-o", "run.ostinato", "decode.py", "10", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "done 30.0" in done.stderr
    for text in (done.stdout, ostinato("report", "--json", "run.ostinato", folder=tmp_path).stdout):
        found = json.loads(text)
        assert {"version", "kernels", "labels", "suspects", "drift", "perturbation", "drops"} <= found.keys()
        assert found["kernels"][0]["name"] == "bump"
        assert found["kernels"][0]["count"] == 30


def test_a_function_of_a_module_is_a_program_too(program: Path, tmp_path: Path) -> None:
    done = ostinato("profile", "-o", "f.ostinato", "decode:main", "4", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "done 12.0" in done.stdout


def test_a_module_is_a_program_as_it_is_for_python(program: Path, tmp_path: Path) -> None:
    package = tmp_path / "tool"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text("import sys\nfrom decode import main\nprint(sys.argv)\nmain()\n")
    for named, recorded in (
        (["-m", "tool"], "tool"),
        (["python", "-m", "tool"], "tool-2"),
        ([sys.executable, "decode.py"], "decode"),
        (["python3", "decode.py"], "decode-2"),
    ):
        done = ostinato("profile", *named, "4", folder=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "done 12.0" in done.stdout
        assert f"recorded in {recorded}.ostinato" in done.stdout
        assert (f"{package / '__main__.py'}', '4'" in done.stdout) == ("-m" in named)


def test_a_recording_is_replaced_only_by_force(program: Path, tmp_path: Path) -> None:
    assert ostinato("profile", "-o", "run.ostinato", "decode.py", "2", folder=tmp_path).returncode == 0
    before = (tmp_path / "run.ostinato").read_bytes()
    for arguments in (
        ("profile", "-o", "run.ostinato", "decode.py", "3"),
        ("merge", "run.ostinato", "-o", "run.ostinato"),
        ("demo", "-o", "run.ostinato"),
        ("decode", "--preset", "tiny", "--profile", "dispatches", "-o", "run.ostinato"),
    ):
        refused = ostinato(*arguments, folder=tmp_path)
        assert refused.returncode == 1
        assert "error: run.ostinato exists already; replace it with --force" in refused.stderr
    assert ostinato("report", "run.ostinato", "--trace", "run.ostinato", folder=tmp_path).returncode == 1
    assert (tmp_path / "run.ostinato").read_bytes() == before
    forced = ostinato("profile", "--force", "-o", "run.ostinato", "decode.py", "3", folder=tmp_path)
    assert forced.returncode == 0, forced.stderr
    found = json.loads(ostinato("report", "--json", "run.ostinato", folder=tmp_path).stdout)
    assert found["kernels"][0]["count"] == 9
    (tmp_path / "decode.ostinato").write_text("mine")
    for number in (2, 3):
        again = ostinato("profile", "decode.py", "2", folder=tmp_path)
        assert f"recorded in decode-{number}.ostinato" in again.stdout
    assert (tmp_path / "decode.ostinato").read_text() == "mine"


def test_a_report_is_as_wide_as_asked_for(program: Path, tmp_path: Path) -> None:
    assert ostinato("profile", "decode.py", "10", folder=tmp_path).returncode == 0
    narrow = ostinato("report", "decode.ostinato", "--width", "70", folder=tmp_path).stdout
    assert max(map(len, narrow.splitlines()[:-1])) <= 70
    assert "hidden: " in narrow
    wide = ostinato("report", "decode.ostinato", "--width", "160", folder=tmp_path).stdout
    assert "hidden: " not in wide
    assert max(map(len, wide.splitlines()[:-1])) > 100


def test_a_trace_has_device_and_host_tracks_and_flows_between_them(program: Path, tmp_path: Path) -> None:
    ostinato("profile", "decode.py", "5", folder=tmp_path)
    done = ostinato("report", "decode.ostinato", "--trace", "trace.json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {"M", "X", "s", "f", "C"} <= {event["ph"] for event in events}
    assert sum(event["ph"] == "X" and event["name"] == "bump" for event in events) == 15
    begun = {event["id"] for event in events if event["ph"] == "s"}
    assert begun
    assert begun == {event["id"] for event in events if event["ph"] == "f"}


def test_recordings_of_two_processes_become_one(program: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert ostinato("profile", "-o", f"{name}.ostinato", "decode.py", "3", folder=tmp_path).returncode == 0
    done = ostinato("merge", "one.ostinato", "two.ostinato", "-o", "both.ostinato", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(ostinato("report", "--json", "both.ostinato", folder=tmp_path).stdout)
    assert found["kernels"][0]["count"] == 18
    assert [one["program"] for one in found["processes"]] == ["decode.py 3"] * 2
    split = ostinato("report", "both.ostinato", "--by", "process", folder=tmp_path).stdout
    assert all(f"pid {one['pid']}" in split for one in found["processes"])


def test_recordings_of_two_machines_become_one_when_their_clocks_were_compared(program: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert ostinato("profile", "-o", f"{name}.ostinato", "decode.py", "3", folder=tmp_path).returncode == 0
    with contextlib.closing(sqlite3.connect(tmp_path / "two.ostinato")) as database:
        database.execute("UPDATE processes SET boot = 'another'")
        database.commit()
    command = ("merge", "one.ostinato", "two.ostinato", "-o", "both.ostinato")
    refused = ostinato(*command, folder=tmp_path)
    assert refused.returncode == 1
    option = "--wall-clock-error-ns"
    assert option in refused.stderr
    done = ostinato(*command, option, "50000", folder=tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_program_that_raises_is_still_recorded(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(PROGRAM.replace("sys.exit(", "raise RuntimeError('oops') or ("))
    done = ostinato("profile", "broken.py", "4", folder=tmp_path)
    assert done.returncode == 1
    assert "RuntimeError: oops" in done.stderr
    assert ostinato("report", "broken.ostinato", folder=tmp_path).returncode == 0


def test_a_killed_program_leaves_a_recording_that_opens(tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(
        PROGRAM.replace("for _ in range(int(sys.argv[1])):", "print('ready', flush=True)\n    while True:")
    )
    command = [sys.executable, "-m", "ostinato", "profile", "-o", "k.ostinato", "endless.py", "1"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline().strip() == "ready"
        time.sleep(2.5)
        child.send_signal(signal.SIGKILL)
    done = ostinato("report", "--json", "k.ostinato", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kernels"][0]["count"] > 100


def test_what_cannot_be_profiled_or_reported_is_said_in_one_sentence(program: Path, tmp_path: Path) -> None:
    (tmp_path / "noise.ostinato").write_bytes(b"no recording at all" * 100)
    (tmp_path / "precious.txt").write_text("do not overwrite me")
    assert ostinato("profile", "-o", "good.ostinato", "decode.py", "2", folder=tmp_path).returncode == 0
    good = (tmp_path / "good.ostinato").read_bytes()
    (tmp_path / "start.sh").write_text("#!/bin/sh\nexec python3 decode.py\n")
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "__init__.py").touch()
    for arguments, status, message in (
        (("profile", "nothing.py"), 2, "neither a file"),
        (("profile", "ls", "-l"), 2, "OSTINATO_PROFILE=1"),
        (("profile", "start.sh"), 2, "OSTINATO_PROFILE=1"),
        (("profile", shutil.which("ls")), 2, "not a Python program"),
        (("profile", "--tables", "decode.py"), 2, "no option --tables"),
        (("profile", "python"), 2, "must be followed by"),
        (("profile", "python", "-c", "1"), 2, "must be followed by"),
        (("profile", "python", "nothing.py"), 2, "not a file"),
        (("profile", "-m", "no_such_module"), 2, "no module"),
        (("profile", "-m", "bare"), 2, "__main__"),
        (("check", "ls"), 2, "not a Python script"),
        (("profile", "-o", "good.ostinato", "no_such_module:main"), 2, "no module"),
        (("report", "good.ostinato", "--trace", "no/such/folder/t.json"), 1, "no/such/folder"),
        (("profile", "-o", "precious.txt", "decode.py", "1"), 1, "precious.txt"),
        (("profile", "-o", "no/such/folder/x.ostinato", "decode.py", "1"), 1, "no/such/folder"),
        (("report", "noise.ostinato"), 1, "noise.ostinato"),
        (("report", "missing.ostinato"), 2, "missing.ostinato"),
        (("merge", "noise.ostinato", "-o", "x.ostinato"), 1, "noise.ostinato"),
    ):
        done = ostinato(*arguments, folder=tmp_path)
        assert done.returncode == status, (arguments, done.stdout, done.stderr)
        assert message in " ".join(done.stderr.split()), done.stderr
        assert "Traceback" not in done.stderr
    assert (tmp_path / "precious.txt").read_text() == "do not overwrite me"
    assert (tmp_path / "good.ostinato").read_bytes() == good


def test_calibration_prints_tables_and_json(tmp_path: Path) -> None:
    done = ostinato("calibrate", "--device", "cpu", "--repetitions", "3", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [row["dispatches"] for row in found["dispatch_table"]] == [10, 50, 100, 500, 1000, 5000]
    assert found["ceilings"]["copy_bytes_per_s"] > 1e8
