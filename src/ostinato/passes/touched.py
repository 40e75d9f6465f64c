"""Which addresses the commands of a graph touch."""

from __future__ import annotations

from ..base.ranges import Range, merged
from ..graph.graph import Graph
from ..ir.command_list import CapturedNode
from ..ir.commands import Barrier


def written_by(node: CapturedNode, graph: Graph) -> list[Range]:
    """What a node may write: what its accesses say, and everything that is bound to it for writing.

    A declaration of the caller may leave some of the bound bytes out; whoever saves or compares memory wants to know of
    them all the same. A dispatch that may touch anything may write all of the graph's memory.
    """
    if isinstance(node.command, Barrier):
        return []
    if node.accesses is None:
        return _everything(graph)
    return merged(
        [
            *((one.begin, one.end) for one in node.accesses if one.write),
            *((one.address, one.address + one.nbytes) for one in node.buffers if one.writes),
        ]
    )


def written(graph: Graph) -> list[Range]:
    """What any node may write."""
    seen: set[Range] = set()
    for node in graph.nodes:
        seen.update(written_by(node, graph))
    return merged(seen)


def used(graph: Graph) -> list[Range]:
    """What any node may read or write."""
    seen: set[Range] = set()
    for node in graph.nodes:
        if node.accesses is None and not isinstance(node.command, Barrier):
            return _everything(graph)
        seen.update((one.begin, one.end) for one in node.accesses or ())
        seen.update((one.address, one.address + one.nbytes) for one in node.buffers)
    return merged(seen)


def _everything(graph: Graph) -> list[Range]:
    return merged((one.address, one.address + one.nbytes) for one in graph.memories.values())
