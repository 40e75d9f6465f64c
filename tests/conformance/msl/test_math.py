"""Floating-point functions on float, half and bfloat, over NaN, infinities, denormals, signed zeros and ordinary numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ostinato as ost
from launching import HEAD, launch

DTYPES: dict[str, Any] = {"float": np.float32, "half": np.float16, "bfloat": ml_dtypes.bfloat16}


def away_from_zero(x: Any) -> Any:
    return np.where(np.isfinite(x), np.copysign(np.floor(np.abs(x) + 0.5), x), x)


def reduced(x: Any) -> Any:
    """Half turns are exact: the argument of sinpi and its kin may lose whole turns before pi comes in."""
    return np.fmod(x, 2.0) * np.pi


# Functions whose result is exact, or correctly rounded, in every type.
EXACT: dict[str, Any] = {
    "abs": np.abs,
    "fabs": np.abs,
    "ceil": np.ceil,
    "floor": np.floor,
    "rint": np.rint,
    "round": away_from_zero,
    "trunc": np.trunc,
    "sqrt": np.sqrt,
    "saturate": lambda x: np.where(np.isnan(x), 0, np.clip(x, 0, 1)),
    "sign": lambda x: np.where(np.isnan(x), 0, np.where(x == 0, x, np.sign(x))),
}
# Functions with an error bound, in units of the last place of the type: float, and half and bfloat.
CLOSE: dict[str, tuple[Any, int, int]] = {
    "rsqrt": (lambda x: 1 / np.sqrt(x), 2, 1),
    "exp": (np.exp, 4, 1),
    "exp2": (np.exp2, 4, 1),
    "exp10": (lambda x: np.power(10.0, x), 4, 1),
    "log": (np.log, 4, 1),
    "log2": (np.log2, 4, 1),
    "log10": (np.log10, 4, 1),
    "precise::sin": (np.sin, 4, 1),
    "precise::cos": (np.cos, 4, 1),
    "precise::tan": (np.tan, 6, 1),
    "asin": (np.arcsin, 4, 1),
    "acos": (np.arccos, 4, 1),
    "atan": (np.arctan, 5, 1),
    "sinh": (np.sinh, 4, 1),
    "cosh": (np.cosh, 4, 1),
    "tanh": (np.tanh, 5, 1),
    "asinh": (np.arcsinh, 4, 1),
    "acosh": (np.arccosh, 4, 1),
    "atanh": (np.arctanh, 5, 1),
    "sinpi": (lambda x: np.sin(reduced(x)), 4, 1),
    "cospi": (lambda x: np.cos(reduced(x)), 4, 1),
    "tanpi": (lambda x: np.tan(reduced(x)), 6, 1),
}
FAST: dict[str, Any] = {
    name: getattr(np, name) for name in ("exp", "exp2", "log", "log2", "log10", "sin", "cos", "tan", "tanh")
}
UNARY = [*EXACT, *CLOSE, "sin", "cos", "tan", "fract", "precise::exp", "precise::log", "precise::sqrt"]
UNARY += [f"fast::{name}" for name in FAST]

BINARY_EXACT: dict[str, Any] = {
    "fmin": np.fmin,
    "fmax": np.fmax,
    "min": np.fmin,
    "max": np.fmax,
    "fmod": np.fmod,
    "copysign": np.copysign,
    "fdim": lambda x, y: np.where(np.isnan(x) | np.isnan(y), np.nan, np.where(x > y, x - y, 0)),
    "step": lambda edge, x: np.where(x < edge, 0, 1),
    "divide": np.divide,
}
BINARY_CLOSE: dict[str, tuple[Any, int, int]] = {"atan2": (np.arctan2, 6, 1), "pow": (np.power, 16, 1)}
BINARY = [*BINARY_EXACT, *BINARY_CLOSE, "nextafter", "powr", "fast::divide"]

QUESTIONS = {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite, "signbit": np.signbit, "isnormal": None}
PAIRS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "isordered": lambda x, y: ~(np.isnan(x) | np.isnan(y)),
    "isunordered": lambda x, y: np.isnan(x) | np.isnan(y),
}


def instantiate(kernel: str, parameters: str) -> str:
    return "".join(
        f'template [[host_name("{kernel}_{t}")]] kernel void {kernel}<{t}>({parameters.replace("T", t)});\n'
        for t in DTYPES
    )


SOURCE = f"""{HEAD}
template <typename T> kernel void unary(device const T *x, device T *out, constant uint &n, uint i [[thread_position_in_grid]]) {{
{chr(10).join(f"  out[{k} * n + i] = {name}(x[i]);" for k, name in enumerate(UNARY))}
}}
{instantiate("unary", "device const T *, device T *, constant uint &, uint")}
template <typename T> kernel void binary(device const T *x, device const T *y, device T *out, constant uint &n,
                                         uint i [[thread_position_in_grid]]) {{
{chr(10).join(f"  out[{k} * n + i] = {name}(x[i], y[i]);" for k, name in enumerate(BINARY))}
}}
{instantiate("binary", "device const T *, device const T *, device T *, constant uint &, uint")}
template <typename T> kernel void ask(device const T *x, device const T *y, device uchar *out, constant uint &n,
                                      uint i [[thread_position_in_grid]]) {{
{chr(10).join(f"  out[{k} * n + i] = {name}(x[i]);" for k, name in enumerate(QUESTIONS))}
{chr(10).join(f"  out[{k + len(QUESTIONS)} * n + i] = {name}(x[i], y[i]);" for k, name in enumerate(PAIRS))}
}}
{instantiate("ask", "device const T *, device const T *, device uchar *, constant uint &, uint")}
template <typename T> kernel void split(device const T *x, device T *out, device int *exponents, constant uint &n,
                                        uint i [[thread_position_in_grid]]) {{
  T whole; int e;
  out[i] = modf(x[i], whole); out[n + i] = whole;
  out[2 * n + i] = frexp(x[i], e); exponents[i] = e;
  out[3 * n + i] = ldexp(x[i], 3); out[4 * n + i] = ldexp(x[i], -20); exponents[n + i] = ilogb(x[i]);
}}
{instantiate("split", "device const T *, device T *, device int *, constant uint &, uint")}
template <typename T> kernel void circle(device const T *x, device T *out, constant uint &n, uint i [[thread_position_in_grid]]) {{
  T cosine; out[i] = sincos(x[i], cosine); out[n + i] = cosine;
}}
template [[host_name("circle_float")]] kernel void circle<float>(device const float *, device float *, constant uint &, uint);
template [[host_name("circle_half")]] kernel void circle<half>(device const half *, device half *, constant uint &, uint);
template <typename T> kernel void ternary(device const T *a, device const T *b, device const T *c, device T *out, constant uint &n,
                                          uint i [[thread_position_in_grid]]) {{
  const T x = a[i], y = b[i], z = c[i];
  out[i] = fma(x, y, z); out[n + i] = clamp(x, y, z); out[2 * n + i] = mix(x, y, z); out[3 * n + i] = min3(x, y, z);
  out[4 * n + i] = max3(x, y, z); out[5 * n + i] = median3(x, y, z); out[6 * n + i] = smoothstep(T(0), T(1), x);
  out[7 * n + i] = select(x, y, z > T(1));
}}
{instantiate("ternary", "device const T *, device const T *, device const T *, device T *, constant uint &, uint")}
kernel void vectors(device const float4 *x, device float4 *out) {{
  const float4 a = x[0], b = x[1]; float4 c, w; int4 e;
  out[0] = sqrt(a); out[1] = pow(a, b); out[2] = clamp(a, 1.5, 3.0); out[3] = max(a, 2.5); out[4] = fma(a, b, 1.0f);
  out[5] = mix(a, b, 0.5); out[6] = abs(-a); out[7] = sincos(a, c); out[8] = c; out[9] = modf(a * 1.25, w); out[10] = w;
  out[11] = frexp(a, e); out[12] = float4(e); out[13] = ldexp(a, int4(1, 2, 3, 4)); out[14] = step(2.5, a);
  out[15] = smoothstep(1.0, 4.0, a); out[16] = fmod(b, a + 2); out[17] = saturate(a - 2.5); out[18] = sign(a - 2);
  out[19] = float4(exp2(half4(a))); out[20] = float4(float3(floor(float3(a.xyz) / 2)), ceil(a.w / 3));
  out[21] = float4(isnan(float4(NAN, 1, 2, INFINITY))); out[22] = min3(a, b / 10, 3.5); out[23] = rsqrt(a * a);
}}
kernel void mixed(device const float *f, device const half *h, device const int *k, device float *out) {{
  out[0] = max(f[0], 0.0); out[1] = min(f[0], 1.0f); out[2] = clamp(f[0], 0.0, 2.0); out[3] = max(k[0], 3); out[4] = abs(k[0]);
  out[5] = pow(f[0], 2.0); out[6] = sqrt(float(k[1])); out[7] = max(h[0], 0.25h); out[8] = exp(float(h[0])); out[9] = fabs(-1.5);
  out[10] = metal::precise::exp(f[0]); out[11] = metal::fast::tanh(f[0]); out[12] = metal::max(f[0], 5.0f); out[13] = ::metal::floor(f[0]);
}}
"""


def sample(dtype: Any, limit: float = np.inf) -> Any:
    """Edges, ordinary numbers, and the whole range of exponents."""
    info = ml_dtypes.finfo(dtype)
    tiny, smallest, most = float(info.tiny), float(info.smallest_subnormal), float(info.max)
    edges = [
        0,
        smallest,
        3 * smallest,
        tiny / 2,
        tiny,
        float(info.eps),
        0.25,
        0.49,
        0.5,
        1,
        1.5,
        2.5,
        3.5,
        7,
        100,
        most,
    ]
    edges = [*edges, 1 - float(info.epsneg), 1 + float(info.eps), np.pi / 2, np.pi, np.inf, np.nan, 2049, 30000.5]
    random = np.random.default_rng(11)
    spread = np.exp2(random.uniform(np.log2(smallest), np.log2(most), 400))
    values = np.concatenate([edges, spread, random.uniform(0, 10, 400), random.uniform(0, 1, 200)])
    with np.errstate(all="ignore"):
        values = np.concatenate([values, -values]).astype(dtype)
    return values[~(np.abs(values.astype(np.float64)) > limit)]


def assert_within(got: Any, expected: Any, dtype: Any, ulps: Any, given: Any, floor: Any = 0.0) -> None:
    """Whether results lie within so many units in the last place of the exact ones, which are doubles."""
    with np.errstate(all="ignore"):
        nearest = expected.astype(dtype).astype(np.float64)
        unit = np.abs(np.spacing(expected.astype(dtype))).astype(np.float64)
        if dtype is ml_dtypes.bfloat16:
            tiny = float(ml_dtypes.finfo(dtype).smallest_subnormal)
            unit = np.maximum(np.exp2(np.floor(np.log2(np.abs(expected))) - 7), tiny)
        error = np.abs(got.astype(np.float64) - expected)
        good = (error <= np.maximum(ulps * unit, floor)) | (got.astype(np.float64) == nearest)
    good |= np.isnan(got.astype(np.float64)) & np.isnan(expected)
    bad = np.flatnonzero(~good)
    lines = [f"{given[..., i]}: got {got[i]}, expected {expected[i]}" for i in bad[:8]]
    assert bad.size == 0, f"{bad.size} of {len(got)} are off by more than {ulps} ulp\n" + "\n".join(lines)


@pytest.fixture(scope="module")
def library(dev: ost.Device) -> ost.Library:
    return dev.library(SOURCE)


@pytest.fixture(scope="module")
def unary(dev: ost.Device, library: ost.Library) -> Any:
    def of(name: str) -> Any:
        x = sample(DTYPES[name])
        n = len(x)
        return x, launch(dev, library[f"unary_{name}"], x, np.zeros(len(UNARY) * n, x.dtype), n, threads=n).reshape(
            -1, n
        )

    found = {name: of(name) for name in DTYPES}
    return found


@pytest.fixture(scope="module")
def binary(dev: ost.Device, library: ost.Library) -> Any:
    def of(name: str) -> Any:
        x = sample(DTYPES[name])
        edges = x[np.r_[0:24, len(x) // 2 : len(x) // 2 + 24]]
        pairs = np.stack(np.meshgrid(edges, edges), -1).reshape(-1, 2)
        noise = np.stack([x, np.random.default_rng(3).permutation(x)], 1)
        a, b = np.concatenate([pairs, noise]).T.copy()
        n = len(a)
        got = launch(dev, library[f"binary_{name}"], a, b, np.zeros(len(BINARY) * n, x.dtype), n, threads=n).reshape(
            -1, n
        )
        return a, b, got

    return {name: of(name) for name in DTYPES}


@pytest.mark.parametrize("type_name", DTYPES)
@pytest.mark.parametrize("function", EXACT)
def test_exact_functions_are_exact(unary: Any, function: str, type_name: str) -> None:
    x, got = unary[type_name]
    with np.errstate(all="ignore"):
        expected = EXACT[function](x.astype(np.float64)).astype(DTYPES[type_name]).astype(np.float64)
    mine = got[UNARY.index(function)].astype(np.float64)
    np.testing.assert_array_equal(mine, expected)
    numbers = ~np.isnan(expected)
    if function != "saturate":
        np.testing.assert_array_equal(np.signbit(mine)[numbers], np.signbit(expected)[numbers], err_msg="signs of zero")


@pytest.mark.parametrize("type_name", DTYPES)
@pytest.mark.parametrize("function", CLOSE)
def test_functions_keep_metals_error_bounds(unary: Any, function: str, type_name: str) -> None:
    x, got = unary[type_name]
    reference, ulps, narrow_ulps = CLOSE[function]
    with np.errstate(all="ignore"):
        expected = reference(x.astype(np.float64))
    # Near the zeros of the periodic functions of half turns, half an ulp of pi is what the reference itself can lose.
    floor = 1e-15 if function.endswith("pi") else 0.0
    keep = ~(np.isinf(expected) | (np.abs(expected) > 1e15)) if function == "tanpi" else np.ones(len(x), bool)
    bound = ulps if type_name == "float" else narrow_ulps
    assert_within(got[UNARY.index(function)][keep], expected[keep], DTYPES[type_name], bound, x[keep], floor)


@pytest.mark.parametrize("type_name", DTYPES)
@pytest.mark.parametrize("function", ["sin", "cos", "tan"])
def test_ordinary_angles_need_no_precise_functions(unary: Any, function: str, type_name: str) -> None:
    x, got = unary[type_name]
    near = ~(np.abs(x.astype(np.float64)) > 1000)
    with np.errstate(all="ignore"):
        expected = getattr(np, function)(x.astype(np.float64))[near]
    assert_within(got[UNARY.index(function)][near], expected, DTYPES[type_name], 6, x[near], floor=5e-7)


@pytest.mark.parametrize("type_name", DTYPES)
def test_fract_stays_below_one(unary: Any, type_name: str) -> None:
    x, got = unary[type_name]
    wide, mine = x.astype(np.float64), got[UNARY.index("fract")].astype(np.float64)
    finite = np.isfinite(wide)
    below_one = float(DTYPES[type_name](1) - DTYPES[type_name](float(ml_dtypes.finfo(DTYPES[type_name]).epsneg)))
    expected = (wide[finite] - np.floor(wide[finite])).astype(DTYPES[type_name]).astype(np.float64)
    np.testing.assert_array_equal(mine[finite], np.minimum(expected, below_one))
    assert np.isnan(mine[np.isnan(wide)]).all()


@pytest.mark.parametrize("name", ["precise::exp", "precise::log", "precise::sqrt"])
def test_precise_functions_keep_metals_error_bounds(unary: Any, name: str) -> None:
    x, got = unary["float"]
    with np.errstate(all="ignore"):
        expected = getattr(np, name.split("::")[1])(x.astype(np.float64))
    assert_within(got[UNARY.index(name)], expected, np.float32, 4, x)


@pytest.mark.parametrize("type_name", DTYPES)
@pytest.mark.parametrize("name", FAST)
def test_fast_functions_keep_metals_error_bounds(unary: Any, name: str, type_name: str) -> None:
    x, got = unary[type_name]
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        expected = FAST[name](wide)
        # Numbers, given and found, that a float holds with all of its digits; angles of half a turn.
        inside = (np.abs(wide) >= 2.0**-126) & (np.abs(expected) >= 2.0**-126) & (np.abs(expected) < 2.0**126)
    ulps, floor = np.full(len(x), 8.0), np.zeros(len(x))
    if name.startswith("exp"):
        ulps = 3 + np.floor(2 * np.abs(wide))
    elif name.startswith("log"):
        floor[(wide >= 0.5) & (wide <= 2)] = 2.0**-21
    elif name in ("sin", "cos"):
        inside &= np.abs(wide) <= 3.1416
        floor[:] = 2.0**-13
    elif name == "tan":
        inside &= np.abs(wide) <= 1.5
        floor[:] = 2.0**-12
    else:  # (t - 1) / (t + 1) of t = exp(2 x)
        floor[:] = 2.0**-21
    bound, least = (ulps, floor) if type_name == "float" else (np.ones(len(x)), floor)
    mine = got[UNARY.index(f"fast::{name}")]
    assert_within(mine[inside], expected[inside], DTYPES[type_name], bound[inside], x[inside], least[inside])


def test_a_fast_tangent_keeps_the_digits_of_small_numbers_and_the_ends(unary: Any) -> None:
    x, got = unary["float"]
    mine, wide = got[UNARY.index("fast::tanh")].astype(np.float64), x.astype(np.float64)
    normal = np.abs(wide) >= 2.0**-126
    assert (np.abs(mine[normal] - np.tanh(wide[normal])) <= 1e-5 * np.abs(np.tanh(wide[normal]))).all()
    assert np.isnan(mine[np.isnan(wide)]).all()


@pytest.mark.parametrize("type_name", DTYPES)
@pytest.mark.parametrize("function", BINARY_EXACT)
def test_exact_functions_of_two_arguments_are_exact(binary: Any, function: str, type_name: str) -> None:
    a, b, got = binary[type_name]
    with np.errstate(all="ignore"):
        expected = BINARY_EXACT[function](a.astype(np.float64), b.astype(np.float64)).astype(DTYPES[type_name])
    np.testing.assert_array_equal(got[BINARY.index(function)].astype(np.float64), expected.astype(np.float64))


@pytest.mark.parametrize("type_name", DTYPES)
@pytest.mark.parametrize("function", BINARY_CLOSE)
def test_functions_of_two_arguments_keep_metals_error_bounds(binary: Any, function: str, type_name: str) -> None:
    a, b, got = binary[type_name]
    reference, ulps, narrow_ulps = BINARY_CLOSE[function]
    with np.errstate(all="ignore"):
        expected = reference(a.astype(np.float64), b.astype(np.float64))
    bound = ulps if type_name == "float" else narrow_ulps
    assert_within(got[BINARY.index(function)], expected, DTYPES[type_name], bound, np.stack([a, b]))


@pytest.mark.parametrize("type_name", DTYPES)
def test_powr_wants_a_base_that_is_not_negative(binary: Any, type_name: str) -> None:
    a, b, got = binary[type_name]
    mine, base, exponent = got[BINARY.index("powr")], a.astype(np.float64), b.astype(np.float64)
    assert np.isnan(mine[base < 0].astype(np.float64)).all()
    usual = (base > 0) & np.isfinite(base) & np.isfinite(exponent)
    with np.errstate(all="ignore"):
        expected = np.power(base, exponent)[usual]
    assert_within(
        mine[usual], expected, DTYPES[type_name], 16 if type_name == "float" else 1, np.stack([a, b])[:, usual]
    )


@pytest.mark.parametrize("type_name", DTYPES)
def test_a_fast_quotient_keeps_metals_error_bound(binary: Any, type_name: str) -> None:
    a, b, got = binary[type_name]
    top, bottom = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):
        exact = top / bottom
        inside = np.all([(np.abs(v) >= 2.0**-126) & (np.abs(v) < 2.0**126) for v in (top, bottom, exact)], axis=0)
    bound = 2.5 if type_name == "float" else 1
    mine = got[BINARY.index("fast::divide")]
    assert_within(mine[inside], exact[inside], DTYPES[type_name], bound, np.stack([a, b])[:, inside])


@pytest.mark.parametrize("type_name", DTYPES)
def test_nextafter_steps_through_every_representable_number(binary: Any, type_name: str) -> None:
    a, b, got = binary[type_name]
    with np.errstate(all="ignore"):
        expected = np.nextafter(a, b)
    np.testing.assert_array_equal(got[BINARY.index("nextafter")].astype(np.float64), expected.astype(np.float64))


@pytest.mark.parametrize("type_name", DTYPES)
def test_questions_about_values_are_answered_as_by_numpy(dev: ost.Device, library: ost.Library, type_name: str) -> None:
    x = sample(DTYPES[type_name])
    y, n = np.random.default_rng(7).permutation(x), len(x)
    got = launch(
        dev, library[f"ask_{type_name}"], x, y, np.zeros((len(QUESTIONS) + len(PAIRS)) * n, np.uint8), n, threads=n
    )
    a, b = x.astype(np.float64), y.astype(np.float64)
    tiny = float(ml_dtypes.finfo(DTYPES[type_name]).tiny)
    normal = np.isfinite(a) & (np.abs(a) >= tiny)
    expected = [normal if function is None else function(a) for function in QUESTIONS.values()]
    expected += [function(a, b) for function in PAIRS.values()]
    for name, mine, theirs in zip([*QUESTIONS, *PAIRS], got.reshape(-1, n), expected, strict=True):
        np.testing.assert_array_equal(mine.astype(bool), theirs, err_msg=name)


@pytest.mark.parametrize("type_name", DTYPES)
def test_numbers_are_split_and_scaled_exactly(dev: ost.Device, library: ost.Library, type_name: str) -> None:
    dtype = DTYPES[type_name]
    x = sample(dtype)
    n = len(x)
    out, exponents = launch(
        dev, library[f"split_{type_name}"], x, np.zeros(5 * n, dtype), np.zeros(2 * n, np.int32), n, threads=n
    )
    fraction, whole, mantissa, scaled, shrunk = (row.astype(np.float64) for row in out.reshape(5, n))
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        numpy_fraction, numpy_whole = np.modf(wide)
        numpy_mantissa, numpy_exponent = np.frexp(wide)
        np.testing.assert_array_equal(fraction, numpy_fraction)
        np.testing.assert_array_equal(whole, numpy_whole)
        np.testing.assert_array_equal(mantissa, numpy_mantissa)
        finite = np.isfinite(wide)
        np.testing.assert_array_equal(exponents[:n][finite], numpy_exponent[finite])
        np.testing.assert_array_equal(exponents[n:][finite & (wide != 0)], numpy_exponent[finite & (wide != 0)] - 1)
        np.testing.assert_array_equal(scaled, np.ldexp(wide, 3).astype(dtype).astype(np.float64))
        np.testing.assert_array_equal(shrunk, np.ldexp(wide, -20).astype(dtype).astype(np.float64))


@pytest.mark.parametrize("type_name", ["float", "half"])
def test_sincos_gives_both(dev: ost.Device, library: ost.Library, type_name: str) -> None:
    x = sample(DTYPES[type_name], limit=100)
    n = len(x)
    sine, cosine = launch(dev, library[f"circle_{type_name}"], x, np.zeros(2 * n, x.dtype), n, threads=n).reshape(2, n)
    with np.errstate(all="ignore"):
        assert_within(sine, np.sin(x.astype(np.float64)), DTYPES[type_name], 4, x, floor=5e-7)
        assert_within(cosine, np.cos(x.astype(np.float64)), DTYPES[type_name], 4, x, floor=5e-7)


@pytest.mark.parametrize("type_name", DTYPES)
def test_functions_of_three_arguments(dev: ost.Device, library: ost.Library, type_name: str) -> None:
    dtype = DTYPES[type_name]
    a, b, c = np.random.default_rng(5).uniform(-2, 3, (3, 2000)).astype(dtype)
    low, high = np.minimum(b, c), np.maximum(b, c)
    got = launch(dev, library[f"ternary_{type_name}"], a, low, high, np.zeros(8 * 2000, dtype), 2000, threads=2000)
    fma, clamp, mix, min3, max3, median3, smoothstep, select = got.reshape(8, 2000)
    x, y, z = (v.astype(np.float64) for v in (a, low, high))
    np.testing.assert_array_equal(fma.astype(np.float64), (x * y + z).astype(dtype).astype(np.float64))
    np.testing.assert_array_equal(clamp.astype(np.float64), np.clip(x, y, z))
    np.testing.assert_array_equal(min3.astype(np.float64), np.minimum(x, y))
    np.testing.assert_array_equal(max3.astype(np.float64), np.maximum(x, z))
    np.testing.assert_array_equal(median3.astype(np.float64), np.median([x, y, z], 0))
    np.testing.assert_array_equal(select.astype(np.float64), np.where(z > 1, y, x))
    t, eps = np.clip(x, 0, 1), float(ml_dtypes.finfo(dtype).eps)
    np.testing.assert_allclose(mix.astype(np.float64), x + (y - x) * z, atol=20 * eps)
    np.testing.assert_allclose(smoothstep.astype(np.float64), t * t * (3 - 2 * t), atol=4 * eps)


def test_fma_rounds_once(dev: ost.Device, library: ost.Library) -> None:
    a = np.array([1 + 2.0**-12], np.float32)
    out = launch(dev, library["ternary_float"], a, a, -(a * a), np.zeros(8, np.float32), 1)
    assert out[0] == 2.0**-24


@pytest.mark.parametrize("type_name", DTYPES)
def test_a_nan_loses_against_a_number(dev: ost.Device, library: ost.Library, type_name: str) -> None:
    dtype = DTYPES[type_name]
    a, b, c = (np.array(v, dtype) for v in ([np.nan, 1, 2], [3, np.nan, 1], [2, 2, np.nan]))
    got = launch(dev, library[f"ternary_{type_name}"], a, b, c, np.zeros(24, dtype), 3, threads=3).reshape(8, 3)
    np.testing.assert_array_equal(got[3].astype(np.float32), [2, 1, 1])
    np.testing.assert_array_equal(got[4].astype(np.float32), [3, 2, 2])


def test_functions_of_vectors_are_functions_of_their_components(dev: ost.Device, library: ost.Library) -> None:
    a, b = np.array([1, 2, 3, 4], np.float32), np.array([10, 5, 30, 0.5], np.float32)
    got = launch(dev, library["vectors"], np.stack([a, b]), np.zeros((24, 4), np.float32))
    fraction, whole = np.modf(a * np.float32(1.25))
    mantissa, exponent = np.frexp(a)
    t = (a - 1) / 3
    expected = [
        np.sqrt(a), a**b, np.clip(a, 1.5, 3), np.maximum(a, 2.5), a * b + 1, (a + b) / 2, a, np.sin(a), np.cos(a), fraction,
        whole, mantissa, exponent, a * [2, 4, 8, 16], a >= 2.5, t * t * (3 - 2 * t), np.fmod(b, a + 2), np.clip(a - 2.5, 0, 1),
        np.sign(a - 2), np.exp2(a), [0, 1, 1, 2], [1, 0, 0, 0], np.minimum(np.minimum(a, b / 10), 3.5), 1 / a,
    ]  # fmt: skip
    for row, (mine, theirs) in enumerate(zip(got, expected, strict=True)):
        np.testing.assert_allclose(mine, theirs, rtol=2e-6, atol=5e-7, err_msg=f"row {row}")  # 16 ulp, those of pow


def test_arguments_of_mixed_types_meet_in_the_wider_one(dev: ost.Device, library: ost.Library) -> None:
    f, h, k = np.array([1.5], np.float32), np.array([0.5], np.float16), np.array([-7, 9], np.int32)
    got = launch(dev, library["mixed"], f, h, k, np.zeros(14, np.float32))
    expected = [1.5, 1, 1.5, 3, 7, 2.25, 3, 0.5, np.exp(0.5), 1.5, np.exp(1.5), np.tanh(1.5), 5, 1]
    np.testing.assert_allclose(got, expected, rtol=2e-6)


def test_denormals_are_kept(dev: ost.Device, library: ost.Library) -> None:
    x = np.array([1e-40, -1e-45, 1.5e-38], np.float32)
    half, two = np.full(3, 0.5, np.float32), np.full(3, 0, np.float32)
    got = launch(dev, library["ternary_float"], x, half, two, np.zeros(24, np.float32), 3, threads=3)[:3]
    np.testing.assert_array_equal(got.view(np.uint32), (x.astype(np.float64) * 0.5).astype(np.float32).view(np.uint32))
    assert got[2] != 0
