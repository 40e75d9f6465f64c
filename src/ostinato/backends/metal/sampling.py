"""The times of dispatches, by counter samples.

A device samples at dispatch boundaries, inside an encoder, or only at stage boundaries, where an encoder begins and
ends (Apple silicon). What is sampled is what stands between two barriers, a group: at dispatch boundaries it stands
between two samples, at stage boundaries it gets an encoder of its own. A dispatch that is alone in its group is timed
by that. Of a group of several, the first run of a list gives bounds, and everything runs as it always does. From then
on they take turns: one of them runs, and is timed, after the others, which have no time in that run. So a list that
runs often shows the time of each, and no run is far from what it always does.

Which boundary a device can sample at is found by taking a sample, because flags have been seen to lie. Buffers of
samples are small, so a list uses as many as it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

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


class Turn(NamedTuple):
    """Which run of a list it is, and how many runs it takes until every group was sampled once."""

    number: int = 0
    subsets: int = 1


class Boundary(Enum):
    """Where a device can take samples."""

    NONE = "nowhere"
    STAGE = "at stage boundaries"
    DISPATCH = "at dispatch boundaries"


class Group(NamedTuple):
    """Dispatches that may run at the same time."""

    steps: Sequence[Step]
    barrier: bool
    """Whether a barrier comes before them."""
    sampled: bool


def grouped(steps: Sequence[Step], serial: bool, turn: Turn) -> list[Group]:
    """A list as groups, and which of them are sampled when it has its turn."""
    together: list[list[Step]] = []
    for step in steps:
        if serial or step.barrier or not together:
            together.append([])
        together[-1].append(step)
    found: list[Group] = []
    for at, group in enumerate(together):
        barrier = group[0].barrier and not serial
        sampled = at % turn.subsets == turn.number % turn.subsets
        round_ = turn.number // turn.subsets
        if sampled and len(group) > 1 and round_:
            alone = (round_ - 1) % len(group)
            found.append(Group([*group[:alone], *group[alone + 1 :]], barrier, False))
            found.append(Group([group[alone]], False, True))
        else:
            found.append(Group(group, barrier, sampled))
    return found


class Taken:
    """The samples of one command buffer: pairs for some of its groups, in one buffer after the other."""

    __slots__ = ("chunks",)

    def __init__(self) -> None:
        self.chunks: list[tuple[Any, list[list[int]]]] = []


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
        self, command_buffer: Any, steps: Sequence[Step], turn: Turn, serial: bool, label: str, values: Values
    ) -> Taken:
        """Put dispatches into a command buffer, and samples around the groups whose turn it is."""
        taken = Taken()
        split = grouped(steps, serial, turn)
        begin = self._in_one_encoder if self.boundary is Boundary.DISPATCH else self._in_passes
        begin(_Encoding(command_buffer, serial, label, values, taken, sum(group.sampled for group in split)), split)
        return taken

    def _in_one_encoder(self, made: _Encoding, split: Sequence[Group]) -> None:
        encoder = made.command_buffer.computeCommandEncoderWithDispatchType_(self._dispatch_type(made.serial))
        try:
            encoder.setLabel_(made.label)
            for group in split:
                if group.barrier:
                    self._filler.barrier(encoder)
                if group.sampled:
                    buffer, at = self._place(made, group)
                    encoder.sampleCountersInBuffer_atSampleIndex_withBarrier_(buffer, at, True)
                for step in group.steps:
                    self._filler.dispatch(encoder, step.encoded, made.values(step.node))
                if group.sampled:
                    encoder.sampleCountersInBuffer_atSampleIndex_withBarrier_(buffer, at + 1, True)
        finally:
            encoder.endEncoding()

    def _in_passes(self, made: _Encoding, split: Sequence[Group]) -> None:
        encoder: Any = None
        try:
            for group in split:
                if group.sampled and encoder is not None:
                    encoder, ended = None, encoder
                    ended.endEncoding()
                if encoder is None:
                    encoder = self._pass(made, group if group.sampled else None)
                    encoder.setLabel_(made.label)
                elif group.barrier:
                    self._filler.barrier(encoder)
                for step in group.steps:
                    self._filler.dispatch(encoder, step.encoded, made.values(step.node))
                if group.sampled:
                    encoder, ended = None, encoder
                    ended.endEncoding()
        finally:
            if encoder is not None:
                encoder.endEncoding()

    def _pass(self, made: _Encoding, group: Group | None) -> Any:
        """An encoder; with samples where it begins and ends, if it is for one group."""
        description = self._metal.MTLComputePassDescriptor.computePassDescriptor()
        description.setDispatchType_(self._dispatch_type(made.serial))
        if group is not None:
            buffer, at = self._place(made, group)
            attachment = description.sampleBufferAttachments().objectAtIndexedSubscript_(0)
            attachment.setSampleBuffer_(buffer)
            attachment.setStartOfEncoderSampleIndex_(at)
            attachment.setEndOfEncoderSampleIndex_(at + 1)
        return made.command_buffer.computeCommandEncoderWithDescriptor_(description)

    def _dispatch_type(self, serial: bool) -> int:
        return int(self._metal.MTLDispatchTypeSerial if serial else self._metal.MTLDispatchTypeConcurrent)

    # --- buffers of samples ----------------------------------------------------------------------------------

    def _place(self, made: _Encoding, group: Group) -> tuple[Any, int]:
        """Where the pair of a group goes."""
        chunks = made.taken.chunks
        if not chunks or 2 * len(chunks[-1][1]) >= chunks[-1][0].sampleCount():
            placed = sum(len(nodes) for _, nodes in chunks)
            chunks.append((self._buffer(2 * (made.sampled - placed)), []))
        buffer, placed_groups = chunks[-1]
        placed_groups.append([step.node for step in group.steps])
        return buffer, 2 * (len(placed_groups) - 1)

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

    def resolve(self, taken: Taken, count: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Start and end of every node in ticks, of shape (count, 2), zeros for what has none; and which are bounds."""
        found = np.zeros((count, 2), np.uint64)
        shared: list[int] = []
        for buffer, split in taken.chunks:
            data = buffer.resolveCounterRange_((0, 2 * len(split)))
            if data is None:
                continue
            ticks = np.frombuffer(bytes(data), np.uint64)[: 2 * len(split)].reshape(-1, 2).copy()
            ticks[(ticks == _ERROR).any(axis=1) | (ticks == 0).any(axis=1) | (ticks[:, 1] < ticks[:, 0])] = 0
            for nodes, pair in zip(split, ticks, strict=False):
                found[nodes] = pair
                if len(nodes) > 1:
                    shared += nodes
        with self._lock:
            self._free += [buffer for buffer, _ in taken.chunks]
            del self._free[:-_KEPT]
        taken.chunks = []
        bounded = np.zeros(count, bool)
        bounded[shared] = True
        return found, bounded if shared else None


class _Encoding(NamedTuple):
    """What encoding one command buffer with samples goes by."""

    command_buffer: Any
    serial: bool
    label: str
    values: Values
    taken: Taken
    sampled: int
    """Groups to be sampled."""
