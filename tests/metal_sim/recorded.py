"""A dispatch as it was encoded, and as the CPU runs it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ostinato.backends.records import pack
from ostinato.ir.commands import Binding, BufferBinding, Dispatch, DispatchKind, InlineBinding, UnboundBinding

from .buffers import Buffer
from .libraries import ComputePipelineState
from .rules import require, whole, wholes

MOST_BYTES = 4096
MOST_BUFFERS = 31
THREADGROUP_MEMORY = 32 << 10


@dataclass(frozen=True)
class Recorded:
    """What is bound, and once it is dispatched, the grid."""

    pipeline: ComputePipelineState | None = None
    buffers: dict[int, tuple[Buffer, int] | bytes] = field(default_factory=dict)
    shared: dict[int, int] = field(default_factory=dict)
    grid: tuple[Any, Any, bool] | None = None

    def with_pipeline(self, pipeline: ComputePipelineState) -> Recorded:
        require(isinstance(pipeline, ComputePipelineState), "a pipeline state is expected")
        return replace(self, pipeline=pipeline)

    def with_buffer(self, index: int, buffer: Buffer, offset: int) -> Recorded:
        require(isinstance(buffer, Buffer), "a buffer is expected")
        whole(index, "an index")
        whole(offset, "an offset")
        require(0 <= index < MOST_BUFFERS, f"buffer index {index} is not below {MOST_BUFFERS}")
        require(0 <= offset < buffer.length(), f"offset {offset} is outside of a buffer of {buffer.length()} bytes")
        return replace(self, buffers=self.buffers | {index: (buffer, offset)})

    def with_bytes(self, index: int, data: bytes) -> Recorded:
        require(isinstance(data, bytes | bytearray), "bytes are expected")
        require(0 <= whole(index, "an index") < MOST_BUFFERS, f"buffer index {index} is not below {MOST_BUFFERS}")
        require(0 < len(data) <= MOST_BYTES, f"setBytes takes 1 to {MOST_BYTES} bytes, not {len(data)}")
        return replace(self, buffers=self.buffers | {index: bytes(data)})

    def with_shared(self, index: int, nbytes: int) -> Recorded:
        require(whole(index, "an index") < MOST_BUFFERS, f"there is no threadgroup index {index}")
        require(
            whole(nbytes, "a length") % 16 == 0, f"a length of threadgroup memory is a multiple of 16, not {nbytes}"
        )
        return replace(self, shared=self.shared | {index: nbytes})

    def dispatched(self, grid: Any, group: Any, by_threads: bool) -> Recorded:
        require(self.pipeline is not None, "a dispatch needs a pipeline state")
        assert self.pipeline is not None
        grid, group = wholes(grid, 3, "a size"), wholes(group, 3, "a size")
        require(all(one > 0 for one in (*grid, *group)), "no extent of a grid is zero")
        threads = group[0] * group[1] * group[2]
        most = self.pipeline.maxTotalThreadsPerThreadgroup()
        require(threads <= most, f"{threads} threads in a group are more than {most}")
        return replace(self, grid=(grid, group, by_threads))

    def used_buffers(self) -> list[tuple[Buffer, bool]]:
        """The buffers that the kernel's arguments are bound to, and whether it may write to them."""
        assert self.pipeline is not None
        found = []
        for argument in self.pipeline.kernel.signature.arguments:
            bound = self.buffers.get(argument.index)
            if bound is not None and not isinstance(bound, bytes):
                found.append((bound[0], argument.access != "read"))
        return found

    def lowered(self, constant_step: int) -> bytes:
        """The record that the CPU runtime runs."""
        assert self.pipeline is not None
        assert self.grid is not None
        kernel = self.pipeline.kernel
        bindings: list[Binding] = []
        sized = zip(kernel.signature.arguments, kernel.argument_bytes, kernel.argument_alignments, strict=True)
        for argument, size, alignment in sized:
            where = f"kernel {kernel.name}, buffer {argument.index} '{argument.name}'"
            bound = self.buffers.get(argument.index)
            if bound is None and not argument.used:
                bindings.append(UnboundBinding(argument.index, size if argument.kind == "value" else 0))
                continue
            require(bound is not None, f"{where}: nothing is bound")
            if isinstance(bound, bytes):
                require(
                    len(bound) >= (size if argument.kind == "value" else 1), f"{where}: {len(bound)} of {size} bytes"
                )
                bindings.append(InlineBinding(argument.index, bound))
                continue
            assert bound is not None
            buffer, offset = bound
            step = max(constant_step if argument.space == "constant" else 1, alignment)
            require(offset % step == 0, f"{where}: offset {offset} is not a multiple of {step}")
            rest = buffer.length() - offset
            require(argument.kind != "value" or rest >= size, f"{where}: {rest} of {size} bytes")
            bindings.append(BufferBinding(argument.index, 0, buffer.address + offset, offset, rest, True))
        shared = []
        for one in kernel.signature.shared:
            sized_here = one.index in self.shared or not one.used
            require(sized_here, f"kernel {kernel.name}: no length for threadgroup {one.index}")
            shared.append(self.shared.get(one.index, 0))
        require(kernel.threadgroup_bytes + sum(shared) <= THREADGROUP_MEMORY, "too much threadgroup memory")
        grid, group, by_threads = self.grid
        if by_threads:
            threads, groups = grid, tuple(-(-one // size) for one, size in zip(grid, group, strict=True))
        else:
            threads, groups = tuple(one * size for one, size in zip(grid, group, strict=True)), grid
        kind = DispatchKind.Threads if by_threads else DispatchKind.ThreadGroups
        return pack(Dispatch(kernel, tuple(bindings), kind, threads, groups, group, tuple(shared)))
