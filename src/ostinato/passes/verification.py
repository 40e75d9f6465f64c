"""Verification: two graphs are replayed on the same inputs, and everything that they write is compared.

It compares a graph with its optimised form, two graphs over the same buffers, or a graph with the same graph on another
device (`verify(graph, graph.to(cpu))`, with the CPU as the oracle). All memory that either graph writes is restored
afterwards, and the replays are not counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import counters
from ..base.ranges import Range, common, merged, without
from ..base.tolerances import Tolerance, checked_tolerance
from ..errors import ArgumentError, GraphError
from ..graph.graph import Graph
from ..graph.replay import Replayable
from .address_map import AddressMap, correspondence
from .bisection import Correspondence, Cut
from .compare import Difference, Region, differences, mismatches
from .report import described
from .snapshot import Piece, contents, pieces, put_back, restored, with_buffers
from .touched import used, written


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of comparing two graphs."""

    compared_bytes: int
    """Bytes compared after each replay."""
    replays: int
    """How often each graph was replayed."""
    tolerance: Tolerance
    differences: tuple[Difference, ...] = ()
    """What differs, after the first replay in which anything differs."""
    first_diverging: int | None = None
    """The node of the second graph after which the memory differs for the first time."""
    where: str = ""
    """That node with its label and source line, or the reason why it is not known."""

    @property
    def ok(self) -> bool:
        """Whether nothing differs."""
        return not self.differences

    def check(self) -> Verification:
        """Return itself, or raise a `GraphError` that says what differs."""
        if not self.ok:
            raise GraphError(str(self))
        return self

    @property
    def _compared(self) -> str:
        to = "bit for bit" if not self.tolerance else f"to a tolerance of {self.tolerance}"
        replays = f"{self.replays} replay{'' if self.replays == 1 else 's'}"
        return f"{self.compared_bytes:,} bytes compared {to} after each of {replays}"

    def __str__(self) -> str:
        lines = [f"verify: {'the same' if self.ok else 'DIFFERENT'}, {self._compared}"]
        lines += [f"  {difference}" for difference in self.differences]
        if self.where:
            lines.append(f"  first diverging: {self.where}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from ..base import fragments

        parts = [fragments.line(f"{'same' if self.ok else 'different'}: {self._compared}", "status")]
        if self.differences:
            columns = [fragments.Column(heading, "number") for heading in ("bytes", "differ", "first", "expected")]
            rows = (
                (each.buffer, f"{each.begin:,} … {each.end:,}", f"{each.count:,}", *each.numbers)
                for each in self.differences
            )
            parts.append(fragments.table((fragments.Column("buffer", "name"), *columns), rows))
        if self.where:
            parts.append(fragments.line(f"first diverging: {self.where}"))
        return fragments.fragment(*parts)


def verify(
    original: Graph,
    other: Graph,
    *,
    params: Mapping[str, Any] | None = None,
    tolerance: Tolerance = 0.0,
    repeats: int = 2,
) -> Verification:
    """Replay both graphs on the current contents of `original`'s memory, and compare what they leave there.

    Compared are the bytes of `original`'s outputs that it writes (all bytes that it writes, if it declares no outputs)
    and the bytes that only `other` writes. `tolerance` is the allowed difference t of floating-point numbers, absolute
    plus relative (t + t·|number|); one number, or one per dtype. `repeats` is how often each graph is replayed; the
    default is 2, because a replay starts from what the previous one left. `params` are the values (and buffers) of a
    replay.
    """
    for graph in (original, other):
        if not isinstance(graph, Graph):
            raise ArgumentError(f"verify: expected a Graph, got {graph!r}")
    if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 1:
        raise ArgumentError(f"verify: repeats is a number of replays, at least 1, not {repeats!r}")
    allowed = checked_tolerance(tolerance, "verify")
    for graph in (original, other):
        graph.queue.check()
    original, values = with_buffers(original, params or {})
    other, _ = with_buffers(other, params or {})
    with counters.uncounted(), restored(original, other):
        stage = _Stage(original, other, values)
        outputs = stage.outputs()
        for replay in range(1, repeats + 1):
            expected, actual = stage.run_original(None, replay), stage.run_other(None, replay)
            wrong = mismatches(stage.typed, stage.region, expected, actual, allowed, outputs)
            if len(wrong):
                shown = differences(stage.typed, stage.region, expected, actual, wrong)
                node, where = _first_diverging(stage, replay, allowed, wrong)
                return Verification(_size(outputs), repeats, allowed, shown, node, where)
    return Verification(_size(outputs), repeats, allowed)


class _Stage:
    """Both graphs and their common memory, which is set to the same state before each run."""

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
        self._there = [_the_one(pieces(other, self.map.there([(piece.begin, piece.end)]))) for piece in self._here]
        self._start = contents(self._here)
        self._inputs = self._copied_inputs() if not self.map.is_identity else []

    def _copied_inputs(self) -> list[tuple[Piece, np.ndarray]]:
        """The inputs to copy to the other graph's memory: the current contents of everything that either uses."""
        ranges = merged([*used(self.original), *self.map.back(used(self.other))])
        return [
            (_the_one(pieces(self.other, self.map.there([(piece.begin, piece.end)]))), piece.read())
            for piece in pieces(self.original, ranges)
        ]

    def outputs(self) -> list[Range]:
        """What must be equal at the end of a replay."""
        mine = written(self.original)
        if self.original.outputs is not None:
            wanted = common(mine, merged(self.original.outputs))
        elif self.other.outputs is not None:
            # Outputs were declared on the other graph only, so what its passes dropped for that reason is not compared.
            kept = self.map.back(merged(self.other.outputs))
            wanted = without(mine, without(self.map.back(merged(self.other.dropped)), kept))
        else:
            wanted = mine
        return merged([*wanted, *self._only_other])

    def run_original(self, nodes: Sequence[int] | None, replay: int) -> np.ndarray:
        """The memory after `replay` replays of the original, of which the last runs only these nodes."""
        put_back(self._here, self._start)
        part = None if nodes is None else _part(self.original, nodes)
        return self._run(self.original, part, replay, self._here)

    def run_other(self, count: int | None, replay: int) -> np.ndarray:
        """The memory after `replay` replays of the other graph, of which the last runs only the first `count` nodes."""
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
    """The node after which the memory differs, and its description."""
    matched = Correspondence(stage.original, stage.other, stage.map)
    if matched.problem is not None:
        return None, f"not looked for: {matched.problem}"
    if len(matched.cuts) < 2:
        return None, "not looked for: the two graphs do not replace the same nodes"

    def differs(cut: Cut, turn: int) -> bool:
        within = matched.comparable(cut)
        expected, got = stage.run_original(cut.original, turn), stage.run_other(cut.other, turn)
        return bool(len(mismatches(stage.typed, stage.region, expected, got, tolerance, within)))

    for turn in range(1, replay + 1):
        if differs(matched.cuts[-1], turn):
            break
    else:
        node = matched.sparing(stage.other, [int(address) for address in wrong[:64]])
        if matched.missing:
            lost = described(matched.missing[0], stage.original.nodes[matched.missing[0]])
            return None, f"the second graph has no counterpart of {lost} of the first"
        if node is None:
            return (
                None,
                "not found: run in parts, both graphs leave the same memory; this suggests a race between nodes",
            )
        return node, f"{described(node, stage.other.nodes[node])}, which does not write what it replaces"
    same, different = 0, len(matched.cuts) - 1
    while different - same > 1:
        middle = (same + different) // 2
        if differs(matched.cuts[middle], turn):
            different = middle
        else:
            same = middle
    first, last = matched.cuts[same].other, matched.cuts[different].other - 1
    name = described(last, stage.other.nodes[last])
    among = "" if first == last else f" or one of the {last - first} nodes before it"
    return last, f"{name}{among}, in replay {turn}"


def _part(graph: Graph, nodes: Sequence[int]) -> Graph:
    """Some nodes of a graph, in one submission."""
    return graph.with_nodes([graph.nodes[index] for index in nodes], splits=())


def _the_one(candidates: Sequence[Piece]) -> Piece:
    if len(candidates) != 1:
        raise GraphError("verify: a block of memory of the first graph is not one block in the second")
    return candidates[0]


def _size(ranges: Sequence[Range]) -> int:
    return sum(end - begin for begin, end in ranges)
