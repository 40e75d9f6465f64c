"""The device."""

from __future__ import annotations

import mmap
import time
from typing import Any

import numpy as np

from .buffers import Buffer, ResidencySet, ResidencySetDescriptor
from .commands import CommandQueue, ticks
from .constants import CONSTANTS
from .counters import CounterSampleBuffer, CounterSampleBufferDescriptor, CounterSet, sample_buffer
from .indirect import IndirectCommandBuffer, IndirectCommandBufferDescriptor
from .libraries import CompileOptions, ComputePipelineDescriptor, Library, library, pipeline
from .objects import Error, Object, Size
from .profiles import Profile
from .rules import require

_MOST_BYTES = 1 << 36


class Device(Object):
    """MTLDevice."""

    def __init__(self, profile: Profile) -> None:
        super().__init__()
        self.profile = profile

    def name(self) -> str:
        return self.profile.title

    def supportsFamily_(self, family: int) -> bool:
        return any(CONSTANTS[f"MTLGPUFamily{one}"] == family for one in self.profile.families)

    def maxThreadsPerThreadgroup(self) -> Size:
        return Size(1024, 1024, 1024)

    def maxThreadgroupMemoryLength(self) -> int:
        return 32 << 10

    def maxBufferLength(self) -> int:
        return _MOST_BYTES

    def recommendedMaxWorkingSetSize(self) -> int:
        return _MOST_BYTES

    def newCommandQueueWithMaxCommandBufferCount_(self, most: int) -> CommandQueue:
        return CommandQueue(self.profile, most)

    def newBufferWithLength_options_(self, nbytes: int, options: int) -> Buffer | None:
        require(nbytes > 0, "a buffer has at least one byte")
        require(nbytes <= _MOST_BYTES, "a buffer is longer than maxBufferLength")
        require(options == CONSTANTS["MTLResourceStorageModeShared"], "the backend uses shared storage only")
        try:
            return Buffer.of_length(nbytes)
        except MemoryError:
            return None

    def newBufferWithBytesNoCopy_length_options_deallocator_(
        self, memory: memoryview, nbytes: int, options: int, deallocator: None
    ) -> Buffer | None:
        array = np.frombuffer(memory, np.uint8)
        page = mmap.PAGESIZE
        require(array.ctypes.data % page == 0, "memory that is not copied begins at a page")
        require(nbytes % page == 0 and nbytes <= array.nbytes, "memory that is not copied consists of whole pages")
        return Buffer.over_memory(array[:nbytes])

    def newLibraryWithSource_options_error_(
        self, source: str, options: CompileOptions, error: None
    ) -> tuple[Library | None, Error | None]:
        return library(source)

    def newComputePipelineStateWithDescriptor_options_reflection_error_(
        self, description: ComputePipelineDescriptor, options: int, reflection: None, error: None
    ) -> Any:
        require(options & 1, "the reflection is asked for")
        wants_indirect = description.values["supportIndirectCommandBuffers"]
        require(self.profile.indirect or not wants_indirect, "this device has no indirect command buffers")
        return pipeline(description)

    def newIndirectCommandBufferWithDescriptor_maxCommandCount_options_(
        self, description: IndirectCommandBufferDescriptor, count: int, options: int
    ) -> IndirectCommandBuffer:
        require(self.profile.indirect, "this device has no indirect command buffers")
        return IndirectCommandBuffer(description, count)

    # --- counters and clocks ---------------------------------------------------------------------------------

    def counterSets(self) -> list[CounterSet]:
        return [CounterSet()]

    def supportsCounterSampling_(self, point: int) -> bool:
        if point == CONSTANTS["MTLCounterSamplingPointAtDispatchBoundary"]:
            return self.profile.dispatch_boundary
        return point == CONSTANTS["MTLCounterSamplingPointAtStageBoundary"] and self.profile.stage_boundary

    def newCounterSampleBufferWithDescriptor_error_(
        self, description: CounterSampleBufferDescriptor, error: None
    ) -> tuple[CounterSampleBuffer | None, Error | None]:
        return sample_buffer(description)

    def sampleTimestamps_gpuTimestamp_(self, cpu: None, gpu: None) -> tuple[int, int]:
        moment_ns = time.monotonic_ns()
        return moment_ns, ticks(self.profile, moment_ns)


class DeviceWithResidency(Device):
    """One of a system that has residency sets."""

    def newResidencySetWithDescriptor_error_(
        self, description: ResidencySetDescriptor, error: None
    ) -> tuple[ResidencySet, None]:
        return ResidencySet(), None
