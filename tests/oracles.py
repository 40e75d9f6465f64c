"""What oracles of kernels have in common: types, random numbers, tolerances, functions that many kernels compute."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import ml_dtypes
import numpy as np

from ostinato.ops.formats import affine_format

Random = np.random.Generator

TYPES: dict[str, Any] = {
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "u8": np.uint8,
    "u32": np.uint32,
    "i64": np.int64,
}
NEAR = {"f32": 2e-5, "f16": 4e-3, "bf16": 3e-2}
"""What a few roundings to a type change at most, relative to values near one."""
LONG_NAMES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "u8": "uint8", "u32": "uint32", "i64": "int64"}


def spread(threads: int, group_size: int = 64) -> dict[str, int]:
    """Whole groups for so many threads, as the host dispatches kernels over elements."""
    return {"groups": -(-threads // group_size), "group_size": group_size}


def steps(x: Any) -> Any:
    """The strides of an array in elements."""
    return np.array(x.strides, np.uint64) // np.uint64(x.itemsize)


def sizes(x: Any) -> Any:
    return np.array(x.shape, np.uint64)


def values(numbers: Random, shape: Any, kind: str) -> Any:
    if kind in NEAR:
        return numbers.standard_normal(shape).astype(TYPES[kind])
    return numbers.integers(0, 200, shape).astype(TYPES[kind])


def check(got: Any, expected: Any, kind: str, scale: float = 1.0) -> None:
    np.testing.assert_allclose(got.astype(float), expected, rtol=NEAR[kind], atol=NEAR[kind] * scale)


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def erf(x: Any) -> Any:
    """By the series, which is exact enough for small x."""
    term, total = x, x
    for n in range(1, 120):
        term = -term * x * x / n
        total = total + term / (2 * n + 1)
    return total * 2 / np.sqrt(np.pi)


def check_product(got: Any, a: Any, b: Any, near: float) -> None:
    """Against a · bᵀ, where the sum of absolute products says how far off a sum may be."""
    a, b = a.astype(float), b.astype(float)
    assert np.all(np.abs(got - a @ b.T) <= near * (np.abs(a) @ np.abs(b).T))


def attention(q: Any, k: Any, v: Any, scale: float, bias: Any = 0.0, cap: float = 0.0, sinks: Any = None) -> Any:
    """Of [batch, heads, rows, width]; heads of queries share those of keys evenly.

    Scores are capped, then the bias is added. A sink is one more score of a head, with a value of zero.
    """
    q, k, v = (x.astype(float) for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[1] // k.shape[1], axis=1) for x in (k, v))
    scores = scale * (q @ k.swapaxes(-1, -2))
    scores = (cap * np.tanh(scores / cap) if cap else scores) + bias
    if sinks is not None:
        more = np.broadcast_to(sinks.astype(float)[:, None, None], (*scores.shape[:-1], 1))
        return softmax(np.concatenate([scores, more], axis=-1))[..., :-1] @ v
    return softmax(scores) @ v


FP8: Any = ml_dtypes.float8_e4m3fn


def fp8_values(numbers: Random, shape: Any) -> Any:
    """Numbers of eight bits, none of them subnormal."""
    x = numbers.standard_normal(shape).astype(FP8)
    return np.where(np.abs(x.astype(np.float32)) < 2**-6, np.zeros_like(x), x)


class PagedCache:
    """Keys and values of some sequences in blocks of a cache, as vLLM lays them out."""

    def __init__(self, numbers: Random, lengths: list[int], heads: int, width: int, block: int, kind: str) -> None:
        most = max(-(-n // block) for n in lengths)
        blocks, part = most * len(lengths) + 3, 16 // np.dtype(FP8 if kind == "fp8" else TYPES[kind]).itemsize
        self.table = numbers.permutation(blocks)[: most * len(lengths)].reshape(-1, most).astype(np.uint32)
        self.lengths, self.most = np.array(lengths, np.uint32), most
        pools = []
        for _ in range(2):
            shape = (blocks, block, heads, width)
            pools.append(fp8_values(numbers, shape) if kind == "fp8" else values(numbers, shape, kind))
        self.dense = [
            [pool[row].reshape(-1, heads, width)[:n].swapaxes(0, 1)[None] for pool in pools]
            for row, n in zip(self.table, lengths, strict=True)
        ]
        """Of each sequence: its keys and values, [1, heads, length, width]."""
        keys = pools[0].reshape(blocks, block, heads, width // part, part).transpose(0, 2, 3, 1, 4)
        stored = [np.ascontiguousarray(pool) for pool in (keys, pools[1].transpose(0, 2, 3, 1))]
        self.keys, self.values = (x.view(np.uint8) if kind == "fp8" else x for x in stored)


def four_bits(name: str) -> Any:
    """The numbers of a format: twelfths, or quantiles of the normal distribution, each half with a step of its own."""
    if name == "fp4":
        positive = np.array([0, 1 / 16, 8, 12, 4, 6, 2, 3]) / 12
        return np.concatenate([positive, -positive])
    quantile = np.vectorize(NormalDist().inv_cdf)
    last = 1 - (1 / 32 + 1 / 30) / 2
    above, below = quantile(np.linspace(last, 0.5, 9)[:-1]), quantile(np.linspace(last, 0.5, 8)[:-1])
    return np.sort(np.concatenate([above, [0], -below])) / above.max()


def mxfp4(numbers: Random, *shape: int) -> tuple[Any, Any, Any]:
    """Numbers of four bits, two in a byte; a power of two for each 32; the weights."""
    raw = numbers.integers(0, 256, (*shape[:-1], shape[-1] // 2), np.uint8)
    powers = numbers.integers(120, 132, (*shape[:-1], shape[-1] // 32), np.uint8)
    number = np.stack([raw & 15, raw >> 4], axis=-1).reshape(shape).view(ml_dtypes.float4_e2m1fn)
    scale = powers.view(ml_dtypes.float8_e8m0fnu).astype(float)
    return raw, powers, number.astype(float) * np.repeat(scale, 32, axis=-1)


def affine(numbers: Random, kind: str, bits: int, group: int, *shape: int) -> tuple[Any, ...]:
    """MLX's format of some bits: packed numbers, scales, biases, and the weights."""
    form = affine_format(bits, group, TYPES[kind])
    blocks = numbers.integers(0, 256, (*shape[:-1], shape[-1] // group, form.nbytes), np.uint8).view(form.dtype)
    blocks = blocks[..., 0]
    for field in ("scale", "bias"):
        blocks[field] = (numbers.uniform(-2, 2, blocks.shape) / (1 << bits)).astype(TYPES[kind])
    parts = [np.ascontiguousarray(blocks[field]) for field in (f"bits{bits}", "scale", "bias")]
    return *parts, form.dequantised(blocks)
