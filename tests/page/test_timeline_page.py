"""The timeline in a browser: what is painted, zoom and pan by every means, search, selection, dependencies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ostinato.profiling.analyse import formatting
from ostinato.profiling.analyse.columns import ABSENT, BOUNDED, MEASURED, Device
from ostinato.profiling.analyse.timeline import BETWEEN_REGIONS, CAUSES
from ostinato.profiling.recording.schema import CommandTerms, SubmissionValues
from ostinato.profiling.report.device_tracks import reached
from ostinato.profiling.report.page import save_page
from ostinato.profiling.report.page import timeline as module
from pages import OpenPage, data_of, page_of, plain
from synthetic import Synthetic, node

VIEW = "document.getElementById('panel-timeline').timeline"
CANVAS = "#panel-timeline .stage canvas"


def decoder(tokens: int = 20) -> Synthetic:
    """Tokens with layers, a diamond of dependencies with a barrier in it, host spans and gaps."""
    device = Device("cpu", workers=4, clock_uncertainty_ns=50.0, copy_bytes_per_s=20e9, flops_per_s=100e9)
    made = Synthetic(devices=[device])
    known = {"bytes_read": 1_000_000, "bytes_written": 500_000, "declared": True, "flops": 4_000_000}
    nodes = [
        node("norm", label="decode/layer.0/norm", **known),
        node("matvec", label="decode/layer.0/mlp", place="model.py:12", **known),
        node("matvec", label="decode/layer.1/mlp", bytes_read=3_000_000),
        node("barrier", kind="barrier"),
        node("top_k", label="decode/top_k", **known),
    ]
    plan = made.plan(nodes, [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)])
    for token in range(tokens):
        t = 1_000_000 + 2_000_000 * token
        times = [
            (t, t + 200_000),
            (t + 210_000, t + 600_000),
            (t + 210_000, t + 900_000),
            None,
            (t + 910_000, t + 1_400_000),
        ]
        region = made.region("token", t - 90_000, t + 1_450_000)
        made.submit(
            plan, times, region=region, label="token", commit_begin_ns=t - 40_000, commit_end_ns=t - 10_000,
            encode_begin_ns=t - 80_000, encode_end_ns=t - 45_000,
        )  # fmt: skip
        made.span("wait", t - 5_000, t + 1_420_000)
    return made


@pytest.fixture
def opened(open_page: OpenPage, tmp_path: Path) -> Any:
    return open_page(page_of(decoder(), tmp_path))


def view(page: Any) -> tuple[float, float]:
    shown = page.evaluate(f"{VIEW}.view()")
    return shown["begin_ns"], shown["end_ns"]


def settled(page: Any) -> None:
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def place(page: Any, kind: str, span: int, lane: int = 0) -> tuple[float, float]:
    """Where the middle of a span is in the window."""
    at = page.evaluate(f"{VIEW}.at({{row: {VIEW}.rows.filter((row) => row.kind === '{kind}')[{lane}], span: {span}}})")
    box = page.locator(CANVAS).bounding_box()
    return box["x"] + at["x"], box["y"] + at["y"]


def colour(page: Any, x: float, y: float) -> str:
    box = page.locator(CANVAS).bounding_box()
    words = page.evaluate(
        """([selector, x, y]) => {
            const copy = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
            copy.drawImage(document.querySelector(selector), -Math.floor(x), -Math.floor(y));
            return Array.from(copy.getImageData(0, 0, 1, 1).data);
        }""",
        [CANVAS, x - box["x"], y - box["y"]],
    )
    return "#" + "".join(f"{word:02x}" for word in words[:3])


def test_the_wheel_zooms_at_the_pointer_and_pans(opened: Any) -> None:
    before = view(opened)
    box = opened.locator(CANVAS).bounding_box()
    x = box["x"] + 150 + (box["width"] - 150) * 0.25
    opened.mouse.move(x, box["y"] + 100)
    opened.mouse.wheel(0, -300)
    settled(opened)
    after = view(opened)
    length = after[1] - after[0]
    assert length < 0.8 * (before[1] - before[0])
    under = before[0] + 0.25 * (before[1] - before[0])
    assert after[0] + 0.25 * length == pytest.approx(under, rel=1e-3)
    opened.mouse.wheel(200, 0)
    settled(opened)
    moved = view(opened)
    assert moved[0] > after[0]
    assert moved[1] - moved[0] == pytest.approx(length)


def test_a_drag_pans_and_a_double_click_zooms_to_a_span(opened: Any) -> None:
    x, y = place(opened, "buffers", 10)
    opened.mouse.dblclick(x, y)
    begin, end = view(opened)
    assert end - begin == pytest.approx(1.2 * 1_400_000)
    box = opened.locator(CANVAS).bounding_box()
    opened.evaluate(f"{VIEW}.select(null)")
    opened.mouse.move(box["x"] + 800, box["y"] + 60)
    opened.mouse.down()
    opened.mouse.move(box["x"] + 700, box["y"] + 60, steps=4)
    opened.mouse.up()
    after = view(opened)
    assert after[0] - begin == pytest.approx(100 * (end - begin) / (box["width"] - 150), rel=0.05)
    assert not opened.evaluate(f"{VIEW}.selection()")  # a drag selects nothing


def test_keys_zoom_pan_and_show_everything(opened: Any) -> None:
    opened.focus(CANVAS)
    all_of_it = view(opened)
    for key, sign in (("w", -1), ("s", 1), ("+", -1), ("-", 1)):
        before = view(opened)
        opened.keyboard.press(key)
        assert np.sign(round(np.diff(view(opened))[0] - np.diff(before)[0])) == sign or key in "s-"
    opened.keyboard.press("w")
    for key, sign in (("d", 1), ("a", -1), ("ArrowRight", 1), ("ArrowLeft", -1)):
        before = view(opened)
        opened.keyboard.press(key)
        assert np.sign(view(opened)[0] - before[0]) == sign
    for key in ("0", "Home"):
        opened.keyboard.press("w")
        opened.keyboard.press(key)
        assert view(opened) == pytest.approx(all_of_it)


def test_two_fingers_zoom(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page(page_of(decoder(), tmp_path), width=400, height=800, has_touch=True, is_mobile=True)
    before = view(page)
    box = page.locator(CANVAS).bounding_box()
    session = page.context.new_cdp_session(page)
    y = box["y"] + 60

    def touch(kind: str, *xs: float) -> None:
        points = [{"x": box["x"] + x, "y": y, "id": number} for number, x in enumerate(xs)]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", 150, 250)
    for step in range(1, 6):
        touch("touchMove", 150 - 10 * step, 250 + 10 * step)
    touch("touchEnd")
    settled(page)
    after = view(page)
    assert (after[1] - after[0]) / (before[1] - before[0]) == pytest.approx(0.5, abs=0.05)


def test_spans_have_the_colours_of_their_kernels_and_gaps_those_of_their_causes(opened: Any) -> None:
    kernels = opened.evaluate("JSON.parse(document.getElementById('data').textContent).kernels.map((k) => k.name)")
    colours = opened.evaluate("kernelColour(0) + kernelColour(1) + kernelColour(2)").split("#")[1:]
    opened.mouse.dblclick(*place(opened, "buffers", 3))
    settled(opened)
    for lane, span, name in ((0, 9, "norm"), (0, 10, "matvec"), (1, 3, "matvec"), (0, 11, "top_k")):
        x, y = place(opened, "dispatches", span, lane)
        assert colour(opened, x, y - 7) == "#" + colours[kernels.index(name)], (name, x, y)
    opened.focus(CANVAS)
    opened.keyboard.press("0")
    settled(opened)
    # Inside and between command buffers in turns.
    x, y = place(opened, "idle", 5)
    cause = opened.evaluate(f"{VIEW}.rows.find((row) => row.kind === 'idle').columns.cause[5]")
    assert CAUSES[cause] == BETWEEN_REGIONS
    letter, full, _ = opened.evaluate(f"TIMELINE.CAUSES[{cause}]")
    seen = {colour(opened, x + step, y - 6) for step in range(-4, 4)}
    assert full in seen
    assert letter == "R"
    assert len(CAUSES) == opened.evaluate("TIMELINE.CAUSES.length")


def test_search_counts_what_matches_fades_the_rest_and_goes_from_match_to_match(opened: Any) -> None:
    opened.fill("#panel-timeline input", "top_k")
    # Twenty dispatches, and the label around each of them.
    assert opened.text_content("#panel-timeline .tools [role=status]") == "40 matches"
    settled(opened)
    opened.press("#panel-timeline input", "Enter")
    seen = []
    for _ in range(3):
        seen.append(opened.evaluate(f"(({{row, span}}) => [row.kind, row.begin[span]])({VIEW}.selection())"))
        opened.press("#panel-timeline input", "Enter")
    assert [kind for kind, _ in seen] == ["labels", "dispatches", "labels"]
    assert seen[0][1] == seen[1][1] < seen[2][1]
    opened.press("#panel-timeline input", "Shift+Enter")
    opened.press("#panel-timeline input", "Shift+Enter")
    at = opened.evaluate(f"(({{row, span}}) => [row.kind, row.begin[span]])({VIEW}.selection())")
    assert at == seen[1]
    opened.fill("#panel-timeline input", "no such thing")
    assert opened.text_content("#panel-timeline .tools [role=status]") == "0 matches"
    opened.press("#panel-timeline input", "Escape")
    assert opened.text_content("#panel-timeline .tools [role=status]") == ""


def test_matches_are_seen_however_small_they_are(open_page: OpenPage, tmp_path: Path) -> None:
    made = Synthetic()
    plan = made.plan([node("needle" if i == 500 else "hay") for i in range(5000)])
    made.submit(plan, [(1000 + 100 * i, 1090 + 100 * i) for i in range(5000)])
    page = open_page(page_of(made, tmp_path))
    page.fill("#panel-timeline input", "needle")
    settled(page)
    x, y = place(page, "dispatches", 500)
    kernel = page.evaluate(
        "kernelColour(JSON.parse(document.getElementById('data').textContent)"
        ".kernels.findIndex((kernel) => kernel.name === 'needle'))"
    )
    assert kernel in {colour(page, x + step, y) for step in (-1, 0, 1)}


def test_a_click_selects_a_dispatch_and_shows_its_facts(open_page: OpenPage, tmp_path: Path) -> None:
    made = decoder()
    columns = made.columns()
    page = open_page(page_of(made, tmp_path))
    page.mouse.dblclick(*place(page, "buffers", 3))
    settled(page)
    page.mouse.click(*place(page, "dispatches", 10))
    names, values = (page.locator(f"#panel-timeline .details {tag}").all_inner_texts() for tag in ("dt", "dd"))
    facts = dict(zip(names, map(plain, values), strict=True))
    (sample,) = np.flatnonzero((columns.samples.submission == 3) & (columns.samples.node == 1))
    rate = reached(columns, 0, columns.samples)
    assert page.inner_text("#panel-timeline .details h2") == "matvec"
    assert facts["duration"] == formatting.time(390_000)
    assert facts["label"] == "decode/layer.0/mlp"
    assert facts["grid"] == "16384×1×1 threads in groups of 256×1×1"
    assert facts["bytes"] == "1.50 MB (1.00 MB read, 500 KB written)"
    rates = formatting.byte_rate(rate.bytes_per_s[sample]), formatting.flop_rate(rate.flops_per_s[sample])
    assert facts["rate"] == ", ".join(rates)
    assert facts["efficiency"] == formatting.percent(rate.efficiency[sample])
    assert facts["command buffer"] == "4 (token), node 1"
    assert facts["encoded at"] == "model.py:12"
    page.focus(CANVAS)
    page.keyboard.press("Escape")
    assert page.locator("#panel-timeline .details dt").count() == 0


def test_bytes_that_are_only_bound_are_said_to_be_at_most_that(opened: Any) -> None:
    opened.evaluate(f"{VIEW}.select({{row: {VIEW}.rows.filter((row) => row.kind === 'dispatches')[1], span: 0}})")
    text = opened.inner_text("#panel-timeline .details")
    assert "at most 3.00 MB" in plain(text)
    assert "at most 4.35 GB/s" in plain(text)


def test_a_time_that_is_only_bounded_is_no_measured_one(open_page: OpenPage, tmp_path: Path) -> None:
    made = Synthetic(devices=[Device("cpu", workers=4, copy_bytes_per_s=20e9, flops_per_s=100e9)])
    known = {"bytes_read": 1_000_000, "declared": True, "flops": 4_000_000}
    plan = made.plan([*(node("k", **known) for _ in range(3)), node("k", bytes_read=1_000_000)])
    times = [(0, 100_000), (200_000, 200_000), (300_000, 300_000), (400_000, 500_000)]
    made.submit(plan, times, quality=[BOUNDED, BOUNDED, MEASURED, BOUNDED])
    page = open_page(page_of(made, tmp_path))

    def facts(span: int) -> dict[str, str]:
        page.evaluate(
            f"{VIEW}.select({{row: {VIEW}.rows.filter((row) => row.kind === 'dispatches')[0], span: {span}}})"
        )
        names, values = (page.locator(f"#panel-timeline .details {tag}").all_inner_texts() for tag in ("dt", "dd"))
        return dict(zip(names, map(plain, values), strict=True))

    assert facts(0)["duration"] == "at most 100 µs"
    assert facts(0)["rate"] == "at least 10.0 GB/s, at least 40.0 Gflop/s"
    assert facts(0)["efficiency"] == "at least 50.0 %"
    assert facts(1)["duration"] == "shorter than the clock can tell"
    assert facts(2)["duration"] == "0 ns"
    for span in (1, 2, 3):
        assert not {"rate", "efficiency"} & facts(span).keys()


def test_arrows_lead_to_what_a_dispatch_waited_for_and_what_waited_for_it(opened: Any) -> None:
    def linked(lane: int, span: int) -> tuple[list[str], list[str]]:
        opened.evaluate(
            f"{VIEW}.select({{row: {VIEW}.rows.filter((row) => row.kind === 'dispatches')[{lane}], span: {span}}})"
        )
        both = opened.evaluate(
            f"['before', 'after'].map((which) => {VIEW}.linked()[which].map(({{row, span}}) =>"
            " `${row.device.nodes.number[row.columns.node[span]]} of"
            " ${row.device.buffers.ordinal[row.columns.buffer[span]]}`))"
        )
        return both[0], both[1]

    assert linked(0, 6) == ([], ["1 of 3", "2 of 3"])
    assert linked(0, 7) == (["0 of 3"], ["4 of 3"])  # through the barrier
    assert linked(0, 8) == (["2 of 3", "1 of 3"], [])  # the last to end first
    shown = opened.locator("#panel-timeline .details dt").all_inner_texts()
    assert "waited for" in shown
    assert "waited for it" not in shown
    opened.locator("#panel-timeline .details dd button").first.click()
    assert opened.inner_text("#panel-timeline .details h2") == "matvec"


def test_a_kernel_that_is_selected_elsewhere_is_highlighted(opened: Any) -> None:
    first = opened.locator("#panel-timeline .legend button").first
    first.click()
    assert first.get_attribute("aria-pressed") == "true"
    assert "matches" in opened.text_content("#panel-timeline .tools [role=status]")
    opened.focus(CANVAS)
    opened.keyboard.press("Escape")
    assert opened.text_content("#panel-timeline .tools [role=status]") == ""


def test_other_views_lead_to_a_range_and_to_a_dispatch(opened: Any) -> None:
    opened.evaluate("location.hash = ''")
    opened.click("#tab-by_kernel")
    opened.locator("#panel-by_kernel tbody tr").first.click()
    opened.click("text=slowest dispatch in the timeline")
    assert opened.is_visible("#panel-timeline")
    kernel = opened.evaluate("JSON.parse(document.getElementById('data').textContent).kernels[0].name")
    assert opened.inner_text("#panel-timeline .details h2") == kernel
    begin, end = view(opened)
    at = opened.evaluate(f"(({{row, span}}) => row.begin[span])({VIEW}.selection())")
    assert begin < at < end < begin + 5_000_000


def test_the_keyboard_selects_spans(opened: Any) -> None:
    opened.focus(CANVAS)
    opened.keyboard.press("Shift+ArrowRight")
    assert opened.inner_text("#panel-timeline .details h2") == "norm"
    opened.keyboard.press("Shift+ArrowRight")
    assert opened.inner_text("#panel-timeline .details h2") == "matvec"
    opened.keyboard.press("Shift+ArrowUp")
    assert opened.evaluate(f"{VIEW}.selection().row.kind") == "labels"
    opened.keyboard.press("Enter")
    begin, end = view(opened)
    assert end - begin < 2_000_000


def test_the_legend_names_causes_and_leads_to_the_longest_gap(opened: Any) -> None:
    texts = opened.locator("#panel-timeline .legend").last.locator("button").all_inner_texts()
    assert any("between regions" in text and text.strip().startswith("R") for text in texts)
    opened.locator("#panel-timeline .legend button", has_text="between regions").click()
    assert opened.inner_text("#panel-timeline .details h2") == f"idle: {BETWEEN_REGIONS}"
    # A part of some gaps, but the main cause of none: there is nothing to go to.
    assert "the host was encoding" in opened.locator("#panel-timeline .legend").last.inner_text()
    assert not any("the host was encoding" in text for text in texts)


def test_hovering_tells_what_a_span_is(opened: Any) -> None:
    opened.mouse.move(*place(opened, "dispatches", 30))
    assert opened.inner_text(".tooltip .first") in ("norm", "matvec", "top_k")


def test_dispatches_that_are_left_out_are_hatched_and_said(
    open_page: OpenPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_DISPATCHES", 40)
    page = open_page(page_of(decoder(), tmp_path))
    assert "40 of 80 timed dispatches are shown" in page.inner_text("#panel-timeline .left-out")
    hidden = page.evaluate(f"Array.from({VIEW}.rows.find((row) => row.kind === 'dispatches').behind.begin)")
    assert len(hidden) == 10
    page.evaluate(f"{VIEW}.setView({hidden[3]}, {hidden[3]} + 1400000)")
    settled(page)
    box = page.locator(CANVAS).bounding_box()
    _, y = place(page, "dispatches", 0)
    seen = {colour(page, box["x"] + 600 + step, y) for step in range(12)}
    assert len(seen) == 2
    assert "#ffffff" not in seen


def test_the_painter_shows_every_span_and_nothing_else(opened: Any) -> None:
    random = np.random.default_rng(3)
    for _ in range(20):
        gaps, lengths = (random.lognormal(2, 2, 300).astype(int) for _ in range(2))
        begin = np.cumsum(gaps + np.append(0, lengths[:-1]))
        first, last = np.sort(random.integers(0, int(begin[-1] + 100), 2))
        scale = max((last - first) / 200, 0.5)
        painted = opened.evaluate(
            """([begin, duration, from, scale]) => {
                const context = document.createElement("canvas").getContext("2d");
                const pixels = new Pixels(context, 200, 10), lengths = Float64Array.from(duration);
                const paint = new Uint16Array(begin.length), sums = runningSums(lengths);
                const row = { begin: Float64Array.from(begin), duration: lengths, paint, sums };
                paintSpans(pixels, row, 0, 10, from, scale, [paintOf("#ff0000", "#ffffff")], null);
                return Array.from({ length: 200 }, (_, x) => pixels.words[9 * 200 + x] !== 0);
            }""",
            [begin.tolist(), lengths.tolist(), int(first), float(scale)],
        )
        left, right = (begin - first) / scale, (begin + lengths - first) / scale
        for x, full in enumerate(painted):
            near = (left < x + 2) & (right > x - 1)
            assert not full or near.any(), x
        for a, b, length in zip(left, right, lengths, strict=True):
            if length and b > 0 and a < 199:
                assert any(painted[max(int(a) - 1, 0) : int(max(b, 0)) + 2]), (a, b)
                assert all(painted[max(int(a) + 2, 0) : max(int(b) - 2, 0)]), (a, b)


def test_amounts_that_vary_with_each_submission_are_those_of_the_dispatch(open_page: OpenPage, tmp_path: Path) -> None:
    columns = decoder(4).columns()
    terms = CommandTerms(
        command=np.array([0]), number=np.array([0]), amount=np.array(["bytes_read"], object),
        param=np.array(["length"], object), factor=np.array([1000]), plus=np.array([0]), upto=np.array([ABSENT]),
    )  # fmt: skip
    values = SubmissionValues(
        submission=np.arange(4),
        number=np.zeros(4, int),
        param=np.array(["length"] * 4, object),
        value=np.arange(4) * 1000,
    )
    columns = replace(columns, terms=terms, values=values)
    path = tmp_path / "varying.html"
    save_page(columns, path)
    page = open_page(path)
    for token in range(4):
        page.evaluate(
            f"{VIEW}.select({{row: {VIEW}.rows.find((row) => row.kind === 'dispatches'), span: {3 * token}}})"
        )
        assert f"{formatting.size(1_000_000 + 1_000_000 * token)} read" in plain(
            page.inner_text("#panel-timeline .details")
        )


def test_a_highlighted_kernel_is_named_and_a_range_shows_everything(open_page: OpenPage, demo_page: Path) -> None:
    page = open_page(demo_page)
    page.click("#tab-by_kernel")
    page.locator("#panel-by_kernel tbody tr").first.click()
    page.click("#tab-timeline")
    name = data_of(demo_page.read_text())["kernels"][0]["name"]
    assert name in page.inner_text("#panel-timeline .chip")
    page.click("#panel-timeline .chip")
    assert not page.is_visible("#panel-timeline .chip")
    page.locator("#panel-timeline .legend button").first.click()
    assert page.is_visible("#panel-timeline .chip")
    page.click("#tab-regions")
    page.locator("#panel-regions ol button").first.click()
    assert page.locator("#tab-timeline").get_attribute("aria-selected") == "true"
    assert not page.is_visible("#panel-timeline .chip")
