"""Commands made from a caller's arguments, fully checked: the encoder's slow path, once per new combination."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..base.source_lines import caller
from ..errors import ArgumentError
from ..ir.commands import Binding, CapturedOpKind, Dispatch, ParamBinding
from ..ir.costs import Amount
from ..ir.scalars import number_bytes
from ..runtime.buffer import Buffer
from ..runtime.library import Kernel
from ..runtime.queue import Queue
from . import bindings, geometry
from .bindings import Declared
from .geometry import Extent


def checked_dispatch(
    queue: Queue,
    kernel: Kernel,
    given: Any,
    shape: tuple[Extent | None, Extent | None, Extent | None],
    *,
    shared: Mapping[int, int] | None,
    reads: Declared,
    writes: Declared,
    op_kind: CapturedOpKind | None,
    label: str | None,
    bytes_read: int | Amount | None,
    bytes_written: int | Amount | None,
    flops: int | Amount | None,
) -> Dispatch:
    """A dispatch whose arguments, grid (threads, groups, group size) and declarations fit the kernel and the device."""
    compiled = kernel._compiled
    capabilities = queue.backend.capabilities
    bound = bindings.bind(compiled, given, queue)
    _check_amounts(compiled.name, bound, bytes_read=bytes_read, bytes_written=bytes_written, flops=flops)
    kind, grid, groups, group_size = geometry.resolve(compiled, *shape, capabilities.simd_width)
    return Dispatch(
        kernel=compiled,
        bindings=bound,
        kind=kind,
        threads=grid,
        groups=groups,
        group_size=group_size,
        shared=bindings.shared_sizes(compiled, shared or {}, capabilities.threadgroup_memory_bytes),
        op_kind=op_kind or CapturedOpKind.Other,
        label=label,
        accesses=bindings.accesses(bound, reads, writes, queue, f"kernel {compiled.name!r}"),
        bytes_read=bytes_read,
        bytes_written=bytes_written,
        flops=flops,
        place=caller(),
    )


def _check_amounts(kernel: str, bound: Sequence[Binding], **amounts: int | Amount | None) -> None:
    """Raise if declared bytes or flops depend on a parameter that the dispatch does not take."""
    taken = {binding.name for binding in bound if isinstance(binding, ParamBinding)}
    for name, amount in amounts.items():
        unknown = amount.params - taken if isinstance(amount, Amount) else None
        if unknown:
            raise ArgumentError(
                f"kernel {kernel!r}: {name} depends on parameter {min(unknown)!r}, which the dispatch does not take"
            )


def fill_pattern(buffer: Buffer, value: Any) -> bytes:
    """The bytes of one element, for a fill to repeat."""
    where = f"fill of {buffer!r}"
    if buffer.dtype.itemsize not in (1, 2, 4, 8):
        raise ArgumentError(f"{where}: elements of {buffer.dtype.itemsize} bytes cannot be filled; use view()")
    if isinstance(value, np.generic | np.ndarray):
        if value.shape or value.dtype != buffer.dtype:
            raise ArgumentError(
                f"{where}: expected one {buffer.dtype.name}, got {value.dtype.name} of shape {value.shape}"
            )
        return value.tobytes()
    if not isinstance(value, bool | int | float):
        raise ArgumentError(f"{where}: {value!r} is not a number")
    try:
        return number_bytes(value, buffer.dtype.name)
    except (ValueError, TypeError) as reason:
        raise ArgumentError(f"{where}: {value!r} is {reason}") from None
