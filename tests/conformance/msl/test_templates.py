"""Templates and every way to instantiate a kernel, namespaces, overloads, and the C++ that real shaders use."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ostinato as ost
from launching import HEAD, launch

AT = "uint i [[thread_position_in_grid]]"

SOURCE = f"""{HEAD}
template <typename T, int N = 2> kernel void scale(device const T *x [[buffer(0)]], device T *y [[buffer(1)]], {AT}) {{ y[i] = x[i] * T(N); }}
template [[host_name("scale_float_3")]] kernel void scale<float, 3>(device const float *x [[buffer(0)]], device float *y [[buffer(1)]], {AT});
template [[host_name("scale_half_default")]] kernel void scale<half>(device const half *, device half *, uint);
template [[host_name("scale_bfloat_5")]] [[kernel]] decltype(scale<bfloat, 5>) scale<bfloat, 5>;
typedef decltype(scale<int, 7>) scale_int_t;
template [[host_name("scale_int_7")]] kernel scale_int_t scale<int, 7>;
template kernel void scale<uint, 4>(device const uint *, device uint *, uint);
template kernel void scale<short>(device const short *, device short *, uint);
#define instantiate_scale(tname, type, n) \\
  template [[host_name("scale_" #tname "_" #n)]] [[kernel]] void scale<type, n>(device const type *x [[buffer(0)]], device type *y [[buffer(1)]], {AT});
instantiate_scale(uchar, uchar, 2) instantiate_scale(long, long, -3)
#define instantiate_all(n) instantiate_scale(ushort, ushort, n) instantiate_scale(char, char, n)
instantiate_all(6)

template <typename T> kernel void deduced(device T *x, {AT}) {{ x[i] += T(1); }}
template [[host_name("deduced_float")]] kernel void deduced(device float *x, uint i);

template <int N> struct Number {{ static constexpr constant int value = N; }};
template <typename F> void each(F f) {{ f(Number<1>{{}}); f(Number<2>{{}}); }}
template <short N> struct Row {{ float at[N]; }};
template <short N, typename R> struct Box {{ R rows[N]; }};
template <bool Wide> kernel void lambdas(device float *out) {{
  constexpr short A = 2;
  constexpr short B = 3;
  using Own = Row<Wide ? A : B>;
  each([&](auto n) {{
    each([&](auto m) {{
      for (short i = 0; i < A; i++) {{
        Box<A, Own> box; box.rows[i].at[0] = Number<n.value * m.value>::value;
        out[sizeof(box) / 4 - 1] += box.rows[i].at[0];
      }}
    }});
  }});
}}
template [[host_name("lambdas_narrow")]] kernel void lambdas<true>(device float *);
template [[host_name("lambdas_wide")]] kernel void lambdas<false>(device float *);

template <typename T> kernel void twofold(device T *x, constant float &by, {AT}) {{ x[i] *= T(by); }}
template <typename T> kernel void twofold(device T *x, constant T *by, {AT}) {{ x[i] += by[i]; }}
template <typename T> kernel void twofold(device T *x, constant T &by, constant T &more, {AT}) {{ x[i] = x[i] * by + more; }}
template [[host_name("twofold_each")]] kernel void twofold<int>(device int *, constant int *, uint);
template [[host_name("twofold_two")]] kernel void twofold<int>(device int *x, constant int &by, constant int &more, uint i);
template [[host_name("twofold_one")]] kernel void twofold<int>(device int *x [[buffer(0)]], constant float &by [[buffer(1)]], {AT});
template [[host_name("twofold_deduced")]] kernel void twofold(device short *, constant short &, constant short &, uint);

struct Add {{ template <typename T> T operator()(T a, T b) const {{ return a + b; }} static constant constexpr int id = 1; }};
struct Larger {{ template <typename T> T operator()(T a, T b) const {{ return max(a, b); }} static constant constexpr int id = 2; }};
template <typename T, typename U, typename Op> [[kernel]] void combine(device const T *a, device const T *b, device U *c, {AT}) {{
  c[i] = U(Op()(a[i], b[i])) + U(Op::id);
}}
template [[host_name("add_float_int")]] kernel void combine<float, int, Add>(device const float *, device const float *, device int *, uint);
template [[host_name("larger_int_float")]] [[kernel]] decltype(combine<int, float, Larger>) combine<int, float, Larger>;

template <typename T, bool Clamp, short Steps, typename = enable_if_t<is_integral_v<T> || is_floating_point_v<T>>>
kernel void options(device T *x, {AT}) {{
  T v = x[i];
  if constexpr (Clamp) v = clamp(v, T(0), T(4));
  #pragma unroll
  for (short s = 0; s < Steps; ++s) v += T(1);
  x[i] = v;
}}
template [[host_name("clamped")]] kernel void options<float, true, 3>(device float *, uint);
template [[host_name("unclamped")]] kernel void options<float, false, (1 > 0 ? 4 : 2)>(device float *, uint);

template <typename T> struct Info {{ static constant constexpr int value = 0; typedef float wide; }};
template <> struct Info<half> {{ static constant constexpr int value = 16; using wide = float; }};
template <typename T> struct Info<vec<T, 4>> {{ static constant constexpr int value = 4 * Info<T>::value; typedef vec<float, 4> wide; }};
template <typename T> struct Indexed {{ uint i; T x; }};
template <typename T> struct _numeric_limits_impl<Indexed<T>> {{
  static constexpr METAL_FUNC Indexed<T> lowest() {{ return Indexed<T>{{7, numeric_limits<T>::lowest()}}; }}
}};
template <> struct is_integral<Indexed<int>> {{ static constant constexpr bool value = true; }};
template <typename T> T pick(T x) {{ return x; }}
template <> float pick<float>(float x) {{ return x + 0.5f; }}
template <typename T, enable_if_t<is_same_v<T, half>, bool> = true> int kind(T) {{ return 1; }}
template <typename T, enable_if_t<!is_same_v<T, half>, bool> = true> int kind(T) {{ return 2; }}
template <typename... Rest> constexpr int count(Rest... rest) {{ return sizeof...(rest); }}
template <int First, int... More> struct Sum {{ static constant constexpr int value = First + Sum<More...>::value; }};
template <int Only> struct Sum<Only> {{ static constant constexpr int value = Only; }};
template <typename T> using Four = vec<T, 4>;
template <typename T> constant constexpr T half_of = T(0.5);
constexpr int factorial(int n) {{ return n < 2 ? 1 : n * factorial(n - 1); }}
int overloaded(int) {{ return 1; }} int overloaded(float) {{ return 2; }} int overloaded(half) {{ return 3; }} int overloaded(uint) {{ return 4; }}
int overloaded(float2) {{ return 5; }} int overloaded(bfloat) {{ return 6; }} int overloaded(bool) {{ return 7; }}
float with_default(float x, float y = 2.5) {{ return x * y; }}
template <typename T, uint N> T last(vec<T, N> x, vec<T, N> y) {{ T r = y[0]; for (uint i = 0; i < N; ++i) r = x[i]; return r + min(N, 9u); }}
template <typename T, unsigned int N> vec<T, N> twice(thread const vec<T, N> &x) {{ return x + x; }}
template <typename T, uint N> struct Total {{ T base; T of(vec<T, N> x) const; template <uint M> T beside(vec<T, M> x) const; }};
template <typename T, uint N> T Total<T, N>::of(vec<T, N> x) const {{ T r = base; for (uint i = 0; i < N; ++i) r += x[i]; return r; }}
template <typename T, uint N> template <uint M> T Total<T, N>::beside(vec<T, M> x) const {{ return x[M - 1] + base + N; }}
template <typename T, const uint N> auto thrice(vec<T, N> x) -> vec<T, N> {{ return x * T(3) + T(N - 4u > 9u); }}
struct Widest {{
  float size, wrapped;
  template <typename T, uint N> Widest(vec<T, N> x) : size(N), wrapped(N - 4 > 9) {{ size += x[N - 1]; }}
}};
template <typename T, ptrdiff_t N> ptrdiff_t size_of(vec<T, N> x) {{ return N; }}
template <typename T, uint N> int where_of(device T *p, vec<T, N> x) {{ return 10 + N; }}
template <typename T, uint N> int where_of(threadgroup T *p, vec<T, N> x) {{ return 20 + N; }}
static METAL_FUNC float declared_later(float x);
[[clang::always_inline]] inline float attributed(float x) {{ return x * 2; }}

kernel void facts(device float *out) {{
  out[0] = Info<half4>::value; out[1] = Info<int>::value; Info<half4>::wide w = float4(1.5); out[2] = w.z;
  out[3] = pick(1.0f); out[4] = pick(1); out[5] = kind(1.0h); out[6] = kind(1.0f); out[7] = count(1, 2.0f, 3h_literal); out[8] = Sum<1, 2, 3>::value;
  out[9] = Four<int>(3).w; out[10] = half_of<float>; out[11] = factorial(5); out[12] = overloaded(1); out[13] = overloaded(1.0);
  out[14] = overloaded(1.0h); out[15] = overloaded(1u); out[16] = overloaded(float2(1)); out[17] = overloaded(1.0bf); out[18] = overloaded(true);
  out[19] = with_default(2); out[20] = declared_later(1); out[21] = attributed(4); out[22] = is_same_v<Four<half>, half4>;
  out[23] = conditional_t<true, int, float>(1.9f); constexpr int local = factorial(3); float array_[local]; out[24] = sizeof(array_) / 4;
  out[25] = numeric_limits<Indexed<short>>::lowest().i; out[26] = numeric_limits<Indexed<short>>::lowest().x;
  out[27] = is_integral<Indexed<int>>::value; out[28] = is_integral<Indexed<uint>>::value;
  out[29] = last(float3(1, 2, 3), float3(4)); out[30] = twice(half4(1, 2, 3, 4)).w; out[31] = last<int, 2>(int2(5), int2(6));
}}
kernel void deduced_sizes(device float *out) {{
  threadgroup float shared[1];
  const Total<float, 3> total = {{10}};
  const Widest widest(float3(1, 2, 3));
  out[0] = total.of(float3(1, 2, 3)); out[1] = total.beside(float2(1, 2)); out[2] = thrice(float3(1, 2, 3)).z;
  out[3] = widest.size; out[4] = widest.wrapped;
  out[5] = where_of(out, float3(1)); out[6] = where_of(shared, float2(1)); out[7] = size_of(float2(1));
}}
float declared_later(float x) {{ return x + 41; }}

template <typename T> struct Reducer {{
  threadgroup T *shared;
  Reducer(threadgroup T *s) {{ shared = s; }}
  T operator()(T x) {{ return simd_sum(x); }}
  T operator()(T x, T y) {{ return this->operator()(x + y); }}
}};
template <typename T> T reduce(T x) {{ return simd_sum(x); }}
kernel void reduced(device float *x, {AT}) {{
  threadgroup float s[1];
  const float all = reduce(x[i]);
  {{ Reducer<float> reduce(s); x[i] = reduce(x[i], 1.0f) + 1000 * all; }}
}}

namespace a {{ namespace b {{
  float helper(float x) {{ return x + 1; }}
  kernel void inner(device float *x, {AT}) {{ x[i] = helper(x[i]); }}
}}
  namespace {{ float hidden(float x) {{ return x * 10; }} }}
  kernel void outer(device float *x, {AT}) {{ x[i] = hidden(b::helper(x[i])); }}
}}
namespace c::d {{ constant float step = 0.25; template <typename T> kernel void deep(device T *x, {AT}) {{ x[i] += T(step); }} }}
template [[host_name("deep_float")]] kernel void c::d::deep<float>(device float *, uint);
using a::b::helper; namespace short_name = a::b;
kernel void uses(device float *x, {AT}) {{ using namespace a; x[i] = helper(x[i]) + short_name::helper(x[i]) + b::helper(0); }}
""".replace("3h_literal", "3.0h")


@pytest.fixture(scope="module")
def library(dev: ost.Device) -> ost.Library:
    return dev.library(SOURCE)


@pytest.mark.parametrize(
    ("name", "dtype", "factor"),
    [
        ("scale_float_3", np.float32, 3),
        ("scale_half_default", np.float16, 2),
        ("scale_bfloat_5", ml_dtypes.bfloat16, 5),
        ("scale_int_7", np.int32, 7),
        ("scale<uint, 4>", np.uint32, 4),
        ("scale<short>", np.int16, 2),
        ("scale_uchar_2", np.uint8, 2),
        ("scale_long_-3", np.int64, -3),
        ("scale_ushort_6", np.uint16, 6),
        ("scale_char_6", np.int8, 6),
    ],
)
def test_every_form_of_instantiation_is_a_kernel(
    dev: ost.Device, library: ost.Library, name: str, dtype: Any, factor: int
) -> None:
    x = np.arange(10).astype(dtype)
    kernel = library[next(key for key in library if key.replace(" ", "") == name.replace(" ", ""))]
    got = launch(dev, kernel, x, np.zeros_like(x), threads=10)
    np.testing.assert_array_equal(got.astype(np.float64), np.arange(10.0) * factor)


def test_a_template_without_instances_is_no_kernel(library: ost.Library) -> None:
    assert not {"scale", "combine", "deduced", "options"} & set(library)


def test_template_arguments_may_be_deduced_from_the_signature(dev: ost.Device, library: ost.Library) -> None:
    np.testing.assert_array_equal(launch(dev, library["deduced_float"], np.zeros(3, np.float32), threads=3), 1)


def test_templates_of_one_name_are_told_apart_by_their_parameters(dev: ost.Device, library: ost.Library) -> None:
    x, two, five = np.array([3, 4], np.int32), np.int32(2), np.int32(5)
    by_each = launch(dev, library["twofold_each"], x, np.array([10, 20], np.int32).tobytes(), threads=2)
    np.testing.assert_array_equal(by_each, [13, 24])
    np.testing.assert_array_equal(launch(dev, library["twofold_two"], x, two, five, threads=2), [11, 13])
    np.testing.assert_array_equal(launch(dev, library["twofold_one"], x, np.float32(2), threads=2), [6, 8])
    short = launch(dev, library["twofold_deduced"], x.astype(np.int16), np.int16(2), np.int16(5), threads=2)
    np.testing.assert_array_equal(short, [11, 13])


def test_constants_are_constants_in_lambdas(dev: ost.Device, library: ost.Library) -> None:
    for name, floats in (("lambdas_narrow", 4), ("lambdas_wide", 6)):
        got = launch(dev, library[name], np.zeros(8, np.float32))
        assert got.tolist() == [18.0 if i == floats - 1 else 0.0 for i in range(8)]


def test_operations_are_passed_as_types(dev: ost.Device, library: ost.Library) -> None:
    a, b = np.array([1.5, 2], np.float32), np.array([2.5, -3], np.float32)
    got = launch(dev, library["add_float_int"], a, b, np.zeros(2, np.int32), threads=2)
    np.testing.assert_array_equal(got, [5, 0])
    a, b = np.array([1, 5], np.int32), np.array([4, 2], np.int32)
    got = launch(dev, library["larger_int_float"], a, b, np.zeros(2, np.float32), threads=2)
    np.testing.assert_array_equal(got, [6, 7])


def test_values_choose_code_while_compiling(dev: ost.Device, library: ost.Library) -> None:
    x = np.array([-2, 9], np.float32)
    np.testing.assert_array_equal(launch(dev, library["clamped"], x, threads=2), [3, 7])
    np.testing.assert_array_equal(launch(dev, library["unclamped"], x, threads=2), [2, 13])


FACTS = {
    "a partial specialisation": 64, "the primary template": 0, "a member type": 1.5, "a full specialisation": 1.5,
    "the general function": 1, "enable_if": 1, "enable_if, otherwise": 2, "a parameter pack": 3, "a pack of values": 6,
    "an alias template": 3, "a variable template": 0.5, "a constexpr function": 120, "an int overload": 1, "a float overload": 2,
    "a half overload": 3, "a uint overload": 4, "a vector overload": 5, "a bfloat overload": 6, "a bool overload": 7,
    "a default argument": 5, "a declaration before the definition": 42, "an attribute": 8, "is_same": 1, "conditional": 1,
    "an array with a computed size": 6, "the limits of a class": 7, "the limits in a class": -32768, "a trait of a class": 1,
    "a trait of another": 0, "the size of a vector, unsigned": 6, "of a vector's reference": 8, "the size, given": 7,
}  # fmt: skip


def test_sizes_of_vectors_are_deduced_as_any_integer_type(dev: ost.Device, library: ost.Library) -> None:
    got = launch(dev, library["deduced_sizes"], np.zeros(8, np.float32))
    np.testing.assert_array_equal(got, [16, 15, 10, 6, 1, 13, 22, 2])


def test_templates_and_overloads_resolve_as_in_cpp(dev: ost.Device, library: ost.Library) -> None:
    got = launch(dev, library["facts"], np.zeros(len(FACTS), np.float32))
    assert dict(zip(FACTS, got.tolist(), strict=True)) == FACTS


def test_objects_and_functions_of_one_name_meet(dev: ost.Device, library: ost.Library) -> None:
    got = launch(dev, library["reduced"], np.ones(32, np.float32), threads=32, group_size=32)
    np.testing.assert_array_equal(got, 64 + 32_000)


@pytest.mark.parametrize(
    ("name", "expected"), [("a::b::inner", 3), ("a::outer", 30), ("deep_float", 2.25), ("uses", 3 + 3 + 1)]
)
def test_kernels_and_helpers_live_in_namespaces(
    dev: ost.Device, library: ost.Library, name: str, expected: float
) -> None:
    np.testing.assert_array_equal(launch(dev, library[name], np.full(4, 2, np.float32), threads=4), expected)
