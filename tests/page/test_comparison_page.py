"""The page of a comparison: surroundings first, then the whole, then rows that can be sorted and filtered."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from made_runs import spread_out, write_in_turns
from ostinato.cli import main
from ostinato.measure.comparing import LiveComparison
from ostinato.profiling.analyse.comparison import Comparison, Key, UnitTimes, compare_times
from ostinato.profiling.report.comparison import closing, word
from ostinato.profiling.report.page import save_comparison_page
from pages import OpenPage, data_of, plain

HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[31m"
GRID = "4096×1×1 / 256×1×1"


def times(middle_ns: float, deviation: float = 0.001, share: float = 0.2) -> UnitTimes:
    generator = np.random.default_rng(round(middle_ns))
    return UnitTimes(middle_ns * np.exp(generator.normal(0, deviation, 8)), 100, share)


A = {
    Key("graph", "token", grid="312"): times(12.3e6, share=1.0),
    Key("label", "decode/layer.*/attn"): times(3.2e6, share=0.3),
    Key("kernel", "matmul", "mlp/up", GRID): times(210e3, share=0.4),
    Key("kernel", "matmul", "mlp/down", GRID): times(190e3, share=0.3),
    Key("kernel", "vague", "", GRID): times(1800, 0.2, 0.02),
    Key("kernel", HOSTILE, HOSTILE, GRID): times(5e3, share=0.01),
    Key("kernel", "gone", "", GRID): times(5e3, share=0.015),
}
FACTORS = {"token": 1.05, "mlp/up": 1.2, "mlp/down": 0.9}


def comparison(**given: Any) -> Comparison:
    b = {key: replace(row, times_ns=row.times_ns * FACTORS.get(key.label or key.name, 1.0)) for key, row in A.items()}
    b[Key("kernel", "new", HOSTILE, GRID)] = b.pop(Key("kernel", "gone", "", GRID))
    settings: dict[str, Any] = {
        "about": [f"A: {HOSTILE}", "B: decode.py"],
        "differences": [f"Python: A {HOSTILE}, B 3.12"],
        "notes": ["measured on a busy day"],
    }
    return compare_times(A, b, **(settings | given))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "comparison.html"
    save_comparison_page(comparison(), path)
    return path


def verdicts(page: Any) -> list[str]:
    texts = page.locator("#comparison-rows tbody .verdict").all_inner_texts()
    return [text.split(" ", 1)[1] for text in texts]


def names(page: Any) -> list[str]:
    shown: list[str] = page.locator("#comparison-rows tbody th .name").all_inner_texts()
    return shown


def test_surroundings_and_the_closing_line_stand_above_the_rows(open_page: OpenPage, path: Path) -> None:
    page = open_page(path)
    assert plain(page.text_content("#look-first")) == closing(comparison())
    assert "1 thing differs" in page.inner_text("#checks summary")
    assert page.is_visible("#checks table")
    assert "measured on a busy day" in page.inner_text("#checks table")
    whole = page.inner_text("#comparison-whole")
    assert "SLOWER" in whole
    assert "1.050×" in whole
    assert page.locator("[role=tablist]").is_hidden()


def test_rows_have_the_figures_of_the_comparison(open_page: OpenPage, path: Path) -> None:
    page = open_page(path)
    compared = comparison()
    assert verdicts(page) == [word(row.verdict) for row in compared.rows]
    text = page.inner_text("#comparison-rows tbody")
    assert "1.200" in text
    assert "210 µs" in plain(text)
    data = data_of(path.read_text())["comparison"]
    assert [row["ratio"] for row in data["rows"]] == [
        [row.ratio.estimate, row.ratio.low, row.ratio.high] for row in compared.rows if row.ratio
    ]


def test_dots_and_lines_lie_on_one_logarithmic_axis_with_the_band_of_the_same(open_page: OpenPage, path: Path) -> None:
    page = open_page(path)
    rows = page.locator("#comparison-rows tbody tr")

    def at(row: int, selector: str, *attributes: str) -> list[float]:
        drawn = rows.nth(row).locator(f"td.chart {selector}").first
        return [float(drawn.get_attribute(name)) for name in attributes]

    one, _ = at(0, "line.one", "x1", "y1")
    left, width = at(0, "rect.same", "x", "width")
    assert one - left == pytest.approx(width / 2, rel=0.01)
    per_log = width / 2 / math.log(1.02)
    for number, row in enumerate(comparison().rows):
        assert row.ratio is not None
        if row.verdict.name == "CANNOT_TELL":
            continue
        (dot,) = at(number, "circle", "cx")
        low, high = at(number, "line.interval", "x1", "x2")
        for place, ratio in ((dot, row.ratio.estimate), (low, row.ratio.low), (high, row.ratio.high)):
            assert place - one == pytest.approx(per_log * math.log(ratio), abs=0.1)


def test_without_scripts_the_page_has_the_tables(path: Path) -> None:
    without_scripts = path.read_text().partition("<noscript>")[2].partition("</noscript>")[0]
    assert '<td class="t word bad">SLOWER</td>' in without_scripts
    assert "<img" not in without_scripts


def test_rows_are_sorted_by_a_heading(open_page: OpenPage, path: Path) -> None:
    page = open_page(path)
    page.click("#comparison-rows thead button:text-is('B / A')")
    rows = sorted(comparison().rows, key=lambda row: -(row.ratio.estimate if row.ratio else 0))
    assert verdicts(page) == [word(row.verdict) for row in rows]
    assert page.get_attribute("th:has(button:text-is('B / A'))", "aria-sort") == "descending"
    page.click("#comparison-rows thead button:text-is('B / A')")
    assert verdicts(page) == [word(row.verdict) for row in reversed(rows)]


def test_rows_are_filtered_by_text_kind_and_verdict(open_page: OpenPage, path: Path) -> None:
    page = open_page(path)
    page.fill("input[type=search]", "MLP/")
    assert names(page) == ["matmul", "matmul"]
    page.uncheck("input[value=FASTER]")
    assert verdicts(page) == ["SLOWER"]
    assert "1 of 6 rows" in page.inner_text("#panel-comparison [role=status]")
    page.fill("input[type=search]", "")
    page.uncheck("input[value=kernel]")
    assert names(page) == ["token", "decode/layer.*/attn"]


def test_what_only_one_side_has_is_listed(open_page: OpenPage, path: Path) -> None:
    page = open_page(path)
    assert "kernel gone 1.5 % of A's time" in plain(page.inner_text("#comparison-only-a"))
    assert "kernel new" in page.inner_text("#comparison-only-b")


def test_text_of_a_comparison_is_text(open_page: OpenPage, path: Path) -> None:
    assert "<img" not in path.read_text()
    page = open_page(path)
    assert page.locator("img").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_page_does_not_scroll_sideways(open_page: OpenPage, path: Path, scheme: str) -> None:
    page = open_page(path, width=400, height=800, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_single_recordings_show_their_intervals_and_no_ratio_has_one(open_page: OpenPage, tmp_path: Path) -> None:
    few = {key: replace(row, times_ns=row.times_ns[:1]) for key, row in A.items()}
    path = tmp_path / "few.html"
    save_comparison_page(compare_times(few, few), path)
    page = open_page(path)
    assert set(verdicts(page)) == {"CANNOT TELL"}
    assert page.locator("#comparison-rows line.interval").count() == 0
    assert "ratios without an interval" in page.inner_text("#panel-comparison")
    assert "nothing differs" in page.inner_text("#checks summary")


def test_the_command_writes_a_page_and_keeps_its_exit_status(open_page: OpenPage, tmp_path: Path) -> None:
    a, b = ({"matmul": 200_000.0 * factor, "softmax": 50_000.0} for factor in (1.0, 1.3))
    folders = write_in_turns(tmp_path, spread_out(a, 0.001, 6, 1), spread_out(b, 0.001, 6, 2))
    path = tmp_path / "page.html"
    done = CliRunner().invoke(main, ["compare", *map(str, folders), "--html", str(path)])
    assert done.exit_code == 1, done.output
    assert str(path) in done.stderr
    page = open_page(path)
    assert "kernel matmul (1.3" in page.inner_text("#look-first")


@pytest.mark.parametrize("place", ["missing/page.html", "A/0.ostinato"])
def test_a_page_that_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path, place: str) -> None:
    write_in_turns(tmp_path, [{"k": 1000.0}], [{"k": 1000.0}])
    marker = tmp_path / "ran"
    program = ["python", "-c", f"open({str(marker)!r}, 'w')"]
    done = CliRunner().invoke(main, ["compare", "--html", str(tmp_path / place), "--", *program, "--", *program])
    assert done.exit_code == 2
    assert not marker.exists()


def test_a_live_comparison_saves_its_page(tmp_path: Path) -> None:
    made = comparison()
    live = LiveComparison(**{name: getattr(made, name) for name in Comparison.__slots__})
    live.save_html(tmp_path / "live.html")
    assert plain(data_of((tmp_path / "live.html").read_text())["head"]["look_first"]) == closing(made)
