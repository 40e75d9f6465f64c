"""The head: what is doubtful stands in the open, idle time has a cause, and units stay with their numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ostinato.profiling.analyse.summary import summarise
from ostinato.profiling.analyse.timeline import BETWEEN_REGIONS, ELSEWHERE, QUEUE, Cause
from ostinato.profiling.analyse.validity import Check, Status
from ostinato.profiling.report.page import save_page
from ostinato.profiling.report.page.head import head
from ostinato.profiling.report.page.material import material
from ostinato.profiling.report.page.sentences import unbroken
from pages import OpenPage, plain
from synthetic import Synthetic, node

MACHINE = Check("machine", Status.NOTED, "other programs took 7.0 % of the workers' time")
DRIFT = Check("drift", Status.ERROR, "intervals and spans differ by 12.0 %")
DROPS = Check("drops", Status.NOTED, "3 were lost")
QUIET = replace(MACHINE, status=Status.NOT_JUDGED)


def made() -> Synthetic:
    recording = Synthetic()
    plan = recording.plan([node("gemv")])
    for run in range(10):
        recording.submit(plan, [(10_000_000 * run, 10_000_000 * run + 1_300_000)])
    return recording


def shown(**changes: Any) -> dict[str, Any]:
    columns = made().columns()
    return head(material(columns, replace(summarise(columns), **changes)))


@pytest.mark.parametrize(
    ("checks", "doubt"),
    [((MACHINE, DROPS, DRIFT), DRIFT), ((DROPS, MACHINE), MACHINE), ((DROPS, QUIET), None), ((), None)],
)
def test_errors_and_a_disturbed_machine_are_said_in_the_open(checks: tuple[Check, ...], doubt: Check | None) -> None:
    said = shown(checks=checks)["doubt"]
    assert (said and (said["name"], said["status"])) == (doubt and (doubt.name, doubt.status))
    assert said is None or plain(said["sentence"]) == doubt.sentence  # type: ignore[union-attr]


def test_beside_busy_time_stands_what_idle_time_waited_for() -> None:
    (device,) = summarise(made().columns()).device_times
    causes = (Cause(QUEUE, 40_000_000, 4), Cause(ELSEWHERE, 30_000_000, 4), Cause(BETWEEN_REGIONS, 30_000_000, 1))
    idle = replace(device, span_ns=113_000_000, busy_ns=13_000_000, causes=causes)
    figures = {plain(each["name"]): plain(each["value"]) for each in shown(device_times=(idle,))["figures"]}
    assert figures["device busy; idle 100 ms: 60 % host-bound"] == "11.5 %"
    busy = replace(idle, busy_ns=idle.span_ns, causes=())
    assert "device busy" in {each["name"] for each in shown(device_times=(busy,))["figures"]}


def test_units_stay_on_the_line_of_their_number() -> None:
    text = "413 ms, 52.3 % of 3.95 TB/s, 8 B, 1.24 µs, 9 Gflop/s, 2 × more; 3 sorts, 4 sizes, 5 Bars"
    assert unbroken(text).count("\u00a0") == 7
    assert unbroken(text).endswith("; 3 sorts, 4 sizes, 5 Bars")
    assert "91.3\u00a0ms" in {figure["value"] for figure in shown()["figures"]}


@pytest.mark.parametrize("width", [1400, 400])
def test_the_browser_shows_the_doubt_and_tears_no_number_from_its_unit(
    open_page: OpenPage, tmp_path: Path, width: int
) -> None:
    columns = made().columns()
    save_page(columns, tmp_path / "page.html", replace(summarise(columns), checks=(DROPS, MACHINE)))
    page = open_page(tmp_path / "page.html", width=width)
    assert page.is_visible("#doubt")
    assert plain(page.inner_text("#doubt")) == f"machine: noted {MACHINE.sentence}"
    assert not page.is_visible("#checks table")
    assert page.evaluate("[formatTime(1.3e6), formatPercent(0.5), formatSize(12)]") == [
        "1.30\u00a0ms",
        "50.0\u00a0%",
        "12\u00a0B",
    ]
