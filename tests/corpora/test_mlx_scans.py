"""MLX: scans, sorts, and searches in what is sorted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ostinato as ost
from checkouts import Checkouts
from launching import launch
from mlx_kernels import DTYPES, kernel, shape_of, strides_of

Array = np.ndarray[Any, Any]

SCANS: dict[str, tuple[Any, float]] = {
    "sum": (np.add, 0),
    "prod": (np.multiply, 1),
    "max": (np.maximum, -np.inf),
    "logaddexp": (np.logaddexp, -np.inf),
}
"""What a scan accumulates with, and what stands before its first element."""


def operand(numbers: np.random.Generator, op: str, name: str, shape: tuple[int, ...]) -> Array:
    if op == "prod":
        return numbers.choice([-1, 1], shape).astype(DTYPES[name])
    if DTYPES[name].kind in "iub":
        return numbers.integers(0, 256, shape).astype(DTYPES[name])
    return numbers.standard_normal(shape).astype(DTYPES[name])


def scan(op: str, direction: str, x: Array, result: np.dtype[Any]) -> Array:
    """The scan along the first axis."""
    accumulate, first = SCANS[op]
    wide = x.astype(np.int64 if result.kind in "iu" else np.float64)
    if direction.startswith("reverse"):
        wide = wide[::-1]
    scanned = accumulate.accumulate(wide)
    if direction.endswith("exclusive"):
        scanned = np.concatenate([np.full_like(wide[:1], first), scanned[:-1]])
    return np.asarray(scanned[::-1] if direction.startswith("reverse") else scanned).astype(result)


def check(got: Array, expected: Array) -> None:
    if got.dtype == np.float32:
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-4)
    else:
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("direction", "op", "name", "result"),
    [
        ("inclusive", "sum", "float32", "float32"),
        ("exclusive", "sum", "float32", "float32"),
        ("reverse_inclusive", "sum", "float32", "float32"),
        ("reverse_exclusive", "sum", "float32", "float32"),
        ("exclusive", "sum", "bool_", "int32"),
        ("reverse_inclusive", "sum", "uint8", "uint8"),
        ("inclusive", "sum", "int64", "int64"),
        ("reverse_exclusive", "sum", "int64", "int64"),
        ("inclusive", "prod", "float16", "float16"),
        ("exclusive", "max", "bfloat16", "bfloat16"),
        ("reverse_inclusive", "logaddexp", "float32", "float32"),
    ],
)
def test_scan_of_rows(
    dev: ost.Device,
    checkouts: Checkouts,
    numbers: np.random.Generator,
    op: str,
    name: str,
    result: str,
    direction: str,
) -> None:
    x = operand(numbers, op, name, (3, 5003))
    scans = kernel(checkouts, "scan", f"contig_scan_{direction}_{op}_{name}_{result}")
    got = launch(dev, scans, x, np.ones(x.shape, DTYPES[result]), 5003, groups=(1, 3), group_size=640)
    check(got, scan(op, direction, x.T, DTYPES[result]).T)


@pytest.mark.parametrize(
    ("direction", "op", "name"),
    [
        ("inclusive", "sum", "float32"),
        ("exclusive", "sum", "int64"),
        ("reverse_inclusive", "max", "bfloat16"),
        ("reverse_exclusive", "sum", "float32"),
    ],
)
def test_scan_of_columns(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, op: str, name: str, direction: str
) -> None:
    x = operand(numbers, op, name, (4, 203, 45))
    scans = kernel(checkouts, "scan", f"strided_scan_{direction}_{op}_{name}_{name}")
    reads = 2 if name == "int64" else 4
    got = launch(dev, scans, x, np.ones_like(x), 203, 45, 2, groups=(1, 8), group_size=32 * (32 // reads))
    check(got, scan(op, direction, x.swapaxes(0, 1), x.dtype).swapaxes(0, 1))


def unsorted(numbers: np.random.Generator, name: str, shape: tuple[int, ...]) -> Array:
    """Numbers of which some are equal, and some are none."""
    x = numbers.integers(-100 if name.startswith("float") else 0, 120, shape).astype(DTYPES[name])
    if name == "float32":
        x[numbers.random(shape) < 0.02] = np.nan
        x[numbers.random(shape) < 0.02] = -np.inf
    return x


def check_order(order: Array, x: Array) -> None:
    """That positions along the last axis put the elements there in order."""
    np.testing.assert_array_equal(np.sort(order), np.broadcast_to(np.arange(x.shape[-1]), x.shape))
    np.testing.assert_array_equal(np.take_along_axis(x, order.astype(np.int64), -1), np.sort(x))


@pytest.mark.parametrize("name", ["float32", "uint8", "int64"])
def test_sort_of_rows(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str) -> None:
    x = unsorted(numbers, name, (6, 501))
    geometry: Any = {"groups": (1, 6), "group_size": 128}
    values = kernel(checkouts, "sort", f"c_block_sort_{name}_{name}_bn128_tn4")
    got = launch(dev, values, x, np.ones_like(x), 501, 1, 1, 501, 501, **geometry)
    np.testing.assert_array_equal(got, np.sort(x))
    positions = kernel(checkouts, "sort", f"carg_block_sort_{name}_uint32_bn128_tn4")
    check_order(launch(dev, positions, x, np.ones(x.shape, np.uint32), 501, 1, 1, 501, 501, **geometry), x)


@pytest.mark.parametrize("name", ["float32", "int8"])
def test_sort_of_columns(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str) -> None:
    x = unsorted(numbers, name, (3, 117, 5))
    arguments = (117, 5, 5, 2, shape_of(x, 0, 2), strides_of(x, 0, 2), strides_of(x, 0, 2))
    geometry: Any = {"groups": (1, 15), "group_size": 32}
    values = kernel(checkouts, "sort", f"nc_block_sort_{name}_{name}_bn32_tn4")
    np.testing.assert_array_equal(launch(dev, values, x, np.ones_like(x), *arguments, **geometry), np.sort(x, axis=1))
    positions = kernel(checkouts, "sort", f"ncarg_block_sort_{name}_uint32_bn32_tn4")
    order = launch(dev, positions, x, np.ones(x.shape, np.uint32), *arguments, **geometry)
    check_order(order.swapaxes(1, 2), x.swapaxes(1, 2))


@pytest.mark.parametrize(("name", "threads"), [("float32", 512), ("bfloat16", 512), ("int64", 256)])
def test_sort_of_several_blocks(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str, threads: int
) -> None:
    x = unsorted(numbers, name, (2, 9001))
    blocks = -(-9001 // (threads * 4))
    kind = f"mbsort_{name}_uint32_bn{threads}_tn4"
    empty = (np.ones_like(x), np.ones(x.shape, np.uint32))
    rows = (1, np.array([2], np.int32), np.array([9001], np.int64))
    block_sort = kernel(checkouts, "sort", f"sort_{kind}")
    values, order = launch(dev, block_sort, x, *empty, 9001, 1, *rows, groups=(blocks, 2), group_size=threads)
    partition, merge = (kernel(checkouts, "sort", f"{step}_{kind}") for step in ("partition", "merge"))
    merged = 1
    while merged < blocks:
        merged *= 2
        sizes = (9001, merged, blocks)
        parts = np.ones((2, blocks + 1), np.uint32)
        parts = launch(dev, partition, parts, values, order, *sizes, groups=(1, 2), group_size=blocks + 1)
        values, order = launch(dev, merge, parts, values, order, *empty, *sizes, groups=(blocks, 2), group_size=threads)
    np.testing.assert_array_equal(values, np.sort(x))
    check_order(order, x)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", ["float32", "uint16"])
def test_search(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str, side: Any) -> None:
    x = np.sort(numbers.integers(0, 500, 777)).astype(DTYPES[name])
    sought = numbers.integers(0, 600, (9, 37)).astype(DTYPES[name])
    strided = np.repeat(x, 3)
    search = kernel(checkouts, "searchsorted", f"searchsorted_{name}_{side}")
    got = launch(dev, search, strided, sought, np.ones(sought.shape, np.uint32), 777, 3, threads=(37, 9), group_size=37)
    np.testing.assert_array_equal(got, np.searchsorted(x, sought, side))
