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
"""Those that run nothing on the device."""


def optimise(graph: Graph, passes: Sequence[Pass] | None = None) -> Graph:
    """Run passes one after the other. `reports` of the result has what each of them did, and why, in that order."""
    chosen = DEFAULT_PASSES if passes is None else passes
    if isinstance(chosen, str) or not isinstance(chosen, Sequence):
        raise ArgumentError(f"optimise: expected a list of passes, got {chosen!r}")
    for one in chosen:
        if not callable(one):
            raise ArgumentError(f"optimise: a pass takes a graph and gives (graph, Report); {one!r} cannot be called")
        result = one(graph)
        match result:
            case (Graph() as found, Report() as report):
                graph = replace(found, reports=(*graph.reports, report))
            case _:
                raise GraphError(f"optimise: the pass {one!r} gave {result!r}; expected (graph, Report)")
    return graph
