"""Threadgroup memory: declared in the body in every form, passed as an argument, and pointed to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ostinato as ost
from launching import HEAD, launch

BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
PLACE = "uint i [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]]"

# In each the threads of a group of 64 exchange `x` so that thread i ends with the x of thread 63 - i, in r.
REVERSALS = {
    "an array": "threadgroup float t[64]; t[i] = x; BARRIER r = t[63 - i];",
    "an array with its qualifier after the type": "float threadgroup *p; threadgroup float t[64]; p = t; p[i] = x; BARRIER r = p[63 - i];",
    "an array of two dimensions": "threadgroup float t[8][8]; t[i / 8][i % 8] = x; BARRIER r = t[7 - i / 8][7 - i % 8];",
    "an array of vectors": "threadgroup float4 t[16]; t[i / 4][i % 4] = x; BARRIER r = t[15 - i / 4][3 - i % 4];",
    "several in one declaration": "threadgroup float a[32], b[32]; if (i < 32) a[i] = x; else b[i - 32] = x; BARRIER "
    "r = i < 32 ? b[31 - i] : a[63 - i];",
    "several declarations": "threadgroup half a[64]; threadgroup float4 b; threadgroup float t[64]; a[i] = half(i); if (i == 0) b = 1; "
    "t[i] = x; BARRIER r = t[63 - int(a[i])] * b.w;",
    "a single variable": "threadgroup float t; for (uint k = 0; k < 64; ++k) { if (i == k) t = x; BARRIER if (i == 63 - k) r = t; BARRIER }",
    "a variable that begins with braces": "threadgroup float one{}, t[64]{}; if (i == 0) one = 1; t[i] = x; BARRIER r = t[63 - i] * one;",
    "a struct": "threadgroup Tile t; t.values[i] = x; if (i == 0) t.scale = 1; BARRIER r = t.values[63 - i] * t.scale;",
    "an array of structs": "threadgroup Cell t[64]; t[i].tag = uchar(i); t[i].value = x; BARRIER r = t[63 - i].value + t[i].tag - i;",
    "an array object": "threadgroup array<float, 64> t; t[i] = x; BARRIER r = t[63 - i];",
    "a template instance": "threadgroup Box<float, 64> t; t.values[i] = x; BARRIER r = t.values[63 - i];",
    "a size from a local constant": "constexpr int count = 8 * 8; threadgroup float t[count]; t[i] = x; BARRIER r = t[count - 1 - i];",
    "a size from constants of constants": "constexpr int rows = 4, columns = rows * 4; const int all = rows * columns; "
    "threadgroup float t[all]; t[i] = x; BARRIER r = t[all - 1 - i];",
    "a size from a global constant": "threadgroup float t[GROUP]; t[i] = x; BARRIER r = t[GROUP - 1 - i];",
    "a size from sizeof": "threadgroup float t[sizeof(float4) * 4]; t[i] = x; BARRIER r = t[63 - i];",
    "a size from a constexpr function": "threadgroup float t[squared(8)]; t[i] = x; BARRIER r = t[63 - i];",
    "a local type": "using Row = float4; typedef float2 Pair; threadgroup Row t[16]; threadgroup Pair u[1]; u[0].x = 0; "
    "t[i / 4][i % 4] = x; BARRIER r = t[15 - i / 4][3 - i % 4];",
    "a size from global constants of any name": "threadgroup float t[at * apart]; t[i] = x; BARRIER r = t[at * apart - 1 - i];",
    "a size from a local enum": "enum { rows = 4, columns = 16 }; threadgroup float t[rows][columns]; t[i / 16][i % 16] = x; BARRIER "
    "r = t[3 - i / 16][15 - i % 16];",
    "a local struct": "constexpr int count = 64; struct Local { float values[count]; float scale; }; threadgroup Local t; t.values[i] = x; "
    "if (i == 0) t.scale = 1; BARRIER r = t.values[63 - i] * t.scale;",
    "a struct that the declaration defines": "threadgroup struct Here { float values[32]; } a, b[1]; threadgroup Here c; "
    "if (i < 32) a.values[i] = x; else b[0].values[i - 32] = x; BARRIER if (i == 0) c = b[0]; BARRIER "
    "r = i < 32 ? c.values[31 - i] : a.values[63 - i];",
    "a union without a name": "threadgroup union alignas(16) { uint bits[64]; float values[64]; } t; t.bits[i] = as_type<uint>(x); BARRIER "
    "r = t.values[63 - i];",
    "a struct named as one": "threadgroup struct Tile t; t.values[i] = x; BARRIER r = t.values[63 - i];",
    "alignas in front": "alignas(64) threadgroup float t[64]; t[i] = x; BARRIER r = t[63 - i] + float(((ulong)&t[0]) % 64);",
    "alignas behind": "threadgroup char c; threadgroup alignas(128) float t[64]; c = 1; t[i] = x; BARRIER r = t[63 - i] + float(((ulong)&t[0]) % 128);",
    "a pointer to it": "threadgroup float t[64]; threadgroup float *p = t; p += i; *p = x; BARRIER r = *(t + 63 - i);",
    "a pointer to one of its rows": "threadgroup float t[8][8]; threadgroup float *row = t[i / 8]; row[i % 8] = x; BARRIER r = (&t[0][0])[63 - i];",
    "a pointer to an array": "threadgroup float t[8][8]; threadgroup float (*p)[8] = t; p[i / 8][i % 8] = x; BARRIER r = p[7 - i / 8][7 - i % 8];",
    "a reference to it": "threadgroup float t[64]; threadgroup float &mine = t[i]; mine = x; BARRIER r = t[63 - i];",
    "a const pointer to it": "threadgroup float t[64]; t[i] = x; BARRIER const threadgroup float *p = t; threadgroup const float *q = p; r = q[63 - i];",
    "another type over the same memory": "threadgroup uchar t[256]; threadgroup float *p = (threadgroup float *)t; p[i] = x; BARRIER "
    "r = reinterpret_cast<threadgroup float *>(t)[63 - i];",
    "a helper with a pointer": "threadgroup float t[64]; put(t, i, x); BARRIER r = get(t, 63 - i);",
    "a helper with a reference to an array": "threadgroup float t[64]; put_all(t, i, x); BARRIER r = t[63 - i];",
    "a struct with a pointer member": "threadgroup float t[64]; View v = {t, 63}; v.at[i] = x; BARRIER r = v.reversed(i);",
    "a struct that loads through its members": "threadgroup float t[64]; Loader<float> l(t, i); l.store(x); BARRIER r = l.load(63 - i);",
    "a declaration in an inner block": "{ threadgroup float t[64]; t[i] = x; BARRIER r = t[63 - i]; }",
    "two inner blocks": "{ threadgroup float t[64]; t[i] = x; BARRIER r = t[63 - i]; } BARRIER { threadgroup float u[64]; u[i] = r; BARRIER r = u[i]; }",
    "sizes and types of the same name in blocks": "{ constexpr int size = 4; struct Part { float v[size]; }; threadgroup Part p; "
    "if (i < size) p.v[i] = x; } BARRIER constexpr int size = 64; { using Part = float; threadgroup Part t[size], u[size]; t[i] = x; u[i] = i; "
    "BARRIER r = t[63 - i] + u[i] - i; }",
    "half": "threadgroup half t[64]; t[i] = half(x); BARRIER r = t[63 - i];",
    "bool and uchar": "threadgroup bool f[64]; threadgroup uchar t[64]; f[i] = i > 5; t[i] = uchar(x); BARRIER r = f[63] ? t[63 - i] : 0;",
    "a simdgroup of it at a time": "threadgroup float t[2][32]; t[i / 32][i % 32] = x; BARRIER r = t[1 - i / 32][31 - i % 32];",
    "atomics": "threadgroup atomic_uint count; threadgroup float t[64]; if (i == 0) atomic_store_explicit(&count, 0u, memory_order_relaxed); BARRIER "
    "atomic_fetch_add_explicit(&count, 1u, memory_order_relaxed); t[i] = x; BARRIER "
    "r = t[atomic_load_explicit(&count, memory_order_relaxed) - 1 - i];",
    "volatile": "threadgroup volatile float t[64]; t[i] = x; BARRIER r = t[63 - i];",
}

SOURCE = f"""{HEAD}
constant constexpr int GROUP = 64;
constant constexpr int at = 8, apart = 8;
struct Tile {{ float values[64]; float scale; }};
struct Cell {{ uchar tag; float value; }};
template <typename T, int N> struct Box {{ T values[N]; }};
constexpr int squared(int x) {{ return x * x; }}
void put(threadgroup float *t, uint i, float x) {{ t[i] = x; }}
float get(const threadgroup float *t, uint i) {{ return t[i]; }}
void put_all(threadgroup float (&t)[64], uint i, float x) {{ t[i] = x; }}
struct View {{ threadgroup float *at; uint last; float reversed(uint i) const {{ return at[last - i]; }} }};
template <typename T> struct Loader {{
  threadgroup T *const base; threadgroup T &mine;
  Loader(threadgroup T *base_, uint i) : base(base_), mine(base_[i]) {{}}
  void store(T x) {{ mine = x; }}
  T load(uint i) const {{ const threadgroup T *from = base + i; return *from; }}
}};
{chr(10).join(f"kernel void reversal_{k}(device const float *in, device float *out, {PLACE}) {{ const float x = in[i]; float r = -1; {code.replace('BARRIER', BARRIER)} out[i] = r; }}" for k, code in enumerate(REVERSALS.values()))}

template <typename T, int N> kernel void templated(device const T *in, device T *out, {PLACE}) {{
  constexpr int padded = N + 1;
  threadgroup T t[padded * 2]; threadgroup vec<T, 4> v[N / 4];
  t[i + 1] = in[i]; v[i / 4][i % 4] = in[i]; {BARRIER} out[i] = t[N - i] + v[(N - 1 - i) / 4][(N - 1 - i) % 4];
}}
template [[host_name("templated_float_64")]] kernel void templated<float, 64>(device const float *, device float *, uint, uint);
template [[host_name("templated_half_16")]] kernel void templated<half, 16>(device const half *, device half *, uint, uint);
template [[host_name("templated_int_128")]] kernel void templated<int, 128>(device const int *, device int *, uint, uint);

kernel void passed(device const float *in, device float *out, threadgroup float *a [[threadgroup(0)]],
                   threadgroup int4 *b [[threadgroup(3)]], threadgroup uchar *c [[threadgroup(1)]], {PLACE}) {{
  a[i] = in[i]; b[i] = int4(i); c[i] = uchar(i); {BARRIER} out[i] = a[n - 1 - i] + 1000 * (b[n - 1 - i].w - c[n - 1 - i]);
}}
kernel void both(device const float *in, device float *out, threadgroup float *a [[threadgroup(0)]], {PLACE}) {{
  threadgroup float mine[64]; mine[i] = in[i]; a[i] = -in[i]; {BARRIER} out[i] = mine[63 - i] * 2 + a[63 - i];
}}
kernel void by_reference(device float *out, threadgroup float &total [[threadgroup(0)]], {PLACE}) {{
  if (i == 0) total = 0; {BARRIER} for (uint k = 0; k < n; ++k) {{ if (k == i) total += i; {BARRIER} }} out[i] = total;
}}
kernel void group_sums(device const int *in, device int *out, uint at [[thread_position_in_grid]],
                       uint g [[threadgroup_position_in_grid]], {PLACE}) {{
  threadgroup int t[256]; t[i] = in[at]; {BARRIER}
  if (i == 0) {{ int sum = 0; for (uint k = 0; k < n; ++k) sum += t[k]; out[g] = sum; }}
}}
kernel void sizes(device uint *out) {{ threadgroup float t[100]; t[0] = 1; out[0] = sizeof(t); out[1] = sizeof(t) / sizeof(t[0]); }}
"""


@pytest.fixture(scope="module")
def library(dev: ost.Device) -> ost.Library:
    return dev.library(SOURCE)


@pytest.mark.parametrize("form", REVERSALS)
def test_threads_of_a_group_share(dev: ost.Device, library: ost.Library, form: str) -> None:
    x = np.arange(1, 65, dtype=np.float32)
    kernel = library[f"reversal_{list(REVERSALS).index(form)}"]
    np.testing.assert_array_equal(launch(dev, kernel, x, np.zeros(64, np.float32), threads=64, group_size=64), x[::-1])


@pytest.mark.parametrize(
    ("name", "dtype", "n"), [("float_64", "f4", 64), ("half_16", "f2", 16), ("int_128", "i4", 128)]
)
def test_sizes_may_depend_on_template_parameters(
    dev: ost.Device, library: ost.Library, name: str, dtype: str, n: int
) -> None:
    x = np.arange(n).astype(dtype)
    kernel = library[f"templated_{name}"]
    np.testing.assert_array_equal(launch(dev, kernel, x, np.zeros_like(x), threads=n, group_size=n), 2 * x[::-1])
    element = np.dtype(dtype).itemsize
    assert kernel.threadgroup_memory_bytes >= ((n + 1) * 2 + n) * element


def test_arguments_are_given_their_bytes_at_the_dispatch(dev: ost.Device, library: ost.Library) -> None:
    x = np.arange(200, dtype=np.float32)
    shared = {0: 800, 3: 3200, 1: 208}
    got = launch(dev, library["passed"], x, np.zeros(200, np.float32), threads=200, group_size=200, shared=shared)
    np.testing.assert_array_equal(got, x[::-1])


def test_declared_and_passed_memory_do_not_overlap(dev: ost.Device, library: ost.Library) -> None:
    x = np.arange(64, dtype=np.float32)
    got = launch(dev, library["both"], x, np.zeros(64, np.float32), threads=64, group_size=64, shared={0: 256})
    np.testing.assert_array_equal(got, x[::-1])


def test_an_argument_may_be_a_reference(dev: ost.Device, library: ost.Library) -> None:
    got = launch(dev, library["by_reference"], np.zeros(40, np.float32), threads=40, group_size=40, shared={0: 16})
    np.testing.assert_array_equal(got, np.full(40, sum(range(40))))


def test_every_group_has_its_own(dev: ost.Device, library: ost.Library) -> None:
    x: Any = np.random.default_rng(1).integers(0, 100, 256 * 50 + 17).astype(np.int32)
    got = launch(dev, library["group_sums"], x, np.zeros(51, np.int32), threads=len(x), group_size=256)
    np.testing.assert_array_equal(got, np.add.reduceat(x, np.arange(0, len(x), 256)))


def test_an_array_keeps_its_size(dev: ost.Device, library: ost.Library) -> None:
    np.testing.assert_array_equal(launch(dev, library["sizes"], np.zeros(2, np.uint32)), [400, 100])
