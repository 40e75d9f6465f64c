"""Captured work as data: nodes, the memory they use, and what may change from replay to replay.

A `Graph` is immutable. Capturing makes one, passes make new ones from it, `instantiate` makes it ready to run. It
keeps its buffers alive. Memory is named by number and address as in the commands; a graph that was loaded from a file
is on no device, and its addresses are made up so that hazards, printing and auditing work on it all the same.

Which nodes must wait for which follows from the commands (`hazards.py`) and is found when first asked for.
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
    """What a graph needs of the device that it is moved to."""

    def empty(self, shape: int, dtype: Any) -> Buffer: ...

    def command_encoder(self, label: str | None = None, barriers: str = "auto") -> CommandEncoder: ...


@dataclass(frozen=True, eq=False)
class Graph:
    """Captured work. Made by `Device.capture`, `CommandEncoder.take_capture`, `load_graph`, or a pass."""

    command_list: CommandList
    """The commands, what orders them, and the parameters that replays give."""
    memories: Mapping[int, GraphMemory]
    """By number."""
    names: Mapping[str, NamedRange]
    """The buffers that a replay can bind anew."""
    outputs: tuple[tuple[int, int], ...] | None = None
    """Addresses that are read after a replay; None: it was not said, so all that is written may be."""
    dropped: tuple[tuple[int, int], ...] = ()
    """Addresses that a pass no longer writes, having proved that nothing reads them."""
    splits: tuple[int, ...] = ()
    """Nodes before which a new submission begins."""
    reports: tuple[Report, ...] = ()
    """What the passes that made it did, and why."""
    moved_from: tuple[tuple[int, int, int], ...] = ()
    """Where its memory was in the graph that `to` made it from: first address there, end there, first address here."""
    label: str | None = None
    _queue: Queue | None = None

    # --- what is in it ---------------------------------------------------------------------------------------

    if not TYPE_CHECKING:  # type checkers know that there is no such thing

        def __getattr__(self, name: str) -> NoReturn:
            hint = "; graph.instantiate() makes it ready, and what that returns is replayed" if name == "replay" else ""
            raise UnknownAttribute(f"Graph has no attribute {name!r}{hint}", name=name, obj=self)

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[CapturedNode]:
        return iter(self.nodes)

    def __getitem__(self, index: int) -> CapturedNode:
        return self.nodes[index]

    @property
    def nodes(self) -> tuple[CapturedNode, ...]:
        """The commands, with where each came from."""
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
        """The values that every replay gives."""
        return self.command_list.params

    @property
    def dispatches(self) -> int:
        """How many of the nodes are dispatches."""
        return self.command_list.dispatches

    @property
    def edges(self) -> np.ndarray:
        """Which nodes must wait for which, by the memory they use and the barriers: pairs (before, after)."""
        return self.command_list.hazards.edges

    @property
    def queue(self) -> Queue:
        """The queue of the device it is on."""
        if self._queue is None:
            raise GraphError("this graph is on no device; graph.to(device) puts it on one")
        return self._queue

    @property
    def on_device(self) -> bool:
        """Whether it is on a device, or only data."""
        return self._queue is not None

    def reasons(self, before: int, after: int) -> list[Reason]:
        """Why node `after` must wait for node `before`; nothing when it need not, or only because of a fence."""
        first, second = self.nodes[before].accesses, self.nodes[after].accesses
        if first is None or second is None:
            return []
        return [
            Reason(before, after, one.kind, *self.place_of(one.begin, one.end))
            for one in hazards.conflicts(before, first, after, second)
        ]

    def place_of(self, begin: int, end: int) -> tuple[str, int, int]:
        """Addresses as a person knows them: the buffer's name, or its number, and bytes counted from its start."""
        one = self._named_ranges.holding(begin, end)
        if one is not None:
            return one.name, begin - one.begin, end - one.begin
        memory = self.memory_at(begin, end)
        if memory is not None:
            return f"memory {memory.number}", begin - memory.address, end - memory.address
        return "memory of no buffer", begin, end

    def memory_at(self, begin: int, end: int) -> GraphMemory | None:
        """The memory that holds these addresses."""
        return self._memory_ranges.holding(begin, end)

    @cached_property
    def _named_ranges(self) -> RangeIndex[NamedRange]:
        return RangeIndex((one.begin, one.end, one) for one in self.names.values())

    @cached_property
    def _memory_ranges(self) -> RangeIndex[GraphMemory]:
        return RangeIndex((one.address, one.address + one.nbytes, one) for one in self.memories.values())

    # --- saying more about it ----------------------------------------------------------------------------------

    def named(self, **buffers: Buffer) -> Graph:
        """The same graph with names for buffers, by which `replay` can bind others in their place."""
        names = dict(self.names)
        for name, buffer in buffers.items():
            check_name(name, "named")
            if name in names or name in self.params:
                raise GraphError(f"{name!r} is the name of something else in this graph already")
            begin, end, number = self._range_of(buffer, f"named({name}=…)")
            names[name] = NamedRange(name, number, begin, end, buffer.dtype, buffer.shape)
        check_names(self.nodes, names)
        return replace(self, names=names)

    def buffer(self, name: str) -> Buffer:
        """The buffer that a name stands for, to be read or written between replays."""
        one = self.names.get(name)
        if one is None:
            raise GraphError(f"no buffer is named {name!r} in this graph; named are {', '.join(self.names) or 'none'}")
        memory = self.memories[one.memory]
        if memory.allocation is None:
            raise GraphError("this graph is on no device, and has no buffers; graph.to(device) puts it on one")
        return Buffer(self.queue, Lease(memory.allocation), one.begin - memory.address, one.shape, one.dtype, True)

    def with_outputs(self, *buffers: Buffer) -> Graph:
        """The same graph, with the promise that after a replay nothing else of what it writes is read.

        Without it every byte that is still there at the end counts as an output, and little can be fused.
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
        if any(overlap((begin, end), one) for one in self.dropped):
            raise GraphError(f"{what}: a pass has done away with the writes to {buffer!r}; say it before optimise()")
        return begin, end, backing.number

    def with_nodes(
        self,
        nodes: Iterable[CapturedNode],
        *,
        ordering: Ordering | None = None,
        params: Mapping[str, Param] | None = None,
        **changes: Any,
    ) -> Graph:
        """The same graph with other nodes, for passes; memory that they add must be given too."""
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

    # --- running it ----------------------------------------------------------------------------------------------

    def to(self, device: GraphDevice) -> Graph:
        """The same graph on a device: its memory allocated there and filled, its kernels compiled, all checked."""
        from ..encode.reencode import moved

        return moved(self, device)

    def instantiate(self, device: GraphDevice | None = None) -> Replayable:
        """Make it ready to run.

        A graph from a file needs a device, and is compiled for it here and not before. On another device than its own
        it runs in memory of its own there, as `to` makes it.
        """
        from .replay import Replayable

        return Replayable(self if device is None or device._queue is self._queue else self.to(device))

    def optimise(self, passes: Sequence[Pass] | None = None) -> Graph:
        """Run passes over it, one after the other; `reports` of the result says what each did and why.

        Left out, they are those that run nothing: fuse, reorder, and split where the device gains by it.
        """
        from ..passes import optimise

        return optimise(self, passes)

    def audit(self, **options: Any) -> Audit:
        """Look for missing and redundant barriers, and say why the inferred ones are there; see `ostinato.audit`."""
        from ..audit import audit

        return audit(self, **options)

    # --- on paper ------------------------------------------------------------------------------------------------

    def save(self, path: str | Path, contents: bool = False) -> None:
        """Write it to one file with its kernels' sources and, on request, what is in its buffers now."""
        from .file import save

        save(self, path, contents)

    def to_dot(self) -> str:
        """The graph in the language of Graphviz."""
        from .drawing import to_dot

        return to_dot(self)

    def __str__(self) -> str:
        from .drawing import to_text

        return to_text(self)

    def __repr__(self) -> str:
        where = f"on {self._queue.name!r}" if self._queue is not None else "on no device"
        name = f" {self.label!r}" if self.label else ""
        return f"<Graph{name} of {len(self.nodes)} nodes, {len(self.memories)} buffers, {where}>"

    __reduce_ex__ = refuse_copy


def captured(queue: Queue, commands: CommandList, allocations: Iterable[Allocation], label: str | None) -> Graph:
    """A graph of what an encoder recorded."""
    memories = {}
    for allocation in dict.fromkeys(allocations):
        backing = allocation.backing
        memories[backing.number] = GraphMemory(backing.number, backing.address, backing.nbytes, allocation)
    return Graph(commands, memories, {}, label=label, _queue=queue)


def check_names(nodes: Iterable[CapturedNode], names: Mapping[str, NamedRange]) -> None:
    """Refuse names whose bytes overlap, and bindings that are partly inside a named range and partly outside."""
    ranges = sorted(names.values(), key=lambda one: one.begin)
    for one, other in pairwise(ranges):
        if other.begin < one.end:
            raise GraphError(f"the buffers named {one.name!r} and {other.name!r} overlap")
    begins = [one.begin for one in ranges]
    for index, node in enumerate(nodes):
        spans = [(one.address, one.address + one.nbytes) for one in node.buffers]
        spans += [(one.begin, one.end) for one in node.accesses or ()]
        for begin, end in spans:
            # Disjoint and in order: only the last that begins before the span's end can hold all of it.
            near = ranges[bisect_left(begins, end) - 1] if ranges and end > begin else None
            if near and begin < near.end and near.begin < end and not (near.begin <= begin and end <= near.end):
                raise GraphError(
                    f"node {index}, {node}: it uses bytes around the buffer named {near.name!r} too, so that buffer"
                    " cannot be bound anew by itself; name the whole of what is used"
                )
