"""Where two graphs part: the shortest piece of one that leaves other bytes behind than the same work of the other.

A prefix of the optimised list is a legal schedule of the captured nodes that it stands for (`CapturedNode.origin`), so
running these in their original order must leave the same memory. Prefixes are halved until one that agrees and one
that does not are neighbours: the state before is the same, the state after is not.

Bytes that a fused node does not write any more are left out, until somebody overwrites them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..base.ranges import Range, common, merged, without
from ..graph.graph import Graph
from ..ir.command_list import CapturedNode
from ..ir.commands import Barrier
from .address_map import AddressMap
from .touched import written_by


@dataclass(frozen=True, slots=True)
class Cut:
    """The same work in both graphs: the first nodes of one, and some of the other."""

    other: int
    """How many nodes of the optimised graph."""
    original: tuple[int, ...]
    """Which nodes of the original."""


class Correspondence:
    """Which nodes of an original graph the nodes of another stand for."""

    def __init__(self, original: Graph, other: Graph, addresses: AddressMap) -> None:
        self._writes = [written_by(node, original) for node in original.nodes]
        self._other_writes = [addresses.back(written_by(node, other)) for node in other.nodes]
        self._lost: dict[int, list[Range]] = {}
        self.cuts: list[Cut] = []
        self.problem: str | None = None
        """Why there are no cuts to compare at."""
        self.missing: list[int] = []
        """Nodes of the original that no node of the other stands for."""
        self._owner = owner = {root: index for index, node in enumerate(original.nodes) for root in _roots(node, index)}
        left = [len(_roots(node, index)) for index, node in enumerate(original.nodes)]
        begun: set[int] = set()
        done: list[int] = []
        self.cuts.append(Cut(0, ()))
        for index, node in enumerate(other.nodes):
            roots = _roots(node, index)
            if any(root not in owner for root in roots):
                self.problem = f"node {index}, {node}, does not stand for nodes of the original"
                return
            for root in roots:
                mine = owner[root]
                left[mine] -= 1
                begun.add(mine)
                if not left[mine]:
                    begun.discard(mine)
                    done.append(mine)
            self._note_lost({owner[root] for root in roots}, self._other_writes[index])
            if not begun:
                self.cuts.append(Cut(index + 1, tuple(sorted(done))))
        self.missing = [
            index for index, one in enumerate(left) if one and not isinstance(original.nodes[index].command, Barrier)
        ]

    def _note_lost(self, originals: set[int], kept: Sequence[Range]) -> None:
        if len(originals) > 1:
            for one in originals:
                lost = without(self._writes[one], kept)
                if lost:
                    self._lost[one] = lost

    def comparable(self, cut: Cut) -> list[Range]:
        """The bytes that must be the same at a cut: those written so far, unless a fused node spared itself that."""
        spared: list[Range] = []
        if self._lost:
            everything = merged(one for lost in self._lost.values() for one in lost)
            for index in cut.original:
                touched = common(self._writes[index], everything)
                if touched:
                    spared = merged([*without(spared, touched), *self._lost.get(index, ())])
        mine = (one for index in cut.original for one in self._writes[index])
        theirs = (one for writes in self._other_writes[: cut.other] for one in writes)
        return without(merged([*mine, *theirs]), spared)

    def sparing(self, other: Graph, addresses: Sequence[int]) -> int | None:
        """The node of the other graph that stands for several and does not write one of these addresses any more."""
        for index, node in enumerate(other.nodes):
            for root in _roots(node, index):
                for begin, end in self._lost.get(self._owner[root], ()):
                    if any(begin <= address < end for address in addresses):
                        return index
        return None


def _roots(node: CapturedNode, index: int) -> tuple[int, ...]:
    return node.origin or (index,)
