"""Where two graphs diverge: the first node of the optimised graph after which the memory differs.

A prefix of the optimised list is a legal schedule of the captured nodes that it replaces (`CapturedNode.origin`), so
running those in their original order must leave the same memory. Bisection finds two neighbouring prefixes of which
the shorter agrees and the longer does not.

Bytes that a fused node no longer writes are not compared until another node overwrites them.
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
    """The same work in both graphs: a prefix of the optimised graph, and the original nodes that it replaces."""

    other: int
    """Number of nodes in the prefix of the optimised graph."""
    original: tuple[int, ...]
    """Indices of the nodes of the original."""


class Correspondence:
    """Which nodes of the original graph each node of the other replaces."""

    def __init__(self, original: Graph, other: Graph, addresses: AddressMap) -> None:
        self._writes = [written_by(node, original) for node in original.nodes]
        self._other_writes = [addresses.back(written_by(node, other)) for node in other.nodes]
        self._lost: dict[int, list[Range]] = {}
        self.cuts: list[Cut] = []
        self.problem: str | None = None
        """Why the two graphs cannot be compared in parts."""
        self.missing: list[int] = []
        """Nodes of the original that no node of the other replaces."""
        self._owner = owner = {root: index for index, node in enumerate(original.nodes) for root in _roots(node, index)}
        pending_roots = [len(_roots(node, index)) for index, node in enumerate(original.nodes)]
        begun: set[int] = set()
        done: list[int] = []
        self.cuts.append(Cut(0, ()))
        for index, node in enumerate(other.nodes):
            roots = _roots(node, index)
            if any(root not in owner for root in roots):
                self.problem = f"node {index}, {node}, does not replace nodes of the original"
                return
            for root in roots:
                node_index = owner[root]
                pending_roots[node_index] -= 1
                begun.add(node_index)
                if not pending_roots[node_index]:
                    begun.discard(node_index)
                    done.append(node_index)
            self._note_lost({owner[root] for root in roots}, self._other_writes[index])
            if not begun:
                self.cuts.append(Cut(index + 1, tuple(sorted(done))))
        self.missing = [
            index
            for index, pending in enumerate(pending_roots)
            if pending and not isinstance(original.nodes[index].command, Barrier)
        ]

    def _note_lost(self, originals: set[int], kept: Sequence[Range]) -> None:
        if len(originals) > 1:
            for node_index in originals:
                lost = without(self._writes[node_index], kept)
                if lost:
                    self._lost[node_index] = lost

    def comparable(self, cut: Cut) -> list[Range]:
        """The bytes that must be equal at a cut: those written so far, without those that fusion eliminated."""
        spared: list[Range] = []
        if self._lost:
            everything = merged(span for lost in self._lost.values() for span in lost)
            for index in cut.original:
                touched = common(self._writes[index], everything)
                if touched:
                    spared = merged([*without(spared, touched), *self._lost.get(index, ())])
        mine = (span for index in cut.original for span in self._writes[index])
        theirs = (span for writes in self._other_writes[: cut.other] for span in writes)
        return without(merged([*mine, *theirs]), spared)

    def sparing(self, other: Graph, addresses: Sequence[int]) -> int | None:
        """The fused node of the other graph that no longer writes one of these addresses."""
        for index, node in enumerate(other.nodes):
            for root in _roots(node, index):
                for begin, end in self._lost.get(self._owner[root], ()):
                    if any(begin <= address < end for address in addresses):
                        return index
        return None


def _roots(node: CapturedNode, index: int) -> tuple[int, ...]:
    return node.origin or (index,)
