"""llama.cpp: what ggml's Metal backend does to each row: norms, softmax, rotations, sums, sorting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ostinato as ost
from checkouts import Checkouts
from ggml import F32, I32, TYPES, assert_near, extents, fields, kernel, memory, random, run
from launching import launch


def power_of_two(least: int, enough: int, most: int = 1024) -> int:
    """The first power of two from `least` on that is enough; or `most`."""
    while least < enough and least < most:
        least *= 2
    return least


@pytest.mark.parametrize("columns", [700, 701, 5000])
@pytest.mark.parametrize("fused", ["", "_mul", "_mul_add"])
@pytest.mark.parametrize("name", ["norm", "rms_norm"])
def test_norms(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str, fused: str, columns: int
) -> None:
    x = random(numbers, 2, 3, 5, columns + 4)[..., :columns] + F32.type(0.5)
    factor, term = random(numbers, 1, 1, 1, columns), random(numbers, 2, 1, 5, columns)
    each = columns // 4 if columns % 4 == 0 else columns
    got = run(
        dev,
        kernel(checkouts, f"kernel_{name}{fused}_f32" + ("_4" if columns % 4 == 0 else "")),
        x,
        factor,
        term,
        out=np.zeros((2, 3, 5, columns), F32),
        arguments={
            "ne00_t": each,
            "eps": 1e-5,
            **{f"nef{axis}": [tensor.shape[3 - axis] for tensor in (x, factor, term)] for axis in (1, 2, 3)},
            **{f"nbf{axis}": [tensor.strides[3 - axis] for tensor in (x, factor, term)] for axis in (1, 2, 3)},
        },
        groups=(5, 3, 2),
        group_size=min(power_of_two(32, each), -(-each // 32) * 32),
        shared={0: 128},
    )
    expected = x.astype(np.float64)
    if name == "norm":
        expected -= expected.mean(-1, keepdims=True)
    expected /= np.sqrt(np.mean(expected**2, -1, keepdims=True) + 1e-5)
    if "mul" in fused:
        expected *= factor
    if "add" in fused:
        expected += term
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("columns", [700, 701])
def test_l2_norm(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, columns: int) -> None:
    x, by_four = random(numbers, 2, 3, 5, columns + 4)[..., :columns], columns % 4 == 0
    got = run(
        dev,
        kernel(checkouts, "kernel_l2_norm_f32_f32" + ("_4" if by_four else "")),
        x,
        out=np.zeros(x.shape, F32),
        arguments={"eps": 1e-5} | ({"ne00": columns // 4, "ne0": columns // 4} if by_four else {}),
        groups=(5, 3, 2),
        group_size=1024,
        shared={0: 128},
    )
    np.testing.assert_allclose(got, x / np.linalg.norm(x.astype(np.float64), axis=-1, keepdims=True), rtol=1e-5)


def test_group_norm(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    x = random(numbers, 6, 7, 9) + F32.type(1)
    norm = kernel(checkouts, "kernel_group_norm_f32")
    out, arguments = np.zeros(x.shape, F32), {"ngrp": 3, "eps": 1e-5}
    got = run(dev, norm, x, out=out, arguments=arguments, groups=3, group_size=32, shared={0: 128})
    parts = x.reshape(3, -1).astype(np.float64)
    expected = (parts - parts.mean(1, keepdims=True)) / np.sqrt(parts.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(got, expected.reshape(x.shape), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "columns", "masked", "sinks", "bias"),
    [
        ("f32", 300, True, False, 0.0),
        ("f16", 300, True, True, 8.0),
        ("f32", 301, False, True, 0.0),
        ("f16", 301, True, False, 8.0),
        ("f32", 300, False, False, 0.0),
    ],
)
def test_soft_max(
    dev: ost.Device,
    checkouts: Checkouts,
    numbers: np.random.Generator,
    name: str,
    columns: int,
    masked: bool,
    sinks: bool,
    bias: float,
) -> None:
    x, heads = random(numbers, 2, 6, 5, columns), 6
    mask = random(numbers, 1, 1, 5, columns + 4, dtype=TYPES[name])[..., :columns]
    mask[numbers.random(mask.shape) < 0.3] = -np.inf
    sink = random(numbers, heads)
    soft_max = kernel(checkouts, f"kernel_soft_max_{name}" + ("_4" if columns % 4 == 0 else ""))
    arguments = {"scale": 0.5, "max_bias": bias, "m0": 2 ** (-bias / 4), "m1": 2 ** (-bias / 8), "n_head_log2": 4}
    bound = dev.array(memory(x))  # also in place of a mask or sinks that are not there
    got = launch(
        dev,
        soft_max,
        fields(soft_max, x, mask, out=x, **arguments),
        bound,
        memory(mask) if masked else bound,
        memory(sink) if sinks else bound,
        memory(np.zeros_like(x)),
        groups=(5, heads, 2),
        group_size=32,  # there are more than 256 / 32 rows
        shared={0: 128},
    )
    scores = 0.5 * x.astype(np.float64)
    if masked:
        slopes = 2.0 ** (-bias / 4 * np.array([1, 2, 3, 4, 0.5, 1.5]))
        scores += mask.astype(np.float64) * slopes[:, None, None]
    weights = np.exp(scores)
    expected = weights / (weights.sum(-1, keepdims=True) + (np.exp(sink)[:, None, None] if sinks else 0))
    np.testing.assert_allclose(got.view(F32).reshape(x.shape), expected, rtol=1e-5, atol=1e-9)


def test_soft_max_of_few_long_rows(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    x = random(numbers, 1, 1, 1, 4001)
    soft_max = kernel(checkouts, "kernel_soft_max_f32")
    arguments = {"scale": 2.0, "max_bias": 0.0, "m0": 1.0, "m1": 1.0, "n_head_log2": 1}
    bound = dev.array(memory(x))
    struct, out = fields(soft_max, x, x, out=x, **arguments), memory(np.zeros_like(x))
    got = launch(dev, soft_max, struct, bound, bound, bound, out, groups=1, group_size=256, shared={0: 128}).view(F32)
    weights = np.exp(2 * x.astype(np.float64)).reshape(-1)
    np.testing.assert_allclose(got, weights / weights.sum(), rtol=1e-5, atol=1e-9)


def angles(kind: str, positions: np.ndarray, size: int, factors: np.ndarray | float, sections: list[int]) -> np.ndarray:
    """Of each token and pair. Images and videos have several positions for a token, each for a section of the pairs."""
    pair = np.arange(size // 2)
    if kind == "vision":
        turn = pair % sum(sections[:2])
        first = turn < sections[1]
        position, exponent = positions[np.where(first, 0, 1)], np.where(first, turn, turn - sections[0])
        return np.asarray(position.T * 10000.0 ** (-2 * exponent / (size // 2)))
    if kind == "multi":
        turn = pair % sum(sections)
        position = positions[np.searchsorted(np.cumsum(sections), turn, "right")]
    elif kind == "interleaved":
        turn = pair % sum(sections)
        axis = turn % 3
        position = positions[np.where(turn < 3 * np.array(sections)[axis], axis, 3)]
    else:
        position = positions[np.zeros_like(pair)]
    return np.asarray(position.T * 10000.0 ** (-2 * pair / size) / factors)


@pytest.mark.parametrize("name", ["f32", "f16"])
@pytest.mark.parametrize("kind", ["norm", "neox", "multi", "interleaved", "vision", "back"])
def test_rope(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, kind: str, name: str) -> None:
    tokens, heads, width, size, begin = 7, 3, 80, 48, 16
    if kind == "vision":
        width, size, begin = 64, 64, 0  # all of it is rotated
    x = random(numbers, 2, tokens, heads, width + 8, dtype=TYPES[name])[..., :width]
    positions = numbers.integers(0, 20, (4, tokens), I32)
    factors = numbers.uniform(1, 4, size // 2).astype(F32)
    sections = [16, 16, 0, 0] if kind == "vision" else [8, 6, 6, 4]
    turn = kernel(
        checkouts,
        f"kernel_rope_{ {'interleaved': 'multi', 'back': 'neox'}.get(kind, kind) }_{name}",
        "FC_rope",
        is_imrope=kind == "interleaved",
        is_back=kind == "back",
    )
    scaling = {"freq_base": 10000.0, "freq_scale": 1.0, "ext_factor": 0.0, "attn_factor": 1.5}
    got = run(
        dev,
        turn,
        x,
        positions,
        factors,
        out=np.zeros(x.shape, x.dtype),
        arguments={
            **scaling,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            **{f"sect_{i}": section for i, section in enumerate(sections)},
            "n_past": 0,
            "n_dims": size // 2 if kind == "vision" else size,
            "n_offs": begin,
            "n_ctx_orig": 4096,
            "src2": kind not in ("vision", "back"),
            "inplace": False,
        },
        groups=(heads, tokens, 2),
        group_size=width,
    )
    angle = angles(kind, positions, size, factors if kind not in ("vision", "back") else 1.0, sections)[:, None]
    expected = x.astype(np.float64)
    window = expected[..., begin : begin + size]
    first, second = (window[..., ::2], window[..., 1::2]) if kind == "norm" else np.split(window, 2, axis=-1)
    rotated = (first + 1j * second) * 1.5 * np.exp(-1j * angle if kind == "back" else 1j * angle)
    first[:], second[:] = rotated.real, rotated.imag
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=0, atol=1e-4 if name == "f32" else 5e-3)


def test_rope_of_extended_contexts(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    x, positions = random(numbers, 7, 3, 64), numbers.integers(0, 20, 7, I32)
    arguments = {"freq_base": 10000.0, "freq_scale": 0.25, "ext_factor": 1.0, "attn_factor": 1.0}
    arguments |= {"beta_fast": 32.0, "beta_slow": 1.0, **{f"sect_{i}": 0 for i in range(4)}, "n_past": 0, "n_dims": 64}
    arguments |= {"n_offs": 0, "n_ctx_orig": 4096, "src2": False, "inplace": False}
    turn = kernel(checkouts, "kernel_rope_neox_f32", "FC_rope", is_imrope=False, is_back=False)
    out = np.zeros(x.shape, F32)
    got = run(dev, turn, x, positions, x, out=out, arguments=arguments, groups=(3, 7, 1), group_size=64)
    # YaRN: pairs that turn often keep their speed, slow ones turn with a quarter of it.
    pair = np.arange(32)
    fast, slow = (64 * np.log(4096 / (turns * 2 * np.pi)) / (2 * np.log(10000)) for turns in (32, 1))
    slowed = np.clip((pair - np.floor(fast)) / (np.ceil(slow) - np.floor(fast)), 0, 1)
    angle = positions[:, None, None] * 10000.0 ** (-pair / 32) * (0.25 * slowed + (1 - slowed))
    first, second = np.split(x.astype(np.float64), 2, axis=-1)
    rotated = (first + 1j * second) * np.exp(1j * angle) * (1 + 0.1 * np.log(4))
    np.testing.assert_allclose(got, np.concatenate([rotated.real, rotated.imag], axis=-1), rtol=0, atol=1e-4)


@pytest.mark.parametrize("count", [20, 700, 5000])
def test_sum(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, count: int) -> None:
    x, threads = random(numbers, count), min(power_of_two(32, count), count)
    geometry: dict[str, Any] = {"groups": 1, "group_size": threads, "shared": {0: -(-threads // 32) * 4}}
    got = run(dev, kernel(checkouts, "kernel_op_sum_f32"), x, out=np.zeros(1, F32), arguments={"np": count}, **geometry)
    assert_near(got, x.sum(dtype=np.float64, keepdims=True), np.abs(x).sum(), 1e-6)


@pytest.mark.parametrize("columns", [20, 300, 301])
@pytest.mark.parametrize("operation", ["sum", "mean"])
def test_sums_of_rows(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, operation: str, columns: int
) -> None:
    x, each = random(numbers, 2, 3, 5, columns + 4)[..., :columns], columns // 4 if columns % 4 == 0 else columns
    got = run(
        dev,
        kernel(
            checkouts,
            "kernel_sum_rows_f32_f32" + ("_4" if columns % 4 == 0 else ""),
            "FC_sum_rows",
            op={"sum": 10, "mean": 11}[operation],
        ),
        x,
        out=np.zeros((2, 3, 5, 1), F32),
        arguments={"ne00": each, "ne0": 0 if columns % 4 == 0 else 1},
        groups=(5, 3, 2),
        group_size=min(power_of_two(32, each), each),
        shared={0: 512},
    )
    expected = getattr(x.astype(np.float64), operation)(-1, keepdims=True)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("columns", [20, 700, 1500])
def test_running_sums(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, columns: int) -> None:
    x = random(numbers, 2, 3, columns + 4)[..., :columns]
    threads = power_of_two(1, columns)
    blocks = -(-columns // threads)
    sums, totals = np.zeros((2, 3, columns), F32), np.zeros((2, 3, blocks), F32)
    scan, add = kernel(checkouts, "kernel_cumsum_blk_f32"), kernel(checkouts, "kernel_cumsum_add_f32")
    sizes = extents("t", totals)
    struct = fields(scan, x, out=sums, **sizes, outb=blocks > 1)
    geometry: dict[str, Any] = {"groups": (blocks * 3, 2, 1), "group_size": threads}
    totals, sums = launch(dev, scan, struct, memory(x), memory(totals), memory(sums), **geometry, shared={0: 128})
    if blocks > 1:
        struct = fields(scan, totals.view(F32).reshape(2, 3, blocks), out=sums, **sizes, outb=False)
        bound = dev.array(totals)
        launch(dev, scan, struct, bound, bound, bound, groups=(3, 2, 1), group_size=threads, shared={0: 128})
        sums = launch(dev, add, fields(add, x, out=sums, **sizes), bound, sums, **geometry)
    np.testing.assert_allclose(sums.view(F32).reshape(x.shape), x.cumsum(-1, dtype=np.float64), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("columns", [1000, 30])
def test_argmax(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, columns: int) -> None:
    x = random(numbers, 3, columns + 4)[..., :columns]
    geometry: dict[str, Any] = {"groups": 3, "group_size": 128 if columns > 32 else 32, "shared": {0: 256}}
    got = run(dev, kernel(checkouts, "kernel_argmax_f32"), x, out=np.zeros(3, I32), **geometry)
    np.testing.assert_array_equal(got, x.argmax(1))


@pytest.mark.parametrize(("columns", "kept"), [(300, 300), (1500, 1500), (3000, 3000), (3000, 40)])
@pytest.mark.parametrize("order", ["asc", "desc"])
def test_argsort(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, order: str, columns: int, kept: int
) -> None:
    x = numbers.permuted(np.tile(np.linspace(-9, 9, columns, dtype=F32), (2, 3, 1)), axis=-1)
    threads = power_of_two(1, columns)
    blocks, length = -(-columns // threads), min(threads, kept)
    width = (blocks - 1) * length + min(columns - (blocks - 1) * threads, length)
    got = run(
        dev,
        kernel(checkouts, f"kernel_argsort_f32_i32_{order}"),
        x,
        out=np.zeros((2, 3, width), I32),
        arguments={"top_k": length},
        groups=(blocks * 3, 2, 1),
        group_size=threads,
        shared={0: -(-threads // 4) * 16},
    )
    merge = kernel(checkouts, f"kernel_argsort_merge_f32_i32_{order}")
    while length < width:
        merges = -(-width // (2 * length))
        size = kept if merges == 1 else width
        got = run(
            dev,
            merge,
            x,
            got,
            out=np.zeros((2, 3, size), I32),
            arguments={"ne0": width, "top_k": size, "len": length},
            groups=(merges * 3, 2, 1),
            group_size=min(512, length),
        )
        length *= 2
    np.testing.assert_array_equal(got, np.argsort(x if order == "asc" else -x, axis=-1)[..., :kept])


@pytest.mark.parametrize("size", [64, 128, 256, 512])
def test_hadamard_transform(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, size: int) -> None:
    x, hadamard = random(numbers, 5, size), np.ones((1, 1))
    while len(hadamard) < size:
        hadamard = np.block([[hadamard, hadamard], [hadamard, -hadamard]])
    transform = kernel(checkouts, f"kernel_fwht_f32_{size}")
    got = run(dev, transform, x, out=np.zeros(x.shape, F32), arguments={"nrows": 5}, groups=3, group_size=64)
    np.testing.assert_allclose(got, x @ hadamard / np.sqrt(size), rtol=1e-5, atol=1e-5)
