"""PyTorch: products, factorisations, quantised products, attention."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

import ostinato as ost
from checkouts import Checkouts
from launching import launch
from mps_kernels import DTYPES, TOLERANCE, element_strides, kernel

Array = NDArray[Any]


@pytest.mark.parametrize("dtype", ["bfloat", "long", "uchar"])
def test_matmul_with_strides(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, dtype: str) -> None:
    matmul = kernel(checkouts, "LinearAlgebra", f"matmul_{dtype}")
    left, right = numbers.integers(0, 4, (37, 21)).astype(DTYPES[dtype]), numbers.integers(0, 4, (45, 74))
    right = right.astype(left.dtype)
    a, b, out = left.T, right[:, ::2].T, np.zeros((21, 45), left.dtype)
    pairs = np.array([element_strides(array) for array in (a, b, out)], np.uint64)
    got = launch(
        dev, matmul, left, right, out, pairs, np.array([21, 37, 45, 0], np.uint32),
        groups=(3, 2), group_size=(16, 16),
    )  # fmt: skip
    expected = a.astype(float) @ b.astype(float)
    if dtype == "bfloat":
        assert_allclose(got.astype(float), expected, rtol=TOLERANCE[dtype])
    else:
        assert_array_equal(got, expected % 256 if dtype == "uchar" else expected)


def test_addbmm_of_complex_numbers(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    addbmm = kernel(checkouts, "LinearAlgebra", "naive_addbmm_float2")
    a, b, bias = (
        numbers.standard_normal((*shape, 2)).astype(np.float32) for shape in ((3, 20, 33), (3, 33, 18), (20, 18))
    )
    factors = np.array([[0.5, -1], [2, 0.25]], np.float32)
    rows = [(1, 33, 660), (1, 18, 594), (1, 18, 360), (1, 18, 0)]
    got = launch(
        dev, addbmm, a, b, np.zeros_like(bias), bias, factors, np.array(rows, np.uint64),
        np.array([20, 33, 18, 3], np.uint32), groups=(2, 2, 1), group_size=(16, 16, 1),
    )  # fmt: skip
    x, y, z, (alpha, beta) = (array.astype(float).view(complex)[..., 0] for array in (a, b, bias, factors))
    expected = alpha * (x @ y).sum(0) + beta * z
    assert_allclose(got, np.stack([expected.real, expected.imag], -1), rtol=1e-4, atol=1e-4)


def positive(numbers: np.random.Generator, n: int, kind: Any = np.float32) -> Array:
    """Two matrices that have a Cholesky factor."""
    x = numbers.standard_normal((2, n, n)) / np.sqrt(n)
    if kind == np.complex64:
        x = x + 1j * numbers.standard_normal(x.shape) / np.sqrt(n)
    result: Array = (x @ x.conj().transpose(0, 2, 1) + np.eye(n)).astype(kind)
    return result


@pytest.mark.parametrize("n", [20, 75, 96])
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("dtype", ["float", "float2"])
def test_cholesky(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, dtype: str, upper: bool, n: int
) -> None:
    """Blocks of 32 are factored on the diagonal, solved for below, and taken off the rest."""
    factor, solve, update = (
        kernel(checkouts, "LinearAlgebra", f"{name}{'LU'[upper]}_{dtype}")
        for name in ("factorDiagonalBlock", "applyTRSM", "applySYRK")
    )
    matrix = positive(numbers, n, np.float32 if dtype == "float" else np.complex64)
    out = (matrix if upper else matrix.transpose(0, 2, 1).copy()).view(np.float32)
    info, wide, blocks = np.zeros(2, np.int32), min(32, n), -(-n // 32)
    for k in range(blocks):
        out, info = launch(dev, factor, out, info, n, wide, k, groups=(2, 1), group_size=(32, 8, 1))
        left = blocks - k - 1
        if left:
            out = launch(dev, solve, out, n, wide, k, groups=(2, left), group_size=(32, 8, 1))
            pairs = left * (left + 1) // 2
            out = launch(dev, update, out, n, wide, k, groups=(2, pairs), group_size=(32, 8, 1))
    assert_array_equal(info, 0)
    got = out.view(matrix.dtype)
    got = got if upper else got.transpose(0, 2, 1)
    assert_allclose(np.tril(got), np.linalg.cholesky(matrix.astype(complex)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", [20, 96, 151, 200])
@pytest.mark.parametrize("upper", [False, True])
def test_cholesky_by_panels(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, upper: bool, n: int
) -> None:
    """Panels of 96 columns; the update between them, for which there is a kernel with tensors only, is NumPy's."""
    factor, solve = (
        kernel(checkouts, "LinearAlgebra", name + "LU"[upper]) for name in ("factorDiagonalPanel", "applyPanelTRSM")
    )
    matrix = positive(numbers, n)
    out, info = matrix, np.ones(2, np.int32)
    for k in range(-(-n // 96)):
        out, info = launch(dev, factor, out, info, n, 96, k, groups=2, group_size=96)
        first, end = 96 * k, 96 * (k + 1)
        if end < n:
            out = launch(dev, solve, out, n, 96, k, groups=(2, -(-(n - end) // 32)), group_size=(128, 1))
            at = out if upper else out.transpose(0, 2, 1)
            below = at[:, end:, first:end]
            at[:, end:, end:] -= below @ below.transpose(0, 2, 1)
    assert_array_equal(info, 0)
    got = out if upper else out.transpose(0, 2, 1)
    assert_allclose(np.tril(got), np.linalg.cholesky(matrix.astype(float)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("row", [0, 11, 40, 90])
def test_matrices_that_have_no_cholesky_factor(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, row: int
) -> None:
    """The kernel says which is the first leading minor that is not positive, one for each matrix."""
    factor = kernel(checkouts, "LinearAlgebra", "factorDiagonalPanelU")
    matrix = positive(numbers, 93)
    matrix[1, row, row] = -1
    info = launch(dev, factor, matrix, np.zeros(2, np.int32), 93, 96, 0, groups=2, group_size=96)[1]
    assert_array_equal(info, [0, row + 1])


def test_exchanges_of_rows(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    """Rows of 75 numbers are exchanged by vectors of four, at addresses that are no multiples of a vector's size."""
    exchange = kernel(checkouts, "LinearAlgebra", "applyPivots")
    expected, pivots = numbers.standard_normal((2, 75, 75)).astype(np.float32), numbers.integers(0, 75, (2, 40))
    got = launch(dev, exchange, expected, pivots.astype(np.int32), 75, 40, groups=(2, 1), group_size=(128, 1, 1))
    for matrix, row in zip(expected, pivots, strict=True):
        for i in reversed(range(40)):
            matrix[[i, row[i]]] = matrix[[row[i], i]]
    assert_array_equal(got, expected)


def four(*values: int) -> NDArray[np.uint32]:
    return np.array([*values, 0, 0, 0][:4], np.uint32)


class Factors:
    """Two matrices that kernels factor in place, by columns."""

    def __init__(self, dev: ost.Device, checkouts: Checkouts, a: Array) -> None:
        self._dev, self._checkouts = dev, checkouts
        self.rows, self.columns = a.shape[1:]
        self.out, self.pivots = a, np.zeros((2, min(a.shape[1:])), np.int32)
        self.info, self._found = np.ones(2, np.int32), np.zeros((2, 544), np.float32)
        self._size = np.array(a.shape[1:], np.uint32)

    def _run(self, name: str, *arguments: Any, groups: tuple[int, ...], group_size: int) -> Any:
        run = kernel(self._checkouts, "LinearAlgebra", name)
        return launch(self._dev, run, *arguments, groups=groups, group_size=(group_size, 1, 1))

    def factor(self, at: int, each: int) -> None:
        """A panel whose rows are in registers, `each` in those of one thread."""
        self.out, self.pivots, self.info = self._run(
            f"factorPanelLU_{each}_{32 // each}", self.out, self.pivots, self.info, self._size, four(at),
            groups=(2,), group_size=-(-(self.rows - at) // (32 * each)) * 32,
        )  # fmt: skip

    def factor_by_columns(self, at: int, width: int) -> None:
        """A panel in memory: groups take a column off the next ones and search it, then one group exchanges rows."""
        for j in range(-1, width):
            left = self.rows - at - j - 1
            groups = -(-left // 8)
            if left:
                taken = four(at, max(j, 0), 1, j < 0)
                self.out, self._found = self._run(
                    "luStreamUpdate", self.out, self._size, taken, self._found, groups=(groups, 2), group_size=256
                )
            if j + 1 < width:
                self.out, self.pivots, self.info, self._found = self._run(
                    "luStreamPivot", self.out, self.pivots, self.info, self._size, four(at, j + 1, groups),
                    self._found, groups=(2,), group_size=256,
                )  # fmt: skip

    def exchange(self, at: int, width: int, *columns: int) -> None:
        """The rows of a panel, in the columns on its left and on its right."""
        groups = -(-(columns[1] - columns[0] + columns[3] - columns[2]) // 64)
        if groups:
            self.out = self._run(
                "laswpGatherLU", self.out, self.pivots, self._size, four(at, width), four(*columns),
                groups=(groups, 2), group_size=256,
            )  # fmt: skip

    def solve_and_update(self, at: int, width: int, end: int, unit: int) -> None:
        """The columns from a panel's end up to `end`: the rows of the panel, then those below."""
        first = at + width
        if first == end:
            return
        self.out = self._run(
            f"trsmPanelLU_{unit}", self.out, self._size, four(at, first, end, width),
            groups=(2, -(-(end - first) // 128)), group_size=128,
        )  # fmt: skip
        if first < self.rows:
            self.out = self._run(
                "gemmSimdLU", self.out, self._size, four(first, self.rows, first, end), four(at, width),
                groups=(-(-(end - first) // 64), -(-(self.rows - first) // 32), 2), group_size=128,
            )  # fmt: skip


@pytest.mark.parametrize(
    ("m", "n", "most"), [(75, 75, 1024), (96, 96, 1024), (40, 90, 1024), (100, 64, 64), (200, 70, 64), (300, 45, 64)]
)
def test_lu(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, m: int, n: int, most: int) -> None:
    """Panels of 32 columns, or of 16 or 8 where rows are more than `most` threads; the longest stay in memory."""
    a = numbers.standard_normal((2, m, n)).astype(np.float32)
    factors, short = Factors(dev, checkouts, a), min(m, n)
    for panel in range(0, short, 32):
        end = min(panel + 32, short)
        each = next((each for each in (1, 2, 4) if m - panel <= each * most), None)
        if each is None:
            factors.factor_by_columns(panel, end - panel)
        else:
            for at in range(panel, end, 32 // each):
                width = min(32 // each, end - at)
                factors.factor(at, each)
                if each > 1:
                    factors.exchange(at, width, panel, at, at + width, end)
                    factors.solve_and_update(at, width, end, 32 // each)
        factors.exchange(panel, end - panel, 0, panel, end, n)
        factors.solve_and_update(panel, end - panel, n, 32)
    assert_array_equal(factors.info, 0)
    for matrix, factored, pivots in zip(a, factors.out.astype(float), factors.pivots - 1, strict=True):
        assert_array_equal(pivots, scipy.linalg.lu_factor(matrix.astype(float))[1])
        for i, j in enumerate(pivots):
            matrix[[i, j]] = matrix[[j, i]]
        lower, upper = np.tril(factored[:, :short], -1) + np.eye(m, short), np.triu(factored[:short])
        assert_allclose(lower @ upper, matrix, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n", [20, 64, 75])
def test_transpose_in_place(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, n: int) -> None:
    transpose = kernel(checkouts, "LinearAlgebra", "transposeInPlaceLU")
    x, tiles = numbers.standard_normal((2, n, n)).astype(np.float32), -(-n // 32)
    got = launch(dev, transpose, x, np.array([n, n], np.uint32), groups=(tiles, tiles, 2), group_size=(32, 8, 1))
    assert_array_equal(got, x.transpose(0, 2, 1))


def product_of_reflectors(a: Array, tau: Array) -> Array:
    """Reflectors as LAPACK keeps them: below the diagonal, where there is a one."""
    rows = np.arange(len(a))
    product: Array = np.eye(len(a))
    for i, factor in enumerate(tau):
        v = np.where(rows > i, a[:, i], rows == i)
        product = product @ (np.eye(len(a)) - factor * np.outer(v, v.conj()))
    return product


@pytest.mark.parametrize(("m", "n"), [(40, 23), (17, 30), (12, 12)])
def test_qr(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, m: int, n: int) -> None:
    qr = kernel(checkouts, "LinearAlgebra", "geqrf_float")
    a, tau = numbers.standard_normal((2, m, n)).astype(np.float32), np.ones((2, min(m, n)), np.float32)
    shapes = np.zeros((3, 16), np.uint32)
    shapes[0, :3], shapes[1, :3], shapes[2, :2] = a.shape, element_strides(a), element_strides(tau)
    got, tau, _ = launch(
        dev, qr, a, tau, np.int32(1).tobytes() + shapes.tobytes(), np.zeros((2, m), np.float32),
        groups=2, group_size=1024,
    )  # fmt: skip
    for matrix, factored, factors in zip(a, got.astype(float), tau, strict=True):
        q = product_of_reflectors(factored, factors)
        assert_allclose(q @ q.T, np.eye(m), atol=2e-5)
        assert_allclose(q @ np.triu(factored), matrix, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("dtype", ["float", "float2"])
def test_product_of_reflectors(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, dtype: str) -> None:
    orgqr = kernel(checkouts, "LinearAlgebra", f"orgqr_{dtype}")
    pair = np.float32 if dtype == "float" else np.complex64
    a = numbers.standard_normal((2, 12, 14)).astype(np.float32).view(pair)[..., :7].copy()
    tau = numbers.uniform(0.1, 0.4, (2, 10)).astype(np.float32).view(pair)[..., :5].copy()
    expected = [product_of_reflectors(*pair)[:, :7] for pair in zip(a, tau, strict=True)]
    strides = np.zeros((4, 16), np.uint32)
    for row, numbers_ in enumerate(([84, 7, 1], [5, 1], [144, 12, 1], [2, 12, 12])):
        strides[row, : len(numbers_)] = numbers_
    parameters = np.array([1, 12, 144, 7, 5], np.uint32).tobytes() + strides.tobytes()
    work = [np.zeros((2, 12, 12), pair).view(np.float32) for _ in range(3)]
    got = launch(
        dev, orgqr, a.view(np.float32), tau.view(np.float32), *work, parameters, groups=2, group_size=100
    )[0]  # fmt: skip
    assert_allclose(got.view(pair), expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("size", [32, 128])
def test_int4_products(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, size: int, dtype: str
) -> None:
    """Weights of 4 bits, packed by a kernel, with a scale and a zero for each group of `size`."""
    pack, product = (
        kernel(checkouts, "Quantized", name) for name in ("weight_to_int4pack", f"int4pack_mm_{size}_{dtype}")
    )
    m, k, n = 3, 384, 20
    weights = numbers.integers(0, 16, (n, k))
    words = (weights[:, ::2] << 4 | weights[:, 1::2]).astype(np.uint8)
    packed = launch(
        dev, pack, words.view(np.int32), np.zeros_like(words), np.array([n, k // 8], np.uint32),
        threads=(n, k // 8), group_size=(64, 1),
    )  # fmt: skip
    x, scales = (numbers.standard_normal(shape).astype(DTYPES[dtype]) for shape in ((m, k), (k // size, n, 2)))
    got = launch(
        dev, product, x, packed, scales, np.zeros((m, n), x.dtype), np.array([m, k, n, 0], np.uint32),
        threads=(n // 4 * 32, 1, m), group_size=(64, 1, 1),
    )  # fmt: skip
    scale, zero = (np.repeat(scales[..., i].astype(float), size, 0).T for i in (0, 1))
    x64 = x.astype(float)
    zero = (zero.astype(x.dtype) - (scale * 8).astype(x.dtype)).astype(float)  # rounded to the type, as it is stored
    expected = x64 @ (weights * scale + zero).T
    error = TOLERANCE[dtype] * (abs(x64) @ (weights * abs(scale) + abs(zero)).T).max()
    assert_allclose(got.astype(float), expected, rtol=TOLERANCE[dtype], atol=error)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_int8_products_of_few_rows(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, dtype: str
) -> None:
    product = kernel(checkouts, "Quantized", f"int8pack_mv_{dtype}")
    m, k, n = 3, 352, 24
    x, scales = (numbers.standard_normal(shape).astype(DTYPES[dtype]) for shape in ((m, k), n))
    weights = numbers.integers(-128, 128, (n, k), np.int8)
    got = launch(
        dev, product, x, weights, scales, np.zeros((m, n), x.dtype), np.array([m, k, n, 0], np.uint32),
        groups=(n // 8, m), group_size=(64, 1), shared={0: 32},
    )  # fmt: skip
    expected = x.astype(float) @ weights.T.astype(float) * scales.astype(float)
    assert_allclose(got.astype(float), expected, rtol=TOLERANCE[dtype], atol=2e-3)


def attention(q: Array, k: Array, v: Array, bias: Array) -> Array:
    """Of heads of queries that share heads of keys and values."""
    q, k, v = (x.astype(float) for x in (q, k, v))
    shared = q.shape[1] // k.shape[1]
    scores = q @ np.repeat(k, shared, 1).swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + bias
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    result: Array = weights / weights.sum(-1, keepdims=True) @ np.repeat(v, shared, 1)
    return result


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize(
    ("dtype", "width", "mask"), [("float", 64, "none"), ("half", 96, "bool"), ("bfloat", 128, "bfloat")]
)
def test_attention_of_few_queries(
    dev: ost.Device,
    checkouts: Checkouts,
    numbers: np.random.Generator,
    dtype: str,
    width: int,
    mask: str,
    passes: int,
) -> None:
    """Two batches, 4 heads that share 2 of keys and values, 3 queries; keys lie between those of other heads."""
    heads, queries, keys = 4, 3, 300
    q, memory_k, memory_v = (
        numbers.standard_normal(shape).astype(DTYPES[dtype])
        for shape in ((2, heads, queries, width), (2, keys, 2, width), (2, keys, 2, width))
    )
    k, v = memory_k.swapaxes(1, 2), memory_v.swapaxes(1, 2)
    bias = np.zeros((2, 1, queries, keys))
    given: Array = np.zeros(1, np.float32)
    if mask == "bool":
        given = numbers.random(bias.shape) < 0.7
        bias = np.where(given, 0, -np.inf)
    elif mask == "bfloat":
        given = numbers.standard_normal(bias.shape).astype(q.dtype)
        bias = given.astype(float)
    steps = [element_strides(x) for x in (q, k, v)]
    by_batch, by_head, by_row = (np.array([*(step[i] for step in steps), heads], np.uint32) for i in range(3))
    of_mask = np.array([1, keys, 0, queries * keys], np.uint32)
    last = [heads // 2, keys, by_head, by_row, width**-0.5, given, of_mask, by_batch]
    out = np.zeros(q.shape, q.dtype)
    if passes == 1:
        vector = kernel(checkouts, "Attention", f"sdpa_vector_{dtype}_{width}_{width}_mask{mask}")
        got = launch(dev, vector, q, memory_k, memory_v, out, *last, groups=(8, queries), group_size=(1024, 1))
    else:
        first, second = (
            kernel(checkouts, "Attention", f"sdpa_vector_2pass_{name}")
            for name in (f"1_{dtype}_{width}_{width}_mask{mask}", f"2_{dtype}_{width}")
        )
        parts = launch(
            dev, first, q, memory_k, memory_v, np.zeros((8, queries, 32, width), q.dtype),
            np.zeros((8, queries, 32), np.float32), np.zeros((8, queries, 32), np.float32), *last,
            groups=(8, queries, 32), group_size=(256, 1, 1),
        )  # fmt: skip
        got = launch(dev, second, *parts, out, groups=(8, queries), group_size=(1024, 1))
    close = {"float": 1e-4, "half": 2e-3, "bfloat": 2e-2}[dtype]
    assert_allclose(got.astype(float), attention(q, k, v, bias), rtol=close, atol=close)


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize(
    ("dtype", "block", "width", "mask"),
    [
        ("float32", "bq32_bk32_bd64_wm4", 64, "float32"),
        ("float16", "bq32_bk16_bd128_wm4", 128, "bool_"),
        ("bfloat16", "bq32_bk32_bd72_wm4", 72, "bfloat16"),
        ("float16", "bq16_bk8_bd256_wm2", 256, "float16"),
        ("mpp_a10_float16", "bq64_bk32_bd64_wm4", 64, "float16"),
        ("mpp_a10_bfloat16", "bq64_bk32_bd96_wm4", 96, "bool_"),
    ],
)
def test_attention_of_many_queries(
    dev: ost.Device,
    checkouts: Checkouts,
    numbers: np.random.Generator,
    dtype: str,
    block: str,
    width: int,
    mask: str,
    causal: int,
) -> None:
    """The masks of 32-bit and 8-bit scores are given, the others are not; two kernels take tensors of Metal 4.

    Those go by the places of a tensor's elements among threads, which are an M5's on Ostinato's devices.
    """
    masked = mask in ("float32", "bool_")
    name = f"prefill_attention_{dtype}_{block}_wn1_hm{int(masked)}_dc{causal}_mask{mask}"
    prefill = kernel(checkouts, "Attention", name, defines={"__METAL_VERSION__": 400} if "mpp" in dtype else None)
    as_type = {"float32": "float", "float16": "half", "bfloat16": "bfloat"}[dtype.removeprefix("mpp_a10_")]
    heads, queries, keys = 4, 70, 83
    q, k, v = (
        numbers.standard_normal((1, each, rows, width)).astype(DTYPES[as_type])
        for each, rows in ((heads, queries), (2, keys), (2, keys))
    )
    bias, given = np.zeros((queries, keys)), numbers.standard_normal((queries, keys)).astype(q.dtype)
    if mask == "bool_":
        given = numbers.random((queries, keys)) < 0.6
        given[:, 0] = True
        bias = np.where(given, 0, -np.inf)
    elif masked:
        bias = given.astype(float)
    if causal:
        bias = np.where(np.tri(queries, keys, dtype=bool), bias, -np.inf)
    steps = [int(step) for x in (q, k, v, q) for step in element_strides(x)[:3]]
    parameters = np.array([1, heads, width, queries, keys, heads // 2], np.int32).tobytes()
    parameters += np.array([1 / np.sqrt(width), 1], np.float32).tobytes() + np.array(steps, np.int64).tobytes()
    rows, simdgroups = int(block[2:4]), int(block[-1])
    got = launch(
        dev, prefill, q, k, v, np.zeros_like(q), parameters, np.array([0, 0, keys, 1], np.int64).tobytes(), given,
        groups=(-(-queries // rows), heads, 1), group_size=(32, simdgroups, 1),
    )  # fmt: skip
    close = {"float": 2e-4, "half": 5e-3, "bfloat": 4e-2}[as_type]
    assert_allclose(got.astype(float), attention(q, k, v, bias), rtol=close, atol=close)
