"""A command list as a tree of boxes: its nodes by the parts of their labels, with repeated layers folded into one.

Boxes are numbered: the nodes of the list first, as in the list, then the groups, each after the group it is in. A group
is one of three kinds: a *label* holds the nodes below one part of a label path; *alike* holds groups or nodes whose
labels differ in numbers alone and whose contents have the same labels and kernels in the same order ('layer.0' to
'layer.31'); a *stretch* holds some of the boxes of a group that would otherwise have too many, in their order.

Where labels return (norm, attention, norm again), the groups of a list wait for each other in both directions; see
`layering.py` for what is drawn then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from .groups import folded, label_path

MOST_IN_A_GROUP = 50
"""Boxes that a reader can take in at once; groups of more are split into stretches."""
_RANGES_NAMED = 3


class Kind(IntEnum):
    """What a box stands for."""

    NODE = 0
    LABEL = 1
    ALIKE = 2
    STRETCH = 3


@dataclass(frozen=True, slots=True)
class LabelTree:
    """The boxes of a list, a column each."""

    parent: tuple[int, ...]
    """-1 for those in no group."""
    name: tuple[str, ...]
    """What tells a box from the others of its group; "" for nodes that only their kernel names."""
    kind: tuple[Kind, ...]

    def __len__(self) -> int:
        return len(self.parent)


@dataclass(slots=True)
class _Box:
    name: str
    kind: Kind
    first: int
    """The first node in it; of a node, itself."""
    inside: list[_Box] = field(default_factory=list)
    likeness: int = -1
    """The same number for boxes with the same contents."""


def label_tree(labels: Sequence[str], kernels: Sequence[int], most: int = MOST_IN_A_GROUP) -> LabelTree:
    """The tree of a list, given the label and the number of the kernel of each node."""
    paths = [label_path(label) for label in labels]
    contents: dict[tuple[object, ...], int] = {}

    def likeness(*what: object) -> int:
        return contents.setdefault(what, len(contents))

    def boxes(nodes: list[int], depth: int) -> list[_Box]:
        by_part: dict[str, list[int]] = {}
        made: list[_Box | str] = []
        for node in nodes:
            if len(paths[node]) == depth:
                made.append(_Box("", Kind.NODE, node, likeness=likeness(kernels[node])))
                continue
            part = paths[node][depth]
            if part not in by_part:
                by_part[part] = []
                made.append(part)
            by_part[part].append(node)
        return [box if isinstance(box, _Box) else group(box, by_part[box], depth + 1) for box in made]

    def group(name: str, nodes: list[int], depth: int) -> _Box:
        inside = boxes(nodes, depth)
        name = name or "(no name)"
        if len(inside) == 1:
            # A group of one box is that box, under both names.
            (only,) = inside
            only.name = f"{name}/{only.name}" if only.name else name
            return only
        alike = likeness(*((folded(box.name), box.likeness) for box in inside))
        return _Box(name, Kind.LABEL, nodes[0], _split(_folded(inside), most), alike)

    top = _split(_folded(boxes(list(range(len(labels))), 0)), most)
    return _numbered(top, len(labels))


def _folded(boxes: list[_Box]) -> list[_Box]:
    """The boxes of one group, with those that are alike put into a box of their own."""
    classes: dict[tuple[str, int], list[_Box]] = {}
    for box in boxes:
        classes.setdefault((folded(box.name), box.likeness), []).append(box)
    patterns = [pattern for pattern, _ in classes]
    made = []
    for (pattern, likeness), alike in classes.items():
        if len(alike) == 1 or pattern == alike[0].name:
            made += alike
        else:
            which = "" if patterns.count(pattern) == 1 else f" ({_which([box.name for box in alike])})"
            made.append(_Box(pattern + which, Kind.ALIKE, alike[0].first, alike, likeness))
    return sorted(made, key=lambda box: box.first)


def _which(names: list[str]) -> str:
    """The numbers that distinguish some names: '0–2, 4, 6'; the names themselves where there is more than one each."""
    numbers = ["".join(letter for letter in name if letter.isdecimal()) for name in names]
    ranges: list[list[int]] = []
    for name, number in zip(names, numbers, strict=True):
        if folded(name).count("*") != 1 + name.count("*") or not number.isascii() or len(number) > 9:
            return f"{names[0]} … {names[-1]}"
        if ranges and ranges[-1][1] + 1 == int(number):
            ranges[-1][1] += 1
        else:
            ranges.append([int(number)] * 2)
    shown = [str(low) if low == high else f"{low}–{high}" for low, high in ranges[:_RANGES_NAMED]]
    return ", ".join(shown) + (", …" if len(ranges) > _RANGES_NAMED else "")


def _split(boxes: list[_Box], most: int) -> list[_Box]:
    """At most that many boxes, in order: where there are more, stretches of them."""
    for box in boxes:
        if box.kind is Kind.ALIKE:
            box.inside = _split(box.inside, most)
    return _stretches(boxes, most, 0, len(boxes))


def _stretches(boxes: list[_Box], most: int, begin: int, count: int) -> list[_Box]:
    """`boxes` are those from the one numbered `begin` of `count`."""
    if len(boxes) <= most:
        return boxes
    # As few steps down as it takes, with about as many boxes at each.
    steps = math.ceil(math.log(len(boxes), most))
    size = -(-len(boxes) // min(math.ceil(len(boxes) ** (1 / steps)), most))
    made = []
    for at in range(0, len(boxes), size):
        some = boxes[at : at + size]
        name = f"{begin + at + 1:,}–{begin + at + len(some):,} of {count:,}"
        inside = _stretches(some, most, begin + at, count)
        made.append(some[0] if len(some) == 1 else _Box(name, Kind.STRETCH, some[0].first, inside))
    return made


def _numbered(top: list[_Box], nodes: int) -> LabelTree:
    parent, name, kind = [-1] * nodes, [""] * nodes, [Kind.NODE] * nodes
    waiting = [(box, -1) for box in reversed(top)]
    while waiting:
        box, above = waiting.pop()
        number = box.first
        if box.kind is Kind.NODE:
            parent[number], name[number] = above, box.name
        else:
            number = len(parent)
            parent.append(above)
            name.append(box.name)
            kind.append(box.kind)
        waiting += [(each, number) for each in reversed(box.inside)]
    return LabelTree(tuple(parent), tuple(name), tuple(kind))
