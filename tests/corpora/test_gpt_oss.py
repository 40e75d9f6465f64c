"""gpt-oss: the kernels of its Metal reference."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ostinato as ost
from checkouts import Checkouts
from launching import launch

FOLDER = "gpt_oss/metal/source"
NOT_ABORTED = np.zeros(1, np.uint32)
"""The control block that every kernel looks at."""

F32, BF16 = np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)
PREDICTION = np.dtype([("expert_id", np.uint32), ("score", np.float32)])
HEADS, KV_HEADS, HEAD = 64, 8, 64
"""Heads of queries, heads of keys and of values, and their size. The kernels know no other."""


def kernel(checkouts: Checkouts, file: str, name: str) -> ost.Kernel:
    return checkouts.library("gpt-oss", f"{FOLDER}/{file}.metal", include=(f"{FOLDER}/include",))[name]


def random(numbers: np.random.Generator, *shape: int, dtype: np.dtype = F32) -> np.ndarray:
    return numbers.standard_normal(shape).astype(dtype)


def assert_product(got: np.ndarray, x: np.ndarray, weights: np.ndarray, plus: np.ndarray | float = 0.0) -> None:
    """x times the rows of weights, up to a part of the sum of the magnitudes of what is added."""
    x, w = x.astype(np.float64), weights.astype(np.float64).swapaxes(-1, -2)
    bound = np.abs(x) @ np.abs(w) + np.abs(plus)
    assert got.shape == bound.shape
    assert (np.abs(got - (x @ w + plus)) / bound).max() < 2e-6


def predictions(numbers: np.random.Generator, tokens: int, experts: int) -> np.ndarray:
    """Four experts for each token, and what they count."""
    chosen = np.zeros((tokens, 4), PREDICTION)
    chosen["expert_id"] = np.argsort(numbers.random((tokens, experts)), axis=1)[:, :4]
    chosen["score"] = numbers.random((tokens, 4))
    return chosen


def test_rmsnorm(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    norm = kernel(checkouts, "rmsnorm", "gptoss_f32_bf16w_rmsnorm")
    x = numbers.standard_normal((3, 2880)).astype(np.float32)
    weights = numbers.standard_normal(2880).astype(ml_dtypes.bfloat16)
    arguments = {"num_vecs": 720, "num_channels": 2880.0, "epsilon": 1e-5}
    got = launch(dev, norm, arguments, x, weights, np.zeros_like(x), NOT_ABORTED, groups=3, group_size=1024)
    expected = x / np.sqrt(np.mean(x.astype(np.float64) ** 2, axis=1, keepdims=True) + 1e-5) * weights.astype(float)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_embeddings(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    embed = kernel(checkouts, "embeddings", "gptoss_bf16_f32_embeddings")
    table, tokens = random(numbers, 20, 2880, dtype=BF16), np.array([7, 0, 19], np.uint32)
    out = np.zeros((3, 2880), F32)
    got = launch(dev, embed, {"num_vecs": 720}, tokens, table, out, NOT_ABORTED, groups=3, group_size=512)
    np.testing.assert_array_equal(got, table[tokens].astype(F32))


def squares32(counter: np.ndarray, key: int) -> np.ndarray:
    """Widynski's generator."""
    y = counter.astype(np.uint64) * np.uint64(key)
    z = y + np.uint64(key)
    x = y * y + y
    for add in (z, y):
        x = x >> np.uint64(32) | x << np.uint64(32)
        x = x * x + add
    x = x >> np.uint64(32) | x << np.uint64(32)
    return np.asarray((x * x + z) >> np.uint64(32), np.uint32)


@pytest.mark.parametrize("name", ["u32", "f32", "bf16"])
def test_fill_random(dev: ost.Device, checkouts: Checkouts, name: str) -> None:
    seed, offset = 0xC58EFD154CE32F6D, 2**40 + 12345
    arguments: dict[str, Any] = {"num_vecs_per_threadgroup": 1792, "num_vecs": 5000, "offset": offset, "seed": seed}
    if name != "u32":
        arguments |= {"scale": 2.0**-31, "bias": 0.25}
    dtype = {"u32": np.dtype(np.uint32), "f32": F32, "bf16": BF16}[name]
    fill = kernel(checkouts, "random", f"gptoss_{name}_fill_random")
    got = launch(dev, fill, arguments, np.zeros(5000, dtype), groups=3, group_size=256)
    words = squares32(offset + np.arange(5000), seed)
    if name == "u32":
        np.testing.assert_array_equal(got, words)
    else:
        expected = words.view(np.int32) * 2.0**-31 + 0.25
        np.testing.assert_allclose(got.astype(float), expected, rtol=2**-8 if name == "bf16" else 1e-6, atol=1e-7)


FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def mxfp4(numbers: np.random.Generator, *shape: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights of four bits, the exponents of each 32 of them, and their values."""
    codes = numbers.integers(0, 16, shape, np.uint8)
    exponents = numbers.integers(120, 130, (*shape[:-1], shape[-1] // 32), np.uint8)
    values = np.where(codes & 8, -1, 1) * FP4[codes & 7] * 2.0 ** (exponents.repeat(32, axis=-1).astype(int) - 127)
    return codes[..., ::2] | codes[..., 1::2] << 4, exponents, values


def test_convert(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    blocks, exponents, values = mxfp4(numbers, 700 * 32)
    convert = kernel(checkouts, "convert", "gptoss_mf4_f32_convert")
    arguments, out = {"num_vecs_per_threadgroup": 256, "num_vecs": 700}, np.zeros(700 * 32, F32)
    got = launch(dev, convert, arguments, blocks, exponents, out, groups=3, group_size=128)
    np.testing.assert_array_equal(got, values)


@pytest.mark.parametrize("add", [0, 1])
def test_matmul(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, add: int) -> None:
    multiply = kernel(checkouts, "matmul", "gptoss_f32_bf16w_matmul")
    x, weights, bias = random(numbers, 3, 300), random(numbers, 96, 300, dtype=BF16), random(numbers, 96, dtype=BF16)
    before = random(numbers, 3, 96)
    arguments = {"num_column_vecs": 75, "num_rows": 96, "add": add}
    geometry: dict[str, Any] = {"groups": (4, 3, 1), "group_size": 768}
    got = launch(dev, multiply, arguments, x, weights, bias, before, NOT_ABORTED, **geometry)
    assert_product(got, x, weights, bias.astype(float) + add * before)


ROPE = {
    "freq_scale": -math.log(150000) / 32,
    "interpolation_scale": 1 / 32,
    "yarn_offset": -0.5,
    "yarn_scale": 0.08,
    "yarn_multiplier": 1.25,
}
"""Slow pairs turn slower by far, fast ones do not."""


def rotated(pairs: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """The heads of tokens, each with its pairs turned: [tokens, heads, 64]."""
    dims = np.arange(HEAD // 2)
    slowed = np.clip(0.08 * dims - 0.5, 0, 1)
    angles = positions[:, None, None] * 150000.0 ** (-dims / 32) * (1 - slowed + slowed / 32)
    turned = pairs.astype(np.float64).view(np.complex128) * np.exp(1j * angles) * 1.25
    return np.ascontiguousarray(turned).view(np.float64)


def test_rope(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    tokens, first, capacity = 3, 5, 10
    x = random(numbers, tokens, HEADS + 2 * KV_HEADS, HEAD)
    arguments = {"token_stride": x[0].size // 2, "token_offset": first, "max_tokens": capacity} | ROPE
    got, cache = launch(
        dev,
        kernel(checkouts, "rope", "gptoss_f32_rope"),
        arguments,
        x,
        np.zeros((KV_HEADS, capacity, 2, HEAD), F32),
        NOT_ABORTED,
        groups=(HEADS + KV_HEADS, tokens, 1),
        group_size=32,
    )
    expected = rotated(x[:, : HEADS + KV_HEADS], first + np.arange(tokens))
    np.testing.assert_allclose(got[:, :HEADS], expected[:, :HEADS], rtol=0, atol=3e-5)
    np.testing.assert_array_equal(got[:, HEADS + KV_HEADS :], x[:, HEADS + KV_HEADS :])
    places = np.s_[:, first : first + tokens, 0]
    np.testing.assert_allclose(cache[places], expected[:, HEADS:].swapaxes(0, 1), rtol=0, atol=3e-5)
    cache[places] = 0
    assert not cache.any()


def assert_qkv(q: np.ndarray, cache: np.ndarray, heads: np.ndarray, first: int, turn: bool) -> None:
    """Queries, and keys and values in the cache, both turned or not."""
    tokens = len(heads)
    seen = HEADS + KV_HEADS
    turned = rotated(heads[:, :seen], first + np.arange(tokens)) if turn else heads[:, :seen]
    keys = cache[:, first : first + tokens, 0].swapaxes(0, 1) if turn else q[:, HEADS:seen]
    near = {"rtol": 0, "atol": 1e-5 * np.abs(heads).max()}
    np.testing.assert_allclose(q[:, :HEADS], turned[:, :HEADS], **near)
    np.testing.assert_allclose(keys, turned[:, HEADS:], **near)
    np.testing.assert_allclose(cache[:, first : first + tokens, 1].swapaxes(0, 1), heads[:, seen:], **near)


def test_matmul_qkv(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    tokens, first, capacity, rows = 3, 5, 10, (HEADS + 2 * KV_HEADS) * HEAD
    x, weights = random(numbers, tokens, 132), random(numbers, rows, 132, dtype=BF16)
    bias = random(numbers, rows, dtype=BF16)
    arguments = {"num_column_vecs": 33, "num_rows": rows, "token_offset": first, "max_tokens": capacity} | ROPE
    q, cache = launch(
        dev,
        kernel(checkouts, "matmul", "gptoss_f32_bf16w_matmul_qkv"),
        arguments,
        *(x, weights, bias),
        np.zeros((tokens, rows), F32),
        np.zeros((KV_HEADS, capacity, 2, HEAD), F32),
        NOT_ABORTED,
        groups=(rows // 32, tokens, 1),
        group_size=1024,
        shared={0: 32 * 4},
    )
    heads = (x.astype(float) @ weights.astype(float).T + bias.astype(float)).reshape(tokens, -1, HEAD)
    assert_qkv(q.reshape(heads.shape), cache, heads, first, turn=True)


def test_dense_matmul_qkv(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    tokens, first, capacity, rows = 5, 5, 10, (HEADS + 2 * KV_HEADS) * HEAD
    x, weights = random(numbers, 64, 96), random(numbers, rows, 96, dtype=BF16)  # whole tiles of tokens are read
    bias = random(numbers, rows, dtype=BF16)
    q, cache = launch(
        dev,
        kernel(checkouts, "matmul", "gptoss_f32_bf16w_dense_matmul_qkv"),
        {"m": tokens, "n": rows, "k": 96, "max_tokens": capacity, "token_offset": first},
        *(x, weights, bias),
        np.zeros((tokens, rows), F32),
        np.zeros((KV_HEADS, capacity, 2, HEAD), F32),
        NOT_ABORTED,
        groups=(rows // 64, 1, 1),
        group_size=128,
    )
    heads = (x[:tokens].astype(float) @ weights.astype(float).T + bias.astype(float)).reshape(tokens, -1, HEAD)
    assert_qkv(q.reshape(heads.shape), cache, heads, first, turn=False)


@pytest.mark.parametrize(("name", "tile", "add"), [("attn_output", (32, 64), 1), ("mlp_gate", (64, 16), 0)])
def test_dense_matmul(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str, tile: tuple[int, int], add: int
) -> None:
    tokens, rows = 40, 128
    x, weights = random(numbers, 64, 192), random(numbers, rows, 192, dtype=BF16)  # whole tiles of tokens are read
    bias, before = random(numbers, rows, dtype=BF16), random(numbers, tokens, rows)
    multiply = kernel(checkouts, "matmul", f"gptoss_f32_bf16w_dense_matmul_{name}")
    geometry: dict[str, Any] = {"groups": (rows // tile[1], -(-tokens // tile[0]), 1), "group_size": 128}
    arguments = {"m": tokens, "n": rows, "k": 192}
    got = launch(dev, multiply, arguments, x, weights, bias, before, NOT_ABORTED, **geometry)
    assert_product(got, x[:tokens], weights, bias.astype(float) + add * before)


def test_unembedding(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    x, weights = random(numbers, 3, 300), random(numbers, 1000, 300, dtype=BF16)
    scores, best = launch(
        dev,
        kernel(checkouts, "matmul", "gptoss_f32_bf16w_unembedding"),
        {"num_column_vecs": 75, "num_rows_per_threadgroup": 130, "num_rows": 1000},
        *(x, weights),
        np.zeros((3, 1000), F32),
        np.full(3, 2**64 - 1, np.uint64),
        NOT_ABORTED,
        groups=(8, 3, 1),
        group_size=416,
    )
    assert_product(scores, x, weights)
    np.testing.assert_array_equal(best & np.uint64(0xFFFFFFFF), scores.argmax(1))


@pytest.mark.parametrize("window", [1000, 16])
def test_sdpa(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, window: int) -> None:
    tokens, before, capacity, simdgroups = 3, 30, 40, 7
    x = random(numbers, tokens, HEADS + 2 * KV_HEADS, HEAD) / F32.type(8)
    cache, sinks = random(numbers, KV_HEADS, capacity, 2, HEAD), random(numbers, HEADS, dtype=BF16)
    arguments = {"qkv_dim": x[0].size, "num_kv_tokens": before, "kv_stride": cache[0].size, "window": window}
    got = launch(
        dev,
        kernel(checkouts, "sdpa", "gptoss_f32_sdpa_q8_d64"),
        arguments,
        *(x, cache, sinks, np.zeros((tokens, HEADS, HEAD), F32)),
        NOT_ABORTED,
        groups=(tokens, KV_HEADS, 1),
        group_size=32 * simdgroups,
        shared={0: simdgroups // 2 * 32 * 8 * 4 * 4},
    )
    for token in range(tokens):
        seen = cache[:, max(0, before + token + 1 - window) : before + token + 1].astype(np.float64).repeat(8, axis=0)
        weights = np.exp(np.einsum("hd,htd->ht", x[token, :HEADS], seen[:, :, 0]))
        total = weights.sum(1) + np.exp(sinks.astype(float))
        expected = np.einsum("ht,htd->hd", weights, seen[:, :, 1]) / total[:, None]
        np.testing.assert_allclose(got[token], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("experts", [32, 128])
def test_topk(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, experts: int) -> None:
    scores, out = random(numbers, 5, experts), np.zeros((5, 4), PREDICTION)
    choose = kernel(checkouts, "topk", f"gptoss_f32_topk_softmax_e{experts}_k4")
    got = launch(dev, choose, {"num_vecs_per_token": 0}, scores, out, NOT_ABORTED, groups=5, group_size=32)
    best = np.argsort(-scores, axis=1)[:, :4]
    weights = np.exp(np.take_along_axis(scores, best, axis=1).astype(np.float64))
    np.testing.assert_array_equal(got["expert_id"], best)
    np.testing.assert_allclose(got["score"], weights / weights.sum(1, keepdims=True), rtol=1e-5)


def test_softmax_and_sample(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    count, each = 5000, 2048
    scores = 3 * random(numbers, 2, count)
    best = np.zeros((2, 2), np.uint32)
    bits = scores.max(1).view(np.uint32)
    best[:, 1] = np.where(bits.view(np.int32) >= 0, bits ^ 0x7FFFFFFF, bits)
    arguments = {"num_vecs": count, "num_vecs_per_threadgroup": each, "max_threadgroups": 3, "temperature": 0.75}
    softmax, sample = (kernel(checkouts, "sample", f"gptoss_f32_{name}") for name in ("softmax", "sample"))
    zeros, geometry = (np.zeros((2, count), F32), np.zeros((2, 3), F32)), {"groups": (3, 2, 1), "group_size": 512}
    weights, sums = launch(dev, softmax, arguments, scores, best, *zeros, NOT_ABORTED, **geometry)
    exact = np.exp(0.75 * (scores.astype(np.float64) - scores.max(1, keepdims=True)))
    np.testing.assert_allclose(weights, exact, rtol=2e-5)
    np.testing.assert_allclose(sums, np.add.reduceat(exact, [0, each, 2 * each], axis=1), rtol=1e-5)

    upto = np.concatenate([[0], weights[0].cumsum(dtype=np.float64)])
    sizes = {"num_blocks": 3, "num_dims": count, "num_dims_per_block": each, "rng_seed": 0x9E3779B97F4A7C15}
    for turn in range(12):
        bound = (sizes | {"rng_offset": turn}, weights[0], sums[0], np.zeros(1, np.uint32), NOT_ABORTED)
        chosen, _ = launch(dev, sample, *bound, groups=1, group_size=512)
        wanted = (squares32(np.array([turn]), sizes["rng_seed"])[0] & 0xFFFFFF) / 2**24 * upto[-1]
        assert upto[chosen[0]] - 1e-5 * upto[-1] <= wanted <= upto[chosen[0] + 1] + 1e-5 * upto[-1]


def test_accumulate(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    parts, before, chosen = random(numbers, 4, 3, 2880), random(numbers, 3, 2880), predictions(numbers, 3, 32)
    add = kernel(checkouts, "accumulate", "gptoss_f32_accumulate_e4")
    arguments = {"num_vecs_per_expert": 3 * 720, "num_vecs_per_threadgroup": 512, "num_vecs": 720}
    geometry: dict[str, Any] = {"groups": (2, 3, 1), "group_size": 256}
    got = launch(dev, add, arguments, parts, chosen, before, NOT_ABORTED, **geometry)
    expected = before + np.einsum("etc,te->tc", parts.astype(np.float64), chosen["score"])
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_rows_to_experts_and_back(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    tokens, experts, channels = 150, 32, 300
    x, chosen = random(numbers, tokens, channels), predictions(numbers, tokens, experts)
    ids = chosen["expert_id"].reshape(-1)
    begins, ranks = launch(
        dev,
        kernel(checkouts, "expert_routing_metadata", "gptoss_f32_expert_routing_metadata"),
        {"tokens": ids.size, "num_experts": experts},
        chosen,
        np.zeros(experts + 1, np.uint32),
        np.zeros(ids.size, np.uint32),
        groups=1,
        group_size=256,
    )
    np.testing.assert_array_equal(begins, np.concatenate([[0], np.bincount(ids, minlength=experts).cumsum()]))
    places = begins[ids] + ranks
    np.testing.assert_array_equal(np.sort(places), np.arange(ids.size))

    arguments = {"tokens": tokens, "active_experts_per_token": 4, "token_stride": channels}
    geometry: dict[str, Any] = {"groups": (2, tokens, 1), "group_size": 64}
    scatter = kernel(checkouts, "scatter", "gptoss_f32_scatter_e4")
    out = np.zeros((ids.size, channels), F32)
    rows = launch(dev, scatter, arguments, x, chosen, begins, ranks, out, **geometry)
    np.testing.assert_array_equal(rows[places], x.repeat(4, axis=0))

    gather = kernel(checkouts, "gather_and_accumulate", "gptoss_f32_gather_and_accumulate_e4")
    before = random(numbers, tokens, channels)
    parts = random(numbers, *rows.shape)
    got = launch(dev, gather, arguments, parts, chosen, begins, ranks, before, **geometry)
    of_tokens = parts[places].reshape(tokens, 4, channels).astype(np.float64)
    expected = before + (of_tokens * chosen["score"][..., None]).sum(1)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


EXPERTS, LIMIT = 6, 7.0


def experts(numbers: np.random.Generator, rows: int, columns: int) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Blocks, scales and biases of experts as they are bound, with one distance between experts; weights and biases.

    Scales of experts are stored 14 larger: the kernels make halves of the blocks without their exponents' bias.
    """
    blocks, exponents, values = mxfp4(numbers, EXPERTS, rows, columns)
    bias = random(numbers, EXPERTS, rows, dtype=BF16)
    bound = []
    for part in (blocks, exponents + np.uint8(14), bias):
        content = part.reshape(EXPERTS, -1).view(np.uint8)
        bound.append(np.zeros((EXPERTS, blocks[0].size), np.uint8))
        bound[-1][:, : content.shape[1]] = content
    return bound, values, bias.astype(np.float64)


def swiglu(x: np.ndarray) -> np.ndarray:
    swish, linear = np.minimum(x[..., ::2], LIMIT), np.clip(x[..., 1::2], -LIMIT, LIMIT)
    return np.asarray(swish / (1 + np.exp(-1.702 * swish)) * (linear + 1))


@pytest.mark.parametrize("gated", [True, False])
def test_moe_matmul(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, gated: bool) -> None:
    tokens, rows, columns = 3, 96, 35 * 32
    bound, weights, bias = experts(numbers, rows, columns)
    out_rows = rows // 2 if gated else rows
    x = random(numbers, 1 if gated else 4, tokens, columns) / F32.type(32)
    chosen = predictions(numbers, tokens, EXPERTS)
    arguments: dict[str, Any] = {"num_column_vecs": 35, "num_rows": out_rows, "num_active_experts": 4}
    arguments |= {"weight_expert_stride": bound[0].strides[0], "output_expert_stride": out_rows * tokens}
    arguments |= {"swiglu_min": -LIMIT, "swiglu_max": LIMIT} if gated else {"input_expert_stride": 35 * tokens}
    multiply = kernel(checkouts, "moematmul", "gptoss_f32_mf4w_moe_matmul" + ("_swiglu" if gated else ""))
    out, geometry = np.zeros((4, tokens, out_rows), F32), {"groups": (rows // 6, tokens, 4), "group_size": 192}
    got = launch(dev, multiply, arguments, x, chosen, *bound, out, NOT_ABORTED, **geometry)
    ids = chosen["expert_id"].T
    product = np.einsum("etrc,etc->etr", weights[ids], np.broadcast_to(x, (4, tokens, columns))) + bias[ids]
    expected = swiglu(product) if gated else product
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("gated", [True, False])
def test_moe_dense_matmul(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, gated: bool) -> None:
    """Rows in the order of their experts, of which one has none."""
    begins = np.array([0, 40, 40, 47, 80, 90, 91], np.uint32)
    rows, columns = 128, 96
    bound, weights, bias = experts(numbers, rows, columns)
    x = random(numbers, begins[-1], columns) / F32.type(32)
    stride = bound[0].strides[0]
    arguments: dict[str, Any] = {"k": columns, "n": rows, "bias_expert_stride_bytes": stride}
    arguments |= {"weight_blocks_expert_stride_bytes": stride, "weight_scales_expert_stride_bytes": stride}
    arguments |= {"swiglu_min": -LIMIT, "swiglu_max": LIMIT} if gated else {}
    multiply = kernel(checkouts, "moematmul", "gptoss_f32_mf4w_moe_dense_matmul" + ("_swiglu" if gated else ""))
    out = np.zeros((len(x), rows // 2 if gated else rows), F32)
    got = launch(dev, multiply, arguments, begins, x, *bound, out, groups=(rows // 64, 2, EXPERTS), group_size=128)
    of = np.repeat(np.arange(EXPERTS), np.diff(begins))
    product = np.einsum("nrc,nc->nr", weights[of], x) + bias[of]
    expected = swiglu(product) if gated else product
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
