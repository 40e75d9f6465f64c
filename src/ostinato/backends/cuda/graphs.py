"""A list of commands as a native graph, with exactly the edges that order it.

A graph carries its own beginning and end, so that starting it is one call of the driver. Its first node takes the
replay's number and values out of a slot in host memory (`rings.py`) and puts the values into an arena in device memory;
kernels that take them are given their address there. Its last node leaves the times of the replay in the slot and says
that it is done.

An edge is there only where no other path leads the same way. Where a kernel then has one predecessor, the edge is a
programmatic one: the kernel is launched while its predecessor still runs, and waits inside. So each waits for all that
was to be done before it, as the one that it waits for has waited too. Kernels of very many blocks gain nothing from
that, and every block would pay for the wait.

The graph that takes times is a second one, of the kernels' instrumented variants, made when it is first asked for. Its
last node also makes one pair of times of each command and writes them to where the slot says. Both have the same arena
and ring: what is launched on one stream runs in turn.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.locks import ForkLock
from ...ir.command_list import CommandList
from .. import records
from ..protocol import Memory
from . import launches
from .api import call
from .kernels import Functions
from .launches import Launch
from .rings import ARENA_BYTES, Ring
from .sampling import RESOLVE_THREADS, cleared, resolve_blocks, table_of

if TYPE_CHECKING:
    from .driver import CudaBackend

_SMALL = 16
"""Blocks a multiprocessor up to which a kernel is launched early."""
_JOINS = 4
"""A barrier with more commands before it than this is a node of its own; with fewer its successors name them all."""
_STEPS = 64
"""How many nodes are looked at, at most, to find out whether an edge is implied by others."""
_ROOTS = 32
"""Nodes that may be launched while a graph's first one still reads: what they gain is shared, what they hold is not."""


class _Node:
    """A launch, or (without one) a point where many edges meet."""

    __slots__ = ("blocks", "dependent", "index", "launch", "params", "predecessors")

    def __init__(self, index: int, predecessors: list[int], launch: Launch | None, params: bytes) -> None:
        self.index = index
        self.predecessors = predecessors
        self.launch = launch
        self.params = params
        self.blocks = 0 if launch is None else launch.blocks
        self.dependent = False


class NativeGraph:
    """What `Backend.instantiate` makes."""

    def __init__(self, backend: CudaBackend, commands: CommandList) -> None:
        self.backend = backend
        self._context = backend.context
        self._cu = backend.context.cu
        self._lowered = commands.lowered
        self._lock = ForkLock()
        self.count = len(commands)
        self.value_bytes = commands.value_bytes
        self.arena: Memory = cleared(backend.pool, ARENA_BYTES + records.rounded(self.value_bytes, 16))
        self.ring = Ring(backend.stock, self.value_bytes)
        self.is_aligned = True
        """Whether host and device have counted the same replays; False while a launch that failed is not settled."""
        self._nodes = _nodes(commands.lowered, commands.order.edges)
        launched = {one.index: one for one in self._nodes}
        for use in commands.param_uses:
            params, value = bytearray(launched[use.node].params), self.arena.address + ARENA_BYTES + use.start
            struct.pack_into("=Q", params, launches.HEAD.size + 8 * use.position, value)
            launched[use.node].params = bytes(params)
        self._is_inner = {other for one in self._nodes for other in one.predecessors}
        self._ends_early = False
        if backend.dependent_launch:
            self._link(_SMALL * backend.capabilities.workers)
        self.executable = self._build(sampled=False)
        self._sampled: int = 0
        self._pairs: tuple[Memory, Memory, np.ndarray] | None = None  # block, table, and where each command's begin

    def _link(self, most_blocks: int) -> None:
        """Mark the nodes that are launched while their one predecessor still runs: roots have the first node."""
        small = [one.launch is not None and one.blocks <= most_blocks for one in self._nodes]
        few_roots = sum(not one.predecessors for one in self._nodes) <= _ROOTS
        for one, is_small in zip(self._nodes, small, strict=True):
            one.dependent = is_small and len(one.predecessors) < 2 and all(small[at] for at in one.predecessors)
            one.dependent &= few_roots or bool(one.predecessors)
        leaves = self._leaves()
        self._ends_early = len(leaves) < 2 and all(small[at] for at in leaves)

    def _leaves(self) -> list[int]:
        """The nodes that no other waits for."""
        return [at for at in range(len(self._nodes)) if at not in self._is_inner]

    @property
    def is_sampled(self) -> bool:
        """Whether the graph that takes times is there."""
        return bool(self._sampled)

    def sampled(self) -> int:
        """The graph that takes times, made if need be."""
        with self._lock:
            if not self._sampled:
                self.backend.build_instrumented(one.launch.entry for one in self._nodes if one.launch is not None)
                starts, pool = launches.sample_starts(self._lowered), self.backend.pool
                self._pairs = (cleared(pool, 16 * max(int(starts[-1]), 1)), table_of(pool, starts), starts)
                self._sampled = self._build(sampled=True)
            return self._sampled

    def _build(self, sampled: bool) -> int:
        cu = self._cu
        with self._context.current():
            graph = call(cu.cuGraphCreate, 0)
            try:
                added = self._add_nodes(graph, sampled)
                self._add_end(graph, added, sampled)
                executable = call(cu.cuGraphInstantiate, graph, 0)
                call(cu.cuGraphUpload, executable, self.backend.pool.stream)
                call(cu.cuStreamSynchronize, self.backend.pool.stream)
            finally:
                cu.cuGraphDestroy(graph)
        return int(executable)

    def _add_nodes(self, graph: Any, sampled: bool) -> list[Any]:
        """The launches, behind the node that begins a replay, which is the last of what this gives."""
        cu = self._cu
        programmatic = self._programmatic()
        releases = {one.predecessors[0] for one in self._nodes if one.dependent and one.predecessors}
        if self._ends_early:
            releases.update(self._leaves())
        begin = self._add_begin(graph)
        kernel = cu.CUgraphNodeParams()
        kernel.type = cu.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL
        kernel.kernel.gridDimY = kernel.kernel.gridDimZ = kernel.kernel.blockDimY = kernel.kernel.blockDimZ = 1
        added: list[Any] = []
        for at, one in enumerate(self._nodes):
            before = [added[other] for other in one.predecessors] or [begin]
            if one.launch is None:
                added.append(call(cu.cuGraphAddEmptyNode, graph, before, len(before)))
                continue
            params = ctypes.create_string_buffer(one.params, len(one.params))
            flags = (launches.WAITS if one.dependent else 0) | (launches.RELEASES if at in releases else 0)
            launches.add_flags(params, flags)
            functions = Functions.from_address(one.launch.entry)
            if sampled and self._pairs is not None:
                block, _, starts = self._pairs
                first, end = int(starts[one.index]), int(starts[one.index + 1])
                launches.aim(params, one.launch, block.address + 16 * first, end - first, flags)
            pointers = launches.param_pointers(params)
            kernel.kernel.func = cu.CUfunction(functions.sampled if sampled else functions.plain)
            kernel.kernel.gridDimX, kernel.kernel.blockDimX = one.launch.blocks, one.launch.threads
            kernel.kernel.sharedMemBytes = one.launch.shared_bytes
            kernel.kernel.kernelParams = ctypes.addressof(pointers)
            data = [programmatic] if one.dependent else None
            added.append(call(cu.cuGraphAddNode, graph, before, data, len(before), kernel))
        return [*added, begin]

    def _add_begin(self, graph: Any) -> Any:
        ring, words = self.ring.fields, -(-self.value_bytes // 16)
        early = any(one.dependent and not one.predecessors for one in self._nodes)
        early |= self._ends_early and not self._nodes
        values = (self.arena.address, self.ring.device, ring.mask, ring.stride, words, early)
        threads = min(max(records.rounded(words, 32), 32), 1024)
        return self._add_own(graph, self.backend.support["ost_begin"], 1, threads, values, [], False)

    def _add_end(self, graph: Any, added: list[Any], sampled: bool) -> None:
        """The node that ends a replay, and reads the times off if there are any, after everything else."""
        support, done = self.backend.support, self.backend.done_address
        *nodes, begin = added
        last = [nodes[at] for at in self._leaves()] or [begin]
        early = self._ends_early
        if not sampled:
            self._add_own(graph, support["ost_end"], 1, 1, (self.arena.address, done, early), last, early)
            return
        assert self._pairs is not None
        block, table, _ = self._pairs
        values = (table.address, block.address, self.count, self.arena.address, done, early)
        blocks = resolve_blocks(self.count)
        self._add_own(graph, support["ost_resolve_end"], blocks, RESOLVE_THREADS, values, last, early)

    def _add_own(
        self,
        graph: Any,
        function: Any,
        blocks: int,
        threads: int,
        values: Sequence[int],
        before: list[Any],
        early: bool,
    ) -> Any:
        """One of the backend's own kernels; with `early` it is launched while the one before it still runs."""
        cu, count = self._cu, len(values)
        # Numbers of four bytes are read from the first half of eight.
        numbers = (ctypes.c_uint64 * count)(*values)
        pointers = (ctypes.c_void_p * count)(*(ctypes.addressof(numbers) + 8 * at for at in range(count)))
        kernel = cu.CUgraphNodeParams()
        kernel.type = cu.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL
        kernel.kernel.func = function
        kernel.kernel.gridDimX, kernel.kernel.blockDimX = blocks, threads
        kernel.kernel.gridDimY = kernel.kernel.gridDimZ = kernel.kernel.blockDimY = kernel.kernel.blockDimZ = 1
        kernel.kernel.kernelParams = ctypes.addressof(pointers)
        data = [self._programmatic()] if early else None
        return call(cu.cuGraphAddNode, graph, before, data, len(before), kernel)

    def _programmatic(self) -> Any:
        """The edge to a node that is launched early."""
        edge = self._cu.CUgraphEdgeData()
        edge.from_port = 1
        edge.type = self._cu.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
        return edge

    def realign(self) -> None:
        """After a launch that failed: have the device count on from where the host is, once nothing runs any more."""
        with self._context.current():
            call(self._cu.cuStreamSynchronize, self._cu.CUstream(self.backend.stream))
        self.ring.settle()
        self.backend.pool.write(self.arena.address, np.array([self.ring.fields.turn], np.uint32).view(np.uint8))
        self.is_aligned = True

    def __del__(self) -> None:
        # A replay that runs keeps the graph. Its last node says that it is done a moment before it has left; the driver
        # keeps what that needs.
        for executable in (getattr(self, "executable", 0), getattr(self, "_sampled", 0)):
            if executable and not self.backend.closed:
                # at the end of the interpreter, in a forked child, or with the context gone
                with suppress(Exception), self._context.current():
                    self._cu.cuGraphExecDestroy(self._cu.CUgraphExec(executable))
        if hasattr(self, "ring"):
            self.ring.release()


def _nodes(lowered: Sequence[bytes], edges: np.ndarray) -> list[_Node]:
    """The launches and what each waits for; barriers vanish, or become points where many edges meet."""
    before: list[list[int]] = [[] for _ in lowered]
    for first, second in edges.tolist():
        before[second].append(first)
    nodes: list[_Node] = []
    stands_for: list[list[int]] = []  # of each command: the nodes that have to be done before it counts as done
    for index, one in enumerate(lowered):
        predecessors = _reduced({node for other in before[index] for node in stands_for[other]}, nodes)
        launch = launches.launch_of(one)
        if launch is None and len(predecessors) <= _JOINS:
            stands_for.append(predecessors)
            continue
        params = b"" if launch is None else one[launch.params_at :]
        stands_for.append([len(nodes)])
        nodes.append(_Node(index, predecessors, launch, params))
    return nodes


def _reduced(predecessors: set[int], nodes: Sequence[_Node]) -> list[int]:
    """Those that are not before another of them anyway. What takes too long to find out stays: it does no harm."""
    if len(predecessors) > _STEPS:
        return sorted(predecessors)
    kept: list[int] = []
    for one in sorted(predecessors, reverse=True):
        if not _is_before(one, kept, nodes):
            kept.append(one)
    return kept[::-1]


def _is_before(one: int, others: Sequence[int], nodes: Sequence[_Node]) -> bool:
    """Whether a node is found among those before others, which come after it."""
    seen, waiting = set(others), list(others)
    for _ in range(_STEPS):
        if not waiting:
            return False
        for before in nodes[waiting.pop()].predecessors:
            if before == one:
                return True
            if before > one and before not in seen:
                seen.add(before)
                waiting.append(before)
    return False
