"""MLX: products with quantised weights, by scales and biases of groups ("affine") and of small floats (fp4, fp8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ostinato as ost
from checkouts import Checkouts
from launching import launch
from mlx_kernels import DTYPES, close, kernel, shape_of, strides_of

Array = np.ndarray[Any, Any]

FLOATS = {"float": "float32", "float16_t": "float16", "bfloat16_t": "bfloat16"}
"""The names of types in the names of these kernels, and ours."""

GROUPS = {"nvfp4": (16, 4), "mxfp4": (32, 4), "mxfp8": (32, 8)}
"""Elements that share a scale, and bits of an element, in formats of small floats."""


@dataclass(frozen=True)
class Weights:
    """Quantised weights as kernels take them, and their values."""

    arrays: tuple[Array, ...]
    """Words of packed elements, scales, and biases if there are any."""
    values: Array


def packed(codes: Array, bits: int) -> Array:
    """Words in which each code takes some bits, the lowest first."""
    digits = (codes[..., None] >> np.arange(bits)) & 1
    return np.packbits(digits.reshape(*codes.shape[:-1], -1), axis=-1, bitorder="little").view(np.uint32)


def affine(numbers: np.random.Generator, kind: str, group: int, bits: int, *shape: int) -> Weights:
    codes = numbers.integers(0, 2**bits, shape)
    grouped = (*shape[:-1], shape[-1] // group)
    scales = (numbers.uniform(0.5, 1.5, grouped) / 2**bits).astype(DTYPES[FLOATS[kind]])
    biases = numbers.uniform(-1, 0, grouped).astype(DTYPES[FLOATS[kind]])
    wide = (np.repeat(a.astype(np.float64), group, -1) for a in (scales, biases))
    return Weights((packed(codes, bits), scales, biases), codes * next(wide) + next(wide))


def small_floats(numbers: np.random.Generator, mode: str, *shape: int) -> Weights:
    group, bits = GROUPS[mode]
    element = ml_dtypes.float4_e2m1fn if bits == 4 else ml_dtypes.float8_e4m3fn
    values = numbers.normal(0, 2, shape).astype(element)
    of_scales = ml_dtypes.float8_e4m3fn if mode == "nvfp4" else ml_dtypes.float8_e8m0fnu
    scales = 2.0 ** numbers.integers(-3, 2, (*shape[:-1], shape[-1] // group)) * (1.25 if mode == "nvfp4" else 1)
    codes = values.view(np.uint8) & (2**bits - 1)
    wide = np.repeat(scales, group, -1) * values.astype(np.float64)
    return Weights((packed(codes, bits), scales.astype(of_scales).view(np.uint8)), wide)


def normal(numbers: np.random.Generator, kind: str, *shape: int) -> Array:
    return numbers.standard_normal(shape).astype(DTYPES[FLOATS[kind]])


def described(*arrays: Array) -> tuple[Any, ...]:
    """Axes, shapes and strides of batches of vectors, then of batches of words, then strides of scales and biases."""
    x, words, *others = arrays
    sizes = [argument for a in (x, words) for argument in (a.ndim - 2, shape_of(a), strides_of(a))]
    return (*sizes, *(strides_of(a) for a in others))


affine_types = pytest.mark.parametrize(
    ("kind", "group", "bits"),
    [
        ("float", 64, 4),
        ("float16_t", 32, 2),
        ("bfloat16_t", 128, 3),
        ("bfloat16_t", 64, 5),
        ("float16_t", 32, 6),
        ("float", 64, 8),
    ],
)
few_affine_types = pytest.mark.parametrize(
    ("kind", "group", "bits"), [("float", 64, 4), ("float16_t", 32, 3), ("bfloat16_t", 128, 8)]
)


@affine_types
def test_matrix_by_vectors(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, kind: str, group: int, bits: int
) -> None:
    x, w = normal(numbers, kind, 3, 1024), affine(numbers, kind, group, bits, 48, 1024)
    qmv = kernel(checkouts, "quantized", f"affine_qmv_fast_{kind}_gs_{group}_b_{bits}_batch_0")
    got = launch(dev, qmv, *w.arrays, x, np.ones((3, 48), x.dtype), 1024, 48, groups=(3, 6), group_size=(32, 2))
    close(got, x.astype(np.float64) @ w.values.T, 32)


@pytest.mark.parametrize("rows", [45, 5])
@few_affine_types
def test_matrix_of_any_size_by_vectors(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, kind: str, group: int, bits: int, rows: int
) -> None:
    x, w = normal(numbers, kind, 3, 640), affine(numbers, kind, group, bits, rows, 640)
    qmv = kernel(checkouts, "quantized", f"affine_qmv_{kind}_gs_{group}_b_{bits}_batch_0")
    out, groups = np.ones((3, rows), x.dtype), (3, -(-rows // 8))
    got = launch(dev, qmv, *w.arrays, x, out, 640, rows, groups=groups, group_size=(32, 2))
    close(got, x.astype(np.float64) @ w.values.T, 25)


@few_affine_types
def test_vectors_by_matrix(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, kind: str, group: int, bits: int
) -> None:
    x, w = normal(numbers, kind, 3, 203), affine(numbers, kind, group, bits, 203, 384)
    qvm = kernel(checkouts, "quantized", f"affine_qvm_{kind}_gs_{group}_b_{bits}_batch_0")
    got = launch(dev, qvm, *w.arrays, x, np.ones((3, 384), x.dtype), 203, 384, groups=(3, 6), group_size=(32, 2))
    close(got, x.astype(np.float64) @ w.values, 15)


def test_vectors_by_matrix_in_partitions(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    x, w = normal(numbers, "float", 3, 1000), affine(numbers, "float", 64, 4, 1000, 192)
    qvm = kernel(checkouts, "quantized", "affine_qvm_split_k_float_gs_64_b_4_spk_8")
    words = w.arrays[0]
    # Eight parts of 125 rows, as one more axis of both.
    of_x = (1, np.array([8, 3, 125], np.int32), np.array([125, 1000, 1], np.int64))
    of_w = (1, np.array([8, 125, words.shape[1]], np.int32))
    strides = [np.array([125 * a.shape[1], a.shape[1], 1], np.int64) for a in w.arrays]
    out = np.ones((8, 3, 192), np.float32)
    got = launch(
        dev, qvm, *w.arrays, x, out, 125, 192, *of_x, *of_w, *strides, 125, groups=(3, 3, 8), group_size=(32, 2)
    )
    parts = x.astype(np.float64).reshape(3, 8, 125).swapaxes(0, 1)
    close(got, parts @ w.values.reshape(8, 125, 192), 20)


@few_affine_types
def test_matrix_by_several_vectors(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, kind: str, group: int, bits: int
) -> None:
    x, w = normal(numbers, kind, 2, 7, 640), affine(numbers, kind, group, bits, 2, 45, 640)
    qmv = kernel(checkouts, "quantized", f"affine_qmv_wide_{kind}_gs_{group}_b_{bits}_nv_4_kl_8_batch_1")
    arguments = (640, 45, 7, *described(x, *w.arrays))
    got = launch(dev, qmv, *w.arrays, x, np.ones((2, 7, 45), x.dtype), *arguments, groups=(2, 6, 2), group_size=(32, 2))
    close(got, x.astype(np.float64) @ w.values.swapaxes(1, 2), 25)


@pytest.mark.parametrize("width", [64, 128])
def test_matrix_by_short_vectors_in_quads(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, width: int
) -> None:
    x, w = normal(numbers, "float16_t", 3, width), affine(numbers, "float16_t", 32, 4, 133, width)
    qmv = kernel(checkouts, "quantized", f"affine_qmv_quad_float16_t_gs_32_b_4_d_{width}_batch_0")
    out = np.ones((3, 133), x.dtype)
    got = launch(dev, qmv, *w.arrays, x, out, width, 133, groups=(3, 3), group_size=32)
    close(got, x.astype(np.float64) @ w.values.T, 10)


@pytest.mark.parametrize("transposed", [True, False])
@few_affine_types
def test_product_of_matrices(
    dev: ost.Device,
    checkouts: Checkouts,
    numbers: np.random.Generator,
    kind: str,
    group: int,
    bits: int,
    transposed: bool,
) -> None:
    m, n, k = 45, 77 if transposed else 256, 256
    x, w = normal(numbers, kind, m, k), affine(numbers, kind, group, bits, *((n, k) if transposed else (k, n)))
    name = f"qmm_t_{kind}_gs_{group}_b_{bits}_alN_false" if transposed else f"qmm_n_{kind}_gs_{group}_b_{bits}"
    qmm = kernel(checkouts, "quantized", f"affine_{name}_batch_0")
    groups = (-(-n // 32), -(-m // 32))
    got = launch(dev, qmm, *w.arrays, x, np.ones((m, n), x.dtype), k, n, m, groups=groups, group_size=(32, 2, 2))
    close(got, x.astype(np.float64) @ (w.values.T if transposed else w.values), 16)


@few_affine_types
def test_matrices_by_vectors_by_indices(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, kind: str, group: int, bits: int
) -> None:
    x, w = normal(numbers, kind, 4, 1, 640), affine(numbers, kind, group, bits, 5, 45, 640)
    left, right = numbers.integers(0, 4, 9).astype(np.uint32), numbers.integers(0, 5, 9).astype(np.uint32)
    qmv = kernel(checkouts, "quantized", f"affine_gather_qmv_{kind}_gs_{group}_b_{bits}")
    of_indices = (1, shape_of(left), strides_of(left), strides_of(right))
    arguments = (640, 45, *described(x, *w.arrays), *of_indices)
    out = np.ones((9, 1, 45), x.dtype)
    got = launch(dev, qmv, *w.arrays, x, left, right, out, *arguments, groups=(1, 6, 9), group_size=(32, 2))
    close(got, x[left].astype(np.float64) @ w.values[right].swapaxes(1, 2), 25)


@pytest.mark.parametrize("layout", ["nt", "nn"])
def test_rows_by_matrices_by_indices(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, layout: str
) -> None:
    m, n, k = 45, 96, 160
    x = normal(numbers, "float16_t", m, k)
    w = affine(numbers, "float16_t", 32, 4, 3, *((n, k) if layout == "nt" else (k, n)))
    which = np.sort(numbers.integers(0, 3, m)).astype(np.uint32)
    constants = {"align_M": False, "align_N": True, "align_K": True}
    name = f"affine_gather_qmm_rhs_{layout}_float16_t_gs_32_b_4_bm_16_bn_32_bk_32_wm_1_wn_2"
    qmm = kernel(checkouts, "quantized", name, constants=constants)
    out = np.ones((m, n), x.dtype)
    got = launch(dev, qmm, x, *w.arrays, which, out, m, n, k, groups=(3, 3), group_size=(32, 2))
    matrices = w.values.swapaxes(1, 2) if layout == "nt" else w.values
    close(got, (x[:, None].astype(np.float64) @ matrices[which])[:, 0], 16)


@affine_types
def test_dequantising(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, kind: str, group: int, bits: int
) -> None:
    w = affine(numbers, kind, group, bits, 9, 384)
    dequantise = kernel(checkouts, "quantized", f"affine_dequantize_{kind}_gs_{group}_b_{bits}")
    each = {3: 8, 5: 8, 6: 4}.get(bits, 8 // bits)
    words, *others = w.arrays
    out = np.ones((9, 384), others[0].dtype)
    got = launch(dev, dequantise, words.view(np.uint8), *others, out, threads=9 * 384 // each, group_size=64)
    close(got, w.values)


@affine_types
def test_quantising(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, kind: str, group: int, bits: int
) -> None:
    x = normal(numbers, kind, 9, 384)
    quantise = kernel(checkouts, "quantized", f"affine_quantize_{kind}_gs_{group}_b_{bits}")
    empty = (np.ones((9, 384 * bits // 8), np.uint8), *(np.ones((9, 384 // group), x.dtype) for _ in range(2)))
    codes, scales, biases = launch(dev, quantise, x, *empty, threads=9 * 384 * 32 // group, group_size=64)
    # The end of a group that is farther from zero is a code exactly, and so is zero.
    groups, last = x.astype(np.float64).reshape(9, -1, group), 2**bits - 1
    low, high = groups.min(-1), groups.max(-1)
    edges = np.where(-low > high, low, high)
    steps = edges / np.round(edges / np.copysign((high - low) / last, -edges))
    close(scales, steps)
    close(biases, edges, 3)
    exact = (groups - edges[..., None]) / steps[..., None]
    digits = np.unpackbits(codes, axis=-1, bitorder="little").reshape(*groups.shape, bits)
    np.testing.assert_allclose(digits @ 2 ** np.arange(bits), exact.clip(0, last), atol=0.501)


@pytest.mark.parametrize(("fast", "rows", "columns"), [("_fast", 48, 1024), ("", 45, 640)])
@pytest.mark.parametrize(("mode", "kind"), [("nvfp4", "float16_t"), ("mxfp4", "float"), ("mxfp8", "float16_t")])
def test_matrix_of_small_floats_by_vectors(
    dev: ost.Device,
    checkouts: Checkouts,
    numbers: np.random.Generator,
    mode: str,
    fast: str,
    rows: int,
    columns: int,
    kind: str,
) -> None:
    x, w = normal(numbers, kind, 3, columns), small_floats(numbers, mode, rows, columns)
    group, bits = GROUPS[mode]
    qmv = kernel(checkouts, "fp_quantized", f"{mode}_qmv{fast}_{kind}_gs_{group}_b_{bits}_batch_0")
    out = np.ones((3, rows), x.dtype)
    # There is a scale of the whole matrix in other kernels only.
    got = launch(dev, qmv, *w.arrays, None, x, out, columns, rows, groups=(3, -(-rows // 8)), group_size=(32, 2))
    close(got, x.astype(np.float64) @ w.values.T, 2 * columns**0.5)


def test_matrix_of_small_floats_with_a_scale(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator
) -> None:
    x, w = normal(numbers, "bfloat16_t", 3, 640), small_floats(numbers, "nvfp4", 45, 640)
    qmv = kernel(checkouts, "fp_quantized", "nvfp4_qmv_bfloat16_t_gs_16_b_4_batch_0_hgs")
    scale, out = np.array([1500], np.float32), np.ones((3, 45), x.dtype)
    got = launch(dev, qmv, *w.arrays, scale, x, out, 640, 45, groups=(3, 6), group_size=(32, 2))
    # It is the greatest absolute value, which the greatest scale and element, 448 and 6, stand for.
    close(got, x.astype(np.float64) @ w.values.T * 1500 / (448 * 6), 50)


@pytest.mark.parametrize("mode", ["nvfp4", "mxfp8"])
def test_vectors_by_matrix_of_small_floats(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, mode: str
) -> None:
    x, w = normal(numbers, "float", 3, 203), small_floats(numbers, mode, 203, 384)
    group, bits = GROUPS[mode]
    qvm = kernel(checkouts, "fp_quantized", f"{mode}_qvm_float_gs_{group}_b_{bits}_batch_0")
    groups = (3, 384 // (2 * group))
    got = launch(
        dev, qvm, *w.arrays, None, x, np.ones((3, 384), np.float32), 203, 384, groups=groups, group_size=(32, 2)
    )
    close(got, x.astype(np.float64) @ w.values, 30)


@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize(("mode", "kind"), [("nvfp4", "float16_t"), ("mxfp4", "float"), ("mxfp8", "bfloat16_t")])
def test_product_with_a_matrix_of_small_floats(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, mode: str, kind: str, transposed: bool
) -> None:
    m, n, k = 45, 77 if transposed else 128, 192
    x, w = normal(numbers, kind, m, k), small_floats(numbers, mode, *((n, k) if transposed else (k, n)))
    group, bits = GROUPS[mode]
    name = f"{mode}_qmm_{'t' if transposed else 'n'}_{kind}_gs_{group}_b_{bits}"
    qmm = kernel(checkouts, "fp_quantized", f"{name}{'_alN_false' if transposed else ''}_batch_0")
    groups = (-(-n // 32), 2)
    got = launch(dev, qmm, *w.arrays, x, np.ones((m, n), x.dtype), k, n, m, groups=groups, group_size=(32, 2, 2))
    close(got, x.astype(np.float64) @ (w.values.T if transposed else w.values), 40)


@pytest.mark.parametrize(("mode", "kind"), [("nvfp4", "float"), ("mxfp4", "bfloat16_t"), ("mxfp8", "float16_t")])
def test_small_floats_there_and_back(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, mode: str, kind: str
) -> None:
    group, bits = GROUPS[mode]
    x = normal(numbers, kind, 9, 384)
    quantise, dequantise = (
        kernel(checkouts, "fp_quantized", f"{mode}_{step}_{kind}_gs_{group}_b_{bits}_hgs_false")
        for step in ("quantize", "dequantize")
    )
    empty = (np.ones((9, 384 * bits // 8), np.uint8), np.ones((9, 384 // group), np.uint8))
    codes, scales = launch(dev, quantise, x, *empty, None, threads=9 * 384, group_size=64)
    got = launch(dev, dequantise, codes, scales, None, np.ones_like(x), threads=9 * 384 * bits // 8, group_size=64)
    of_scales = ml_dtypes.float8_e4m3fn if mode == "nvfp4" else ml_dtypes.float8_e8m0fnu
    wide = np.repeat(scales.view(of_scales).astype(np.float64), group, -1)
    groups = np.abs(x.astype(np.float64).reshape(9, -1, group)).max(-1)
    ratio = scales.view(of_scales).astype(np.float64) * (6 if bits == 4 else 448) / groups
    assert np.all((ratio > 0.7) & (ratio < 1.43))
    element = ml_dtypes.float4_e2m1fn if bits == 4 else ml_dtypes.float8_e4m3fn
    limit = 6 if bits == 4 else 448
    nearest = (x.astype(np.float64) / wide).clip(-limit, limit).astype(element).astype(np.float64)
    close(got, nearest * wide)
