"""A list of commands made ready to be replayed.

Where the device has indirect command buffers, the list is encoded into one, once; a replay puts its values into the
arena, by a copy on the device, so that replays can be queued, and executes it. Elsewhere, and when times are taken,
a replay encodes the list again from what was worked out beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...commands import Command
from ...errors import DeviceError
from .. import records
from .api import Framework
from .encoding import Encoded, Step
from .memory import Blocks

if TYPE_CHECKING:
    from .compiling import KernelCode
    from .driver import MetalBackend

MOST_COMMANDS = 16384
"""Of one indirect command buffer."""

_VALUE_STEP = 256
"""What any device wants the place of a value in a buffer to be a multiple of."""


class NativeGraph:
    """The dispatches of a list, in order, and where the values of its parameters go."""

    def __init__(
        self,
        backend: MetalBackend,
        commands: Sequence[Command],
        steps: Sequence[Step],
        serial: bool,
        values: Mapping[str, int],
    ) -> None:
        self.backend = backend
        self.count = len(commands)
        self.steps = steps
        self.serial = serial
        self._params: dict[int, dict[int, tuple[int, int]]] = {}
        self.value_bytes = 0
        self.turn = 0
        """Sampled replays so far."""
        for node, command in enumerate(commands):
            for position, name, nbytes in records.parameters(command):
                start = values[name]
                index: int = command.bindings[position].index  # type: ignore[union-attr]
                self._params.setdefault(node, {})[index] = (start, nbytes)
                self.value_bytes = max(self.value_bytes, start + nbytes)
        self.indirect: Indirect | None = None

    def make_indirect(
        self, framework: Framework, device: Any, blocks: Blocks, kernels: Mapping[int, KernelCode]
    ) -> None:
        """Encode it into an indirect command buffer."""
        self.indirect = Indirect(framework, device, blocks, kernels, self)

    def params_of(self, node: int) -> Mapping[int, tuple[int, int]]:
        """Where in a replay's values those of a node's bindings stand: start and size by index."""
        return self._params.get(node, {})

    def values(self, block: bytes) -> Callable[[int], Mapping[int, bytes] | None]:
        """The inline bytes of the nodes that have parameters, for one replay."""

        def of(node: int) -> Mapping[int, bytes] | None:
            params = self._params.get(node)
            if params is None:
                return None
            return {index: block[start : start + nbytes] for index, (start, nbytes) in params.items()}

        return of


class Indirect:
    """An indirect command buffer with its arena: first the values of a replay, then those that never change."""

    def __init__(
        self, framework: Framework, device: Any, blocks: Blocks, kernels: Mapping[int, KernelCode], graph: NativeGraph
    ) -> None:
        self._metal = metal = framework.metal
        self._blocks = blocks
        self.count = len(graph.steps)
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
        description = metal.MTLIndirectCommandBufferDescriptor.alloc().init()
        kinds = metal.MTLIndirectCommandTypeConcurrentDispatch | metal.MTLIndirectCommandTypeConcurrentDispatchThreads
        description.setCommandTypes_(kinds)
        description.setInheritBuffers_(False)
        description.setInheritPipelineState_(False)
        description.setMaxKernelBufferBindCount_(max((_bindings(one.encoded) for one in graph.steps), default=0))
        shared = max((index + 1 for one in graph.steps for index, _ in one.encoded.shared), default=0)
        if shared and not hasattr(description, "setMaxKernelThreadgroupMemoryBindCount_"):
            raise DeviceError(f"{framework.name}: threadgroup arguments in indirect command buffers need macOS 14")
        if shared:
            description.setMaxKernelThreadgroupMemoryBindCount_(shared)
        self.commands = device.newIndirectCommandBufferWithDescriptor_maxCommandCount_options_(
            description, self.count, metal.MTLResourceStorageModeShared
        )
        if self.commands is None:
            raise DeviceError(f"{framework.name}: no indirect command buffer of {self.count} commands could be made")
        arena_buffer = blocks[self.arena.number].buffer
        self.resources: list[Any] = [arena_buffer]
        for at, step in enumerate(graph.steps):
            self._encode(self.commands.indirectComputeCommandAtIndex_(at), step, graph, kernels, places, arena_buffer)

    def _encode(
        self,
        command: Any,
        step: Step,
        graph: NativeGraph,
        kernels: Mapping[int, KernelCode],
        places: Mapping[bytes, int],
        arena: Any,
    ) -> None:
        one = step.encoded
        command.setComputePipelineState_(kernels[one.pipeline].pipeline)
        for index, number, offset in one.buffers:
            block = self._blocks[number]
            command.setKernelBuffer_offset_atIndex_(block.buffer, block.start + offset, index)
            if not any(block.buffer is other for other in self.resources):
                self.resources.append(block.buffer)
        changing = graph.params_of(step.node)
        for index, data in one.values:
            at = changing[index][0] if index in changing else places[data]
            command.setKernelBuffer_offset_atIndex_(arena, at, index)
        for index, nbytes in one.shared:
            command.setThreadgroupMemoryLength_atIndex_(nbytes, index)
        if step.barrier:
            command.setBarrier()
        if one.by_threads:
            command.concurrentDispatchThreads_threadsPerThreadgroup_(one.threads, one.group_size)
        else:
            command.concurrentDispatchThreadgroups_threadsPerThreadgroup_(one.groups, one.group_size)

    def execute(self, encoder: Any) -> None:
        """Run all of it."""
        usage = self._metal.MTLResourceUsageRead | self._metal.MTLResourceUsageWrite
        encoder.useResources_count_usage_(self.resources, len(self.resources), usage)
        encoder.executeCommandsInBuffer_withRange_(self.commands, (0, self.count))


def _bindings(one: Encoded) -> int:
    indices = [index for index, *_ in one.buffers] + [index for index, _ in one.values]
    return max(indices, default=-1) + 1
