"""MLX: products of matrices in blocks, by simdgroup matrices and by Metal 4's tensors ("nax")."""

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


UNALIGNED = {"align_M": False, "align_N": False, "align_K": False}
"""For sizes that are no multiples of the blocks."""


def steel(checkouts: Checkouts, file: str, name: str, **constants: bool) -> ost.Kernel:
    options = {"constants": constants} if constants else {}
    return kernel(checkouts, f"steel/gemm/kernels/steel_gemm_{file}", name, **options)


def blocks(bm: int, bn: int, bk: int, wm: int, wn: int) -> str:
    return f"bm{bm}_bn{bn}_bk{bk}_wm{wm}_wn{wn}"


def params(
    gemm: ost.Kernel, memory: tuple[Array, Array], m: int, n: int, k: int, shape: tuple[int, ...], **more: int
) -> Array:
    """GEMMParams of products of two arrays as they lie in memory, in blocks of a shape."""
    described = np.zeros(1, gemm.dtype("params"))
    fields = {"M": m, "N": n, "K": k, "lda": memory[0].shape[-1], "ldb": memory[1].shape[-1], "ldd": n}
    fields |= {"tiles_n": -(-n // shape[1]), "tiles_m": -(-m // shape[0]), "gemm_k_iterations_aligned": k // shape[2]}
    for name, value in (fields | more).items():
        described[name] = value
    return described


def stored(x: Array, transposed: bool) -> Array:
    return np.ascontiguousarray(x.swapaxes(-1, -2)) if transposed else x


@pytest.mark.parametrize(
    ("file", "name", "layout", "shape", "swizzle", "source"),
    [
        ("fused", "float32", "nn", (64, 64, 16, 2, 2), 0, False),
        ("fused", "float16", "nt", (64, 64, 16, 1, 2), 1, True),
        ("fused", "bfloat16", "tn", (64, 32, 32, 2, 2), 0, False),
        ("fused", "float32", "tt", (32, 32, 16, 2, 2), 2, True),
        ("fused_nax", "float16", "nt", (64, 64, 256, 2, 2), 1, False),
        ("fused_nax", "float32", "tn", (64, 128, 64, 2, 4), 0, False),
        ("fused_nax", "bfloat16", "nn", (64, 64, 256, 2, 2), 0, True),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else "",
)
def test_product(
    dev: ost.Device,
    checkouts: Checkouts,
    numbers: np.random.Generator,
    file: str,
    name: str,
    layout: str,
    shape: tuple[int, ...],
    swizzle: int,
    source: bool,
) -> None:
    m, n, k = 150, 77, 301
    a, b, c = normal(numbers, name, 2, m, k), normal(numbers, name, k, n), normal(numbers, name, m, n)
    constants = UNALIGNED | {"has_batch": False, "use_out_source": source, "do_axpby": source}
    gemm = steel(checkouts, file, f"steel_gemm_{file}_{layout}_{name}_{name}_{blocks(*shape)}", **constants)
    memory = (stored(a, layout[0] == "t"), stored(b, layout[1] == "t"))
    strides = {"batch_stride_a": m * k, "batch_stride_d": m * n, "swizzle_log": swizzle}
    out, described = np.ones((2, m, n), a.dtype), params(gemm, memory, m, n, k, shape, **strides)
    arguments: tuple[Any, ...] = (*memory, out, described)
    if source:
        added = np.zeros(1, gemm.dtype("addmm_params"))
        added["ldc"], added["fdc"], added["alpha"], added["beta"] = n, 1, 0.5, -2
        arguments = (*memory, c, out, described, added)
    tile = 1 << swizzle
    tiles_m, tiles_n = -(-m // shape[0]), -(-n // shape[1])
    groups = (tiles_n * tile, -(-tiles_m // tile), 2)
    got = launch(dev, gemm, *arguments, groups=groups, group_size=(32, shape[4], shape[3]))
    expected = product(a, b)
    close(got, 0.5 * expected - 2 * c.astype(np.float64) if source else expected, 20)


@pytest.mark.parametrize("file", ["fused", "fused_nax"])
def test_product_of_batches(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, file: str) -> None:
    m, n, k = 64, 128, 256
    a, b = normal(numbers, "float16", 2, 1, m, k), normal(numbers, "float16", 3, k, n)
    shape = (64, 64, 256, 2, 2) if file == "fused_nax" else (64, 64, 16, 2, 2)
    constants = dict.fromkeys([*UNALIGNED, "has_batch"], True) | {"use_out_source": False, "do_axpby": False}
    gemm = steel(checkouts, file, f"steel_gemm_{file}_nn_float16_float16_{blocks(*shape)}", **constants)
    described = params(gemm, (a, b), m, n, k, shape, batch_stride_d=m * n, batch_ndim=2)
    batches = [strides_of(np.broadcast_to(x, (2, 3, *x.shape[-2:])), 0, 1) for x in (a, b)]
    arguments = (described, np.array([2, 3], np.int32), np.concatenate(batches))
    out = np.ones((2, 3, m, n), a.dtype)
    got = launch(dev, gemm, a, b, out, *arguments, groups=(2, 1, 6), group_size=(32, 2, 2))
    close(got, product(a, b), 16)


@pytest.mark.parametrize(
    ("kind", "name", "layout", "shape", "partition", "partitions"),
    [
        ("splitk", "float16", "nt", (32, 32, 16, 2, 2), 128, 5),
        ("splitk", "float32", "tn", (16, 32, 16, 2, 2), 224, 3),
        ("splitk_nax", "bfloat16", "nn", (64, 64, 256, 2, 2), 256, 3),
    ],
    ids=["float16", "float32", "nax"],
)
@pytest.mark.parametrize("source", [False, True])
def test_product_of_partitions_that_are_added(
    dev: ost.Device,
    checkouts: Checkouts,
    numbers: np.random.Generator,
    kind: str,
    name: str,
    layout: str,
    shape: tuple[int, ...],
    partition: int,
    partitions: int,
    source: bool,
) -> None:
    m, n, k = 75, 50, 701
    a, b, c = normal(numbers, name, m, k), normal(numbers, name, k, n), normal(numbers, name, m, n)
    alignment = "_MN_naligned_K_naligned" if kind == "splitk" else ""
    constants = {} if kind == "splitk" else {"align_M": False, "align_N": False}
    gemm = steel(checkouts, kind, f"steel_gemm_{kind}_{layout}_{name}_float32_{blocks(*shape)}{alignment}", **constants)
    memory = (stored(a, layout[0] == "t"), stored(b, layout[1] == "t"))
    described = np.zeros(1, gemm.dtype("params"))
    tiles_n, tiles_m = -(-n // shape[1]), -(-m // shape[0])
    fields = {"M": m, "N": n, "K": k, "lda": memory[0].shape[1], "ldb": memory[1].shape[1], "ldc": n}
    fields |= {"tiles_n": tiles_n, "tiles_m": tiles_m, "split_k_partitions": partitions}
    fields |= {"split_k_partition_stride": m * n, "split_k_partition_size": partition}
    for field, value in (fields | {"gemm_k_iterations_aligned": partition // shape[2]}).items():
        described[field] = value
    groups = (tiles_n, tiles_m, partitions) if kind == "splitk" else (tiles_n * tiles_m * partitions,)
    empty = np.ones((partitions, m, n), np.float32)
    parts = launch(dev, gemm, *memory, empty, described, groups=groups, group_size=(32, shape[4], shape[3]))
    last = 0.5 * c.astype(np.float64) if source else 0
    add = steel(checkouts, "splitk", f"steel_gemm_splitk_accum_{name}_float32" + "_axbpy" * source)
    added = (c, n, 1, 2.0, 0.5) if source else ()
    arguments = (partitions, m * n, n, *added)
    got = launch(dev, add, parts, np.ones((m, n), a.dtype), *arguments, threads=(n, m), group_size=(32, 8))
    close(got, product(a, b) * (2 if source else 1) + last, 60)


@pytest.mark.parametrize(("out_kind", "kind"), [("bool_", "bool_"), ("float16", "float16"), ("nomask", "bool_")])
def test_blocks_that_masks_leave(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, out_kind: str, kind: str
) -> None:
    m, n, k = 70, 90, 101
    a, b = normal(numbers, "float16", m, k), normal(numbers, "float16", k, n)
    masks = [numbers.random(shape) < 0.6 for shape in ((3, 3), (3, 4), (4, 3))]
    if kind != "bool_":
        masks = [(mask * numbers.choice([0.5, 2.0, -1.0], mask.shape)).astype(np.float16) for mask in masks]
    shape = (32, 32, 16, 2, 2)
    name = f"outmask_{out_kind}_opmask_{kind}_nt_float16_float16_{blocks(*shape)}_MN_naligned_K_naligned"
    gemm = steel(checkouts, "masked", f"steel_gemm_block_{name}")
    memory = (a, stored(b, transposed=True))
    of_out = out_kind != "nomask"
    strides = np.array([1, 3] * of_out + [1, 4, 1, 3], np.int32)
    described = params(gemm, memory, m, n, k, shape, batch_ndim=1, batch_stride_d=m * n)
    batches = (np.ones(1, np.int32), np.zeros(5, np.int64))
    got = launch(
        dev, gemm, *memory, np.ones((m, n), np.float16), described, *batches, *masks,
        strides, groups=(3, 3), group_size=(32, 2, 2),
    )  # fmt: skip
    wide = [np.repeat(np.repeat(mask.astype(float), 32, 0), 32, 1) for mask in masks]
    expected = (a * wide[1][:m, :k]) @ (b * wide[2][:k, :n]) * (wide[0][:m, :n] if of_out else 1)
    close(got, expected, 80)


@pytest.mark.parametrize(
    ("file", "name", "layout", "shape", "contiguous"),
    [
        ("segmented", "float32", "nn", (64, 64, 16, 2, 2), True),
        ("segmented", "float16", "tt", (32, 32, 16, 2, 2), False),
        ("segmented_nax", "bfloat16", "nt", (64, 64, 64, 2, 2), True),
    ],
    ids=["float32", "float16", "nax"],
)
def test_products_of_segments(
    dev: ost.Device,
    checkouts: Checkouts,
    numbers: np.random.Generator,
    file: str,
    name: str,
    layout: str,
    shape: tuple[int, ...],
    contiguous: bool,
) -> None:
    m, n, k = 70, 130, 400
    a, b = normal(numbers, name, m, k), normal(numbers, name, k, n)
    bounds = np.array([[3, 160], [200, 200], [37, 400]] if contiguous else [0, 160, 160, 399], np.uint32)
    segments = bounds if contiguous else np.stack([bounds[:-1], bounds[1:]], 1)
    kind = file.replace("segmented", "segmented_mm")
    constants = {"segments_contiguous": contiguous, "align_M": False, "align_N": False}
    segmented = steel(checkouts, file, f"steel_{kind}_{layout}_{name}_{name}_{blocks(*shape)}", **constants)
    memory = (stored(a, layout[0] == "t"), stored(b, layout[1] == "t"))
    described = params(segmented, memory, m, n, k, shape, batch_stride_d=m * n)
    tiles_m, tiles_n = -(-m // shape[0]), -(-n // shape[1])
    groups = (3, tiles_n, tiles_m) if shape[2] == 64 else (tiles_n, tiles_m, 3)
    out = np.ones((3, m, n), a.dtype)
    got = launch(dev, segmented, *memory, bounds, out, described, groups=groups, group_size=(32, 2, 2))
    close(got, np.stack([product(a[:, first:last], b[first:last]) for first, last in segments]), 20)


@pytest.mark.parametrize(
    ("file", "name", "layout", "shape"),
    [
        ("gather", "float16", "nn", (16, 64, 16, 1, 2)),
        ("gather", "float32", "nt", (16, 64, 16, 1, 2)),
        ("gather_nax", "bfloat16", "nt", (16, 128, 128, 1, 4)),
    ],
    ids=["float16", "float32", "nax"],
)
def test_rows_by_matrices_by_indices(
    dev: ost.Device,
    checkouts: Checkouts,
    numbers: np.random.Generator,
    file: str,
    name: str,
    layout: str,
    shape: tuple[int, ...],
) -> None:
    m, n, k = 45, 150, 130
    a, b = normal(numbers, name, m, k), normal(numbers, name, 6, k, n)
    which = np.sort(numbers.integers(0, 6, m)).astype(np.uint32)
    kind = file.replace("gather", "gather_mm_rhs")
    gather = steel(checkouts, file, f"steel_{kind}_{layout}_{name}_{name}_{blocks(*shape)}", **UNALIGNED)
    matrices = stored(b, layout[1] == "t")
    described = params(gather, (a, matrices), m, n, k, shape, batch_stride_b=k * n)
    out, groups = np.ones((m, n), a.dtype), (-(-n // shape[1]), -(-m // shape[0]))
    got = launch(dev, gather, a, matrices, which, out, described, groups=groups, group_size=(32, shape[4], shape[3]))
    close(got, product(a[:, None], b[which])[:, 0], 16)


def test_matrices_by_matrices_by_indices(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    m, n, k = 50, 70, 45
    a, b = normal(numbers, "float32", 4, m, k), normal(numbers, "float32", 3, k, n)
    left, right = numbers.integers(0, 4, 7).astype(np.uint32), numbers.integers(0, 3, 7).astype(np.uint32)
    shape = (32, 32, 16, 2, 2)
    name = f"steel_gather_mm_tn_float32_float32_{blocks(*shape)}"
    gather = steel(checkouts, "gather", name, has_batch=False, **UNALIGNED)
    turned = stored(a, transposed=True)
    strides = {"batch_stride_a": 1, "batch_stride_b": 1, "batch_stride_d": m * n, "batch_ndim": 1}
    described = params(gather, (turned, b), m, n, k, shape, **strides)
    indices = (np.array([7], np.int32), np.ones(1, np.int64), np.ones(1, np.int64))
    of_a, of_b = ((1, np.array([len(x)], np.int32), strides_of(x, 0)) for x in (turned, b))
    out = np.ones((7, m, n), np.float32)
    got = launch(
        dev, gather, turned, b, left, right, out, described, *indices, *of_a, *of_b,
        groups=(3, 2, 7), group_size=(32, 2, 2),
    )  # fmt: skip
    close(got, product(a[left], b[right]), 10)
