"""Reports on a store whose truth is known: what became slower when, who is slow, what is missing, what failed."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fleet_recordings import BEGAN_NS, DAY_NS, Facts, Template, World
from ostinato.cli import main
from ostinato.errors import FleetError
from ostinato.profiling import fleet
from ostinato.profiling.fleet import shown

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb", reason="reports need DuckDB: make test-fleet")

HOSTILE = "<script>alert(1)</script>'; DROP TABLE runs; --"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, Path]:
    made = World(
        revisions=12, runs=32, kernels=12, submissions=40, days=12, injected=5, hosts=10, slow_hosts=2, regression=0.1
    )
    folder = tmp_path_factory.mktemp("world")
    (folder / "runs").mkdir()
    paths = list(made.write(folder / "runs"))
    with fleet.engine("local") as engine:
        fleet.add(paths, folder / "store", engine)
        fleet.compact(folder / "store", engine)
    return made, folder / "store"


@pytest.fixture(scope="module")
def template() -> Template:
    return Template(["add", HOSTILE], 20)


def report(store: Path, wanted: fleet.Wanted | None = None) -> fleet.FleetReport:
    with fleet.engine("local") as engine:
        return fleet.report(store, engine, wanted)


def add(folder: Path) -> Path:
    with fleet.engine("local") as engine:
        fleet.add([folder], folder / "store", engine)
    return folder / "store"


def test_injected_regressions_are_dated_and_nothing_else_is_reported(world: tuple[World, Path]) -> None:
    made, store = world
    found = {(change.device, change.kernel): change.version for change in report(store).changes}
    assert found == {key: made.revision(at) for key, at in made.steps.items()}


def test_slow_hosts_are_named_and_no_others(world: tuple[World, Path]) -> None:
    made, store = world
    slow = report(store).slow_hosts
    assert sorted({each.name for each in slow}) == made.slow_names
    assert all(0.05 < each.slower.estimate < 0.12 for each in slow)


def test_kernels_come_by_device_and_version_with_intervals(world: tuple[World, Path]) -> None:
    made, store = world
    rows = report(store, fleet.Wanted(kernel="kernel_003")).kernels
    assert {(row.device, row.version) for row in rows} == {
        (device, made.revision(number)) for device in made.devices for number in range(made.revisions)
    }
    answer = fleet.query(
        fleet.open_store(store),
        "SELECT device, revision, median(p50_ns) FROM kernels JOIN runs USING (run)"
        " WHERE kernel = 'kernel_003' GROUP BY ALL",
    )
    medians = {(device, revision): value for device, revision, value in answer.rows}
    for row in rows:
        assert row.p50 is not None
        assert row.p99 is not None
        assert row.p50.estimate == pytest.approx(medians[row.device, row.version])
        assert row.p50.low <= row.p50.estimate <= row.p50.high < row.p99.estimate
        assert row.runs == made.runs // len(made.devices)


def test_a_report_is_narrowed_by_day_device_and_program(world: tuple[World, Path]) -> None:
    made, store = world
    everything = report(store)
    assert (everything.recordings, everything.samples) == (made.recordings, made.samples)
    half = report(store, fleet.Wanted(device="h200"))
    assert (half.devices, half.recordings) == (("NVIDIA H200",), made.recordings // 2)
    later = date.fromisoformat(everything.days[0]) + timedelta(days=12)
    late = report(store, fleet.Wanted(since=later))
    assert late.days[0] >= later.isoformat()
    assert 0 < late.recordings < made.recordings
    assert report(store, fleet.Wanted(program="train.py")).recordings == 0


def test_a_slow_rank_is_named_with_its_host(tmp_path: Path, template: Template) -> None:
    for job in range(6):
        for rank in range(8):
            facts = Facts(
                host=f"node{rank // 4}",
                pid=10 * job + rank + 1,
                rank=rank,
                world_size=8,
                began_ns=BEGAN_NS + job * DAY_NS,
            )
            times = template.steady(10_000 * (1.1 if rank == 5 else 1.0), 8 * job + rank, 0.01)
            template.write(tmp_path / f"{job}-{rank}.ostinato", facts, times)
    found = report(add(tmp_path))
    (slow,) = found.slow_ranks
    assert (slow.name, slow.hosts, slow.runs) == ("rank 5", ("node1",), 6)
    assert slow.slower.estimate == pytest.approx(0.1, abs=0.02)
    assert found.missing == ()


def test_ranks_without_a_recording_are_missing(tmp_path: Path, template: Template) -> None:
    for job, ranks in enumerate(([0, 1, 2, 3], [0, 2])):
        for rank in ranks:
            facts = Facts(pid=10 * job + rank + 1, rank=rank, world_size=4, began_ns=BEGAN_NS + job * DAY_NS + rank)
            template.write(tmp_path / f"{job}-{rank}.ostinato", facts, template.steady(1e4, job + rank))
    (missing,) = report(add(tmp_path)).missing
    assert (missing.ranks, missing.world_size, missing.began_ns) == ((1, 3), 4, BEGAN_NS + DAY_NS)


def test_recordings_whose_checks_failed_and_files_set_aside_are_listed(tmp_path: Path, template: Template) -> None:
    from ostinato.profiling.recording import PlanNode, Writer

    with Writer(tmp_path / "lossy.ostinato") as writer:
        device = writer.device("cpu", "cpu", description="two cores")
        plan = writer.plan(device, [PlanNode("dispatch", "add")])
        writer.samples(writer.submission(device=device, plan=plan, ordinal=1, start_ns=1, end_ns=9), 0, [1], [9])
        writer.drop("samples", 1000)
    (tmp_path / "broken.ostinato").write_text("no")
    found = report(add(tmp_path))
    assert [each.file for each in found.failed] == ["lossy.ostinato"]
    assert any(check.startswith("drops: 1,000 dropped") for check in found.failed[0].checks)
    assert [(each.file, bool(each.reason)) for each in found.aside] == [("broken.ostinato", True)]
    assert found.lost == 1000


def test_texts_of_strangers_stay_data(tmp_path: Path, template: Template) -> None:
    for number in range(4):
        facts = Facts(
            host=HOSTILE, pid=number + 1, device=HOSTILE, program=HOSTILE, revision=HOSTILE, rank=0, world_size=2
        )
        template.write(
            tmp_path / f"{number}.ostinato",
            replace(facts, began_ns=BEGAN_NS + number * DAY_NS),
            template.steady(1e4, number),
        )
    store = add(tmp_path)
    found = report(store, fleet.Wanted(device=HOSTILE, kernel=HOSTILE, program=HOSTILE))
    assert (found.recordings, len(found.kernels)) == (4, 1)
    page = shown.page(found)
    assert "<script>alert" not in page
    assert page.count("<script") == 2
    assert json.loads(fleet.as_json(found))["kernels"][0]["kernel"] == HOSTILE


def run(*arguments: object) -> str:
    result = CliRunner().invoke(main, ["fleet", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_command_line_shows_the_report_as_tables_json_and_page(world: tuple[World, Path], tmp_path: Path) -> None:
    made, store = world
    text = run("report", store, "--html", tmp_path / "fleet.html", "--width", 160)
    assert "look first at kernel_" in text
    assert "Slow hosts" in text
    for (_, kernel), at in made.steps.items():
        assert re.search(rf"{kernel} .*{made.revision(at)[:12]}", text)
    assert "Content-Security-Policy" in (tmp_path / "fleet.html").read_text()
    data = json.loads(run("report", store, "--json"))
    assert (data["format"], data["recordings"]) == ("ostinato.fleet_report", made.recordings)
    assert len(data["changes"]) == len(made.steps)


def test_sql_answers_over_samples_runs_and_kernels(world: tuple[World, Path]) -> None:
    made, store = world
    assert f"{made.samples}" in run("report", store, "--sql", "SELECT count(*) FROM samples")
    rows = json.loads(run("report", store, "--json", "--sql", "SELECT DISTINCT kernel FROM samples ORDER BY kernel"))
    assert [row["kernel"] for row in rows] == made.names
    answer = fleet.query(
        fleet.open_store(store),
        "SELECT run, kernel, median(duration_ns) = max(p50_ns)"
        " FROM samples JOIN kernels USING (run, kernel) GROUP BY ALL",
    )
    assert len(answer.rows) == made.recordings * made.kernels
    assert np.mean([same for *_, same in answer.rows]) == 1


@pytest.mark.parametrize(
    "sql",
    [
        "DROP VIEW runs",
        "SELECT 1; SELECT 2",
        "COPY (SELECT 1) TO '/tmp/stolen.csv'",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "ATTACH '/tmp/other.db'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "SELECT * FROM store",
        "SELEKT",
        "",
    ],
)
def test_sql_can_neither_change_anything_nor_read_anything_else(world: tuple[World, Path], sql: str) -> None:
    with pytest.raises(FleetError):
        fleet.query(fleet.open_store(world[1]), sql)


def test_an_empty_store_has_an_empty_report(tmp_path: Path) -> None:
    fleet.open_store(tmp_path / "store", create=True)
    found = report(tmp_path / "store")
    assert (found.recordings, found.kernels, found.changes) == (0, (), ())
    assert "too few runs" in shown.closing(found)
    assert shown.page(found)


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01", "d", "-3d"])
def test_a_day_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(FleetError, match="is not a day"):
        fleet.since(text)
