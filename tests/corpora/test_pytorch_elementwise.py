"""PyTorch: functions of elements, dense, with strides and with casts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special as sp
from numpy.testing import assert_allclose, assert_array_equal

import ostinato as ost
from checkouts import Checkouts
from launching import launch
from mps_kernels import DTYPES, SCALAR_TYPES, TOLERANCE, kernel, sizes, strides

N = 1003
"""Elements of a dense tensor: no multiple of what a thread or a group takes."""
Function = Callable[..., Any]


@pytest.mark.parametrize(
    ("file", "name", "dtype", "low", "high", "function"),
    [
        ("UnaryKernel", "erf", "half", -4, 4, sp.erf),
        ("UnaryKernel", "erfcx", "float", -2, 9, sp.erfcx),
        ("UnaryKernel", "erfinv", "bfloat", -0.99, 0.99, sp.erfinv),
        ("UnaryKernel", "lgamma", "float", 3, 40, sp.gammaln),
        ("UnaryKernel", "digamma", "half", 2, 40, sp.digamma),
        ("UnaryKernel", "trigamma", "float", 0.5, 20, lambda x: sp.polygamma(1, x)),
        ("UnaryKernel", "expm1", "bfloat", -2, 2, np.expm1),
        ("UnaryKernel", "sinc", "float", 0.05, 0.9, np.sinc),
        ("UnaryKernel", "sigmoid", "half", -9, 9, sp.expit),
        ("SpecialOps", "bessel_j0_forward", "float", 0, 2, sp.j0),
        ("SpecialOps", "bessel_y1_forward", "half", 0.1, 2, sp.y1),
        ("SpecialOps", "modified_bessel_k0_forward", "float", 0.1, 9, sp.k0),
        ("SpecialOps", "scaled_modified_bessel_k1_forward", "float", 0.1, 30, sp.k1e),
        ("SpecialOps", "i0e", "bfloat", -9, 20, sp.i0e),
        ("SpecialOps", "spherical_bessel_j0", "float", 0.1, 2.5, lambda x: sp.spherical_jn(0, x)),
        ("SpecialOps", "entr", "half", 1.5, 9, sp.entr),
        ("ActivationKernel", "hardswish", "bfloat", -5, 5, lambda x: x * np.clip(x + 3, 0, 6) / 6),
    ],
)
def test_unary_dense(
    dev: ost.Device,
    checkouts: Checkouts,
    numbers: np.random.Generator,
    file: str,
    name: str,
    dtype: str,
    low: float,
    high: float,
    function: Function,
) -> None:
    unary = kernel(checkouts, file, f"{name}_dense_{dtype}_{dtype}")
    x = numbers.uniform(low, high, N).astype(DTYPES[dtype])
    got = launch(dev, unary, np.zeros_like(x), x, N, threads=-(-N // 4), group_size=64)
    assert_allclose(got.astype(float), function(x.astype(float)), rtol=TOLERANCE[dtype], atol=1e-6)


@pytest.mark.parametrize("dtype", ["bool", "uchar", "char", "short", "int", "long"])
def test_unary_of_integers(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, dtype: str) -> None:
    log1p = kernel(checkouts, "UnaryKernel", f"log1p_dense_float_{dtype}")
    x = numbers.integers(0, 2 if dtype == "bool" else 120, N).astype(DTYPES[dtype])
    got = launch(dev, log1p, np.zeros(N, np.float32), x, N, threads=-(-N // 4), group_size=64)
    assert_allclose(got, np.log1p(x.astype(float)), rtol=2e-5)


@pytest.mark.parametrize("function", [np.exp, np.tanh, np.sqrt, np.log1p, np.arctan], ids=lambda f: f.__name__)
def test_unary_of_complex_numbers(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, function: Function
) -> None:
    name = {"arctan": "atan"}.get(function.__name__, function.__name__)
    unary = kernel(checkouts, "UnaryKernel", f"{name}_dense_float2_float2")
    x = numbers.uniform(0.3, 2, (N, 2)).astype(np.float32)
    got = launch(dev, unary, np.zeros_like(x), x, N, threads=-(-N // 4), group_size=64)
    expected = function(x.astype(float).view(complex)).view(float)
    assert_allclose(got, expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize(
    ("name", "dtype", "alpha", "function"),
    [
        ("polygamma_strided_float_float_int", "float", np.int32(2), lambda x: sp.polygamma(2, x)),
        ("polygamma_strided_float_int_int", "int", np.int32(3), lambda x: sp.polygamma(3, x)),
        ("pow_scalar_strided_half_half_float", "half", np.float32(1.5), lambda x: x**1.5),
        ("pow_scalar_strided_long_long_int", "long", np.int32(7), lambda x: x**7),
        ("round_decimals_strided_bfloat_bfloat_long", "bfloat", np.int64(1), lambda x: np.round(x, 1)),
    ],
)
def test_unary_with_strides_and_a_number(
    dev: ost.Device,
    checkouts: Checkouts,
    numbers: np.random.Generator,
    name: str,
    dtype: str,
    alpha: Any,
    function: Function,
) -> None:
    memory = numbers.uniform(1, 9, (7, 5, 22)).astype(DTYPES[dtype])
    x = memory[:, :, ::2].transpose(1, 2, 0)
    out = np.zeros((11, 5, 7), np.float32 if "float_int_int" in name else memory.dtype)
    to = out.transpose(1, 0, 2)
    unary = kernel(checkouts, "UnaryKernel", name)
    got = launch(
        dev, unary, out, memory, sizes(x), strides(x), strides(to), 3, alpha,
        threads=(sizes(x)[0], x.size // sizes(x)[0]), group_size=(7, 32),
    )  # fmt: skip
    expected = function(x.astype(float)).transpose(1, 0, 2)
    assert_allclose(got.astype(float), expected, rtol=5 * TOLERANCE.get(dtype, 2e-5), atol=1e-6)


@pytest.mark.parametrize(
    ("name", "dtype", "function"),
    [
        ("zeta", "float", sp.zeta),
        ("igamma", "float", sp.gammainc),
        ("igammac", "bfloat", sp.gammaincc),
        ("xlog1py", "half", sp.xlog1py),
        ("logaddexp2", "float", np.logaddexp2),
        ("hypot", "half", np.hypot),
        ("atan2", "bfloat", np.arctan2),
        ("remainder", "float", np.mod),
        ("fmod", "float", np.fmod),
        ("div_floor", "half", np.floor_divide),
    ],
)
def test_binary_dense(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str, dtype: str, function: Function
) -> None:
    binary = kernel(checkouts, "BinaryKernel", f"{name}_dense_ilp4_{dtype}_{dtype}")
    a, b = numbers.uniform(1.2, 9, (2, N)).astype(DTYPES[dtype])
    near = abs(a.astype(float) / b.astype(float) % 1 - 0.5) > 0.499
    b[near] = a[near] / b.dtype.type(1.5)  # Metal's quotients may be a little less than a whole number.
    got = launch(dev, binary, np.zeros_like(a), a, b, N, threads=-(-N // 4), group_size=64)
    assert_allclose(got.astype(float), function(a.astype(float), b.astype(float)), rtol=5 * TOLERANCE[dtype], atol=2e-6)


def test_nextafter(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    nextafter = kernel(checkouts, "BinaryKernel", "nextafter_dense_float_float")
    a, b = numbers.standard_normal((2, N)).astype(np.float32)
    a[:2], b[:3] = 0, (1, -1, a[2])
    got = launch(dev, nextafter, np.zeros_like(a), a, b, threads=N, group_size=128)
    assert_array_equal(got, np.nextafter(a, b))


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("chebyshev_polynomial_t", sp.eval_chebyt),
        ("shifted_chebyshev_polynomial_u", lambda n, x: sp.eval_chebyu(n, 2 * x - 1)),
        ("hermite_polynomial_he", sp.eval_hermitenorm),
    ],
)
def test_polynomials_of_integers(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str, function: Function
) -> None:
    polynomial = kernel(checkouts, "BinaryKernel", f"{name}_dense_broadcast_float_short")
    x, degrees = numbers.integers(-4, 5, (31, 12)).astype(np.int16), np.arange(12, dtype=np.int16)
    got = launch(dev, polynomial, np.zeros(x.shape, np.float32), x, degrees, 12, threads=x.size, group_size=64)
    assert_allclose(got, function(degrees, x.astype(float)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["char", "uchar", "long"])
@pytest.mark.parametrize("function", [np.floor_divide, np.mod, np.gcd, np.right_shift], ids=lambda f: f.__name__)
def test_binary_of_integers_with_strides(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, function: Function, dtype: str
) -> None:
    names = {"floor_divide": "div_floor", "right_shift": "bitwise_right_shift"}
    binary = kernel(
        checkouts, "BinaryKernel", f"{names.get(function.__name__, function.__name__)}_strided_{dtype}_{dtype}"
    )
    memory = numbers.integers(-100, 100, (9, 26)).astype(DTYPES[dtype])
    a, row = memory[:, ::2], numbers.integers(1, 7, 13).astype(DTYPES[dtype])
    b, out, ndim = np.broadcast_to(row, a.shape), np.zeros(a.shape, a.dtype), np.array([2, 0, 0, 0], np.uint32)
    got = launch(
        dev, binary, out, memory, row, sizes(a), strides(out), strides(a), strides(b), ndim,
        threads=a.size, group_size=50,
    )  # fmt: skip
    assert_array_equal(got, function(a, b))


def test_binary_with_casts(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    div = kernel(checkouts, "BinaryKernel", "div_true_strided_cast_float_float")
    halves, bytes_ = numbers.standard_normal((6, 37)).astype(np.float16), numbers.integers(1, 255, (37, 6), np.uint8)
    a, b, out = halves, bytes_.T, np.zeros((6, 37), np.float32)
    types = np.array([2, SCALAR_TYPES["half"], SCALAR_TYPES["uchar"], SCALAR_TYPES["float"]], np.uint32)
    got = launch(
        dev, div, out, halves, bytes_, sizes(a), strides(out), strides(a), strides(b), types,
        threads=a.size, group_size=64,
    )  # fmt: skip
    assert_allclose(got, a.astype(float) / b, rtol=1e-5)


@pytest.mark.parametrize("to", ["bool", "half", "long"])
def test_comparison_with_a_result_of_any_type(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, to: str
) -> None:
    less = kernel(checkouts, "BinaryKernel", "lt_strided_castout_bool_bfloat")
    a, b = numbers.integers(-3, 3, (2, N)).astype(DTYPES["bfloat"]), numbers.integers(-3, 3, (2, N)).astype(np.int16)
    out = np.zeros(a.shape, DTYPES[to])
    types = np.array([2, SCALAR_TYPES["bfloat"], SCALAR_TYPES["short"], SCALAR_TYPES[to]], np.uint32)
    got = launch(
        dev, less, out, a, b, sizes(a), strides(out), strides(a), strides(b), types, threads=a.size, group_size=64
    )
    assert_array_equal(got, (a.astype(float) < b).astype(out.dtype))


def test_binary_of_complex_numbers(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    lerp = kernel(checkouts, "BinaryKernel", "lerp_alpha_dense_float2_float2_float2")
    a, b, out = numbers.standard_normal((3, N, 2)).astype(np.float32)
    alpha = np.array([0.3, -1.5], np.float32)
    got = launch(dev, lerp, out, a, b, alpha, threads=N, group_size=64)
    start, end = (x.astype(float).view(complex) for x in (a, b))
    assert_allclose(got, (start + (0.3 - 1.5j) * (end - start)).view(float), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float", "long", "uchar"])
def test_clamp(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, dtype: str) -> None:
    clamp = kernel(checkouts, "TensorCompare", f"clamp_dense_{dtype}_{dtype}")
    x, low, high = numbers.integers(0, 255, (3, N)).astype(DTYPES[dtype])
    got = launch(dev, clamp, np.zeros_like(x), x, low, high, threads=N, group_size=100)
    assert_array_equal(got, np.minimum(np.maximum(x, low), high))


@pytest.mark.parametrize("dtype", ["float", "half"])
def test_elu(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, dtype: str) -> None:
    elu = kernel(checkouts, "ActivationKernel", f"elu_dense_{dtype}_{dtype}_ELUParams_{dtype}")
    x = numbers.standard_normal(N).astype(DTYPES[dtype])
    alpha, scale, input_scale = parameters = np.array([1.5, 0.75, 0.5], x.dtype)
    got = launch(dev, elu, np.zeros_like(x), x, parameters.tobytes(), threads=N, group_size=64)
    expected = scale * np.where(x > 0, x.astype(float), alpha * np.expm1(input_scale * x.astype(float)))
    assert_allclose(got.astype(float), expected, rtol=5 * TOLERANCE[dtype], atol=1e-6)


@pytest.mark.parametrize("dtype", ["half", "int"])
def test_cross_with_strides(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, dtype: str) -> None:
    cross = kernel(checkouts, "CrossKernel", f"cross_strided_{dtype}")
    a, b = numbers.integers(-20, 20, (4, 3, 19)).astype(DTYPES[dtype]), numbers.integers(-20, 20, (19, 3, 4))
    b = b.astype(a.dtype)
    elements = [np.array(x.strides, np.int64) // x.itemsize for x in (a, a, b.T)]
    got = launch(
        dev, cross, np.zeros_like(a), a, b, np.array([4, 19], np.int64), *elements, 3, 1, threads=76, group_size=32
    )
    assert_array_equal(got, np.cross(a, b.T, axis=1))
