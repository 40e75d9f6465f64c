"""MLX: reductions of all elements, rows and columns, and positions of extremes.

Elements are small integers, whose sums every type holds exactly, in float32 normal numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ostinato as ost
from checkouts import Checkouts
from launching import launch
from mlx_kernels import DTYPES, kernel, shape_of, strides_of

Array = np.ndarray[Any, Any]

MEANINGS: dict[str, Any] = {"sum": np.sum, "min": np.min, "max": np.max, "and": np.all, "or": np.any}

CASES = [
    ("sum", "float32"), ("max", "int64"), ("and", "int16"), ("sum", "int8"), ("min", "bfloat16"), ("or", "bool_")
]  # fmt: skip
cases, few_cases = (pytest.mark.parametrize(("op", "name"), chosen) for chosen in (CASES, CASES[:3]))


def operand(numbers: np.random.Generator, op: str, name: str, shape: tuple[int, ...], count: int) -> Array:
    """Numbers of which `count` are reduced to one, such that the result is not the same everywhere."""
    if op in ("and", "or"):
        return ((numbers.random(shape) < 0.7 / count) ^ (op == "and")).astype(DTYPES[name])
    if name == "float32":
        return numbers.standard_normal(shape).astype(np.float32)
    high = 3 if op == "sum" else 30000
    return numbers.integers(1 - high, high, shape).astype(DTYPES[name])


def result_name(op: str, name: str) -> str:
    return {"and": "bool_", "or": "bool_", "sum": "int32" if name == "int8" else name}.get(op, name)


def empty(op: str, name: str, *shape: int) -> Array:
    """Memory for results, filled with what no test expects everywhere."""
    return np.ones(shape, DTYPES[result_name(op, name)])


def check(got: Array, op: str, x: Array, axes: int | tuple[int, ...] | None) -> None:
    if op in ("and", "or"):
        np.testing.assert_array_equal(got, MEANINGS[op](x != 0, axis=axes).ravel())
    elif op == "sum" and x.dtype == np.float32:
        np.testing.assert_allclose(got, x.astype(np.float64).sum(axes).ravel(), rtol=1e-5, atol=1e-4)
    else:
        exact = x.astype(np.int64) if x.dtype.kind in "iu" else x.astype(np.float64)
        np.testing.assert_array_equal(got.astype(exact.dtype), MEANINGS[op](exact, axis=axes).ravel())


@cases
def test_all_in_two_passes(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, op: str, name: str
) -> None:
    x = operand(numbers, op, name, (50_003,), 50_003)
    row = -(-x.size // 128)
    first = kernel(checkouts, "reduce", f"all_reduce_{op}{name}")
    parts = launch(dev, first, x, empty(op, name, 128), x.size, row, groups=(1, 128), group_size=128)
    second = kernel(checkouts, "reduce", f"all_reduce_{op}{result_name(op, name)}")
    got = launch(dev, second, parts, empty(op, name, 1), 128, 128, groups=1, group_size=32)
    check(got, op, x, None)


@cases
def test_rows(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, op: str, name: str) -> None:
    x = operand(numbers, op, name, (35, 1027), 1027)
    rows = kernel(checkouts, "reduce", f"row_reduce_simple_{op}{name}")
    got = launch(dev, rows, x, empty(op, name, 35), 1027, 35, groups=(1, 9), group_size=128)
    check(got, op, x, 1)


def strided(x: Array, kept: tuple[int, ...], reduced: tuple[int, ...]) -> tuple[Any, ...]:
    """The arguments for axes that are kept, and for axes that are reduced beside the one that a kernel goes along."""
    return (shape_of(x, *kept), strides_of(x, *kept), len(kept), shape_of(x, *reduced), strides_of(x, *reduced),
            len(reduced))  # fmt: skip


@few_cases
def test_short_rows_of_a_thread(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, op: str, name: str
) -> None:
    x = operand(numbers, op, name, (6, 5, 47, 9), 45)
    rows = kernel(checkouts, "reduce", f"row_reduce_small_1_reduce_{op}{name}")
    got = launch(dev, rows, x, empty(op, name, 282), 9, 5, *strided(x, (0, 2), (1,)), threads=282, group_size=256)
    check(got, op, x, (1, 3))


@few_cases
def test_short_rows_of_a_simdgroup(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, op: str, name: str
) -> None:
    x = operand(numbers, op, name, (3, 7, 4, 6, 5, 9), 378)
    rows = kernel(checkouts, "reduce", f"row_reduce_small_2_reduce_{op}{name}")
    arguments = strided(x, (0, 2, 4), (1, 3))
    got = launch(dev, rows, x, empty(op, name, 60), 9, 42, *arguments, groups=(1, 20, 3), group_size=32)
    check(got, op, x, (1, 3, 5))


@few_cases
def test_rows_of_several_axes(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, op: str, name: str
) -> None:
    x = operand(numbers, op, name, (3, 4, 2, 5, 2, 301), 3612)
    rows = kernel(checkouts, "reduce", f"row_reduce_looped_5_reduce_{op}{name}")
    arguments = strided(x, (1, 3), (0, 2, 4))
    got = launch(dev, rows, x, empty(op, name, 20), 301, 12, *arguments, groups=(1, 20), group_size=64)
    check(got, op, x, (0, 2, 4, 5))


@few_cases
def test_short_columns(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, op: str, name: str) -> None:
    x = operand(numbers, op, name, (3, 4, 7, 141), 21)
    columns = kernel(checkouts, "reduce", f"col_reduce_small_2_reduce_{op}{name}")
    arguments = (7, 141, *strided(x, (1,), (0, 2)), 3)
    got = launch(dev, columns, x, empty(op, name, 4 * 141), *arguments, groups=(2, 4), group_size=(32, 8))
    check(got, op, x, (0, 2))


@cases
def test_columns_in_tiles(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, op: str, name: str
) -> None:
    x = operand(numbers, op, name, (3, 2, 101, 77), 303)
    columns = kernel(checkouts, "reduce", f"col_reduce_looped_2_32_32_reduce_{op}{name}")
    arguments = (101, 77, *strided(x, (1,), (0, 2)), 3)
    got = launch(dev, columns, x, empty(op, name, 2 * 77), *arguments, groups=(3, 2), group_size=256)
    check(got, op, x, (0, 2))


@few_cases
def test_long_columns_in_two_passes(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, op: str, name: str
) -> None:
    x = operand(numbers, op, name, (1500, 70), 1500)
    first = kernel(checkouts, "reduce", f"col_reduce_2pass_1_32_32_reduce_{op}{name}")
    nothing_kept = (np.ones(1, np.int32), np.zeros(1, np.int64), 0)
    arguments = (1500, 70, *nothing_kept, shape_of(x, 0), strides_of(x, 0), 1, 1)
    parts = launch(dev, first, x, empty(op, name, 32, 70), *arguments, 1, groups=(3, 32), group_size=256)
    second = kernel(checkouts, "reduce", f"col_reduce_looped_1_32_32_reduce_{op}{result_name(op, name)}")
    arguments = (32, 70, *nothing_kept, shape_of(parts, 0), strides_of(parts, 0), 1, 1)
    got = launch(dev, second, parts, empty(op, name, 70), *arguments, groups=3, group_size=256)
    check(got, op, x, 0)


@few_cases
def test_narrow_long_columns(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, op: str, name: str
) -> None:
    x = operand(numbers, op, name, (2500, 19), 2500)
    columns = kernel(checkouts, "reduce", f"col_reduce_longcolumn_1_reduce_{op}{name}")
    nothing_kept = (np.ones(1, np.int32), np.zeros(1, np.int64), 0)
    arguments = (2500, 19, *nothing_kept, shape_of(x, 0), strides_of(x, 0), 1, 1, 19)
    parts = launch(dev, columns, x, empty(op, name, 32, 19), *arguments, groups=(1, 1, 32), group_size=(19, 32))
    # Thread (column, row) of group g takes rows that are g * 32 + row, a whole grid apart.
    for part in range(32):
        check(parts[part], op, x[np.arange(2500) // 32 % 32 == part], 0)


@pytest.mark.parametrize(
    ("op", "name"), [("argmin", "float32"), ("argmax", "bfloat16"), ("argmin", "int8"), ("argmax", "uint64")]
)
def test_positions_of_extremes(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, op: str, name: str
) -> None:
    x = numbers.integers(0, 100, (5, 1003, 3)).astype(DTYPES[name])
    extreme = kernel(checkouts, "arg_reduce", f"{op}_{name}")
    shape, strides = shape_of(x, 0, 2), strides_of(x, 0, 2)
    arguments = (shape, strides, np.array([1, 5], np.int64), 2, 3, 1003)
    got = launch(dev, extreme, x, np.zeros((3, 5), np.uint32), *arguments, groups=(1, 3, 5), group_size=256)
    np.testing.assert_array_equal(got, getattr(x.astype(np.float64), op)(axis=1).T)
