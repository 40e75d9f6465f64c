"""mlx-native: products with quantised and dense weights, also by Metal 4's tensors."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ostinato as ost
from checkouts import Checkouts
from launching import launch

Array = np.ndarray[Any, Any]


def kernel(checkouts: Checkouts, file: str, name: str) -> ost.Kernel:
    return checkouts.library("mlx-native", f"src/shaders/{file}.metal")[name]


def normal(numbers: np.random.Generator, *shape: int) -> Array:
    return numbers.standard_normal(shape).astype(np.float32)


def affine(numbers: np.random.Generator, bits: int, rows: int, columns: int) -> tuple[list[Array], Array]:
    """Words, scales and biases of groups of 64, and the values, which bfloat holds exactly."""
    codes = numbers.integers(0, 2**bits, (rows, columns))
    digits = (codes[..., None] >> np.arange(bits)) & 1
    words = np.packbits(digits.reshape(rows, -1), axis=-1, bitorder="little").view(np.uint32)
    scales = 2.0 ** numbers.integers(-bits, 1 - bits, (rows, columns // 64), endpoint=True)
    biases = -scales * 2 ** (bits - 1)
    halves = [a.astype(ml_dtypes.bfloat16).view(np.uint16) for a in (scales, biases)]
    return [words, *halves], codes * np.repeat(scales, 64, 1) + np.repeat(biases, 64, 1)


@pytest.mark.parametrize("bits", [4, 6, 8])
def test_affine_product(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, bits: int) -> None:
    x, (arrays, values) = normal(numbers, 5, 192), affine(numbers, bits, 45, 192)
    product = kernel(checkouts, "quantized_matmul", "quantized_matmul")
    params = {"M": 5, "K": 192, "N": 45, "group_size": 64, "bits": bits}
    got = launch(dev, product, x, *arrays, np.ones((5, 45), np.float32), params, threads=(45, 5), group_size=(16, 4))
    np.testing.assert_allclose(got, x.astype(ml_dtypes.bfloat16).astype(np.float64) @ values.T, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("name", ["quantized_matmul_simd", "quantized_matmul_simd_bf16"])
def test_affine_product_by_simdgroups(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str, bits: int
) -> None:
    x, (arrays, values) = normal(numbers, 3, 1024), affine(numbers, bits, 44, 1024)
    x = x.astype(ml_dtypes.bfloat16) if name.endswith("bf16") else x
    product = kernel(checkouts, "quantized_matmul", name)
    params = {"M": 3, "K": 1024, "N": 44, "group_size": 64, "bits": bits}
    out = np.ones((3, 44), x.dtype)
    got = launch(dev, product, x, *arrays, out, params, groups=(3, 6), group_size=(32, 2))
    expected = x.astype(ml_dtypes.bfloat16).astype(np.float64) @ values.T
    tolerance = 1e-2 if name.endswith("bf16") else 1e-5
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=tolerance, atol=tolerance * 30)


BLOCKS = {"q4_0": (32, 18), "q8_0": (32, 34), "q4_K": (256, 144), "q6_K": (256, 210)}
"""Elements and bytes of a block in ggml's formats."""


def six_bits(scales: Array) -> tuple[Array, Array]:
    """Eight scales and eight minima of six bits, in the twelve bytes of a block of q4_K."""
    low, high = scales[..., :4], scales[..., 4:8]
    last = scales[..., 8:]
    return (
        np.concatenate([low & 63, last & 15 | low >> 6 << 4], -1),
        np.concatenate([high & 63, last >> 4 | high >> 6 << 4], -1),
    )


def ggml_values(kind: str, blocks: Array) -> Array:
    """The values of blocks of bytes in one of ggml's formats."""

    def half(first: int) -> Array:
        return np.ascontiguousarray(blocks[..., first : first + 2]).view(np.float16).astype(np.float64)

    if kind == "q4_0":
        digits = blocks[..., 2:]
        values = (np.concatenate([digits & 15, digits >> 4], -1).astype(np.float64) - 8) * half(0)
    elif kind == "q8_0":
        values = blocks[..., 2:].view(np.int8).astype(np.float64) * half(0)
    elif kind == "q4_K":
        scales, minima = six_bits(blocks[..., 4:16])
        digits = blocks[..., 16:].reshape(*blocks.shape[:-1], 4, 1, 32)
        digits = np.concatenate([digits & 15, digits >> 4], -2).reshape(*blocks.shape[:-1], 8, 32)
        values = digits * (scales * half(0))[..., None] - (minima * half(2))[..., None]
    else:
        low, high = blocks[..., :128].reshape(*blocks.shape[:-1], 2, 1, 64), blocks[..., 128:192]
        low = np.concatenate([low & 15, low >> 4], -2).reshape(*blocks.shape[:-1], 2, 4, 32)
        high = high.reshape(*blocks.shape[:-1], 2, 1, 32) >> np.arange(0, 8, 2)[:, None] & 3
        scales = blocks[..., 192:208].view(np.int8).reshape(*blocks.shape[:-1], 16, 1) * half(208)[..., None]
        values = (low + 16.0 * high - 32).reshape(*blocks.shape[:-1], 16, 16) * scales
    return np.asarray(values.reshape(*blocks.shape[:-2], -1))


def ggml(numbers: np.random.Generator, kind: str, rows: int, columns: int) -> tuple[Array, Array]:
    """Random blocks, the factors of which are moderate, and their values."""
    elements, size = BLOCKS[kind]
    blocks = numbers.integers(0, 256, (rows, columns // elements, size)).astype(np.uint8)
    for first in {"q4_K": (0, 2), "q6_K": (208,)}.get(kind, (0,)):
        factors = numbers.uniform(0.5, 1, blocks.shape[:2]).astype(np.float16) / 512
        blocks[..., first : first + 2] = factors.astype(np.float16)[..., None].view(np.uint8)
    return blocks, ggml_values(kind, blocks)


@pytest.mark.parametrize("kind", BLOCKS)
def test_product_with_ggml_blocks(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, kind: str
) -> None:
    x, (blocks, values) = normal(numbers, 3, 1280), ggml(numbers, kind, 40, 1280)
    product = kernel(checkouts, "quantized_matmul_ggml", f"kernel_mul_mv_{kind}_f32")
    params = {"ne00": 1280, "ne01": 40, "ne02": 1, "ne10": 1280, "ne12": 1, "ne0": 40, "ne1": 3, "r2": 1, "r3": 1}
    rows, group_size = (2, (2, 32)) if kind.endswith("K") else (8, (8, 8))
    out = np.ones((3, 40), np.float32)
    got = launch(dev, product, blocks, x, out, params, groups=(40 // rows, 3), group_size=group_size)
    expected = x.astype(np.float64) @ values.T
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def matrix_params(columns: int, rows: int, vectors: int, row_bytes: int, **more: int) -> dict[str, int]:
    return {
        "ne00": columns, "ne02": 1, "nb01": row_bytes, "nb02": row_bytes * rows, "nb03": 0, "ne12": 1,
        "nb10": 4, "nb11": columns * 4, "nb12": columns * 4 * vectors, "nb13": 0, "ne0": rows, "ne1": vectors,
        "r2": 1, "r3": 1,
    } | more  # fmt: skip


@pytest.mark.parametrize("kind", ["q4_0", "q8_0", "q6_K"])
@pytest.mark.parametrize("file", ["mm", "mm_tensor"])
def test_product_of_matrices_with_ggml_blocks(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, file: str, kind: str
) -> None:
    x, (blocks, values) = normal(numbers, 45, 512), ggml(numbers, kind, 100, 512)
    product = kernel(checkouts, f"quantized_matmul_{file}", f"kernel_mul_{file.replace('_tensor', '')}_{kind}"
                     + ("_tensor_f32" if file == "mm_tensor" else "_f32"))  # fmt: skip
    params = matrix_params(512, 100, 45, blocks[0].size)
    out = np.ones((45, 100), np.float32)
    got = launch(
        dev, product, params, blocks.view(np.int8), x.view(np.int8), out.view(np.int8),
        groups=(2, 2), group_size=128, shared={0: 8192},
    ).view(np.float32)  # fmt: skip
    # Both sides are rounded to half.
    expected = x.astype(np.float64) @ values.T
    np.testing.assert_allclose(got, expected, rtol=1e-2, atol=1e-3 * np.abs(expected).max())


def test_product_with_heads_of_bfloat(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    x = normal(numbers, 4, 45, 64).astype(ml_dtypes.bfloat16)
    blocks, values = ggml(numbers, "q4_0", 100, 256)
    product = kernel(checkouts, "quantized_matmul_mm_tensor", "kernel_mul_mm_q4_0_tensor_bf16_perm021")
    params = matrix_params(256, 100, 45, blocks[0].size, nb10=2, nb11=0, nb12=0, head_dim=64, seq_len=45)
    out = np.ones((45, 100), np.float32)
    got = launch(
        dev, product, params, blocks.view(np.int8), x.view(np.int8), out.view(np.int8),
        groups=(2, 2), group_size=128, shared={0: 8192},
    ).view(np.float32)  # fmt: skip
    expected = x.astype(np.float64).swapaxes(0, 1).reshape(45, 256) @ values.T
    np.testing.assert_allclose(got, expected, rtol=1e-2, atol=1e-3 * np.abs(expected).max())


def test_dense_product_by_tensors(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    x, w = normal(numbers, 4, 45, 84), normal(numbers, 2, 100, 84).astype(ml_dtypes.bfloat16)
    product = kernel(checkouts, "dense_mm_bf16_tensor", "hf2q_dense_mm_bf16_f32_tensor")
    params = matrix_params(84, 100, 45, 168, ne02=2, ne12=4, r2=2)
    out = np.ones((4, 45, 100), np.float32)
    got = launch(
        dev, product, params, w.view(np.int8), x.view(np.int8), out.view(np.int8),
        groups=(2, 2, 4), group_size=128, shared={0: 8192},
    ).view(np.float32)  # fmt: skip
    rounded = x.astype(ml_dtypes.bfloat16).astype(np.float64)
    expected = rounded @ np.repeat(w, 2, 0).astype(np.float64).swapaxes(1, 2)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-4)


def test_dense_product_with_a_vector(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    x, w = normal(numbers, 4, 3, 2060), normal(numbers, 2, 34, 2060).astype(ml_dtypes.bfloat16)
    product = kernel(checkouts, "dense_gemv_bf16", "hf2q_dense_gemv_bf16_f32_4")
    params = matrix_params(2060, 34, 3, 4120, ne02=2, ne12=4, r2=2)
    params |= {"ne01": 34, "nb00": 2, "ne10": 2060, "ne11": 3, "nr0": 2}
    out = np.ones((4, 3, 34), np.float32)
    got = launch(
        dev, product, params, w.view(np.int8), x.view(np.int8), out.view(np.int8),
        groups=(17, 3, 4), group_size=(32, 4), shared={0: 256},
    ).view(np.float32)  # fmt: skip
    expected = x.astype(np.float64) @ np.repeat(w, 2, 0).astype(np.float64).swapaxes(1, 2)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=5e-4)
