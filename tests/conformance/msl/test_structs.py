"""Structs in Metal's layout, constants of all kinds, enums, unions, `array`, and what classes may do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ostinato as ost
from launching import HEAD, launch

PARAMS = np.dtype(
    {
        "names": ["flag", "scale", "axis", "count", "packed", "stride", "corner", "enabled", "tint", "basis", "sizes"],
        "formats": [
            "u1", "f2", ("f4", 3), "u4", ("f4", 3), "i8", ("f4", 2), "?", ("i1", 3), ("f4", (3, 4)), ("i2", 3),
        ],
        "offsets": [0, 2, 16, 32, 36, 48, 56, 64, 68, 80, 128],
        "itemsize": 144,
    }
)  # fmt: skip

SOURCE = f"""{HEAD}
struct Params {{
  uchar flag; half scale; float3 axis; uint count; packed_float3 packed; long stride; float2 corner; bool enabled; char3 tint;
  float3x3 basis; short sizes[3];
}};
static_assert(sizeof(Params) == 144 && alignof(Params) == 16, "the layout of Metal");

void write_out(thread const Params &p, device float *out) {{
  out[0] = p.flag; out[1] = p.scale; out[2] = p.axis.x; out[3] = p.axis.y; out[4] = p.axis.z; out[5] = p.count;
  out[6] = p.packed.x; out[7] = p.packed[1]; out[8] = p.packed.z; out[9] = p.stride; out[10] = p.corner.x; out[11] = p.corner.y;
  out[12] = p.enabled; out[13] = p.tint.x; out[14] = p.tint.y; out[15] = p.tint.z;
  for (int c = 0; c < 3; ++c) for (int r = 0; r < 3; ++r) out[16 + 3 * c + r] = p.basis[c][r];
  for (int i = 0; i < 3; ++i) out[25 + i] = p.sizes[i];
}}
kernel void from_constant(constant Params &p [[buffer(0)]], device float *out [[buffer(1)]]) {{
  Params copy = p; write_out(copy, out);
}}
kernel void from_array(device const Params *p, device float *out, uint i [[thread_position_in_grid]]) {{
  Params copy = p[i]; write_out(copy, out + 28 * i);
}}
kernel void write_struct(device Params *p, uint i [[thread_position_in_grid]]) {{
  Params q; q.flag = i; q.scale = 0.5h; q.axis = float3(i, 1, 2); q.count = 7; q.packed = q.axis * 2; q.stride = -9; q.corner = 4;
  q.enabled = i & 1; q.tint = char3(-1, 2, -3); q.basis = float3x3(float(i)); for (int k = 0; k < 3; ++k) q.sizes[k] = k - 1;
  p[i] = q;
}}

typedef struct {{ float2 low; packed_half4 high; }} Bounds;
struct Inner {{ uchar a; uint b; }};
struct Outer {{ uchar tag; Inner inner[2]; Bounds bounds; uchar last; }};
kernel void nested(constant Outer *outer, device float *out, uint i [[thread_position_in_grid]]) {{
  constant Outer &o = outer[i];
  out[7 * i] = o.tag; out[7 * i + 1] = o.inner[1].a; out[7 * i + 2] = o.inner[1].b; out[7 * i + 3] = o.bounds.low.y;
  out[7 * i + 4] = o.bounds.high.w; out[7 * i + 5] = o.last; out[7 * i + 6] = sizeof(Outer);
}}

constant float table[4] = {{1.0, 2.5, -3, 4}};
constant constexpr int primes[] = {{2, 3, 5, 7, 11}};
constant int grid[2][3] = {{{{1, 2, 3}}, {{4, 5, 6}}}};
constant float4 corners[2] = {{float4(1, 2, 3, 4), float4(5)}};
constant Inner inners[2] = {{{{1, 2}}, {{3, 4}}}};
constant half scale = 0.5h;
constant uint mask = 0xf0u | (1u << 2);
constexpr constant float derived = table[1] * 2;
static constant const uchar bytes[3] = {{1, 2, 255}};
namespace tables {{ constant int deep[2] = {{70, 71}}; }}
constant array<float, 3> arrayed = {{{{7, 8, 9}}}};
enum Mode {{ Add, Multiply = 5, Last }};
enum Width : ushort {{ Narrow = 1, Wide = 65535 }};
enum class Kind : uchar {{ First = 3, Second }};
struct Limits {{ static constant constexpr int low = 3; static constexpr constant float high = 4.5; }};
template <int N> struct Power {{ static constexpr constant int value = 2 * Power<N - 1>::value; }};
template <> struct Power<0> {{ static constexpr constant int value = 1; }};

float look_up(constant float *from, uint i) {{ return from[i]; }}
float apply(Mode mode, float x) {{
  switch (mode) {{
    case Add: return x + 1;
    case Multiply: return x * 2;
    default: return -x;
  }}
}}

kernel void constants(device float *out, uint i [[thread_position_in_grid]]) {{
  out[0] = table[i + 1]; out[1] = primes[i + 4]; out[2] = grid[1][i + 1]; out[3] = corners[i].w; out[4] = inners[i + 1].b;
  out[5] = scale; out[6] = mask; out[7] = derived; out[8] = bytes[i + 2]; out[9] = tables::deep[i + 1]; out[10] = arrayed[i + 1];
  out[11] = look_up(table, 2); out[12] = sizeof(primes) / sizeof(primes[0]); out[13] = Limits::low + Limits::high;
  out[14] = Power<5>::value; out[15] = Multiply + Last; out[16] = apply(Mode(5), 3); out[17] = apply(Add, 3); out[18] = apply(Last, 3);
  out[19] = Wide + sizeof(Width); out[20] = uint(Kind::Second) + sizeof(Kind); out[21] = Kind(3) == Kind::First;
  out[22] = arrayed.size();
}}

struct Counter {{
  int count = 10; float weights[2] = {{0.5, 0.25}};
  Counter() = default;
  Counter(int start) : count(start) {{}}
  int next() {{ return ++count; }}
  float weigh(int i) const {{ return weights[i] * count; }}
  Counter operator+(Counter other) const {{ return Counter(count + other.count); }}
  thread Counter &operator+=(int by) {{ count += by; return *this; }}
  int operator()(int x) const {{ return x * count; }}
  float operator[](int i) const {{ return weights[i]; }}
}};
struct Doubling : Counter {{ int next() {{ count *= 2; return count; }} }};
union Word {{ uint whole; ushort halves[2]; float real; }};
template <typename T> struct Pair {{ T first, second; template <typename U> U sum() const {{ return U(first) + U(second); }} }};

kernel void classes(device float *out, device Counter *stored) {{
  Counter a, b(4); out[0] = a.next() + b.next(); out[1] = a.weigh(1); out[2] = (a + b).count; a += 9; out[3] = a(2); out[4] = a[0];
  Doubling d; d.next(); out[5] = d.next(); out[6] = d.Counter::next();
  Word w; w.real = 1.0; out[7] = w.halves[1]; out[8] = w.whole == 0x3f800000u;
  Pair<half> p = {{1.5h, 2.0h}}; out[9] = p.sum<float>();
  array<int, 4> list = {{{{1, 2, 3, 4}}}}; list[2] = 30; int sum = 0; for (int x : list) sum += x; out[10] = sum; out[11] = list.size();
  array<float2, 2> pairs; pairs[0] = float2(1, 2); pairs[1] = pairs[0].yx; out[12] = pairs[1].x;
  stored[0] = b; stored->count += 1; stored[1] = {{}}; out[13] = stored[0].weigh(0);
  float plain[3] = {{}}; plain[1] = 2; thread float *at = plain + 1; out[14] = *at + at[1] + plain[0];
  auto bits = a.count & 0xf; out[15] = bits; const thread Counter &same = a; out[16] = same.count;
}}
"""


@pytest.fixture(scope="module")
def library(dev: ost.Device) -> ost.Library:
    return dev.library(SOURCE)


def sample_params(count: int) -> Any:
    random = np.random.default_rng(5)
    params = np.zeros(count, PARAMS)
    for name in params.dtype.names or ():
        params[name] = random.integers(0, 100, params[name].shape)
    params["enabled"] = np.arange(count) % 2
    return params


def flattened(params: Any) -> Any:
    parts = [np.asarray(params[name], np.float32).reshape(len(params), -1) for name in params.dtype.names]
    parts[9] = np.asarray(params["basis"], np.float32)[:, :, :3].reshape(len(params), -1)
    return np.concatenate(parts, axis=1)


def test_a_constant_struct_arrives_member_by_member(dev: ost.Device, library: ost.Library) -> None:
    params = sample_params(1)
    got = launch(dev, library["from_constant"], params.tobytes(), np.zeros(28, np.float32))
    np.testing.assert_array_equal(got, flattened(params)[0])


def test_an_array_of_structs_has_metals_stride(dev: ost.Device, library: ost.Library) -> None:
    params = sample_params(5)
    got = launch(dev, library["from_array"], params.view(np.uint8), np.zeros(28 * 5, np.float32), threads=5)
    np.testing.assert_array_equal(got.reshape(5, 28), flattened(params))


def test_a_struct_is_written_where_numpy_finds_it(dev: ost.Device, library: ost.Library) -> None:
    got = launch(dev, library["write_struct"], np.zeros(3 * 144, np.uint8), threads=3).view(PARAMS)
    index = np.arange(3)
    np.testing.assert_array_equal(got["flag"], index)
    np.testing.assert_array_equal(got["scale"], [0.5] * 3)
    np.testing.assert_array_equal(got["axis"], np.stack([index, [1] * 3, [2] * 3], 1))
    np.testing.assert_array_equal(got["packed"], got["axis"] * 2)
    np.testing.assert_array_equal(got["stride"], [-9] * 3)
    np.testing.assert_array_equal(got["enabled"], index % 2 == 1)
    np.testing.assert_array_equal(got["tint"], [[-1, 2, -3]] * 3)
    np.testing.assert_array_equal(got["basis"][:, :, :3], np.eye(3)[None] * index[:, None, None])
    np.testing.assert_array_equal(got["sizes"], [[-1, 0, 1]] * 3)


def test_nested_structs_keep_their_alignment(dev: ost.Device, library: ost.Library) -> None:
    inner = np.dtype({"names": ["a", "b"], "formats": ["u1", "u4"], "offsets": [0, 4], "itemsize": 8})
    bounds = np.dtype({"names": ["low", "high"], "formats": [("f4", 2), ("f2", 4)], "offsets": [0, 8], "itemsize": 16})
    outer = np.dtype(
        {
            "names": ["tag", "inner", "bounds", "last"],
            "formats": ["u1", (inner, 2), bounds, "u1"],
            "offsets": [0, 4, 24, 40],
            "itemsize": 48,
        }
    )
    data = np.zeros(2, outer)
    data["tag"], data["last"] = [1, 2], [3, 4]
    data["inner"]["a"][:, 1], data["inner"]["b"][:, 1] = [5, 6], [70000, 80000]
    data["bounds"]["low"][:, 1], data["bounds"]["high"][:, 3] = [0.5, 1.5], [2.5, 3.5]
    got = launch(dev, library["nested"], data.tobytes(), np.zeros(14, np.float32), threads=2)
    np.testing.assert_array_equal(got, [1, 5, 70000, 0.5, 2.5, 3, 48, 2, 6, 80000, 1.5, 3.5, 4, 48])


CONSTANTS_EXPECTED = {
    "a table": 2.5, "a table whose size is counted": 11, "a table of two dimensions": 5, "a table of vectors": 4,
    "a table of structs": 4, "a half": 0.5, "an expression": 0xF4, "a constant of a constant": 5, "bytes": 255,
    "a table in a namespace": 71, "an array object": 8, "a table passed to a function": -3, "the length of a table": 5,
    "static members": 7.5, "a recursive template": 32, "enumerators": 11, "a switch on a cast enum": 6, "its first case": 4,
    "its default": -3, "an enum with a width": 65537, "an enum class": 5, "equality of an enum class": 1, "array::size": 3,
}  # fmt: skip


def test_constants_keep_their_values(dev: ost.Device, library: ost.Library) -> None:
    got = launch(dev, library["constants"], np.zeros(len(CONSTANTS_EXPECTED), np.float32))
    assert dict(zip(CONSTANTS_EXPECTED, got.tolist(), strict=True)) == CONSTANTS_EXPECTED


CLASSES_EXPECTED = {
    "member functions": 16, "const member functions": 2.75, "operator+": 16, "operator() after operator+=": 40,
    "operator[]": 0.5, "an overriding member": 40, "the member of the base": 41, "a union": 0x3F80, "its other member": 1,
    "a member template": 3.5, "a range loop over an array": 37, "array::size": 4, "an array of vectors": 2,
    "a struct in a buffer": 3, "a plain array and a pointer into it": 2, "auto": 20 & 0xF, "a reference": 20,
}  # fmt: skip


def test_classes_work_as_in_cpp(dev: ost.Device, library: ost.Library) -> None:
    got = launch(dev, library["classes"], np.zeros(len(CLASSES_EXPECTED), np.float32), np.zeros(24, np.uint8))[0]
    assert dict(zip(CLASSES_EXPECTED, got.tolist(), strict=True)) == CLASSES_EXPECTED


FRIENDS = f"""{HEAD}
template <typename T> struct Pair {{
  friend Pair operator+(Pair a, Pair b) {{ return Pair{{a.x + b.x, a.y + b.y}}; }}
  template <typename U> friend Pair scaled(Pair a, U by) {{ return Pair{{T(a.x * by), T(a.y * by)}}; }}
  T x;
  friend struct Reader;
  friend Pair swapped(Pair pair);
  T y;
}};
struct Reader {{
  float x;
  friend float read(const device Reader *from) {{ return from->x; }}
  friend float read(thread const Reader *from) {{ return from->x + 100; }}
  friend float total(Reader reader) {{ return simd_sum(reader.x); }}
  float y;
}};
kernel void friends(constant Pair<int> &p, device Reader *readers, device float *out, uint i [[thread_position_in_grid]]) {{
  const Pair<int> pair = scaled(p + Pair<int>{{1, 2}}, 2.5f); Reader own{{float(i), 0}};
  if (i == 0) {{ out[0] = pair.x; out[1] = pair.y; out[2] = read(readers + 1); out[3] = read(&own); }}
  const float sum = total(own);
  if (i == 0) out[4] = sum;
}}
"""


def test_friends_are_defined_between_the_members_of_a_class(dev: ost.Device) -> None:
    readers = np.array([(1, 2), (3, 4)], [("x", "<f4"), ("y", "<f4")])
    out = np.zeros(5, np.float32)
    kernel = dev.library(FRIENDS)["friends"]
    _, got = launch(dev, kernel, np.array([3, 4], np.int32).tobytes(), readers, out, threads=32, group_size=32)
    assert got.tolist() == [10, 15, 3, 100, 496]


SHARED = """
#include <simd/simd.h>
typedef struct { vector_float2 a; simd_float3 b; matrix_float3x3 m; simd_uint4 u; simd::float4 c; simd_float4x4 n; } Shared;
kernel void shared(device Shared *s [[buffer(0)]], device simd_float4 *v [[buffer(1)]], constant vector_ushort2 &w [[buffer(2)]]) {
  const simd::float4x4 turned = metal::transpose(s->n);
  v[0] = s->c + simd_float4(s->a, s->b.zx) + float4(s->m * s->b, 0) + simd::float4(s->u) + turned * float4(w.x, w.y, 0, 0);
}
"""


def test_the_names_of_simd_are_those_of_metal(dev: ost.Device) -> None:
    kernel = dev.library(HEAD + SHARED)["shared"]
    assert [str(each) for each in kernel.signature.arguments][1:] == [
        "1: v *float4 (read-write)",
        "2: w ushort2 (read)",
    ]
    s = np.zeros(1, kernel.dtype("s"))
    s["a"], s["b"], s["u"], s["c"] = (1, 2), (3, 4, 5), (10, 20, 30, 40), (100, 200, 300, 400)
    s["m"][..., :3], s["n"] = np.arange(9).reshape(3, 3), np.arange(16).reshape(4, 4)
    _, v = launch(dev, kernel, s, np.zeros(4, np.float32), np.array([1, 2], np.uint16))
    m, n = np.arange(9).reshape(3, 3).T, np.arange(16).reshape(4, 4)
    expected = (
        np.array([100, 200, 300, 400]) + [1, 2, 5, 3] + [*(m @ [3, 4, 5]), 0] + [10, 20, 30, 40] + n @ [1, 2, 0, 0]
    )
    assert v.tolist() == expected.tolist()


INDIRECT = f"""{HEAD}
struct Both {{ MTLDispatchThreadgroupsIndirectArguments first; uint rest; }};
kernel void groups(device MTLDispatchThreadgroupsIndirectArguments *to, constant uint &n, device Both *both) {{
  to->threadgroupsPerGrid[0] = (n + 63) / 64; to->threadgroupsPerGrid[1] = to->threadgroupsPerGrid[2] = 1;
  both->first = *to; both->rest = sizeof(MTLDrawIndexedPrimitivesIndirectArguments) + sizeof(MTLQuadTessellationFactorsHalf);
}}
"""
OWN_INDIRECT = f"""{HEAD}
typedef struct {{ uint threadgroupsPerGrid[3]; uint more; }} MTLDispatchThreadgroupsIndirectArguments;
kernel void groups(device MTLDispatchThreadgroupsIndirectArguments *to) {{ to->more = sizeof(*to); }}
"""


def test_arguments_of_indirect_dispatches_are_structs_of_the_library(dev: ost.Device) -> None:
    kernel = dev.library(INDIRECT)["groups"]
    to, both = launch(dev, kernel, np.zeros(3, np.uint32).view(np.uint8), 130, np.zeros(4, np.uint32).view(np.uint8))
    assert to.view(np.uint32).tolist() == [3, 1, 1]
    assert both.view(np.uint32).tolist() == [3, 1, 1, 20 + 12]


def test_a_source_may_declare_structs_of_the_library_itself(dev: ost.Device) -> None:
    if dev.capabilities.backend == "metal":
        pytest.skip("Metal's own library has the struct already")
    out = launch(dev, dev.library(OWN_INDIRECT)["groups"], np.zeros(4, np.uint32).view(np.uint8))
    assert out.view(np.uint32).tolist() == [0, 0, 0, 16]
