"""Counter sample buffers, and the passes that sample at stage boundaries."""

from __future__ import annotations

import weakref

import numpy as np

from .objects import Description, Error, Object, autoreleased
from .rules import require, wholes

MOST_SAMPLES = 4096
MOST_BUFFERS = 32


class CounterSet(Object):
    """MTLCounterSet."""

    def name(self) -> str:
        return "timestamp"


class CounterSampleBufferDescriptor(Description):
    """MTLCounterSampleBufferDescriptor."""

    PROPERTIES = {"counterSet": None, "storageMode": 0, "sampleCount": 0}


class CounterSampleBuffer(Object):
    """MTLCounterSampleBuffer. Samples are written when their command buffer is done."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.ticks = np.zeros(count, np.uint64)
        self.pending = np.zeros(count, bool)
        """Which samples a command buffer will write."""
        _alive.add(self)

    def sampleCount(self) -> int:
        return len(self.ticks)

    def resolveCounterRange_(self, range_: tuple[int, int]) -> bytes:
        autoreleased("the data of samples")
        start, count = wholes(range_, 2, "a range")
        require(start + count <= len(self.ticks), "the range of samples is larger than their buffer")
        pending = self.pending[start : start + count].any()
        require(not pending, "samples were resolved before the command buffer was done")
        return self.ticks[start : start + count].tobytes()


_alive: weakref.WeakSet[CounterSampleBuffer] = weakref.WeakSet()


def sample_buffer(
    description: CounterSampleBufferDescriptor,
) -> tuple[CounterSampleBuffer | None, Error | None]:
    """A buffer; too large a one is an error, as on every device so far."""
    count = description.values["sampleCount"]
    require(isinstance(description.values["counterSet"], CounterSet), "a sample buffer has a counter set")
    if not 0 < count <= MOST_SAMPLES:
        return None, Error(f"Invalid sample buffer length: {8 * count} B. Expected range: 8 -> {8 * MOST_SAMPLES}")
    if len(_alive) >= MOST_BUFFERS:
        return None, Error("Cannot allocate sample buffer")
    return CounterSampleBuffer(count), None


class Attachment(Description):
    """MTLComputePassSampleBufferAttachmentDescriptor."""

    PROPERTIES = {"sampleBuffer": None, "startOfEncoderSampleIndex": 0, "endOfEncoderSampleIndex": 0}


class Attachments(Object):
    """MTLComputePassSampleBufferAttachmentDescriptorArray."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Attachment()

    def objectAtIndexedSubscript_(self, index: int) -> Attachment:
        require(index == 0, "the simulator has one attachment")
        return self.first


class ComputePassDescriptor(Description):
    """MTLComputePassDescriptor."""

    PROPERTIES = {"dispatchType": 0}

    def __init__(self) -> None:
        super().__init__()
        self._attachments = Attachments()

    @classmethod
    def computePassDescriptor(cls) -> ComputePassDescriptor:
        autoreleased("a pass descriptor")
        return cls()

    def sampleBufferAttachments(self) -> Attachments:
        return self._attachments
