"""Where the boxes of a command list lie in a picture: in levels from top to bottom, with short edges.

A list is drawn as nested boxes (`label_tree.py`), so an edge between two nodes is drawn between the two boxes that hold
them inside the innermost group that holds both. Edges between the same two boxes are drawn as one, with their number.

The level of a box is the longest way to it from the top of its group. Boxes are in order of their first node. An edge
that leads back in this order exists only where groups wait for each other in both directions; it is marked and does not
count for levels, so that any grouping can be drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...base.order import transitive_reduction
from .columns import Flags, Ints
from .label_tree import LabelTree

_MOST_THROUGH = 4096
"""Edges that may take the place of one hidden node."""
_SWEEPS = 6

Edges = tuple[Ints, Ints]
"""(before, after)"""


@dataclass(frozen=True, slots=True)
class Layers:
    """The picture of a list."""

    before: Ints
    after: Ints
    """Boxes of the same group; each pair once."""
    count: Ints
    """How many edges between their nodes each pair stands for."""
    back: Flags
    """Which lead back to a box that begins earlier."""
    level: Ints
    """Of each box, from the top of its group."""
    place: Ints
    """Of each box, from the left of its level."""


def without_hidden(hidden: Flags, edges: Edges) -> tuple[Flags, Edges]:
    """Which nodes remain hidden, and edges that lead past them: what waited for a hidden node waits for what it
    waited for.

    A node that would take too many edges to lead past remains, with its own.
    """
    waits: list[dict[int, None]] = [{} for _ in range(hidden.size)]
    feeds = np.bincount(edges[0], minlength=hidden.size)
    for before, after in zip(edges[0].tolist(), edges[1].tolist(), strict=True):
        waits[after][before] = None
    hidden = hidden.copy()
    for node, before in enumerate(waits):
        through: dict[int, None] = {}
        for other in before:
            through.update(waits[other] if hidden[other] else {other: None})
        waits[node] = through
        if hidden[node] and len(through) * int(feeds[node]) > _MOST_THROUGH:
            hidden[node] = False
    pairs = [(p, node) for node, before in enumerate(waits) if not hidden[node] for p in before]
    return hidden, _as_edges(pairs)


def reduced(nodes: int, edges: Edges) -> Edges:
    """The edges without those that follow from others. All lead forward."""
    return _as_edges(transitive_reduction(nodes, zip(edges[0].tolist(), edges[1].tolist(), strict=True)))


def lifted(tree: LabelTree, edges: Edges) -> Edges:
    """For each edge between nodes, the two boxes that it is drawn between."""
    parent = np.array([*tree.parent, -1], np.int64)
    depth = np.zeros(parent.size, np.int64)
    at = parent.copy()
    while (at >= 0).any():
        depth += at >= 0
        at = np.where(at >= 0, parent[at], -1)
    before, after = edges[0].astype(np.int64).copy(), edges[1].astype(np.int64).copy()
    while True:
        apart = parent[before] != parent[after]
        if not apart.any():
            return before, after
        higher = depth[before] > depth[after]
        lower = depth[after] > depth[before]
        before = np.where(apart & ~lower, parent[before], before)
        after = np.where(apart & ~higher, parent[after], after)


def layers(tree: LabelTree, edges: Edges) -> Layers:
    """The levels of all boxes, and the edges between them."""
    size = len(tree)
    before, after = lifted(tree, edges)
    pairs, count = np.unique(before * size + after, return_counts=True)
    before, after = pairs // max(size, 1), pairs % max(size, 1)
    first = _first_nodes(tree)
    back = first[before] > first[after]
    down = (before[~back], after[~back])
    level = _levels(first, down)
    return Layers(before, after, count, back, level, _places(np.array(tree.parent, np.int64), first, level, down))


def _first_nodes(tree: LabelTree) -> Ints:
    """The first node in each box. Groups come after the groups they are in."""
    nodes = tree.kind.count(0)
    first = np.full(len(tree), len(tree), np.int64)
    first[:nodes] = np.arange(nodes)
    for box in [*range(nodes), *range(len(tree) - 1, nodes - 1, -1)]:
        above = tree.parent[box]
        if above >= 0:
            first[above] = min(first[above], first[box])
    return first


def _levels(first: Ints, down: Edges) -> Ints:
    level = [0] * first.size
    order = np.argsort(first[down[1]], kind="stable")
    for before, after in zip(down[0][order].tolist(), down[1][order].tolist(), strict=True):
        level[after] = max(level[after], level[before] + 1)
    return np.array(level, np.int64)


def _places(parent: Ints, first: Ints, level: Ints, down: Edges) -> Ints:
    """Orders each level by the middle of what its boxes are connected with, from above and from below in turns."""
    size = first.size
    by_level = np.lexsort((first, level, parent))
    begins = np.flatnonzero(
        np.diff(parent[by_level], prepend=-2).astype(bool) | np.diff(level[by_level], prepend=-1).astype(bool)
    )
    row = np.zeros(size, np.int64)
    row[begins] = 1
    row = np.cumsum(row) - 1
    number = np.zeros(size, np.int64)
    number[by_level] = row
    widths = np.bincount(row, minlength=begins.size)
    place = np.zeros(size, np.int64)
    place[by_level] = np.arange(size) - begins[row] if size else 0
    before, after = down
    for sweep in range(_SWEEPS if before.size else 0):
        middle = place - (widths[number] - 1) / 2
        sources, targets = (before, after) if sweep % 2 == 0 else (after, before)
        degree = np.bincount(targets, minlength=size)
        mean = np.bincount(targets, weights=middle[sources], minlength=size) / np.maximum(degree, 1)
        wanted = np.where(degree > 0, mean, middle)
        order = np.lexsort((place, wanted, number))
        place[order] = np.arange(size) - begins[number[order]]
    return place


def _as_edges(pairs: list[tuple[int, int]]) -> Edges:
    columns: Any = np.array(pairs, np.int64).reshape(-1, 2)
    return columns[:, 0], columns[:, 1]
