"""Quantised weights packed for a CPU, and their products with rows that are rounded to 8 bits.

Weights are packed once, on the device, from the blocks of a file (`pack_blocks`). Rows of x are rounded in blocks of 32
(`round_rows`), as llama.cpp does for such weights, so products are sums of products of bytes. It pays where simdgroups
run as vectors (`packs`), and changes results in the third digit: a number of x is rounded by at most 1/254 of the
largest beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..encode.encoder import CommandEncoder
from ..errors import ArgumentError
from ..runtime.buffer import Buffer
from ..runtime.library import Kernel
from ..runtime.queue import Queue
from . import compiled
from .checks import TYPES, check_dtype, check_size, type_ending
from .formats import Format
from .quantised import columns_of

SOURCE = "packed"
TILE = 32
"""Rows of the weights that are packed together."""
BLOCK = 32
"""Numbers of x with one scale."""
TOGETHER = 4
"""Rows of x that are multiplied at a time."""
_TILES = 4
"""Of a group: a worker reads them one after the other, from neighbouring memory."""

_BITS = {"Q4_0": 4, "Q4_1": 4, "Q5_0": 5, "Q5_1": 5, "Q8_0": 8, "IQ4_NL": 8}
_BITS |= {"Q2_K": 2, "Q3_K": 3, "Q4_K": 4, "Q5_K": 5, "Q6_K": 6}
_PARTS = {"Q2_K": 16, "Q3_K": 16, "Q6_K": 16, "Q4_K": 8, "Q5_K": 8}
_WITH_MINIMA = ("Q4_1", "Q5_1", "Q2_K", "Q4_K", "Q5_K")


@dataclass(frozen=True, slots=True)
class Packed:
    """A packed matrix [rows, width]."""

    form: Format
    rows: int
    width: int
    tiles: Buffer


@dataclass(frozen=True, slots=True)
class Rounded:
    """Room for rounded rows: numbers int8, and for each block its scale and two sums, float32."""

    numbers: Buffer
    scales: Buffer


def can_pack(form: Format) -> bool:
    """Whether there is a packed form of this format."""
    return form.name in _BITS


def packs(queue: Queue, form: Format, dtype: str) -> bool:
    """Whether packed weights of a format are the faster ones on a device: its kernels run as vectors."""
    if not queue.backend.capabilities.plain_loops or not can_pack(form):
        return False
    kernel = _find(queue, f"multiply_packed_{form.kernel}_{TYPES[dtype]}_1")
    return kernel.execution is not None and kernel.execution.way == "vector"


def packed_bytes(form: Format, rows: int, width: int) -> int:
    """The size of a packed matrix."""
    parts, minima = _PARTS.get(form.name, 0), form.name in _WITH_MINIMA
    head = 2 + 2 * minima + parts * (1 + minima)
    per_block = TILE * (head + form.weights * _BITS[form.name] // 8)
    return -(-rows // TILE) * (width // form.weights) * per_block


def rounded_shapes(tokens: int, width: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of numbers and scales for so many rows of x, rounded up to whole steps of a product."""
    rows = 1 if tokens == 1 else -(-tokens // TOGETHER) * TOGETHER
    return (rows, width), (rows, width // BLOCK, 4)


def pack_blocks(encoder: CommandEncoder, form: Format, weight: Buffer, tiles: Buffer) -> Packed:
    """Pack a matrix uint8 [out, bytes of a row] into tiles, uint8 of `packed_bytes`."""
    name = "pack_blocks"
    check_dtype(name, "weights", weight, np.uint8)
    check_dtype(name, "tiles", tiles, np.uint8)
    if len(weight.shape) != 2 or form.name not in _BITS or weight.shape[1] % form.nbytes:
        raise ArgumentError(f"{name}: {weight!r} is no matrix of {form.name} that can be packed")
    rows, width = weight.shape[0], weight.shape[1] // form.nbytes * form.weights
    check_size(name, "tiles", tiles, packed_bytes(form, rows, width))
    encoder.dispatch(
        _find(encoder._queue, f"pack_{form.kernel}"),
        *(weight, tiles, width, rows),
        threads=(-(-rows // TILE) * TILE, width // 32),
        group_size=(TILE, 8),
        bytes_read=weight.nbytes,
        bytes_written=tiles.nbytes,
        flops=0,
    )
    return Packed(form, rows, width, tiles)


def round_rows(encoder: CommandEncoder, x: Buffer, width: int, to: Rounded) -> Rounded:
    """Round rows of x in blocks of 32; returns the part of `to` that holds them."""
    name = "round_rows"
    ending = type_ending(name, x)
    if width % BLOCK or x.size % width:
        raise ArgumentError(f"{name}: {x!r} has no rows of {width} in blocks of {BLOCK}")
    tokens = x.size // width
    numbers, scales = rounded_shapes(tokens, width)
    for what, buffer, dtype, shape in (
        ("numbers", to.numbers, np.int8, numbers),
        ("scales", to.scales, np.float32, scales),
    ):
        check_dtype(name, what, buffer, dtype)
        if buffer.size < np.prod(shape):
            raise ArgumentError(f"{name}: {what} must have room for {list(shape)}, and is {buffer!r}")
    part = Rounded(_start(to.numbers, numbers), _start(to.scales, scales))
    encoder.dispatch(
        _find(encoder._queue, f"round_rows_{ending}"),
        *(x, part.numbers, part.scales, width, tokens),
        threads=(width // BLOCK, numbers[0]),
        # A row is little work: one worker does it before others would have woken up.
        group_size=(min(width // BLOCK, 256), 1),
        bytes_read=x.nbytes,
        bytes_written=part.numbers.nbytes + part.scales.nbytes,
        flops=5 * x.size,
    )
    return part


def matmul_packed(encoder: CommandEncoder, weight: Packed, x: Rounded, out: Buffer, *, column: int = 0) -> None:
    """out[token] = weight · x[token], for rows that `round_rows` gave; `out` has a row for each that was rounded.

    If rows of `out` are longer, the results are those from `column` on, and the rest of `out` stays.
    """
    name = "matmul_packed"
    ending = type_ending(name, out)
    rows, width = weight.rows, weight.width
    if x.numbers.shape[1] != width:
        raise ArgumentError(f"{name}: rows of {x.numbers.shape[1]} numbers do not fit a matrix of {rows} × {width}")
    tokens = min(x.numbers.shape[0], out.shape[0]) if len(out.shape) > 1 else 1
    shown = x.numbers[:tokens]
    tokens, stride, part = columns_of(name, weight.tiles, shown, out, rows, width, column)
    each = 1 if tokens == 1 else TOGETHER
    if x.numbers.shape[0] % each:
        raise ArgumentError(f"{name}: {x.numbers!r} has not the rows that round_rows makes for {tokens} tokens")
    encoder.dispatch(
        _find(encoder._queue, f"multiply_packed_{weight.form.kernel}_{ending}_{each}"),
        *(weight.tiles, x.numbers.view(np.uint32), x.scales, part, width, rows, tokens, stride),
        groups=-(-rows // (TILE * _TILES)),
        group_size=TILE * _TILES,
        bytes_read=weight.tiles.nbytes + x.numbers.nbytes + x.scales.nbytes,
        bytes_written=tokens * rows * out.dtype.itemsize,
        flops=2 * tokens * rows * width,
    )


def _start(buffer: Buffer, shape: tuple[int, ...]) -> Buffer:
    return buffer.view(shape=(buffer.size,))[: int(np.prod(shape))].view(shape=shape)


def _find(queue: Queue, function: str) -> Kernel:
    return compiled.kernel(queue, compiled.module(SOURCE), function)
