"""Moving a graph to a device: memory allocated and filled there, kernels compiled, every command encoded again.

Encoding again makes it safe: a graph from a file, or from another device, passes the same checks as a program's calls.
Addresses change; which memory a command uses, and which ranges overlap, does not.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import ExitStack
from typing import Any

import numpy as np

from ..errors import GraphError
from ..graph.graph import Graph, GraphDevice
from ..graph.memory import GraphMemory, NamedRange, memory_contents, overlapping
from ..ir.command_list import CapturedNode
from ..ir.commands import (
    UNKNOWN,
    Access,
    Barrier,
    BufferBinding,
    Command,
    Copy,
    Dispatch,
    DispatchKind,
    Fill,
    InlineBinding,
    ParamBinding,
)
from ..runtime.buffer import Buffer
from ..runtime.library import Kernel, Library
from ..runtime.queue import queue_of
from .encoder import ORDERINGS, CommandEncoder

_BARRIERS = {ordering: mode for mode, ordering in ORDERINGS.items()}
_ALIGNMENT = 64  # no kernel type needs more, and every device aligns its memory to it


def moved(graph: Graph, device: GraphDevice) -> Graph:
    """A copy of the graph on `device`, with its own memory there."""
    queue = queue_of(device, "graph.to")
    blocks = _Blocks(graph, device)
    kernels = MovedKernels(queue)
    encoder = device.command_encoder(graph.label, _BARRIERS[graph.ordering])
    encoder.start_capture()
    # Encoders do not record a leading barrier, but passes may leave one.
    leading = next((at for at, node in enumerate(graph.nodes) if node.kind != "barrier"), len(graph))
    try:
        for index, node in enumerate(graph.nodes[leading:], leading):
            try:
                _encode(encoder, node.command, graph, blocks, kernels)
            except (ValueError, TypeError, KeyError) as error:
                raise GraphError(f"node {index}, {node}: {error}") from error
    finally:
        captured = encoder.take_capture()
    assert captured is not None
    encoded = zip(captured.nodes, graph.nodes[leading:], strict=True)
    nodes = [
        *graph.nodes[:leading],
        *(CapturedNode(new.command, old.place, old.origin) for new, old in encoded),
    ]
    names = {
        name: NamedRange(name, *blocks.moved(named.begin, named.end), named.dtype, named.shape)
        for name, named in graph.names.items()
    }
    return captured.with_nodes(
        nodes,
        ordering=graph.ordering,  # a setting may have overridden it while encoding
        params=graph.params,
        memories=blocks.memories(),
        names=names,
        outputs=None if graph.outputs is None else tuple(blocks.moved(*span)[1:] for span in graph.outputs),
        dropped=tuple(blocks.moved(*span)[1:] for span in graph.dropped),
        splits=graph.splits,
        reports=graph.reports,
        moved_from=blocks.moves(),
    )


class _Blocks:
    """The graph's memory on the new device. Blocks that overlap, because buffers share memory, become one block."""

    def __init__(self, graph: Graph, device: GraphDevice) -> None:
        spans = overlapping(graph.memories.values())
        self._begins = [begin for begin, _, _ in spans]
        # Borrowed memory may begin at any address; keeping its offset keeps the alignment of what is in it.
        self._blocks = [device.empty(end - begin + begin % _ALIGNMENT, np.uint8) for begin, end, _ in spans]
        for (begin, _, members), block in zip(spans, self._blocks, strict=True):
            backing = block._allocation().backing
            backing.clear(0, block.nbytes)
            for memory in members:
                contents = memory_contents(memory, 0, memory.nbytes)
                if contents is not None:
                    backing.write(memory.address - begin + begin % _ALIGNMENT, np.frombuffer(contents, np.uint8))

    def view(self, begin: int, nbytes: int) -> Buffer:
        """The buffer on the new device for a range of the graph."""
        at = bisect_right(self._begins, begin) - 1
        if at >= 0:
            block, first = self._blocks[at], self._begins[at]
            offset = begin - first + first % _ALIGNMENT
            if offset + nbytes <= block.nbytes:
                return block.view(np.uint8, (nbytes,), offset)
        raise GraphError(f"addresses {begin:#x} to {begin + nbytes:#x} are not in the graph's memory")

    def moved(self, begin: int, end: int) -> tuple[int, int, int]:
        """A range of the graph on the new device: number of the memory, first address, end."""
        view = self.view(begin, end - begin)
        backing = view._allocation().backing
        start = backing.address + view.byte_offset
        return backing.number, start, start + end - begin

    def memories(self) -> dict[int, GraphMemory]:
        """All blocks by number, also those that no command uses: names and outputs may refer to them."""
        memories = {}
        for block in self._blocks:
            allocation = block._allocation()
            backing = allocation.backing
            memories[backing.number] = GraphMemory(backing.number, backing.address, backing.nbytes, allocation)
        return memories

    def moves(self) -> tuple[tuple[int, int, int], ...]:
        """For each block: first address and end in the graph, first address on the new device."""
        moves = []
        for begin, block in zip(self._begins, self._blocks, strict=True):
            end = begin + block.nbytes - begin % _ALIGNMENT
            moves.append((begin, end, self.moved(begin, end)[1]))
        return tuple(moves)


class MovedKernels:
    """Kernels compiled for the new device, one library per source and set of constants."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue
        self._libraries: dict[tuple[Any, ...], Library] = {}

    def find(self, dispatch: Dispatch) -> Kernel:
        """The kernel of a dispatch, compiled for the new device."""
        origin = dispatch.kernel.origin
        if origin is None:
            raise GraphError(f"kernel {dispatch.kernel.name!r}: its source is not known")
        constants = tuple(sorted((str(key), repr(value)) for key, value in origin.constants.items()))
        key = (origin.module.text_key, constants)
        if key not in self._libraries:
            self._libraries[key] = Library(
                self._queue, origin.module, origin.constants, file=origin.file, defines=origin.defines
            )
        return self._libraries[key][dispatch.kernel.name]


def _encode(encoder: CommandEncoder, command: Command, graph: Graph, blocks: _Blocks, kernels: MovedKernels) -> None:
    if isinstance(command, Barrier):
        encoder.memory_barrier()
        return
    with ExitStack() as scopes:
        if command.label:
            scopes.enter_context(encoder.scope(command.label))
        if isinstance(command, Copy):
            encoder.copy(_view(command.source, blocks), _view(command.target, blocks))
        elif isinstance(command, Fill):
            width = len(command.pattern)
            target = _view(command.target, blocks).view(np.dtype(f"u{width}"))
            encoder.fill(target, np.frombuffer(command.pattern, target.dtype)[0])
        else:
            _encode_dispatch(encoder, command, graph, blocks, kernels)


def _encode_dispatch(
    encoder: CommandEncoder, dispatch: Dispatch, graph: Graph, blocks: _Blocks, kernels: MovedKernels
) -> None:
    kernel = kernels.find(dispatch)
    arguments: dict[int, Any] = {}
    for binding in dispatch.bindings:
        if isinstance(binding, BufferBinding):
            arguments[binding.index] = _view(binding, blocks)
        elif isinstance(binding, InlineBinding):
            arguments[binding.index] = binding.data
        elif isinstance(binding, ParamBinding):
            arguments[binding.index] = graph.params[binding.name]
    reads, writes = _declared(dispatch.accesses, blocks)
    is_threads = dispatch.kind is DispatchKind.Threads
    encoder.dispatch(
        kernel,
        arguments,
        threads=dispatch.threads if is_threads else None,
        groups=None if is_threads else dispatch.groups,
        group_size=dispatch.group_size,
        shared={
            argument.index: nbytes
            for argument, nbytes in zip(kernel.signature.shared, dispatch.shared, strict=True)
            if nbytes
        },
        reads=reads,
        writes=writes,
        op_kind=dispatch.op_kind,
        bytes_read=dispatch.bytes_read,
        bytes_written=dispatch.bytes_written,
        flops=dispatch.flops,
    )


def _declared(accesses: tuple[Access, ...] | None, blocks: _Blocks) -> tuple[Any, Any]:
    if accesses is None:
        return UNKNOWN, UNKNOWN
    return (
        [blocks.view(access.begin, access.end - access.begin) for access in accesses if not access.write],
        [blocks.view(access.begin, access.end - access.begin) for access in accesses if access.write],
    )


def _view(binding: BufferBinding, blocks: _Blocks) -> Buffer:
    return blocks.view(binding.address, binding.nbytes)
