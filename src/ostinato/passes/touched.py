"""Which addresses the commands of a graph read and write."""

from __future__ import annotations

from ..base.ranges import Range, merged
from ..graph.graph import Graph
from ..ir.command_list import CapturedNode
from ..ir.commands import Barrier


def written_by(node: CapturedNode, graph: Graph) -> list[Range]:
    """What a node may write: its declared writes, and every buffer bound to it for writing.

    A caller's declaration may leave out some of the bound bytes; saving and comparing memory must cover them too.
    A dispatch with unknown accesses may write all of the graph's memory.
    """
    if isinstance(node.command, Barrier):
        return []
    if node.accesses is None:
        return _everything(graph)
    return merged(
        [
            *((access.begin, access.end) for access in node.accesses if access.write),
            *((binding.address, binding.address + binding.nbytes) for binding in node.buffers if binding.writes),
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
        seen.update((access.begin, access.end) for access in node.accesses or ())
        seen.update((binding.address, binding.address + binding.nbytes) for binding in node.buffers)
    return merged(seen)


def _everything(graph: Graph) -> list[Range]:
    return merged((memory.address, memory.address + memory.nbytes) for memory in graph.memories.values())
