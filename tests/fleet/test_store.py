"""Recordings in a store: each once, whole or not at all, whoever writes at the same time and whoever is killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from fleet_recordings import BEGAN_NS, DAY_NS, Facts, Template
from ostinato.cli import main
from ostinato.errors import FleetError
from ostinato.profiling import fleet
from ostinato.profiling.fleet import adding, compacting
from ostinato.profiling.fleet.parts import dataset
from ostinato.profiling.fleet.store import Part
from ostinato.profiling.recording import Writer, expand, merge

pytest.importorskip("pyarrow")

KERNELS = ["add", "matmul [N=4]", "../../etc/passwd"]


@pytest.fixture(scope="module")
def template() -> Template:
    return Template(KERNELS, 20)


def make(folder: Path, template: Template, count: int, first: int = 0) -> list[Path]:
    """Recordings of several hosts, days and devices."""
    folder.mkdir(exist_ok=True)
    return [
        template.write(
            folder / f"{number}.ostinato",
            Facts(
                host=f"node{number % 3}",
                pid=number + 1,
                began_ns=BEGAN_NS + number % 2 * DAY_NS,
                device=("NVIDIA H200", "../two cores")[number % 2],
            ),
            template.steady(10_000, number),
        )
        for number in range(first, first + count)
    ]


def add(paths: Sequence[Path], store: Path) -> fleet.Added:
    with fleet.engine("local") as engine:
        return fleet.add(paths, store, engine)


def compact(store: Path, sweep: bool = False) -> fleet.Compacted:
    with fleet.engine("local") as engine:
        return fleet.compact(store, engine, sweep=sweep)


def rows(store: Path, table: str) -> list[dict[str, Any]]:
    opened = fleet.open_store(store)
    parts = opened.state().of(table)
    listed: list[dict[str, Any]] = dataset(opened, parts).to_table().to_pylist() if parts else []
    return listed


def test_samples_of_a_recording_are_in_the_store_as_they_were_measured(tmp_path: Path, template: Template) -> None:
    times = template.steady(10_000, 3)
    template.write(tmp_path / "a.ostinato", Facts(host="node7", rank=2, world_size=8), times)
    added = add([tmp_path / "a.ostinato"], tmp_path / "store")
    assert (added.recordings, added.samples, added.known, added.aside) == (1, times.size, 0, [])
    samples = rows(tmp_path / "store", "samples")
    for number, kernel in enumerate(KERNELS):
        mine = [row for row in samples if row["kernel"] == kernel]
        assert [row["duration_ns"] for row in mine] == times[:, number].tolist()
        assert mine == sorted(mine, key=lambda row: row["start_ns"])
    assert [row["kernel"] for row in samples] == sorted(str(row["kernel"]) for row in samples)
    assert all(BEGAN_NS <= row["start_ns"] < BEGAN_NS + 10**9 for row in samples)
    (run,) = rows(tmp_path / "store", "runs")
    assert (run["host"], run["rank"], run["world_size"], run["samples"]) == ("node7", 2, 8, times.size)
    assert (run["revision"], run["device"], run["program"]) == ("a" * 40, "two cores", "serve.py")
    for row in rows(tmp_path / "store", "kernels"):
        mine_ns = times[:, KERNELS.index(str(row["kernel"]))]
        assert row["p50_ns"] == pytest.approx(np.percentile(mine_ns, 50))
        assert row["p99_ns"] == pytest.approx(np.percentile(mine_ns, 99))
        assert (row["samples"], row["total_ns"]) == (len(mine_ns), int(mine_ns.sum()))
        assert (row["min_ns"], row["max_ns"]) == (int(mine_ns.min()), int(mine_ns.max()))


def test_a_recording_is_added_once_whatever_it_is_called_and_however_it_is_stored(
    tmp_path: Path, template: Template
) -> None:
    first = make(tmp_path / "runs", template, 3)
    assert add(first, tmp_path / "store").recordings == 3
    shutil.copy(first[0], tmp_path / "copy.ostinato")
    expand(first[1])
    again = add([tmp_path / "copy.ostinato", *first, tmp_path / "runs"], tmp_path / "store")
    assert (again.recordings, again.known) == (0, 4)
    assert len(rows(tmp_path / "store", "runs")) == 3


def test_twins_in_one_command_are_added_once(tmp_path: Path, template: Template) -> None:
    first = make(tmp_path / "runs", template, 1)
    shutil.copy(first[0], tmp_path / "twin.ostinato")
    added = add([first[0], tmp_path / "twin.ostinato"], tmp_path / "store")
    assert (added.recordings, added.known) == (1, 1)


def test_what_holds_a_process_of_the_store_again_is_set_aside(tmp_path: Path, template: Template) -> None:
    paths = make(tmp_path / "runs", template, 2)
    add(paths[:1], tmp_path / "store")
    merge(paths, tmp_path / "merged.ostinato", wall_clock_error_ns=10**6)
    added = add([tmp_path / "merged.ostinato"], tmp_path / "store")
    assert added.recordings == 0
    assert "another recording of the same process" in added.aside[0].reason


def test_both_processes_of_a_merged_recording_are_runs(tmp_path: Path, template: Template) -> None:
    paths = make(tmp_path / "runs", template, 2)
    merge(paths, tmp_path / "merged.ostinato", wall_clock_error_ns=10**6)
    add([tmp_path / "merged.ostinato"], tmp_path / "store")
    runs = rows(tmp_path / "store", "runs")
    assert sorted((row["host"], row["samples"]) for row in runs) == [("node0", 60), ("node1", 60)]
    alone = add(paths, tmp_path / "store")
    assert (alone.recordings, len(alone.aside)) == (0, 2)


def test_damaged_foreign_and_newer_files_are_set_aside_with_the_reason_and_counted_once(
    tmp_path: Path, template: Template
) -> None:
    good, cut, newer = make(tmp_path / "runs", template, 3)
    cut.write_bytes(cut.read_bytes()[:5000])
    rotten = make(tmp_path / "runs", template, 1, first=9)[0]
    for path, change in (
        (newer, "PRAGMA user_version = 99"),
        (rotten, "UPDATE sample_chunks SET data = zeroblob(length(data))"),
    ):
        connection = sqlite3.connect(path)
        connection.execute(change)
        connection.commit()
        connection.close()
    (tmp_path / "runs" / "text.ostinato").write_text("not a database")
    (tmp_path / "runs" / "empty.ostinato").touch()
    for _ in range(2):
        added = add([tmp_path / "runs"], tmp_path / "store")
        assert len(added.aside) == 5
    reasons = {each.file: each.reason for each in added.aside}
    assert "newer ostinato" in reasons[newer.name]
    assert "empty" in reasons["empty.ostinato"]
    assert "not a database" in reasons["text.ostinato"]
    assert "checksum" in reasons[rotten.name]
    assert "malformed" in reasons[cut.name]
    state = fleet.open_store(tmp_path / "store").state()
    assert (len(state.aside), state.number) == (5, 1)
    assert [row["file"] for row in rows(tmp_path / "store", "runs")] == [good.name]


def test_a_recording_that_is_being_written_waits(tmp_path: Path) -> None:
    with Writer(tmp_path / "live.ostinato") as writer:
        writer.flush()
        added = add([tmp_path / "live.ostinato"], tmp_path / "store")
        assert "still recording" in added.aside[0].reason
    assert add([tmp_path / "live.ostinato"], tmp_path / "store").recordings == 1


def test_no_text_of_a_recording_is_part_of_a_path(tmp_path: Path, template: Template) -> None:
    add(make(tmp_path / "runs", template, 2), tmp_path / "store")
    paths = [path.relative_to(tmp_path / "store") for path in (tmp_path / "store").rglob("*.parquet")]
    assert len(paths) == 6
    assert all(path.parts[1].startswith("day=2026-") and path.parts[2].startswith("device=") for path in paths)
    assert not [path for path in paths if "cores" in str(path) or "H200" in str(path) or "passwd" in str(path)]


def test_credentials_reach_neither_the_store_nor_what_is_set_aside(tmp_path: Path, template: Template) -> None:
    program = "serve.py --endpoint https://me:hunter2@example.org/x?X-Amz-Signature=abcdef0123 AKIAABCDEFGHIJKLMNOP"
    template.write(tmp_path / "a.ostinato", Facts(program=program), template.steady(1e4))
    (tmp_path / "https:--token=hunter2.ostinato").write_text("no")
    add([tmp_path], tmp_path / "store")
    (run,) = rows(tmp_path / "store", "runs")
    assert str(run["program"]).startswith("serve.py --endpoint https://(hidden)@example.org/x")
    for path in (tmp_path / "store").rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert not [word for word in (b"hunter2", b"abcdef0123", b"AKIA") if word in data], path


def test_merging_leaves_one_file_for_each_partition_and_every_row(tmp_path: Path, template: Template) -> None:
    paths = make(tmp_path / "runs", template, 8)
    for path in paths:
        add([path], tmp_path / "store")
    before = {table: rows(tmp_path / "store", table) for table in ("samples", "kernels", "runs")}
    done = compact(tmp_path / "store")
    assert (done.before, done.after) == (24, 6)
    for table, listed in before.items():
        after = rows(tmp_path / "store", table)
        assert sorted(map(repr, after)) == sorted(map(repr, listed))
    opened = fleet.open_store(tmp_path / "store")
    for part in opened.state().of("samples"):
        mine = dataset(opened, [part]).to_table().to_pylist()
        assert [row["kernel"] for row in mine] == sorted(row["kernel"] for row in mine)
    assert len(list((tmp_path / "store").rglob("*.parquet"))) == 6
    assert add(paths, tmp_path / "store").known == 8


def test_large_files_are_not_merged_into_larger_ones() -> None:
    parts = [Part("samples", "2026-11-18", "0" * 16, f"{number:032x}", 1, 60_000_000) for number in range(4)]
    assert compacting._groups(parts[:2]) == []
    small = [replace(part, bytes=9) for part in parts[1:3]]
    assert compacting._groups([parts[0], *small]) == [[*small, parts[0]]]
    assert compacting._groups([*parts[:3], *(replace(part, bytes=5_000_000) for part in parts[:3])])[0][3:] == []


def test_a_newer_store_is_refused(tmp_path: Path, template: Template) -> None:
    paths = make(tmp_path / "runs", template, 1)
    add(paths, tmp_path / "store")
    mark = tmp_path / "store" / "fleet.json"
    mark.write_text(json.dumps(json.loads(mark.read_text()) | {"version": 99}))
    with pytest.raises(FleetError, match=r"version 99, made by a newer ostinato"):
        add(paths, tmp_path / "store")


@pytest.mark.parametrize(
    "change",
    [
        {"added": [{"table": "runs", "day": "../../..", "device": "0" * 16, "name": "0" * 32, "rows": 1, "bytes": 1}]},
        {
            "added": [
                {"table": "runs", "day": "2026-01-01", "device": "0" * 16, "name": "/etc/x", "rows": 1, "bytes": 1}
            ]
        },
        {"number": 7},
        {"processes": None},
    ],
)
def test_a_log_that_says_impossible_things_is_refused(
    tmp_path: Path, template: Template, change: dict[str, object]
) -> None:
    add(make(tmp_path / "runs", template, 1), tmp_path / "store")
    entry = tmp_path / "store" / "log" / "000000000001.json"
    entry.write_text(json.dumps(json.loads(entry.read_text()) | change))
    with pytest.raises(FleetError, match="damaged"):
        fleet.open_store(tmp_path / "store").state()


def test_a_folder_of_something_else_is_not_a_store(tmp_path: Path) -> None:
    with pytest.raises(FleetError, match="is not a store"):
        fleet.open_store(tmp_path)
    (tmp_path / "fleet.json").write_text("[1]")
    with pytest.raises(FleetError, match="is not a store"):
        fleet.open_store(tmp_path)


ADD = """
import sys
from pathlib import Path
from ostinato.profiling import fleet
from ostinato.profiling.fleet import adding
adding._BATCH_FILES = {batch}
if __name__ == "__main__":
    with fleet.engine("local") as engine:
        fleet.add(sys.argv[2:], sys.argv[1], engine)
"""


def start(store: Path, paths: Sequence[Path], batch: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", ADD.format(batch=batch), str(store), *map(str, paths)]
    return subprocess.Popen(command, stderr=subprocess.PIPE)


def test_after_a_kill_adding_again_completes_the_store(tmp_path: Path, template: Template) -> None:
    paths = make(tmp_path / "runs", template, 40)
    log = tmp_path / "store" / "log"
    process = start(tmp_path / "store", paths, 2)
    deadline = time.monotonic() + 60
    while len(list(log.glob("0*.json")) if log.exists() else []) < 3:
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    there = len(rows(tmp_path / "store", "runs"))
    assert 0 < there < 40
    added = add(paths, tmp_path / "store")
    assert (added.recordings, added.known) == (40 - there, there)
    assert sorted(row["pid"] for row in rows(tmp_path / "store", "runs")) == list(range(1, 41))
    assert len(rows(tmp_path / "store", "samples")) == 40 * 60
    done = compact(tmp_path / "store", sweep=True)
    assert len(list((tmp_path / "store").rglob("*.parquet"))) == done.after


TEN = """
import os, sys
import pyarrow.parquet
from ostinato.profiling import fleet
from ostinato.profiling.fleet import adding
adding._BATCH_FILES = 3
store, paths = sys.argv[1], sys.argv[2:]
writers = []
for number in range(10):
    writers.append(os.fork())
    if not writers[-1]:
        # Each shares most of its recordings with others, and no two have the same.
        with fleet.engine("local") as engine:
            fleet.add(paths[number : number + 11], store, engine)
        os._exit(0)
sys.exit(any(os.waitpid(writer, 0)[1] for writer in writers))
"""


def test_ten_writers_at_once_add_every_recording_once(tmp_path: Path, template: Template) -> None:
    paths = make(tmp_path / "runs", template, 20)
    command = [sys.executable, "-c", TEN, str(tmp_path / "store"), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert sorted(row["pid"] for row in rows(tmp_path / "store", "runs")) == list(range(1, 21))
    assert len(rows(tmp_path / "store", "samples")) == 20 * 60


def test_adding_and_merging_at_the_same_time_lose_nothing(tmp_path: Path, template: Template) -> None:
    paths = make(tmp_path / "runs", template, 15)
    add(paths[:5], tmp_path / "store")
    writer = start(tmp_path / "store", paths, 1)
    while writer.poll() is None:
        compact(tmp_path / "store")
    assert writer.returncode == 0, writer.stderr and writer.stderr.read()
    assert sorted(row["pid"] for row in rows(tmp_path / "store", "runs")) == list(range(1, 16))
    assert len(rows(tmp_path / "store", "samples")) == 15 * 60


def test_two_who_merge_the_same_files_do_not_double_them(tmp_path: Path, template: Template) -> None:
    for path in make(tmp_path / "runs", template, 4):
        add([path], tmp_path / "store")
    store = fleet.open_store(tmp_path / "store")
    state = store.state()
    group = compacting._groups(state.parts)[0]
    mine = compacting.merge(compacting._Merge(str(tmp_path / "store"), tuple(group)))
    compact(tmp_path / "store")
    assert store.commit(state, [mine], group) is None
    assert len(rows(tmp_path / "store", "samples")) == 4 * 60


def test_what_others_added_meanwhile_is_left_out_of_a_batch(tmp_path: Path, template: Template) -> None:
    paths = make(tmp_path / "runs", template, 3)
    store = fleet.open_store(tmp_path / "store", create=True)
    state = store.state()
    batch = adding._Batch(str(tmp_path / "store"), tuple(map(str, paths)), {})
    built = adding.build(batch)
    add(paths[:2], tmp_path / "store")
    total = fleet.Added()
    adding._commit(store, state, batch, built, {}, total)
    assert (total.recordings, total.known) == (1, 2)
    assert len(rows(tmp_path / "store", "runs")) == 3


def test_the_command_line_adds_merges_and_tells_what_was_set_aside(tmp_path: Path, template: Template) -> None:
    make(tmp_path / "runs", template, 3)
    (tmp_path / "runs" / "broken.ostinato").write_text("no")
    store = str(tmp_path / "store")
    run = CliRunner()
    added = run.invoke(main, ["fleet", "add", str(tmp_path / "runs"), "--to", store])
    assert added.exit_code == 0, added.output
    assert "3 recordings added with 180 samples; 0 there before" in added.output
    assert "1 recording set aside:\n  broken.ostinato: broken.ostinato is damaged or not a recording" in added.output
    again = run.invoke(main, ["fleet", "add", str(tmp_path / "runs"), "--to", store])
    assert "0 recordings added with 0 samples; 3 there before" in again.output
    merged = run.invoke(main, ["fleet", "compact", store, "--sweep"])
    assert "6 files before, 6 now" in merged.output
    nothing = run.invoke(main, ["fleet", "compact", str(tmp_path / "runs")])
    assert (nothing.exit_code, "is not a store" in nothing.output) == (1, True)
