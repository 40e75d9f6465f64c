"""MLX: products of matrices and vectors, plain, transposed, by indices, masked, and of several vectors at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ostinato as ost
from checkouts import Checkouts
from launching import launch
from mlx_kernels import DTYPES, close, kernel, strides_of

Array = np.ndarray[Any, Any]


def normal(numbers: np.random.Generator, name: str, *shape: int) -> Array:
    return numbers.standard_normal(shape).astype(DTYPES[name])


def product(a: Array, b: Array) -> Array:
    return np.asarray(a.astype(np.float64) @ b.astype(np.float64))


def tiles(bm: int, bn: int, sm: int, sn: int, tm: int, tn: int) -> str:
    """Simdgroups of a group, threads of a simdgroup, and elements of a thread, as they stand in a kernel's name."""
    return f"bm{bm}_bn{bn}_sm{sm}_sn{sn}_tm{tm}_tn{tn}"


@pytest.mark.parametrize(
    ("name", "rows", "columns", "shape"),
    [
        ("float32", 77, 301, (4, 1, 1, 32, 4, 4)),
        ("bfloat16", 13, 1003, (1, 8, 1, 32, 4, 4)),
        ("float16", 85, 61, (1, 1, 8, 4, 4, 4)),
        ("float32", 3, 155, (4, 1, 1, 32, 1, 4)),
    ],
)
def test_matrix_by_vector(
    dev: ost.Device,
    checkouts: Checkouts,
    numbers: np.random.Generator,
    name: str,
    rows: int,
    columns: int,
    shape: tuple[int, ...],
) -> None:
    wide, vectors = normal(numbers, name, 3, rows, columns + 4), normal(numbers, name, 3, columns)
    gemv = kernel(checkouts, "gemv", f"gemv_{name}_{tiles(*shape)}_nc0_axpby0")
    bm, bn, sm, _, tm, _ = shape
    # What belongs to the bias is not used, so it is not bound.
    arguments = (columns, rows, columns + 4, None, None, 1, np.array([3], np.int32))
    strides = (strides_of(vectors, 0), strides_of(wide, 0))
    got = launch(
        dev, gemv, wide, vectors, None, np.ones((3, rows), vectors.dtype), *arguments, *strides,
        groups=(-(-rows // (bm * sm * tm)), 1, 3), group_size=(32, bn, bm),
    )  # fmt: skip
    close(got, product(wide[..., :columns], vectors[..., None])[..., 0], columns**0.5)


@pytest.mark.parametrize("name", ["float32", "float16"])
def test_matrix_by_vector_and_bias(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str
) -> None:
    matrices, vectors = normal(numbers, name, 3, 45, 130), normal(numbers, name, 2, 3, 130)
    bias = normal(numbers, name, 45, 2)
    batches = [np.broadcast_to(a, (2, 3, *a.shape[-2:])) for a in (matrices, vectors[..., None], bias)]
    gemv = kernel(checkouts, "gemv", f"gemv_{name}_{tiles(4, 1, 1, 32, 4, 4)}_nc1_axpby1")
    strides = [strides_of(batch, 0, 1) for batch in (batches[1], batches[0], batches[2])]
    sizes = (130, 45, 130, 1.5, -0.5, 2, np.array([2, 3], np.int32))
    out = np.ones((2, 3, 45), matrices.dtype)
    got = launch(dev, gemv, matrices, vectors, bias, out, *sizes, *strides, 2, groups=(3, 1, 6), group_size=(32, 1, 4))
    close(got, 1.5 * product(*batches[:2])[..., 0] - 0.5 * bias[:, 0].astype(np.float64), 16)


@pytest.mark.parametrize(
    ("name", "rows", "columns", "shape"),
    [
        ("float32", 301, 77, (1, 2, 8, 4, 4, 4)),
        ("bfloat16", 203, 541, (1, 4, 8, 4, 4, 4)),
        ("float16", 133, 600, (1, 16, 4, 8, 4, 4)),
        ("float32", 155, 3, (1, 2, 8, 4, 4, 1)),
    ],
)
def test_vector_by_matrix(
    dev: ost.Device,
    checkouts: Checkouts,
    numbers: np.random.Generator,
    name: str,
    rows: int,
    columns: int,
    shape: tuple[int, ...],
) -> None:
    matrix, vectors = normal(numbers, name, rows, columns), normal(numbers, name, 2, rows)
    gemv = kernel(checkouts, "gemv", f"gemv_t_{name}_{tiles(*shape)}_nc0_axpby0")
    bm, bn, _, sn, _, tn = shape
    arguments = (rows, columns, columns, None, None, 1, np.array([2], np.int32))
    strides = (strides_of(vectors, 0), np.zeros(1, np.int64))
    got = launch(
        dev, gemv, matrix, vectors, None, np.ones((2, columns), vectors.dtype), *arguments, *strides,
        groups=(-(-columns // (bn * sn * tn)), 1, 2), group_size=(32, bn, bm),
    )  # fmt: skip
    close(got, product(vectors, matrix), rows**0.5)


@pytest.mark.parametrize("transposed", [False, True])
def test_matrices_and_vectors_by_indices(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, transposed: bool
) -> None:
    matrices, vectors = normal(numbers, "float32", 5, 70, 130), normal(numbers, "float32", 4, 130)
    which, by = numbers.integers(0, 5, 9).astype(np.uint32), numbers.integers(0, 4, 9).astype(np.uint32)
    stored = np.ascontiguousarray(matrices.swapaxes(1, 2)) if transposed else matrices
    kind, shape = ("gemv_t", (1, 2, 8, 4, 4, 4)) if transposed else ("gemv", (4, 1, 1, 32, 4, 4))
    gemv = kernel(checkouts, "gemv", f"{kind}_gather_float32_{tiles(*shape)}")
    indices = (1, np.array([9], np.int32), np.ones(2, np.int64))
    of_vectors = (1, np.array([4], np.int32), strides_of(vectors, 0))
    of_matrices = (1, np.array([5], np.int32), strides_of(stored, 0))
    sizes = (130, 70, stored.shape[2], 1.0, 0.0)
    got = launch(
        dev, gemv, stored, vectors, vectors, np.ones((9, 70), np.float32), *sizes, *indices, *of_vectors, *of_matrices,
        by, which, groups=(3 if transposed else 5, 1, 9), group_size=(32, shape[1], shape[0]),
    )  # fmt: skip
    close(got, product(matrices[which], vectors[by][..., None])[..., 0], 16)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("name", "lanes", "each"), [("float16", 32, 4), ("bfloat16", 16, 3)])
def test_matrix_by_several_vectors(
    dev: ost.Device,
    checkouts: Checkouts,
    numbers: np.random.Generator,
    name: str,
    lanes: int,
    each: int,
    biased: bool,
) -> None:
    matrices, vectors = normal(numbers, name, 2, 42, 1124), normal(numbers, name, 2, 7, 1124)
    bias = normal(numbers, name, 42)
    constants = {"gemv_wide_has_batch": False, "gemv_wide_do_axpby": biased}
    gemv = kernel(checkouts, "gemv", f"gemv_wide_{name}_nv{each}_kl{lanes}", constants=constants)
    out = np.ones((2, 7, 42), matrices.dtype)
    strides = (strides_of(vectors, 0), strides_of(matrices, 0))
    described = (1, np.array([2], np.int32), *strides)
    sizes = (1124, 42, 7, 1124, 1124)
    # Arguments of a bias that is switched off are no arguments.
    arguments: tuple[Any, ...] = (matrices, vectors, out, *sizes, *described)
    if biased:
        arguments = (matrices, vectors, bias, out, *sizes, 2.0, -1.0, *described, np.zeros(1, np.int64), 0, 1)
    got = launch(dev, gemv, *arguments, groups=(2, 11, 2), group_size=(32, lanes // 8))
    expected = product(vectors, matrices.swapaxes(1, 2))
    close(got, 2 * expected - bias.astype(np.float64) if biased else expected, 32)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("out_kind", "kind"), [("bool_", "bool_"), ("bool_", "float32"), ("nomask", "bool_")])
def test_blocks_that_masks_leave(
    dev: ost.Device,
    checkouts: Checkouts,
    numbers: np.random.Generator,
    out_kind: str,
    kind: str,
    transposed: bool,
) -> None:
    rows, columns = 101, 333
    matrix, vector = normal(numbers, "float32", rows, columns), normal(numbers, "float32", columns)
    masks = [(numbers.random(shape) < 0.6).astype(DTYPES[kind]) for shape in ((4, 11), (11,))]
    if kind != "bool_":
        masks = [mask * normal(numbers, "float32", *mask.shape) for mask in masks]
    out_mask = np.array([True, out_kind != "bool_", True, True])
    stored, mask = (np.ascontiguousarray(a.T) if transposed else a for a in (matrix, masks[0]))
    name = "gemv_t" if transposed else "gemv"
    shape = (1, 2, 8, 4, 4, 4) if transposed else (2, 1, 4, 8, 4, 4)
    gemv = kernel(checkouts, "gemv_masked", f"{name}_outmask_{out_kind}_opmask_{kind}_float32_{tiles(*shape)}_nc0")
    strides = [*([1, 1] if out_kind == "bool_" else []), 1, mask.shape[1], 1, 1]
    batches = (1, np.ones(1, np.int32), np.zeros(1, np.int64), np.zeros(1, np.int64))
    got = launch(
        dev, gemv, stored, vector, np.ones(rows, np.float32), columns, rows, stored.shape[1], *batches,
        out_mask, mask, masks[1], np.array(strides, np.int32), np.zeros(3, np.int64),
        groups=4, group_size=(32, shape[1], shape[0]),
    )  # fmt: skip
    scales = np.repeat(np.repeat(masks[0].astype(float), 32, 0), 32, 1)[:rows, :columns]
    expected = (matrix * scales) @ (vector * np.repeat(masks[1].astype(float), 32)[:columns])
    close(got, expected * np.repeat(out_mask, 32)[:rows], 30)


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_dot_product(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str) -> None:
    a, b = normal(numbers, name, 50003), normal(numbers, name, 50003)
    dot = kernel(checkouts, "dot", f"dot_product_{name}_it32_tg512_sg16")
    got = launch(dev, dot, a, b, np.ones(4, np.float32), 50003, groups=4, group_size=512)
    products = a.astype(np.float64) * b.astype(np.float64)
    close(got, np.add.reduceat(products, range(0, 50003, 512 * 32)), 128)
