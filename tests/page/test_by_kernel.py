"""The view "Kernels": figures as the recording has them, a table that sorts and filters, and what opens below a row."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ostinato.profiling.analyse import columns_of
from ostinato.profiling.analyse.columns import Columns, Device, usable
from ostinato.profiling.analyse.summary import summarise
from ostinato.profiling.recording import open_recording
from ostinato.profiling.recording.schema import Source
from ostinato.profiling.report.page import save_page
from ostinato.profiling.report.page.by_kernel import by_kernel
from ostinato.profiling.report.page.material import material
from pages import HOSTILE, OpenPage, data_of, hostile, page_of, unpacked
from synthetic import Synthetic, node

PANEL = "#panel-by_kernel"


def view(columns: Columns) -> dict[str, Any]:
    return by_kernel(material(columns, summarise(columns)))


def mixed() -> Synthetic:
    """Two kernels with different labels, sources and grids; `often` has 2,000 dispatches, `rarely` one in ten runs."""
    made = Synthetic(devices=[Device("gpu", workers=4, copy_bytes_per_s=1e9, flops_per_s=1e10)])
    often = {"bytes_read": 1000, "declared": True, "flops": 500, "source": "often.metal", "label": "decode/attn"}
    first = made.plan([node("often", **often, place="a.py:3"), node("often", **often, groups=8, place="a.py:9")])
    second = made.plan(
        [node("rarely", source="other.metal", file="shared.h", label="decode/mlp", specialisation="N=4")]
    )
    for run in range(1000):
        t = 100_000 * run
        made.submit(first, [(t, t + 1000 + run), (t + 5000, t + 6000)], label="list")
        if run % 10 == 0:
            made.submit(second, [(t + 10_000, t + 10_100)])
    return made


def test_figures_are_those_of_all_dispatches(demo_recording: Path) -> None:
    with open_recording(demo_recording) as recording:
        columns = columns_of(recording)
    summary = summarise(columns)
    shown = by_kernel(material(columns, summary))
    samples = usable(columns.samples)
    command = columns.plans.command[samples.node]
    for group, row in zip(summary.kernels, shown["rows"], strict=True):
        mine = (columns.commands.kernel[command] == group.name) & (columns.commands.detail[command] == group.detail)
        durations = (samples.end_ns - samples.start_ns)[mine]
        assert row["count"] == durations.size
        assert row["p50_ns"] == np.median(durations)
        assert np.subtract(*row["slowest_ns"][::-1]) == row["max_ns"] == durations.max()
        assert sum(grid["count"] for grid in row["grids"]["rows"]) == durations.size
        assert row["rates"][0]["total_ns"] > 0
    suspect = summary.suspect
    assert suspect is not None
    number = next(at for at, group in enumerate(summary.kernels) if group.name == suspect.kernel)
    row = shown["rows"][number]
    assert row["suspects"][0]["reasons"]
    assert row["rates"][0]["efficiency"] == suspect.efficiency


def test_a_kernel_has_its_grids_labels_places_rates_and_paths() -> None:
    row, other = view(mixed().columns())["rows"]
    assert [grid["count"] for grid in row["grids"]["rows"]] == [1000, 1000]
    assert {grid["grid"] for grid in row["grids"]["rows"]} == {
        "threads 16384×1×1, group 256×1×1",
        "threads 2048×1×1, group 256×1×1",
    }
    assert [label["text"] for label in row["labels"]["rows"]] == ["decode/attn"]
    assert {place["text"] for place in row["places"]["rows"]} == {"a.py:3", "a.py:9"}
    assert sum(place["part"] for place in row["places"]["rows"]) == pytest.approx(1)
    assert [constant["text"] for constant in other["constants"]["rows"]] == ["N=4"]
    (rate,) = row["rates"]
    assert rate["bytes"] == 1000
    assert rate["flops"] == 500
    assert rate["nearer"] == "copy bandwidth"
    (path,) = row["paths"]
    assert (path["nodes"], path["nodes_on_path"]) == (2, 2)


def test_kernels_may_be_named_like_each_other() -> None:
    made = Synthetic()
    alike = [node("a", source="x.metal"), node("a", source="y.metal"), node("a (x.metal)")]
    made.submit(made.plan(alike), [(0, 10), (10, 30), (30, 70)])
    assert [row["count"] for row in view(made.columns())["rows"]] == [1, 1, 1]


def test_what_is_left_out_of_a_long_table_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ostinato.profiling.report.page.by_kernel._MOST_ROWS", 3)
    monkeypatch.setattr("ostinato.profiling.report.page.by_kernel._MOST_CHARTS", 2)
    made = Synthetic()
    plan = made.plan([node(f"k{number}") for number in range(5)])
    made.submit(plan, [(at * 100, at * 100 + 50 - at) for at in range(5)])
    shown = view(made.columns())
    assert len(shown["rows"]) == 3
    assert sum("slowest_ns" in row for row in shown["rows"]) == 2
    assert any("2 more rows in the JSON report" in note for note in shown["notes"])
    assert any("of the 2 kernels with the most time" in note for note in shown["notes"])


def names(page: Any) -> list[str]:
    return [text.strip() for text in page.locator(f"{PANEL} button.kernel").all_inner_texts()]


def test_every_column_sorts_by_click_and_by_keyboard(open_page: OpenPage, demo_page: Path) -> None:
    page = open_page(demo_page)
    page.click("#tab-by_kernel")
    data = data_of(demo_page.read_text())
    kernels, rows = data["kernels"], data["by_kernel"]["rows"]
    titles = [f"{kernel['name']} {kernel['detail']}".strip() for kernel in kernels]
    assert names(page) == titles
    heads = page.locator(f"{PANEL} table.kernels > thead th")
    keys = {"count": "count", "p50": "p50_ns", "p90": "p90_ns", "p99": "p99_ns", "min": "min_ns", "max": "max_ns"}
    for number in range(heads.count()):
        head = heads.nth(number)
        head.locator("button").click()
        first = head.get_attribute("aria-sort")
        title = head.inner_text().split(" ▼")[0].split(" ▲")[0]
        if title in keys:
            order = sorted(range(len(rows)), key=lambda at: (-rows[at][keys[title]], at))
            assert names(page) == [titles[at] for at in order], title
        before = names(page)
        head.locator("button").press("Enter")
        assert {first, head.get_attribute("aria-sort")} == {"ascending", "descending"}
        assert sorted(names(page)) == sorted(before)
        assert page.locator(f"{PANEL} th[aria-sort=ascending], {PANEL} th[aria-sort=descending]").count() == 1


def test_a_filter_finds_kernels_labels_and_sources(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page(page_of(mixed(), tmp_path))
    page.click("#tab-by_kernel")
    for wanted, shown in (
        ("RARE", ["rarely"]),
        ("decode/attn", ["often"]),
        ("other.metal", ["rarely"]),
        ("shared.h", ["rarely"]),
        ("often.metal", ["often"]),
        ("decode often", ["often"]),
        ("nothing", []),
        ("", ["often", "rarely"]),
    ):
        page.fill(f"{PANEL} input[type=search]", wanted)
        assert names(page) == shown
    page.fill(f"{PANEL} input[type=search]", "rarely")
    assert page.locator(f"{PANEL} [role=status]").inner_text() == "1 of 2 kernels"


def test_a_kernel_opens_by_click_and_by_enter(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page(page_of(mixed(), tmp_path))
    page.click("#tab-by_kernel")
    page.click(f"{PANEL} button.kernel >> text=often")
    details = page.locator("#by_kernel-details")
    assert details.locator("svg.histogram, svg.series").count() == 2
    text = details.inner_text()
    for fact in ("2,000", "decode/attn", "a.py:9", "threads 2048×1×1, group 256×1×1", "600 groups", "Twice as fast"):
        assert fact in text, fact
    assert "median" in (details.locator("svg.series").get_attribute("aria-label") or "")
    page.click(f"{PANEL} button.kernel >> text=often")
    assert details.count() == 0
    button = page.locator(f"{PANEL} button.kernel").nth(0)
    button.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert "shared.h included by other.metal" in details.inner_text()
    assert page.locator(f"{PANEL} button.kernel[aria-expanded=true]").inner_text() == "rarely"


def test_a_very_long_table_is_listed_in_two_steps(open_page: OpenPage, tmp_path: Path) -> None:
    made = Synthetic()
    made.submit(
        made.plan([node(f"k{at}") for at in range(250)]), [(at * 900, at * 900 + 500 - at) for at in range(250)]
    )
    page = open_page(page_of(made, tmp_path))
    page.click("#tab-by_kernel")
    assert len(names(page)) == 200
    page.fill(f"{PANEL} input[type=search]", "k249")
    assert names(page) == ["k249"]
    page.fill(f"{PANEL} input[type=search]", "")
    page.click(f"{PANEL} button.rest")
    assert len(names(page)) == 250
    assert not page.is_visible(f"{PANEL} button.rest")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_table_keeps_what_matters(open_page: OpenPage, demo_page: Path, scheme: str) -> None:
    page = open_page(demo_page, width=400, height=800, scheme=scheme)
    page.click("#tab-by_kernel")
    shown = page.locator(f"{PANEL} table.kernels > thead th:visible").all_inner_texts()
    assert [text.split(" ")[0] for text in shown] == ["kernel", "total", "share", "p50"]
    page.locator(f"{PANEL} button.kernel").nth(0).click()
    figures = page.locator("#by_kernel-details dl").inner_text()
    assert all(name in figures for name in ("p90", "p99", "min", "max", "efficiency"))
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_names_are_text(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page(page_of(hostile(), tmp_path), width=400)
    page.click("#tab-by_kernel")
    page.locator(f"{PANEL} button.kernel").nth(0).click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert HOSTILE[:40] in page.locator("#by_kernel-details").inner_text()
    assert page.locator("img").count() == 0


def test_without_times_the_view_says_what_to_do(open_page: OpenPage, tmp_path: Path) -> None:
    made = Synthetic()
    plan = made.plan([node("k")])
    for at in range(4):
        made.submit(plan, [None], start_ns=100 * at, end_ns=100 * at + 50)
    page = open_page(page_of(made, tmp_path))
    page.click("#tab-by_kernel")
    assert "--level dispatches" in page.locator(f"{PANEL} .notice").inner_text()
    page.locator(f"{PANEL} button.kernel").nth(0).click()
    assert page.locator("#by_kernel-details svg").count() == 0


def test_an_empty_recording_says_so(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page(page_of(Synthetic(), tmp_path))
    assert "No dispatch was recorded" in page.locator(PANEL).inner_text()


def test_a_kernel_on_two_devices_has_the_rates_of_both(open_page: OpenPage, tmp_path: Path) -> None:
    made = Synthetic(devices=[Device("fast", copy_bytes_per_s=1e9), Device("slow", copy_bytes_per_s=1e9)])
    plan = made.plan([node("k", bytes_read=1000, declared=True)])
    for at in range(20):
        made.submit(plan, [(100_000 * at, 100_000 * at + 2000)], device=0)
        made.submit(plan, [(100_000 * at, 100_000 * at + 8000)], device=1)
    (row,) = view(made.columns())["rows"]
    assert [(rate["device"], rate["efficiency"]) for rate in row["rates"]] == [("slow", 0.125), ("fast", 0.5)]
    page = open_page(page_of(made, tmp_path))
    page.click("#tab-by_kernel")
    page.locator(f"{PANEL} button.kernel").click()
    assert page.locator("#by_kernel-details h4").all_inner_texts() == ["slow", "fast"]


# --- source --------------------------------------------------------------------------------------------------

TEXT = """// a library
constant int unused = 1;

/* Adds one.
   Really. */
kernel void add(device float *x) { // }
    const char *hostile = "</pre><script>document.title='owned'</script>";
\tx[0] += 1.0; /* { */
}

kernel void other() {}
"""


def with_source() -> Columns:
    """One kernel at line 6 of a text that is in the recording."""
    digest = hashlib.sha256(TEXT.encode()).hexdigest()
    made = Synthetic()
    facts = {"file": "add.metal", "line": 6, "source_digest": digest, "execution": "loop: its threads never meet"}
    made.submit(made.plan([node("add", **facts)]), [(0, 100)])
    source = Source(id=1, digest=digest, size_bytes=len(TEXT), left_out="", text=TEXT)
    return replace(made.columns(), sources={digest: source})


def test_the_source_is_the_function_with_its_comment() -> None:
    shown = view(with_source())
    (row,), (text,) = shown["rows"], unpacked(shown["texts"])
    assert row["code"]["lines"] == [4, 9]
    assert (row["code"]["file"], row["code"]["line"]) == ("add.metal", 6)
    assert row["code"]["execution"] == "loop: its threads never meet"
    assert bytes(text["text"]).decode().split("\n")[7] == "    x[0] += 1.0; /* { */"


def test_a_text_that_has_no_room_is_cut_to_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ostinato.profiling.report.page.source_texts._MOST_CHARACTERS", 100)
    (text,) = unpacked(view(with_source())["texts"])
    assert (text["first"], text["whole"]) == (4, False)
    assert bytes(text["text"]).decode().startswith("/* Adds one.")


def test_functions_take_room_too_and_what_has_none_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ostinato.profiling.report.page.source_texts._MOST_CHARACTERS", 100)
    columns = with_source()
    made = Synthetic()
    facts = {"file": "add.metal", "source_digest": str(columns.commands.source_digest[0])}
    kernels = [node("add", line=6, **facts), node("other", line=11, **facts), node("add", line=6, groups=8, **facts)]
    made.submit(made.plan(kernels), [(0, 100), (200, 210), (300, 305)])
    shown = view(replace(made.columns(), sources=columns.sources))
    first, second = (row["code"] for row in shown["rows"])
    assert len(shown["texts"]) == 1
    assert first["text"] == 0
    assert (second["text"], second["line"]) == (None, 11)
    assert second["why"].startswith("left out: ")


def test_without_its_source_a_kernel_says_why() -> None:
    columns = replace(with_source(), sources={})
    (row,) = view(columns)["rows"]
    assert row["code"]["text"] is None
    assert "--with-source" in row["code"]["why"]
    assert len(row["code"]["digest"]) == 64


def test_a_page_without_source_has_no_text_of_any_origin() -> None:
    columns = with_source()
    shown = by_kernel(material(columns, summarise(columns), with_source=False))
    assert shown["texts"] == []
    (row,) = shown["rows"]
    assert row["code"]["text"] is None
    assert "without the source texts" in row["code"]["why"]


def test_the_browser_shows_source_as_text(open_page: OpenPage, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    save_page(with_source(), path)
    page = open_page(path)
    page.click("#tab-by_kernel")
    page.locator(f"{PANEL} button.kernel").click()
    listing = page.locator(f"{PANEL} pre.source")
    assert listing.inner_text().rstrip("\n") == "\n".join(TEXT.expandtabs(4).split("\n")[3:9])
    assert listing.locator(".marked").inner_text().startswith("kernel void add")
    assert page.title() != "owned"
    assert "add.metal:6" in page.locator("#by_kernel-details").inner_text()
    page.click(f"{PANEL} summary")
    assert "a library" in listing.nth(1).inner_text()
    page.fill(f"{PANEL} input[type=search]", "add.metal")
    assert names(page) == ["add"]
