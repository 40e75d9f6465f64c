"""The view "Regions": every instance, the slowest of them, and what was different there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ostinato.profiling.analyse.origin import Origin
from ostinato.profiling.analyse.summary import summarise
from ostinato.profiling.report.page.material import material
from ostinato.profiling.report.page.regions import regions
from pages import HOSTILE, OpenPage, data_of, page_of, plain
from synthetic import Synthetic, node

PANEL = "#panel-regions"


def tokens(count: int = 100, slow: int = 70) -> Synthetic:
    """Instances of 1 ms; in the slow one `gemv` takes 3 ms longer."""
    made = Synthetic()
    plan = made.plan([node("norm"), node("gemv")])
    for number in range(count):
        t, extra = 10_000_000 * number, 3_000_000 if number == slow else 0
        region = made.region("token", t, t + 1_000_000 + extra + number)
        made.submit(plan, [(t + 100, t + 1100), (t + 1200, t + 500_000 + extra)], region=region)
    return made


def view(made: Synthetic) -> Any:
    columns = made.columns()
    return regions(material(columns, summarise(columns)))


def test_the_slowest_instance_says_what_differed() -> None:
    (region,) = view(tokens())["regions"]
    slow = region["slowest"][0]
    assert slow["number"] == 70
    assert slow["begin_ns"] == 10_000_000 * 70
    assert slow["end_ns"] - slow["begin_ns"] == slow["wall_ns"] == 4_000_070
    assert slow["over_ns"] == pytest.approx(3_000_020, abs=5)
    assert "+3.00 ms in command buffers (gemv +2.97 ms), +20" in plain(slow["what"])
    assert region["outliers"] == 1
    assert sum(region["histogram"]["counts"]) == 100


def test_the_first_instance_and_unusual_command_buffers_are_named() -> None:
    made = tokens(slow=0)
    made.submit(0, [(600_000, 600_100), (600_200, 600_300)], region=0)
    slow = view(made)["regions"][0]["slowest"][0]
    assert slow["number"] == 0
    assert slow["what"].startswith("the first one; ")
    assert slow["what"].endswith("2 command buffers, usually 1")


def test_of_several_processes_the_slow_ones_say_which() -> None:
    columns = tokens(10, slow=3).columns()
    process = np.arange(10) % 2
    origins = tuple(
        Origin(f"rank {rank}", "x", "", 1, "node", rank, rank, rank, 2, "", "", None, (2, 2), (0.0, 0.0), 1)
        for rank in range(2)
    )
    columns = replace(columns, regions=replace(columns.regions, process=process), origins=origins, pids=(1, 2))
    shown = regions(material(columns, summarise(columns)))
    assert shown is not None
    (region,) = shown["regions"]
    assert region["slowest"][0]["what"].endswith("; rank 1")
    assert region["note"] == "instances of several processes together"


def test_instances_without_command_buffers_say_only_how_long_they_took() -> None:
    made = Synthetic()
    for number in range(5):
        made.region("load", 1000 * number, 1000 * number + 100 * (number + 1))
    (region,) = view(made)["regions"]
    assert [slow["what"] for slow in region["slowest"]] == ["", "", "", "", "the first one"]


def test_of_many_instances_the_outliers_are_kept() -> None:
    made = Synthetic()
    rng = np.random.default_rng(0)
    wall = rng.integers(1000, 2000, 5000)
    wall[1234] = 50_000
    for number, length in enumerate(wall.tolist()):
        made.region("token", 100_000 * number, 100_000 * number + length)
    (region,) = view(made)["regions"]
    assert region["instances"] == 5000
    assert 1000 < region["shown"]["number"]["n"] <= 2010
    assert region["slowest"][0]["number"] == 1234


def test_without_regions_there_is_no_tab(open_page: OpenPage, tmp_path: Path) -> None:
    made = Synthetic()
    made.submit(made.plan([node("k")]), [(0, 100)])
    assert view(made) is None
    page = open_page(page_of(made, tmp_path))
    assert page.locator("#tab-regions").count() == 0


def test_the_view_shows_what_the_report_has(open_page: OpenPage, demo_page: Path) -> None:
    page = open_page(demo_page)
    page.click("#tab-regions")
    (region, *_) = data_of(demo_page.read_text())["regions"]["regions"]
    panel = page.locator(PANEL)
    assert panel.locator("h2").inner_text() == f"Time per {region['name']}"
    assert panel.locator("svg[role=img]").count() == 2
    label = panel.locator("svg.instances").get_attribute("aria-label") or ""
    assert f"{region['instances']} instances of {region['name']}" in label
    assert panel.locator("ol.slowest li").count() == min(region["instances"], 10)


def test_another_region_is_chosen_by_keyboard(open_page: OpenPage, tmp_path: Path) -> None:
    made = tokens(20, slow=3)
    made.region("prefill", 0, 5000)
    page = open_page(page_of(made, tmp_path))
    page.click("#tab-regions")
    choice = page.locator(f"{PANEL} table.all button >> text=prefill")
    choice.press("Enter")
    assert page.locator(f"{PANEL} h2").inner_text() == "Time per prefill"
    assert choice.get_attribute("aria-pressed") == "true"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_view_does_not_scroll_sideways(open_page: OpenPage, tmp_path: Path, scheme: str) -> None:
    page = open_page(page_of(tokens(), tmp_path), width=400, height=800, scheme=scheme)
    page.click("#tab-regions")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert "p90" in page.locator(f"{PANEL} dl").inner_text()


def test_names_are_text(open_page: OpenPage, tmp_path: Path) -> None:
    made = Synthetic()
    plan = made.plan([node("k")])
    for at in range(12):
        region = made.region(HOSTILE + "x" * 99, 1000 * at, 1000 * at + 500 + at)
        made.submit(plan, [(1000 * at, 1000 * at + 100)], region=region)
    page = open_page(page_of(made, tmp_path), width=400)
    page.click("#tab-regions")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert HOSTILE[:40] in page.locator(f"{PANEL} h2").inner_text()
    assert page.locator("img").count() == 0


def by_mouse(page: Any) -> None:
    page.locator(f"{PANEL} ol.slowest button").first.click()


def by_keyboard(page: Any) -> None:
    page.locator(f"{PANEL} ol.slowest button").first.press("Enter")


def in_the_chart(page: Any) -> None:
    box = page.locator(f"{PANEL} svg.instances .outlier").bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


@pytest.mark.parametrize("choose", [by_mouse, by_keyboard, in_the_chart])
def test_a_slow_instance_leads_to_the_timeline(open_page: OpenPage, tmp_path: Path, choose: Any) -> None:
    page = open_page(page_of(tokens(), tmp_path))
    page.click("#tab-regions")
    choose(page)
    assert page.is_visible("#panel-timeline")
    shown = page.evaluate("document.getElementById('panel-timeline').timeline.view()")
    begin, end = 700_000_000, 704_000_070
    assert begin - 1e6 < shown["begin_ns"] < begin < end < shown["end_ns"] < end + 1e6
