"""What a pass changed in a graph, what it refused, and why: as text for people and as numbers for programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..graph.graph import Graph
from ..ir.command_list import CapturedNode

_LINES_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Note:
    """One change that a pass made, or considered and refused."""

    nodes: tuple[int, ...]
    """The nodes concerned, as indices into the pass's input graph."""
    what: str
    """What was done, or considered."""
    reason: str
    """Why it was done, or why it was refused."""
    named: tuple[tuple[int, CapturedNode], ...] = field(default=(), repr=False)
    """The nodes to name in the text. The text is made on demand, since a report may have very many notes."""

    def __str__(self) -> str:
        names = " and ".join(described(index, node) for index, node in self.named)
        subject = f"{self.what}, {names}" if self.what and names else self.what or names
        return f"{subject}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Report:
    """What one pass did to one graph."""

    name: str
    """Name of the pass."""
    nodes_before: int
    nodes_after: int
    summary: str
    """The outcome in one sentence."""
    changes: tuple[Note, ...] = ()
    """What was done."""
    refusals: tuple[Note, ...] = ()
    """What was considered, and why it was not done."""
    numbers: Mapping[str, int | float] = field(default_factory=dict)
    """Counts and measurements, by name."""
    spent_ns: int = 0
    """Host time that the pass took."""

    @property
    def changed(self) -> bool:
        """Whether the pass changed the graph."""
        return bool(self.changes)

    def __str__(self) -> str:
        size = f"{self.nodes_before:,} nodes"
        if self.nodes_after != self.nodes_before:
            size = f"{self.nodes_before:,} → {self.nodes_after:,} nodes"
        lines = [f"{self.name}: {self.summary} ({size}, {self.spent_ns / 1e6:.1f} ms)"]
        if self.numbers:
            lines.append("  " + ", ".join(f"{name} {_number(value)}" for name, value in self.numbers.items()))
        for title, notes in (("done", self.changes), ("refused", self.refusals)):
            lines += [f"  {title}: {note}" for note in notes[:_LINES_SHOWN]]
            if len(notes) > _LINES_SHOWN:
                lines.append(f"  {title}: … and {len(notes) - _LINES_SHOWN:,} more")
        return "\n".join(lines)


Pass = Callable[[Graph], tuple[Graph, Report]]
"""A pass takes a graph and returns a graph, which may be the same, with a report of what it did."""


def described(index: int, node: CapturedNode) -> str:
    """A node as a report names it: its index, label, kernel and source line."""
    return f"node {index} {node}"


def _number(value: int | float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
