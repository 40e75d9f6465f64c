"""mlx-native: norms, softmax, rotary embeddings, attention, sorts, routing to experts, embeddings."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ostinato as ost
from checkouts import Checkouts
from launching import launch

Array = np.ndarray[Any, Any]

DTYPES = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
ROUNDING = {"f32": 1e-5, "f16": 2e-3, "bf16": 1.6e-2}

types = pytest.mark.parametrize("name", DTYPES)


def kernel(checkouts: Checkouts, file: str, name: str) -> ost.Kernel:
    return checkouts.library("mlx-native", f"src/shaders/{file}.metal")[name]


def normal(numbers: np.random.Generator, name: str, *shape: int) -> Array:
    return numbers.standard_normal(shape).astype(DTYPES[name])


def close(got: Array, expected: Array, scale: float = 1) -> None:
    """That results are what they should be, but for rounding, of numbers that are of the order of `scale`."""
    tolerance = next(ROUNDING[name] for name, dtype in DTYPES.items() if dtype == got.dtype) * scale
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=tolerance, atol=tolerance)


def rms_normed(x: Array) -> Array:
    x = x.astype(np.float64)
    return np.asarray(x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6))


@types
def test_rms_norm(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str) -> None:
    x, w = normal(numbers, name, 5, 1003), normal(numbers, "bf16" if name == "bf16" else "f32", 1003)
    norm = kernel(checkouts, "rms_norm", f"rms_norm_{name}")
    params = np.array([1e-6, 1003], np.float32)
    got = launch(dev, norm, x, w, np.ones_like(x), params, groups=5, group_size=256, shared={0: 1024})
    close(got, rms_normed(x) * w.astype(np.float64), 2)


@types
def test_rms_norm_times_another_array(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str
) -> None:
    x, scale = normal(numbers, name, 5, 1003), normal(numbers, name, 5, 1003)
    w = normal(numbers, "bf16" if name == "bf16" else "f32", 1003)
    norm = kernel(checkouts, "rms_norm", f"rms_norm_mul_{name}")
    params = np.array([1e-6, 1003], np.float32)
    got = launch(dev, norm, x, w, scale, np.ones_like(x), params, groups=5, group_size=128, shared={0: 512})
    close(got, rms_normed(x) * w.astype(np.float64) * scale.astype(np.float64), 4)


@types
def test_l2_norm(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str) -> None:
    x = normal(numbers, name, 5, 1003)
    norm = kernel(checkouts, "l2_norm", f"l2_norm_{name}")
    params = np.array([1e-6, 1003], np.float32)
    got = launch(dev, norm, x, np.ones_like(x), params, groups=5, group_size=256, shared={0: 1024})
    wide = x.astype(np.float64)
    close(got * 30, 30 * wide / np.sqrt((wide**2).sum(-1, keepdims=True) + 1e-6), 2)


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


@types
def test_softmax(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str) -> None:
    x = (normal(numbers, "f32", 5, 1003) * 3).astype(DTYPES[name])
    norm = kernel(checkouts, "softmax", f"softmax_{name}")
    params = np.array([1003, 0], np.float32)
    got = launch(dev, norm, x, np.ones_like(x), params, groups=5, group_size=256, shared={0: 1024})
    np.testing.assert_allclose(got.astype(np.float64), softmax(x.astype(np.float64)), rtol=ROUNDING[name], atol=1e-6)


def turned(a: Array, b: Array, angles: Array) -> tuple[Array, Array]:
    a, b = a.astype(np.float64), b.astype(np.float64)
    return a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)


@types
def test_rope_of_neighbours(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str) -> None:
    x, positions = normal(numbers, name, 7, 96), numbers.integers(0, 40, 7).astype(np.uint32)
    rope = kernel(checkouts, "rope", f"rope_{name}")
    params = np.array([10000, 96, 7, 0], np.float32)
    got = launch(dev, rope, x, np.ones_like(x), params, positions, threads=(48, 7), group_size=(16, 4))
    angles = positions[:, None] * 10000.0 ** (-np.arange(48) / 48)
    expected = np.stack(turned(x[:, ::2], x[:, 1::2], angles), -1).reshape(x.shape)
    close(got, expected, 5)


@pytest.mark.parametrize("divided", [False, True])
def test_rope_of_halves(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, divided: bool) -> None:
    x, positions = normal(numbers, "f32", 5, 3, 64), numbers.integers(0, 40, 5).astype(np.uint32)
    factors = numbers.uniform(1, 8, 20).astype(np.float32)
    rope = kernel(checkouts, "rope", "rope_neox_f32")
    params, heads = np.array([10000, 64, 40, 0], np.float32), np.array([3, divided], np.uint32)
    arguments = (params, positions, heads, factors)
    got = launch(dev, rope, x, np.ones_like(x), *arguments, threads=(20, 15), group_size=(20, 4))
    angles = positions[:, None, None] * 10000.0 ** (-np.arange(20) / 32) / (factors if divided else 1)
    expected = x.astype(np.float64)
    expected[..., :20], expected[..., 32:52] = turned(x[..., :20], x[..., 32:52], angles)
    close(got, expected, 5)


def attention(q: Array, k: Array, v: Array, mask: Array | bool = True) -> Array:
    """Of arrays [head, position, element]; several heads of queries share a head of keys."""
    shared = len(q) // len(k)
    q, k, v = (a.astype(np.float64) for a in (q, np.repeat(k, shared, 0), np.repeat(v, shared, 0)))
    scores = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    return np.asarray(softmax(np.where(mask, scores, -np.inf)) @ v)


@pytest.mark.parametrize(("width", "simdgroups"), [(128, 4), (256, 2)])
def test_attention_of_one_query(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, width: int, simdgroups: int
) -> None:
    q = normal(numbers, "f32", 6, 1, width)
    k, v = normal(numbers, "f32", 2, 150, width), normal(numbers, "f32", 2, 150, width)
    attend = kernel(checkouts, "sdpa_decode", "sdpa_decode")
    params = {"n_heads": 6, "n_kv_heads": 2, "head_dim": width, "kv_seq_len": 141, "kv_capacity": 150}
    params_of_device: dict[str, Any] = params | {"scale": width**-0.5, "n_sg": simdgroups}
    shared = {0: 4 * simdgroups * (width + 2)}
    got = launch(
        dev, attend, q, k, v, np.ones_like(q), params_of_device, groups=6, group_size=32 * simdgroups, shared=shared
    )
    close(got, attention(q, k[:, :141], v[:, :141]), 3)


@pytest.mark.parametrize("name", ["f32", "bf16"])
def test_attention_in_a_window(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str) -> None:
    q, k, v = (normal(numbers, name, *shape) for shape in ((4, 45, 64), (2, 90, 64), (2, 90, 64)))
    attend = kernel(checkouts, "sdpa_sliding", "sdpa_sliding" + "_bf16" * (name == "bf16"))
    params = np.zeros(1, attend.dtype("params"))
    fields = {"n_heads": 4, "n_kv_heads": 2, "head_dim": 64, "seq_len": 45, "kv_seq_len": 80, "window_size": 20}
    for field, value in (fields | {"scale": 0.125, "kv_capacity": 90}).items():
        params[field] = value
    got = launch(dev, attend, q, k, v, np.ones_like(q), params, groups=(1, 4, 2), group_size=32)
    distance = np.arange(45)[:, None] + 35 - np.arange(80)
    close(got, attention(q, k[:, :80], v[:, :80], (distance >= 0) & (distance <= 20)), 3)


@pytest.mark.parametrize("window", [0, 100])
@pytest.mark.parametrize(("name", "width"), [("f32", 256), ("f16", 512)])
def test_flash_attention(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str, width: int, window: int
) -> None:
    q = normal(numbers, "f32", 4, 1, width)
    k, v = normal(numbers, name, 2, 352, width), normal(numbers, name, 2, 352, width)
    groups = 5
    kind = f"flash_attn_vec{'_f16kv' * (name == 'f16')}_dk{width}"
    attend, reduce = (kernel(checkouts, "flash_attn_vec", n) for n in (kind, f"flash_attn_vec_reduce_dk{width}"))
    params = {"n_heads": 4, "n_kv_heads": 2, "head_dim": width, "kv_seq_len": 333, "kv_capacity": 352}
    params |= {"mask_type": 2 if window else 1, "sliding_window": window, "nwg": groups}
    parts = np.ones(4 * groups * (width + 2), np.float32)
    arguments: dict[str, Any] = params | {"scale": width**-0.5, "softcap": 0.0}
    shared = {0: 2 * (width + 128 + 2 * width)}
    parts = launch(dev, attend, arguments, q, k, v, parts, groups=(1, 4, groups), group_size=32, shared=shared)
    rows = {"nrows": 4}
    got = launch(dev, reduce, rows, parts, np.ones_like(q), groups, groups=4, group_size=32 * groups)
    mask = np.arange(333) >= (333 - window if window else 0)
    # Queries are kept in half.
    close(got, attention(q.astype(np.float16), k[:, :333], v[:, :333], mask), 10)


@pytest.mark.parametrize("count", [5, 40])
def test_top_k(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, count: int) -> None:
    x = numbers.permutation(5003).astype(np.float32)
    top = kernel(checkouts, "top_k", "top_k_f32")
    threads = 128 if count <= 32 else 64
    params, shared = np.array([5003, count], np.uint32), dict.fromkeys((0, 1), threads * count * 4)
    empty = (np.ones(count, np.uint32), np.ones(count, np.float32))
    places, values = launch(dev, top, x, *empty, params, groups=1, group_size=threads, shared=shared)
    np.testing.assert_array_equal(np.sort(values), np.sort(x)[-count:])
    np.testing.assert_array_equal(x[places], values)


def test_argsort(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    x = np.stack([numbers.permutation(200) for _ in range(7)]).astype(np.float32)
    sort = kernel(checkouts, "argsort", "argsort_desc_f32")
    params = {"row_len": 200, "batch_size": 7}
    got = launch(dev, sort, x, np.ones((7, 200), np.uint32), params, groups=7, group_size=256)
    np.testing.assert_array_equal(got, np.argsort(-x))


def test_argmax(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    x = numbers.permutation(10007).astype(np.float32)
    argmax = kernel(checkouts, "argmax", "argmax_f32")
    empty = (np.zeros(1, np.uint32), np.zeros(1, np.float32))
    shared = dict.fromkeys((0, 1), 4096)
    place, value = launch(
        dev, argmax, x, *empty, np.array([10007], np.uint32), groups=1, group_size=1024, shared=shared
    )
    assert (place[0], value[0]) == (x.argmax(), x.max())


@pytest.mark.parametrize("name", ["f32", "bf16"])
def test_cumulated_sums(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str) -> None:
    x = numbers.integers(-2, 3, (3, 1501)).astype(DTYPES[name])
    sums = kernel(checkouts, "cumsum", f"cumsum_{name}")
    params = np.array([1501], np.uint32)
    got = launch(dev, sums, x, np.ones_like(x), params, groups=3, group_size=128, shared={0: 1024})
    np.testing.assert_array_equal(got, np.cumsum(x.astype(np.float64), 1).astype(x.dtype))


def test_hadamard(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    x = normal(numbers, "f32", 5, 256)
    transform = kernel(checkouts, "hadamard", "hadamard_transform")
    got = launch(dev, transform, x, 256, 5, groups=5, group_size=256, shared={0: 1024})
    matrix = np.ones((1, 1))
    while len(matrix) < 256:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    close(got, x.astype(np.float64) @ matrix / 16, 3)


@pytest.mark.parametrize("name", ["f32", "bf16"])
def test_triangular_systems(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str) -> None:
    matrices = (numbers.standard_normal((3, 20, 20)) * 0.2).astype(DTYPES[name])
    sides = normal(numbers, name, 3, 20, 37)
    solve = kernel(checkouts, "tri_solve", f"tri_solve_lower_unit_{name}")
    params = np.array([20, 37, 3], np.uint32)
    got = launch(dev, solve, matrices, sides, np.ones_like(sides), params, threads=(37, 3), group_size=(32, 2))
    expected = np.linalg.solve(np.tril(matrices.astype(np.float64), -1) + np.eye(20), sides.astype(np.float64))
    close(got, expected, 8)


def test_routing_by_a_gate(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    x, w = normal(numbers, "bf16", 5, 200), normal(numbers, "f32", 128, 200)
    norm, scales = normal(numbers, "f32", 200), numbers.uniform(0.5, 2, 128).astype(np.float32)
    gate = kernel(checkouts, "moe_gate", "moe_gate")
    empty = (np.ones((5, 8), np.uint32), np.ones((5, 8), np.float32))
    experts, weights = launch(
        dev, gate, x, w, norm, scales, *empty, 200, 128, 8, 1e-6, groups=5, group_size=128, shared={0: 4 * 328}
    )
    scores = (rms_normed(x) * norm) @ w.T.astype(np.float64)
    expected = np.argsort(-scores)[:, :8]
    np.testing.assert_array_equal(experts, expected)
    chosen = softmax(np.take_along_axis(scores, expected, 1)) * scales[expected]
    np.testing.assert_allclose(weights, chosen / chosen.sum(1, keepdims=True), rtol=1e-3, atol=1e-6)


def test_routing_by_softmax(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    scores = normal(numbers, "f32", 7, 200)
    route = kernel(checkouts, "moe_softmax_topk", "moe_softmax_topk_f32")
    params = {"n_tokens": 7, "n_experts": 200, "top_k": 6, "_pad": 0.0}
    empty = (np.ones((7, 6), np.uint32), np.ones((7, 6), np.float32))
    shared = {0: (2 * 128 + 200) * 4}
    experts, weights = launch(dev, route, params, scores, *empty, groups=7, group_size=128, shared=shared)
    expected = np.argsort(-scores)[:, :6]
    np.testing.assert_array_equal(experts, expected)
    close(weights, softmax(np.take_along_axis(scores, expected, 1).astype(np.float64)))


def packed(codes: Array, bits: int) -> Array:
    """Bytes in which each code takes some bits, the lowest first."""
    digits = (codes[..., None] >> np.arange(bits)) & 1
    return np.packbits(digits.reshape(*codes.shape[:-1], -1), axis=-1, bitorder="little")


@pytest.mark.parametrize("bits", [4, 6])
def test_embedding(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, bits: int) -> None:
    codes, tokens = numbers.integers(0, 2**bits, (50, 192)), numbers.integers(0, 50, 11).astype(np.uint32)
    scales, biases = normal(numbers, "bf16", 50, 3), normal(numbers, "bf16", 50, 3)
    embed = kernel(checkouts, "embedding", f"embedding_gather_{bits}bit")
    rows = packed(codes, bits).view(np.uint32 if bits == 4 else np.uint8)
    params = {"embed_dim": 192, "group_size": 64, "packed_row_stride": rows.shape[1], "n_groups_per_row": 3}
    halves = (scales.view(np.uint16), biases.view(np.uint16))
    out = np.ones((11, 192), np.float32)
    got = launch(dev, embed, rows, *halves, tokens, out, params, threads=(192, 11), group_size=(64, 2))
    values = codes * np.repeat(scales.astype(np.float64), 64, 1) + np.repeat(biases.astype(np.float64), 64, 1)
    close(got, values[tokens], 10)
