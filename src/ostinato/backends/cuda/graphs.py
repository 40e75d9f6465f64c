"""A list of commands as a native graph, with exactly the edges that order it.

A graph contains nodes for its own beginning and end, so that starting it is one call of the driver. Its first node
reads the replay's number and values from a slot in host memory (`rings.py`) and copies the values into an arena in
device memory, where kernels read them. Its last node writes the times of the replay to the slot and marks it as done.

Edges that are implied by others are left out. If a kernel then has one predecessor, its edge is a programmatic one: the
kernel is launched while its predecessor still runs, and waits for it when it begins. It thereby waits for everything
before it, because its predecessor has waited too. Kernels with very many blocks gain nothing from that, since every
block would pay for the wait.

A kernel that reads something early, which no command of the graph writes (`ir/early_reads.py`), waits in its body,
after these reads. The values of the replay are read early too, so kernels without predecessors let their successors
start only after they have waited for the first node.

Timing uses a second graph, of the kernels' instrumented variants, built on first use. Its last node also reduces the
times of each command to one pair and writes it to the address in the slot. Both graphs share arena and ring, because
work on one stream runs in order.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.locks import ForkLock
from ...ir.command_list import CommandList
from ...ir.early_reads import early_dispatches
from .. import records
from ..protocol import Memory
from . import launches
from .api import call
from .kernels import Functions
from .launches import Launch
from .logs import may_print, numbered
from .rings import ARENA_BYTES, Ring
from .sampling import RESOLVE_THREADS, cleared, resolve_blocks, table_of
from .updates import AddedNode, Nodes, Rows

if TYPE_CHECKING:
    from .driver import CudaBackend

_SMALL = 16
"""Blocks per multiprocessor up to which a kernel is launched early."""
_JOINS = 4
"""A barrier with more predecessors than this is a node of its own; else its successors have edges to all of them."""
_STEPS = 64
"""At most this many nodes are visited to find out whether an edge is implied by others."""
_ROOTS = 32
"""With more roots than this, none is launched while the graph's first node still runs: they would occupy the device."""


class _Node:
    """A launch, or an empty node that joins many edges."""

    __slots__ = ("blocks", "dependent", "index", "launch", "params", "predecessors", "waits_in_body")

    def __init__(self, index: int, predecessors: list[int], launch: Launch | None, params: bytes) -> None:
        self.index = index
        self.predecessors = predecessors
        self.launch = launch
        self.params = params
        self.blocks = 0 if launch is None else launch.blocks
        self.dependent = False
        self.waits_in_body = False


class NativeGraph:
    """The executable that `CudaBackend.instantiate` returns."""

    def __init__(self, backend: CudaBackend, commands: CommandList, movable: bool = False) -> None:
        self.backend = backend
        self._movable = movable
        self._last_sampled = False
        self._native_nodes: dict[bool, Nodes] = {}  # of a movable graph, by whether it is the instrumented one
        self._context = backend.context
        self._cu = backend.context.cu
        self.prints = may_print(commands)
        self._lowered = numbered(commands) if self.prints else commands.lowered
        self._lock = ForkLock()
        self.count = len(commands)
        self.value_bytes = commands.value_bytes
        self.arena: Memory = cleared(backend.pool, ARENA_BYTES + records.rounded(self.value_bytes, 16))
        self.ring = Ring(backend.stock, self.value_bytes)
        self._nodes = _nodes(self._lowered, commands.order.edges)
        launched = {node.index: node for node in self._nodes}
        for use in commands.param_uses:
            params, value = bytearray(launched[use.node].params), self.arena.address + ARENA_BYTES + use.start
            struct.pack_into("=Q", params, launches.HEAD.size + 8 * use.position, value)
            launched[use.node].params = bytes(params)
        self._is_inner = {other for node in self._nodes for other in node.predecessors}
        self._end_is_dependent = False
        if backend.dependent_launch:
            self._link(_SMALL * backend.capabilities.workers, early_dispatches(commands.commands))
        self.executable = self._build(sampled=False)
        self._sampled: int = 0
        self._pairs: tuple[Memory, Memory, np.ndarray] | None = None  # block, table, and where each command's begin

    @property
    def is_aligned(self) -> bool:
        """Whether host and device agree on the count of replays; False after a failed launch, until `realign`."""
        return not self.ring.fields.uneven

    def misalign(self) -> None:
        """Note that a launch has failed."""
        self.ring.fields.uneven = 1

    def _link(self, most_blocks: int, reads_early: Collection[int]) -> None:
        """Mark the nodes that are launched while their only predecessor (for roots, the first node) still runs.

        Those of the commands in `reads_early` wait where their kernels say, the others when they begin.
        """
        small = [node.launch is not None and node.blocks <= most_blocks for node in self._nodes]
        few_roots = sum(not node.predecessors for node in self._nodes) <= _ROOTS
        for node, is_small in zip(self._nodes, small, strict=True):
            node.dependent = is_small and len(node.predecessors) < 2 and all(small[at] for at in node.predecessors)
            node.dependent &= few_roots or bool(node.predecessors)
            node.waits_in_body = bool(node.predecessors) and node.index in reads_early
        leaves = self._leaves()
        self._end_is_dependent = len(leaves) < 2 and all(small[at] for at in leaves)

    def _leaves(self) -> list[int]:
        """The nodes that no other waits for."""
        return [at for at in range(len(self._nodes)) if at not in self._is_inner]

    @property
    def is_sampled(self) -> bool:
        """Whether the instrumented graph has been built."""
        return bool(self._sampled)

    def sampled(self) -> int:
        """The instrumented graph, built on first use."""
        with self._lock:
            if not self._sampled:
                self.backend.build_instrumented(node.launch.entry for node in self._nodes if node.launch is not None)
                starts, pool = launches.sample_starts(self._lowered), self.backend.pool
                self._pairs = (cleared(pool, 16 * max(int(starts[-1]), 1)), table_of(pool, starts), starts)
                self._sampled = self._build(sampled=True)
            return self._sampled

    def _build(self, sampled: bool) -> int:
        cu = self._cu
        with self._context.current():
            graph = call(cu.cuGraphCreate, 0)
            kept: list[AddedNode] = []
            try:
                added = self._add_nodes(graph, sampled, kept)
                self._add_end(graph, added, sampled)
                executable = call(cu.cuGraphInstantiate, graph, 0)
                call(cu.cuGraphUpload, executable, self.backend.pool.stream)
                call(cu.cuStreamSynchronize, self.backend.pool.stream)
                if self._movable:
                    self._native_nodes[sampled] = Nodes(graph, int(executable), kept, self.count)
            finally:
                if sampled not in self._native_nodes:
                    cu.cuGraphDestroy(graph)
        return int(executable)

    def move(self, nodes: np.ndarray, positions: np.ndarray, addresses: list[int] | np.ndarray) -> int:
        """Change addresses of arguments, for replays that start from now on; an error status of the driver, or 0.

        The graph of the kind that was not replayed last, instrumented or not, catches up when it is.
        """
        with self._lock:
            for sampled, native in self._native_nodes.items():
                native.late.append(native.change(nodes, positions, addresses))
                if sampled is self._last_sampled:
                    status = self._update(native)
                    if status:
                        return status
        return 0

    def catch_up(self, sampled: bool) -> int:
        """Tell the driver of all changes in the graph that is replayed next; an error status of the driver, or 0."""
        self._last_sampled = sampled
        native = self._native_nodes.get(sampled)
        if native is None or not native.late:
            return 0
        with self._lock:
            return self._update(native)

    def _update(self, native: Nodes) -> int:
        late = native.late
        rows = late[0] if len(late) == 1 else Rows.of(*(rows.numbers for rows in late))
        status = self.backend.launcher.update(native, rows)
        if not status:
            late.clear()
        return status

    def _add_nodes(self, graph: Any, sampled: bool, kept: list[AddedNode]) -> list[Any]:
        """Add the node that begins a replay and the launches after it; returns the launches, then the first node.

        `kept` gets the launches of a movable graph.
        """
        cu = self._cu
        programmatic = self._programmatic()
        releases = {node.predecessors[0] for node in self._nodes if node.dependent and node.predecessors}
        if self._end_is_dependent:
            releases.update(self._leaves())
        begin = self._add_begin(graph)
        kernel = cu.CUgraphNodeParams()
        kernel.type = cu.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL
        kernel.kernel.gridDimY = kernel.kernel.gridDimZ = kernel.kernel.blockDimY = kernel.kernel.blockDimZ = 1
        added: list[Any] = []
        for at, node in enumerate(self._nodes):
            before = [added[other] for other in node.predecessors] or [begin]
            if node.launch is None:
                added.append(call(cu.cuGraphAddEmptyNode, graph, before, len(before)))
                continue
            params = ctypes.create_string_buffer(node.params, len(node.params))
            if False in self._native_nodes:  # its addresses may have changed
                arguments = self._native_nodes[False].arguments(node.index, len(params))
                ctypes.memmove(ctypes.addressof(params) + launches.HEAD.size, arguments, len(arguments))
            waits = launches.WAITS_IN_BODY if node.waits_in_body else launches.WAITS
            # Behind the roots, kernels start when the values of the replay are there.
            release = launches.RELEASES if node.predecessors else launches.RELEASES_LATE
            flags = (waits if node.dependent else 0) | (release if at in releases else 0)
            launches.add_flags(params, flags)
            functions = Functions.from_address(node.launch.entry)
            if sampled and self._pairs is not None:
                block, _, starts = self._pairs
                first, end = int(starts[node.index]), int(starts[node.index + 1])
                launches.aim(params, node.launch, block.address + 16 * first, end - first, flags)
            pointers = launches.param_pointers(params)
            kernel.kernel.func = cu.CUfunction(functions.sampled if sampled else functions.plain)
            kernel.kernel.gridDimX, kernel.kernel.blockDimX = node.launch.blocks, node.launch.threads
            kernel.kernel.sharedMemBytes = node.launch.shared_bytes
            kernel.kernel.kernelParams = ctypes.addressof(pointers)
            data = [programmatic] if node.dependent else None
            added.append(call(cu.cuGraphAddNode, graph, before, data, len(before), kernel))
            if self._movable:
                function = functions.sampled if sampled else functions.plain
                launch = (node.launch.blocks, node.launch.threads, node.launch.shared_bytes)
                kept.append(AddedNode(node.index, int(added[-1]), function, *launch, bytes(params)))
        return [*added, begin]

    def _add_begin(self, graph: Any) -> Any:
        ring, words = self.ring.fields, -(-self.value_bytes // 16)
        releases = any(node.dependent and not node.predecessors for node in self._nodes)
        releases |= self._end_is_dependent and not self._nodes
        values = (self.arena.address, self.ring.device, ring.mask, ring.stride, words, releases)
        threads = min(max(records.rounded(words, 32), 32), 1024)
        return self._add_own(graph, self.backend.support["ost_begin"], 1, threads, values, [], False)

    def _add_end(self, graph: Any, added: list[Any], sampled: bool) -> None:
        """Add the node that ends a replay, after all others; in the instrumented graph it also collects the times."""
        support, done = self.backend.support, self.backend.done_address
        *nodes, begin = added
        last = [nodes[at] for at in self._leaves()] or [begin]
        dependent = self._end_is_dependent
        if not sampled:
            self._add_own(graph, support["ost_end"], 1, 1, (self.arena.address, done, dependent), last, dependent)
            return
        assert self._pairs is not None
        block, table, starts = self._pairs
        values = (table.address, block.address, self.count, self.arena.address, done, dependent)
        blocks = resolve_blocks(self.count, int(starts[-1]))
        self._add_own(graph, support["ost_resolve_end"], blocks, RESOLVE_THREADS, values, last, dependent)

    def _add_own(
        self,
        graph: Any,
        function: Any,
        blocks: int,
        threads: int,
        values: Sequence[int],
        before: list[Any],
        dependent: bool,
    ) -> Any:
        """Add one of the backend's own kernels; a `dependent` one is launched while its predecessor still runs."""
        cu, count = self._cu, len(values)
        # A four-byte parameter is the first half of its eight bytes.
        numbers = (ctypes.c_uint64 * count)(*values)
        pointers = (ctypes.c_void_p * count)(*(ctypes.addressof(numbers) + 8 * at for at in range(count)))
        kernel = cu.CUgraphNodeParams()
        kernel.type = cu.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL
        kernel.kernel.func = function
        kernel.kernel.gridDimX, kernel.kernel.blockDimX = blocks, threads
        kernel.kernel.gridDimY = kernel.kernel.gridDimZ = kernel.kernel.blockDimY = kernel.kernel.blockDimZ = 1
        kernel.kernel.kernelParams = ctypes.addressof(pointers)
        data = [self._programmatic()] if dependent else None
        return call(cu.cuGraphAddNode, graph, before, data, len(before), kernel)

    def _programmatic(self) -> Any:
        """The data of an edge to a node that is launched early."""
        edge = self._cu.CUgraphEdgeData()
        edge.from_port = 1
        edge.type = self._cu.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
        return edge

    def realign(self) -> None:
        """After a failed launch, wait for the stream and set the device's count of replays to the host's."""
        with self._context.current():
            call(self._cu.cuStreamSynchronize, self._cu.CUstream(self.backend.stream))
        self.ring.settle()
        self.backend.pool.write(self.arena.address, np.array([self.ring.fields.turn], np.uint32).view(np.uint8))
        self.ring.fields.uneven = 0

    def __del__(self) -> None:
        # A running replay keeps the graph alive. Its last node marks it as done just before it ends; the driver keeps
        # what the node needs until then.
        for executable in (getattr(self, "executable", 0), getattr(self, "_sampled", 0)):
            if executable and not self.backend.closed:
                # at the end of the interpreter, in a forked child, or with the context gone
                with suppress(Exception), self._context.current():
                    self._cu.cuGraphExecDestroy(self._cu.CUgraphExec(executable))
        for native in getattr(self, "_native_nodes", {}).values():
            if not self.backend.closed:
                with suppress(Exception), self._context.current():  # likewise
                    self._cu.cuGraphDestroy(native.graph)
        if hasattr(self, "ring"):
            self.ring.release()


def _nodes(lowered: Sequence[bytes], edges: np.ndarray) -> list[_Node]:
    """The launches and what each waits for; a barrier is left out, or becomes a node that joins many edges."""
    before: list[list[int]] = [[] for _ in lowered]
    for first, second in edges.tolist():
        before[second].append(first)
    nodes: list[_Node] = []
    stands_for: list[list[int]] = []  # for each command, the nodes that its successors wait for
    for index, record in enumerate(lowered):
        predecessors = _reduced({node for other in before[index] for node in stands_for[other]}, nodes)
        launch = launches.launch_of(record)
        if launch is None and len(predecessors) <= _JOINS:
            stands_for.append(predecessors)
            continue
        params = b"" if launch is None else record[launch.params_at :]
        stands_for.append([len(nodes)])
        nodes.append(_Node(index, predecessors, launch, params))
    return nodes


def _reduced(predecessors: set[int], nodes: Sequence[_Node]) -> list[int]:
    """The predecessors that no other predecessor implies. One that takes too long to check stays, without harm."""
    if len(predecessors) > _STEPS:
        return sorted(predecessors)
    kept: list[int] = []
    for candidate in sorted(predecessors, reverse=True):
        if not _is_before(candidate, kept, nodes):
            kept.append(candidate)
    return kept[::-1]


def _is_before(node: int, others: Sequence[int], nodes: Sequence[_Node]) -> bool:
    """Whether a node is an ancestor of one of the others, all of which come after it."""
    seen, waiting = set(others), list(others)
    for _ in range(_STEPS):
        if not waiting:
            return False
        for before in nodes[waiting.pop()].predecessors:
            if before == node:
                return True
            if before > node and before not in seen:
                seen.add(before)
                waiting.append(before)
    return False
