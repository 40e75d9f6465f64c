"""A shader's own functions and types beside those of the library: which function a call means, and what traits say."""

from __future__ import annotations

import numpy as np
import pytest

import ostinato as ost
from launching import HEAD, launch

SOURCE = f"""{HEAD}
namespace own {{
template <typename T, enable_if_t<is_floating_point_v<T>, bool> = true> T max(T a, T b) {{ return T(100); }}
template <typename T, typename U, enable_if_t<is_integral_v<T> && is_integral_v<U>, bool> = true> T max(T a, U b) {{ return T(101); }}
template <typename T> T exp(T x) {{ return T(102); }}
template <typename T, typename U> float fmod(T x, U y) {{ return 103; }}
template <typename T> int popcount(T x) {{ return 104; }}
template <typename T> bool isnan(T x) {{ return true; }}
template <typename T> T clamp(T x, T low, T high) {{ return T(105); }}
}}
using namespace own;

kernel void calls(device float *out [[buffer(0)]]) {{
  out[0] = max(1.0f, 2.0f); out[1] = max(1.0h, 2.0h); out[2] = max(short(1), short(2)); out[3] = max(1l, 2l);
  out[4] = max(float2(1, 4), float2(3, 2)).x; out[5] = max(int(1), uint(2)); out[6] = float(max(1.0bf, 2.0bf));
  out[7] = exp(0.0f); out[8] = float(exp(0.0h)); out[9] = exp(float4(0)).w; out[10] = exp(3);
  out[11] = fmod(5.0f, 3.0f); out[12] = fmod(float2(5), float2(3)).y; out[13] = fmod(5, 3);
  out[14] = popcount(7u); out[15] = popcount(true); out[16] = isnan(1.0f); out[17] = isnan(half2(1)).x;
  out[18] = clamp(7, 0, 5); out[19] = clamp(uchar(7), uchar(0), uchar(5)); out[20] = clamp(float3(7), float3(0), float3(5)).z;
}}

float wide(float x) {{ return x + 1; }} float2 wide(float2 x) {{ return x + 2; }}
float wide(float x, float y) {{ return x * y; }} float2 wide(float2 x, float2 y) {{ return x - y; }}
float counted(float x, long n) {{ return x * float(n); }}
float whole(long n) {{ return float(n); }}
kernel void conversions(device float *out [[buffer(0)]]) {{
  bfloat b = 3; half h = 3;
  out[0] = wide(b); out[1] = wide(h); out[2] = wide(b, b); out[3] = wide(h, h); out[4] = wide(float2(1)).x;
  out[5] = counted(b, b); out[6] = whole(b); out[7] = float(true ? b : 0); out[8] = wide(float2(7), float2(5)).y;
}}

struct Marked {{ int mark; float value; }};
namespace metal {{
template <> struct _numeric_limits_impl<Marked> {{
  static constexpr Marked lowest() {{ return Marked{{7, numeric_limits<float>::lowest()}}; }}
}};
}}
enum Color {{ red }};
template <typename T> int traits() {{
  return is_scalar_v<T> | is_floating_point_v<T> << 1 | is_integral_v<T> << 2 | is_signed_v<T> << 3 | is_unsigned_v<T> << 4 |
         is_arithmetic_v<T> << 5 | int(vec_elements<T>::value) << 6;
}}
kernel void questions(device int *out [[buffer(0)]], device float *limits [[buffer(1)]]) {{
  out[0] = traits<float>(); out[1] = traits<float2>(); out[2] = traits<const half4>(); out[3] = traits<int3>();
  out[4] = traits<uchar2>(); out[5] = traits<thread int *>(); out[6] = traits<Color>(); out[7] = traits<Marked>();
  out[8] = traits<bfloat>(); out[9] = traits<bool2>();
  constexpr auto infinity = numeric_limits<float2>::infinity().y;
  limits[0] = infinity; limits[1] = numeric_limits<half3>::max().z; limits[2] = numeric_limits<const int2>::lowest().x;
  limits[3] = numeric_limits<Marked>::lowest().mark; limits[4] = numeric_limits<Marked>::lowest().value;
  limits[5] = isnan(numeric_limits<float4>::quiet_NaN().w);
}}
template <typename... T> int for_simdgroups() {{
  int bits = 0, at = 0;
  ((bits |= int(__is_valid_simdgroup_type<T>::value) << at++), ...);
  return bits;
}}
kernel void simdgroup_types(device int *out [[buffer(0)]]) {{
  out[0] = for_simdgroups<float, half, bfloat, int, uchar, float2, int3, const short4>();
  out[1] = for_simdgroups<bool, long, ulong2, long4, Marked, thread int *, void>();
}}
"""

# Metal's functions are no templates, so a plain call of the very types means Metal's, any other the shader's template.
CALLS = {
    "max of float": 2, "max of half": 2, "max of short": 2, "max of long": 2, "max of vectors": 3,
    "max of int and uint": 101, "max of bfloat": 100, "exp of float": 1, "exp of half": 1, "exp of a vector": 1,
    "exp of int": 102, "fmod of float": 2, "fmod of vectors": 2, "fmod of int": 103, "popcount of uint": 3,
    "popcount of bool": 104, "isnan of float": 0, "isnan of a vector": 0, "clamp of int": 5, "clamp of uchar": 5,
    "clamp of vectors": 5,
}  # fmt: skip
CONVERSIONS = {
    "bfloat to float": 4, "half to float": 4, "two bfloats": 9, "two halves": 9, "a vector": 3, "bfloat to long": 9,
    "bfloat to a lone long": 3, "a bfloat as an arm": 3, "two vectors": 2,
}  # fmt: skip
SCALAR, FLOATING, INTEGRAL, SIGNED, UNSIGNED, ARITHMETIC, COMPONENTS = (1 << bit for bit in range(7))
QUESTIONS = {
    "float": SCALAR | FLOATING | SIGNED | ARITHMETIC,
    "float2": FLOATING | SIGNED | ARITHMETIC | 2 * COMPONENTS,
    "const half4": FLOATING | SIGNED | ARITHMETIC | 4 * COMPONENTS,
    "int3": INTEGRAL | SIGNED | ARITHMETIC | 3 * COMPONENTS,
    "uchar2": INTEGRAL | UNSIGNED | ARITHMETIC | 2 * COMPONENTS,
    "a pointer": SCALAR,
    "an enumeration": SCALAR,
    "a struct": 0,
    "bfloat": SCALAR | FLOATING | SIGNED | ARITHMETIC,
    "bool2": INTEGRAL | UNSIGNED | ARITHMETIC | 2 * COMPONENTS,
}


@pytest.fixture(scope="module")
def library(dev: ost.Device) -> ost.Library:
    return dev.library(SOURCE)


def test_the_librarys_functions_come_before_a_shaders_own_templates(dev: ost.Device, library: ost.Library) -> None:
    out = launch(dev, library["calls"], np.zeros(len(CALLS), np.float32))
    assert dict(zip(CALLS, out.tolist(), strict=True)) == CALLS


def test_half_and_bfloat_convert_to_a_scalar_rather_than_to_a_vector(dev: ost.Device, library: ost.Library) -> None:
    out = launch(dev, library["conversions"], np.zeros(len(CONVERSIONS), np.float32))
    assert dict(zip(CONVERSIONS, out.tolist(), strict=True)) == CONVERSIONS


def test_a_vector_is_what_its_components_are(dev: ost.Device, library: ost.Library) -> None:
    out, limits = launch(dev, library["questions"], np.zeros(len(QUESTIONS), np.int32), np.zeros(6, np.float32))
    assert dict(zip(QUESTIONS, out.tolist(), strict=True)) == QUESTIONS
    largest = float(np.finfo(np.float32).max)
    assert limits.tolist() == [np.inf, 65504, -(2.0**31), 7, -largest, 1]


def test_the_types_that_simdgroup_functions_take_are_known_by_apples_name(
    dev: ost.Device, library: ost.Library
) -> None:
    out = launch(dev, library["simdgroup_types"], np.zeros(2, np.int32))
    assert out.tolist() == [0xFF, 0]
