"""A graph with other buffers in place of its named ones: new addresses, and the same checks as at capture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..base.ranges import overlap
from ..errors import ArgumentError, GraphChanged, WrongDevice
from ..ir.commands import Access, BufferBinding, Command, Copy, Dispatch, Fill
from ..ir.dtypes import check_dtype, matching_dtypes
from ..runtime.buffer import Buffer
from .graph import Graph
from .memory import GraphMemory, NamedRange


def rebound(graph: Graph, buffers: Mapping[str, Buffer]) -> Graph:
    """The graph with these buffers bound by name. The caller checks whether the edges have changed."""
    moves = [(graph.names[name], check_buffer(graph, name, buffer)) for name, buffer in buffers.items()]
    if any(node.origin != (index,) for index, node in enumerate(graph.nodes)):
        _check_apart(graph, moves)
    nodes = []
    for index, node in enumerate(graph.nodes):
        command = _moved(node.command, moves, f"node {index}, {node}")
        nodes.append(node if command is node.command else node._replace(command=command))
    memories = dict(graph.memories)
    for buffer in buffers.values():
        allocation = buffer._allocation()
        backing = allocation.backing
        memories[backing.number] = GraphMemory(backing.number, backing.address, backing.nbytes, allocation)
    return graph.with_nodes(nodes, memories=memories)


def check_buffer(graph: Graph, name: str, buffer: Buffer) -> Buffer:
    """The buffer, if it can be bound by this name; raises otherwise."""
    known = graph.names[name]
    if type(buffer) is not Buffer:
        raise ArgumentError(f"buffer {name!r}: expected a Buffer, got {buffer!r}")
    if buffer._queue is not graph.queue:
        raise WrongDevice(
            f"buffer {name!r}: {buffer!r} belongs to another device, {buffer._queue.title}, than the graph,"
            f" {graph.queue.title}"
        )
    buffer._allocation()
    if not matching_dtypes(buffer.dtype, known.dtype):
        raise ArgumentError(f"buffer {name!r}: expected {known.dtype.name}, got {buffer.dtype.name}")
    if buffer.nbytes < known.nbytes:
        raise ArgumentError(f"buffer {name!r}: {buffer!r} is too small; the graph uses {known.nbytes} bytes")
    return buffer


_Moves = list[tuple[NamedRange, Buffer]]


def _check_apart(graph: Graph, moves: _Moves) -> None:
    """Raise if a new buffer overlaps others: passes rely on which of the captured buffers overlap."""
    others = {(binding.address, binding.address + binding.nbytes) for node in graph.nodes for binding in node.buffers}
    others -= {span for span in others for known, _ in moves if known.begin <= span[0] and span[1] <= known.end}
    taken = [*others, *graph.dropped]
    for known, buffer in moves:
        begin = buffer._allocation().backing.address + buffer.byte_offset
        span = (begin, begin + known.nbytes)
        if any(overlap(span, used) for used in taken):
            raise GraphChanged(
                f"buffer {known.name!r}: {buffer!r} overlaps memory that the graph uses, and passes have changed the"
                " graph relying on what overlapped when it was captured; bind it before optimise(), or bind memory"
                " of its own"
            )
        taken.append(span)


def _moved(command: Command, moves: _Moves, where: str) -> Command:
    if isinstance(command, Dispatch):
        bindings = tuple(
            _moved_binding(binding, moves) if isinstance(binding, BufferBinding) else binding
            for binding in command.bindings
        )
        accesses = (
            None if command.accesses is None else tuple(_moved_access(access, moves) for access in command.accesses)
        )
        if bindings == command.bindings and accesses == command.accesses:
            return command
        kernel = command.kernel
        parts = zip(command.bindings, bindings, kernel.signature.arguments, kernel.argument_alignments, strict=True)
        for before, binding, argument, alignment in parts:
            if not isinstance(binding, BufferBinding) or binding is before:
                continue
            for known, buffer in moves:
                if isinstance(before, BufferBinding) and known.begin <= before.address < known.end:
                    check_dtype(f"{where}, buffer {known.name!r}", argument, buffer.dtype)
            if alignment and binding.address % alignment:
                raise ArgumentError(
                    f"{where}, argument {binding.index}: byte {binding.offset} of the new buffer's allocation is not"
                    f" aligned to {alignment} bytes"
                )
        return replace(command, bindings=bindings, accesses=accesses)
    if isinstance(command, Copy):
        source, target = _moved_binding(command.source, moves), _moved_binding(command.target, moves)
        if source == command.source and target == command.target:
            return command
        if source.access(False).overlaps(target.access(True)):
            raise ArgumentError(f"{where}: with these buffers it would copy memory onto itself")
        return replace(command, source=source, target=target)
    if isinstance(command, Fill):
        target = _moved_binding(command.target, moves)
        return command if target == command.target else replace(command, target=target)
    return command


def _moved_binding(binding: BufferBinding, moves: _Moves) -> BufferBinding:
    for known, buffer in moves:
        if known.begin <= binding.address and binding.address + binding.nbytes <= known.end:
            backing = buffer._allocation().backing
            offset = buffer.byte_offset + binding.address - known.begin
            return replace(binding, allocation=backing.number, address=backing.address + offset, offset=offset)
    return binding


def _moved_access(access: Access, moves: _Moves) -> Access:
    for known, buffer in moves:
        if known.begin <= access.begin and access.end <= known.end:
            by = buffer._allocation().backing.address + buffer.byte_offset - known.begin
            return Access(access.begin + by, access.end + by, access.write)
    return access
