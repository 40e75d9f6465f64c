"""PyTorch: reductions, norms, scans, and searches in sorted rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

import ostinato as ost
from checkouts import Checkouts
from launching import launch
from mps_kernels import DTYPES, TOLERANCE, kernel

Array = NDArray[Any]


def reduction(x: Array, out: Array, axes: tuple[int, ...], p: float = 0) -> bytes:
    """The parameters of a reduction of `x` over `axes` into `out`, which keeps these axes with one element."""
    shapes = np.zeros((4, 16), np.uint32)
    for row, array in enumerate((x, out)):
        shapes[2 * row, : x.ndim] = array.shape
        shapes[2 * row + 1, : x.ndim] = np.array(array.strides) // array.itemsize
    numbers = np.array([np.prod([x.shape[axis] for axis in axes]), x.ndim], np.uint32)
    return np.float32(p).tobytes() + numbers.tobytes() + shapes.tobytes()


@pytest.mark.parametrize("p", [0, 1, 2.5, np.inf, -np.inf])
def test_norm_over_two_axes(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, p: float) -> None:
    norm = kernel(checkouts, "ReduceOps", "norm_float_float")
    memory = numbers.integers(-3, 4, (7, 5, 23)).astype(np.float32) + (0.5 if p < 0 else 0)
    x, out = memory.transpose(2, 0, 1), np.zeros((1, 7, 1), np.float32)
    got = launch(dev, norm, memory, out, reduction(x, out, (0, 2), p), groups=7, group_size=115)
    with np.errstate(divide="ignore"):
        expected = [np.linalg.norm(x[:, i, :].reshape(-1).astype(float), p) for i in range(7)]
    assert_allclose(got.reshape(-1), expected, rtol=2e-5)


@pytest.mark.parametrize(("taken", "given"), [("float", "half"), ("uchar", "long"), ("bool", "int"), ("char", "char")])
def test_sum_over_the_middle_axis(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, taken: str, given: str
) -> None:
    total = kernel(checkouts, "ReduceOps", f"sum_reduction_{taken}_{given}")
    x = numbers.integers(0, 2 if taken == "bool" else 9, (3, 2500, 5)).astype(DTYPES[taken])
    out = np.zeros((3, 1, 5), DTYPES[given])
    got = launch(dev, total, x, out, reduction(x, out, (1,)), groups=15, group_size=1024)
    if given == "half":
        assert_allclose(got.astype(float), x.astype(float).sum(1, keepdims=True), rtol=1e-3)
    else:
        assert_array_equal(got, x.sum(1, keepdims=True, dtype=out.dtype))


def test_nansum_of_rows(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    nansum = kernel(checkouts, "ReduceOps", "nansum_reduction_inner_bfloat_float")
    x = numbers.standard_normal((13, 1111)).astype(DTYPES["bfloat"])
    x[:, ::7] = np.nan
    got = launch(
        dev, nansum, x, np.zeros(13, np.float32), np.array([13, 1111], np.uint32), 0.0, groups=2, group_size=256
    )
    assert_allclose(got, np.nansum(x.astype(float), 1), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", ["half", "bool", "long"])
def test_count_of_nonzero_elements_in_columns(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, dtype: str
) -> None:
    count = kernel(checkouts, "ReduceOps", f"count_nonzero_reduction_outer_{dtype}_long")
    x = numbers.integers(0, 2, (2, 333, 70)).astype(DTYPES[dtype])
    got = launch(
        dev, count, x, np.zeros((2, 70), np.int64), np.array([333, 70, 1, 1], np.uint32), -1.0,
        np.array([70, 1, 333 * 70, 0], np.uint32), groups=(3, 1, 2), group_size=(32, 32, 1),
    )  # fmt: skip
    assert_array_equal(got, np.count_nonzero(x, 1))


def test_mean_of_complex_numbers(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    mean = kernel(checkouts, "ReduceOps", "sum_reduction_inner_float2_float2")
    x = numbers.standard_normal((9, 777, 2)).astype(np.float32)
    got = launch(
        dev, mean, x, np.zeros((9, 2), np.float32), np.array([9, 777], np.uint32), 777.0, groups=3, group_size=128
    )
    assert_allclose(got, x.astype(float).mean(1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float", "bfloat", "long", "uchar"])
@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str, dtype: str) -> None:
    extreme = kernel(checkouts, "ReduceOps", f"{name}_reduction_{dtype}_{dtype}")
    x = numbers.integers(0, 250, (6, 700, 3)).astype(DTYPES[dtype])
    if dtype == "float":
        x[2, 5, 1] = np.nan
    out = np.zeros((1, 700, 1), x.dtype)
    got = launch(dev, extreme, x, out, reduction(x, out, (0, 2)), groups=700, group_size=32)
    assert_array_equal(got, getattr(x, name)((0, 2), keepdims=True))


@pytest.mark.parametrize(("name", "dtype"), [("any", "half"), ("all", "long")])
def test_any_and_all_of_rows(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str, dtype: str
) -> None:
    predicate = kernel(checkouts, "ReduceOps", f"{name}_reduction_inner_{dtype}_uchar")
    x = (numbers.random((50, 300)) < (0.005 if name == "any" else 0.995)).astype(DTYPES[dtype])
    got = launch(dev, predicate, x, np.full(50, 9, np.uint8), np.array([50, 300], np.uint32), groups=7, group_size=256)
    assert 0 < got.sum() < 50
    assert_array_equal(got, getattr(x.astype(bool), name)(1))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("form", "width", "group_size"),
    [
        ("single_row_i32", 1001, 251),
        ("single_row_i64", 1001, 251),
        ("looped_i32", 4999, 1024),
        ("looped_i64", 4999, 1024),
    ],
)
def test_layer_norm(
    dev: ost.Device,
    checkouts: Checkouts,
    numbers: np.random.Generator,
    form: str,
    width: int,
    group_size: int,
    dtype: str,
) -> None:
    norm = kernel(checkouts, "LayerNorm", f"layer_norm_{form}_{dtype}")
    x, weight = (numbers.standard_normal(shape).astype(DTYPES[dtype]) for shape in ((3, width), width))
    bias, mean, rstd = x[0] * 2, np.zeros(3, x.dtype), np.zeros(3, x.dtype)
    size = np.uint32 if form.endswith("32") else np.uint64
    got = launch(
        dev, norm, x, np.zeros_like(x), mean, rstd, size(width), 1e-5, 1, 1, weight, bias,
        groups=3, group_size=group_size,
    )  # fmt: skip
    rows = x.astype(float)
    center, scale = rows.mean(1, keepdims=True), 1 / np.sqrt(rows.var(1, keepdims=True) + 1e-5)
    expected = (rows - center) * scale * weight.astype(float) + bias.astype(float)
    assert_allclose(got[1].astype(float), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    assert_allclose(got[2].astype(float), center[:, 0], rtol=TOLERANCE[dtype], atol=1e-6)
    assert_allclose(got[3].astype(float), scale[:, 0], rtol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("form", "width", "group_size"), [("", 1001, 256), ("_looped", 4999, 1024)])
def test_rms_norm(
    dev: ost.Device,
    checkouts: Checkouts,
    numbers: np.random.Generator,
    form: str,
    width: int,
    group_size: int,
    dtype: str,
) -> None:
    norm = kernel(checkouts, "RMSNorm", f"rms_norm{form}_{dtype}")
    x, weight = (numbers.standard_normal(shape).astype(DTYPES[dtype]) for shape in ((3, width), width))
    got = launch(dev, norm, x, weight, np.zeros_like(x), 1e-5, width, 1, groups=3, group_size=group_size)
    rows = x.astype(float)
    expected = rows / np.sqrt((rows**2).mean(1, keepdims=True) + 1e-5) * weight.astype(float)
    assert_allclose(got.astype(float), expected, rtol=2 * TOLERANCE[dtype], atol=1e-6)


@pytest.mark.parametrize(("width", "group_size"), [(1003, 32), (4001, 1024)])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_logcumsumexp_along_rows(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, width: int, group_size: int, dtype: str
) -> None:
    """Groups of several simdgroups take no second round: their kernel has no barrier between two uses of one sum."""
    scan = kernel(checkouts, "ScanKernel", f"logcumsumexp_innermost_{dtype}")
    x = numbers.normal(-3, 4, (3, width)).astype(DTYPES[dtype])
    got = launch(dev, scan, x, np.zeros_like(x), width, groups=(1, 3), group_size=(group_size, 1))
    assert_allclose(got.astype(float), np.logaddexp.accumulate(x.astype(float), 1), rtol=TOLERANCE[dtype], atol=5e-5)


def test_products_of_complex_numbers_along_columns(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator
) -> None:
    scan = kernel(checkouts, "ScanKernel", "cumprod_outer_float2")
    angles = numbers.uniform(-3, 3, (2, 75, 45))
    x = np.stack([np.cos(angles), np.sin(angles)], -1).astype(np.float32)
    got = launch(dev, scan, x, np.zeros_like(x), 75, 45, 2, groups=(1, 4), group_size=(512, 1))
    expected = np.cumprod(x.astype(float).view(complex)[..., 0], 1)
    assert_allclose(got, np.stack([expected.real, expected.imag], -1), rtol=1e-4, atol=5e-5)


def running_extreme(x: Array, better: Callable[..., Any]) -> tuple[Array, Array]:
    """Along the second axis: the extreme so far and where it was seen last."""
    values, indices = x.copy(), np.zeros(x.shape, np.int64)
    for i in range(1, x.shape[1]):
        taken = better(x[:, i], values[:, i - 1])
        values[:, i] = np.where(taken, x[:, i], values[:, i - 1])
        indices[:, i] = np.where(taken, i, indices[:, i - 1])
    return values, indices


@pytest.mark.parametrize("dtype", ["float", "bfloat", "long", "short", "uchar"])
@pytest.mark.parametrize(("name", "better"), [("cummax", np.greater_equal), ("cummin", np.less_equal)])
def test_running_extremes(
    dev: ost.Device,
    checkouts: Checkouts,
    numbers: np.random.Generator,
    name: str,
    better: Callable[..., Any],
    dtype: str,
) -> None:
    inner, outer = (kernel(checkouts, "ScanKernel", f"{name}_{place}_{dtype}") for place in ("innermost", "outer"))
    reads = 2 if dtype == "long" else 4
    x = numbers.integers(0, 120, (3, 500)).astype(DTYPES[dtype])
    group_size = -(-500 // (32 * reads)) * 32
    got = launch(
        dev, inner, x, np.zeros_like(x), np.zeros(x.shape, np.int64), 500, groups=(1, 3), group_size=(group_size, 1)
    )
    for values, expected in zip(got, running_extreme(x, better), strict=True):
        assert_array_equal(values, expected)
    x = numbers.integers(0, 120, (2, 90, 37)).astype(x.dtype)
    got = launch(
        dev, outer, x, np.zeros_like(x), np.zeros(x.shape, np.int64), 90, 37, 2,
        groups=(1, 4), group_size=(32 * 32 // reads, 1),
    )  # fmt: skip
    for values, expected in zip(got, running_extreme(x, better), strict=True):
        assert_array_equal(values, expected)


@pytest.mark.parametrize("right", [0, 1])
@pytest.mark.parametrize(("dtype", "to"), [("half", "int"), ("long", "long"), ("char", "int")])
def test_searchsorted_in_rows_with_an_order(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, dtype: str, to: str, right: int
) -> None:
    search = kernel(checkouts, "Bucketization", f"searchsorted_{dtype}_{to}_sorter")
    rows, x = numbers.integers(-50, 50, (4, 37)).astype(DTYPES[dtype]), numbers.integers(-60, 60, (4, 91))
    x = x.astype(rows.dtype)
    order = np.argsort(rows, 1, kind="stable")
    got = launch(
        dev, search, x, rows, np.zeros(x.shape, DTYPES[to]), 91, 37, x.size, right, 0, order,
        groups=(1, 1), group_size=(256, 1),
    )  # fmt: skip
    before = (rows[:, None] <= x[..., None]) if right else (rows[:, None] < x[..., None])
    assert_array_equal(got, before.sum(2))


@pytest.mark.parametrize("algorithm", [0, 1, 2])
def test_histogram_of_two_dimensions(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, algorithm: int
) -> None:
    """Linear, linear with a local search, and binary; each thread has a histogram of its own."""
    histogram = kernel(checkouts, "HistogramKernel", "histogramdd_float")
    points, weights = numbers.uniform(-0.2, 1.2, (150, 2)).astype(np.float32), numbers.integers(1, 9, 150)
    edges = [np.linspace(0, 1, 9, dtype=np.float32), np.linspace(0, 1, 5, dtype=np.float32)]
    got = launch(
        dev, histogram, points, weights.astype(np.float32), np.zeros((150, 8, 4), np.float32),
        np.arange(300, dtype=np.uint32), 2, np.concatenate(edges), np.array([9, 5], np.int64),
        np.zeros(2, np.float32), np.ones(2, np.float32), np.array([32, 4, 1], np.int64), np.uint8(algorithm), 1,
        threads=150, group_size=64,
    )  # fmt: skip
    expected = np.histogramdd(points, edges, weights=weights)[0]
    assert_array_equal(got.sum(0), expected)
