"""Launchers of matrix by vector and matrix by matrix. Weights are [out, in], as models keep them.

There are two kernels for each: one in which a thread sums a row (CPUs), one in which a simdgroup does (GPUs).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..buffer import Buffer
from ..encoder import CommandEncoder
from ..errors import ArgumentError
from ..pipeline import Kernel
from .checks import axes, check_buffers, check_dtype, check_size, find, is_aligned, on_cpu, type_ending

_ROWS_TOGETHER = 8
_SIMDGROUPS = 4
_TILE_ON_CPU = (2, 4)
_TILE = 64


def matvec(encoder: CommandEncoder, weight: Buffer, x: Buffer, out: Buffer) -> None:
    """out = weight · x, for weights [out, in]."""
    ending = type_ending("matvec", weight, x, out)
    rows, width = axes("matvec", "weight", weight, "out", "in")
    check_size("matvec", "x", x, width)
    check_size("matvec", "out", out, rows)
    given: list[Any] = [weight, x, out, width]
    if not on_cpu(encoder):
        given += [rows, int(is_aligned(16, width * weight.dtype.itemsize, weight, x))]
    _by_rows(encoder, "matvec", ending, given, rows, 1, weight.nbytes + x.nbytes, out.nbytes, 2 * rows * width)


def expert_matvec(encoder: CommandEncoder, weight: Buffer, x: Buffer, indices: Buffer, out: Buffer) -> None:
    """out[slot] = weight[indices[slot]] · x[slot], for weights [experts, out, in] and indices made on the device.

    `x` has a row for each slot, or one for all slots of a token: then as many rows as there are tokens. An index past
    the last expert gives NaN.
    """
    name = "expert_matvec"
    ending = type_ending(name, weight, x, out)
    check_dtype(name, "indices", indices, np.uint32)
    experts, rows, width = axes(name, "weight", weight, "experts", "out", "in")
    slots = indices.size
    check_size(name, "out", out, slots * rows)
    if x.size % width or slots % (x.size // width):
        raise ArgumentError(
            f"{name}: {x!r} is no whole number of rows of {width} that goes into the {slots} slots of {indices!r}"
        )
    given: list[Any] = [weight, x, indices, out, width, slots * width // x.size, experts]
    if not on_cpu(encoder):
        given += [rows, int(is_aligned(16, width * weight.dtype.itemsize, weight, x))]
    # Slots may share an expert; the most that can be read is a matrix for each.
    read = min(slots, experts) * rows * width * weight.dtype.itemsize + x.nbytes + indices.nbytes
    _by_rows(encoder, name, ending, given, rows, slots, read, out.nbytes, 2 * slots * rows * width)


def matmul(encoder: CommandEncoder, weight: Buffer, x: Buffer, out: Buffer) -> None:
    """out[token] = weight · x[token], for weights [out, in] and x [tokens, in]."""
    name = "matmul"
    ending = type_ending(name, weight, x, out)
    rows, width = axes(name, "weight", weight, "out", "in")
    if x.size % width:
        raise ArgumentError(f"{name}: {x!r} is no whole number of rows of {width}, as {weight!r} takes")
    tokens = x.size // width
    check_size(name, "out", out, tokens * rows)
    plain = on_cpu(encoder)
    if plain:
        grid: dict[str, Any] = {
            "threads": (-(-rows // _TILE_ON_CPU[0]), -(-tokens // _TILE_ON_CPU[1])),
            "group_size": (_ROWS_TOGETHER, 1),
        }
    else:
        grid = {"groups": (-(-rows // _TILE), -(-tokens // _TILE)), "group_size": 256}
    encoder.dispatch(
        find(encoder, "matvec_plain" if plain else "matvec", f"{name}_{ending}"),
        *(weight, x, out, width, rows, tokens),
        **grid,
        bytes_read=weight.nbytes + x.nbytes,
        bytes_written=out.nbytes,
        flops=2 * tokens * rows * width,
    )


def matvec_q4_0(encoder: CommandEncoder, weight: Buffer, x: Buffer, out: Buffer) -> None:
    """out = weight · x, for weights in GGUF's Q4_0: uint8 [out, in / 32 · 18]."""
    _blocks(encoder, "matvec_q4_0", 18, weight, x, out)


def matvec_q8_0(encoder: CommandEncoder, weight: Buffer, x: Buffer, out: Buffer) -> None:
    """out = weight · x, for weights in GGUF's Q8_0: uint8 [out, in / 32 · 34]."""
    _blocks(encoder, "matvec_q8_0", 34, weight, x, out)


def matvec_affine4(
    encoder: CommandEncoder, weight: Buffer, scales: Buffer, biases: Buffer, x: Buffer, out: Buffer
) -> None:
    """out = weight · x, for weights in MLX's affine 4 bits: uint32 [out, in / 8], scales and biases [out, in / 64]."""
    name = "matvec_affine4"
    check_dtype(name, "weights", weight, np.uint32)
    ending = type_ending(name, x, out, scales, biases)
    rows, words = axes(name, "weight", weight, "out", "in / 8")
    width = words * 8
    if width % 64:
        raise ArgumentError(f"{name}: rows of {width} are no whole number of groups of 64")
    for what, one, expected in (
        ("x", x, width),
        ("out", out, rows),
        ("scales", scales, rows * width // 64),
        ("biases", biases, rows * width // 64),
    ):
        check_size(name, what, one, expected)
    given: list[Any] = [weight, scales, biases, x, out, width]
    if not on_cpu(encoder):
        given.append(rows)
    read = weight.nbytes + scales.nbytes + biases.nbytes + x.nbytes
    _by_rows(encoder, name, ending, given, rows, 1, read, out.nbytes, 2 * rows * width, "quantised")


def _blocks(encoder: CommandEncoder, name: str, block_bytes: int, weight: Buffer, x: Buffer, out: Buffer) -> None:
    check_buffers(name, weight)
    check_dtype(name, "weights", weight, np.uint8)
    ending = type_ending(name, x, out)
    rows, row_bytes = axes(name, "weight", weight, "out", f"in / 32 · {block_bytes}")
    if row_bytes % block_bytes:
        raise ArgumentError(f"{name}: rows of {row_bytes} bytes are no whole number of blocks of {block_bytes}")
    width = row_bytes // block_bytes * 32
    check_size(name, "x", x, width)
    check_size(name, "out", out, rows)
    if not is_aligned(2, row_bytes, weight):
        raise ArgumentError(f"{name}: {weight!r} starts at an odd address; its blocks begin with a float16")
    given: list[Any] = [weight, x, out, width]
    if not on_cpu(encoder):
        given.append(rows)
    _by_rows(encoder, name, ending, given, rows, 1, weight.nbytes + x.nbytes, out.nbytes, 2 * rows * width, "quantised")


def _by_rows(
    encoder: CommandEncoder,
    name: str,
    ending: str,
    given: list[Any],
    rows: int,
    slots: int,
    bytes_read: int,
    bytes_written: int,
    flops: int,
    source: str = "matvec",
) -> None:
    """A row of the weights a thread, or a simdgroup; along the second axis the slots."""
    plain = on_cpu(encoder)
    kernel: Kernel = find(encoder, f"{source}_plain" if plain else source, f"{name}_{ending}")
    if plain:
        grid: dict[str, Any] = {"threads": (rows, slots), "group_size": (_ROWS_TOGETHER, 1)}
    else:
        grid = {"groups": (-(-rows // _SIMDGROUPS), slots), "group_size": 32 * _SIMDGROUPS}
    encoder.dispatch(kernel, *given, **grid, bytes_read=bytes_read, bytes_written=bytes_written, flops=flops)
