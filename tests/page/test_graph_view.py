"""The view "Graph": boxes of a command list that open and close, its critical path, and what a node waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from decoders import LAYER, decoder, numbers
from ostinato.profiling.analyse import columns_of
from ostinato.profiling.analyse.columns import Device
from ostinato.profiling.analyse.summary import summarise
from ostinato.profiling.recording import open_recording
from ostinato.profiling.report.page.graph import graph
from ostinato.profiling.report.page.material import material
from pages import OpenPage, data_of, page_of, plain
from synthetic import Synthetic, node


def shown(page: Any) -> dict[str, dict[str, Any]]:
    """The boxes of the picture, by what they say."""
    return {box["title"]: box for box in page.evaluate("graphView.boxes()")}


def until(page: Any, expression: str) -> None:
    """Waits for something that the next frames bring."""
    for _ in range(100):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(20)
    pytest.fail(f"never true: {expression}")


def lists_of(page: Any) -> Any:
    """Where a command list is chosen."""
    return page.locator("#panel-graph select").first


def click(page: Any, box: Mapping[str, Any]) -> None:
    page.locator("#panel-graph canvas").click(position={"x": box["x"] + 12, "y": box["y"] + box["h"] / 2})


def graph_of(made: Synthetic) -> dict[str, Any]:
    columns = made.columns()
    view = graph(material(columns, summarise(columns)))
    assert view is not None
    return view


# --- the data -------------------------------------------------------------------------------------------------------


def test_the_data_hold_every_command_but_barriers_with_its_median_times() -> None:
    (shown_list,) = graph_of(decoder(4))["lists"]
    assert shown_list["commands"] == len(numbers(shown_list["kernel"])) == 2 + 4 * len(LAYER)
    assert shown_list["barriers"] == 1
    assert numbers(shown_list["duration"])[:4] == [900, 1_000, 8_000, 8_000]
    assert numbers(shown_list["start"])[:4] == [0, 900, 1_900, 1_900]
    # Two nodes that run at the same time take half of it each.
    assert numbers(shown_list["busy"])[2:4] == [4_000, 4_000]
    assert shown_list["share"] == 1.0
    assert shown_list["submissions"] == 6


def test_edges_that_follow_from_others_are_left_out_and_counted() -> None:
    (shown_list,) = graph_of(decoder(4))["lists"]
    edges = set(zip(numbers(shown_list["before"]), numbers(shown_list["after"]), strict=True))
    assert shown_list["implied"] == 4
    assert (0, 1) in edges
    assert (0, 5) not in edges
    assert (20, 21) in edges  # past the barrier


def test_the_critical_path_is_that_of_the_summary() -> None:
    made = decoder(3)
    (shown_list,) = graph_of(made)["lists"]
    (path,) = summarise(made.columns()).critical_paths
    barrier = 16
    expected = [n - (n > barrier) for n in path.path.nodes if n != barrier]
    assert numbers(shown_list["path"]) == expected
    assert set(numbers(shown_list["path_depends"])) == {1}


def test_the_slowest_run_is_where_the_timeline_has_it() -> None:
    made = decoder(3)
    last = len(made.plans[0][0]) - 1
    made.submissions[4]["end_ns"] += 5_000
    made.samples = [(*row[:4], row[4] + 5_000 * (row[0] == 4 and row[2] == last), row[5]) for row in made.samples]
    (shown_list,) = graph_of(made)["lists"]
    first, slow = made.submissions[0], made.submissions[4]
    expected = {name: slow[name] - first["start_ns"] for name in ("start_ns", "end_ns")}
    assert shown_list["slowest"] == {"begin_ns": expected["start_ns"], "end_ns": expected["end_ns"]}


def test_a_wait_for_a_worker_is_no_dependency() -> None:
    made = Synthetic(devices=[Device("cpu", clock_uncertainty_ns=50.0, workers=1, first_come=True)])
    plan = made.plan([node("a", groups=1), node("b", groups=1)], [])
    for run in range(6):
        made.submit(plan, [(run * 10**6, run * 10**6 + 50_000), (run * 10**6 + 50_500, run * 10**6 + 90_000)])
    (shown_list,) = graph_of(made)["lists"]
    assert numbers(shown_list["path"]) == [0, 1]
    assert numbers(shown_list["path_depends"]) == [0]
    assert numbers(shown_list["before"]) == []


def test_of_a_very_long_list_the_first_nodes_are_shown_and_the_rest_is_counted() -> None:
    made = Synthetic(devices=[Device("cpu", clock_uncertainty_ns=50.0)])
    nodes = [node("k") if i % 2 else node("barrier", kind="barrier") for i in range(20_100)]
    plan = made.plan(nodes)
    made.submit(plan, [(i * 10, i * 10 + 10) if i % 2 else None for i in range(len(nodes))])
    (shown_list,) = graph_of(made)["lists"]
    assert shown_list["commands"] == 10_050
    assert len(numbers(shown_list["kernel"])) == 10_000
    assert numbers(shown_list["path"]) == list(range(10_000))
    assert numbers(shown_list["before"]) == list(range(9_999))


def test_without_times_lists_are_shown_without_a_path() -> None:
    (shown_list,) = graph_of(decoder(2, timed=False))["lists"]
    assert set(numbers(shown_list["duration"])) == {-1}
    assert numbers(shown_list["path"]) == []
    assert shown_list["wall_ns"] is None
    assert shown_list["submissions"] == 6


def test_nothing_recorded_is_no_view() -> None:
    columns = Synthetic().columns()
    assert graph(material(columns, summarise(columns))) is None


def test_the_demo_folds_its_layers(demo_recording: Path) -> None:
    with open_recording(demo_recording) as recording:
        columns = columns_of(recording)
    view = graph(material(columns, summarise(columns)))
    assert view is not None
    names = view["lists"][0]["names"]
    assert any("layer.*" in name for name in names), names


# --- the view -------------------------------------------------------------------------------------------------------


def open_graph(open_page: OpenPage, made: Synthetic, folder: Path, **options: Any) -> Any:
    page = open_page(page_of(made, folder), **options)
    page.click("#tab-graph")
    return page


def test_alike_layers_are_one_box_that_opens_by_click_and_by_enter(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_graph(open_page, decoder(12), tmp_path)
    folded = shown(page)["layer.* × 12"]
    assert not folded["open"]
    assert "layer.3" not in shown(page)
    click(page, folded)
    assert {f"layer.{n}" for n in range(12)} <= set(shown(page))
    click(page, shown(page)["layer.* × 12"])
    assert "layer.3" not in shown(page)
    page.keyboard.press("Enter")
    assert "layer.3" in shown(page)
    page.keyboard.press("Enter")
    assert "layer.3" not in shown(page)


def test_what_is_alike_says_how_much_it_differs(open_page: OpenPage, tmp_path: Path) -> None:
    made = decoder(12)
    first = 1 + 7 * len(LAYER)
    made.samples = [(*row[:4], row[4] + (3_000 if row[2] == first + 4 else 0), row[5]) for row in made.samples]
    page = open_graph(open_page, made, tmp_path)
    click(page, shown(page)["layer.* × 12"])
    spread = page.locator("#panel-graph dt", has_text="each takes").locator("xpath=following-sibling::dd[1]")
    assert spread.inner_text().endswith(" (layer.7)")


def test_expand_all_collapse_all_and_depth(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_graph(open_page, decoder(12), tmp_path)
    total = 2 + 12 * len(LAYER)
    page.get_by_role("button", name="expand all").click()
    assert page.locator("#panel-graph [role=status]").inner_text() == f"showing {total} of {total} nodes"
    assert sum(not box["open"] for box in page.evaluate("graphView.boxes()")) == total
    page.get_by_role("button", name="collapse all").click()
    assert list(shown(page)) == ["decode"]
    page.get_by_label("Depth").select_option("2")
    assert set(shown(page)) == {"decode", "embed", "layer.* × 12", "sample"}


def test_what_is_too_tall_to_read_begins_at_its_top(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_graph(open_page, decoder(9), tmp_path, width=700, height=600)
    page.get_by_role("button", name="expand all").click()
    first = shown(page)["embed"]
    assert first["h"] > 0.42 * 26
    assert first["y"] >= 0
    page.get_by_role("button", name="fit").click()
    assert shown(page)["embed"]["h"] < first["h"]


def test_boxes_of_one_level_are_side_by_side_and_levels_below_each_other(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_graph(open_page, decoder(1), tmp_path)
    page.get_by_role("button", name="expand all").click()
    boxes = shown(page)
    assert boxes["q"]["y"] == boxes["k"]["y"]
    assert abs(boxes["q"]["x"] - boxes["k"]["x"]) >= boxes["q"]["w"]
    assert boxes["norm"]["y"] < boxes["q"]["y"] < boxes["mix"]["y"] < boxes["mlp"]["y"]


def test_no_two_boxes_overlap(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_graph(open_page, decoder(60), tmp_path)
    page.get_by_role("button", name="expand all").click()
    boxes = [box for box in page.evaluate("graphView.boxes()") if not box["open"]]
    sides = np.array([(b["x"], b["y"], b["x"] + b["w"], b["y"] + b["h"]) for b in boxes])
    apart_x = (sides[:, None, 0] >= sides[None, :, 2]) | (sides[None, :, 0] >= sides[:, None, 2])
    apart_y = (sides[:, None, 1] >= sides[None, :, 3]) | (sides[None, :, 1] >= sides[:, None, 3])
    assert (apart_x | apart_y | np.eye(len(boxes), dtype=bool)).all()


def test_a_node_says_its_times_and_what_it_waits_for(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_graph(open_page, decoder(1), tmp_path)
    page.get_by_role("button", name="expand all").click()
    click(page, shown(page)["mix"])
    said = page.locator("#panel-graph .details").inner_text()
    assert "decode/layer.0/attn/mix" in said
    assert "5.00 µs" in plain(said)
    assert "model.py:7" in said
    waits = page.locator("#panel-graph dt", has_text="waits for").first.locator("xpath=following-sibling::dd[1]")
    assert waits.inner_text() == "q, k"
    waits.get_by_role("button", name="k").click()
    assert page.locator("#panel-graph .details h2").inner_text() == "k"


def test_the_table_lists_the_critical_path_and_leads_to_its_nodes(open_page: OpenPage, tmp_path: Path) -> None:
    made = decoder(30)
    page = open_graph(open_page, made, tmp_path)
    (path,) = summarise(made.columns()).critical_paths
    on_path = [n for n in path.path.nodes if path.kernel[n] != "barrier"]
    rows = page.locator("#panel-graph tbody tr")
    assert rows.count() == min(len(on_path), 100)
    page.get_by_role("button", name="more").click()
    assert rows.count() == len(on_path)
    for at in (0, 3, len(on_path) - 1):
        cells = rows.nth(at).locator("td").all_inner_texts()
        assert cells[2:4] == [path.kernel[on_path[at]], path.node_label[on_path[at]]]
    assert "layer.7" not in shown(page)
    rows.filter(has_text="layer.7/").first.get_by_role("button").click()
    assert "layer.7" in shown(page)
    assert page.locator("#panel-graph .details h2").inner_text() == "norm"


def test_wheel_drag_keys_and_buttons_zoom_and_pan(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_graph(open_page, decoder(40), tmp_path)
    page.get_by_role("button", name="expand all").click()
    canvas = page.locator("#panel-graph canvas")
    box = canvas.bounding_box()
    before = shown(page)["embed"]
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    until(page, f"graphView.boxes().some((box) => box.title === 'embed' && box.w > {before['w'] * 1.1})")
    before = shown(page)["embed"]
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2 + 50, box["y"] + box["height"] / 2 + 30, steps=4)
    page.mouse.up()
    after = shown(page)["embed"]
    assert after["x"] - before["x"] == pytest.approx(50, abs=5)
    assert after["y"] - before["y"] == pytest.approx(30, abs=5)
    canvas.press("Shift+ArrowRight")
    assert shown(page)["embed"]["x"] < after["x"]
    canvas.press("+")
    assert shown(page)["embed"]["w"] > after["w"]
    canvas.press("0")
    assert all(each["x"] >= 0 and each["y"] >= 0 for each in shown(page).values())


def test_arrow_keys_move_and_backspace_closes_the_group_around(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_graph(open_page, decoder(3), tmp_path)
    canvas = page.locator("#panel-graph canvas")
    canvas.press("ArrowDown")
    assert "selected: decode" in canvas.get_attribute("aria-label")
    canvas.press("ArrowDown")
    until(page, "document.querySelector('#panel-graph canvas').ariaLabel.includes('selected: embed')")
    canvas.press("Backspace")
    assert list(shown(page)) == ["decode"]


def test_fingers_tap_and_pinch(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_graph(open_page, decoder(12), tmp_path, width=400, has_touch=True)
    canvas = page.locator("#panel-graph canvas")
    folded = shown(page)["layer.* × 12"]
    canvas.tap(position={"x": folded["x"] + 12, "y": folded["y"] + folded["h"] / 2})
    assert "layer.3" in shown(page)
    before = shown(page)["decode"]["w"]
    box = canvas.bounding_box()
    session = page.context.new_cdp_session(page)
    x, y = box["x"] + box["width"] / 2, box["y"] + min(box["height"] / 2, 100)

    def fingers(kind: str, *across: float) -> None:
        points = [{"x": x + offset, "y": y, "id": number} for number, offset in enumerate(across)]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    fingers("touchStart", -20)
    fingers("touchStart", -20, 20)
    for spread in range(25, 60, 5):
        fingers("touchMove", -spread, spread)
    fingers("touchEnd")
    until(page, f"graphView.boxes()[0].w > {before * 1.5}")


def test_a_node_leads_to_its_label(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_graph(open_page, decoder(12), tmp_path)
    page.locator("#panel-graph tbody tr", has_text="layer.7/attn").first.get_by_role("button").click()
    page.locator("#panel-graph .details").get_by_role("button", name="decode/layer.7/attn/q").click()
    assert page.locator("#panel-labels .crumbs").inner_text() == "all work / decode / layer.7 / attn / q"


def test_another_view_can_ask_for_the_longest_node_of_a_kernel(open_page: OpenPage, tmp_path: Path) -> None:
    made = decoder(12)
    (kernel,) = (row for row, group in enumerate(summarise(made.columns()).kernels) if group.name == "sample")
    page = open_graph(open_page, made, tmp_path)
    page.click("#tab-labels")
    title = page.evaluate(
        """async (kernel) => {
            const data = await unpackAll(JSON.parse(document.getElementById("data").textContent));
            const panel = document.getElementById("panel-labels");
            panel.replaceChildren();
            panel.id = "panel-graph";
            const asked = {data, select() {}, selected: () => -1, onSelect() {}, open() {}};
            const drawn = VIEWS.find((view) => view.key === "graph").make(panel, asked);
            drawn.shown();
            drawn.reveal({kernel});
            return panel.querySelector(".details h2").textContent;
        }""",
        kernel,
    )
    assert title == "sample"


def test_a_level_of_very_many_nodes_takes_several_lines(open_page: OpenPage, tmp_path: Path) -> None:
    made = Synthetic()
    plan = made.plan([node("k", label=f"part {'abcdefghijklmnopqrstuvwxyz'[i]} of many") for i in range(26)], [])
    made.submit(plan, [(i * 100, i * 100 + 50) for i in range(26)])
    page = open_graph(open_page, made, tmp_path)
    boxes = [box for box in page.evaluate("graphView.boxes()") if not box["open"]]
    assert len(boxes) == 26
    assert len({box["y"] for box in boxes}) >= 3
    assert all(box["h"] > 20 for box in boxes)


def test_several_lists_can_be_chosen(open_page: OpenPage, tmp_path: Path) -> None:
    made = decoder(3)
    plan = made.plan([node("copy", label="prefill")])
    for at in range(5):
        made.submit(plan, [(10**9 + at * 10**6, 10**9 + at * 10**6 + 3_000)], label="prompt")
    page = open_graph(open_page, made, tmp_path)
    options = lists_of(page).locator("option").all_inner_texts()
    assert [option.split(" · ")[0] for option in options] == ["token", "prompt"]
    assert "5 submissions" in options[1]
    lists_of(page).select_option("1")
    assert list(shown(page)) == ["prefill"]


def test_five_thousand_nodes_open_within_what_can_be_drawn(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_graph(open_page, decoder(1000, runs=3), tmp_path)
    first = [box for box in page.evaluate("graphView.boxes()") if not box["open"]]
    assert len(first) <= 60
    page.get_by_role("button", name="expand all").click()
    assert "showing 5,002 of 5,002 nodes" in page.locator("#panel-graph [role=status]").inner_text()


@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_both_widths_and_themes(open_page: OpenPage, tmp_path: Path, width: int, scheme: str) -> None:
    page = open_graph(open_page, decoder(8), tmp_path, width=width, height=900, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.get_by_role("button", name="expand all").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_without_times_the_view_says_so(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_graph(open_page, decoder(4, timed=False), tmp_path)
    assert "has a time" in page.locator("#panel-graph .details").inner_text()
    assert page.locator("#panel-graph table").count() == 0
    assert "NaN" not in page.locator("#panel-graph").inner_text()


def test_lists_without_times_are_those_that_ran_most_often(open_page: OpenPage, tmp_path: Path) -> None:
    made = Synthetic()
    for number in range(4):
        plan = made.plan([node("k", label=f"list.{number}")])
        for _ in range(number + 1):
            made.submit(plan, [None])
    text = open_graph(open_page, made, tmp_path).locator("#panel-graph").inner_text()
    assert "3 of 4 command lists are shown: those that ran most often." in text


def test_times_of_one_run_are_not_called_medians(open_page: OpenPage, tmp_path: Path) -> None:
    made = Synthetic()
    made.submit(made.plan([node("alone")]), [(0, 5000)])
    page = open_graph(open_page, made, tmp_path)
    assert "5.00 µs, 1 run" in plain(page.locator("#panel-graph .details").inner_text())
    click(page, shown(page)["alone"])
    until(page, "document.querySelector('#panel-graph .details dt').textContent === 'kernel'")
    text = page.locator("#panel-graph").inner_text()
    assert "Times are those of 1 run" in text
    assert "median" not in text


def test_the_demo_has_a_readable_graph(open_page: OpenPage, demo_page: Path) -> None:
    page = open_page(demo_page)
    page.click("#tab-graph")
    boxes = page.evaluate("graphView.boxes()")
    assert 2 <= sum(not box["open"] for box in boxes) <= 60
    lists: Sequence[Any] = data_of(demo_page.read_text())["graph"]["lists"]
    assert lists_of(page).locator("option").count() == len(lists)
