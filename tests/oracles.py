"""What oracles of kernels have in common: types, random numbers, tolerances, functions that many kernels compute."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

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


def attention(q: Any, k: Any, v: Any, scale: float, bias: Any = 0.0, cap: float = 0.0) -> Any:
    """Of [batch, heads, rows, width]; heads of queries share those of keys evenly."""
    q, k, v = (x.astype(float) for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[1] // k.shape[1], axis=1) for x in (k, v))
    scores = scale * (q @ k.swapaxes(-1, -2))
    return softmax((cap * np.tanh(scores / cap) if cap else scores) + bias) @ v
