"""torchao: products with weights of 1 to 7 bits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_allclose

import ostinato as ost
from checkouts import Checkouts
from launching import launch

FOLDER = "torchao/experimental/kernels/mps/metal"
JOINED = tuple(
    f"{FOLDER}/{name}.metal"
    for name in ("common", "int1mm", "int2mm_opt", "int3mm_opt", "int4mm_opt", "int5mm", "int6mm", "int7mm")
)
"""What the host program puts before the last file."""
DTYPES = {"float": (np.float32, 1e-6), "half": (np.float16, 1e-3), "bfloat": (ml_dtypes.bfloat16, 8e-3)}
"""What types of elements are called, and their tolerances, relative to the sum of the products' sizes."""


@pytest.mark.parametrize(
    ("name", "m", "k", "n", "group"),
    [
        ("int{bits}pack_mm", 3, 328, 20, 64),
        ("qmv_fast_{bits}bit", 1, 1024, 24, 128),
        ("qmv_impl_{bits}bit", 1, 776, 21, 32),
        ("qmv_impl_{bits}bit", 1, 264, 3, 64),
    ],
)
@pytest.mark.parametrize(
    ("bits", "dtype"),
    [(1, "float"), (2, "half"), (3, "bfloat"), (4, "float"), (5, "half"), (6, "bfloat"), (7, "float")],
)
def test_product(
    dev: ost.Device,
    checkouts: Checkouts,
    numbers: np.random.Generator,
    name: str,
    m: int,
    k: int,
    n: int,
    group: int,
    bits: int,
    dtype: str,
) -> None:
    """`m` rows times the transpose of `n` rows of weights, which have a scale and a zero for each group of columns."""
    library = checkouts.library("ao", f"{FOLDER}/qmv.metal", before=JOINED)
    kernel = library[f"{name.format(bits=bits)}_{group}_{dtype}"]
    of_dtype, tolerance = DTYPES[dtype]
    weights = numbers.integers(0, 1 << bits, (n, k), np.uint8)
    stream = np.unpackbits(weights[..., None], axis=2, bitorder="little")[..., :bits].reshape(-1)
    # Kernels read vectors of three bytes, which take four.
    packed = np.append(np.packbits(stream, bitorder="little"), np.zeros(4, np.uint8))
    x, scales, zeros = (
        numbers.standard_normal(shape).astype(of_dtype) for shape in ((m, k), *[(n, -(-k // group))] * 2)
    )
    grid: dict[str, Any]
    if name.startswith("qmv"):
        grid = {"groups": (1, -(-n // 8)), "group_size": (32, 2)}
    elif bits in (2, 3, 4):
        grid = {"threads": (n // 4 * 32, 1, m), "group_size": (32, 1, 1)}
    else:
        grid = {"threads": (n, m), "group_size": (m, 1)}
    sizes = np.array([m, k, n, 0], np.uint32)
    got = launch(dev, kernel, x, packed, scales, zeros, np.zeros((m, n), of_dtype), sizes, **grid)
    scale, zero = (np.repeat(array.astype(float), group, 1)[:, :k] for array in (scales, zeros))
    rows = x.astype(float)
    largest = (abs(rows) @ (weights * abs(scale) + abs(zero)).T).max()
    assert_allclose(got.astype(float), rows @ (weights * scale + zero).T, rtol=tolerance, atol=tolerance * largest)
