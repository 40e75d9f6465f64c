"""Splitting: a graph as several submissions, so that the device starts on the first while the rest is being encoded.

That helps where a replay encodes every dispatch anew. Where a graph is native to the device (edges of the CPU runtime,
a CUDA graph) a replay is one call, and there is nothing to overlap.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from ..errors import ArgumentError
from ..graph.graph import Graph
from ..ir.commands import Dispatch
from .report import Note, Report

LEAST_FIRST = 64
"""Dispatches in the first submission, unless a tenth of the graph is more."""


def split(graph: Graph) -> tuple[Graph, Report]:
    """Split by rule if the device encodes at replay; else leave the graph alone, and say so."""
    _check(graph, "split")
    count = len(graph)
    if not graph.on_device:
        return graph, Report("split", count, count, "nothing done: the graph is on no device")
    capabilities = graph.queue.backend.capabilities
    if not capabilities.encodes_at_replay:
        return graph, Report(
            "split",
            count,
            count,
            f"no reason to: a replay on {capabilities.name!r} is one call and encodes nothing that could overlap",
        )
    return split_by_rule(graph)


def split_by_rule(graph: Graph) -> tuple[Graph, Report]:
    """Two submissions: 64 dispatches or a tenth of them, whichever is more, and the rest."""
    started_ns = time.perf_counter_ns()
    _check(graph, "split_by_rule")
    first = max(LEAST_FIRST, -(-graph.dispatches // 10))
    count = len(graph)
    if graph.dispatches <= first:
        summary = f"nothing done: {graph.dispatches} dispatches are one submission ({LEAST_FIRST} are the least)"
        return graph, Report("split", count, count, summary, numbers={"submissions": len(graph.splits) + 1})
    found = replace(graph, splits=starts_of(graph, [first]))
    note = Note(found.splits, f"a submission of {first} dispatches and one of {graph.dispatches - first}", "by rule")
    summary = f"{len(found.splits) + 1} submissions"
    spent_ns = time.perf_counter_ns() - started_ns
    return found, Report("split", count, count, summary, (note,), (), {"submissions": len(found.splits) + 1}, spent_ns)


def starts_of(graph: Graph, dispatches: Sequence[int]) -> tuple[int, ...]:
    """The nodes that are the dispatches of these ordinals: where a submission begins that so many are before."""
    wanted = set(dispatches)
    found: list[int] = []
    seen = 0
    for index, node in enumerate(graph.nodes):
        if isinstance(node.command, Dispatch):
            if seen in wanted and index:
                found.append(index)
            seen += 1
    return tuple(found)


def _check(graph: Graph, what: str) -> None:
    if not isinstance(graph, Graph):
        raise ArgumentError(f"{what}: expected a Graph, got {graph!r}")
