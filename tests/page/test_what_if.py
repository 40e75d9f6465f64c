"""What if: a bar for every saving, as long as the saving is, with what is only bounded or not known said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ostinato.profiling.analyse.summary import summarise
from pages import OpenPage, data_of, page_of
from synthetic import Synthetic, node, wandering


def chain() -> Synthetic:
    """Three kernels one after another."""
    made = Synthetic()
    plan = made.plan([node(name, bytes_read=1000, declared=True) for name in ("long", "middle", "short")])
    for run in range(10):
        at = 100_000_000 * run
        made.submit(plan, [(at, at + 600_000), (at + 600_000, at + 900_000), (at + 900_000, at + 1_000_000)])
    return made


def test_rows_are_those_of_the_summary(tmp_path: Path) -> None:
    made = chain()
    data = data_of(page_of(made, tmp_path).read_text())
    rows = {data["kernels"][row["kernel"]]["name"]: row for row in data["what_if"]["rows"]}
    summary = summarise(made.columns())
    assert {each.kernel for each in summary.what_ifs} <= set(rows)
    for each in summary.what_ifs:
        assert rows[each.kernel]["twice"]["share"] == each.saved_share
    assert rows["long"]["twice"]["share"] == pytest.approx(0.3)
    assert rows["long"]["on_path"] == pytest.approx(0.6)
    assert rows["short"]["on_path"] == pytest.approx(0.1)
    assert data["what_if"]["wall_ns"] == pytest.approx(10 * 1_000_000)


def test_bars_are_as_long_as_the_savings_and_in_the_order_that_is_chosen(open_page: OpenPage, tmp_path: Path) -> None:
    path = page_of(chain(), tmp_path)
    page = open_page(path)
    page.click("#tab-what_if")
    data = data_of(path.read_text())

    def names() -> list[str]:
        shown: list[str] = page.locator("#panel-what_if li button").all_inner_texts()
        return shown

    def order(key: Any) -> list[str]:
        rows = sorted(data["what_if"]["rows"], key=key, reverse=True)
        return [data["kernels"][row["kernel"]]["name"] for row in rows]

    assert names() == order(lambda row: row["twice"]["share"] if row["twice"] else -1)
    assert names()[0] == "long"
    widths = [float(each.get_attribute("width")) for each in page.locator("#panel-what_if rect.twice").all()]
    assert widths[0] / widths[1] == pytest.approx(2, rel=0.02)
    page.select_option("#what_if-order", "could")
    assert names() == order(lambda row: row["could"]["share"] if row["could"] else -1)
    assert "twice as fast: saves 30.0 %" in page.inner_text("#panel-what_if li:has-text('long')")
    page.click("#panel-what_if button:text-is('short')")
    assert page.get_attribute("#tab-by_kernel", "aria-selected") == "true"


def test_what_is_bounded_or_not_known_is_said(open_page: OpenPage, tmp_path: Path) -> None:
    path = page_of(wandering(copy_bytes_per_s=20e9), tmp_path)
    rows = data_of(path.read_text())["what_if"]["rows"]
    assert any(row["twice_unknown"] for row in rows)
    assert any(row["could_is_bound"] for row in rows)
    page = open_page(path)
    page.click("#tab-what_if")
    text = page.inner_text("#panel-what_if")
    assert "not known: it competes for a full device" in text
    assert "saves up to" in text
    assert "upper bound: it may save less" in text
    assert page.locator("#panel-what_if rect.could.bound").count() > 0
