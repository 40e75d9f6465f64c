"""The times of dispatches, by counter samples.

A device samples at dispatch boundaries, inside an encoder, or only at stage boundaries, where an encoder begins and
ends (Apple silicon). At dispatch boundaries a sampled dispatch stands between two samples with barriers. At stage
boundaries it gets an encoder of its own; what is not sampled in a run stays together. Which of them a device can do is
found by taking a sample, because flags have been seen to lie. Buffers of samples are small, so a list uses as many as
it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np

from ...locks import ForkLock
from .api import Framework, checked
from .encoding import Filler, Step

MOST_SAMPLES = 4096
"""Of one buffer: 32 KiB."""

_ERROR = np.uint64(2**64 - 1)
_KEPT = 16

Values = Callable[[int], Mapping[int, bytes] | None]
"""The inline bytes of a node that differ from those in its record."""


class Boundary(Enum):
    """Where a device can take samples."""

    NONE = "nowhere"
    STAGE = "at stage boundaries"
    DISPATCH = "at dispatch boundaries"


class Taken:
    """The samples of one command buffer: pairs for some of its nodes, in one buffer after the other."""

    __slots__ = ("chunks",)

    def __init__(self) -> None:
        self.chunks: list[tuple[Any, list[int]]] = []


class Sampler:
    """Takes samples on one device."""

    def __init__(self, framework: Framework, device: Any, filler: Filler) -> None:
        self._metal = framework.metal
        self._device = device
        self._filler = filler
        self._lock = ForkLock()
        self._free: list[Any] = []
        self.boundary = Boundary.NONE
        """Where samples are taken."""
        self.reason = "samples were not asked for"
        """Why they cannot be, if not."""
        self._counters = self._timestamps()

    def _timestamps(self) -> Any:
        for one in self._device.counterSets() or ():
            if str(one.name()) == str(self._metal.MTLCommonCounterSetTimestamp):
                return one
        return None

    def candidates(self) -> list[Boundary]:
        """The boundaries that the device claims to sample at, best first."""
        if self._counters is None:
            self.reason = "it has no timestamp counter"
            return []
        metal, ask = self._metal, self._device.supportsCounterSampling_
        found = []
        if ask(metal.MTLCounterSamplingPointAtDispatchBoundary):
            found.append(Boundary.DISPATCH)
        if ask(metal.MTLCounterSamplingPointAtStageBoundary):
            found.append(Boundary.STAGE)
        if not found:
            self.reason = "it samples counters neither at dispatch nor at stage boundaries"
        return found

    # --- encoding --------------------------------------------------------------------------------------------

    def encode(
        self,
        command_buffer: Any,
        steps: Sequence[Step],
        chosen: Collection[int],
        serial: bool,
        label: str | None,
        values: Values,
    ) -> Taken:
        """Put dispatches into a command buffer, and samples around the chosen ones, by node."""
        taken = Taken()
        if self.boundary is Boundary.DISPATCH:
            self._in_one_encoder(command_buffer, steps, chosen, serial, label, values, taken)
        else:
            self._in_passes(command_buffer, steps, chosen, serial, label, values, taken)
        return taken

    def _in_one_encoder(
        self,
        command_buffer: Any,
        steps: Sequence[Step],
        chosen: Collection[int],
        serial: bool,
        label: str | None,
        values: Values,
        taken: Taken,
    ) -> None:
        encoder = command_buffer.computeCommandEncoderWithDispatchType_(self._dispatch_type(serial))
        try:
            encoder.setLabel_(label)
            for step in steps:
                if step.barrier:
                    self._filler.barrier(encoder)
                if step.node not in chosen:
                    self._filler.dispatch(encoder, step.encoded, values(step.node))
                    continue
                buffer, at = self._place(taken, step.node, len(chosen))
                encoder.sampleCountersInBuffer_atSampleIndex_withBarrier_(buffer, at, True)
                self._filler.dispatch(encoder, step.encoded, values(step.node))
                encoder.sampleCountersInBuffer_atSampleIndex_withBarrier_(buffer, at + 1, True)
        finally:
            encoder.endEncoding()

    def _in_passes(
        self,
        command_buffer: Any,
        steps: Sequence[Step],
        chosen: Collection[int],
        serial: bool,
        label: str | None,
        values: Values,
        taken: Taken,
    ) -> None:
        encoder: Any = None
        try:
            for step in steps:
                sampled = step.node in chosen
                if sampled or encoder is None:
                    if encoder is not None:
                        encoder, ended = None, encoder
                        ended.endEncoding()
                    encoder = self._pass(command_buffer, step.node if sampled else None, serial, taken, len(chosen))
                    encoder.setLabel_(label)
                elif step.barrier:
                    self._filler.barrier(encoder)
                self._filler.dispatch(encoder, step.encoded, values(step.node))
                if sampled:
                    encoder, ended = None, encoder
                    ended.endEncoding()
        finally:
            if encoder is not None:
                encoder.endEncoding()

    def _pass(self, command_buffer: Any, node: int | None, serial: bool, taken: Taken, count: int) -> Any:
        """An encoder; with samples where it begins and ends, if it is for one node."""
        description = self._metal.MTLComputePassDescriptor.computePassDescriptor()
        description.setDispatchType_(self._dispatch_type(serial))
        if node is not None:
            buffer, at = self._place(taken, node, count)
            attachment = description.sampleBufferAttachments().objectAtIndexedSubscript_(0)
            attachment.setSampleBuffer_(buffer)
            attachment.setStartOfEncoderSampleIndex_(at)
            attachment.setEndOfEncoderSampleIndex_(at + 1)
        return command_buffer.computeCommandEncoderWithDescriptor_(description)

    def _dispatch_type(self, serial: bool) -> int:
        return int(self._metal.MTLDispatchTypeSerial if serial else self._metal.MTLDispatchTypeConcurrent)

    # --- buffers of samples ----------------------------------------------------------------------------------

    def _place(self, taken: Taken, node: int, count: int) -> tuple[Any, int]:
        """Where the pair of a node goes."""
        if not taken.chunks or 2 * len(taken.chunks[-1][1]) >= taken.chunks[-1][0].sampleCount():
            placed = sum(len(nodes) for _, nodes in taken.chunks)
            taken.chunks.append((self._buffer(2 * (count - placed)), []))
        buffer, nodes = taken.chunks[-1]
        nodes.append(node)
        return buffer, 2 * (len(nodes) - 1)

    def _buffer(self, samples: int) -> Any:
        samples = min(1 << max(samples - 1, 63).bit_length(), MOST_SAMPLES)
        with self._lock:
            for at, one in enumerate(self._free):
                if one.sampleCount() == samples:
                    return self._free.pop(at)
        description = self._metal.MTLCounterSampleBufferDescriptor.alloc().init()
        description.setCounterSet_(self._counters)
        description.setStorageMode_(self._metal.MTLStorageModeShared)
        description.setSampleCount_(samples)
        description.setLabel_("ostinato samples")
        made = self._device.newCounterSampleBufferWithDescriptor_error_(description, None)
        return checked(made, "making a buffer of counter samples")

    def resolve(self, taken: Taken, count: int) -> np.ndarray:
        """Start and end of every node in ticks, of shape (count, 2); zeros for what has none."""
        found = np.zeros((count, 2), np.uint64)
        for buffer, nodes in taken.chunks:
            data = buffer.resolveCounterRange_((0, 2 * len(nodes)))
            if data is None:
                continue
            ticks = np.frombuffer(bytes(data), np.uint64)[: 2 * len(nodes)].reshape(-1, 2).copy()
            ticks[(ticks == _ERROR).any(axis=1) | (ticks == 0).any(axis=1) | (ticks[:, 1] < ticks[:, 0])] = 0
            found[nodes[: len(ticks)]] = ticks
        with self._lock:
            self._free += [buffer for buffer, _ in taken.chunks]
            del self._free[:-_KEPT]
        taken.chunks = []
        return found
