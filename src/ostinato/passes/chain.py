"""Chaining passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..errors import ArgumentError, GraphError
from ..graph.graph import Graph
from .fusion import fuse
from .reordering import reorder
from .report import Pass, Report
from .splitting import split

DEFAULT_PASSES: tuple[Pass, ...] = (fuse, reorder, split)
"""The passes that run nothing on the device."""


def optimise(graph: Graph, passes: Sequence[Pass] | None = None) -> Graph:
    """Run passes in order. `reports` of the result has one report per pass: what it did, and why."""
    chosen = DEFAULT_PASSES if passes is None else passes
    if isinstance(chosen, str) or not isinstance(chosen, Sequence):
        raise ArgumentError(f"optimise: expected a list of passes, got {chosen!r}")
    for step in chosen:
        if not callable(step):
            raise ArgumentError(f"optimise: a pass takes a graph and returns (graph, Report); {step!r} is not callable")
        result = step(graph)
        match result:
            case (Graph() as changed, Report() as report):
                graph = replace(changed, reports=(*graph.reports, report))
            case _:
                raise GraphError(f"optimise: the pass {step!r} returned {result!r}; expected (graph, Report)")
    return graph
