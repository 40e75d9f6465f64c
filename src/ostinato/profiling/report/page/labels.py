"""The tree of labels: what each part of the label paths took, and which kernels ran below it.

There are two trees: with the numbers in labels folded ('layer.*'), and as recorded. Rows are in the order in which the
tree is drawn: a label comes before what is below it, the largest of its siblings first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...analyse.columns import Ints
from ...analyse.groups import Group, label_path
from ..text import visible
from .material import Material
from .packing import numbered, packed

_MOST_ROWS = 5_000
"""Of each tree: the largest labels, which always come with the labels they are below."""
_KERNELS_NAMED = 8
"""Kernels that are listed for a label, by time; the others are one entry."""


def labels(material: Material) -> dict[str, Any] | None:
    """What the view shows; None where nothing ran."""
    summary = material.summary
    if not summary.dispatched:
        return None
    return {
        "timed": any(group.times is not None for group in summary.kernels),
        "in_part": summary.in_part,
        "repeated": None if summary.repeated is None else visible(summary.repeated),
        "dispatched": summary.dispatched,
        "total_ns": sum(group.total_ns for group in summary.kernels),
        "folded": _tree(material, summary.label_patterns, fold=True),
        "single": _tree(material, summary.labels, fold=False),
    }


def _tree(material: Material, groups: Sequence[Group], fold: bool) -> dict[str, Any]:
    chosen = sorted(groups, key=lambda group: (-(group.share or 0.0), -group.dispatched, group.depth))[:_MOST_ROWS]
    by_path = {_path_of(group): group for group in chosen}
    below: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for path in by_path:
        below.setdefault(path[:-1], []).append(path)
    order: list[tuple[str, ...]] = []
    waiting = list(reversed(below.get((), [])))
    while waiting:
        path = waiting.pop()
        order.append(path)
        waiting += reversed(below.get(path, []))
    rows = {path: row for row, path in enumerate(order)}
    shown = [by_path[path] for path in order]
    return {
        "recorded": len(groups),
        "name": [visible(path[-1]) or "(no name)" for path in order],
        "parent": packed(np.array([rows.get(path[:-1], -1) for path in order], np.int64)),
        "share": packed(np.array([group.share or 0.0 for group in shown], np.float64)),
        "dispatched": packed(np.array([group.dispatched for group in shown], np.int64)),
        "count": packed(np.array([group.count for group in shown], np.int64)),
        "total": packed(np.array([group.total_ns for group in shown], np.int64)),
        "per_instance": packed(
            np.array([-1.0 if group.per_instance_ns is None else group.per_instance_ns for group in shown]).round()
        ),
        **_kernels(material, rows, fold),
    }


def _path_of(group: Group) -> tuple[str, ...]:
    """The parts of a label path. The last may hold a '/': paths are as deep as their groups."""
    return tuple(group.name.split("/", group.depth - 1))


def _kernels(material: Material, rows: dict[tuple[str, ...], int], fold: bool) -> dict[str, Any]:
    """Which kernels ran below each label, and for how long: entries from `first[row]` on. Kernel -1: all others."""
    spent = material.spent_ns
    kernels = max(len(material.summary.kernels), 1)
    different, label = numbered(material.columns.commands.label.tolist())
    ran = np.flatnonzero((material.kernel >= 0) & (spent > 0))
    pairs, which = np.unique(label[ran] * kernels + material.kernel[ran], return_inverse=True)
    time = np.bincount(which.reshape(-1), weights=spent[ran], minlength=pairs.size)
    by_row: list[dict[int, float]] = [{} for _ in rows]
    paths = [label_path(each, fold) for each in different]
    for pair, ns in zip(pairs.tolist(), time.tolist(), strict=True):
        path, kernel = paths[pair // kernels], pair % kernels
        for depth in range(1, len(path) + 1):
            row = rows.get(path[:depth])
            if row is not None:
                by_row[row][kernel] = by_row[row].get(kernel, 0.0) + ns
    entries: list[tuple[int, float]] = []
    first = [0]
    for mix in by_row:
        largest = sorted(mix.items(), key=lambda entry: (-entry[1], entry[0]))
        entries += largest[:_KERNELS_NAMED]
        if len(largest) > _KERNELS_NAMED:
            entries.append((-1, sum(ns for _, ns in largest[_KERNELS_NAMED:])))
        first.append(len(entries))
    return {
        "first": packed(np.array(first, np.int64), rising=True),
        "kernel": packed(np.array([kernel for kernel, _ in entries], np.int64)),
        "kernel_ns": packed(_whole(entries)),
    }


def _whole(entries: Sequence[tuple[int, float]]) -> Ints:
    return np.array([round(ns) for _, ns in entries], np.int64)
