"""The times of dispatches, by counter samples.

A device samples at dispatch boundaries, inside an encoder, or only at stage boundaries, where an encoder begins and
ends (Apple silicon). At dispatch boundaries a group (see `turns.py`) is put between two samples. At stage boundaries it
gets an encoder of its own, and the groups that are not sampled share the encoders between.

Which boundary works is found by taking a sample, because the flags of some devices are wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from . import turns
from .api import Framework
from .counters import SampleBuffers, Taken
from .encoding import DispatchEncoder, Group, Work


class Boundary(Enum):
    """Where a device can take samples."""

    NONE = "nowhere"
    STAGE = "at stage boundaries"
    DISPATCH = "at dispatch boundaries"


class Sampler:
    """Takes samples on one device."""

    def __init__(self, framework: Framework, device: Any, dispatches: DispatchEncoder, subsets: int | None) -> None:
        self._metal = framework.metal
        self._device = device
        self._dispatches = dispatches
        self._subsets = subsets
        self.buffers = SampleBuffers(framework, device)
        self.boundary = Boundary.NONE
        """Where samples are taken."""
        self.reason = "samples were not asked for"
        """Why no samples are taken, if there are none."""

    def candidates(self) -> list[Boundary]:
        """The boundaries that the device claims to sample at, best first."""
        if self.buffers.counters is None:
            self.reason = "it has no timestamp counter"
            return []
        metal, ask = self._metal, self._device.supportsCounterSampling_
        boundaries = []
        if ask(metal.MTLCounterSamplingPointAtDispatchBoundary):
            boundaries.append(Boundary.DISPATCH)
        if ask(metal.MTLCounterSamplingPointAtStageBoundary):
            boundaries.append(Boundary.STAGE)
        if not boundaries:
            self.reason = "it samples counters neither at dispatch nor at stage boundaries"
        return boundaries

    def encode(self, command_buffer: Any, work: Work, number: int, label: str) -> Taken:
        """Encode the sampled run `number` of some work, with samples around the groups whose turn it is."""
        taken = Taken(self.buffers)
        costly = self.boundary is Boundary.STAGE
        groups = len(work.groups)
        subsets = turns.subsets_of(groups, costly) if self._subsets is None else min(self._subsets, max(1, groups))
        chosen = turns.sampled(work.groups, number, subsets)
        (self._in_passes if costly else self._in_one_encoder)(command_buffer, work, chosen, label, taken)
        return taken

    def _in_one_encoder(
        self, command_buffer: Any, work: Work, chosen: Sequence[Group], label: str, taken: Taken
    ) -> None:
        encoder = command_buffer.computeCommandEncoderWithDispatchType_(work.dispatch_type)
        try:
            encoder.setLabel_(label)
            for group in chosen:
                if group.barrier:
                    self._dispatches.barrier(encoder)
                place = taken.place([step.node for step in group.steps]) if group.sampled else None
                if place is not None:
                    encoder.sampleCountersInBuffer_atSampleIndex_withBarrier_(place[0], place[1], True)
                work.put(encoder, [group])
                if place is not None:
                    encoder.sampleCountersInBuffer_atSampleIndex_withBarrier_(place[0], place[1] + 1, True)
        finally:
            encoder.endEncoding()

    def _in_passes(self, command_buffer: Any, work: Work, chosen: Sequence[Group], label: str, taken: Taken) -> None:
        for groups in _passes(chosen):
            description = self._metal.MTLComputePassDescriptor.computePassDescriptor()
            description.setDispatchType_(work.dispatch_type)
            place = taken.place([step.node for step in groups[0].steps]) if groups[0].sampled else None
            if place is not None:
                attachment = description.sampleBufferAttachments().objectAtIndexedSubscript_(0)
                attachment.setSampleBuffer_(place[0])
                attachment.setStartOfEncoderSampleIndex_(place[1])
                attachment.setEndOfEncoderSampleIndex_(place[1] + 1)
            encoder = command_buffer.computeCommandEncoderWithDescriptor_(description)
            try:
                encoder.setLabel_(label)
                work.put(encoder, groups)
            finally:
                encoder.endEncoding()


def _passes(chosen: Sequence[Group]) -> list[list[Group]]:
    """The groups of each encoder: a sampled group has its own. Metal orders encoders that use the same buffers."""
    passes: list[list[Group]] = []
    for group in chosen:
        if group.sampled or not passes or passes[-1][0].sampled:
            passes.append([])
        passes[-1].append(group)
    return passes
