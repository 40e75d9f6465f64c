"""A list of commands made ready to be replayed.

Where the device has indirect command buffers, the list is encoded into one, once. A replay copies its values into the
arena on the device, so that replays can be queued, and executes the buffer: whole, or in ranges when dispatches are
timed. Elsewhere a replay encodes the list again from its encoded commands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import DeviceError
from ...ir.command_list import CommandList
from ...ir.commands import BufferBinding, Copy, Dispatch, Fill, Ordering
from .. import records
from ..protocol import Memory
from .api import Framework
from .encoding import DispatchEncoder, Encoded, Group, Step, Values, groups_of
from .memory import Blocks

if TYPE_CHECKING:
    from .compiling import KernelCode
    from .driver import MetalBackend

MOST_COMMANDS = 16384
"""Commands per indirect command buffer."""

_VALUE_STEP = 256
"""Alignment of a value's offset in a buffer that every device accepts."""


class NativeGraph:
    """The dispatches of a list, in order, and where the values of its parameters go."""

    def __init__(self, backend: MetalBackend, commands: CommandList, steps: Sequence[Step]) -> None:
        self.backend = backend
        self.count = len(commands)
        self.steps = steps
        self.serial = commands.ordering is Ordering.SERIAL
        self.groups = groups_of(steps, self.serial)
        self.value_bytes = commands.value_bytes
        self.turn = 0
        """Sampled replays so far."""
        self.indirect: Indirect | None = None
        self._params: dict[int, dict[int, tuple[int, int]]] = {}
        for use in commands.param_uses:
            dispatch = commands.commands[use.node]
            assert isinstance(dispatch, Dispatch)
            self._params.setdefault(use.node, {})[dispatch.bindings[use.position].index] = (use.start, use.nbytes)

    def params_of(self, node: int) -> Mapping[int, tuple[int, int]]:
        """Start and size, in a replay's values, of each parameter of a node, by index."""
        return self._params.get(node, {})

    def values(self, block: bytes) -> Values:
        """The inline bytes of the nodes that have parameters, for one replay."""

        def of(node: int) -> Mapping[int, bytes] | None:
            params = self._params.get(node)
            if params is None:
                return None
            return {index: block[start : start + nbytes] for index, (start, nbytes) in params.items()}

        return of


class Uses:
    """The buffers that commands of an indirect command buffer use; every encoder must declare them."""

    def __init__(self) -> None:
        self._read: dict[int, Any] = {}
        self._written: dict[int, Any] = {}

    def add(self, buffer: Any, writes: bool) -> None:
        """Add a buffer of a command."""
        (self._written if writes else self._read)[id(buffer)] = buffer

    def update(self, others: Iterable[Uses]) -> Uses:
        """Add the buffers of several commands."""
        for other in others:
            self._read.update(other._read)
            self._written.update(other._written)
        return self

    def tell(self, encoder: Any, metal: Any) -> None:
        """Declare the buffers to an encoder."""
        written = list(self._written.values())
        read = [buffer for key, buffer in self._read.items() if key not in self._written]
        if read:
            encoder.useResources_count_usage_(read, len(read), metal.MTLResourceUsageRead)
        if written:
            usage = metal.MTLResourceUsageRead | metal.MTLResourceUsageWrite
            encoder.useResources_count_usage_(written, len(written), usage)


class Indirect:
    """An indirect command buffer with its arena: first the values of a replay, then the constant ones."""

    def __init__(
        self,
        framework: Framework,
        device: Any,
        dispatches: DispatchEncoder,
        blocks: Blocks,
        kernels: Mapping[int, KernelCode],
        graph: NativeGraph,
    ) -> None:
        self._metal = metal = framework.metal
        self._blocks = blocks
        self._dispatches = dispatches
        self._positions = {step.node: at for at, step in enumerate(graph.steps)}
        # It has no serial mode: in a serial list every command has a barrier.
        self.groups = groups_of(graph.steps, serial=False)
        self.dispatch_type: int = metal.MTLDispatchTypeConcurrent
        places: dict[bytes, int] = {}
        arena = bytearray(records.rounded(graph.value_bytes, _VALUE_STEP))
        for step in graph.steps:
            changing = graph.params_of(step.node)
            for index, data in step.encoded.values:
                if index not in changing and data not in places:
                    places[data] = len(arena)
                    arena += data.ljust(records.rounded(max(len(data), 1), _VALUE_STEP), b"\0")
        self.arena = blocks.allocate(len(arena))
        blocks.write(self.arena, bytes(arena))
        self._commands = _made(framework, device, [step.encoded for step in graph.steps])
        self._uses: list[Uses] = []
        for at, step in enumerate(graph.steps):
            self._encode(self._commands.indirectComputeCommandAtIndex_(at), step, graph, kernels, places)
        self._all = Uses().update(self._uses)

    def _encode(
        self,
        command: Any,
        step: Step,
        graph: NativeGraph,
        kernels: Mapping[int, KernelCode],
        places: Mapping[bytes, int],
    ) -> None:
        encoded, uses = step.encoded, Uses()
        self._uses.append(uses)
        command.setComputePipelineState_(kernels[encoded.pipeline].pipeline)
        for index, number, offset, writes in encoded.buffers:
            block = self._blocks[number]
            command.setKernelBuffer_offset_atIndex_(block.buffer, block.start + offset, index)
            uses.add(block.buffer, writes)
        arena = self._blocks[self.arena.number].buffer
        changing = graph.params_of(step.node)
        for index, data in encoded.values:
            at = changing[index][0] if index in changing else places[data]
            command.setKernelBuffer_offset_atIndex_(arena, at, index)
            uses.add(arena, False)
        for index, nbytes in encoded.shared:
            command.setThreadgroupMemoryLength_atIndex_(nbytes, index)
        if step.barrier:
            command.setBarrier()
        if encoded.by_threads:
            command.concurrentDispatchThreads_threadsPerThreadgroup_(encoded.threads, encoded.group_size)
        else:
            command.concurrentDispatchThreadgroups_threadsPerThreadgroup_(encoded.groups, encoded.group_size)

    def put(self, encoder: Any, groups: Sequence[Group]) -> None:
        """Execute some groups: all of them in one call, else in as few ranges as possible.

        Inside a range the commands' own barriers apply. Metal does not specify their effect on other ranges, so
        between ranges the encoder has barriers.
        """
        if groups is self.groups:
            self._all.tell(encoder, self._metal)
            self._execute(encoder, 0, len(self._uses))
            return
        steps = [self._positions[step.node] for group in groups for step in group.steps]
        Uses().update(self._uses[at] for at in steps).tell(encoder, self._metal)
        first: int | None = None  # of the range that is being made
        end: int | None = None
        alone = True  # the range is all there is since the encoder's last barrier
        for number, group in enumerate(groups):
            barrier = number > 0 and group.barrier
            for step in group.steps:
                at = self._positions[step.node]
                if at == end and (not barrier or (alone and step.barrier)):
                    end, barrier = at + 1, False
                    continue
                self._execute(encoder, first, end)
                alone = end is None or barrier
                if barrier:
                    self._dispatches.barrier(encoder)
                first, end, barrier = at, at + 1, False
        self._execute(encoder, first, end)

    def _execute(self, encoder: Any, first: int | None, end: int | None) -> None:
        if first is not None and end is not None:
            encoder.executeCommandsInBuffer_withRange_(self._commands, (first, end - first))


def _made(framework: Framework, device: Any, encoded: Sequence[Encoded]) -> Any:
    """An indirect command buffer with room for some dispatches."""
    metal = framework.metal
    description = metal.MTLIndirectCommandBufferDescriptor.alloc().init()
    kinds = metal.MTLIndirectCommandTypeConcurrentDispatch | metal.MTLIndirectCommandTypeConcurrentDispatchThreads
    description.setCommandTypes_(kinds)
    description.setInheritBuffers_(False)
    description.setInheritPipelineState_(False)
    description.setMaxKernelBufferBindCount_(max((_bindings(dispatch) for dispatch in encoded), default=0))
    shared = max((index + 1 for dispatch in encoded for index, _ in dispatch.shared), default=0)
    if shared and not hasattr(description, "setMaxKernelThreadgroupMemoryBindCount_"):
        raise DeviceError(f"{framework.name}: threadgroup arguments in indirect command buffers need macOS 14")
    if shared:
        description.setMaxKernelThreadgroupMemoryBindCount_(shared)
    made = device.newIndirectCommandBufferWithDescriptor_maxCommandCount_options_(
        description, len(encoded), metal.MTLResourceStorageModeShared
    )
    if made is None:
        raise DeviceError(f"{framework.name}: no indirect command buffer of {len(encoded)} commands could be made")
    made.setLabel_("ostinato graph")
    return made


def _bindings(encoded: Encoded) -> int:
    indices = [index for index, *_ in encoded.buffers] + [index for index, _ in encoded.values]
    return max(indices, default=-1) + 1


class Staging:
    """Memory from which the values of replays are copied to their arenas; reused by later replays."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._free: dict[int, list[Memory]] = {}
        self._copies: dict[tuple[int, int], Encoded] = {}

    def take(self, values: bytes) -> Memory:
        """Memory with these values."""
        size = records.rounded(len(values), 256)
        kept = self._free.setdefault(size, [])
        memory = kept.pop() if kept else self._blocks.allocate(size)
        self._blocks.write(memory, values)
        return memory

    def give_back(self, memory: Memory) -> None:
        """Return memory whose replay is done."""
        self._free.setdefault(memory.nbytes, []).append(memory)

    def copy(
        self, source: Memory, target: Memory, nbytes: int, encoded: Callable[[Dispatch | Copy | Fill], Encoded]
    ) -> Encoded:
        """The dispatch that copies values into an arena, cached; `encoded` encodes a new one."""
        key = (source.number, target.number)
        copy = self._copies.get(key)
        if copy is None:
            size = records.rounded(nbytes, 16)
            ends = (
                BufferBinding(0, source.number, source.address, 0, size, False),
                BufferBinding(1, target.number, target.address, 0, size, True),
            )
            copy = encoded(Copy(*ends))
            if len(self._copies) >= 4096:
                self._copies.clear()
            self._copies[key] = copy
        return copy

    def close(self) -> None:
        """Release the memory."""
        self._free.clear()
        self._copies.clear()
