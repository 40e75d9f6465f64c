"""The view "Labels": an icicle whose widths are shares of busy time, operated by mouse and keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from decoders import decoder, numbers
from ostinato.profiling.analyse import columns_of
from ostinato.profiling.analyse.summary import summarise
from ostinato.profiling.recording import open_recording
from ostinato.profiling.report.page.labels import labels
from ostinato.profiling.report.page.material import material
from pages import OpenPage, page_of
from synthetic import Synthetic, node


def labels_of(made: Synthetic) -> dict[str, Any]:
    columns = made.columns()
    view = labels(material(columns, summarise(columns)))
    assert view is not None
    return view


def paths(tree: dict[str, Any]) -> list[str]:
    parents = numbers(tree["parent"])

    def path(row: int) -> str:
        above = f"{path(parents[row])}/" if parents[row] >= 0 else ""
        return above + str(tree["name"][row])

    return [path(row) for row in range(len(tree["name"]))]


# --- the data -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["folded", "single"])
def test_the_trees_are_those_of_the_summary(which: str) -> None:
    made = decoder(5)
    summary = summarise(made.columns())
    tree = labels_of(made)[which]
    groups = {group.name: group for group in (summary.label_patterns if which == "folded" else summary.labels)}
    assert sorted(paths(tree)) == sorted(groups)
    for row, path in enumerate(paths(tree)):
        assert numbers(tree["total"])[row] == groups[path].total_ns
        assert numbers(tree["dispatched"])[row] == groups[path].dispatched
        assert numbers(tree["share"])[row] == groups[path].share


def test_kernels_of_a_label_add_up_to_its_time() -> None:
    made = decoder(5)
    tree = labels_of(made)["single"]
    first, kernel, ns = (numbers(tree[name]) for name in ("first", "kernel", "kernel_ns"))
    names = [group.name for group in summarise(made.columns()).kernels]
    for row, path in enumerate(paths(tree)):
        mix = {names[kernel[at]]: ns[at] for at in range(first[row], first[row + 1])}
        assert sum(mix.values()) == numbers(tree["total"])[row]
        if path == "decode/layer.2/attn":
            assert mix == {"gemv": 6 * 16_000, "sdpa": 6 * 5_000}


def test_only_the_largest_of_very_many_labels_are_kept_and_the_rest_is_counted() -> None:
    made = Synthetic()
    plan = made.plan([node("k", label=f"part{'abcdefghij'[i % 10]}/{i:05}x") for i in range(6_000)], [])
    made.submit(plan, [(i * 100, i * 100 + 50 + i % 7) for i in range(6_000)])
    view = labels_of(made)
    assert view["single"]["recorded"] == 6_010
    assert len(view["single"]["name"]) == 5_000
    assert len(view["folded"]["name"]) == 20


def test_parts_without_a_name_and_paths_that_end_in_a_slash_are_kept() -> None:
    made = Synthetic()
    plan = made.plan([node("k", label="/x"), node("k", label="a//b"), node("k", label="a/")])
    made.submit(plan, [(0, 10), (10, 20), (20, 30)])
    assert sorted(paths(labels_of(made)["single"])) == [
        "(no name)", "(no name)/x", "a", "a/(no name)", "a/(no name)/b",
    ]  # fmt: skip


# --- the view -------------------------------------------------------------------------------------------------------


def open_labels(open_page: OpenPage, made: Synthetic, folder: Path, **options: Any) -> Any:
    page = open_page(page_of(made, folder), **options)
    page.click("#tab-labels")
    return page


def widths(page: Any) -> dict[str, float]:
    """The cells by their label, with their widths."""
    items = page.locator("#panel-labels [role=treeitem]").all()
    return {item.get_attribute("aria-label").split(":")[0]: item.bounding_box()["width"] for item in items}


def test_widths_are_shares_and_a_click_zooms(open_page: OpenPage, tmp_path: Path) -> None:
    made = decoder(5)
    page = open_labels(open_page, made, tmp_path)
    shares = {group.name: group.share or 0.0 for group in summarise(made.columns()).label_patterns}
    drawn = widths(page)
    whole = drawn["all work"]
    assert drawn["decode"] == pytest.approx(whole * shares["decode"], abs=3)
    assert drawn["mlp"] == pytest.approx(whole * shares["decode/layer.*/mlp"], abs=3)
    page.locator("[role=treeitem][aria-label^='layer.*']").click()
    drawn = widths(page)
    assert drawn["layer.*"] == pytest.approx(whole, abs=3)
    assert "embed" not in drawn
    assert drawn["mlp"] == pytest.approx(whole * shares["decode/layer.*/mlp"] / shares["decode/layer.*"], abs=3)
    page.locator("#panel-labels .crumbs").get_by_role("button", name="decode").click()
    assert "embed" in widths(page)


def test_numbers_fold_by_a_switch(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_labels(open_page, decoder(5), tmp_path)
    assert "layer.*" in widths(page)
    page.get_by_label("numbers folded").uncheck()
    assert {f"layer.{n}" for n in range(5)} <= set(widths(page))


def test_the_tree_is_operated_by_keys(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_labels(open_page, decoder(5), tmp_path)
    focused = "document.activeElement.getAttribute('aria-label').split(':')[0]"
    page.locator("#panel-labels [role=treeitem][tabindex='0']").focus()
    for key, name in (
        ("ArrowDown", "decode"), ("ArrowDown", "layer.*"), ("ArrowDown", "mlp"), ("ArrowRight", "attn"),
        ("ArrowUp", "layer.*"), ("ArrowRight", "embed"), ("ArrowLeft", "layer.*"),
    ):  # fmt: skip
        page.keyboard.press(key)
        assert page.evaluate(focused) == name, key
    page.keyboard.press("Enter")
    assert page.locator("#panel-labels .crumbs").inner_text() == "all work / decode / layer.*"
    assert page.locator("#panel-labels .details h2").inner_text() == "decode/layer.*"
    page.keyboard.press("Backspace")
    assert page.evaluate(focused) == "decode"
    assert page.locator("#panel-labels [role=treeitem][tabindex='0']").count() == 1


def test_details_and_table_show_the_figures(open_page: OpenPage, tmp_path: Path) -> None:
    made = decoder(5)
    page = open_labels(open_page, made, tmp_path)
    page.locator("[role=treeitem][aria-label^='decode']").click()
    rows = page.locator("#panel-labels tbody tr")
    assert [row.split("\t")[0].strip() for row in rows.all_inner_texts()] == ["layer.*", "embed", "sample"]
    layer = next(group for group in summarise(made.columns()).label_patterns if group.name == "decode/layer.*")
    assert f"{layer.dispatched}" in rows.first.inner_text()
    assert "gemv_wide" in rows.first.inner_text()


def test_without_labels_the_view_says_how_to_label(open_page: OpenPage, tmp_path: Path) -> None:
    made = Synthetic()
    made.submit(made.plan([node("k")]), [(0, 10)])
    page = open_labels(open_page, made, tmp_path)
    assert "enc.scope(" in page.locator("#panel-labels").inner_text()


def test_without_times_widths_are_numbers_of_dispatches(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_labels(open_page, decoder(5, timed=False), tmp_path)
    drawn = widths(page)
    assert drawn["layer.*"] == pytest.approx(drawn["all work"] * 25 / 27, abs=3)
    assert "NaN" not in page.locator("#panel-labels").inner_text()
    assert "Nothing has a time" in page.locator("#panel-labels").inner_text()


def test_nothing_recorded_is_no_view() -> None:
    columns = Synthetic().columns()
    assert labels(material(columns, summarise(columns))) is None


@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_both_widths_and_themes(open_page: OpenPage, tmp_path: Path, width: int, scheme: str) -> None:
    page = open_labels(open_page, decoder(8), tmp_path, width=width, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_demo_has_tokens(demo_recording: Path) -> None:
    with open_recording(demo_recording) as recording:
        columns = columns_of(recording)
    view = labels(material(columns, summarise(columns)))
    assert view is not None
    assert view["repeated"] == "token"
    assert any(path.startswith("decode/layer.*/") for path in paths(view["folded"]))
