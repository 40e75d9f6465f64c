"""Indirect command buffers."""

from __future__ import annotations

from .buffers import Buffer
from .libraries import ComputePipelineState
from .objects import Description, Object, Size
from .recorded import Recorded
from .rules import require

MOST_COMMANDS = 16384


class IndirectCommandBufferDescriptor(Description):
    """MTLIndirectCommandBufferDescriptor."""

    PROPERTIES = {
        "commandTypes": 0,
        "inheritBuffers": True,
        "inheritPipelineState": True,
        "maxKernelBufferBindCount": 0,
        "maxKernelThreadgroupMemoryBindCount": 0,
    }


class IndirectComputeCommand(Object):
    """MTLIndirectComputeCommand."""

    def __init__(self, owner: IndirectCommandBuffer) -> None:
        super().__init__()
        self._most = owner.description.values
        self.recorded: Recorded | None = None
        self.barrier = False
        self._state = Recorded()

    def setComputePipelineState_(self, pipeline: ComputePipelineState) -> None:
        require(pipeline.indirect, "a pipeline in an indirect command buffer must support them")
        self._state = self._state.with_pipeline(pipeline)

    def setKernelBuffer_offset_atIndex_(self, buffer: Buffer, offset: int, index: int) -> None:
        require(
            index < self._most["maxKernelBufferBindCount"], "more buffers than the indirect command buffer has room for"
        )
        self._state = self._state.with_buffer(index, buffer, offset)

    def setThreadgroupMemoryLength_atIndex_(self, nbytes: int, index: int) -> None:
        require(
            index < self._most["maxKernelThreadgroupMemoryBindCount"], "more threadgroup memory than there is room for"
        )
        self._state = self._state.with_shared(index, nbytes)

    def setBarrier(self) -> None:
        self.barrier = True

    def concurrentDispatchThreads_threadsPerThreadgroup_(self, threads: Size, group: Size) -> None:
        self.recorded = self._state.dispatched(threads, group, by_threads=True)

    def concurrentDispatchThreadgroups_threadsPerThreadgroup_(self, groups: Size, group: Size) -> None:
        self.recorded = self._state.dispatched(groups, group, by_threads=False)


class IndirectCommandBuffer(Object):
    """MTLIndirectCommandBuffer."""

    def __init__(self, description: IndirectCommandBufferDescriptor, count: int) -> None:
        super().__init__()
        require(0 < count <= MOST_COMMANDS, f"an indirect command buffer has 1 to {MOST_COMMANDS} commands")
        require(not description.values["inheritBuffers"], "the simulator has no inherited buffers")
        require(description.values["commandTypes"] == 96, "the simulator has concurrent dispatches only")
        require(description.values["maxKernelBufferBindCount"] <= 31, "at most 31 buffers can be bound")
        self.description = description
        self._commands = [IndirectComputeCommand(self) for _ in range(count)]

    def indirectComputeCommandAtIndex_(self, index: int) -> IndirectComputeCommand:
        return self._commands[index]

    def commands_in(self, start: int, count: int) -> list[IndirectComputeCommand]:
        require(start + count <= len(self._commands), "the range is larger than the indirect command buffer")
        return self._commands[start : start + count]
