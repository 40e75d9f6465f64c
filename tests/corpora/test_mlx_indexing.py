"""MLX: gather and scatter, whose kernels the host program makes of templates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ostinato as ost
from checkouts import Checkouts
from launching import HEAD, launch
from mlx_kernels import FOLDER, instance, shape_of, strides_of

Array = np.ndarray[Any, Any]

TYPES = {"float": np.float32, "half": np.float16, "int": np.int32, "uint8_t": np.uint8, "int16_t": np.int16}


def values(numbers: np.random.Generator, kind: str, *shape: int) -> Array:
    return numbers.integers(0 if kind.startswith("u") else -100, 100, shape).astype(TYPES[kind])


def wrapped(numbers: np.random.Generator, size: int, *shape: int) -> Array:
    """Indices, some of which count from the end."""
    return numbers.integers(-size, size, shape).astype(np.int32)


@pytest.mark.parametrize(("kind", "each"), [("float", 1), ("half", 2), ("uint8_t", 2)])
def test_gather_of_rows(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, kind: str, each: int
) -> None:
    x, rows = values(numbers, kind, 50, 33), wrapped(numbers, 50, 23)
    gather = instance(checkouts, ("utils", "indexing/gather_front"), "gather_front", kind, "int", "int", each)
    out = np.ones((23, 33), x.dtype)
    got = launch(dev, gather, x, rows, out, 33, 50, threads=(-(-33 // each), 23), group_size=(16, 8))
    np.testing.assert_array_equal(got, x[rows])


@pytest.mark.parametrize("contiguous", [True, False])
def test_gather_along_an_axis(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, contiguous: bool
) -> None:
    x, indices = values(numbers, "float", 4, 21, 6), wrapped(numbers, 21, 4, 9, 6)
    stored, picks = (x, indices) if contiguous else (x.T.copy().T, indices.T.copy().T)
    gather = instance(
        checkouts,
        ("utils", "indexing/gather_axis"),
        "gather_axis",
        "float",
        "int",
        "int",
        *[str(contiguous).lower()] * 2,
    )
    out = np.ones(indices.shape, np.float32)
    around = (shape_of(x, 0, 2), strides_of(stored, 0, 2), strides_of(picks, 0, 2), 2, 1, 21)
    along = (int(strides_of(stored, 1)[0]), int(strides_of(picks, 1)[0]))
    memory = (stored, picks) if contiguous else (stored.T, picks.T)
    got = launch(dev, gather, *memory, out, *around, *along, threads=(6, 9, 4), group_size=(6, 4, 2))
    np.testing.assert_array_equal(got, np.take_along_axis(x, indices % 21, 1))


@pytest.mark.parametrize(
    ("op", "kind", "combine"),
    [("Sum", "float", np.add), ("Max", "int", np.maximum), ("Min", "half", np.minimum), ("Sum", "int16_t", np.add)],
)
def test_scatter_along_an_axis(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, op: str, kind: str, combine: Any
) -> None:
    out, updates, indices = (
        values(numbers, kind, 4, 7, 5),
        values(numbers, kind, 4, 30, 5),
        wrapped(numbers, 7, 4, 30, 5),
    )
    scatter = instance(
        checkouts, ("utils", "reduce_utils", "indexing/scatter_axis"), "scatter_axis",
        kind, "int", "int", f"{op}<{kind}>", "true", "true",
    )  # fmt: skip
    around = (shape_of(updates, 0, 2), strides_of(updates, 0, 2), strides_of(indices, 0, 2), 2, 1, 7, 5, 5)
    got = launch(dev, scatter, updates, indices, out, *around, threads=(5, 30, 4), group_size=(5, 8, 4))
    expected = out.copy()
    first, _, last = np.indices(indices.shape)
    combine.at(expected, (first, indices % 7, last), updates)
    np.testing.assert_array_equal(got.reshape(out.shape).view(out.dtype), expected)


GATHER = (
    HEAD
    + """
kernel void gather_pairs(device const half *x, device half *out, constant int *shape, constant int64_t *strides,
                         constant size_t &ndim, constant int *slice, constant int *axes, constant int *index_shapes,
                         constant int64_t *index_strides, constant bool *contiguous, constant int &index_ndim,
                         device const uint *first, device const uint *second,
                         uint3 place [[thread_position_in_grid]], uint3 grid [[threads_per_grid]]) {
  Indices<uint, 2> indices{{{first, second}}, index_shapes, index_strides, contiguous, index_ndim};
  gather_impl<half, uint, 2, 2, int>(x, out, shape, strides, ndim, slice, axes, indices, place, grid);
}
"""
)


def test_gather_by_two_arrays_of_indices(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    x = values(numbers, "half", 11, 6, 13)
    first = numbers.integers(0, 11, (5, 4)).astype(np.uint32)
    second = numbers.integers(0, 13, (4, 5)).astype(np.uint32).T
    library = checkouts.library(
        "mlx", f"{FOLDER}/indexing/gather.h", before=(f"{FOLDER}/utils.h",), after=GATHER, include=(".",)
    )
    out = np.ones((5, 4, 1, 6, 1), np.float16)
    described = (shape_of(x), strides_of(x), 3, np.array([1, 6, 1], np.int32), np.array([0, 2], np.int32))
    shapes = np.concatenate([shape_of(first), shape_of(second)])
    strides = np.concatenate([strides_of(first), strides_of(second)])
    indices = (shapes, strides, np.array([True, False]), 2, first, second.T)
    got = launch(dev, library["gather_pairs"], x, out, *described, *indices, threads=(5, 4, 6), group_size=(5, 4, 6))
    np.testing.assert_array_equal(got[..., 0, :, 0], x[first, :, second])


SCATTER = (
    HEAD
    + """
kernel void scatter_rows(device const float *updates, device mlx_atomic<float> *out, constant int *shape,
                         constant int64_t *strides, constant size_t &ndim, constant size_t &size,
                         constant int *out_shape, constant int64_t *out_strides, constant size_t &out_ndim,
                         constant int *axes, constant int *index_shapes, constant int64_t *index_strides,
                         constant bool *contiguous, constant int &index_ndim, constant size_t &count,
                         device const int *rows, uint2 place [[thread_position_in_grid]]) {
  Indices<int, 1> indices{{{rows}}, index_shapes, index_strides, contiguous, index_ndim};
  scatter_impl<float, int, Sum<float>, 1, false, 4, int>(updates, out, shape, strides, ndim, size, out_shape,
                                                         out_strides, out_ndim, axes, count, indices, place);
}
"""
)


def test_scatter_of_rows(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    out, rows = values(numbers, "float", 9, 12), wrapped(numbers, 9, 10, 5)
    updates = values(numbers, "float", 5, 10, 12).swapaxes(0, 1)
    library = checkouts.library(
        "mlx",
        f"{FOLDER}/indexing/scatter.h",
        before=(f"{FOLDER}/utils.h", f"{FOLDER}/reduce_utils.h"),
        after=SCATTER,
        include=(".",),
    )
    updated = np.array([10, 5, 1, 12], np.int32), np.append(strides_of(updates), 1)[[0, 1, 3, 2]]
    described = (*updated, 4, 12, shape_of(out), strides_of(out), 2, np.zeros(1, np.int32))
    indices = (shape_of(rows), strides_of(rows), np.array([True]), 2, 50, rows)
    got = launch(
        dev,
        library["scatter_rows"],
        updates.swapaxes(0, 1),
        out,
        *described,
        *indices,
        threads=(12, 13),
        group_size=(12, 4),
    )
    expected = out.copy()
    np.add.at(expected, rows, updates)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("contiguous", [True, False])
def test_assignment_where_a_mask_is_set(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, contiguous: bool
) -> None:
    mask = numbers.random((3, 400)) < 0.3
    source, out = values(numbers, "half", 3, 400), values(numbers, "half", 3, 400)
    headers = ("utils", "indexing/masked_scatter")
    assign = instance(checkouts, headers, "masked_assign_impl", "half", str(contiguous).lower())
    places = (mask.cumsum(1) - mask).astype(np.uint32)
    stored = source if contiguous else source.T.copy().T
    memory = stored if contiguous else stored.T
    got = launch(
        dev, assign, mask, places, memory, out, shape_of(stored), strides_of(stored), 2, 400, 400, threads=1200
    )
    expected = out.copy()
    for row in range(3):
        expected[row, mask[row]] = source[row, : mask[row].sum()]
    np.testing.assert_array_equal(got, expected)


def test_update_of_a_slice(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    out, updates = values(numbers, "int", 8, 20, 24), values(numbers, "int", 8, 5, 3)
    headers = ("utils", "reduce_utils", "indexing/scatter")
    arguments = ("int", "int", "Max<int>", "false", "false", "false", 2, 3)
    update = instance(checkouts, headers, "slice_update_op_impl", *arguments)
    expected = out.copy()
    target, turned = expected[2:5, 1:16:3, 4:20:2], updates.T
    described = (shape_of(turned), strides_of(turned), 3, turned.size, strides_of(target))
    offset = int(np.array([2, 1, 4]) @ strides_of(out))
    got = launch(dev, update, updates, out, *described, offset, threads=(4, 5, 3), group_size=(4, 5, 3))
    np.maximum(target, turned, out=target)
    np.testing.assert_array_equal(got, expected)
