"""Products of many rows of floats on a CPU whose simdgroups run as vectors; `matmul` is the one for every device."""

from __future__ import annotations

from ..encode.encoder import CommandEncoder
from ..errors import ArgumentError
from ..runtime.buffer import Buffer
from ..runtime.queue import Queue
from . import compiled
from .checks import TYPES, axes, check_dtype, check_size, type_ending

SOURCE = "many_rows"
_ROWS, _SIMDGROUPS = 4, 8
STEP = 32
"""Rows are a multiple of so many elements."""


def multiplies_many(queue: Queue, dtype: str) -> bool:
    """Whether `matmul_many` is the faster product on a device."""
    if not queue.backend.capabilities.plain_loops:
        return False
    kernel = compiled.kernel(queue, compiled.module(SOURCE), f"multiply_many_{TYPES[dtype]}")
    return kernel.execution is not None and kernel.execution.way == "vector"


def matmul_many(encoder: CommandEncoder, weight: Buffer, x: Buffer, out: Buffer, wide: Buffer) -> None:
    """out[token] = weight · x[token], for weights [out, in], rows of a multiple of 32, and x [tokens, in].

    `wide` has room for x in float32.
    """
    name = "matmul_many"
    ending = type_ending(name, weight, x, out)
    check_dtype(name, "wide", wide, "float32")
    rows, width = axes(name, "weight", weight, "out", "in")
    if x.size % width or width % STEP:
        raise ArgumentError(f"{name}: {x!r} must have rows of {width} for {weight!r}, a multiple of {STEP}")
    tokens = x.size // width
    check_size(name, "out", out, tokens * rows)
    if wide.size < x.size:
        raise ArgumentError(f"{name}: wide must have room for {x.size} elements; {wide!r} has {wide.size}")
    room = wide.view(shape=(wide.size,))[: x.size]
    source = compiled.module(SOURCE)
    encoder.dispatch(
        compiled.kernel(encoder._queue, source, f"widen_{ending}"),
        *(x, room),
        threads=x.size,
        group_size=256,
        bytes_read=x.nbytes,
        bytes_written=room.nbytes,
        flops=0,
    )
    encoder.dispatch(
        compiled.kernel(encoder._queue, source, f"multiply_many_{ending}"),
        *(weight, room, out, width, rows, tokens),
        groups=-(-rows // (_ROWS * _SIMDGROUPS)),
        group_size=32 * _SIMDGROUPS,
        bytes_read=weight.nbytes + room.nbytes,
        bytes_written=out.nbytes,
        flops=2 * tokens * rows * width,
    )
