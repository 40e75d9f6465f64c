"""A graph as a picture: commands as boxes in layers, lines for what waits for what. Plain SVG, for notebooks and files.

A box stands below all boxes that it waits for. Lines that follow from others are left out. In a large graph
neighbouring commands under the same label become one box, with as many parts of the label as keep the picture small.
Where that is not enough, the middle of the list becomes one box. The colours are those of the page around it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..base import fragments
from ..base.order import transitive_reduction
from ..base.printable import printable
from ..ir.commands import Barrier
from .drawing import details, header, shortened, title, to_text
from .graph import Graph

_MOST_BOXES = 40
_MOST_TEXT_LINES = 30
_SHOWN_KERNELS = 12
_WIDTH, _HEIGHT, _GAP = 240, 36, 22
_LETTERS, _SMALL_LETTERS = 33, 36
"""How many characters of the first and of the second line a box has room for."""
_LINE_WIDTH = 12
"""The room for a line on its way past the boxes of a layer."""

Line = tuple[int, int]
"""The numbers of two boxes: the second waits for the first."""


@dataclass(frozen=True, slots=True)
class _Box:
    """Neighbouring commands of the list: from `first` to `end` (exclusive)."""

    first: int
    end: int
    label: str = ""
    """What the labels of several commands have in common."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where everything is drawn. Slots are the boxes, and then a place for each line in each layer that it passes."""

    layers: list[list[int]]
    """The slots of each layer, from left to right."""
    routes: list[list[int]]
    """The slots along each line, one per layer, from its upper box to its lower one."""
    layer_of: list[int]
    """By slot."""
    centre: list[float]
    """By slot, the horizontal position of its middle."""

    def top(self, slot: int) -> int:
        return self.layer_of[slot] * (_HEIGHT + _GAP)


def as_html(graph: Graph) -> str:
    """What the graph is, its picture, and its commands as text behind a click."""
    heading, *lines = header(graph)
    about = (fragments.line(heading, "title"), *map(fragments.line, lines))
    if not len(graph):
        return fragments.fragment(*about)
    return fragments.fragment(
        *about,
        f'<div class="picture">{to_svg(graph)}</div>',
        fragments.folded("The commands as text", fragments.code(to_text(graph, _MOST_TEXT_LINES))),
    )


def to_svg(graph: Graph) -> str:
    """The picture."""
    boxes = _boxes(graph)
    layout = _layout(len(boxes), _lines(graph, boxes))
    left, right = min(layout.centre, default=0) - _WIDTH / 2 - 2, max(layout.centre, default=0) + _WIDTH / 2 + 2
    height = len(layout.layers) * (_HEIGHT + _GAP) - _GAP + 4
    named = f" {graph.label}" if graph.label else ""
    about = f"graph{named}: {len(graph):,} commands in {len(boxes)} boxes and {len(layout.layers)} layers"
    drawn = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{right - left:.0f}" height="{height}"'
        f' viewBox="{left:.0f} -2 {right - left:.0f} {height}" role="img" aria-label="{fragments.escaped(about)}"'
        ' font-family="monospace" font-size="11" fill="currentColor">',
        '<g fill="none" stroke="currentColor" stroke-opacity="0.5">',
        *(_path(layout, route) for route in layout.routes),
        "</g>",
        *(_drawn(graph, box, layout.centre[slot], layout.top(slot)) for slot, box in enumerate(boxes)),
        "</svg>",
    )
    return "\n".join(drawn)


# --- boxes and lines ------------------------------------------------------------------------------------------------


def _boxes(graph: Graph) -> list[_Box]:
    count = len(graph)
    if count <= _MOST_BOXES:
        return [_Box(index, index + 1) for index in range(count)]
    labels: list[tuple[str, ...]] = []
    for node in graph:
        follows = isinstance(node.command, Barrier) and labels  # a barrier has no label of its own
        labels.append(labels[-1] if follows else tuple(node.label.split("/")) if node.label else ())
    boxes: list[_Box] = []
    for depth in range(max(map(len, labels)), -1, -1):
        parts = [label[:depth] for label in labels]
        starts = [at for at in range(count) if not at or not parts[at] or parts[at] != parts[at - 1]]
        ends = [*starts[1:], count]
        boxes = [_Box(first, end, "/".join(parts[first])) for first, end in zip(starts, ends, strict=True)]
        if len(boxes) <= _MOST_BOXES:
            return boxes
    ending = _MOST_BOXES // 3
    beginning = _MOST_BOXES - ending - 1
    return [*boxes[:beginning], _Box(beginning, count - ending, "…"), *boxes[-ending:]]


def _lines(graph: Graph, boxes: Sequence[_Box]) -> list[Line]:
    """Which boxes wait for which, without the lines that follow from others."""
    sizes = np.array([box.end - box.first for box in boxes], np.int64)
    pairs = np.unique(np.repeat(np.arange(len(boxes)), sizes)[graph.edges].reshape(-1, 2), axis=0)
    return transitive_reduction(len(boxes), pairs[pairs[:, 0] < pairs[:, 1]].tolist())


# --- layout ---------------------------------------------------------------------------------------------------------


def _layout(boxes: int, lines: Sequence[Line]) -> _Layout:
    """Boxes and lines in layers, with boxes near those that they wait for."""
    layer_of = [0] * boxes
    for upper, lower in lines:  # sorted by the lower box, so that the layer of the upper one is known
        layer_of[lower] = max(layer_of[lower], layer_of[upper] + 1)
    routes = []
    for upper, lower in lines:
        passed = range(layer_of[upper] + 1, layer_of[lower])
        routes.append([upper, *range(len(layer_of), len(layer_of) + len(passed)), lower])
        layer_of += passed
    layers: list[list[int]] = [[] for _ in range(max(layer_of, default=-1) + 1)]
    for slot, layer in enumerate(layer_of):
        layers[layer].append(slot)
    above: list[list[int]] = [[] for _ in layer_of]
    below: list[list[int]] = [[] for _ in layer_of]
    for route in routes:
        for upper, lower in pairwise(route):
            above[lower].append(upper)
            below[upper].append(lower)
    centre = [0.0] * len(layer_of)
    for sweep, neighbours in ((layers, above), (layers[::-1], below), (layers, above)):
        for slots in sweep:
            _place(slots, neighbours, boxes, centre)
    return _Layout(layers, routes, layer_of, centre)


def _place(slots: list[int], neighbours: Sequence[Sequence[int]], boxes: int, centre: list[float]) -> None:
    """Sorts the slots of a layer by the positions of their neighbours, and sets them side by side around the middle."""
    slots.sort(key=lambda slot: _mean([centre[each] for each in neighbours[slot]], centre[slot]))
    widths = [_WIDTH + _GAP if slot < boxes else _LINE_WIDTH for slot in slots]
    at = -sum(widths) / 2
    for slot, width in zip(slots, widths, strict=True):
        centre[slot] = at + width / 2
        at += width


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


# --- SVG ------------------------------------------------------------------------------------------------------------


def _path(layout: _Layout, route: Sequence[int]) -> str:
    """A line that leaves its box downwards, passes layers vertically and enters its box from above."""
    steps = [f"M{layout.centre[route[0]]:.0f} {layout.top(route[0]) + _HEIGHT}"]
    for slot, following in pairwise(route):
        begin, end = layout.centre[slot], layout.centre[following]
        bottom, top = layout.top(slot) + _HEIGHT, layout.top(following)
        steps.append(f"C{begin:.0f} {bottom + _GAP / 2:.0f} {end:.0f} {top - _GAP / 2:.0f} {end:.0f} {top}")
        if following != route[-1]:
            steps.append(f"V{top + _HEIGHT}")
    return f'<path d="{" ".join(steps)}"/>'


def _drawn(graph: Graph, box: _Box, centre: float, top: int) -> str:
    first = graph[box.first]
    if box.end - box.first == 1:
        number, second = f"{box.first}  ", details(graph, first)
        name = number + shortened(title(first), _LETTERS - len(number))
        hints = [f"{number}{first}", second]
    else:
        count = box.end - box.first
        kernels = Counter(graph[index].name for index in range(box.first, box.end))
        listed = [f"{kernel} × {times:,}" for kernel, times in kernels.most_common(_SHOWN_KERNELS)]
        more = [f"… {len(kernels) - _SHOWN_KERNELS} more"] if len(kernels) > _SHOWN_KERNELS else []
        name, second = shortened(box.label, _LETTERS), f"{count:,} commands, {box.first} to {box.end - 1}"
        hints = [box.label, second, *listed, *more]
    dashed = ' stroke-dasharray="4 3"' if _is_unknown(graph, box) else ""
    stroke = 2.5 if any(box.first <= split < box.end for split in graph.splits) else 1
    left = centre - _WIDTH / 2
    tooltip = "\n".join(fragments.escaped(hint) for hint in hints if hint)
    return (
        f"<g><title>{tooltip}</title>"
        f'<rect x="{left:.0f}" y="{top}" width="{_WIDTH}" height="{_HEIGHT}" rx="4" fill-opacity="0.06"'
        f' stroke="currentColor" stroke-width="{stroke}"{dashed}/>'
        f'<text x="{left + 7:.0f}" y="{top + 15}">{fragments.escaped(name)}</text>'
        f'<text x="{left + 7:.0f}" y="{top + 29}" font-size="10" opacity="0.7">'
        f"{fragments.escaped(printable(second, _SMALL_LETTERS))}</text></g>"
    )


def _is_unknown(graph: Graph, box: _Box) -> bool:
    """Whether a command of the box may touch any memory."""
    nodes = (graph[index] for index in range(box.first, box.end))
    return any(node.accesses is None and not isinstance(node.command, Barrier) for node in nodes)
