"""Captured work as data: nodes, the memory they use, and what may change from replay to replay.

A `Graph` is immutable. Capturing makes one, passes make new ones from it, `instantiate` makes it ready to run. It
keeps its buffers alive. Memory is identified by number and address as in the commands. A graph loaded from a file is on
no device and has synthetic addresses, so that hazards, printing and auditing work on it too.

Which nodes must wait for which follows from the commands (`hazards.py`) and is computed on first use.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy as np

from ..base.copies import refuse_copy
from ..base.ranges import overlap
from ..errors import ArgumentError, GraphError, UnknownAttribute
from ..ir import hazards
from ..ir.command_list import CapturedNode, CommandList
from ..ir.commands import Command, Ordering
from ..ir.params import Param, check_name
from ..runtime.allocation import Allocation, Lease
from ..runtime.buffer import Buffer
from ..runtime.queue import OnQueue, Queue
from .memory import GraphMemory, NamedRange, RangeIndex

if TYPE_CHECKING:
    from ..audit import Audit
    from ..encode.encoder import CommandEncoder
    from ..passes import Pass, Report
    from .replay import Replayable


@dataclass(frozen=True, slots=True)
class Reason:
    """Why one node waits for another: "RAW", "WAR" or "WAW" on bytes of a buffer."""

    before: int
    after: int
    kind: str
    buffer: str
    """The buffer's name, or "memory N"."""
    begin: int
    """First byte, counted from the start of the named range or of the memory."""
    end: int

    def __str__(self) -> str:
        return f"{self.kind} on {self.buffer}[{self.begin}:{self.end}]"


class GraphDevice(OnQueue, Protocol):
    """The device that a graph is moved to."""

    def empty(self, shape: int, dtype: Any) -> Buffer: ...

    def command_encoder(self, label: str | None = None, barriers: str = "auto") -> CommandEncoder: ...


@dataclass(frozen=True, eq=False)
class Graph:
    """Captured work. Made by `Device.capture`, `CommandEncoder.take_capture`, `load_graph`, or a pass."""

    command_list: CommandList
    """The commands, what orders them, and the parameters whose values replays pass."""
    memories: Mapping[int, GraphMemory]
    """By number."""
    names: Mapping[str, NamedRange]
    """The buffers that a replay can replace by others."""
    outputs: tuple[tuple[int, int], ...] | None = None
    """Addresses that are read after a replay; None: not declared, so anything written may be."""
    dropped: tuple[tuple[int, int], ...] = ()
    """Addresses whose writes a pass removed because nothing reads them."""
    splits: tuple[int, ...] = ()
    """Nodes before which a new submission begins."""
    reports: tuple[Report, ...] = ()
    """One per pass that was run over it: what the pass did, and why."""
    moved_from: tuple[tuple[int, int, int], ...] = ()
    """If `to` made it: for each block, first address and end in the original graph, first address in this one."""
    label: str | None = None
    _queue: Queue | None = None

    # --- contents --------------------------------------------------------------------------------------------

    if not TYPE_CHECKING:  # a type checker reports unknown attributes by itself

        def __getattr__(self, name: str) -> NoReturn:
            hint = "; graph.instantiate() returns an object that has it" if name == "replay" else ""
            raise UnknownAttribute(f"Graph has no attribute {name!r}{hint}", name=name, obj=self)

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[CapturedNode]:
        return iter(self.nodes)

    def __getitem__(self, index: int) -> CapturedNode:
        return self.nodes[index]

    @property
    def nodes(self) -> tuple[CapturedNode, ...]:
        """The commands, each with its source line and origin."""
        return self.command_list.nodes

    @property
    def commands(self) -> tuple[Command, ...]:
        """The commands of the nodes."""
        return self.command_list.commands

    @property
    def ordering(self) -> Ordering:
        """What makes one command wait for another."""
        return self.command_list.ordering

    @property
    def params(self) -> Mapping[str, Param]:
        """The parameters whose values every replay passes."""
        return self.command_list.params

    @property
    def dispatches(self) -> int:
        """How many of the nodes are dispatches."""
        return self.command_list.dispatches

    @property
    def edges(self) -> np.ndarray:
        """Pairs (before, after) of nodes: `after` must wait for `before`, because of memory or a barrier."""
        return self.command_list.hazards.edges

    @property
    def queue(self) -> Queue:
        """The queue of the device it is on."""
        if self._queue is None:
            raise GraphError("this graph is on no device; graph.to(device) moves it to one")
        return self._queue

    @property
    def on_device(self) -> bool:
        """Whether the graph is on a device; one loaded from a file is not."""
        return self._queue is not None

    def reasons(self, before: int, after: int) -> list[Reason]:
        """Why node `after` must wait for node `before`; empty when it need not, or waits only because of a fence."""
        first, second = self.nodes[before].accesses, self.nodes[after].accesses
        if first is None or second is None:
            return []
        return [
            Reason(before, after, conflict.kind, *self.place_of(conflict.begin, conflict.end))
            for conflict in hazards.conflicts(before, first, after, second)
        ]

    def place_of(self, begin: int, end: int) -> tuple[str, int, int]:
        """Addresses for people: the buffer's name or "memory N", and first byte and end within it."""
        named = self._named_ranges.holding(begin, end)
        if named is not None:
            return named.name, begin - named.begin, end - named.begin
        memory = self.memory_at(begin, end)
        if memory is not None:
            return f"memory {memory.number}", begin - memory.address, end - memory.address
        return "memory of no buffer", begin, end

    def memory_at(self, begin: int, end: int) -> GraphMemory | None:
        """The memory that holds these addresses; None when none holds all of them."""
        return self._memory_ranges.holding(begin, end)

    @cached_property
    def _named_ranges(self) -> RangeIndex[NamedRange]:
        return RangeIndex((named.begin, named.end, named) for named in self.names.values())

    @cached_property
    def _memory_ranges(self) -> RangeIndex[GraphMemory]:
        return RangeIndex((memory.address, memory.address + memory.nbytes, memory) for memory in self.memories.values())

    # --- names and outputs -------------------------------------------------------------------------------------

    def named(self, **buffers: Buffer) -> Graph:
        """The same graph with names for buffers; `replay` can bind other buffers by these names."""
        names = dict(self.names)
        for name, buffer in buffers.items():
            check_name(name, "named")
            if name in names or name in self.params:
                raise GraphError(f"{name!r} is already the name of another buffer or parameter of this graph")
            begin, end, number = self._range_of(buffer, f"named({name}=…)")
            names[name] = NamedRange(name, number, begin, end, buffer.dtype, buffer.shape)
        check_names(self.nodes, names)
        return replace(self, names=names)

    def buffer(self, name: str) -> Buffer:
        """The buffer with this name, to be read or written between replays."""
        named = self.names.get(name)
        if named is None:
            raise GraphError(f"no buffer is named {name!r} in this graph; names: {', '.join(self.names) or 'none'}")
        memory = self.memories[named.memory]
        if memory.allocation is None:
            raise GraphError("this graph is on no device and has no buffers; graph.to(device) moves it to one")
        return Buffer(
            self.queue, Lease(memory.allocation), named.begin - memory.address, named.shape, named.dtype, True
        )

    def with_outputs(self, *buffers: Buffer) -> Graph:
        """The same graph, with these buffers as its only outputs: nothing else that it writes is read after a replay.

        Without declared outputs everything the graph writes counts as one, and little can be fused.
        """
        ranges = [self._range_of(buffer, "with_outputs") for buffer in buffers]
        return replace(self, outputs=tuple((begin, end) for begin, end, _ in ranges))

    def _range_of(self, buffer: Any, what: str) -> tuple[int, int, int]:
        if type(buffer) is not Buffer:
            raise ArgumentError(f"{what}: expected a Buffer, got {buffer!r}")
        backing = buffer._allocation().backing
        if buffer._queue is not self._queue or backing.number not in self.memories:
            raise GraphError(f"{what}: the graph does not use {buffer!r}")
        begin = backing.address + buffer.byte_offset
        end = begin + buffer.nbytes
        if any(overlap((begin, end), span) for span in self.dropped):
            raise GraphError(f"{what}: a pass has removed the writes to {buffer!r}; call this before optimise()")
        return begin, end, backing.number

    def with_nodes(
        self,
        nodes: Iterable[CapturedNode],
        *,
        ordering: Ordering | None = None,
        params: Mapping[str, Param] | None = None,
        **changes: Any,
    ) -> Graph:
        """The same graph with other nodes, for passes; pass `memories` too if the nodes use new memory."""
        listed = tuple(nodes)
        if self._queue is not None:
            lower = self._queue.backend.lower
            known = {id(node.command): node.lowered for node in self.nodes}
            listed = tuple(node._replace(lowered=known.get(id(node.command)) or lower(node.command)) for node in listed)
        commands = CommandList(
            listed,
            self.ordering if ordering is None else ordering,
            self.params if params is None else params,
        )
        return replace(self, command_list=commands, **changes)

    # --- running ---------------------------------------------------------------------------------------------------

    def to(self, device: GraphDevice) -> Graph:
        """A copy of the graph on a device: memory allocated and filled there, kernels compiled, commands checked."""
        from ..encode.reencode import moved

        return moved(self, device)

    def instantiate(self, device: GraphDevice | None = None) -> Replayable:
        """Make the graph ready to run.

        A graph from a file needs a device, and is compiled for it here. If `device` is not the graph's own, a copy made
        by `to` runs there.
        """
        from .replay import Replayable

        return Replayable(self if device is None or device._queue is self._queue else self.to(device))

    def optimise(self, passes: Sequence[Pass] | None = None) -> Graph:
        """The graph after these passes; its `reports` say what each pass did and why.

        By default the passes that run no kernel: fuse, reorder, and split where that helps the device.
        """
        from ..passes import optimise

        return optimise(self, passes)

    def audit(self, **options: Any) -> Audit:
        """Find missing and redundant barriers, and explain the inferred ones; see `ostinato.audit`."""
        from ..audit import audit

        return audit(self, **options)

    # --- files and text ------------------------------------------------------------------------------------------

    def save(self, path: str | Path, contents: bool = False) -> None:
        """Write the graph to one file, with its kernels' sources and, if `contents`, the contents of its buffers."""
        from .file import save

        save(self, path, contents)

    def to_dot(self) -> str:
        """The graph in Graphviz's DOT language."""
        from .drawing import to_dot

        return to_dot(self)

    def to_svg(self) -> str:
        """A picture of the graph: commands below those that they wait for, by labels where there are many."""
        from .picture import to_svg

        return to_svg(self)

    def __str__(self) -> str:
        from .drawing import to_text

        return to_text(self)

    def _repr_html_(self) -> str:
        from .picture import as_html

        return as_html(self)

    def __repr__(self) -> str:
        where = f"on {self._queue.name!r}" if self._queue is not None else "on no device"
        name = f" {self.label!r}" if self.label else ""
        return f"<Graph{name} of {len(self.nodes)} nodes, {len(self.memories)} buffers, {where}>"

    __reduce_ex__ = refuse_copy


def captured(queue: Queue, commands: CommandList, allocations: Iterable[Allocation], label: str | None) -> Graph:
    """The graph of the commands that an encoder recorded."""
    memories = {}
    for allocation in dict.fromkeys(allocations):
        backing = allocation.backing
        memories[backing.number] = GraphMemory(backing.number, backing.address, backing.nbytes, allocation)
    return Graph(commands, memories, {}, label=label, _queue=queue)


def check_names(nodes: Iterable[CapturedNode], names: Mapping[str, NamedRange]) -> None:
    """Raise if named ranges overlap, or a binding is partly inside a named range and partly outside."""
    ranges = sorted(names.values(), key=lambda named: named.begin)
    for named, other in pairwise(ranges):
        if other.begin < named.end:
            raise GraphError(f"the buffers named {named.name!r} and {other.name!r} overlap")
    begins = [named.begin for named in ranges]
    for index, node in enumerate(nodes):
        spans = [(binding.address, binding.address + binding.nbytes) for binding in node.buffers]
        spans += [(access.begin, access.end) for access in node.accesses or ()]
        for begin, end in spans:
            # The ranges are disjoint and sorted: only the last that begins before the span's end can hold all of it.
            near = ranges[bisect_left(begins, end) - 1] if ranges and end > begin else None
            if near and begin < near.end and near.begin < end and not (near.begin <= begin and end <= near.end):
                raise GraphError(
                    f"node {index}, {node}: it also uses bytes outside the buffer named {near.name!r}, so that buffer"
                    " cannot be replaced by itself; name all of the bytes that the node uses"
                )
