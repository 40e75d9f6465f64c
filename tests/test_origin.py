"""What a recording is of: program, time, place, revision, load and rank, from the process to the report."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import ostinato
from ostinato.profiling.analyse import columns_of, summarise
from ostinato.profiling.recording import merge, open_recording, provenance
from ostinato.profiling.report import as_dict, as_json, fragment, print_summary, render, write_trace
from ostinato.profiling.report.terminal import console
from recordings import START_NS, write

LAUNCHERS = [
    ({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}, (3, 1, 8)),
    ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4"}, (2, 0, 4)),
    ({"PMI_RANK": "1", "PMI_SIZE": "2"}, (1, None, 2)),
    ({"MV2_COMM_WORLD_RANK": "0", "MV2_COMM_WORLD_LOCAL_RANK": "0", "MV2_COMM_WORLD_SIZE": "1"}, (0, 0, 1)),
    ({"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NTASKS": "6"}, (5, 1, 6)),
    ({"RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, (1, None, 2)),
    ({"RANK": "colonel", "WORLD_SIZE": "2"}, (None, None, None)),
    ({"RANK": "2"}, (None, None, None)),
    ({"RANK": "2", "WORLD_SIZE": "2"}, (None, None, None)),
    ({"RANK": "9" * 50, "WORLD_SIZE": "9" * 51}, (None, None, None)),
    ({}, (None, None, None)),
]


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for names in provenance._LAUNCHERS:
        for name in names:
            monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(("environment", "expected"), LAUNCHERS)
def test_launchers_say_the_rank(
    monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str], expected: tuple[int | None, ...]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert provenance.ranks() == expected


def test_the_program_is_recorded_with_its_arguments_and_without_secrets() -> None:
    shown = provenance.command_line(["/home/me/decode.py", "--tokens", "100", "--hf-token", "abc", "two words"])
    assert shown == "decode.py --tokens 100 --hf-token '(hidden)' 'two words'"
    assert provenance.command_line(["x", "--api-key=abc", "--verbose"]) == "x '--api-key=(hidden)' --verbose"
    assert provenance.command_line(["x", "--password", "--next", "value"]) == "x --password --next value"
    assert len(provenance.command_line(["x", "y" * 100_000])) == 2_000


def test_a_notebook_is_recorded_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/venv/ipykernel_launcher.py", "-f", "/run/kernel-1.json"])
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/me/kernels.ipynb")
    assert dict(provenance.start_facts())["program"] == "kernels.ipynb"
    monkeypatch.delenv("JPY_SESSION_NAME")
    assert dict(provenance.start_facts())["program"] == "notebook"


def test_a_module_is_recorded_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__main__.py").write_text(
        "from ostinato.profiling.recording import Writer\nWriter('m.ostinato').close()"
    )
    path = os.pathsep.join(filter(None, [str(tmp_path), *sys.path]))
    command = (sys.executable, "-m", "pkg", "--tokens", "3")
    subprocess.run(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}, check=True)
    with open_recording(tmp_path / "m.ostinato") as recording:
        assert recording.meta["program"] == "-m pkg --tokens 3"


@pytest.mark.parametrize("git", ["absent", "hangs"])
def test_a_git_that_is_absent_or_hangs_holds_nothing_up(tmp_path: Path, git: str) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    if git == "hangs":
        (tools / "git").write_text("#!/bin/sh\nexec /bin/sleep 60\n")
        (tools / "git").chmod(stat.S_IRWXU)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("1" * 40)
    program = tmp_path / "model.py"
    program.write_text(
        f"import sys; sys.path[:0] = {sys.path!r}\nfrom ostinato.profiling.recording import Writer\n"
        "Writer('run.ostinato').close()\n"
    )
    command = (sys.executable, str(program))
    # git would take a minute
    subprocess.run(command, cwd=tmp_path, env=os.environ | {"PATH": str(tools)}, check=True, timeout=30)
    with open_recording(tmp_path / "run.ostinato") as recording:
        assert recording.meta["git.revision"] == "1" * 40
        (origin,) = columns_of(recording).origins
    assert origin.changed is None


def _edited(path: Path, statement: str, *values: object) -> Path:
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute(statement, values)
        database.commit()
    return path


def _set(path: Path, **facts: object) -> Path:
    for name, value in facts.items():
        if name in ("program", "git_revision"):
            key = name.replace("_", ".")
            _edited(path, "INSERT OR REPLACE INTO meta SELECT id, ?, ? FROM processes", key, value)
        else:
            _edited(path, f"UPDATE processes SET {name} = ?", value)
    return path


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = write(tmp_path / "run.ostinato")
    _edited(path, "UPDATE processes SET host = 'node7', pid = 411")
    return _set(
        path,
        program="decode.py --tokens 100",
        git_revision="d" * 40,
        git_changed=1,
        start_cores=8,
        end_cores=4,
        start_load=0.52,
        end_load=6.1,
        start_realtime_ns=1_767_614_602_123_000_000,
        start_monotonic_ns=1_000_000_000,
        end_monotonic_ns=4_200_000_000,
    )


def test_a_report_opens_with_what_it_is_of(recorded: Path) -> None:
    with open_recording(recorded) as recording:
        summary = summarise(recording)
    lines = render(summary).splitlines()
    assert lines[0] == "decode.py --tokens 100"
    assert " ".join(lines[1:3]) == (
        "2026-01-05 12:03:22 UTC, 3.20 s, on node7, 8 to 4 cores, load 0.5 to 6.1,"
        f" ostinato {ostinato.__version__}, revision dddddddddddd with changes"
    )
    assert lines[3] == "cpu: two cores, g++ 12"
    found = as_dict(summary)["processes"]
    assert found == [
        {
            "name": "pid 411", "program": "decode.py --tokens 100", "began": "2026-01-05T12:03:22+00:00",
            "duration_ns": 3_200_000_000, "host": "node7", "pid": 411, "rank": None, "local_rank": None,
            "world_size": None, "version": ostinato.__version__, "revision": "d" * 40, "changed": True,
            "cores": [8, 4], "load": [0.52, 6.1], "profile_ns": None, "run_delay_ns": None,
            "involuntary_switches": None, "steal_ns": None,
        }
    ]  # fmt: skip
    assert "<div>decode.py --tokens 100</div>" in fragment(summary)


def test_what_a_stranger_says_of_the_origin_is_data(recorded: Path) -> None:
    evil = "\x1b[2J<script>alert(1)</script>\u202e" * 1_000
    _edited(recorded, "UPDATE processes SET host = ?", evil)
    _set(recorded, program=evil, git_revision=evil, start_realtime_ns=2**62, start_cores=None, end_load=None)
    with open_recording(recorded) as recording:
        summary = summarise(recording)
        (origin,) = summary.origins
        assert (origin.began[:4], origin.cores, origin.load) == ("2116", (None, 4), (0.52, None))
    text = render(summary)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert len(text.splitlines()) < 150
    assert "<script>" not in fragment(summary)
    assert as_json(summary).isascii()


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Three ranks on two hosts; the last of them did three times as much."""
    paths = []
    for rank, (host, submissions) in enumerate([("node1", 1), ("node1", 1), ("node2", 3)]):
        path = write(tmp_path / f"{rank}.ostinato", submissions, START_NS + rank)
        _edited(path, "UPDATE processes SET host = ?, pid = ?, rank = ?, world_size = 3", host, 100 + rank, rank)
        paths.append(path)
    merge(paths, tmp_path / "job.ostinato")
    return tmp_path / "job.ostinato"


def test_merged_processes_keep_host_pid_and_rank_and_are_named_by_them(job: Path, tmp_path: Path) -> None:
    with open_recording(job) as recording:
        assert [(one.host, one.pid, one.rank, one.world_size) for one in recording.processes] == [
            ("node1", 100, 0, 3), ("node1", 101, 1, 3), ("node2", 102, 2, 3),
        ]  # fmt: skip
        columns = columns_of(recording)
        summary = summarise(recording)
    assert [device.name for device in summary.devices] == ["cpu of rank 0", "cpu of rank 1", "cpu of rank 2"]
    text = render(summary)
    assert "3 processes on 2 hosts" in text
    assert "cpu #2" not in text
    write_trace(columns, tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    named = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert {"host process rank 1, node1, pid 101", "device cpu of rank 2"} <= named


def test_what_profiles_took_of_their_programs_is_added_up(job: Path) -> None:
    _set(job, overhead_ns=2000)
    with open_recording(job) as recording:
        check = next(one for one in summarise(recording).checks if one.name == "host")
    assert "1.20 µs per command buffer on the host, 6.00 µs in total" in check.sentence


def test_processes_without_ranks_are_named_by_the_fewest_words(job: Path) -> None:
    names = []
    for statement in (
        "UPDATE processes SET rank = NULL",
        "UPDATE processes SET host = 'node1'",
        "UPDATE processes SET pid = 7",
    ):
        _edited(job, statement)
        with open_recording(job) as recording:
            names.append([one.name for one in columns_of(recording).origins])
    assert names == [
        ["node1 pid 100", "node1 pid 101", "node2 pid 102"],
        ["pid 100", "pid 101", "pid 102"],
        ["pid 7 #1", "pid 7 #2", "pid 7 #3"],
    ]


def test_tables_are_split_by_rank_host_and_process(job: Path, tmp_path: Path) -> None:
    with open_recording(job) as recording:
        summary = summarise(recording)
    whole = summary.kernels
    for part, names in (
        ("rank", ["rank 0", "rank 1", "rank 2"]),
        ("host", ["node1", "node2"]),
        ("process", ["rank 0", "rank 1", "rank 2"]),
    ):
        parts = summary.parts[part]
        assert [one.whole.name for one in parts] == names
        assert sum(one.whole.total_ns for one in parts) == sum(kernel.total_ns for kernel in whole)
        assert sum(one.whole.share or 0 for one in parts) == pytest.approx(1)
        for one in parts:
            assert sum(kernel.count for kernel in one.kernels) == one.whole.count
        out = tmp_path / part
        with out.open("w") as file:
            print_summary(summary, console(file), by=(part,))
        assert f"By {part}" in out.read_text()
    ranks, hosts = summary.parts["rank"], summary.parts["host"]
    assert [one.whole.dispatched for one in ranks] == [3, 3, 9]
    assert [one.whole.dispatched for one in hosts] == [6, 9]
    assert [one["kernels"][0]["name"] for one in as_dict(summary)["by_rank"]] == ["matvec"] * 3
