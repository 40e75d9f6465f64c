"""Barriers by structure alone: which are missing, which order nothing, and why each inferred barrier is needed.

Nothing runs and nothing is compiled. Each check is one walk over the nodes with the hazard engine.
"""

from __future__ import annotations

from ..graph.graph import Graph
from ..ir.commands import Barrier, Ordering
from ..ir.hazards import HazardTracker
from .findings import ERROR, NOTE, Finding, InferredBarrier, conflict, finding_about, place_text, title


def missing_pairs(graph: Graph) -> list[tuple[int, int]]:
    """Pairs of nodes that access the same bytes, at least one of them writing, with no barrier between them.

    Only the nearest pairs, as the hazard engine returns them: every other pair follows from a chain of these.
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
    """Barriers that can all be removed at once, with every conflicting pair still ordered.

    Of the barriers between two conflicting nodes the last is kept, unless a barrier between them was kept before.
    So every barrier that is kept is the only one left between some pair.
    """
    barriers = [index for index, node in enumerate(graph.nodes) if isinstance(node.command, Barrier)]
    if graph.ordering is Ordering.INFERRED:
        return barriers
    needed = set()
    tracker = HazardTracker()  # nodes since the last needed barrier
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
    """A finding for each unordered pair; none where order is inferred or serial."""
    if graph.ordering is not Ordering.BARRIERS:
        return []
    findings = []
    for before, after in missing_pairs(graph):
        reasons, why = conflict(graph, before, after)
        advice = f"memory_barrier() before {place_text(graph, after)}, or barriers='auto'"
        findings.append(finding_about(graph, ERROR, "missing barrier", (before, after), why, advice, reasons))
    return findings


def redundant(graph: Graph) -> list[Finding]:
    """A finding for each redundant barrier; none in a serial list, where no barrier has an effect."""
    if graph.ordering is Ordering.SERIAL:
        return []
    if graph.ordering is Ordering.INFERRED:
        why = "order is inferred: commands that depend on each other are ordered without it"
    else:
        why = "the other barriers already order every conflict across it"
    return [
        finding_about(graph, NOTE, "redundant barrier", (index,), why, "remove it")
        for index in redundant_barriers(graph)
    ]


def inferred(graph: Graph) -> list[InferredBarrier]:
    """The inferred barriers with their reasons, for a device that has barriers rather than edges.

    Such a device runs nodes concurrently until one depends on another since the last barrier.
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
            reasons = tuple(reason for pair_reasons, _ in known for reason in pair_reasons)
            listed.append(InferredBarrier(index, title(node), node.place, waits, "; ".join(texts), reasons))
            first = index
    return listed
