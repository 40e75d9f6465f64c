"""candle: images and convolutions, products with quantised and plain matrices, attention."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ostinato as ost
from checkouts import Checkouts
from launching import launch
from oracles import LONG_NAMES, NEAR, Random, attention, check, check_product, sizes, spread, steps, values
from ostinato.ops.formats import FORMATS


def kernel(checkouts: Checkouts, file: str, name: str, **options: Any) -> ost.Kernel:
    return checkouts.library("candle", f"candle-metal-kernels/src/metal_src/{file}.metal", **options)[name]


# --- images and convolutions ----------------------------------------------------------------------------------------


def unfolded(x: Any, size: tuple[int, ...], stride: int, padding: int, dilation: int) -> Any:
    """Windows of the last axes: [..., places, offsets]."""
    axes = tuple(range(x.ndim - len(size), x.ndim))
    x = np.pad(x, [(padding, padding) if axis in axes else (0, 0) for axis in range(x.ndim)])
    reach = tuple((n - 1) * dilation + 1 for n in size)
    windows: Any = np.lib.stride_tricks.sliding_window_view(x, reach, axis=axes)
    keep, inside = (slice(None, None, stride),) * len(size), (slice(None, None, dilation),) * len(size)
    return windows[(..., *keep, *(slice(None),) * len(size))][(..., *inside)]


@pytest.mark.parametrize("name", ["im2col_f32", "im2col_bf16", "im2col1d_f16"])
def test_unfolding(dev: ost.Device, checkouts: Checkouts, numbers: Random, name: str) -> None:
    shape, size = ((2, 3, 21), (3,)) if "1d" in name else ((2, 3, 11, 13), (3, 2))
    x = values(numbers, shape, name.split("_")[-1])
    windows = unfolded(x, size, 2, 1, 2)
    expected = np.moveaxis(windows, 1, 1 + len(size))  # the channel behind the places
    places = expected.shape[1 : 1 + len(size)]
    run = kernel(checkouts, "conv", name)
    got = launch(
        dev, run, expected.size, *places, *size, 2, 1, 2, sizes(x), steps(x), x,
        np.ones(expected.shape, x.dtype), **spread(expected.size),
    )  # fmt: skip
    np.testing.assert_array_equal(got, expected)


def test_folding(dev: ost.Device, checkouts: Checkouts, numbers: Random) -> None:
    """What a transposed convolution does with its products: windows are added where they overlap."""
    b, length, c, size, stride = 2, 9, 3, 5, 2
    columns, n = values(numbers, (b, length, c, size), "f32"), (length - 1) * stride + size
    run = kernel(checkouts, "conv", "col2im1d_f32")
    out = np.ones((b, c, n), np.float32)
    got = launch(dev, run, out.size, n, length, c, size, stride, columns, out, **spread(out.size))
    expected = np.zeros(out.shape)
    for place in range(length):
        expected[:, :, place * stride : place * stride + size] += columns[:, place]
    check(got, expected, "f32")


@pytest.mark.parametrize("name", ["conv_transpose1d_f32", "conv_transpose1d_bf16", "conv_transpose2d_f16"])
def test_transposed_convolution(dev: ost.Device, checkouts: Checkouts, numbers: Random, name: str) -> None:
    stride, padding, extra, dilation = 2, 1, 1, 2
    two = "2d" in name
    shape, size = ((2, 3, 6, 7), (3, 2)) if two else ((2, 3, 12), (3,))
    x, weights = (values(numbers, shape, name.split("_")[-1]) for shape in (shape, (3, 4, *size)))
    full = [(n - 1) * stride + (k - 1) * dilation + 1 + extra for n, k in zip(shape[2:], size, strict=True)]
    expected: Any = np.zeros((2, 4, *full))
    for offset in np.ndindex(*size):
        at = tuple(
            slice(o * dilation, o * dilation + n * stride, stride) for o, n in zip(offset, shape[2:], strict=True)
        )
        tap = weights[(slice(None), slice(None), *offset)].astype(float)
        expected[(..., *at)] += np.einsum("bi...,io->bo...", x.astype(float), tap)
    expected = expected[(..., *(slice(padding, n - padding) for n in full))]
    lengths = expected.shape[:1:-1]  # the width, then the height
    out, run = np.zeros(expected.shape, x.dtype), kernel(checkouts, "conv", name)
    memory = sizes(x), steps(x), sizes(weights), steps(weights), x, weights, out
    got = launch(dev, run, *lengths, stride, padding, extra, dilation, *memory, **spread(out.size))
    check(got, expected, name.split("_")[-1], scale=4)


@pytest.mark.parametrize("name", ["avg_pool2d_f32", "avg_pool2d_bf16", "max_pool2d_f16", "max_pool2d_u8"])
def test_pooling(dev: ost.Device, checkouts: Checkouts, numbers: Random, name: str) -> None:
    kind = name.split("_")[-1]
    x = values(numbers, (2, 3, 11, 13), kind)
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(float), (3, 2), axis=(2, 3))[:, :, ::2, ::3]
    run = kernel(checkouts, "conv", name)
    out = np.zeros(windows.shape[:4], x.dtype)
    got = launch(dev, run, 3, 2, 2, 3, sizes(x), steps(x), x, out, **spread(out.size))
    expected = windows.mean(axis=(4, 5)) if "avg" in name else windows.max(axis=(4, 5))
    check(got, expected, kind if kind in NEAR else "f32", scale=0.1)


@pytest.mark.parametrize("kind", ["f32", "u8"])
def test_upsampling_to_the_nearest(dev: ost.Device, checkouts: Checkouts, numbers: Random, kind: str) -> None:
    x = values(numbers, (2, 3, 5, 7), kind)
    run = kernel(checkouts, "conv", f"upsample_nearest2d_{kind}")
    out = np.zeros((2, 3, 16, 17), x.dtype)
    got = launch(dev, run, 16, 17, 5 / 16, 7 / 17, sizes(x), steps(x), x, out, **spread(out.size))
    rows, columns = np.arange(16) * 5 // 16, np.arange(17) * 7 // 17
    np.testing.assert_array_equal(got, x[:, :, rows][..., columns])


@pytest.mark.parametrize("corners", [False, True])
def test_upsampling_between_neighbours(dev: ost.Device, checkouts: Checkouts, numbers: Random, corners: bool) -> None:
    x = values(numbers, (2, 3, 5, 7), "f32")
    run = kernel(checkouts, "conv", "upsample_bilinear2d_f32")
    out = np.zeros((2, 3, 16, 17), x.dtype)
    got = launch(
        dev, run, 17, 16, corners, False, 1.0, False, 1.0, sizes(x), steps(x), x, out, **spread(out.size)
    )  # fmt: skip
    expected = x.astype(float)
    for axis, n in ((2, 16), (3, 17)):
        old = x.shape[axis]
        at = np.arange(n) * (old - 1) / (n - 1) if corners else (np.arange(n) + 0.5) * old / n - 0.5
        at = np.clip(at, 0, old - 1)
        first = np.floor(at).astype(int)
        part = np.expand_dims(at - first, tuple({0, 1, 2, 3} - {axis}))
        second = np.minimum(first + 1, old - 1)
        expected = expected.take(first, axis) * (1 - part) + expected.take(second, axis) * part
    check(got, expected, "f32")


# --- products -------------------------------------------------------------------------------------------------------


def blocks(numbers: Random, name: str, rows: int, width: int) -> tuple[Any, Any]:
    """Random blocks of a format, and their weights."""
    form = FORMATS[name]
    raw = numbers.integers(0, 256, (rows, width // form.weights, form.nbytes), np.uint8).view(form.dtype)[..., 0]
    for field in {"scale", "offset", "minimum"} & set(form.dtype.fields or ()):
        raw[field] = numbers.uniform(0.01, 0.1, raw.shape)
    return raw, form.dequantised(raw)


QUANTISED = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]
GROUPS = {"Q2_K": (2, 32, 8), "Q3_K": (2, 32, 4), "Q4_K": (4, 8, 4), "Q5_K": (2, 32, 4), "Q6_K": (2, 32, 2)}
"""Threads of a group of the products with a vector, and how many rows it computes; others have 8 · 8 for 8."""


@pytest.mark.parametrize("name", QUANTISED)
def test_quantised_vector_product(dev: ost.Device, checkouts: Checkouts, numbers: Random, name: str) -> None:
    m, n, k = 3, 40, 1280
    raw, weights = blocks(numbers, name, n, k)
    x = values(numbers, (m, k), "f32")
    width, height, rows = GROUPS.get(name, (8, 8, 8))
    shape = (k, n, 1, 0, 0, 0, k, m, 1, 0, 0, 0, n, m, 1, 1)
    run = kernel(checkouts, "quantized", f"kernel_mul_mv_{name.lower().replace('k', 'K')}_f32")
    out = np.zeros((m, n), np.float32)
    got = launch(
        dev, run, raw.view(np.uint8), x, out, *shape, groups=(n // rows, m, 1), group_size=(width, height, 1)
    )  # fmt: skip
    check_product(got, x, weights, 1e-5)


@pytest.mark.parametrize("name", QUANTISED)
def test_quantised_product(dev: ost.Device, checkouts: Checkouts, numbers: Random, name: str) -> None:
    """A batch of products with the same weights, as halves; neither side is a whole number of tiles."""
    batch, m, n, k = 2, 37, 70, 512
    raw, weights = blocks(numbers, name, n, k)
    x = values(numbers, (batch, m, k), "f32")
    row = raw.nbytes // n
    shape = (k, 1, row, 0, 0, batch, 4, 4 * k, 4 * k * m, x.nbytes, n, m, batch, 1)
    run = kernel(checkouts, "quantized", f"kernel_mul_mm_{name.lower().replace('k', 'K')}_f32")
    got = launch(
        dev, run, raw.view(np.uint8), x.view(np.uint8), np.zeros((batch, m, n), np.float32), *shape,
        groups=(-(-m // 32), -(-n // 64), batch), group_size=(128, 1, 1), shared={0: 8192},
    )  # fmt: skip
    for part in range(batch):
        check_product(got[part], x[part], weights, 1e-3)


@pytest.mark.parametrize("name", ["Q4_0", "Q5_1", "Q3_K", "Q6_K"])
def test_quantised_rows(dev: ost.Device, checkouts: Checkouts, numbers: Random, name: str) -> None:
    raw, weights = blocks(numbers, name, 30, 768)
    ids = numbers.integers(0, 30, 7).astype(np.uint32)
    run = kernel(checkouts, "quantized", f"kernel_get_rows_{name.lower().replace('k', 'K')}")
    shape = (768, raw.nbytes // 30, 0, 7, 4, 0, 4 * 768, 0)
    got = launch(
        dev, run, raw.view(np.uint8), ids.view(np.uint8), np.zeros((7, 768), np.float32), *shape,
        groups=7, group_size=128,
    )  # fmt: skip
    check(got, weights[ids], "f32")


def wire(x: Any, trans: bool) -> Any:
    """A matrix as it lies in memory."""
    return np.ascontiguousarray(x.swapaxes(-1, -2)) if trans else x


@pytest.mark.parametrize(("trans", "kind"), [("nn", "f32"), ("tn", "f16"), ("nt", "bf16"), ("tt", "f32")])
def test_gemm(dev: ost.Device, checkouts: Checkouts, numbers: Random, trans: str, kind: str) -> None:
    """A batch with tails on all three sides."""
    batch, m, n, k = 2, 67, 45, 83
    a, b = values(numbers, (batch, m, k), kind), values(numbers, (batch, k, n), kind)
    constants = {10: True} | dict.fromkeys((100, 110, 200, 201, 202, 300), False)
    run = kernel(checkouts, "mlx_gemm", f"gemm_{trans}_{kind}_{kind}_32_32_16_2_2", constants=constants)
    (lda, ldb), grid = (m if trans[0] == "t" else k, k if trans[1] == "t" else n), (-(-n // 32), -(-m // 32), batch)
    shape = (m, n, k, lda, ldb, n, *grid[:2], m * k, k * n, m * n, 0, k // 16, 1)
    memory = wire(a, trans[0] == "t"), wire(b, trans[1] == "t")
    got = launch(
        dev, run, *memory, np.zeros((batch, m, n), a.dtype), shape, np.array([batch], np.int32),
        np.array([m * k, k * n], np.uint64), groups=grid, group_size=(32, 2, 2),
    )  # fmt: skip
    for part in range(batch):
        check_product(got[part], a[part], b[part].T, NEAR[kind] / 4)


@pytest.mark.parametrize(
    ("name", "kind", "n", "k"),
    [("gemv", "f32", 203, 1000), ("gemv", "bf16", 33, 2000), ("gemv_t", "f32", 203, 1000), ("gemv_t", "f16", 700, 300)],
)
def test_gemv(dev: ost.Device, checkouts: Checkouts, numbers: Random, name: str, kind: str, n: int, k: int) -> None:
    """A vector for each of three products with the same matrix; tiles as the host chooses them for the size."""
    matrix, x = values(numbers, (n, k), kind), values(numbers, (3, k), kind)
    if name == "gemv_t":
        bm, bn, sm, sn = 1, 2 if n < 512 else 4, 8, 4
    else:
        bm, bn, sm, sn = (1, 8, 1, 32) if k >= 16 * n else (4, 1, 1, 32)
    run = kernel(checkouts, "gemv", f"{name}_{LONG_NAMES[kind]}_bm{bm}_bn{bn}_sm{sm}_sn{sn}_tm4_tn4_nc0_axpby0")
    layout = (np.array([3], np.int32), np.array([k], np.int64), np.zeros(1, np.int64))
    outputs = bn * sn * 4 if name == "gemv_t" else bm * sm * 4
    got = launch(
        dev, run, wire(matrix, name == "gemv_t"), x, x[0], np.zeros((3, n), x.dtype), k, n,
        n if name == "gemv_t" else k, 1.0, 0.0, 1, *layout, layout[2], 1,
        groups=(-(-n // outputs), 1, 3), group_size=(32, bn, bm),
    )  # fmt: skip
    check_product(got, x, matrix, NEAR[kind] / 4)


# --- attention ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "width", "cap"), [("f32", 64, 1.0), ("f32", 96, 1.5), ("f16", 256, 1.0), ("bf16", 128, 1.0)]
)
@pytest.mark.parametrize("passes", [1, 2])
def test_attention_of_one_query(
    dev: ost.Device, checkouts: Checkouts, numbers: Random, passes: int, kind: str, width: int, cap: float
) -> None:
    """In one pass, or over 32 parts of the keys whose results a second pass puts together."""
    heads, shared, n, scale = 6, 3, 301, width**-0.5
    q, k, v = (
        values(numbers, (1, *shape, width), kind) for shape in ((heads, 1), (heads // shared, n), (heads // shared, n))
    )
    tail = f"{'float' if kind == 'f32' else LONG_NAMES[kind] + '_t'}_{width}"
    more = (shared, n, n * width, n * width, scale / cap if cap != 1 else scale, cap)
    grid: dict[str, Any] = {"groups": (1, heads, 1), "group_size": 1024}
    out = np.zeros_like(q)

    def run(name: str) -> ost.Kernel:
        return kernel(checkouts, "scaled_dot_product_attention", f"{name}_{tail}", constants=ATTENTION)

    if passes == 1:
        got = launch(dev, run("sdpa_vector"), q, k, v, out, *more, **grid)
    else:
        parts = [np.zeros(shape, np.float32) for shape in ((heads, 32, width), (heads, 32), (heads, 32))]
        first: dict[str, Any] = {"groups": (1, heads, 32), "group_size": 256}
        parts = launch(dev, run("sdpa_vector_2pass_1"), q, k, v, *parts, *more, **first)
        got = launch(dev, run("sdpa_vector_2pass_2"), *parts, out, **grid)
    check(got, attention(q, k, v, scale, cap=cap if cap != 1 else 0), kind, scale=0.5)


ATTENTION = {20: False, 200: False, 201: False, 300: False, 301: False}
"""Function constants: no mask, tails in both directions, not causal."""


@pytest.mark.parametrize(
    ("kind", "width", "masked"),
    [("f32", 64, ""), ("f32", 128, "causal"), ("f16", 80, "float16"), ("bf16", 96, "bool_"), ("bf16", 256, "causal")],
)
def test_attention_of_many_queries(
    dev: ost.Device, checkouts: Checkouts, numbers: Random, kind: str, width: int, masked: str
) -> None:
    batch, heads, rows, n, scale = 2, 4, 60, 75, width**-0.5
    block = 32 if width < 128 else 16
    q, k, v = (values(numbers, (batch, *shape, width), kind) for shape in ((heads, rows), (2, n), (2, n)))
    allowed = numbers.random((batch, heads, rows, n)) < 0.7
    bias: Any = np.where(allowed, 0, -np.inf)
    if masked == "causal":
        bias = np.where(np.arange(n) <= np.arange(rows)[:, None] + n - rows, 0, -np.inf)
    mask = {"bool_": allowed, "float16": bias.astype(np.float16)}.get(masked)
    type_name = LONG_NAMES[kind]
    name = (
        f"steel_attention_{type_name}_bq32_bk{block}_bd{width}_wm4_wn1_mask{masked if mask is not None else type_name}"
    )
    constants = ATTENTION | {300: mask is not None, 301: masked == "causal"}
    run = kernel(checkouts, "scaled_dot_product_attention", name, constants=constants)
    strides = [[*map(int, steps(x)[:3])] for x in (q, k, v, q)]
    shape = (
        batch, heads, width, rows, n, heads // 2, scale, 1.0, -(-rows // 32), -(-n // block), rows // 32, n // block,
        rows % 32, n % block, n - rows, *strides,
    )  # fmt: skip
    more = ([[*map(int, steps(mask)[:3])]], mask) if mask is not None else ()
    got = launch(
        dev, run, q, k, v, np.zeros_like(q), shape, *more,
        groups=(-(-rows // 32), heads, batch), group_size=(32, 4, 1),
    )  # fmt: skip
    expected = attention(q, k, v, scale, bias if masked else 0.0)
    check(got, expected, kind, scale=0.5)
