"""What if: a bar for every saving, as long as the saving is, with what is only bounded or not known said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ostinato.profiling.analyse.columns import Device
from ostinato.profiling.analyse.summary import summarise
from pages import OpenPage, data_of, page_of, plain
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
    (whole,) = data["what_if"]["parts_of"]
    assert whole == {"what": "typical command-buffer time", "typical_ns": pytest.approx(10 * 1_000_000)}


def test_savings_on_several_devices_are_parts_of_the_time_of_each(open_page: OpenPage, tmp_path: Path) -> None:
    made = Synthetic(devices=[Device("fast"), Device("slow")])
    plan = made.plan([node("k", bytes_read=1000, declared=True), node("other", bytes_read=1000, declared=True)])
    for device, length in enumerate((1_000_000, 3_000_000)):
        for run in range(10):
            at = 100_000_000 * run
            made.submit(plan, [(at, at + length // 2), (at + length // 2, at + length)], device=device)
    path = page_of(made, tmp_path)
    data = data_of(path.read_text())
    each = {whole["what"]: whole["typical_ns"] for whole in data["what_if"]["parts_of"]}
    assert each == {
        "the typical command-buffer time of fast": pytest.approx(10_000_000),
        "the typical command-buffer time of slow": pytest.approx(30_000_000),
    }
    halved = [(one["saved_share"], one["parts_of"]) for one in data["by_kernel"]["rows"][0]["what_ifs"]]
    assert sorted(what for _, what in halved) == sorted(each)
    assert [share for share, _ in halved] == pytest.approx([0.25, 0.25])
    page = open_page(path)
    page.click("#tab-what_if")
    assert (
        "the typical command-buffer time of fast (10.0 ms) and of the typical command-buffer time of slow (30.0 ms), "
        "each of that of its own device"
    ) in plain(page.inner_text("#panel-what_if .note >> nth=0"))


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
    assert "twice as fast: saves 30.0 %" in plain(page.inner_text("#panel-what_if li:has-text('long')"))
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
