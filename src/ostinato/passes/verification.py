"""Verification: two graphs replayed on the same inputs, everything that they write compared.

For a graph and what passes made of it, for two graphs over the same buffers, and for a graph and the same graph on
another device (`verify(graph, graph.to(cpu))`, the CPU as the oracle). All memory that either writes is put back
afterwards, and the replays are not counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import counters
from ..base.ranges import Range, common, merged, without
from ..errors import ArgumentError, GraphError
from ..graph.graph import Graph
from ..graph.replay import Replayable
from .address_map import AddressMap, correspondence
from .bisection import Correspondence, Cut
from .compare import Difference, Region, Tolerance, checked_tolerance, differences, mismatches
from .report import described
from .snapshot import Piece, contents, pieces, put_back, restored, with_buffers
from .touched import used, written


@dataclass(frozen=True, slots=True)
class Verification:
    """What came of comparing two graphs."""

    compared_bytes: int
    """Bytes that were compared after each replay."""
    replays: int
    """How often each was replayed, one after the other."""
    tolerance: Tolerance
    differences: tuple[Difference, ...] = ()
    """What differs, after the first replay in which anything does."""
    first_diverging: int | None = None
    """The node of the second graph before which both have the same memory and after which they have not."""
    where: str = ""
    """That node with its label and source line, or why it could not be found."""

    @property
    def ok(self) -> bool:
        """Whether nothing differs."""
        return not self.differences

    def check(self) -> Verification:
        """Raise a `GraphError` that says what differs, unless nothing does."""
        if not self.ok:
            raise GraphError(str(self))
        return self

    def __str__(self) -> str:
        to = "bit for bit" if not self.tolerance else f"to a tolerance of {self.tolerance}"
        lines = [
            f"verify: {'the same' if self.ok else 'DIFFERENT'}, {self.compared_bytes:,} bytes compared {to}"
            f" after each of {self.replays} replay{'' if self.replays == 1 else 's'}"
        ]
        lines += [f"  {one}" for one in self.differences]
        if self.where:
            lines.append(f"  first diverging: {self.where}")
        return "\n".join(lines)


def verify(
    original: Graph,
    other: Graph,
    *,
    params: Mapping[str, Any] | None = None,
    tolerance: Tolerance = 0.0,
    repeats: int = 2,
) -> Verification:
    """Replay both on what is in `original`'s memory now, and compare what they leave there.

    Compared is every byte of the outputs that `original` writes (of all that it writes, where it does not say what its
    outputs are) and every byte that only `other` writes. `tolerance` is what floating-point numbers may differ by: t,
    plus t times the number; one for all, or by dtype. Each is replayed twice, because a replay begins with what the one
    before left. `params` are the values (and buffers) of a replay.
    """
    for one in (original, other):
        if not isinstance(one, Graph):
            raise ArgumentError(f"verify: expected a Graph, got {one!r}")
    if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 1:
        raise ArgumentError(f"verify: repeats is a number of replays, at least 1, not {repeats!r}")
    allowed = checked_tolerance(tolerance)
    for one in (original, other):
        one.queue.check()
    original, values = with_buffers(original, params or {})
    other, _ = with_buffers(other, params or {})
    with counters.uncounted(), restored(original, other):
        stage = _Stage(original, other, values)
        outputs = stage.outputs()
        for replay in range(1, repeats + 1):
            expected, found = stage.run_original(None, replay), stage.run_other(None, replay)
            wrong = mismatches(stage.typed, stage.region, expected, found, allowed, outputs)
            if len(wrong):
                told = differences(stage.typed, stage.region, expected, found, wrong)
                node, where = _first_diverging(stage, replay, allowed, wrong)
                return Verification(_size(outputs), repeats, allowed, told, node, where)
    return Verification(_size(outputs), repeats, allowed)


class _Stage:
    """Both graphs, and the memory they have in common, set to the same state before each run."""

    def __init__(self, original: Graph, other: Graph, values: dict[str, Any]) -> None:
        self.original = original
        self.other = other
        self._values = values
        self.map: AddressMap = correspondence(original, other)
        self.typed = (original, other) if self.map.is_identity else (original,)
        mine, theirs = written(original), self.map.back(written(other))
        self._only_other = without(theirs, mine)
        self.region = Region(merged([*mine, *theirs]))
        self._here = pieces(original, self.region.ranges)
        self._there = [_the_one(pieces(other, self.map.there([(one.begin, one.end)]))) for one in self._here]
        self._start = contents(self._here)
        self._inputs = self._copied_inputs() if not self.map.is_identity else []

    def _copied_inputs(self) -> list[tuple[Piece, np.ndarray]]:
        """What the other graph must find in its own memory: everything that either uses, as it is here now."""
        ranges = merged([*used(self.original), *self.map.back(used(self.other))])
        return [
            (_the_one(pieces(self.other, self.map.there([(one.begin, one.end)]))), one.read())
            for one in pieces(self.original, ranges)
        ]

    def outputs(self) -> list[Range]:
        """What must be the same at the end of a replay."""
        mine = written(self.original)
        if self.original.outputs is not None:
            wanted = common(mine, merged(self.original.outputs))
        elif self.other.outputs is not None:
            # The promise that little is read was made after the original: what that allowed to drop is not compared.
            kept = self.map.back(merged(self.other.outputs))
            wanted = without(mine, without(self.map.back(merged(self.other.dropped)), kept))
        else:
            wanted = mine
        return merged([*wanted, *self._only_other])

    def run_original(self, nodes: Sequence[int] | None, replay: int) -> np.ndarray:
        """What is in memory after all but the last of some replays were whole, and the last had only these nodes."""
        put_back(self._here, self._start)
        part = None if nodes is None else _part(self.original, nodes)
        return self._run(self.original, part, replay, self._here)

    def run_other(self, count: int | None, replay: int) -> np.ndarray:
        """The same for the first nodes of the other graph."""
        if self._inputs:
            for piece, values in self._inputs:
                piece.write(values)
        put_back(self._there, self._start)
        part = None if count is None else _part(self.other, range(count))
        return self._run(self.other, part, replay, self._there)

    def _run(self, whole: Graph, part: Graph | None, replay: int, windows: Sequence[Piece]) -> np.ndarray:
        run = Replayable(whole)
        for _ in range(replay - (part is not None)):
            run.replay(label="verify", **self._values).wait()
        if part is not None and len(part):
            Replayable(part).replay(label="verify", **self._values).wait()
        return np.concatenate([np.zeros(0, np.uint8), *contents(windows)])


def _first_diverging(stage: _Stage, replay: int, tolerance: Tolerance, wrong: np.ndarray) -> tuple[int | None, str]:
    """The node after which the memory differs, and how to name it."""
    found = Correspondence(stage.original, stage.other, stage.map)
    if found.problem is not None:
        return None, f"not looked for: {found.problem}"
    if len(found.cuts) < 2:
        return None, "not looked for: the two graphs do not stand for the same nodes"

    def differs(cut: Cut, turn: int) -> bool:
        within = found.comparable(cut)
        expected, got = stage.run_original(cut.original, turn), stage.run_other(cut.other, turn)
        return bool(len(mismatches(stage.typed, stage.region, expected, got, tolerance, within)))

    for turn in range(1, replay + 1):
        if differs(found.cuts[-1], turn):
            break
    else:
        node = found.sparing(stage.other, [int(one) for one in wrong[:64]])
        if found.missing:
            lost = described(found.missing[0], stage.original.nodes[found.missing[0]])
            return None, f"the second graph does nothing for {lost} of the first"
        if node is None:
            return None, "not found: run in parts, both leave the same memory; is there a race between nodes?"
        return node, f"{described(node, stage.other.nodes[node])}, which does not write what it stands for"
    same, different = 0, len(found.cuts) - 1
    while different - same > 1:
        middle = (same + different) // 2
        if differs(found.cuts[middle], turn):
            different = middle
        else:
            same = middle
    first, last = found.cuts[same].other, found.cuts[different].other - 1
    name = described(last, stage.other.nodes[last])
    among = "" if first == last else f" or one of the {last - first} nodes before it"
    return last, f"{name}{among}, in replay {turn}"


def _part(graph: Graph, nodes: Sequence[int]) -> Graph:
    """Some nodes of a graph, in one submission."""
    return graph.with_nodes([graph.nodes[index] for index in nodes], splits=())


def _the_one(found: Sequence[Piece]) -> Piece:
    if len(found) != 1:
        raise GraphError("verify: memory that is one block in one graph is not in the other")
    return found[0]


def _size(ranges: Sequence[Range]) -> int:
    return sum(end - begin for begin, end in ranges)
