"""Reordering: independent nodes are grouped.

A device with barriers rather than edges runs everything between two barriers concurrently, and puts a barrier before a
node that depends on a node since the last barrier. The fewer groups a list falls into, the fewer barriers it needs.
This is list scheduling: a group takes, in their order, the nodes whose predecessors are all in earlier groups, up to
`LOOK_AHEAD` nodes from the first node not yet placed. That node always joins the group if it can, so there are never
more groups than before.

Barriers, and nodes whose memory is not known, are fences: nothing moves across them. Nothing moves ahead of attention
or softmax either. Stretches between fences in which no barrier is saved keep their order.
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
        summary = f"nothing done: the order is fixed, since in this graph {_WHOSE_ORDER[graph.ordering]}"
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
    result = graph
    if moved:
        result = graph.with_nodes(graph.nodes[index] for index in order)
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
            Note(
                (index,),
                "",
                f"moved up to {places[index]}; it needs none that it passed",
                ((index, graph.nodes[index]),),
            )
            for index in moved
        ),
        (),
        {"moved": len(moved), "barriers_before": barriers_before, "barriers_after": barriers_after},
        time.perf_counter_ns() - started_ns,
    )
    return result, report


_WHOSE_ORDER = {
    Ordering.BARRIERS: "only the barriers placed by hand order nodes",
    Ordering.SERIAL: "each node waits for the previous one",
}


def barriers(graph: Graph, order: Sequence[int], predecessors: Sequence[Sequence[int]]) -> int:
    """Barriers that a device without edges would add to nodes in this order."""
    group: set[int] = set()
    needed = 0
    for index in order:
        if isinstance(graph.nodes[index].command, Barrier):
            group.clear()
            continue
        if any(before in group for before in predecessors[index]):
            needed += 1
            group.clear()
        group.add(index)
    return needed


def _stretches(graph: Graph) -> list[tuple[int, int]]:
    """The parts of the list between fences, and each fence by itself."""
    stretches: list[tuple[int, int]] = []
    begin = 0
    for index, node in enumerate(graph.nodes):
        if node.accesses is None:
            if begin < index:
                stretches.append((begin, index))
            stretches.append((index, index + 1))
            begin = index + 1
    if begin < len(graph):
        stretches.append((begin, len(graph)))
    return stretches


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
            ready.append(index)  # ascending, hence a heap
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
