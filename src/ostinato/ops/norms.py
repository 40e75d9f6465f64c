"""RMS norm, alone and fused with its neighbours."""

from __future__ import annotations

import numpy as np

from ..encode.encoder import CommandEncoder
from ..errors import ArgumentError
from ..ir.commands import CapturedOpKind
from ..ir.params import Param
from ..runtime.buffer import Buffer
from ..runtime.library import Kernel
from .checks import find, fours, prefers_plain, same_elements

_MOST_THREADS = 256
_MOST_THREADS_ON_GPU = 1024
_KEPT = 8
"""Elements of a row that a thread of the GPU kernels keeps in registers."""
_KEPT_BYTES = 32
"""The same where they are read as vectors, in bytes."""
_MANY_ROWS = 128


def rms_norm(
    encoder: CommandEncoder, x: Buffer, weight: Buffer, out: Buffer, eps: float | np.float32 | Param = 1e-6
) -> None:
    """out = x / sqrt(mean(x²) + eps) * weight, over rows as long as `weight`. `out` may be `x`."""
    ending = same_elements("rms_norm", out, x)
    rows, width = _rows("rms_norm", out, weight)
    kernel, threads = _kernel(encoder, "rms_norm", ending, rows, width, x, weight, out)
    encoder.dispatch(
        kernel,
        *(x, weight, out, width, eps),
        groups=rows,
        group_size=threads,
        op_kind=CapturedOpKind.RmsNorm,
        bytes_read=x.nbytes + weight.nbytes,
        bytes_written=out.nbytes,
        flops=4 * out.size,
    )


def rms_norm_mul(
    encoder: CommandEncoder,
    x: Buffer,
    weight: Buffer,
    factor: Buffer,
    out: Buffer,
    eps: float | np.float32 | Param = 1e-6,
) -> None:
    """out = rms_norm(x, weight) * factor, element by element, in one dispatch. `out` may be `x` or `factor`."""
    ending = same_elements("rms_norm_mul", out, x, factor)
    rows, width = _rows("rms_norm_mul", out, weight)
    kernel, threads = _kernel(encoder, "rms_norm_mul", ending, rows, width, x, weight, factor, out)
    encoder.dispatch(
        kernel,
        *(x, weight, factor, out, width, eps),
        groups=rows,
        group_size=threads,
        op_kind=CapturedOpKind.RmsNorm,
        bytes_read=x.nbytes + weight.nbytes + factor.nbytes,
        bytes_written=out.nbytes,
        flops=5 * out.size,
    )


def add_rms_norm(
    encoder: CommandEncoder,
    a: Buffer,
    b: Buffer,
    weight: Buffer,
    sum: Buffer,
    out: Buffer,
    eps: float | np.float32 | Param = 1e-6,
) -> None:
    """sum = a + b and out = rms_norm(sum, weight), in one dispatch. `sum` may be `a` or `b`."""
    ending = same_elements("add_rms_norm", out, a, b, sum)
    rows, width = _rows("add_rms_norm", out, weight)
    kernel, threads = _kernel(encoder, "add_rms_norm", ending, rows, width, a, b, weight, sum, out)
    encoder.dispatch(
        kernel,
        *(a, b, weight, sum, out, width, eps),
        groups=rows,
        group_size=threads,
        op_kind=CapturedOpKind.RmsNorm,
        bytes_read=a.nbytes + b.nbytes + weight.nbytes,
        bytes_written=sum.nbytes + out.nbytes,
        flops=5 * out.size,
    )


def row_threads(width: int) -> int:
    """Threads per row: a power of two of simdgroups, and no more than there is work for."""
    return min(_MOST_THREADS, max(32, 1 << (width - 1).bit_length()))


def _kernel(
    encoder: CommandEncoder, name: str, ending: str, rows: int, width: int, *buffers: Buffer
) -> tuple[Kernel, int]:
    """The kernel for these rows and its threads per row.

    On a GPU these are enough to keep a row in registers; for few rows as many as there is work for.
    """
    if prefers_plain(encoder):
        return find(encoder, "rms_norm_plain", f"{name}_{ending}"), row_threads(width)
    each, way = fours(encoder, width, rows * width, *buffers)
    kept = _KEPT_BYTES // buffers[0].dtype.itemsize if each > 1 else _KEPT if rows >= _MANY_ROWS else _KEPT // 2
    threads = min(_MOST_THREADS_ON_GPU, max(32, 1 << (-(-width // kept) - 1).bit_length()))
    return find(encoder, "rms_norm", f"{name}{way}_{ending}"), threads


def _rows(name: str, out: Buffer, weight: Buffer) -> tuple[int, int]:
    if type(weight) is not Buffer:
        raise ArgumentError(f"{name}: expected a Buffer of weights, got {weight!r}")
    width = weight.size
    if weight.dtype != out.dtype or not width or out.size % width:
        raise ArgumentError(
            f"{name}: {out!r} must have rows of the length and dtype of the weights {weight!r}, with one"
            " weight per element of a row"
        )
    return out.size // width, width
