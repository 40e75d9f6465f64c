"""Commands in encoded form, and putting them into an encoder.

An encoded dispatch refers to pipelines and memory by number, not by Objective-C object, so it can be memoised without
keeping any alive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ...ir.command_list import CommandList
from ...ir.commands import BufferBinding, Dispatch, DispatchKind, InlineBinding, Size3, UnboundBinding
from .. import records
from .api import Framework
from .compiling import KernelCode
from .memory import Blocks

_SHARED_STEP = 16

BARRIER = "barrier"
"""The lowered form of a barrier."""


class Encoded(NamedTuple):
    """The lowered form of a dispatch."""

    pipeline: int
    by_threads: bool
    threads: Size3
    groups: Size3
    group_size: Size3
    buffers: tuple[tuple[int, int, int, bool], ...]
    """Index, number of the memory, byte of it, whether it is written."""
    values: tuple[tuple[int, bytes], ...]
    """Index and bytes; those of a parameter are zeros, which a replay replaces."""
    shared: tuple[tuple[int, int], ...]
    """Index and bytes of threadgroup memory."""


def encoded(dispatch: Dispatch) -> Encoded:
    """The encoded form of a dispatch."""
    buffers, values = [], []
    for binding in dispatch.bindings:
        if isinstance(binding, BufferBinding):
            buffers.append((binding.index, binding.allocation, binding.offset, binding.writes))
        elif not isinstance(binding, UnboundBinding):
            data = binding.data if isinstance(binding, InlineBinding) else bytes(binding.nbytes)
            values.append((binding.index, data))
    code: KernelCode = dispatch.kernel.code
    sizes = zip(dispatch.kernel.signature.shared, dispatch.shared, strict=True)
    return Encoded(
        code.number,
        dispatch.kind is DispatchKind.Threads,
        dispatch.threads,
        dispatch.groups,
        dispatch.group_size,
        tuple(buffers),
        tuple(values),
        # Metal takes only multiples of a step.
        tuple((argument.index, records.rounded(nbytes, _SHARED_STEP)) for argument, nbytes in sizes if nbytes),
    )


class Step(NamedTuple):
    """A dispatch, with its index in the list."""

    node: int
    barrier: bool
    """Whether a barrier comes before it."""
    encoded: Encoded


def steps(commands: CommandList, barriers: Sequence[bool] | None) -> list[Step]:
    """The dispatches of a list, with a barrier before those that `barriers` marks; None means no barriers."""
    made: list[Step] = []
    waiting = False
    for node, lowered in enumerate(commands.lowered):
        waiting = waiting or (barriers is not None and barriers[node])
        if lowered is not BARRIER:
            made.append(Step(node, waiting and bool(made), lowered))
            waiting = False
    return made


class Group(NamedTuple):
    """The dispatches between two barriers, which may run at the same time."""

    steps: Sequence[Step]
    barrier: bool
    """Whether a barrier comes before them."""
    sampled: bool = False


def groups_of(steps: Sequence[Step], serial: bool) -> list[Group]:
    """A list as groups. In a serial list each dispatch is a group of its own, without barriers."""
    together: list[list[Step]] = []
    for step in steps:
        if serial or step.barrier or not together:
            together.append([])
        together[-1].append(step)
    return [Group(group, group[0].barrier and not serial) for group in together]


class Work(Protocol):
    """Something that can be put into encoders, whole or by groups."""

    @property
    def groups(self) -> Sequence[Group]:
        """All groups, in order."""
        ...

    @property
    def dispatch_type(self) -> int:
        """The dispatch type that its encoders need."""
        ...

    def put(self, encoder: Any, groups: Sequence[Group]) -> None:
        """Put some groups into an encoder, with the barriers between them but none before the first."""
        ...


class DispatchEncoder:
    """Puts dispatches into compute encoders."""

    def __init__(self, framework: Framework, blocks: Blocks, kernels: Mapping[int, KernelCode]) -> None:
        self._scope = framework.metal.MTLBarrierScopeBuffers
        self._blocks = blocks
        self._kernels = kernels

    def barrier(self, encoder: Any) -> None:
        """Everything before it is done, and its buffers are visible, before anything after it starts."""
        encoder.memoryBarrierWithScope_(self._scope)

    def dispatch(self, encoder: Any, encoded: Encoded, values: Mapping[int, bytes] | None = None) -> None:
        """Encode one dispatch; `values` replaces some of its inline bytes, by index."""
        encoder.setComputePipelineState_(self._kernels[encoded.pipeline].pipeline)
        for index, number, offset, _ in encoded.buffers:
            block = self._blocks[number]
            encoder.setBuffer_offset_atIndex_(block.buffer, block.start + offset, index)
        for index, data in encoded.values:
            if values is not None and index in values:
                data = values[index]
            encoder.setBytes_length_atIndex_(data, len(data), index)
        for index, nbytes in encoded.shared:
            encoder.setThreadgroupMemoryLength_atIndex_(nbytes, index)
        if encoded.by_threads:
            encoder.dispatchThreads_threadsPerThreadgroup_(encoded.threads, encoded.group_size)
        else:
            encoder.dispatchThreadgroups_threadsPerThreadgroup_(encoded.groups, encoded.group_size)


Values = Callable[[int], Mapping[int, bytes] | None]
"""A function from a node to the inline bytes that a replay replaces, by index."""


class Listed:
    """Work that is encoded dispatch by dispatch."""

    def __init__(
        self,
        framework: Framework,
        dispatches: DispatchEncoder,
        groups: Sequence[Group],
        serial: bool,
        values: Values | None = None,
    ) -> None:
        metal = framework.metal
        self.groups = groups
        self.dispatch_type: int = metal.MTLDispatchTypeSerial if serial else metal.MTLDispatchTypeConcurrent
        self._dispatches = dispatches
        self._values = values

    def put(self, encoder: Any, groups: Sequence[Group]) -> None:
        """Encode some groups, with the barriers between them."""
        values = self._values
        for at, group in enumerate(groups):
            if at and group.barrier:
                self._dispatches.barrier(encoder)
            for step in group.steps:
                self._dispatches.dispatch(encoder, step.encoded, None if values is None else values(step.node))
