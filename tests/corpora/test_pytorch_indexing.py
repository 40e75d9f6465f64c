"""PyTorch: sorting, indexing, scattering and gathering, bags of embeddings, triangles of matrices."""

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
from mps_kernels import DTYPES, NO_ERRORS, TOLERANCE, address, element_strides, kernel, sizes, strides

Array = NDArray[Any]


def steps(array: Array) -> NDArray[np.int64]:
    """Strides in elements, in the order of `sizes`."""
    return element_strides(array)[::-1]


def order(rows: Array, descending: bool) -> NDArray[np.int64]:
    """The stable order of each row; what is no number counts as largest."""
    keys = np.where(np.isnan(rows.astype(float)), 1e9, rows.astype(float))
    return np.argsort(-keys if descending else keys, axis=1, kind="stable")


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", ["float", "half", "bool", "uchar", "long"])
def test_stable_sort_in_one_group(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, dtype: str, descending: bool
) -> None:
    sort = kernel(checkouts, "Sort", f"sort_block_{dtype}_tptg128_stable")
    memory = numbers.integers(0, 2 if dtype == "bool" else 99, (500, 3)).astype(DTYPES[dtype])
    if dtype in TOLERANCE:
        memory[::50] = np.nan
    got = launch(
        dev, sort, memory, np.zeros((3, 500), memory.dtype), np.zeros((3, 500), np.int64), 500,
        np.array([3, 1], np.int64), np.bool_(descending), groups=(1, 3), group_size=(128, 1),
    )  # fmt: skip
    expected = order(memory.T, descending)
    assert_array_equal(got[1], expected)
    assert_array_equal(got[0], np.take_along_axis(memory.T, expected, 1))


@pytest.mark.parametrize("dtype", ["bfloat", "int"])
def test_sort_of_blocks_that_are_merged(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, dtype: str
) -> None:
    """Which of equal elements comes first is not said, so the order is checked by what it picks."""
    blocks, merge, last = (
        kernel(checkouts, "Sort", f"mb_{stage}_{dtype}_tptg64_u16") for stage in ("sort_block", "merge", "merge_final")
    )
    rows, grid = numbers.integers(-500, 500, (2, 900)).astype(DTYPES[dtype]), {"groups": (4, 2), "group_size": (64, 1)}
    values, indices = np.zeros_like(rows), np.zeros(rows.shape, np.uint16)
    ascending = np.bool_(False)
    values, indices = launch(dev, blocks, rows, values, indices, 900, np.array([1, 900]), ascending, **grid)
    for stage, tiles, dtype_of_indices in ((merge, 2, np.uint16), (last, 4, np.int64)):
        values, indices = launch(
            dev, stage, values, indices, np.zeros_like(rows), np.zeros(rows.shape, dtype_of_indices),
            np.array([900, tiles, 4, 0], np.int32), ascending, **grid,
        )  # fmt: skip
    assert_array_equal(values.astype(float), np.sort(rows.astype(float), 1))
    assert_array_equal(np.take_along_axis(rows, indices, 1), values)
    assert_array_equal(np.sort(indices, 1), np.tile(np.arange(900), (2, 1)))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(("dtype", "group_size", "bits"), [("half", 1024, 8), ("char", 512, 4), ("float", 512, 8)])
def test_radix_sort(
    dev: ost.Device,
    checkouts: Checkouts,
    numbers: np.random.Generator,
    dtype: str,
    group_size: int,
    bits: int,
    descending: bool,
) -> None:
    count, fused, scan, scatter, last = (
        kernel(checkouts, "Sort", f"radix_{name}")
        for name in (
            f"count_{dtype}_{bits}bit",
            f"count_scan_{dtype}_{bits}bit_mb4",
            "scan",
            f"scatter_{dtype}_{bits}bit",
            f"scatter_final_{dtype}_{bits}bit",
        )
    )
    rows = numbers.normal(0, 40, (2, 5000)).clip(-128, 127).astype(np.int8).astype(DTYPES[dtype])
    each = {"groups": (-(-5000 // (group_size * (8 if bits == 4 else 4))), 2), "group_size": (group_size, 1)}
    blocks, passes = each["groups"][0], 8 * rows.itemsize // bits
    entries = blocks << bits
    keys, indices = rows, np.zeros(rows.shape, np.uint32)
    for i in range(passes):
        dims, histograms = np.array([5000, blocks, i * bits, 0], np.int32), np.zeros((2, entries), np.uint32)
        if i == 0:
            histograms = launch(dev, count, keys, histograms, dims, np.bool_(descending), **each)
            histograms = launch(dev, scan, histograms, entries, groups=(1, 2), group_size=(1024, 1))
        else:
            one = {"groups": (1, 2), "group_size": (group_size, 1)}
            histograms = launch(dev, fused, keys, histograms, dims, np.bool_(descending), **one)
        stage, to = (scatter, np.uint32) if i < passes - 1 else (last, np.int64)
        flags = np.array([descending, i == 0], np.bool_)
        keys, indices = launch(
            dev, stage, keys, indices, np.zeros_like(rows), np.zeros(rows.shape, to), histograms, dims, flags, **each
        )
    expected = order(rows, descending)
    assert_array_equal(indices, expected)
    assert_array_equal(keys, np.take_along_axis(rows, expected, 1))


@pytest.mark.parametrize(
    ("name", "dtype"), [("select_16bit", "short"), ("put_64bit", "long"), ("put_accumulate_half", "half")]
)
def test_index_with_two_arrays(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str, dtype: str
) -> None:
    """`x[rows, :, columns]`, read or written; the kernel finds the arrays of indices by their addresses."""
    index = kernel(checkouts, "Indexing", f"index_{name}")
    x, values = (numbers.integers(0, 9, shape).astype(DTYPES[dtype]) for shape in ((6, 8, 5), (14, 8)))
    places = numbers.permutation(30)[:14] if name.startswith("put_6") else numbers.integers(0, 30, 14)
    rows, columns = places // 5, places % 5 - 5
    buffers = [dev.array(rows), dev.array(columns)]
    pointers = np.array([address(buffer) for buffer in buffers], np.uint64).view(np.uint8)
    indexed, plain = (x, np.array([x.strides[1], 0])), (values, strides(values))
    (to, to_strides), (taken, taken_strides) = (plain, indexed) if name.startswith("select") else (indexed, plain)
    got = launch(
        dev, index, to, taken, pointers, sizes(values), to_strides, taken_strides, np.array([0, 8]),
        np.array([6, 5]), np.array([x.strides[0], x.strides[2]]), np.array([2, 2, 112, 0], np.uint32), NO_ERRORS,
        threads=112, group_size=32,
    )[0]  # fmt: skip
    expected = x.copy()
    where: Any = (rows, slice(None), columns)
    if name.startswith("select"):
        expected = x[where]
    elif name.startswith("put_6"):
        expected[where] = values
    else:
        np.add.at(expected, where, values)
    assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("name", "dtype", "function"),
    [("prod", "half", np.multiply), ("amax", "char", np.maximum), ("mean", "float", np.add)],
)
def test_index_reduce(
    dev: ost.Device,
    checkouts: Checkouts,
    numbers: np.random.Generator,
    name: str,
    dtype: str,
    function: np.ufunc,
) -> None:
    reduce = kernel(checkouts, "Indexing", f"index_reduce_{name}_{dtype}_int")
    x, source = (numbers.choice([-2, -1, 1, 2], shape).astype(DTYPES[dtype]) for shape in ((4, 7, 6), (4, 20, 6)))
    index = numbers.integers(0, 7, 40).astype(np.int32)
    shapes = np.zeros((4, 16), np.uint32)
    for row, values in enumerate((steps(x), sizes(x), steps(source), sizes(source))):
        shapes[row, :3] = values[::-1]
    parameters = np.array([3, 1], np.int32).tobytes() + shapes.tobytes() + np.uint32(2).tobytes()
    got = launch(dev, reduce, x.view(np.uint8), index, source, parameters, threads=source.size, group_size=64)[0]
    expected = x.copy()
    where: Any = (slice(None), index[::2])
    function.at(expected, where, source)
    assert_array_equal(got.view(x.dtype).reshape(x.shape), expected)


def test_masked_fill_with_strides(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    fill = kernel(checkouts, "Indexing", "masked_fill_scalar_strided_16bit")
    x, mask = numbers.integers(0, 99, (9, 11)).astype(np.int16), numbers.random((11, 9)) < 0.4
    ndim = np.array([2], np.uint32)
    got = launch(dev, fill, x, mask, np.int16(-5), sizes(x), steps(x), steps(mask.T), ndim, threads=99, group_size=32)[
        0
    ]
    assert_array_equal(got, np.where(mask.T, -5, x))


@pytest.mark.parametrize("width", [32, 64])
def test_index_copy(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, width: int) -> None:
    copy = kernel(checkouts, "Indexing", f"index_copy_dense_bfloat_long_{width}")
    x, source = (numbers.standard_normal(shape).astype(DTYPES["bfloat"]) for shape in ((3, 9, 5), (3, 4, 5)))
    index = np.array([8, 0, 3, 5])
    got = launch(dev, copy, x, source, index, 9, 5, 4, threads=(5, 4, 3), group_size=(5, 4, 2))
    expected = x.copy()
    expected[:, index] = source
    assert_array_equal(got, expected)


@pytest.mark.parametrize("index", ["uint", "ulong"])
@pytest.mark.parametrize("dtype", ["half", "bool", "long"])
def test_nonzero(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, dtype: str, index: str) -> None:
    """The last group, and the last SIMD group in it, are not full."""
    count, scan, scatter = (
        kernel(checkouts, "Indexing", f"{name}_{index}")
        for name in (f"count_nonzero_prefix_sum_{dtype}", "prefix_sum_blocks", f"scatter_nonzero_indices_{dtype}")
    )
    x = (numbers.random((7, 11, 37)) < 0.3).astype(DTYPES[dtype])
    grid, groups = {"threads": x.size, "group_size": 256}, -(-x.size // 256)
    sums = launch(dev, count, x, np.zeros(groups, np.uint32), 0, 0, **grid)
    offsets, total = launch(
        dev, scan, sums, np.zeros(groups, np.int64), np.zeros(1, np.int64), groups, groups=1, group_size=32
    )
    expected = np.argwhere(x)
    assert total == len(expected)
    shape = np.array(x.shape, np.int64)
    got = launch(dev, scatter, x, np.zeros_like(expected), 3, shape, offsets, len(expected), 0, 0, **grid)
    assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("name", "dtype", "function"),
    [("add", "bfloat", np.add), ("prod", "short", np.multiply), ("amin", "half", np.minimum)],
)
def test_scatter_reduce(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str, dtype: str, function: np.ufunc
) -> None:
    scatter = kernel(checkouts, "ScatterGather", f"scatter_{name}_dense_{dtype}_int")
    x, source = (numbers.choice([-2, -1, 1, 2], shape).astype(DTYPES[dtype]) for shape in ((4, 9, 6), (4, 25, 6)))
    index = numbers.integers(0, 9, source.shape).astype(np.int32)
    got = launch(dev, scatter, x, source, index, 6, 25, 9, 0, NO_ERRORS, threads=source.size, group_size=64)[0]
    expected = x.copy()
    outer, _, inner = np.indices(source.shape)
    function.at(expected, (outer, index, inner), source)
    assert_array_equal(got, expected)


def test_gather_with_strides(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    gather = kernel(checkouts, "ScatterGather", "gather_strided_half_long")
    memory, index = numbers.standard_normal((12, 8, 5)).astype(np.float16), numbers.integers(0, 12, (5, 30, 8))
    x, out = memory.transpose(2, 0, 1), np.zeros(index.shape, np.float16)
    dims = np.array([3, 1, 0, 0], np.uint32)
    got = launch(
        dev, gather, out, memory, index, sizes(index), steps(out), steps(x),
        steps(index), dims, 12, 0, NO_ERRORS, threads=index.size, group_size=128,
    )[0]  # fmt: skip
    assert_array_equal(got, np.take_along_axis(x, index, 1))


@pytest.mark.parametrize("dtype", ["float", "half"])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bag(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, mode: str, dtype: str
) -> None:
    """The bags' sums, means or extremes, then the gradient of the weights; one index is padding."""
    forward, backward = (
        kernel(checkouts, "EmbeddingBag", f"embedding_bag_{part}{dtype}_long") for part in ("", "backward_")
    )
    weight, per_sample = (numbers.standard_normal(shape).astype(DTYPES[dtype]) for shape in ((20, 18), 40))
    indices, offsets = numbers.integers(0, 20, 40), np.array([0, 7, 7, 19, 30])
    padding = int(indices[3])
    code = {"sum": 0, "mean": 1, "max": 2}[mode]
    weighted = mode == "sum"
    out = np.zeros((5, 18), weight.dtype)
    pairs = np.array([18, 1] * 3, np.uint32).tobytes()
    parameters = pairs + np.array([weighted, 1, 40, 5, 18, 20, code, 0], np.uint32).tobytes()
    parameters += np.int64(padding).tobytes()
    got, bag_of, bag_sizes, winners, _ = launch(
        dev, forward, weight, indices, offsets, per_sample, out, np.zeros(40, np.int64), np.zeros(5, np.int64),
        np.zeros((5, 18), np.int64), parameters, NO_ERRORS, threads=90, group_size=32,
    )  # fmt: skip
    bags = [part[part != padding] for part in np.split(indices, offsets[1:])]
    factors = np.where(weighted, per_sample.astype(float), 1)[indices != padding]
    rows = weight.astype(float)[np.concatenate(bags)] * factors[:, None]
    parts = np.split(rows, np.cumsum([len(bag) for bag in bags])[:-1])
    expected = [getattr(part, mode)(0) if len(part) else np.zeros(18) for part in parts]
    assert_allclose(got.astype(float), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    if mode == "max":
        filled = bag_sizes > 0
        assert_array_equal(weight[winners[filled], np.arange(18)], got[filled])
    assert_array_equal(bag_sizes, [len(bag) for bag in bags])
    assert_array_equal(bag_of, np.repeat(np.arange(5), np.diff([*offsets, 40])))

    gradient = numbers.integers(-4, 5, out.shape).astype(out.dtype)
    parameters = pairs + np.array([weighted, 1, 18, code], np.uint32).tobytes() + np.int64(padding).tobytes()
    threads = 90 if mode == "max" else 40 * 18
    got = launch(
        dev, backward, gradient, indices, bag_of, bag_sizes, winners, per_sample, np.zeros(weight.nbytes, np.uint8),
        parameters, threads=threads, group_size=64,
    )  # fmt: skip
    wanted = np.zeros(weight.shape)
    if mode == "max":
        np.add.at(wanted, (winners[filled], np.arange(18)), gradient[filled].astype(float))
    else:
        share = factors if weighted else 1 / np.repeat(bag_sizes, bag_sizes)
        bag = bag_of[indices != padding]
        np.add.at(wanted, np.concatenate(bags), gradient[bag].astype(float) * share[:, None])
    got, close = got.view(weight.dtype).reshape(weight.shape).astype(float), 10 * TOLERANCE[dtype]
    assert_allclose(got, wanted, rtol=close, atol=close)


@pytest.mark.parametrize("k", [-2, 0, 3])
@pytest.mark.parametrize("function", [np.triu, np.tril], ids=lambda f: f.__name__)
def test_triangles_of_matrices_with_strides(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, function: Callable[..., Any], k: int
) -> None:
    triangle = kernel(checkouts, "TriangularOps", f"{function.__name__}_int_half")
    memory = numbers.standard_normal((9, 2, 3, 7)).astype(np.float16)
    x = memory.transpose(1, 2, 3, 0)
    out = np.ones(x.shape, np.float16)
    got = launch(
        dev, triangle, out, memory, steps(out).astype(np.int32), steps(x).astype(np.int32),
        sizes(x).astype(np.uint32), np.array([k, 4], np.int32), threads=(9, 7, 6), group_size=(8, 4, 1),
    )[0]  # fmt: skip
    assert_array_equal(got, function(x, k))


@pytest.mark.parametrize("dtype", ["int", "long"])
def test_repeat_interleave(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, dtype: str) -> None:
    repeat = kernel(checkouts, "Repeat", f"repeat_interleave_{'int32_t' if dtype == 'int' else 'int64_t'}")
    counts = numbers.integers(0, 5, 200).astype(DTYPES[dtype])
    ends = np.cumsum(counts[::2], dtype=np.int64)
    got = launch(dev, repeat, counts, ends, np.zeros(ends[-1], counts.dtype), 2, threads=100, group_size=64)
    assert_array_equal(got, np.repeat(np.arange(100), counts[::2]))
