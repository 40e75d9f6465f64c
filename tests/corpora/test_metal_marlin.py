"""metal-marlin: norms, Hadamard transforms, Cholesky's algorithm, products of four bits, attention, RWKV."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ostinato as ost
from checkouts import Checkouts
from launching import launch
from oracles import Random, attention, check, check_product, sigmoid, softmax, values

FP4 = ml_dtypes.float4_e2m1fn


def kernel(checkouts: Checkouts, file: str, name: str) -> ost.Kernel:
    return checkouts.library("metal-marlin", f"{file}.metal")[name]


# --- rows -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rmsnorm", "rmsnorm_multipass", "layernorm", "layernorm_multipass"])
def test_norm(dev: ost.Device, checkouts: Checkouts, numbers: Random, name: str) -> None:
    """Some kernels take rows in several passes, the last of which is not whole."""
    n = 9000 if "multipass" in name else 1002
    x, weight, bias = (values(numbers, shape, "f16") for shape in ((5, n), n, n))
    arrays = (x, weight, bias) if "layer" in name else (x, weight)
    run = kernel(checkouts, "src/layernorm", name)
    got = launch(dev, run, *arrays, np.zeros_like(x), 5, n, 1e-5, groups=(5, 1, 1), group_size=(256, 1, 1))
    wide, weight, bias = (part.astype(float) for part in (x, weight, bias))
    if "layer" in name:
        wide -= wide.mean(axis=1, keepdims=True)
    expected = wide / np.sqrt((wide**2).mean(axis=1, keepdims=True) + 1e-5) * weight
    check(got, expected + bias if "layer" in name else expected, "f16")


def test_norm_with_residual(dev: ost.Device, checkouts: Checkouts, numbers: Random) -> None:
    x, residual, weight = (values(numbers, shape, "f16") for shape in ((5, 1002), (5, 1002), 1002))
    run = kernel(checkouts, "src/layernorm", "rmsnorm_fused_residual")
    empty, grid = (np.zeros_like(x), np.zeros_like(x)), dict[str, Any](groups=(5, 1, 1), group_size=(256, 1, 1))
    norm, total = launch(dev, run, x, residual, weight, *empty, 5, 1002, 1e-5, **grid)
    wide = x.astype(float) + residual.astype(float)
    check(total, wide, "f16")
    check(norm, wide / np.sqrt((wide**2).mean(axis=1, keepdims=True) + 1e-5) * weight.astype(float), "f16")


@pytest.mark.parametrize("scaled", [1, 0], ids=["scaled", "plain"])
@pytest.mark.parametrize("n", [32, 64, 128])
def test_hadamard_transform(dev: ost.Device, checkouts: Checkouts, numbers: Random, n: int, scaled: int) -> None:
    """A simdgroup exchanges sums and differences of a row, as halves."""
    x = values(numbers, (9, n), "f16")
    run = kernel(checkouts, "src/hadamard", f"hadamard_transform_{n}")
    got = launch(dev, run, x, np.zeros_like(x), 9, scaled, groups=9, group_size=32)
    matrix = np.where(np.bitwise_count(np.arange(n)[:, None] & np.arange(n)) % 2, -1, 1)
    check(got, x.astype(float) @ matrix / (np.sqrt(n) if scaled else 1), "f16", scale=1 if scaled else 20)


def test_softmax(dev: ost.Device, checkouts: Checkouts, numbers: Random) -> None:
    x = 3 * values(numbers, (3, 5001), "f32")
    run = kernel(checkouts, "src/sampling", "softmax")
    got = launch(dev, run, x, np.zeros_like(x), {"vocab_size": 5001, "batch_size": 3}, groups=3, group_size=256)
    check(got, softmax(x.astype(float)), "f32", scale=1e-3)


@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_argmax(dev: ost.Device, checkouts: Checkouts, numbers: Random, kind: str) -> None:
    x = values(numbers, (3, 5001), kind)
    x[np.arange(3), [17, 4999, 2048]] = 100
    run = kernel(checkouts, "src/sampling", "argmax" if kind == "f32" else "argmax_fp16")
    got = launch(dev, run, x, np.zeros(3, np.uint32), {"vocab_size": 5001, "batch_size": 3}, groups=3, group_size=256)
    np.testing.assert_array_equal(got, [17, 4999, 2048])


def test_experts_of_a_softmax(dev: ost.Device, checkouts: Checkouts, numbers: Random) -> None:
    """The eight largest of 128, in order, with weights that add up to one."""
    x = numbers.permutation(np.linspace(-4, 4, 128)).astype(np.float16)
    run = kernel(checkouts, "src/softmax_topk", "softmax_topk8_128e")
    empty = np.zeros(8, np.uint32), np.zeros(8, np.float16)
    chosen, weights = launch(dev, run, x, *empty, groups=1, group_size=128)
    np.testing.assert_array_equal(chosen, np.argsort(-x.astype(float))[:8])
    check(weights, softmax(np.sort(x.astype(float))[:-9:-1]), "f16")


def test_added_by_exchange(dev: ost.Device, checkouts: Checkouts, numbers: Random) -> None:
    """Rows are added to those that indices say, by a loop of compare and exchange for each float."""
    x, before = values(numbers, (300, 33), "f32"), values(numbers, (7, 33), "f32")
    rows = numbers.integers(0, 7, 300).astype(np.uint32)
    run = kernel(checkouts, "src/scatter_gather", "scatter_add_2d")
    got = launch(dev, run, x, rows, before.copy(), 300, 33, threads=(33, 300), group_size=(33, 8))
    expected = before.astype(float)
    np.add.at(expected, rows, x)
    check(got, expected, "f32", scale=20)


def test_rotary(dev: ost.Device, checkouts: Checkouts, numbers: Random) -> None:
    """Of neighbours, with heads of queries and fewer of keys, from a position on."""
    b, t, d, start = 2, 5, 20, 3
    q, k = values(numbers, (b, t, 4, d), "f16"), values(numbers, (b, t, 2, d), "f16")
    angle = numbers.uniform(-3, 3, (t + start, d // 2))
    cos, sin = (turn(angle).astype(np.float16) for turn in (np.cos, np.sin))
    run = kernel(checkouts, "src/rope", "rope_qk_fused")
    empty = np.zeros_like(q), np.zeros_like(k)
    got = launch(dev, run, q, k, cos, sin, *empty, b, t, 4, 2, d, start, threads=(d // 2, 4, b * t))
    z = (cos.astype(float) + 1j * sin.astype(float))[start:, None]
    for x, result in zip((q, k), got, strict=True):
        wide = x.astype(float)
        pairs = (wide[..., 0::2] + 1j * wide[..., 1::2]) * z
        check(result, np.stack([pairs.real, pairs.imag], axis=-1).reshape(x.shape), "f16")


def test_swiglu(dev: ost.Device, checkouts: Checkouts, numbers: Random) -> None:
    """The activation is of the second operand. Four numbers at a time, two in the end."""
    gate, up = values(numbers, (2, 5, 1002), "f16")
    run = kernel(checkouts, "metal_marlin/shaders/swiglu_fused", "swiglu_fused")
    shape = np.array([5, 1002], np.uint32)
    got = launch(dev, run, gate, up, np.zeros_like(gate), shape, groups=(1, 5, 1), group_size=(64, 1, 1))
    wide = up.astype(float)
    check(got, gate.astype(float) * wide * sigmoid(wide), "f16")


# --- matrices -------------------------------------------------------------------------------------------------------


def positive(numbers: Random, n: int) -> Any:
    """A positive definite matrix, far from singular."""
    x = numbers.standard_normal((n, 2 * n))
    return (x @ x.T / n + np.eye(n)).astype(np.float32)


def test_cholesky(dev: ost.Device, checkouts: Checkouts, numbers: Random) -> None:
    """A group goes from column to column, each of which needs all that were written before."""
    n, matrix = 150, positive(numbers, 150)
    run = kernel(checkouts, "src/cholesky", "cholesky_decompose")
    got = launch(dev, run, matrix, np.zeros_like(matrix), n, 0.01, groups=1, group_size=128)
    check(got, np.linalg.cholesky(matrix.astype(float) + 0.01 * np.eye(n)), "f32", scale=5)


def test_triangular_systems(dev: ost.Device, checkouts: Checkouts, numbers: Random) -> None:
    lower = np.linalg.cholesky(positive(numbers, 90)).astype(np.float32)
    sides = values(numbers, (90, 37), "f32")
    run = kernel(checkouts, "src/cholesky", "cholesky_solve_batch")
    got = launch(dev, run, lower, sides, np.zeros_like(sides), 90, 37, threads=(37, 1), group_size=(32, 1))
    check(got, np.linalg.solve(lower.astype(float), sides), "f32", scale=2)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_hessian(dev: ost.Device, checkouts: Checkouts, numbers: Random, kind: str) -> None:
    """Twice the product of a matrix with itself, in tiles of 64."""
    samples, n = 53, 100
    x = values(numbers, (samples, n), kind)
    run = kernel(checkouts, "src/hessian", "hessian_compute_fp16" if kind == "f16" else "hessian_compute")
    memory = x if kind == "f16" else x.view(np.uint16)
    out = np.zeros((n, n), np.float32)
    got = launch(dev, run, memory, out, samples, n, groups=(2, 2, 1), group_size=(128, 1, 1))
    check_product(got, 2 * x.astype(float).T, x.T, 1e-5)


def columns(numbers: Random, k: int, n: int, group: int) -> tuple[Any, Any, Any]:
    """Weights of four bits, eight rows in a word, with a scale for some rows of each column."""
    raw = numbers.integers(0, 16, (k // 8, 8, n))
    words = (raw.astype(np.uint32) << (4 * np.arange(8, dtype=np.uint32))[:, None]).sum(axis=1, dtype=np.uint32)
    scale = numbers.uniform(0.5, 2, (k // group, n)).astype(np.float16)
    number = raw.reshape(k, n).astype(np.uint8).view(FP4).astype(float)
    return words, scale, number * np.repeat(scale.astype(float), group, axis=0)


@pytest.mark.parametrize(("name", "wide"), [("", 256), ("_wide", 512), ("_simd", 128)])
def test_product_with_a_vector(dev: ost.Device, checkouts: Checkouts, numbers: Random, name: str, wide: int) -> None:
    n, k, group = 700, 384, 128
    words, scale, weights = columns(numbers, k, n, group)
    x, run = values(numbers, (1, k), "f16"), kernel(checkouts, "src/decode_gemv", f"decode_gemv_fp4{name}")
    sizes = (1, n, k, group)
    got = launch(dev, run, x, words, scale, np.zeros((1, n), np.float16), *sizes, groups=-(-n // wide), group_size=128)
    check_product(got, x, weights.T, 2e-3)


def test_parts_of_a_product(dev: ost.Device, checkouts: Checkouts, numbers: Random) -> None:
    parts = values(numbers, (5, 7, 301), "f32")
    run = kernel(checkouts, "src/dense_gemm", "dense_splitk_reduce")
    grid: dict[str, Any] = {"groups": (2, 7, 1), "group_size": (256, 1, 1)}
    got = launch(dev, run, parts, np.zeros((7, 301), np.float16), 7, 301, 5, **grid)
    check(got, parts.sum(axis=0, dtype=float), "f16")


# --- attention and states -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "_causal", "_gqa", "_gqa causal", "_kv_fp4", "_kv_int4"])
def test_attention(dev: ost.Device, checkouts: Checkouts, numbers: Random, name: str) -> None:
    """A simdgroup for each query, keys in tiles of 32 that a group loads ahead; keys of four bits have a scale each."""
    batch, heads, shared, rows, n, width = 2, 4, 2, 13, 77, 96
    q, k, v = (values(numbers, (batch, *shape, width), "f16") for shape in ((heads, rows), (2, n), (2, n)))
    memory: tuple[Any, ...] = (k, v)
    if "kv" in name:
        raw = numbers.integers(0, 16, (2, *k.shape), np.uint8)
        scale = numbers.uniform(0.2, 0.5, (2, *k.shape[:3])).astype(np.float16)
        number = raw.view(FP4).astype(float) if "fp4" in name else raw.astype(float) - 8
        k, v = number * scale[..., None].astype(float)
        packed = np.ascontiguousarray(raw[..., 0::2] | raw[..., 1::2] << 4).view(np.uint32)
        memory = (*packed, *scale)
    more = (shared, "causal" in name) if "gqa" in name else ()
    run = kernel(checkouts, "src/flash_attention", f"flash_attention{name.split()[0] if name else ''}")
    sizes = (batch, heads, 2, rows, n, width, width**-0.5, *more)
    grid: dict[str, Any] = {"groups": (heads, -(-rows // 4), batch), "group_size": (128, 1, 1)}
    got = launch(dev, run, q, *memory, np.zeros_like(q), *sizes, **grid)
    bias = np.where(np.arange(n) <= np.arange(rows)[:, None], 0, -np.inf) if "causal" in name else 0.0
    check(got, attention(q, k, v, width**-0.5, bias), "f16")


def test_weighted_values_of_a_token(dev: ost.Device, checkouts: Checkouts, numbers: Random) -> None:
    """RWKV's: what the state has of each value, and the token's own, over the sum of weights; the state decays."""
    b, h, d = 2, 3, 64
    r, k, v = values(numbers, (3, b, h, d), "f16")
    decay, bonus = numbers.random((2, h, d), np.float32)
    state, total = numbers.random((b, h, d, d), np.float32), 10 + numbers.random((b, h, d), np.float32)
    run = kernel(checkouts, "src/rwkv_wkv", "rwkv_wkv_single_token")
    empty = np.zeros_like(r), np.zeros_like(state), np.zeros_like(total)
    grid: dict[str, Any] = {"groups": (b, h), "group_size": (128, 1)}
    got, after, sums = launch(dev, run, r, k, v, decay, bonus, state, total, *empty, b, h, d, **grid)
    r, k, v = (x.astype(float) for x in (r, k, v))
    own = np.exp(bonus + k)
    check(got, r * sigmoid(r) * (state.sum(axis=-1) + own * v) / (total + own), "f16")
    check(after, np.exp(-decay)[..., None] * state + v[..., None] * np.exp(k)[..., None, :], "f32")
    check(sums, np.exp(-decay) * total + np.exp(k), "f32")
