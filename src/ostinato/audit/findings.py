"""The result of an audit: findings, inferred barriers with their reasons, and coverage."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..backends.kernel_findings import KernelAccess, KernelPlace
from ..base.printable import printable
from ..base.source_lines import Place
from ..graph.graph import Graph, Reason
from ..ir import hazards
from ..ir.command_list import CapturedNode
from ..ir.commands import BufferBinding, Command, Copy, Dispatch

ERROR, NOTE = "error", "note"

_SHOWN_REASONS = 2
_URGENCY = {"RAW": 0, "WAW": 1, "WAR": 2}


@dataclass(frozen=True, slots=True)
class Finding:
    """One defect ("error"), or one thing worth knowing ("note")."""

    severity: str
    kind: str
    """Kind of finding: "missing barrier", "redundant barrier", "undeclared write", "out of bounds", "race", …"""
    nodes: tuple[int, ...]
    """The nodes of the graph that it is about."""
    names: tuple[str, ...]
    """Scope and kernel of each node."""
    places: tuple[Place | None, ...]
    """The source line that encoded each node, where it is known."""
    why: str
    advice: str
    reasons: tuple[Reason, ...] = ()
    """The bytes on which nodes conflict."""
    access: str = ""
    """For an out-of-bounds access, "read" or "write"; "" if that is not known."""
    argument: str = ""
    """The argument or arguments that it is about, or the memory outside of any argument; "" if it is about neither."""
    accesses: tuple[KernelAccess, ...] = ()
    """What threads did, in the kernel's source: one or two accesses, the one that was noticed last."""
    count: int = 1
    """How often it happened; `accesses` are those of the first time."""
    code: KernelPlace | None = None
    """The place in the kernel's source, of a finding about the code and not about a thread."""

    @property
    def is_error(self) -> bool:
        """Whether it is an error rather than a note."""
        return self.severity == ERROR

    @property
    def where(self) -> tuple[str, ...]:
        """Name and source line of each node."""
        return tuple(
            f"{name} ({place or f'node {node}'})"
            for node, name, place in zip(self.nodes, self.names, self.places, strict=True)
        )

    @property
    def kernel_places(self) -> tuple[KernelPlace, ...]:
        """Its places in the kernel's source, as far as they are known."""
        places = (*(access.place for access in self.accesses), self.code)
        return tuple(dict.fromkeys(place for place in places if place is not None))

    def __str__(self) -> str:
        where = ", ".join(self.where) or "the list"
        return printable(f"{self.severity}: {self.kind}: {where}: {self.why}; {self.advice}")


@dataclass(frozen=True, slots=True)
class Ignored:
    """A finding that is known, and why it is ignored; see `known.py`."""

    finding: Finding
    reason: str
    by: tuple[str, ...]
    """What says so: the places of comments, or the entries of a table."""
    in_source: bool
    """Whether comments in sources say so."""


@dataclass(frozen=True, slots=True)
class InferredBarrier:
    """A barrier that a device without edges would need before a node, and the reason."""

    node: int
    name: str
    place: Place | None
    after: tuple[int, ...]
    """The nodes that the node waits for."""
    why: str
    reasons: tuple[Reason, ...]

    def __str__(self) -> str:
        return printable(f"before {self.name} ({self.place or f'node {self.node}'}): {self.why}")


@dataclass(frozen=True, slots=True)
class Coverage:
    """What was checked."""

    nodes: int
    dispatches: int
    alone: int = 0
    """Dispatches that were run alone, to compare their accesses with their declaration."""
    checked: int = 0
    """Dispatches that were run in the checked build, which sees every access."""
    orders: int = 0
    """Runs of the whole list with only its own ordering."""
    unchecked: tuple[str, ...] = ()
    """What was not checked, and why."""
    lost: int = 0
    """How many reports of kernels were dropped because a device's table of findings was full.

    Threads that do the same at the same place are one finding of the table, but are dropped one by one.
    """

    @property
    def lost_text(self) -> str:
        """How many reports were dropped, as text; "" if none were."""
        reports = "report was" if self.lost == 1 else "reports were"
        return f"the table of findings was full, and {self.lost:,} further {reports} dropped" if self.lost else ""


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of an audit."""

    findings: tuple[Finding, ...]
    inferred: tuple[InferredBarrier, ...]
    """The inferred barriers with their reasons; empty where order is not inferred."""
    coverage: Coverage
    ignored: tuple[Ignored, ...] = ()
    """Findings that comments in sources call benign."""

    @property
    def ok(self) -> bool:
        """Whether there are no errors; there may be notes."""
        return not any(finding.is_error for finding in self.findings)

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that are errors."""
        return tuple(finding for finding in self.findings if finding.is_error)

    def __str__(self) -> str:
        from .table import text

        return text(self)

    def __rich__(self) -> Any:
        from .table import renderable

        return renderable(self)

    def _repr_html_(self) -> str:
        from .table import as_html

        return as_html(self)


def title(node: CapturedNode) -> str:
    """Scope and kernel of a node."""
    return f"{node.label}/{node.name}" if node.label else node.name


def finding_about(
    graph: Graph,
    severity: str,
    kind: str,
    nodes: Iterable[int],
    why: str,
    advice: str,
    reasons: tuple[Reason, ...] = (),
    access: str = "",
    argument: str = "",
) -> Finding:
    """A finding about nodes of a graph."""
    listed = tuple(nodes)
    return Finding(
        severity,
        kind,
        listed,
        tuple(title(graph.nodes[node]) for node in listed),
        tuple(graph.nodes[node].place for node in listed),
        why,
        advice,
        reasons,
        access,
        argument,
    )


def place_text(graph: Graph, node: int) -> str:
    """The source line that encoded a node, or the node's number."""
    place = graph.nodes[node].place
    return str(place) if place else f"node {node}"


def conflict(graph: Graph, before: int, after: int) -> tuple[tuple[Reason, ...], str]:
    """Why one node must run after another: the conflicting bytes, and the same as text with the arguments' names."""
    first, second = graph.nodes[before], graph.nodes[after]
    if first.accesses is None or second.accesses is None:
        unknown = before if first.accesses is None else after
        return (), f"the accesses of {title(graph.nodes[unknown])} are not known, so it may access any memory"
    known = hazards.conflicts(before, first.accesses, after, second.accesses)
    known.sort(key=lambda hazard: (_URGENCY[hazard.kind], hazard.begin))
    reasons = tuple(Reason(before, after, hazard.kind, *graph.place_of(hazard.begin, hazard.end)) for hazard in known)
    kinds: dict[str, list[str]] = {}
    for hazard, reason in zip(known, reasons, strict=True):
        names = dict.fromkeys(argument_at(node.command, hazard.begin, hazard.end) for node in (first, second))
        arguments = " and ".join(name for name in names if name)
        bytes_text = f"{reason.buffer}[{reason.begin}:{reason.end}]{f' ({arguments})' if arguments else ''}"
        kinds.setdefault(bytes_text, []).append(reason.kind)
    texts = [f"{'/'.join(dict.fromkeys(listed))} on {what}" for what, listed in kinds.items()]
    shown = texts[:_SHOWN_REASONS]
    if len(texts) > len(shown):
        shown.append(f"and {len(texts) - len(shown)} more")
    return reasons, ", ".join(shown)


def argument_at(command: Command, begin: int, end: int) -> str:
    """The name of the argument that these addresses are bound to."""
    if isinstance(command, Copy):
        is_target = command.target.address <= begin < command.target.address + command.target.nbytes
        return "copy target" if is_target else "copy source"
    if not isinstance(command, Dispatch):
        return ""
    for binding in command.bindings:
        if isinstance(binding, BufferBinding) and binding.address <= begin and end <= binding.address + binding.nbytes:
            return f"{command.kernel.name}'s {argument_name(command, binding.index)}"
    return ""


def element_at(command: Command, address: int) -> tuple[str, int, np.dtype[Any]] | None:
    """The element that contains the byte at an address: its name in the kernel, its address and its type."""
    if not isinstance(command, Dispatch):
        return None
    arguments = {argument.index: argument for argument in command.kernel.signature.arguments}
    for binding in command.bindings:
        if not isinstance(binding, BufferBinding) or not binding.address <= address < binding.address + binding.nbytes:
            continue
        argument = arguments.get(binding.index)
        if argument is not None and argument.scalar is not None:
            dtype = np.dtype(argument.scalar)
            element = (address - binding.address) // dtype.itemsize
            lane = f".{'xyzw'[element % argument.lanes]}" if 1 < argument.lanes <= 4 else ""
            position = element // argument.lanes if argument.lanes > 1 else element
            return f"{argument.name}[{position}]{lane}", binding.address + element * dtype.itemsize, dtype
    return None


def argument_name(command: Dispatch, index: int) -> str:
    """The name of a kernel's argument, as its source has it."""
    names = {argument.index: argument.name for argument in command.kernel.signature.arguments}
    return repr(names.get(index, f"buffer {index}"))
