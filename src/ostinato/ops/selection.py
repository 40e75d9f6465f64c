"""Softmax, and choices by it: the experts of a token, the next token."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..encode.encoder import CommandEncoder
from ..errors import ArgumentError
from ..ir.commands import CapturedOpKind
from ..ir.params import Param
from ..runtime.buffer import Buffer
from .checks import (
    Number,
    axes,
    check_dtype,
    check_size,
    find,
    fours,
    is_aligned,
    prefers_plain,
    same_elements,
    type_ending,
)
from .norms import row_threads

MOST_EXPERTS = 1024
MOST_CHOSEN = 64
_KEPT = {1: 16, 4: 16, 8: 32}
"""Elements of a row that a thread of the softmax for GPUs keeps in registers, by how many it reads at a time."""
_PART_OF_ROW = 2048
"""Elements of a long row that a group of `argmax` takes."""


def softmax(encoder: CommandEncoder, x: Buffer, out: Buffer) -> None:
    """out = softmax(x), over the last axis of `out`. `out` may be `x`."""
    ending = same_elements("softmax", out, x)
    width = out.shape[-1] if out.shape else 1
    if prefers_plain(encoder):
        kernel, threads = find(encoder, "selection", f"softmax_{ending}"), row_threads(width)
    else:
        each, way = fours(encoder, width, out.size, x, out, most=8)
        kernel, threads = find(encoder, "softmax", f"softmax{way}_{ending}"), _threads(-(-width // _KEPT[each]))
    encoder.dispatch(
        kernel,
        *(x, out, width),
        groups=out.size // width,
        group_size=threads,
        op_kind=CapturedOpKind.Softmax,
        bytes_read=x.nbytes,
        bytes_written=out.nbytes,
        flops=12 * out.size,
    )


def argmax(encoder: CommandEncoder, x: Buffer, out: Buffer, *, partial: Buffer | None = None) -> None:
    """out[row] = the index of the largest element of each row of x, the first of equal ones. `out` is uint32.

    With `partial`, uint32 of shape [`argmax_parts` of the width, 2], several groups of a GPU share a single row.
    """
    ending = type_ending("argmax", x)
    check_dtype("argmax", "places", out, np.uint32)
    if x.size % out.size:
        raise ArgumentError(f"argmax: {x!r} does not divide into rows for {out!r}")
    width = x.size // out.size
    if partial is not None:
        check_dtype("argmax", "partial", partial, np.uint32)
        check_size("argmax", "partial", partial, 2 * argmax_parts(width))
        check_size("argmax", "places", out, 1)
    arguments: list[Any] = [x, out, width]
    plain = prefers_plain(encoder)
    if not plain:
        arguments.append(int(is_aligned(4 * x.dtype.itemsize, width * x.dtype.itemsize, x)))
    cost: dict[str, Any] = {"bytes_read": x.nbytes, "flops": x.size}
    if plain or partial is None:
        kernel = find(encoder, "selection" if plain else "largest", f"argmax_{ending}")
        encoder.dispatch(
            kernel, *arguments, groups=out.size, group_size=_threads(width), bytes_written=out.nbytes, **cost
        )
        return
    arguments[1], parts = partial, argmax_parts(width)
    kernel = find(encoder, "largest", f"argmax_part_{ending}")
    each: dict[str, Any] = {"groups": parts, "group_size": _PART_OF_ROW // 8}
    encoder.dispatch(kernel, *arguments, _PART_OF_ROW, **each, bytes_written=partial.nbytes, **cost)
    join = find(encoder, "largest", "argmax_join")
    encoder.dispatch(join, partial, out, parts, groups=1, group_size=32, bytes_read=partial.nbytes, bytes_written=4)


def argmax_parts(width: int) -> int:
    """Into how many parts `argmax` splits a row."""
    return -(-width // _PART_OF_ROW)


def moe_route(
    encoder: CommandEncoder, logits: Buffer, indices: Buffer, weights: Buffer, *, renormalise: bool = True
) -> None:
    """The experts with the largest softmax(logits) for each token, largest first, and their shares.

    `logits` is [tokens, experts], `indices` (uint32) and `weights` (float32) [tokens, chosen].
    Buffers without the axis of tokens are for one token. With `renormalise` the shares of a token add up to 1.
    """
    ending, tokens, experts, chosen = _routing("moe_route", logits, indices, weights)
    encoder.dispatch(
        find(encoder, "selection", f"moe_route_{ending}"),
        *(logits, indices, weights, experts, chosen, int(renormalise)),
        groups=tokens,
        group_size=_threads(experts),
        op_kind=CapturedOpKind.Softmax,
        bytes_read=logits.nbytes,
        bytes_written=indices.nbytes + weights.nbytes,
        flops=tokens * experts * (10 + experts),
    )


def serial_topk(
    encoder: CommandEncoder, logits: Buffer, indices: Buffer, weights: Buffer, *, renormalise: bool = True
) -> None:
    """The same result as `moe_route`, by one thread per token: slow on purpose, for profiles to find."""
    ending, tokens, experts, chosen = _routing("serial_topk", logits, indices, weights)
    encoder.dispatch(
        find(encoder, "selection", f"serial_topk_{ending}"),
        *(logits, indices, weights, experts, chosen, int(renormalise)),
        threads=tokens,
        op_kind=CapturedOpKind.Softmax,
        bytes_read=logits.nbytes,
        bytes_written=indices.nbytes + weights.nbytes,
        flops=tokens * experts * (10 + experts),  # the work required, not the work done
    )


def sample_top_p(
    encoder: CommandEncoder,
    logits: Buffer,
    out: Buffer,
    random: Number,
    *,
    temperature: Number = 1.0,
    top_p: Number = 1.0,
) -> None:
    """out = a token sampled from the most probable tokens that together reach `top_p` (nucleus sampling).

    `random`, from 0 to 1, chooses by the cumulative probability of these tokens in the order of their ids. Tokens as
    probable as the last of them are included. All three numbers may be parameters. `out` is uint32.
    """
    name = "sample_top_p"
    ending = type_ending(name, logits)
    check_dtype(name, "tokens", out, np.uint32)
    check_size(name, "out", out, 1)
    for what, value, least, most in (
        ("random", random, 0.0, 1.0),
        ("top_p", top_p, 0.0, 1.0),
        ("temperature", temperature, 1e-6, float("inf")),
    ):
        if not isinstance(value, Param) and not least <= float(value) <= most:
            raise ArgumentError(f"{name}: {what} is a number from {least:g} to {most:g}, not {value!r}")
    encoder.dispatch(
        find(encoder, "selection", f"{name}_{ending}"),
        *(logits, out, logits.size, temperature, top_p, random),
        groups=1,
        group_size=_threads(logits.size),
        op_kind=CapturedOpKind.Softmax,
        bytes_read=logits.nbytes,
        bytes_written=out.nbytes,
        flops=35 * 10 * logits.size,
    )


def _routing(name: str, logits: Buffer, indices: Buffer, weights: Buffer) -> tuple[str, int, int, int]:
    ending = type_ending(name, logits)
    check_dtype(name, "indices", indices, np.uint32)
    check_dtype(name, "weights", weights, np.float32)
    single_token = len(logits.shape) == 1
    tokens, experts = (1, logits.size) if single_token else axes(name, "logits", logits, "tokens", "experts")
    check_size(name, "weights", weights, indices.size)
    chosen, rest = divmod(indices.size, tokens)
    if rest or not 1 <= chosen <= min(experts, MOST_CHOSEN) or experts > MOST_EXPERTS:
        raise ArgumentError(
            f"{name}: {indices!r} does not match {logits!r}; expected the same number of experts for each of {tokens}"
            f" tokens, at most {MOST_CHOSEN} of {experts}, and at most {MOST_EXPERTS} experts in all"
        )
    return ending, tokens, experts, chosen


def _threads(width: int) -> int:
    """Threads for one long row: as many as there is work for, up to the limit of a group."""
    return min(1024, max(32, 1 << (width - 1).bit_length()))
