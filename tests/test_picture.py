"""The picture of a graph: every command has its place, below what it waits for, and large graphs stay small."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ostinato as ost
from ostinato.graph import picture

SVG = "{http://www.w3.org/2000/svg}"
Encode = Callable[[ost.CommandEncoder], None]


class Drawn:
    """The boxes and lines of a picture."""

    def __init__(self, graph: ost.Graph) -> None:
        root = ElementTree.fromstring(graph.to_svg())
        boxes = [group for group in root.iter(f"{SVG}g") if group.find(f"{SVG}rect") is not None]
        self.texts = [[text.text or "" for text in box.iter(f"{SVG}text")] for box in boxes]
        self.hints = [box.findtext(f"{SVG}title") or "" for box in boxes]
        self.rects = list(root.iter(f"{SVG}rect"))
        self.tops = [int(rect.attrib["y"]) for rect in self.rects]
        self.lines = len(list(root.iter(f"{SVG}path")))
        self.about = root.attrib["aria-label"]


@pytest.fixture
def x(dev: ost.Device) -> ost.Buffer:
    return dev.zeros(64, np.float32)


def test_commands_stand_below_those_that_they_wait_for(dev: ost.Device, kernels: ost.Library, x: ost.Buffer) -> None:
    left, right = dev.zeros(64, np.float32), dev.zeros(64, np.float32)

    def encode(enc: ost.CommandEncoder) -> None:
        with enc.scope("layer.0"):
            enc.dispatch(kernels["bump"], x, threads=64)
            enc.dispatch(kernels["inc_one"], x, left, threads=64)
            enc.dispatch(kernels["inc_one"], x, right, threads=64)
            enc.dispatch(kernels["subtract"], left, right, x, threads=64)

    drawn = Drawn(dev.capture(encode, "diamond"))
    assert drawn.about == "graph diamond: 4 commands in 4 boxes and 3 layers"
    top, side, other_side, bottom = drawn.tops
    assert top < side == other_side < bottom
    assert drawn.lines == 4  # the last one waits for the first too, which follows from the others
    assert drawn.texts[0] == ["0  layer.0/bump", f"64 threads by 64  →{_range(x)}"]
    assert drawn.hints[3].startswith("3  layer.0/subtract (test_picture.py:")


def _range(buffer: ost.Buffer) -> str:
    return f"m{buffer._allocation().backing.number}[0:256]"


def test_unknown_accesses_and_new_submissions_are_marked(dev: ost.Device, kernels: ost.Library, x: ost.Buffer) -> None:
    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(kernels["bump"], x, threads=64)
        enc.memory_barrier()
        enc.dispatch(kernels["bump"], x, threads=64, reads=ost.UNKNOWN)

    graph = dev.capture(encode)
    rects = Drawn(graph.with_nodes(graph.nodes, splits=(1,))).rects
    assert ["stroke-dasharray" in rect.attrib for rect in rects] == [False, False, True]
    assert [rect.attrib["stroke-width"] for rect in rects] == ["1", "2.5", "1"]


def test_a_large_graph_is_drawn_by_its_labels(dev: ost.Device, kernels: ost.Library, x: ost.Buffer) -> None:
    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(kernels["bump"], x, threads=64)
        with enc.scope("decode"):
            for layer in range(12):
                with enc.scope(f"layer.{layer}"):
                    for part in ("attention", "mlp"):
                        with enc.scope(part):
                            for _ in range(3):
                                enc.dispatch(kernels["bump"], x, threads=64)
                                enc.memory_barrier()

    drawn = Drawn(dev.capture(encode))
    assert len(drawn.texts) == 25
    assert drawn.texts[0][0] == "0  bump"
    assert drawn.texts[1] == ["decode/layer.0/attention", "6 commands, 1 to 6"]
    assert "bump × 3" in drawn.hints[1]
    assert drawn.tops == sorted(drawn.tops)


def test_a_large_graph_without_labels_shows_both_ends(dev: ost.Device, kernels: ost.Library, x: ost.Buffer) -> None:
    def encode(enc: ost.CommandEncoder) -> None:
        for _ in range(5000):
            enc.dispatch(kernels["bump"], x, threads=64)

    drawn = Drawn(dev.capture(encode))
    assert len(drawn.texts) == 40
    assert drawn.texts[26] == ["…", "4,961 commands, 26 to 4986"]
    assert [drawn.texts[25][0], drawn.texts[27][0]] == ["25  bump", "4987  bump"]
    assert drawn.lines == 39


def test_a_graph_of_nothing_has_a_picture_and_a_fragment(dev: ost.Device) -> None:
    graph = dev.capture(lambda enc: None)
    assert Drawn(graph).texts == []
    assert "0 nodes" in graph._repr_html_()
    assert "<svg" not in graph._repr_html_()


def test_the_fragment_has_the_commands_as_text_too(dev: ost.Device, kernels: ost.Library, x: ost.Buffer) -> None:
    graph = dev.capture(lambda enc: enc.dispatch(kernels["bump"], x, threads=64))
    assert "<svg" in graph._repr_html_()
    assert "0  bump  64 threads by 64" in graph._repr_html_()


# --- layout of any graph --------------------------------------------------------------------------------------------


@st.composite
def some_edges(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    count = draw(st.integers(1, 14))
    pairs = [(before, after) for after in range(count) for before in range(after)]
    return count, draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []


def reached(count: int, edges: list[tuple[int, int]]) -> set[tuple[int, int]]:
    pairs = set(edges)
    for middle in range(count):
        pairs |= {(a, d) for a, b in pairs if b == middle for c, d in pairs if c == middle}
    return pairs


@given(some_edges())
def test_lines_say_the_same_as_the_edges_and_no_line_follows_from_others(
    given_edges: tuple[int, list[tuple[int, int]]],
) -> None:
    count, edges = given_edges
    graph: Any = SimpleNamespace(edges=np.array(edges, np.int64).reshape(-1, 2))
    lines = picture._lines(graph, [picture._Box(index, index + 1) for index in range(count)])
    assert reached(count, lines) == reached(count, edges)
    for line in lines:
        assert line not in reached(count, [other for other in lines if other != line])


@given(some_edges())
def test_boxes_and_lines_have_places_of_their_own(given_edges: tuple[int, list[tuple[int, int]]]) -> None:
    count, edges = given_edges
    layout = picture._layout(count, sorted(edges, key=lambda edge: edge[1]))
    assert sorted(slot for slots in layout.layers for slot in slots) == list(range(len(layout.centre)))
    assert sorted((route[0], route[-1]) for route in layout.routes) == sorted(edges)
    for route in layout.routes:
        assert all(layout.layer_of[lower] == layout.layer_of[upper] + 1 for upper, lower in pairwise(route))
        assert all(slot >= count for slot in route[1:-1])
    for slots in layout.layers:
        for left, right in pairwise(slots):
            widths = [picture._WIDTH if slot < count else 0 for slot in (left, right)]
            assert layout.centre[right] - layout.centre[left] > sum(widths) / 2
