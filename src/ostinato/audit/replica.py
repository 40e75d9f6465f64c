"""A private copy of a graph's memory and commands, for an audit to run.

Every block of memory that the graph uses is placed between guards. There are two copies of it: the *live* copy, which
commands use, and the *shadow*, which holds the contents from before the command under test. What nobody has written
before that command is known beside them, for blocks of which something is unwritten.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..backends.protocol import Status
from ..base.ranges import Range
from ..errors import GraphError
from ..graph.graph import Graph
from ..graph.memory import memory_contents
from ..ir.commands import (
    Access,
    BufferBinding,
    Command,
    CompiledKernel,
    Copy,
    Dispatch,
    Fill,
    InlineBinding,
    ParamBinding,
    bound,
)
from ..ir.costs import settled
from ..ir.hazards import accesses_of
from .differences import merged
from .guards import Arena, Room, bytes_at
from .runner import Runner, SlowCommand, TookTooLong
from .unwritten import Fresh

_ALIGNMENT = 128


class Replica:
    """The memory of a graph between guards, and its commands on that memory."""

    def __init__(self, graph: Graph, runner: Runner, fresh: Fresh) -> None:
        """`fresh` is what nobody has written of the graph's memory; its arrays change as commands are taken."""
        self.graph = graph
        self._spans = merged((memory.address, memory.address + memory.nbytes) for memory in graph.memories.values())
        self._begins = [begin for begin, _ in self._spans]
        rooms = [Room(end - begin, _ALIGNMENT, begin % _ALIGNMENT) for begin, end in self._spans]
        self.arena = Arena(rooms, at_end=True)
        self._shadow = [np.zeros(end - begin, np.uint8) for begin, end in self._spans]
        for memory in graph.memories.values():
            contents = memory_contents(memory, 0, memory.nbytes)
            if contents:
                block, offset = self._find(memory.address)
                self._shadow[block][offset : offset + memory.nbytes] = np.frombuffer(contents, np.uint8)
        for block, shadow in enumerate(self._shadow):
            self.arena.block(block)[:] = shadow
        self._unwritten = {
            self._find(memory.address)[0]: fresh[number]
            for number, memory in graph.memories.items()
            if number in fresh and (memory.address, memory.address + memory.nbytes) in self._spans
        }
        commands = (
            rebased(node.command, self.moved_range, runner.kernel(node.command))
            if isinstance(node.command, Dispatch)
            else rebased(node.command, self.moved_range)
            for node in graph.nodes
        )
        self.command_list = runner.listed(commands, graph.ordering)

    @property
    def commands(self) -> tuple[Command, ...]:
        """The commands, on the live copy."""
        return self.command_list.commands

    def run(self, runner: Runner, index: int, limit_s: float) -> Status:
        """Run one command on what the live copy holds."""
        return runner.run(self.command_list.part(index, index + 1), limit_s)

    def run_in_turn(self, runner: Runner, index: int, limit_s: float) -> Status:
        """Run one command after those before it have run; raises `SlowCommand` if it does not end."""
        try:
            return self.run(runner, index, limit_s)
        except TookTooLong as reason:
            raise SlowCommand(str(reason), index) from None

    # Addresses below are those of the live copy.

    def moved(self, address: int) -> int:
        """The live address of an address of the graph."""
        block, offset = self._find(address)
        return self.arena.addresses[block] + offset

    def moved_range(self, begin: int, nbytes: int) -> int:
        """The live address of the start of a range. An empty range gets an address that faults on any access."""
        return self.moved(begin) if nbytes else self.arena.nowhere

    def original(self, address: int) -> int:
        """The address of the graph for a live address."""
        block = self._block_of(address)
        return self._spans[block][0] + address - self.arena.addresses[block]

    def place_of(self, span: Range) -> str:
        """A live range as text: the buffer's name and the bytes in it."""
        begin = self.original(span[0])
        name, first, end = self.graph.place_of(begin, begin + span[1] - span[0])
        return f"{name}[{first}:{end}]"

    def blocks(self) -> list[Range]:
        """The ranges of all blocks."""
        return [
            (begin, begin + room.nbytes) for begin, room in zip(self.arena.addresses, self.arena.rooms, strict=True)
        ]

    def around(self, span: Range, nbytes: int) -> Range:
        """A range widened by a number of bytes on either side, within its block."""
        block = self._block_of(span[0])
        begin = self.arena.addresses[block]
        return max(begin, span[0] - nbytes), min(begin + self.arena.rooms[block].nbytes, span[1] + nbytes)

    def live(self, span: Range) -> np.ndarray:
        """The bytes of the live copy."""
        return bytes_at(span[0], span[1] - span[0])

    def shadow(self, span: Range) -> np.ndarray:
        """The bytes of the shadow."""
        block = self._block_of(span[0])
        offset = span[0] - self.arena.addresses[block]
        return self._shadow[block][offset : offset + span[1] - span[0]]

    def unwritten(self, span: Range) -> np.ndarray | None:
        """Which bytes nobody has written before the command under test; None if all of the block is written."""
        block = self._block_of(span[0])
        if block not in self._unwritten:
            return None
        offset = span[0] - self.arena.addresses[block]
        return self._unwritten[block][offset : offset + span[1] - span[0]]

    def take_as_written(self, index: int) -> None:
        """Count all that a command may write as written; a copy is as unwritten as what it copies."""
        command = self.commands[index]
        declared = accesses_of(command)
        spans = self.blocks() if declared is None else [(each.begin, each.end) for each in declared if each.write]
        spans += [(each.address, each.address + each.nbytes) for each in bound(command) if each.writes]
        copied = None
        if isinstance(command, Copy):
            source = command.source.address
            copied = self.unwritten((source, source + command.source.nbytes))
        for span in spans:
            unwritten = self.unwritten(span)
            if unwritten is not None:
                unwritten[:] = False if copied is None else copied.copy()

    def restore(self, spans: list[Range]) -> None:
        """Copy the shadow to the live copy."""
        for span in spans:
            self.live(span)[:] = self.shadow(span)

    def accept(self, spans: list[Range]) -> None:
        """Copy the live copy to the shadow, for the next command to start from."""
        for span in spans:
            self.shadow(span)[:] = self.live(span)

    def close(self) -> None:
        """Free the memory."""
        self.arena.close()

    def _find(self, address: int) -> tuple[int, int]:
        block = bisect_right(self._begins, address) - 1
        if block < 0 or address > self._spans[block][1]:
            raise GraphError(f"address {address:#x} is in no memory of the graph")
        return block, address - self._spans[block][0]

    def _block_of(self, address: int) -> int:
        return max(bisect_right(self.arena.addresses, address) - 1, 0)


Move = Callable[[int, int], int]
"""Maps the start and the size of a range to its new start."""


def rebased(command: Command, move: Move, kernel: CompiledKernel | None = None) -> Command:
    """The same command with its memory at other addresses; `kernel` replaces the kernel of a dispatch."""

    def moved(binding: BufferBinding) -> BufferBinding:
        return replace(binding, address=move(binding.address, binding.nbytes))

    if isinstance(command, Dispatch):
        bindings = tuple(
            moved(binding) if isinstance(binding, BufferBinding) else binding for binding in command.bindings
        )
        accesses = None
        if command.accesses is not None:
            accesses = tuple(_moved_access(access, move) for access in command.accesses)
        return replace(command, kernel=kernel or command.kernel, bindings=bindings, accesses=accesses)
    if isinstance(command, Copy):
        return replace(command, source=moved(command.source), target=moved(command.target))
    if isinstance(command, Fill):
        return replace(command, target=moved(command.target))
    return command


def _moved_access(access: Access, move: Move) -> Access:
    nbytes = access.end - access.begin
    begin = move(access.begin, nbytes)
    return Access(begin, begin + nbytes, access.write)


def with_values(graph: Graph, values: Mapping[str, Any]) -> Graph:
    """The graph with its parameters replaced by values."""
    missing = [str(param) for name, param in graph.params.items() if name not in values]
    if missing:
        raise GraphError(f"audit: the graph needs values for {', '.join(missing)}; pass params={{name: value}}")
    unknown = [name for name in values if name not in graph.params]
    if unknown:
        raise GraphError(f"audit: the graph has no parameter {', '.join(map(repr, unknown))}")
    encoded = {name: param.encode(values[name]) for name, param in graph.params.items()}

    def filled(command: Command) -> Command:
        if not isinstance(command, Dispatch):
            return command
        bindings = tuple(
            InlineBinding(binding.index, encoded[binding.name]) if isinstance(binding, ParamBinding) else binding
            for binding in command.bindings
        )
        numbers = {
            binding.name: values[binding.name] for binding in command.bindings if isinstance(binding, ParamBinding)
        }
        amounts = (settled(amount, numbers) for amount in (command.bytes_read, command.bytes_written, command.flops))
        bytes_read, bytes_written, flops = amounts
        return replace(command, bindings=bindings, bytes_read=bytes_read, bytes_written=bytes_written, flops=flops)

    nodes = [node._replace(command=filled(node.command)) for node in graph.nodes]
    return graph.with_nodes(nodes, params={}) if graph.params else graph
