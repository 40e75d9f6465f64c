"""Reordering: nodes that need not wait for each other are brought together.

A device with barriers rather than edges runs everything between two barriers at the same time and puts a barrier where
a node needs what one since the last barrier made. So the fewer groups a list falls into, the fewer barriers. This is
list scheduling: a group takes, in their order, the nodes whose predecessors are all in earlier groups, as far as
`LOOK_AHEAD` nodes from the first that is still to be placed. That one always goes into the group if it can, so there
are never more groups than before.

Barriers, and nodes whose memory is not known, are fences: nothing passes them. Nothing passes attention or softmax
either, which take their own turn. Stretches between fences in which nothing is won keep their order.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence

from ..errors import ArgumentError
from ..graph.graph import Graph
from ..ir.commands import Barrier, Ordering
from .report import Note, Report

LOOK_AHEAD = 64


def reorder(graph: Graph, *, look_ahead: int = LOOK_AHEAD) -> tuple[Graph, Report]:
    """Pack independent nodes together, so that a device with barriers needs fewer of them."""
    started_ns = time.perf_counter_ns()
    if not isinstance(graph, Graph):
        raise ArgumentError(f"reorder: expected a Graph, got {graph!r}")
    if not isinstance(look_ahead, int) or look_ahead < 1:
        raise ArgumentError(f"reorder: look_ahead is a number of nodes, at least 1, not {look_ahead!r}")
    count = len(graph)
    if graph.ordering is not Ordering.INFERRED:
        summary = f"nothing done: in this graph {_WHOSE_ORDER[graph.ordering]}, so its order is not free"
        return graph, Report("reorder", count, count, summary)
    predecessors: list[list[int]] = [[] for _ in range(count)]
    for before, after in graph.edges.tolist():
        predecessors[after].append(before)
    order: list[int] = []
    moved: list[int] = []
    for begin, end in _stretches(graph):
        stretch, pulled, needed = _scheduled(graph, begin, end, predecessors, look_ahead)
        if needed < barriers(graph, range(begin, end), predecessors):
            order += stretch
            moved += pulled
        else:
            order += range(begin, end)
    barriers_before = barriers(graph, range(count), predecessors)
    barriers_after = barriers(graph, order, predecessors) if moved else barriers_before
    found = graph
    if moved:
        found = graph.with_nodes(graph.nodes[index] for index in order)
        summary = f"{len(moved)} nodes moved, {barriers_before - barriers_after} of {barriers_before} barriers saved"
    else:
        summary = f"order kept: no barrier of {barriers_before} can be saved within {look_ahead} nodes"
    places = {index: place for place, index in enumerate(order)} if moved else {}
    report = Report(
        "reorder",
        count,
        count,
        summary,
        tuple(
            Note((index,), "", f"moved up to {places[index]}; it needs none it passed", ((index, graph.nodes[index]),))
            for index in moved
        ),
        (),
        {"moved": len(moved), "barriers_before": barriers_before, "barriers_after": barriers_after},
        time.perf_counter_ns() - started_ns,
    )
    return found, report


_WHOSE_ORDER = {
    Ordering.BARRIERS: "only the barriers placed by hand order nodes",
    Ordering.SERIAL: "each node waits for the one before",
}


def barriers(graph: Graph, order: Sequence[int], predecessors: Sequence[Sequence[int]]) -> int:
    """Barriers that a device without edges would put between nodes in this order, besides those that are there."""
    group: set[int] = set()
    found = 0
    for index in order:
        if isinstance(graph.nodes[index].command, Barrier):
            group.clear()
            continue
        if any(before in group for before in predecessors[index]):
            found += 1
            group.clear()
        group.add(index)
    return found


def _stretches(graph: Graph) -> list[tuple[int, int]]:
    """The parts of the list between fences, and each fence by itself."""
    found: list[tuple[int, int]] = []
    begin = 0
    for index, node in enumerate(graph.nodes):
        if node.accesses is None:
            if begin < index:
                found.append((begin, index))
            found.append((index, index + 1))
            begin = index + 1
    if begin < len(graph):
        found.append((begin, len(graph)))
    return found


def _scheduled(
    graph: Graph, begin: int, end: int, predecessors: Sequence[Sequence[int]], look_ahead: int
) -> tuple[list[int], list[int], int]:
    """A new order of a stretch, the nodes that were pulled ahead of others, and the barriers it needs."""
    waiting: dict[int, int] = {}
    successors: dict[int, list[int]] = {}
    ready: list[int] = []
    for index in range(begin, end):
        inside = [before for before in predecessors[index] if before >= begin]
        waiting[index] = len(inside)
        for before in inside:
            successors.setdefault(before, []).append(index)
        if not inside:
            ready.append(index)  # ascending, so it is a heap already
    stops = [index for index in range(begin, end) if not graph.nodes[index].op_kind.is_reorderable()]
    stop = 0
    placed = bytearray(end - begin)
    first = begin
    order: list[int] = []
    pulled: list[int] = []
    groups = 0
    while first < end:
        groups += 1
        enabled: list[int] = []
        while ready:
            while stop < len(stops) and placed[stops[stop] - begin]:
                stop += 1
            limit = min(first + look_ahead, stops[stop] if stop < len(stops) else end)
            index = ready[0]
            if index != first and index >= limit:
                break
            heapq.heappop(ready)
            if index > first:
                pulled.append(index)
            order.append(index)
            placed[index - begin] = 1
            while first < end and placed[first - begin]:
                first += 1
            for after in successors.get(index, ()):
                waiting[after] -= 1
                if not waiting[after]:
                    enabled.append(after)
        for index in enabled:
            heapq.heappush(ready, index)
    return order, pulled, groups - 1
