"""What launchers ask of their arguments, and the words for what does not fit."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..encode.encoder import CommandEncoder
from ..errors import ArgumentError
from ..ir.params import Param
from ..runtime.buffer import Buffer
from ..runtime.library import Kernel
from . import compiled

TYPES = {"float32": "float", "float16": "half", "bfloat16": "bfloat"}
"""What the kernels are made for: the NumPy dtype, and the ending of the kernel's name."""

EXPONENTIAL_FLOPS = 8
"""What an exponential or a tanh is counted as."""
GATE_FLOPS = EXPONENTIAL_FLOPS + 4
"""silu(gate) · up"""

Index = int | np.integer[Any] | Param
"""A position: known now, or given with every replay."""
Number = float | np.floating[Any] | Param
"""A value: known now, or given with every replay."""


def find(encoder: CommandEncoder, source: str, function: str) -> Kernel:
    """A kernel of ours for the encoder's device."""
    return compiled.kernel(encoder._queue, compiled.module(source), function)


def prefers_plain(encoder: CommandEncoder) -> bool:
    """Whether the kernels without simdgroups and staging are the faster ones on the encoder's device."""
    return encoder._queue.backend.capabilities.plain_loops


def check_buffers(name: str, *buffers: Buffer) -> None:
    """Refuse what is no buffer, or an empty one."""
    for one in buffers:
        if type(one) is not Buffer:
            raise ArgumentError(f"{name}: expected a Buffer, got {one!r}")
        if not one.size:
            raise ArgumentError(f"{name}: {one!r} is empty; there is nothing to do")


def type_ending(name: str, first: Buffer, *others: Buffer) -> str:
    """The ending of the kernel's name, for buffers of one type."""
    check_buffers(name, first, *others)
    for one in others:
        if one.dtype != first.dtype:
            raise ArgumentError(f"{name}: {one!r} does not go with {first!r}; the same dtype is expected")
    ending = TYPES.get(first.dtype.name)
    if ending is None:
        raise ArgumentError(f"{name}: there is no kernel for {first.dtype.name}; there is one for {', '.join(TYPES)}")
    return ending


def same_elements(name: str, out: Buffer, *others: Buffer) -> str:
    """The ending of the kernel's name, for buffers of one type and size."""
    check_buffers(name, out, *others)
    for one in others:
        if one.dtype != out.dtype or one.size != out.size:
            raise ArgumentError(f"{name}: {one!r} does not go with {out!r}; the same dtype and size are expected")
    return type_ending(name, out)


def check_dtype(name: str, what: str, buffer: Buffer, dtype: Any) -> None:
    """Refuse a buffer of another dtype."""
    check_buffers(name, buffer)
    if buffer.dtype != dtype:
        raise ArgumentError(f"{name}: {what} are {np.dtype(dtype).name}, not {buffer!r}")


def check_size(name: str, what: str, buffer: Buffer, expected: int) -> None:
    """Refuse a buffer with another number of elements."""
    if buffer.size != expected:
        raise ArgumentError(f"{name}: {what} has {expected} elements here; {buffer!r} has {buffer.size}")


def axes(name: str, what: str, buffer: Buffer, *meaning: str) -> tuple[int, ...]:
    """The shape of a buffer that must have so many axes."""
    if len(buffer.shape) != len(meaning):
        raise ArgumentError(f"{name}: {what} is [{', '.join(meaning)}], not {buffer!r}")
    return buffer.shape


def tokens_heads_size(name: str, what: str, buffer: Buffer) -> tuple[int, int, int]:
    """The shape of [tokens, heads, size]; [heads, size] is one token."""
    shape = (1, *buffer.shape) if len(buffer.shape) == 2 else buffer.shape
    if len(shape) != 3:
        raise ArgumentError(f"{name}: {what} is [tokens, heads, size] or [heads, size], not {buffer!r}")
    return shape[0], shape[1], shape[2]


def check_index(name: str, what: str, value: Index, below: int | None = None) -> None:
    """Refuse what is no index, or one that is known to be too large."""
    if isinstance(value, Param):
        return
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise ArgumentError(f"{name}: {what} is an integer from 0, or a parameter; not {value!r}")
    if below is not None and value >= below:
        raise ArgumentError(f"{name}: {what} {value} is too large; it must be less than {below}")


def is_aligned(to_bytes: int, row_bytes: int, *buffers: Buffer) -> bool:
    """Whether all rows start at multiples of so many bytes."""
    places = (one._allocation().backing.address + one._offset for one in buffers)
    return not any(place % to_bytes for place in (row_bytes, *places))
