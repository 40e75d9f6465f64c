"""A candidate where it lives: a graph in which the dispatches of the first choice are those of a candidate.

A dispatch of the graph is one of the first choice if kernel, constants, grid and sizes of its buffers are the same. The
candidate takes over its buffers and parameters: what the candidate binds as the first choice does becomes what the
graph binds there. Memory that only the candidate uses stays its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..errors import TuningError
from ..graph.graph import Graph
from ..ir.command_list import CapturedNode
from ..ir.commands import (
    Access,
    Barrier,
    Binding,
    BufferBinding,
    Command,
    Copy,
    Dispatch,
    Fill,
    InlineBinding,
    Ordering,
    UnboundBinding,
)


def only_dispatch(first: Graph) -> Dispatch:
    """The one dispatch of the first choice; raises where there is not exactly one."""
    commands = [command for command in first.commands if not isinstance(command, Barrier)]
    if len(commands) != 1 or not isinstance(commands[0], Dispatch):
        raise TuningError(f"inside=: the first choice must be one dispatch, to find it in the graph; it is {first!r}")
    return commands[0]


def places(graph: Graph, first: Dispatch) -> list[int]:
    """The nodes of a graph that are dispatches of the first choice; raises if there is none."""
    numbers = [number for number, node in enumerate(graph.nodes) if _alike(node.command, first)]
    if not numbers:
        raise TuningError(
            f"inside=: {graph!r} has no dispatch like that of the first choice ({first.kernel.name}, groups"
            f" {first.groups}, threads per group {first.group_size})"
        )
    return numbers


def replaced(graph: Graph, numbers: Sequence[int], first: Dispatch, candidate: Graph) -> Graph:
    """The graph with the candidate in place of these nodes."""
    if len(candidate) > 1 and graph.ordering is Ordering.BARRIERS:
        raise TuningError("inside=: a candidate of several commands needs barriers that this graph places by hand")
    unknown = sorted(candidate.params.keys() - graph.params.keys())
    if unknown:
        raise TuningError(f"inside=: the graph has no parameter {unknown[0]!r}, which the candidate takes")
    chosen, nodes, starts = set(numbers), list[CapturedNode](), list[int]()
    for number, node in enumerate(graph.nodes):
        starts.append(len(nodes))
        if number not in chosen:
            nodes.append(node)
            continue
        own = node.command
        assert isinstance(own, Dispatch)
        nodes += [
            CapturedNode(_moved(each.command, first, own), node.place, node.origin or (number,))
            for each in candidate.nodes
        ]
    return graph.with_nodes(
        nodes,
        memories={**candidate.memories, **graph.memories},
        splits=tuple(starts[split] for split in graph.splits),
    )


def _alike(command: Command, first: Dispatch) -> bool:
    if not isinstance(command, Dispatch) or command.kernel.name != first.kernel.name:
        return False
    digests = [each.kernel.origin.digest if each.kernel.origin else "" for each in (command, first)]
    grids = [(each.kind, each.threads, each.groups, each.group_size, each.shared) for each in (command, first)]
    return (
        digests[0] == digests[1]
        and grids[0] == grids[1]
        and all(_same_kind(*pair) for pair in zip(command.bindings, first.bindings, strict=True))
    )


def _same_kind(a: Binding, b: Binding) -> bool:
    if isinstance(a, BufferBinding) or isinstance(b, BufferBinding):
        return isinstance(a, BufferBinding) and isinstance(b, BufferBinding) and a.nbytes == b.nbytes
    if isinstance(a, InlineBinding) and isinstance(b, InlineBinding):
        return a.data == b.data
    if isinstance(a, UnboundBinding) or isinstance(b, UnboundBinding):
        return a == b
    return True  # a parameter of replays stands for any value


def _moved(command: Command, first: Dispatch, own: Dispatch) -> Command:
    """A command of the candidate, with the memory of the graph's own dispatch."""
    if isinstance(command, Dispatch):
        accesses = command.accesses
        return replace(
            command,
            bindings=tuple(_rebound(binding, first, own) for binding in command.bindings),
            accesses=None if accesses is None else tuple(to for each in accesses for to in _shifted(each, first, own)),
            label=own.label,
        )
    if isinstance(command, Copy):
        source, target = (_rebound(each, first, own) for each in (command.source, command.target))
        assert isinstance(source, BufferBinding)
        assert isinstance(target, BufferBinding)
        return replace(command, source=source, target=target, label=own.label)
    if isinstance(command, Fill):
        filled = _rebound(command.target, first, own)
        assert isinstance(filled, BufferBinding)
        return replace(command, target=filled, label=own.label)
    return command


def _rebound(binding: Binding, first: Dispatch, own: Dispatch) -> Binding:
    pairs = list(zip(first.bindings, own.bindings, strict=True))
    if not isinstance(binding, BufferBinding):
        for before, after in pairs:
            if before == binding and not isinstance(after, BufferBinding):
                return replace(after, index=binding.index)
        return binding
    # The same argument first: a buffer that the first choice binds twice may be two buffers in the graph.
    for before, after in sorted(pairs, key=lambda pair: pair[0].index != binding.index):
        if isinstance(before, BufferBinding) and isinstance(after, BufferBinding) and _holds(before, binding):
            shift = binding.address - before.address
            where = (after.allocation, after.address + shift, after.offset + shift, binding.nbytes)
            return BufferBinding(binding.index, *where, binding.writes)
    return binding


def _holds(outer: BufferBinding, inner: BufferBinding) -> bool:
    begins_inside = outer.address <= inner.address
    return begins_inside and inner.address + inner.nbytes <= outer.address + outer.nbytes


def _shifted(access: Access, first: Dispatch, own: Dispatch) -> list[Access]:
    """An access in the graph's memory; several where the first choice binds one buffer as several arguments."""
    holding = [
        (before, after)
        for before, after in zip(first.bindings, own.bindings, strict=True)
        if isinstance(before, BufferBinding)
        and isinstance(after, BufferBinding)
        and before.address <= access.begin
        and access.end <= before.address + before.nbytes
    ]
    alike = [pair for pair in holding if pair[0].writes is access.write] or holding
    shifts = {after.address - before.address for before, after in alike} or {0}
    return [Access(access.begin + shift, access.end + shift, access.write) for shift in sorted(shifts)]
