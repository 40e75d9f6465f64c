"""Barriers by structure alone: which are missing, which order nothing, and why each inferred one is there.

Nothing runs and nothing is compiled. Each question takes one walk over the nodes with the hazard engine.
"""

from __future__ import annotations

from ..graph.graph import Graph
from ..ir.commands import Barrier, Ordering
from ..ir.hazards import HazardTracker
from .findings import ERROR, NOTE, Finding, InferredBarrier, conflict, found, place_text, title


def missing_pairs(graph: Graph) -> list[tuple[int, int]]:
    """Pairs of nodes that use the same bytes, one of them writing, with no barrier between them.

    The nearest pairs, as the hazard engine gives them: every other pair follows from a chain of these.
    """
    pairs = []
    tracker = HazardTracker()
    splits = frozenset(graph.splits)
    for index, node in enumerate(graph.nodes):
        if isinstance(node.command, Barrier) or index in splits:
            tracker.reset()
        if not isinstance(node.command, Barrier):
            pairs += [(before, index) for before in tracker.add(index, node.accesses)]
    return pairs


def redundant_barriers(graph: Graph) -> list[int]:
    """Barriers that could all be taken out at once without leaving a pair unordered that is ordered now.

    Of the barriers between two nodes that conflict the last is kept, unless one kept before already is between them;
    so every one that is kept is the only one left between some pair.
    """
    barriers = [index for index, node in enumerate(graph.nodes) if isinstance(node.command, Barrier)]
    if graph.ordering is Ordering.INFERRED:
        return barriers
    needed = set()
    tracker = HazardTracker()  # of all that no needed barrier has ordered yet
    splits = frozenset(graph.splits)
    latest: int | None = None
    for index, node in enumerate(graph.nodes):
        if index in splits:
            tracker.reset()
            latest = None
        if isinstance(node.command, Barrier):
            latest = index
            continue
        before = tracker.add(index, node.accesses)
        if latest is not None and before and before[0] < latest:
            needed.add(latest)
            tracker.reset()
            for again in range(latest + 1, index + 1):
                tracker.add(again, graph.nodes[again].accesses)
            latest = None
    return [index for index in barriers if index not in needed]


def missing(graph: Graph) -> list[Finding]:
    """A finding for each missing pair; none where something else than barriers orders the nodes."""
    if graph.ordering is not Ordering.BARRIERS:
        return []
    findings = []
    for before, after in missing_pairs(graph):
        reasons, why = conflict(graph, before, after)
        advice = f"memory_barrier() before {place_text(graph, after)}, or barriers='auto'"
        findings.append(found(graph, ERROR, "missing barrier", (before, after), why, advice, reasons))
    return findings


def redundant(graph: Graph) -> list[Finding]:
    """A finding for each barrier that can go; in a serial list barriers order nothing by themselves, and none is."""
    if graph.ordering is Ordering.SERIAL:
        return []
    if graph.ordering is Ordering.INFERRED:
        why = "order is inferred here: what must wait does so without it, and the rest waits for nothing"
    else:
        why = "no conflict leads across it that the other barriers do not order"
    return [
        found(graph, NOTE, "redundant barrier", (index,), why, "take it out") for index in redundant_barriers(graph)
    ]


def inferred(graph: Graph) -> list[InferredBarrier]:
    """What makes each inferred barrier necessary, in the terms of a device that has barriers rather than edges.

    Such a device runs a group of nodes at once until one depends on another of the same group.
    """
    if graph.ordering is not Ordering.INFERRED:
        return []
    predecessors: dict[int, list[int]] = {}
    for before, after in graph.edges.tolist():
        predecessors.setdefault(after, []).append(before)
    splits = frozenset(graph.splits)
    first = 0
    listed = []
    for index, node in enumerate(graph.nodes):
        if index in splits:
            first = index
        if isinstance(node.command, Barrier):
            first = index + 1
            continue
        waits = tuple(before for before in sorted(predecessors.get(index, ())) if before >= first)
        if waits:
            known = [conflict(graph, before, index) for before in waits]
            texts = [
                f"{why}, after {title(graph.nodes[before])} ({place_text(graph, before)})"
                for before, (_, why) in zip(waits, known, strict=True)
            ]
            reasons = tuple(reason for each, _ in known for reason in each)
            listed.append(InferredBarrier(index, title(node), node.place, waits, "; ".join(texts), reasons))
            first = index
    return listed
