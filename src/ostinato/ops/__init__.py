"""Built-in kernels (`kernels/*.metal`) and the functions that encode them.

    with enc.scope("block 0"):
        ops.add(enc, hidden, delta, hidden)
        ops.rms_norm(enc, hidden, weight, normed)
        ops.matvec(enc, projection, normed, queries)

Kernels are compiled once per device. No function waits; each checks shapes and dtypes and declares the bytes and flops
of its dispatch. Arithmetic is in float32 and rounded once, to the dtype of the output. Fused kernels give the same bits
as the kernels that they replace. A value that changes with every token (a position, a random number) may be a
parameter, `ost.param`.
"""

from .attention import attention_parts, embedding, kv_append, rope, rope_append, rope_frequencies, sdpa
from .formats import FORMATS, Format, affine_format
from .linear import (
    expert_gated_matvec,
    expert_matvec,
    gated_matvec,
    matmul,
    matvec,
    norm_gated_matvec,
    norm_matvec,
    qkv_matvec,
)
from .many_rows import matmul_many
from .norms import add_rms_norm, rms_norm, rms_norm_mul
from .packed import Packed, Rounded, matmul_packed, pack_blocks, round_rows
from .pointwise import add, cast, gelu, mul, scalar_mul, sigmoid_mul, silu_mul, silu_mul_halves, softcap, weighted_sum
from .quantised import embedding_blocks, expert_lists, expert_matmul, matmul_blocks, matvec_blocks
from .selection import argmax, argmax_parts, moe_route, sample_top_p, serial_topk, softmax

__all__ = [
    "FORMATS",
    "Format",
    "Packed",
    "Rounded",
    "add",
    "add_rms_norm",
    "affine_format",
    "argmax",
    "argmax_parts",
    "attention_parts",
    "cast",
    "embedding",
    "embedding_blocks",
    "expert_gated_matvec",
    "expert_lists",
    "expert_matmul",
    "expert_matvec",
    "gated_matvec",
    "gelu",
    "kv_append",
    "matmul",
    "matmul_blocks",
    "matmul_many",
    "matmul_packed",
    "matvec",
    "matvec_blocks",
    "moe_route",
    "mul",
    "norm_gated_matvec",
    "norm_matvec",
    "pack_blocks",
    "qkv_matvec",
    "rms_norm",
    "rms_norm_mul",
    "rope",
    "rope_append",
    "rope_frequencies",
    "round_rows",
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
