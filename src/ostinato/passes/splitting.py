"""Splitting: a graph as several submissions, so that the device runs the first while the rest is being encoded.

That helps where every replay encodes all dispatches. Where the device has native graphs (edges of the CPU runtime, a
CUDA graph), a replay is one call, and there is nothing to overlap.
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
"""Least number of dispatches in the first submission; a tenth of the graph if that is more."""


def split(graph: Graph) -> tuple[Graph, Report]:
    """Split by rule if the device encodes at replay; otherwise return the graph unchanged, with the reason."""
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
            f"nothing done: a replay on {capabilities.name!r} is one call, with no encoding to overlap",
        )
    return split_by_rule(graph)


def split_by_rule(graph: Graph) -> tuple[Graph, Report]:
    """Two submissions: the first 64 dispatches, or the first tenth if that is more, and the rest."""
    started_ns = time.perf_counter_ns()
    _check(graph, "split_by_rule")
    first = max(LEAST_FIRST, -(-graph.dispatches // 10))
    count = len(graph)
    if graph.dispatches <= first:
        summary = (
            f"nothing done: {graph.dispatches} dispatches fit into the first submission, of at least {LEAST_FIRST}"
        )
        return graph, Report("split", count, count, summary, numbers={"submissions": len(graph.splits) + 1})
    result = replace(graph, splits=starts_of(graph, [first]))
    note = Note(result.splits, f"a submission of {first} dispatches and one of {graph.dispatches - first}", "by rule")
    submissions = len(result.splits) + 1
    spent_ns = time.perf_counter_ns() - started_ns
    numbers = {"submissions": submissions}
    return result, Report("split", count, count, f"{submissions} submissions", (note,), (), numbers, spent_ns)


def starts_of(graph: Graph, dispatches: Sequence[int]) -> tuple[int, ...]:
    """The indices of the nodes that are the n-th dispatches, for each n given: where submissions begin."""
    wanted = set(dispatches)
    starts: list[int] = []
    seen = 0
    for index, node in enumerate(graph.nodes):
        if isinstance(node.command, Dispatch):
            if seen in wanted and index:
                starts.append(index)
            seen += 1
    return tuple(starts)


def _check(graph: Graph, what: str) -> None:
    if not isinstance(graph, Graph):
        raise ArgumentError(f"{what}: expected a Graph, got {graph!r}")
