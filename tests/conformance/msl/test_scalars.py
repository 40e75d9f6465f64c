"""Scalar types: their sizes, the types of literals and of mixed expressions, conversions, limits and reinterpretation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ostinato as ost
from launching import HEAD, launch

SIZES = {
    **dict.fromkeys(["bool", "char", "int8_t", "uchar", "uint8_t", "signed char", "unsigned char"], (1, 1)),
    **dict.fromkeys(["short", "int16_t", "ushort", "uint16_t", "half", "bfloat"], (2, 2)),
    **dict.fromkeys(["int", "int32_t", "uint", "uint32_t", "unsigned", "float", "atomic_int", "atomic_uint"], (4, 4)),
    **dict.fromkeys(["long", "int64_t", "ulong", "uint64_t", "size_t", "ptrdiff_t", "device int *"], (8, 8)),
    **dict.fromkeys(["bool2", "char2", "uchar2"], (2, 2)),
    **dict.fromkeys(["bool3", "bool4", "char3", "char4", "uchar3", "uchar4", "half2", "short2", "bfloat2"], (4, 4)),
    **dict.fromkeys(["half3", "half4", "short3", "ushort4", "bfloat3", "bfloat4", "int2", "uint2", "float2"], (8, 8)),
    **dict.fromkeys(["int3", "int4", "uint3", "uint4", "float3", "float4", "long2", "ulong2"], (16, 16)),
    **dict.fromkeys(["long3", "long4", "ulong3", "ulong4"], (32, 32)),
    "packed_char3": (3, 1),
    "packed_uchar4": (4, 1),
    "packed_short3": (6, 2),
    "packed_half3": (6, 2),
    "packed_half4": (8, 2),
    "packed_bfloat3": (6, 2),
    "packed_float2": (8, 4),
    "packed_float3": (12, 4),
    "packed_float4": (16, 4),
    "packed_int3": (12, 4),
    "packed_uint4": (16, 4),
    "float2x2": (16, 8),
    "float2x3": (32, 16),
    "float2x4": (32, 16),
    "float3x2": (24, 8),
    "float3x3": (48, 16),
    "float4x3": (64, 16),
    "float4x4": (64, 16),
    "half2x2": (8, 4),
    "half3x3": (24, 8),
    "half4x4": (32, 8),
    "array<float, 3>": (12, 4),
    "array<half4, 2>": (16, 8),
}

TYPES = [
    ("1.0", "float"),
    ("1.0f", "float"),
    ("1.5F", "float"),
    ("1.", "float"),
    (".5", "float"),
    ("1e3", "float"),
    ("1.0e-3", "float"),
    ("0x1.8p1", "float"),
    ("1.0h", "half"),
    ("1.5H", "half"),
    ("1e2h", "half"),
    ("1.0bf", "bfloat"),
    ("1.5BF", "bfloat"),
    ("-1.0h", "half"),
    ("1", "int"),
    ("1u", "uint"),
    ("0xffffffff", "uint"),
    ("0b101", "int"),
    ("1'000'000", "int"),
    ("1l", "long"),
    ("1UL", "ulong"),
    ("'a'", "char"),
    ("true", "bool"),
    ("sizeof(int)", "size_t"),
    ("1.0h * 1.0h", "half"),
    ("1.0h + 1.0f", "float"),
    ("1.0h + 1.0", "float"),
    ("1.0h * 2", "half"),
    ("2u * 1.0h", "half"),
    ("1.0bf + 1.0bf", "bfloat"),
    ("1.0bf * 1.0f", "float"),
    ("1.0bf * 2", "bfloat"),
    ("1 + 1.0", "float"),
    ("char(1) + char(1)", "int"),
    ("uchar(1) * uchar(1)", "int"),
    ("ushort(1) + 1u", "uint"),
    ("1u + 1", "uint"),
    ("1l + 1u", "long"),
    ("true + true", "int"),
    ("true ? 1.0h : 0.5h", "half"),
    ("1.0h < 2.0h", "bool"),
    ("float2(1) * 2", "float2"),
    ("half2(1) * 2.0h", "half2"),
    ("uchar2(1) + uchar2(1)", "uchar2"),
    ("float2(1) < 2.0f", "bool2"),
    ("as_type<float>(1)", "float"),
    ("sqrt(2.0h)", "half"),
    ("max(1, 2)", "int"),
    ("dot(half2(1), half2(1))", "half"),
]

# Each expression is one float.
VALUES: list[tuple[str, float]] = [
    ("M_PI_F", np.pi),
    ("M_E_F", np.e),
    ("M_SQRT2_F", np.sqrt(2)),
    ("float(M_PI_H)", float(np.float16(np.pi))),
    ("FLT_MAX", float(np.finfo(np.float32).max)),
    ("MAXFLOAT", float(np.finfo(np.float32).max)),
    ("FLT_MIN", float(np.finfo(np.float32).tiny)),
    ("FLT_EPSILON", 2.0**-23),
    ("float(HALF_MAX)", 65504),
    ("float(HALF_MIN)", 2.0**-14),
    ("float(HALF_EPSILON)", 2.0**-10),
    ("INFINITY", np.inf),
    ("-INFINITY", -np.inf),
    ("HUGE_VALF", np.inf),
    ("NAN", np.nan),
    ("float(CHAR_BIT)", 8),
    ("float(INT_MAX)", 2.0**31),
    ("float(USHRT_MAX)", 65535),
    ("numeric_limits<float>::max()", float(np.finfo(np.float32).max)),
    ("numeric_limits<float>::lowest()", float(np.finfo(np.float32).min)),
    ("numeric_limits<float>::min()", float(np.finfo(np.float32).tiny)),
    ("numeric_limits<float>::denorm_min()", 2.0**-149),
    ("numeric_limits<float>::epsilon()", 2.0**-23),
    ("numeric_limits<float>::infinity()", np.inf),
    ("numeric_limits<float>::quiet_NaN()", np.nan),
    ("float(numeric_limits<half>::max())", 65504),
    ("float(numeric_limits<half>::lowest())", -65504),
    ("float(numeric_limits<half>::infinity())", np.inf),
    ("float(numeric_limits<bfloat>::max())", float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)),
    ("float(numeric_limits<bfloat>::lowest())", float(ml_dtypes.finfo(ml_dtypes.bfloat16).min)),
    ("float(numeric_limits<char>::min())", -128),
    ("float(numeric_limits<uchar>::max())", 255),
    ("float(numeric_limits<short>::max())", 32767),
    ("float(numeric_limits<int>::min())", -(2.0**31)),
    ("float(numeric_limits<uint>::max())", 2.0**32),
    ("float(numeric_limits<ulong>::max())", 2.0**64),
    ("float(numeric_limits<int>::digits)", 31),
    ("float(int(-1.9f))", -1),
    ("float(int(1.9h))", 1),
    ("float(uchar(300))", 44),
    ("float(char(200))", -56),
    ("float(ushort(-1))", 65535),
    ("float(bool(0.25f))", 1),
    ("float(bool(-0.0f))", 0),
    ("float(half(2049))", 2048),
    ("float(half(2051.0f))", 2052),
    ("float(half(1e6f))", np.inf),
    ("float(bfloat(257))", 256),
    ("float(bfloat(259))", 260),
    ("float(static_cast<half>(0.1f))", float(np.float16(0.1))),
    ("float(0.1h)", float(np.float16(0.1))),
    ("float(0.1bf)", float(ml_dtypes.bfloat16(0.1))),
    ("float(1 / 3.0)", float(np.float32(1) / np.float32(3))),
    ("float(7 / 2)", 3),
    ("float(-7 / 2)", -3),
    ("float(-7 % 3)", -1),
    ("float(-8 >> 1)", -4),
    ("float(16777217)", 16777216),
    ("float('a')", 97),
    ("float(1'000)", 1000),
    (".5'00f", 0.5),
]

BITS = [
    ("as_type<uint>(1.0f)", 0x3F800000),
    ("as_type<uint>(-0.0f)", 0x80000000),
    ("as_type<uint>(as_type<float>(0x7fc12345u))", 0x7FC12345),
    ("as_type<uint>(half2(1.0h, 2.0h))", 0x40003C00),
    ("as_type<uint>(uchar4(1, 2, 3, 4))", 0x04030201),
    ("as_type<uint>(ushort2(1, 2))", 0x00020001),
    ("as_type<uint>(-1)", 0xFFFFFFFF),
    ("as_type<ushort>(1.0h)", 0x3C00),
    ("as_type<ushort>(1.0bf)", 0x3F80),
    ("as_type<ushort>(as_type<half>(ushort(0x7e01)))", 0x7E01),
    ("as_type<ushort>(uchar2(1, 2))", 0x0201),
    ("as_type<uint2>(0x0000000200000001ul).y", 2),
    ("uint(as_type<ulong>(float2(0.0f, 1.0f)) >> 32)", 0x3F800000),
    ("as_type<uint4>(float4(0, 0, 0, 2)).w", 0x40000000),
    ("as_type<uint2>(half4(0, 0, 0, 1)).y", 0x3C000000),
    ("as_type<uchar4>(0x0a0b0c0du).z", 0x0B),
    ("uint(as_type<char4>(0xff00ff00u).y + 2)", 1),
]

SOURCE = f"""{HEAD}
kernel void sizes(device uint *out) {{
{chr(10).join(f"out[{2 * i}] = sizeof({t}); out[{2 * i + 1}] = alignof({t});" for i, t in enumerate(SIZES))}
}}
kernel void types(device uchar *out) {{
{chr(10).join(f"out[{i}] = is_same_v<decltype({e}), {t}>;" for i, (e, t) in enumerate(TYPES))}
}}
kernel void values(device float *out) {{
{chr(10).join(f"out[{i}] = {e};" for i, (e, _) in enumerate(VALUES))}
}}
kernel void bits(device uint *out) {{
{chr(10).join(f"out[{i}] = {e};" for i, (e, _) in enumerate(BITS))}
}}
template <typename From, typename To>
kernel void convert(device const From *in, device To *out, uint i [[thread_position_in_grid]]) {{ out[i] = To(in[i]); }}
#define CONVERT(f, t) template [[host_name(#f "_to_" #t)]] kernel void convert<f, t>(device const f *, device t *, uint);
CONVERT(float, half) CONVERT(half, float) CONVERT(float, bfloat) CONVERT(bfloat, float) CONVERT(int, float)
CONVERT(long, float) CONVERT(ulong, half) CONVERT(float, int) CONVERT(half, bfloat) CONVERT(int, short)
CONVERT(int, bfloat) CONVERT(short, half)

template <typename T>
kernel void arithmetic(device const T *a, device const T *b, device T *out, constant uint &n, uint i [[thread_position_in_grid]]) {{
  out[i] = a[i] + b[i]; out[n + i] = a[i] - b[i]; out[2 * n + i] = a[i] * b[i]; out[3 * n + i] = a[i] / b[i];
  T t = a[i]; t += b[i]; t *= b[i]; out[4 * n + i] = t;
  out[5 * n + i] = a[i] < b[i] ? -a[i] : +b[i];
}}
#define ARITHMETIC(t) template [[host_name("arithmetic_" #t)]] kernel void arithmetic<t>(device const t *, device const t *, \\
  device t *, constant uint &, uint);
ARITHMETIC(float) ARITHMETIC(half) ARITHMETIC(bfloat)

template <typename T>
kernel void shifts(device const T *a, device const T *by, device T *out, constant uint &n, uint i [[thread_position_in_grid]]) {{
  out[i] = a[i] << by[i]; out[n + i] = a[i] >> by[i];
}}
#define SHIFTS(t) template [[host_name("shifts_" #t)]] kernel void shifts<t>(device const t *, device const t *, device t *, constant uint &, uint);
SHIFTS(int) SHIFTS(uint) SHIFTS(long) SHIFTS(ulong) SHIFTS(uint4)
"""


@pytest.fixture(scope="module")
def library(dev: ost.Device) -> ost.Library:
    return dev.library(SOURCE)


@pytest.fixture(scope="module")
def results(dev: ost.Device, library: ost.Library) -> Callable[[str, Any, int], Any]:
    found: dict[str, Any] = {}

    def of(name: str, dtype: Any, count: int) -> Any:
        if name not in found:
            found[name] = launch(dev, library[name], np.zeros(count, dtype))
        return found[name]

    return of


@pytest.mark.parametrize("type_name", SIZES)
def test_every_type_has_metals_size_and_alignment(results: Callable[..., Any], type_name: str) -> None:
    at = list(SIZES).index(type_name)
    assert tuple(results("sizes", np.uint32, 2 * len(SIZES))[2 * at : 2 * at + 2]) == SIZES[type_name]


@pytest.mark.parametrize("case", TYPES, ids=lambda case: f"{case[0]} is {case[1]}")
def test_an_expression_has_metals_type(results: Callable[..., Any], case: tuple[str, str]) -> None:
    assert results("types", np.uint8, len(TYPES))[TYPES.index(case)] == 1


@pytest.mark.parametrize("case", VALUES, ids=lambda case: f"{case[0]} = {case[1]}")
def test_constants_limits_and_casts_have_metals_value(results: Callable[..., Any], case: tuple[str, float]) -> None:
    np.testing.assert_array_equal(results("values", np.float32, len(VALUES))[VALUES.index(case)], np.float32(case[1]))


@pytest.mark.parametrize("case", BITS, ids=lambda case: case[0])
def test_as_type_keeps_the_bits(results: Callable[..., Any], case: tuple[str, int]) -> None:
    assert results("bits", np.uint32, len(BITS))[BITS.index(case)] == case[1]


def every_float16(dtype: Any) -> np.ndarray[Any, Any]:
    return np.arange(65536, dtype=np.uint16).view(dtype)


def awkward_floats() -> np.ndarray[Any, Any]:
    """Every upper half of a float with lower halves at, under and over the rounding points, and some at random."""
    upper = np.arange(0, 65536, dtype=np.uint32) << 16
    lower = [0x0000, 0x0001, 0x0FFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001, 0xFFFF]
    noise = np.random.default_rng(1).integers(0, 2**32, 65536, dtype=np.uint32)
    return np.concatenate([*(upper | low for low in lower), noise]).astype(np.uint32).view(np.float32)


@pytest.mark.parametrize(
    ("name", "values", "to"),
    [
        ("float_to_half", awkward_floats(), np.float16),
        ("half_to_float", every_float16(np.float16), np.float32),
        ("float_to_bfloat", awkward_floats(), ml_dtypes.bfloat16),
        ("bfloat_to_float", every_float16(ml_dtypes.bfloat16), np.float32),
        ("half_to_bfloat", every_float16(np.float16), ml_dtypes.bfloat16),
        ("int_to_float", np.array([0, 1, -1, 2**24 + 1, 2**31 - 1, -(2**31)], np.int32), np.float32),
        ("long_to_float", np.array([2**53 + 1, -(2**63), 2**63 - 1, 2**40 + 2**16], np.int64), np.float32),
        ("ulong_to_half", np.array([0, 2047, 2049, 65504, 65519], np.uint64), np.float16),
        ("float_to_int", np.array([-1.9, 1.9, -0.0, 2147483520, -(2.0**31)], np.float32), np.int32),
        ("int_to_short", np.array([65535, -65537, 32768, 7], np.int32), np.int16),
        ("int_to_bfloat", np.arange(-1000, 1000, dtype=np.int32), ml_dtypes.bfloat16),
        ("short_to_half", np.arange(-32768, 32768).astype(np.int16), np.float16),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_conversions_round_to_nearest_even(
    dev: ost.Device, library: ost.Library, name: str, values: Any, to: Any
) -> None:
    with np.errstate(all="ignore"):
        expected = values.astype(to)
        got = launch(dev, library[name], values, np.zeros(len(values), to), threads=len(values))
        np.testing.assert_array_equal(got.astype(np.float64), expected.astype(np.float64))


@pytest.mark.parametrize(
    ("name", "dtype"), [("float", np.float32), ("half", np.float16), ("bfloat", ml_dtypes.bfloat16)]
)
def test_arithmetic_rounds_after_every_operation(dev: ost.Device, library: ost.Library, name: str, dtype: Any) -> None:
    random = np.random.default_rng(2)
    edges = np.array(
        [0, -0.0, 1, -1, 1.5, 3, np.inf, -np.inf, np.nan, 1e-7, 6e-8, 1e-40, 65504, 3e38, 1 / 3], np.float64
    )
    with np.errstate(all="ignore"):
        pairs = np.stack(np.meshgrid(edges, edges), -1).reshape(-1, 2).astype(dtype)
    bits = random.integers(0, 2 ** (8 * np.dtype(dtype).itemsize), (4096, 2), dtype=np.uint64)
    words = bits.astype(np.uint32 if dtype is np.float32 else np.uint16).view(dtype)
    a, b = np.concatenate([pairs, words]).T.copy()
    n = len(a)
    got = launch(dev, library[f"arithmetic_{name}"], a, b, np.zeros(6 * n, dtype), n, threads=n).reshape(6, n)
    with np.errstate(all="ignore"):
        expected = [a + b, a - b, a * b, a / b, ((a + b) * b), np.where(a < b, -a, b)]
    for row, (mine, theirs) in enumerate(zip(got, expected, strict=True)):
        np.testing.assert_array_equal(mine.astype(np.float32), theirs.astype(np.float32), err_msg=f"row {row}")


@pytest.mark.parametrize("name", ["int", "uint", "long", "ulong", "uint4"])
def test_a_shift_takes_only_as_many_bits_of_the_amount_as_the_width_needs(
    dev: ost.Device, library: ost.Library, name: str
) -> None:
    dtype = {"int": np.int32, "uint": np.uint32, "long": np.int64, "ulong": np.uint64, "uint4": np.uint32}[name]
    width = 8 * np.dtype(dtype).itemsize
    values, by = np.array([1, 5, -3, 0x7FFFFFF1], np.int64).astype(dtype).repeat(1024), np.arange(4096).astype(dtype)
    n = len(values) // 4 if name == "uint4" else len(values)
    got = launch(dev, library[f"shifts_{name}"], values, by, np.zeros(2 * len(values), dtype), n, threads=n)
    amount = by & dtype(width - 1)
    np.testing.assert_array_equal(got, np.concatenate([values << amount, values >> amount]))
