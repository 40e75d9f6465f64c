"""Element-wise operations. `out` may be one of the inputs if it has the same dtype."""

from __future__ import annotations

import numpy as np

from ..encode.encoder import CommandEncoder
from ..errors import ArgumentError
from ..ir.commands import CapturedOpKind
from ..runtime.buffer import Buffer
from .checks import (
    EXPONENTIAL_FLOPS,
    GATE_FLOPS,
    Number,
    axes,
    check_dtype,
    check_size,
    find,
    fours,
    same_elements,
    type_ending,
)


def add(encoder: CommandEncoder, a: Buffer, b: Buffer, out: Buffer) -> None:
    """out = a + b"""
    _simple(encoder, "add", a, b, out, CapturedOpKind.ElemAdd)


def mul(encoder: CommandEncoder, a: Buffer, b: Buffer, out: Buffer) -> None:
    """out = a * b"""
    _simple(encoder, "mul", a, b, out, CapturedOpKind.ElemMul)


def silu_mul(encoder: CommandEncoder, gate: Buffer, up: Buffer, out: Buffer) -> None:
    """out = gate · sigmoid(gate) · up"""
    _gated(encoder, "silu_mul", gate, up, out)


def silu_mul_halves(encoder: CommandEncoder, x: Buffer, out: Buffer) -> None:
    """out[token] = gate · sigmoid(gate) · up, for x [tokens, 2, width]: for each token its gates, then its ups."""
    name = "silu_mul_halves"
    ending = type_ending(name, x, out)
    tokens, two, width = axes(name, "x", x, "tokens", "2", "width")
    if two != 2:
        raise ArgumentError(f"{name}: x must be [tokens, 2, width], not {x!r}")
    check_size(name, "out", out, tokens * width)
    each, way = fours(encoder, width, out.size, x, out, most=8)
    encoder.dispatch(
        find(encoder, "pointwise", f"{name}{way}_{ending}"),
        *(x, out),
        threads=(width // each, tokens),
        group_size=(min(width // each, 256), 1),
        op_kind=CapturedOpKind.ElemMul,
        bytes_read=x.nbytes,
        bytes_written=out.nbytes,
        flops=GATE_FLOPS * out.size,
    )


def sigmoid_mul(encoder: CommandEncoder, gate: Buffer, up: Buffer, out: Buffer) -> None:
    """out = sigmoid(gate) · up"""
    _gated(encoder, "sigmoid_mul", gate, up, out)


def gelu(encoder: CommandEncoder, x: Buffer, out: Buffer, *, approximate: bool = True) -> None:
    """out = gelu(x), by tanh if `approximate`, otherwise by the error function."""
    _mapped(encoder, "gelu" if approximate else "gelu_erf", x, out, (), EXPONENTIAL_FLOPS + 6)


def scalar_mul(encoder: CommandEncoder, x: Buffer, out: Buffer, factor: Number) -> None:
    """out = x · factor"""
    _mapped(encoder, "scalar_mul", x, out, (factor,), 1, CapturedOpKind.ElemMul)


def softcap(encoder: CommandEncoder, x: Buffer, out: Buffer, cap: Number) -> None:
    """out = cap · tanh(x / cap)"""
    _mapped(encoder, "softcap", x, out, (cap,), EXPONENTIAL_FLOPS + 2)


def cast(encoder: CommandEncoder, x: Buffer, out: Buffer) -> None:
    """out = x, in the dtype of `out`."""
    source, target = type_ending("cast", x), type_ending("cast", out)
    check_size("cast", "out", out, x.size)
    each, way = fours(encoder, out.size, out.size, x, out)
    encoder.dispatch(
        find(encoder, "pointwise", f"cast{way}_{source}_{target}"),
        *(x, out),
        threads=out.size // each,
        bytes_read=x.nbytes,
        bytes_written=out.nbytes,
        flops=0,
    )


def weighted_sum(encoder: CommandEncoder, x: Buffer, weights: Buffer, out: Buffer) -> None:
    """out[token] = Σ weights[token, slot] · x[token, slot], for weights [tokens, slots] and out [tokens, width].

    Buffers without the axis of tokens are for one token.
    """
    name = "weighted_sum"
    type_ending(name, x, out)
    check_dtype(name, "weights", weights, np.float32)
    single_token = len(weights.shape) == 1
    tokens, slots = (1, weights.size) if single_token else axes(name, "weights", weights, "tokens", "slots")
    if out.size % tokens:
        raise ArgumentError(f"{name}: {out!r} does not divide evenly among {tokens} tokens")
    width = out.size // tokens
    check_size(name, "x", x, tokens * slots * width)
    each, way = fours(encoder, width, out.size, x, out, most=8)
    encoder.dispatch(
        find(encoder, "pointwise", f"{name}{way}_{type_ending(name, out)}"),
        *(x, weights, out, slots),
        threads=(width // each, tokens),
        group_size=(min(width // each, 256), 1),
        bytes_read=x.nbytes + weights.nbytes,
        bytes_written=out.nbytes,
        flops=2 * x.size,
    )


def _simple(encoder: CommandEncoder, name: str, a: Buffer, b: Buffer, out: Buffer, op_kind: CapturedOpKind) -> None:
    ending = same_elements(name, out, a, b)
    each, way = fours(encoder, out.size, out.size, a, b, out)
    encoder.dispatch(
        find(encoder, "elementwise", f"{name}{way}_{ending}"),
        *(a, b, out),
        threads=out.size // each,
        op_kind=op_kind,
        bytes_read=a.nbytes + b.nbytes,
        bytes_written=out.nbytes,
        flops=out.size,
    )


def _gated(encoder: CommandEncoder, name: str, gate: Buffer, up: Buffer, out: Buffer) -> None:
    ending = same_elements(name, out, gate, up)
    each, way = fours(encoder, out.size, out.size, gate, up, out, most=8)
    encoder.dispatch(
        find(encoder, "pointwise", f"{name}{way}_{ending}"),
        *(gate, up, out),
        threads=out.size // each,
        op_kind=CapturedOpKind.ElemMul,
        bytes_read=gate.nbytes + up.nbytes,
        bytes_written=out.nbytes,
        flops=GATE_FLOPS * out.size,
    )


def _mapped(
    encoder: CommandEncoder,
    name: str,
    x: Buffer,
    out: Buffer,
    values: tuple[Number, ...],
    flops: int,
    op_kind: CapturedOpKind = CapturedOpKind.Other,
) -> None:
    ending = same_elements(name, out, x)
    each, way = fours(encoder, out.size, out.size, x, out, most=8)
    encoder.dispatch(
        find(encoder, "pointwise", f"{name}{way}_{ending}"),
        *(x, out, *values),
        threads=out.size // each,
        op_kind=op_kind,
        bytes_read=x.nbytes,
        bytes_written=out.nbytes,
        flops=flops * out.size,
    )
