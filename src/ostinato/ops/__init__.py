"""Our own kernels (`kernels/*.metal`) and the launchers that record them.

    with enc.scope("block 0"):
        ops.add(enc, hidden, delta, hidden)
        ops.rms_norm(enc, hidden, weight, normed)
        ops.matvec(enc, projection, normed, queries)

They are compiled once for each device. No launcher waits; every one checks shapes and dtypes and declares what it
reads, writes and computes. Arithmetic is in float32 and rounded once, to the dtype that is stored. The fused ones give
the bits of the two that they stand for. Where a value changes with every token (a position, a random number) it may be
a parameter, `ost.param`.
"""

from .attention import embedding, kv_append, rope, rope_append, rope_frequencies, sdpa
from .linear import (
    expert_gated_matvec,
    expert_matvec,
    gated_matvec,
    matmul,
    matvec,
    matvec_affine4,
    matvec_q4_0,
    matvec_q8_0,
    norm_gated_matvec,
    norm_matvec,
    qkv_matvec,
)
from .norms import add_rms_norm, rms_norm, rms_norm_mul
from .pointwise import add, cast, gelu, mul, scalar_mul, sigmoid_mul, silu_mul, silu_mul_halves, softcap, weighted_sum
from .selection import argmax, moe_route, sample_top_p, serial_topk, softmax

__all__ = [
    "add",
    "add_rms_norm",
    "argmax",
    "cast",
    "embedding",
    "expert_gated_matvec",
    "expert_matvec",
    "gated_matvec",
    "gelu",
    "kv_append",
    "matmul",
    "matvec",
    "matvec_affine4",
    "matvec_q4_0",
    "matvec_q8_0",
    "moe_route",
    "mul",
    "norm_gated_matvec",
    "norm_matvec",
    "qkv_matvec",
    "rms_norm",
    "rms_norm_mul",
    "rope",
    "rope_append",
    "rope_frequencies",
    "sample_top_p",
    "scalar_mul",
    "sdpa",
    "serial_topk",
    "sigmoid_mul",
    "silu_mul",
    "silu_mul_halves",
    "softcap",
    "softmax",
    "weighted_sum",
]
