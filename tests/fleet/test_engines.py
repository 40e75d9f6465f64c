"""Work on a store by several processes: on this machine, and on a real cluster of Dask of which a worker is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from fleet_recordings import BEGAN_NS, DAY_NS, Facts, Template
from ostinato.errors import FleetError
from ostinato.profiling import fleet
from ostinato.profiling.fleet import adding
from ostinato.profiling.fleet.parts import dataset

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb", reason="reports need DuckDB: make test-fleet")

RECORDINGS = 48


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    template, folder = Template(["add", "mul"], 50), tmp_path_factory.mktemp("runs")
    for number in range(RECORDINGS):
        facts = Facts(host=f"node{number % 4}", pid=number + 1, began_ns=BEGAN_NS + number % 3 * DAY_NS)
        template.write(folder / f"{number:02}.ostinato", facts, template.steady(1e4, number))
    return folder


def pids(store: Path) -> list[int]:
    opened = fleet.open_store(store)
    state = opened.state()
    assert dataset(opened, state.of("samples")).count_rows() == 100 * len(set(_pids(opened, state)))
    return sorted(_pids(opened, state))


def _pids(opened: fleet.Store, state: Any) -> list[int]:
    listed: list[int] = dataset(opened, state.of("runs")).to_table(columns=["pid"]).column(0).to_pylist()
    return listed


def facts_of(store: Path, engine: fleet.Engine) -> Any:
    report = fleet.report(store, engine)
    return report.recordings, report.samples, report.hosts, [row.p50 for row in report.kernels]


def test_processes_give_what_one_process_gives(tmp_path: Path, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adding, "_BATCH_FILES", 8)
    with fleet.engine("local") as here, fleet.engine("local:2") as two:
        assert fleet.add([runs], tmp_path / "one", here).recordings == RECORDINGS
        assert fleet.add([runs], tmp_path / "two", two).recordings == RECORDINGS
        fleet.compact(tmp_path / "two", two)
        assert facts_of(tmp_path / "one", here) == facts_of(tmp_path / "two", two)
    assert pids(tmp_path / "two") == list(range(1, RECORDINGS + 1))


@pytest.mark.parametrize("name", ["spark://host:1", "dask://", "dask://user:secret@host:1", "local:x", ""])
def test_an_engine_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(FleetError, match="is not an engine") as raised, fleet.engine(name):
        pass
    assert "secret" not in str(raised.value)


@contextmanager
def started(log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    # Workers must find the tasks of this file.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with log.open("w") as output:
        process = subprocess.Popen([sys.executable, "-m", *arguments], stderr=output, stdout=output, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A scheduler and three workers, each a process."""
    pytest.importorskip("distributed", reason="the engine dask:// needs Dask: make test-fleet")
    folder = tmp_path_factory.mktemp("cluster")
    log = folder / "scheduler"
    options = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard")
    with started(log, "distributed.cli.dask_scheduler", *options) as scheduler:
        while (found := re.search(r"Scheduler at:\s+tcp://(\S+)", log.read_text())) is None:
            assert scheduler.poll() is None, log.read_text()
            time.sleep(0.1)
        worker = ("distributed.cli.dask_worker", f"tcp://{found[1]}", "--nthreads", "1", "--no-nanny", "--no-dashboard")
        with ExitStack() as stack:
            workers = [stack.enter_context(started(folder / str(number), *worker)) for number in range(3)]
            yield f"dask://{found[1]}", workers


def slowly(batch: Any) -> Any:
    """The task of adding, slow enough that a worker can be killed in the middle of one."""
    built = adding.build(batch)
    time.sleep(0.3)
    return built


def test_a_worker_that_is_killed_loses_nothing_and_doubles_nothing(
    tmp_path: Path, runs: Path, cluster: tuple[str, list[subprocess.Popen[bytes]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, workers = cluster
    monkeypatch.setattr(adding, "_BATCH_FILES", 2)
    monkeypatch.setattr(adding, "build", slowly)
    killed = False

    def progress(text: str) -> None:
        nonlocal killed
        if not killed:
            os.kill(workers[0].pid, signal.SIGKILL)
            killed = True

    with fleet.engine(address) as engine:
        while engine.workers < 3:
            time.sleep(0.1)
        added = fleet.add([runs], tmp_path / "store", engine, progress)
        assert killed
        assert workers[0].wait(10) == -signal.SIGKILL
        assert (added.recordings, added.aside) == (RECORDINGS, [])
        assert pids(tmp_path / "store") == list(range(1, RECORDINGS + 1))
        fleet.compact(tmp_path / "store", engine)
        assert pids(tmp_path / "store") == list(range(1, RECORDINGS + 1))
        with fleet.engine("local") as here:
            assert facts_of(tmp_path / "store", engine) == facts_of(tmp_path / "store", here)
        assert fleet.add([runs], tmp_path / "store", engine).known == RECORDINGS


def test_a_cluster_that_does_not_answer_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="the engine dask:// needs Dask: make test-fleet")
    monkeypatch.setattr("ostinato.profiling.fleet.engines._TIMEOUT_S", 0.5)
    with pytest.raises(FleetError, match="no scheduler of Dask answers"), fleet.engine("dask://127.0.0.1:9"):
        pass
