"""The roofline: every point is drawn where its figures put it, and what cannot be drawn is in the table."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

from ostinato.profiling.analyse.columns import Device
from pages import OpenPage, data_of, page_of, plain
from synthetic import Synthetic, node

CALIBRATED = Device(
    "cpu", workers=4, clock_uncertainty_ns=50.0,
    copy_bytes_per_s=10e9, copy_spread=0.05, flops_per_s=100e9, flops_spread=0.1,
)  # fmt: skip
UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
MOVES: dict[str, Any] = {"bytes_read": 1_000_000, "declared": True}


def recording(*devices: Device) -> Synthetic:
    """A kernel of every kind: with flops, with bound bytes, without flops, and without anything."""
    made = Synthetic(devices=list(devices))
    for device in range(len(devices)):
        plan = made.plan(
            [
                node("matmul", **MOVES, flops=20_000_000),
                node("attention", bytes_read=2_000_000, flops=4_000_000),
                node("copy_rows", **MOVES),
                node("gather", bytes_read=500_000),
                node("nothing_known"),
            ]
        )
        for run in range(10):
            at = 10_000_000 * run
            ends = (400_000, 900_000, 1_200_000, 1_300_000, 1_350_000)
            begins = (0, *ends[:-1])
            times = [(at + begin, at + end) for begin, end in zip(begins, ends, strict=True)]
            made.submit(plan, times, device=device)
    return made


def shown(page: Any, kernel: str) -> Any:
    return page.locator(f'#panel-roofline circle[aria-label^="{kernel}"]')


def test_circles_lie_where_their_figures_put_them(open_page: OpenPage, tmp_path: Path) -> None:
    path = page_of(recording(CALIBRATED), tmp_path)
    page = open_page(path)
    page.click("#tab-roofline")
    (device,) = data_of(path.read_text())["roofline"]["devices"]
    kernels = data_of(path.read_text())["kernels"]
    points = {kernels[point["kernel"]]["name"]: point for point in device["points"]}
    assert points["matmul"]["flops_per_s"] == 50e9
    assert points["matmul"]["flops_per_byte"] == 20
    assert (points["attention"]["bound"], points["attention"]["flops_per_byte"]) == (True, 2)

    def place(kernel: str) -> tuple[float, float, float]:
        circle = shown(page, kernel)
        x, y, r = (float(circle.get_attribute(name)) for name in ("cx", "cy", "r"))
        return x, y, r

    def pixels_per_decade(axis: int, attribute: int) -> float:
        ticks = page.locator("#panel-roofline figure").first.locator("svg > .axis").nth(axis).locator("g")
        drawn = ticks.evaluate_all("all => all.map(each => [each.getAttribute('transform'), each.textContent])")
        places = [float(place[len("translate(") : -1].split(",")[attribute]) for place, _ in drawn]
        values = [float(text.rstrip(" kMGT")) * UNITS[text.lstrip("0123456789. ")] for _, text in drawn]
        return (places[-1] - places[0]) / math.log10(values[-1] / values[0])

    (x1, y1, r1), (x2, y2, r2) = place("matmul"), place("attention")
    assert math.isclose((x1 - x2) / pixels_per_decade(1, 0), math.log10(20 / 2), rel_tol=0.02)
    assert math.isclose((y1 - y2) / pixels_per_decade(0, 1), math.log10(50 / 8), rel_tol=0.02)
    assert math.isclose((r1 / r2) ** 2, points["matmul"]["share"] / points["attention"]["share"], rel_tol=0.01)


def test_bound_bytes_are_hollow_and_the_page_says_what_that_means(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page(page_of(recording(CALIBRATED), tmp_path))
    page.click("#tab-roofline")
    hollow = page.locator("#panel-roofline circle.bound").evaluate_all("all => all.map(each => each.ariaLabel)")
    assert sorted(label.split(".")[0] for label in hollow) == ["attention", "gather"]
    assert "upper bound" in page.inner_text("#panel-roofline .note >> nth=0")
    assert "at most" in " ".join(hollow)


def test_kernels_without_flops_are_on_the_strip_and_the_rest_in_the_table(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page(page_of(recording(CALIBRATED), tmp_path))
    page.click("#tab-roofline")
    figures = page.locator("#panel-roofline figure")
    assert figures.count() == 2
    strip = figures.nth(1).locator("circle").evaluate_all("all => all.map(each => each.ariaLabel.split('.')[0])")
    assert sorted(strip) == ["copy_rows", "gather"]
    assert "copy 10.0 GB/s ± 5.0 %" in plain(figures.nth(1).inner_html())
    assert "peak 100 Gflop/s ± 10.0 %" in plain(figures.nth(0).inner_html())
    table = page.inner_text("#roofline-points")
    for kernel in ("matmul", "attention", "copy_rows", "gather", "nothing_known"):
        assert kernel in table
    assert "not known" in table


def test_without_ceilings_the_page_says_so(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page(page_of(recording(Device("cpu", workers=4)), tmp_path))
    page.click("#tab-roofline")
    assert "No ceilings were measured" in page.inner_text("#panel-roofline")
    assert page.locator("#panel-roofline .roof").count() == 0


def test_several_devices_have_a_choice(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page(page_of(recording(CALIBRATED, replace(CALIBRATED, copy_bytes_per_s=77e9)), tmp_path))
    page.click("#tab-roofline")
    assert "77.0 GB/s" not in plain(page.inner_html("#panel-roofline"))
    page.select_option("#roofline-device", "1")
    assert "77.0 GB/s" in plain(page.inner_html("#panel-roofline"))


def test_a_point_tells_its_figures_by_mouse_and_by_keyboard(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page(page_of(recording(CALIBRATED), tmp_path))
    page.click("#tab-roofline")
    shown(page, "matmul").hover()
    assert "50.0 Gflop/s" in plain(page.inner_text(".tooltip"))
    shown(page, "copy_rows").focus()
    assert "3.33 GB/s" in plain(page.inner_text(".tooltip"))
    page.keyboard.press("Enter")
    assert page.is_visible("#panel-by_kernel")
    assert "copy_rows" in page.inner_text("#panel-by_kernel [aria-expanded=true]")
    page.click("#tab-roofline")
    assert "copy_rows" in page.inner_text("#panel-roofline tr.chosen")


def test_names_do_not_overlap(open_page: OpenPage, tmp_path: Path) -> None:
    made = Synthetic(devices=[CALIBRATED])
    nodes = [node(f"kernel_with_a_long_name_{n}", **MOVES, flops=10_000_000 + 100_000 * n) for n in range(20)]
    plan = made.plan(nodes)
    for run in range(9):
        at = 100_000_000 * run
        made.submit(plan, [(at + n * 1_000_000, at + (n + 1) * 1_000_000) for n in range(20)])
    for width in (1400, 400):
        page = open_page(page_of(made, tmp_path), width=width)
        page.click("#tab-roofline")
        boxes = [each.bounding_box() for each in page.locator("#panel-roofline .names text:not(.ceiling)").all()]
        assert len(boxes) > 1
        halo = 2 * 3  # of each, which may lie over the other's
        for a, b in combinations(boxes, 2):
            across = min(a["x"] + a["width"], b["x"] + b["width"]) - max(a["x"], b["x"])
            down = min(a["y"] + a["height"], b["y"] + b["height"]) - max(a["y"], b["y"])
            assert across <= halo or down <= halo


def test_many_points_are_cut_and_the_page_says_so(tmp_path: Path) -> None:
    made = Synthetic(devices=[CALIBRATED])
    plan = made.plan([node(f"k{number}", **MOVES) for number in range(310)])
    made.submit(plan, [(number * 1_000_000, (number + 1) * 1_000_000) for number in range(310)])
    (device,) = data_of(page_of(made, tmp_path).read_text())["roofline"]["devices"]
    assert len(device["points"]) == 300
    assert [plain(note) for note in device["notes"]] == ["10 more points with 3.2 % of the busy time are left out"]
