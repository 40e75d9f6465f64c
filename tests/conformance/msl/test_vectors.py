"""Vectors: constructors, swizzles read and written, operators, comparisons, `vec<T, n>`, and their place in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ostinato as ost
from launching import HEAD, launch

# In each, a = (1, 2, 3, 4), b = (10, 20, 30, 40), s = 2, n = 3 come from memory, and r is the result, at first 0.
FLOATS: list[tuple[str, list[float]]] = [
    ("r = float4(s)", [2, 2, 2, 2]),
    ("r = 5", [5, 5, 5, 5]),
    ("r = float4(1, 2, 3, s)", [1, 2, 3, 2]),
    ("r = float4(a.xy, b.zw)", [1, 2, 30, 40]),
    ("r = float4(s, a.yz, 9)", [2, 2, 3, 9]),
    ("r = float4(a.xyz, 9)", [1, 2, 3, 9]),
    ("r = float4(9, b.xyz)", [9, 10, 20, 30]),
    ("r = float4(float3(a.x, b.xy), n)", [1, 10, 20, 3]),
    ("r = float4{1, 2, 3, 4}", [1, 2, 3, 4]),
    ("r = float4()", [0, 0, 0, 0]),
    ("float2 t = {a.x, b.x}; r = t.xyxy", [1, 10, 1, 10]),
    ("r = a.wzyx", [4, 3, 2, 1]),
    ("r = a.xxyy", [1, 1, 2, 2]),
    ("r = a.rgba", [1, 2, 3, 4]),
    ("r = a.abgr", [4, 3, 2, 1]),
    ("r = float4(a.x, a.y, a.z, a.w) + float4(b.r, b.g, b.b, b.a)", [11, 22, 33, 44]),
    ("r = a; r.x = 9", [9, 2, 3, 4]),
    ("r = a; r.a = 9", [1, 2, 3, 9]),
    ("r = a; r.xz = b.yw", [20, 2, 40, 4]),
    ("r = a; r.wx = b.xy", [20, 2, 3, 10]),
    ("r = a; r.yx = r.xy", [2, 1, 3, 4]),
    ("r = a; r.xyzw = r.wzyx", [4, 3, 2, 1]),
    ("r = a; r.rgb = b.bgr", [30, 20, 10, 4]),
    ("r = a; r.xyz = s", [2, 2, 2, 4]),
    ("r = a; r.xyz += 1", [2, 3, 4, 4]),
    ("r = a; r.xy *= b.zw", [30, 80, 3, 4]),
    ("r = a; r.zw -= s", [1, 2, 1, 2]),
    ("r = a; r.yz /= 2", [1, 1, 1.5, 4]),
    ("r = a; r[2] = 9", [1, 2, 9, 4]),
    ("r = a; r[n] = r[n - 2] + b[n]", [1, 2, 3, 42]),
    ("float4 t = a; float2 u = t.zw; t.zw = 0; r = float4(t.xy, u)", [1, 2, 3, 4]),
    ("r.xy = a.xy + b.xy; r.zw = a.zw * s", [11, 22, 6, 8]),
    ("r.xyz = cross(a.xyz, b.zyx)", [2 * 10 - 3 * 20, 3 * 30 - 10, 20 - 60, 0]),
    ("r.x = dot(a.xy, b.yx)", [40, 0, 0, 0]),
    ("r = a + b", [11, 22, 33, 44]),
    ("r = b - a", [9, 18, 27, 36]),
    ("r = a * b", [10, 40, 90, 160]),
    ("r = b / a", [10, 10, 10, 10]),
    ("r = a * s", [2, 4, 6, 8]),
    ("r = s * a", [2, 4, 6, 8]),
    ("r = a + 1", [2, 3, 4, 5]),
    ("r = 1 - a", [0, -1, -2, -3]),
    ("r = 12 / a", [12, 6, 4, 3]),
    ("r = 2.0 * a + 0.5", [2.5, 4.5, 6.5, 8.5]),
    ("r = -a", [-1, -2, -3, -4]),
    ("r = +a", [1, 2, 3, 4]),
    ("r = a; r += b; r -= 1; r *= s; r /= float4(2)", [10, 21, 32, 43]),
    ("r = a; float4 t = r++; r += t; ++r; r--", [3, 5, 7, 9]),
    ("r = float4(a.xy * b.xy, (a.zw + b.zw) * s)", [10, 40, 66, 88]),
    ("r = true ? a : b", [1, 2, 3, 4]),
    ("r = s > 3 ? a : b", [10, 20, 30, 40]),
    ("r = select(a, b, a > 2)", [1, 2, 30, 40]),
    ("r = select(a, b, bool4(true, false, true, false))", [10, 2, 30, 4]),
    ("r = float4(a < b)", [1, 1, 1, 1]),
    ("r = float4(a <= 2)", [1, 1, 0, 0]),
    ("r = float4(2 < a)", [0, 0, 1, 1]),
    ("r = float4(a >= float4(1, 3, 3, 5))", [1, 0, 1, 0]),
    ("r = float4(a == b.xyzw / 10)", [1, 1, 1, 1]),
    ("r = float4(a != 3)", [1, 1, 0, 1]),
    ("r = float4(!(a > 2))", [1, 1, 0, 0]),
    ("r = float4((a > 1) && (a < 4))", [0, 1, 1, 0]),
    ("r = float4((a < 2) || (a > 3))", [1, 0, 0, 1]),
    ("r = float4((a > 1) & (a < 4))", [0, 1, 1, 0]),
    ("r = any(a > 3) ? 1 : 0", [1, 1, 1, 1]),
    ("r = all(a > 3) ? 1 : 0", [0, 0, 0, 0]),
    ("r = float4(int4(a * 1.7f))", [1, 3, 5, 6]),
    ("r = float4(int4(-a * 1.7f))", [-1, -3, -5, -6]),
    ("r = float4(half4(a) * 0.5h)", [0.5, 1, 1.5, 2]),
    ("r = float4(bfloat4(a) + bfloat4(b))", [11, 22, 33, 44]),
    ("r = float4(uchar4(a))", [1, 2, 3, 4]),
    ("vec<float, 4> t = a; r = t", [1, 2, 3, 4]),
    ("r = doubled(a)", [2, 4, 6, 8]),
    ("r = a; bump(r)", [2, 3, 4, 5]),
    ("r = total(a)", [10, 10, 10, 10]),
    ("packed_float3 p = a.xyz; p.y = 9; p[2] += 1; r = float4(float3(p), p.x)", [1, 9, 4, 1]),
    ("packed_float3 p = packed_float3(1, 2, 3); r.xyz = p * 2 + a.xyz", [3, 6, 9, 0]),
    ("packed_float4 p = a; p += b; r = p", [11, 22, 33, 44]),
    ("packed_float2 p = {1, 2}; float2 q = p; r = q.xyyx", [1, 2, 2, 1]),
    ("const float4 t[2] = {a, b}; r = t[n - 2]", [10, 20, 30, 40]),
    ("thread float4 *p = &r; p->xy = a.yx; (*p).z = 5", [2, 1, 5, 0]),
]

# In each, a = (1, 2, -3, 40), b = (7, -8, 9, 10), k = 2, and r is the result, at first 0.
INTS: list[tuple[str, list[int]]] = [
    ("r = a % 3", [1, 2, 0, 1]),
    ("r = b % a", [0, 0, 0, 10]),
    ("r = b / a", [7, -4, -3, 0]),
    ("r = a & b", [1, 0, -3 & 9, 40 & 10]),
    ("r = a | b", [7, 2 | -8, -3 | 9, 40 | 10]),
    ("r = a ^ b", [6, 2 ^ -8, -3 ^ 9, 40 ^ 10]),
    ("r = ~a", [-2, -3, 2, -41]),
    ("r = a << 2", [4, 8, -12, 160]),
    ("r = a << int4(1, 2, 3, 0)", [2, 8, -24, 40]),
    ("r = a >> 1", [0, 1, -2, 20]),
    ("r = 1 << abs(a.xyyx)", [2, 4, 4, 2]),
    ("r = a; r <<= k; r |= 1; r &= 0xff; r ^= 2; r >>= 1; r %= 100", [3, 5, 23, 81]),
    ("r = int4(uint4(b) >> 28)", [0, 15, 0, 0]),
    ("r = int4(uchar4(200) + uchar4(100))", [44, 44, 44, 44]),
    ("r = int4(char4(100) + char4(100))", [-56, -56, -56, -56]),
    ("r = int4(ushort4(65535) + 2)", [1, 1, 1, 1]),
    ("r = int4(short4(a) * short4(b))", [7, -16, -27, 400]),
    ("r = int4(long4(a) << 33 >> 32)", [2, 4, -6, 80]),
    ("r = int4(ulong4(uint4(b)) >> 1)", [3, 2147483644, 4, 5]),
    ("r = int4(a > b)", [0, 1, 0, 1]),
    ("r = int4(bool4(a) == bool4(1, 1, 1, 0))", [1, 1, 1, 0]),
    ("r = -a", [-1, -2, 3, -40]),
    ("r = int4(!bool4(a - int4(1, 1, -3, 40)))", [1, 0, 1, 1]),
    ("r = int4(-1) * int4(uint4(a) == 2u)", [0, -1, 0, 0]),
    ("int3 t = b.xyz; t.zx = a.xy; r = int4(t, k)", [2, -8, 1, 2]),
    ("r = int4(min(a, b))", [1, -8, -3, 10]),
    ("r = clamp(a, 0, 2)", [1, 2, 0, 2]),
]
# A swizzle is a vector like any other: it has members, a type to deduce, a type to name.
SWIZZLES: list[tuple[str, list[float]]] = [
    ("r = a.wzyx.xy.xyyx", [4, 3, 3, 4]),
    ("r.x = a.wzyx.y + a.zw[1]", [7, 0, 0, 0]),
    ("r.xyz = doubled(a.xyz)", [2, 4, 6, 0]),
    ("auto t = a.zw; r = t.yxyx", [4, 3, 4, 3]),
    ("r.xy = same(a.zw).yx", [4, 3, 0, 0]),
    ("r.x = is_same_v<decltype(a.xy + 1), float2> ? 1 : 0", [1, 0, 0, 0]),
    ("r.xy = true ? a.xy : b.xy; r.zw = s > 3 ? b.zw : float2(5)", [1, 2, 5, 5]),
    ("r.xy = select(a.xy, b.xy, a.xy > 1); r.zw = mix(a.xy, b.xy, float2(0.5))", [1, 20, 5.5, 11]),
    ("r.xy = max(a.xy, b.yx * 0.1f); r.zw = min(a.zw, 3.0f)", [2, 2, 3, 3]),
    ("r = float4(length(a.xy * a.xy), length_squared(a.xy), any(a.xy > 1), all(a.xy > 1))", [17**0.5, 5, 1, 0]),
    ("r.xyz = as_type<float4>(int4(as_type<uint4>(a))).zyx", [3, 2, 1, 0]),
    (
        "r.xy = 2 * min(same<float4>(b).yx, ::metal::as_type<float4>(b).yz); r.z = vec<float, 4>(s).xy[1]",
        [40, 20, 2, 0],
    ),
    ("r.xy = s < 3 && s > (a).yx[1] ? static_cast<float4>(a).wz : a.xy", [4, 3, 0, 0]),
    ("r.xy = float2(int2(a.xy) + int2(b.yx)); r.zw = as_type<float2>(as_type<uint2>(a.zw))", [21, 12, 3, 4]),
]

SOURCE = f"""{HEAD}
template <typename T, int N> vec<T, N> doubled(vec<T, N> v) {{ return v + v; }}
void bump(thread float4 &v) {{ v += 1; }}
float total(const thread float4 &v) {{ float sum = 0; for (int i = 0; i < 4; ++i) sum += v[i]; return sum; }}
static_assert(is_same_v<vec<float, 4>, float4> && is_same_v<vec<uchar, 3>, uchar3> && is_same_v<vec<bool, 2>, bool2>, "");

kernel void floats(device const float4 *in, device float4 *out) {{
  const float4 a = in[0], b = in[1]; const float s = in[2].x; const int n = int(in[2].y);
{chr(10).join(f"  {{ float4 r = 0; {code}; out[{i}] = r; }}" for i, (code, _) in enumerate(FLOATS))}
}}
template <typename T> T same(T v) {{ T copy = v; return copy; }}
kernel void swizzles(device const float4 *in, device float4 *out) {{
  const float4 a = in[0], b = in[1]; const float s = in[2].x;
{chr(10).join(f"  {{ float4 r = 0; {code}; out[{i}] = r; }}" for i, (code, _) in enumerate(SWIZZLES))}
}}
kernel void ints(device const int4 *in, device int4 *out) {{
  const int4 a = in[0], b = in[1]; const int k = in[2].x;
{chr(10).join(f"  {{ int4 r = 0; {code}; out[{i}] = r; }}" for i, (code, _) in enumerate(INTS))}
}}
template <typename From, typename To>
kernel void recopy(device const From *in, device To *out, uint i [[thread_position_in_grid]]) {{ out[i] = To(in[i]); }}
#define RECOPY(name, f, t) template [[host_name(name)]] kernel void recopy<f, t>(device const f *, device t *, uint);
RECOPY("pack_float3", float3, packed_float3) RECOPY("unpack_float3", packed_float3, float3)
RECOPY("pack_half3", half3, packed_half3) RECOPY("unpack_char3", packed_char3, char3)
RECOPY("pack_ushort2", ushort2, packed_ushort2) RECOPY("pack_int4", int4, packed_int4)
RECOPY("pack_bfloat3", bfloat3, packed_bfloat3) RECOPY("pack_long3", long3, packed_long3)

kernel void members(device packed_float3 *p, device uchar4 *c, device half3 *h, uint i [[thread_position_in_grid]]) {{
  p[i].y = 100 + i; p[i][2] *= 2; c[i].xw = c[i].wx; h[i].zx += 1.0h;
}}
"""


@pytest.fixture(scope="module")
def library(dev: ost.Device) -> ost.Library:
    return dev.library(SOURCE)


@pytest.fixture(scope="module")
def floats(dev: ost.Device, library: ost.Library) -> Any:
    given = np.array([[1, 2, 3, 4], [10, 20, 30, 40], [2, 3, 0, 0]], np.float32)
    return launch(dev, library["floats"], given, np.zeros((len(FLOATS), 4), np.float32))


@pytest.fixture(scope="module")
def swizzles(dev: ost.Device, library: ost.Library) -> Any:
    given = np.array([[1, 2, 3, 4], [10, 20, 30, 40], [2, 3, 0, 0]], np.float32)
    return launch(dev, library["swizzles"], given, np.zeros((len(SWIZZLES), 4), np.float32))


@pytest.fixture(scope="module")
def ints(dev: ost.Device, library: ost.Library) -> Any:
    given = np.array([[1, 2, -3, 40], [7, -8, 9, 10], [2, 0, 0, 0]], np.int32)
    return launch(dev, library["ints"], given, np.zeros((len(INTS), 4), np.int32))


@pytest.mark.parametrize("case", FLOATS, ids=lambda case: case[0])
def test_float_vectors_compute_component_by_component(floats: Any, case: tuple[str, list[float]]) -> None:
    np.testing.assert_array_equal(floats[FLOATS.index(case)], case[1])


@pytest.mark.parametrize("case", SWIZZLES, ids=lambda case: case[0])
def test_a_swizzle_is_a_vector_like_any_other(swizzles: Any, case: tuple[str, list[float]]) -> None:
    np.testing.assert_allclose(swizzles[SWIZZLES.index(case)], case[1], rtol=1e-6)


@pytest.mark.parametrize("case", INTS, ids=lambda case: case[0])
def test_integer_vectors_compute_component_by_component(ints: Any, case: tuple[str, list[int]]) -> None:
    np.testing.assert_array_equal(ints[INTS.index(case)], case[1])


@pytest.mark.parametrize(
    ("name", "dtype", "lanes_in", "lanes_out", "lanes"),
    [
        ("pack_float3", np.float32, 4, 3, 3),
        ("unpack_float3", np.float32, 3, 4, 3),
        ("pack_half3", np.float16, 4, 3, 3),
        ("unpack_char3", np.int8, 3, 4, 3),
        ("pack_ushort2", np.uint16, 2, 2, 2),
        ("pack_int4", np.int32, 4, 4, 4),
        ("pack_bfloat3", "bfloat16", 4, 3, 3),
        ("pack_long3", np.int64, 4, 3, 3),
    ],
)
def test_vectors_of_three_are_padded_in_memory_and_packed_ones_are_not(
    dev: ost.Device, library: ost.Library, name: str, dtype: Any, lanes_in: int, lanes_out: int, lanes: int
) -> None:
    given = np.arange(1, 8 * lanes_in + 1).reshape(8, lanes_in).astype(np.dtype(dtype))
    got = launch(dev, library[name], given, np.zeros((8, lanes_out), np.dtype(dtype)), threads=8)
    np.testing.assert_array_equal(got[:, :lanes], given[:, :lanes])


def test_members_of_vectors_in_buffers_are_written_in_place(dev: ost.Device, library: ost.Library) -> None:
    packed = np.arange(12, dtype=np.float32).reshape(4, 3)
    colours, halves = np.arange(16, dtype=np.uint8).reshape(4, 4), np.arange(16, dtype=np.float16).reshape(4, 4)
    p, c, h = launch(dev, library["members"], packed, colours, halves, threads=4)
    np.testing.assert_array_equal(p, np.stack([packed[:, 0], 100 + np.arange(4), packed[:, 2] * 2], 1))
    np.testing.assert_array_equal(c, colours[:, [3, 1, 2, 0]])
    np.testing.assert_array_equal(h[:, :3], halves[:, :3] + np.array([1, 0, 1]))


def test_a_constant_may_be_made_of_vectors_and_their_swizzles(dev: ost.Device) -> None:
    library = dev.library(
        f"""{HEAD}constant float4 base = float4(1, 2, 3, 4) * 2; constant uint2 turned = uint2(3, 4).yx; constant half4 list[2] = {{half4(1), 2}};
        kernel void k(device float *out) {{ out[0] = base.z; out[1] = turned.x; out[2] = list[1].w; }}"""
    )
    np.testing.assert_array_equal(launch(dev, library["k"], np.zeros(3, np.float32)), [6, 4, 2])


@pytest.mark.parametrize(
    "statement",
    ["float4 v = float3(1);", "float3 v = float3(1).xyzw;", "float2 v = float2(1); v.xx = v;", "int4 v = float4(1);"],
)
def test_vectors_of_other_shapes_or_elements_do_not_convert_silently(dev: ost.Device, statement: str) -> None:
    with pytest.raises(ost.KernelCompileError):
        dev.library(f"{HEAD}kernel void k(device float *x) {{ {statement} x[0] = v.x; }}")
