"""Copies and fills as dispatches of the kernels in `copy_fill.metal`, with the widest elements that fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ..ir.commands import (
    Access,
    Binding,
    BufferBinding,
    CompiledKernel,
    Copy,
    Dispatch,
    DispatchKind,
    Fill,
    InlineBinding,
)

SOURCE = Path(__file__).parent / "copy_fill.metal"
"""The kernels, which every device compiles for itself."""

_GROUP = 256
_MOST_GROUPS = 4096


def dispatch_of(command: Copy | Fill, kernels: Mapping[str, CompiledKernel]) -> Dispatch:
    """The dispatch that performs the command."""
    if isinstance(command, Copy):
        source, target = command.source, command.target
        width = _width(16, 4, source.address, target.address, source.nbytes)
        accesses = (target.access(True), source.access(False))
        return _dispatch(kernels[f"copy_{width}"], (source, target), (), source.nbytes // width, accesses)
    target, pattern = command.target, command.pattern
    written = (target.access(True),)
    if target.address % len(pattern):
        values = (pattern.ljust(8, b"\0"), _number(len(pattern), 4))
        return _dispatch(kernels["fill_bytes"], (target,), values, target.nbytes, written)
    width = _width(16, len(pattern), target.address, target.nbytes)
    repeated = pattern * (width // len(pattern))
    return _dispatch(kernels[f"fill_{width}"], (target,), (repeated,), target.nbytes // width, written)


def _width(*sizes: int) -> int:
    """The wide element if all addresses and sizes allow it, else the narrow one, else bytes."""
    wide, narrow, *numbers = sizes
    for width in (wide, narrow):
        if all(number % width == 0 for number in numbers):
            return width
    return 1


def _dispatch(
    kernel: CompiledKernel,
    buffers: tuple[BufferBinding, ...],
    values: tuple[bytes, ...],
    count: int,
    accesses: tuple[Access, ...],
) -> Dispatch:
    # The number of elements follows the first value of a fill, and the buffers of a copy.
    ordered = [*values[:1], _number(count, 8), *values[1:]]
    bindings: tuple[Binding, ...] = (
        *(replace(buffer, index=at) for at, buffer in enumerate(buffers)),
        *(InlineBinding(len(buffers) + at, value) for at, value in enumerate(ordered)),
    )
    groups = max(1, min(-(-count // _GROUP), _MOST_GROUPS))
    return Dispatch(
        kernel=kernel,
        bindings=bindings,
        kind=DispatchKind.ThreadGroups,
        threads=(groups * _GROUP, 1, 1),
        groups=(groups, 1, 1),
        group_size=(_GROUP, 1, 1),
        shared=(),
        accesses=accesses,
    )


def _number(value: int, nbytes: int) -> bytes:
    return value.to_bytes(nbytes, "little")
