"""Products with quantised weights, rows of a quantised table, and products with the experts of many tokens.

Weights are uint8 [out, bytes of a row], as files store them; `form` is their format (`ops.formats`). Each product has
two kernels: in one a thread sums a row (CPUs), in the other simdgroups do (GPUs).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..encode.encoder import CommandEncoder
from ..errors import ArgumentError
from ..runtime.buffer import Buffer
from ..runtime.library import Kernel
from . import compiled
from .checks import (
    axes,
    check_buffers,
    check_dtype,
    check_size,
    is_aligned,
    prefers_plain,
    type_ending,
)
from .choices import choose
from .formats import STEP, Format

SOURCE = "quantised"
TOGETHER = 8
"""Rows of x that are multiplied with a row of the weights at a time."""
_ROWS, _ROWS_TRIED = 8, (8, 1, 2, 4, 16, 32, 64)
_SIMDGROUPS, _SIMDGROUPS_TRIED = 4, (8, 4, 2, 1)


def matvec_blocks(encoder: CommandEncoder, form: Format, weight: Buffer, x: Buffer, out: Buffer) -> None:
    """out = weight · x, for weights uint8 [out, bytes of a row] in a format of blocks."""
    name = "matvec_blocks"
    ending, rows, width = _checked(name, form, weight, x, out)
    check_size(name, "x", x, width)
    check_size(name, "out", out, rows)
    _multiply(encoder, form, ending, weight, x, out, (rows, width, 1, rows))


def matmul_blocks(
    encoder: CommandEncoder, form: Format, weight: Buffer, x: Buffer, out: Buffer, *, column: int = 0
) -> None:
    """out[token] = weight · x[token], for weights uint8 [out, bytes of a row] and x [tokens, in].

    If rows of `out` are longer, the results are those from `column` on, and the rest of `out` stays.
    """
    name = "matmul_blocks"
    ending, rows, width = _checked(name, form, weight, x, out)
    tokens, stride, part = columns_of(name, weight, x, out, rows, width, column)
    _multiply(encoder, form, ending, weight, x, part, (rows, width, tokens, stride))


def columns_of(
    name: str, weight: Buffer, x: Buffer, out: Buffer, rows: int, width: int, column: int
) -> tuple[int, int, Buffer]:
    """Tokens, the length of a row of `out`, and `out` from a column on; checks that a product fits there."""
    if x.size % width:
        raise ArgumentError(f"{name}: {x!r} must have rows of {width} for {weight!r}")
    tokens = x.size // width
    stride, rest = divmod(out.size, tokens)
    if rest or column < 0 or column + rows > stride:
        raise ArgumentError(
            f"{name}: out must have rows of at least {column + rows} elements for {tokens} tokens; got {out!r}"
        )
    return tokens, stride, out.view(shape=(out.size,))[column : (tokens - 1) * stride + column + rows]


def embedding_blocks(encoder: CommandEncoder, form: Format, table: Buffer, tokens: Buffer, out: Buffer) -> None:
    """out[i] = table[tokens[i]], for a table uint8 [rows, bytes of a row]; a token past the last row gives NaN."""
    name = "embedding_blocks"
    check_dtype(name, "tokens", tokens, np.uint32)
    ending, rows, width = _checked(name, form, table, out)
    check_size(name, "out", out, tokens.size * width)
    encoder.dispatch(
        find(encoder, form, f"look_up_{form.kernel}_{ending}"),
        *(table, tokens, out, width, rows),
        threads=(width // STEP, tokens.size),
        bytes_read=tokens.size * form.row_bytes(width) + tokens.nbytes,
        bytes_written=out.nbytes,
        flops=2 * out.size,
    )


def expert_lists(encoder: CommandEncoder, indices: Buffer, order: Buffer, starts: Buffer) -> None:
    """The slots of each expert, for `expert_matmul`: those of expert e are order[starts[e]] up to order[starts[e + 1]].

    `indices` are the experts of the slots, `order` has as many elements, `starts` one more than there are experts. An
    index past the last expert is in no list.
    """
    name = "expert_lists"
    for what, buffer in (("indices", indices), ("order", order), ("starts", starts)):
        check_dtype(name, what, buffer, np.uint32)
    check_size(name, "order", order, indices.size)
    experts = starts.size - 1
    if experts < 1:
        raise ArgumentError(f"{name}: {starts!r} must have one element more than there are experts")
    encoder.dispatch(
        find(encoder, None, name),
        *(indices, order, starts, indices.size, experts),
        threads=experts,
        group_size=1 if prefers_plain(encoder) else 32,
        bytes_read=indices.nbytes,
        bytes_written=order.nbytes + starts.nbytes,
        flops=2 * experts * indices.size,
    )


def expert_matmul(
    encoder: CommandEncoder,
    form: Format | None,
    weight: Buffer,
    x: Buffer,
    indices: Buffer,
    out: Buffer,
    *,
    order: Buffer | None = None,
    starts: Buffer | None = None,
) -> None:
    """out[slot] = weight[indices[slot]] · x[slot], for weights uint8 [experts, out, bytes of a row] in blocks.

    `x` has a row per slot, or a row per token for all its slots. With the lists that `expert_lists` made, each expert
    reads its weights once for all its slots; without them, once for each slot, and an index past the last expert gives
    NaN. Without a format the weights are [experts, out, in], with rows of a multiple of 16.
    """
    name = "expert_matmul"
    check_dtype(name, "indices", indices, np.uint32)
    if form is None:
        ending = type_ending(name, weight, x, out)
        experts, rows, width = axes(name, "weight", weight, "experts", "out", "in")
        if width % STEP:
            raise ArgumentError(f"{name}: rows of {width} are not a multiple of {STEP}")
    else:
        axes(name, "weight", weight, "experts", "out", "bytes")
        experts = weight.shape[0]
        ending, rows, width = _checked(name, form, weight, x, out)
    slots = indices.size
    check_size(name, "out", out, slots * rows)
    if x.size % width or slots % (x.size // width):
        raise ArgumentError(
            f"{name}: {x!r} must have rows of {width}, and their number must divide the {slots} slots of {indices!r}"
        )
    listed = order is not None and starts is not None
    lists = [order, starts] if order is not None and starts is not None else [indices, indices]
    if listed:
        for what, buffer, size in (("order", lists[0], slots), ("starts", lists[1], experts + 1)):
            check_dtype(name, what, buffer, np.uint32)
            check_size(name, what, buffer, size)
    words = weight.view(np.uint8) if form is None else weight
    arguments = [words, x, indices, *lists, out, width, rows, slots * width // x.size, experts, int(listed)]
    per_slot = weight.nbytes // experts
    kernel = f"{'dense' if form is None else form.kernel}_{ending}_{TOGETHER if listed or form is None else 1}"
    _rows(
        *(encoder, form, "by_experts", kernel, arguments, (rows, experts if listed else slots, width)),
        # The experts of one token differ. Those of several tokens may coincide, so the bytes read are not known.
        bytes_read=slots * per_slot + x.nbytes + indices.nbytes if len(indices.shape) == 1 and not listed else None,
        bytes_written=out.nbytes,
        flops=2 * slots * rows * width,
    )


def _checked(name: str, form: Format, weight: Buffer, *others: Buffer) -> tuple[str, int, int]:
    """The suffix of the kernel's name, the rows of a matrix and their width; checks what all have in common."""
    check_buffers(name, weight)
    if not isinstance(form, Format):
        raise ArgumentError(f"{name}: form is a Format, such as ops.FORMATS['Q4_0'], not {form!r}")
    check_dtype(name, "weights", weight, np.uint8)
    if len(weight.shape) < 2:
        raise ArgumentError(f"{name}: weight must be [out, bytes of a row], not {weight!r}")
    rows, row_bytes = weight.shape[-2:]
    if row_bytes % form.nbytes:
        raise ArgumentError(
            f"{name}: rows of {row_bytes} bytes are not a multiple of blocks of {form.nbytes} ({form.name})"
        )
    step = 4 if form.nbytes % 4 == 0 and form.kind is None else 2
    if not is_aligned(step, row_bytes, weight):
        raise ArgumentError(f"{name}: {weight!r} starts at an odd address; blocks hold scales of 2 bytes or 4")
    return type_ending(name, *others), rows, row_bytes // form.nbytes * form.weights


def _multiply(
    encoder: CommandEncoder,
    form: Format,
    ending: str,
    weight: Buffer,
    x: Buffer,
    out: Buffer,
    shape: tuple[int, int, int, int],
) -> None:
    rows, width, tokens, stride = shape
    each = 1 if tokens == 1 else TOGETHER
    _rows(
        *(encoder, form, "multiply", f"{form.kernel}_{ending}_{each}", [weight, x, out, width, rows, tokens, stride]),
        (rows, -(-tokens // each), width),
        bytes_read=weight.nbytes + x.nbytes,
        bytes_written=tokens * rows * out.dtype.itemsize,
        flops=2 * tokens * rows * width,
    )


def _rows(
    encoder: CommandEncoder,
    form: Format | None,
    function: str,
    instance: str,
    arguments: list[Any],
    shape: tuple[int, int, int],
    **costs: Any,
) -> None:
    """Dispatch with one row of the weights per thread, or per simdgroup; the second of the shape is the second axis."""
    rows, others, _ = shape
    if prefers_plain(encoder):
        kernel = f"{function}_plain_{instance}"
        chosen = _choice(encoder, kernel, shape, {"rows": _ROWS}, {"rows": _ROWS_TRIED})["rows"]
        grid: dict[str, Any] = {"threads": (rows, others), "group_size": (chosen, 1)}
    else:
        kernel = f"{function}_{instance}"
        tried = {"simdgroups": _SIMDGROUPS_TRIED}
        chosen = _choice(encoder, kernel, shape, {"simdgroups": _SIMDGROUPS}, tried)["simdgroups"]
        grid = {"groups": (-(-rows // chosen), others), "group_size": 32 * chosen}
    encoder.dispatch(find(encoder, form, kernel), *arguments, **grid, **costs)


def _choice(
    encoder: CommandEncoder,
    kernel: str,
    shape: tuple[int, ...],
    defaults: Mapping[str, int],
    values: Mapping[str, tuple[int, ...]],
) -> Mapping[str, int]:
    return choose(encoder, SOURCE, kernel, kernel, shape, defaults, values)


def find(encoder: CommandEncoder, form: Format | None, function: str) -> Kernel:
    """A kernel of the source for this format."""
    constants = {} if form is None else form.constants
    return compiled.kernel(encoder._queue, compiled.module(SOURCE), function, constants)
