"""Checks of the arguments of operations, with their error messages."""

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
"""Supported dtypes, with the suffix of the kernel's name."""

EXPONENTIAL_FLOPS = 8
"""Flops that an exponential or a tanh counts as."""
GATE_FLOPS = EXPONENTIAL_FLOPS + 4
"""silu(gate) · up"""

FOURS = "_fours"
"""In the name of kernels that read and write four elements as one vector."""
EIGHTS = "_eights"
"""The same for eight elements of 16 bits."""
_FOURS_FROM = 1 << 16

Index = int | np.integer[Any] | Param
"""A position: a number, or a parameter of replays."""
Number = float | np.floating[Any] | Param
"""A value: a number, or a parameter of replays."""


def find(encoder: CommandEncoder, source: str, function: str, *, alone: bool = False) -> Kernel:
    """A built-in kernel for the encoder's device, compiled with its source or `alone`."""
    return compiled.kernel(encoder._queue, compiled.module(source), function, alone=alone)


def prefers_plain(encoder: CommandEncoder) -> bool:
    """Whether the kernels without simdgroups and staging are the faster ones on the encoder's device."""
    return encoder._queue.backend.capabilities.plain_loops


def prefers_tensors(encoder: CommandEncoder) -> bool:
    """Whether matrices of half and bfloat are best multiplied by `matmul2d` on the encoder's device."""
    return encoder._queue.backend.capabilities.multiplies_tensors


def check_buffers(name: str, *buffers: Buffer) -> None:
    """Raises `ArgumentError` for what is not a buffer, or is empty."""
    for buffer in buffers:
        if type(buffer) is not Buffer:
            raise ArgumentError(f"{name}: expected a Buffer, got {buffer!r}")
        if not buffer.size:
            raise ArgumentError(f"{name}: {buffer!r} is empty; there is nothing to do")


def type_ending(name: str, first: Buffer, *others: Buffer) -> str:
    """The suffix of the kernel's name; checks that all buffers have the same dtype."""
    check_buffers(name, first, *others)
    for buffer in others:
        if buffer.dtype != first.dtype:
            raise ArgumentError(f"{name}: {buffer!r} does not match {first!r}; expected the same dtype")
    ending = TYPES.get(first.dtype.name)
    if ending is None:
        raise ArgumentError(f"{name}: there is no kernel for {first.dtype.name}; supported are {', '.join(TYPES)}")
    return ending


def same_elements(name: str, out: Buffer, *others: Buffer) -> str:
    """The suffix of the kernel's name; checks that all buffers have the same dtype and size."""
    check_buffers(name, out, *others)
    for buffer in others:
        if buffer.dtype != out.dtype or buffer.size != out.size:
            raise ArgumentError(f"{name}: {buffer!r} does not match {out!r}; expected the same dtype and size")
    return type_ending(name, out)


def check_dtype(name: str, what: str, buffer: Buffer, dtype: Any) -> None:
    """Raises `ArgumentError` for a buffer of another dtype."""
    check_buffers(name, buffer)
    if buffer.dtype != dtype:
        raise ArgumentError(f"{name}: {what} must be {np.dtype(dtype).name}, not {buffer!r}")


def check_size(name: str, what: str, buffer: Buffer, expected: int) -> None:
    """Raises `ArgumentError` for a buffer with another number of elements."""
    if buffer.size != expected:
        raise ArgumentError(f"{name}: {what} must have {expected} elements; {buffer!r} has {buffer.size}")


def axes(name: str, what: str, buffer: Buffer, *meaning: str) -> tuple[int, ...]:
    """The shape of a buffer; checks its number of axes."""
    if len(buffer.shape) != len(meaning):
        raise ArgumentError(f"{name}: {what} must be [{', '.join(meaning)}], not {buffer!r}")
    return buffer.shape


def tokens_heads_size(name: str, what: str, buffer: Buffer) -> tuple[int, int, int]:
    """The shape of [tokens, heads, size]; [heads, size] is one token."""
    shape = (1, *buffer.shape) if len(buffer.shape) == 2 else buffer.shape
    if len(shape) != 3:
        raise ArgumentError(f"{name}: {what} must be [tokens, heads, size] or [heads, size], not {buffer!r}")
    return shape[0], shape[1], shape[2]


def check_index(name: str, what: str, value: Index, below: int | None = None) -> None:
    """Raises `ArgumentError` for what is not an index, or is too large."""
    if isinstance(value, Param):
        return
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise ArgumentError(f"{name}: {what} must be a non-negative integer or a parameter, not {value!r}")
    if below is not None and value >= below:
        raise ArgumentError(f"{name}: {what} {value} is too large; it must be less than {below}")


def is_aligned(to_bytes: int, row_bytes: int, *buffers: Buffer) -> bool:
    """Whether all rows start at multiples of `to_bytes`."""
    places = (buffer._allocation().backing.address + buffer._offset for buffer in buffers)
    return not any(place % to_bytes for place in (row_bytes, *places))


def fours(encoder: CommandEncoder, width: int, elements: int, *buffers: Buffer, most: int = 4) -> tuple[int, str]:
    """How many elements a thread takes, and what the kernel's name has for it.

    A GPU is faster with four, read and written as one vector, if they are many, in rows of whole and aligned vectors;
    with `most` of eight, elements of 16 bits are taken by eight.
    """
    if prefers_plain(encoder) or elements < _FOURS_FROM:
        return 1, ""

    def fits(each: int) -> bool:
        return not width % each and all(is_aligned(each * buffer.dtype.itemsize, 0, buffer) for buffer in buffers)

    if most == 8 and all(buffer.dtype.itemsize == 2 for buffer in buffers) and fits(8):
        return 8, EIGHTS
    return (4, FOURS) if fits(4) else (1, "")
