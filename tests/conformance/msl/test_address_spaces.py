"""Functions that differ only in the address space of their arguments: merged when they say the same, told apart when not."""

from __future__ import annotations

import numpy as np
import pytest

import ostinato as ost
from launching import HEAD, launch

SOURCE = f"""{HEAD}
float load(device const float *p, uint i) {{ return p[i]; }}
float load(threadgroup const float *p, uint i) {{ return p[i]; }}
float load(thread const float *p, uint i) {{ return p[i]; }}
float load(constant float *p, uint i) {{ return p[i]; }}

int place(device const float *p) {{ return 1; }}
int place(threadgroup const float *p) {{ return 2; }}
int place(thread const float *p) {{ return 3; }}

template <typename T> int where(const device T *p, int base) {{ return base + 1; }}
template <typename T> int where(const threadgroup T *p, int base) {{ return base + 2; }}

void bump(device float &x) {{ x += 1; }}
void bump(threadgroup float &x) {{ x += 10; }}
void bump(thread float &x) {{ x += 100; }}

template <typename T> void swap_values(thread T &a, thread T &b) {{ T c = a; a = b; b = c; }}
template <typename T> void swap_values(device T &a, device T &b) {{ T c = a; a = b; b = c; }}

template <typename T> T at_byte(constant void *p, long at) {{
  return *reinterpret_cast<constant T *>(static_cast<constant char *>(p) + at);
}}
template <typename T> T at_byte(device const void *p, long at) {{
  return *reinterpret_cast<device const T *>(static_cast<device const char *>(p) + at);
}}

struct Reader {{
  float scale;
  float read(device const float *p) const {{ return *p * scale; }}
  float read(threadgroup const float *p) const {{ return *p * scale; }}
  float read(constant float *p) const {{ return *p * scale; }}
  int place(const device float *p) const {{ return 1; }}
  int place(const threadgroup float *p) const {{ return 2; }}
}};
struct Accumulator {{
  float sum = 0;
  void add(float x) {{ sum += x; }}
  void add(float x) threadgroup {{ sum += x; }}
  void add(float x) device {{ sum += x; }}
  float total() const {{ return sum; }}
  float total() const threadgroup {{ return sum; }}
  float total() const device {{ return sum; }}
  float total() const constant {{ return sum; }}
}};

struct Seed {{
  uint state;
  Seed() thread = default;
  Seed() threadgroup = default;
  Seed() device = default;
  Seed() constant = default;
  constexpr Seed(uint s) thread : state(s) {{}}
  constexpr Seed(uint s) constant : state(s) {{}}
}};
struct Zeroed {{
  uint sum;
  Zeroed() thread : sum(0) {{}}
  Zeroed() threadgroup = default;
  Zeroed() device = delete;
  uint plus(uint x) const thread;
  uint plus(uint x) const threadgroup;
}};
struct Ten {{ uint plus(uint x) const device; }};
uint Zeroed::plus(uint x) const thread {{ return sum + x; }}
uint Zeroed::plus(uint x) const threadgroup {{ return sum + x; }}
uint Ten::plus(uint x) const device {{ return x + 10; }}
template <typename T> struct Kind {{ int id() thread {{ return 1; }} }};
template <> struct Kind<int> {{ int id() device {{ return 2; }} int id() thread {{ return 2; }} }};
constant Seed fixed_seed(42);
struct Copier {{
  uint sum = 0;
  template <typename T> void copy(threadgroup T *to, ushort rows, const device T *from, uint stride, bool turned = false,
                                  int rest = 5) {{ sum += rows + stride + uint(turned) + rest; to[0] = from[0]; }}
  template <typename T> void copy(device T *to, uint stride, const threadgroup T *from, ushort rows,
                                  bool turned = false) {{ sum += 7 * (rows + stride + uint(turned)); to[0] = from[0]; }}
}};

uint at(device const uint *p, uint n = 1) {{ return p[n]; }}
uint at(threadgroup const uint *p, uint n = 2) {{ return p[n]; }}
void put(device uint *p, uint n = 1) {{ p[0] = n; }}
void put(threadgroup uint *p, uint n = 2, uint m = 3) {{ p[0] = n + 10 * m; }}
void give(device uint *p, uint n = 1) {{ p[0] = n; }}
void give(threadgroup uint *p, uint n, uint m = 3) {{ p[0] = n + 10 * m; }}
uint spelled(device uint *p, unsigned int n) {{ return 10 + n; }}
uint spelled(threadgroup uint *p, uint n) {{ return 20 + n; }}
struct Place {{
  uint base;
  uint of(device uint *p, uint n = 1) const {{ return base + n; }}
  uint of(threadgroup uint *p, uint n = 2) const {{ return base + 10 * n; }}
}};
uint writable(device uint *p) {{ return 1; }}
uint writable(device const uint *p) {{ return 0; }}
uint writable(threadgroup uint *p) {{ return 1; }}
uint writable(threadgroup const uint *p) {{ return 0; }}
uint is_written(device uint *p) {{ device uint *q = p; return writable(q); }}
uint is_written(threadgroup uint *p) {{ threadgroup const uint *q = p; return writable(q); }}

uint sum_of(thread const uint p[2]) {{ return p[0] + p[1]; }}
uint between(device const uint *p) {{ uint own[2] = {{p[0], p[1]}}; return sum_of(own); }}
uint sum_of(device const uint *p) {{ uint own[2] = {{p[0] + 1, p[1]}}; return 100 + sum_of(own); }}
void fill(thread uint p[2], uint n) {{ p[0] = p[1] = n; }}
void fill(device uint p[2], uint n) {{ p[0] = p[1] = n; }}

template <typename P> float first(P p) {{ return p[0]; }}
constant float table[3] = {{5, 6, 7}};

kernel void merged(device const float *d, constant float *c, device float *out) {{
  threadgroup float t[4]; float s[4]; for (int i = 0; i < 4; ++i) {{ t[i] = 10 * d[i]; s[i] = 100 * d[i]; }}
  out[0] = load(d, 1); out[1] = load(t, 2); out[2] = load(s, 3); out[3] = load(c, 0); out[4] = load(table, 1);
  Reader r = {{2}}; out[5] = r.read(d + 1); out[6] = r.read(&t[1]); out[7] = r.read(c);
  float a = 1, b = 2; swap_values(a, b); out[8] = a; swap_values(out[0], out[1]);
  out[9] = first(d) + first((threadgroup float *)t) + first((thread float *)s) + first(c);
  out[10] = at_byte<float>(d, 4) + at_byte<float>(c, 0);
}}
kernel void told_apart(device float *d, device int *out, uint i [[thread_index_in_threadgroup]]) {{
  threadgroup float t[4]; float s[4] = {{0}}; t[0] = 0;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (i == 40) {{
    out[0] = place(d); out[1] = place(t); out[2] = place(s); out[3] = place(&t[3]); out[4] = place(&d[1]);
    out[5] = where(d, 10); out[6] = where(t, 20);
    Reader r = {{1}}; out[7] = r.place(d); out[8] = r.place(t);
    bump(d[0]); bump(t[0]); bump(s[0]); out[9] = int(d[0]); out[10] = int(t[0]); out[11] = int(s[0]);
  }}
}}
kernel void plain_told_apart(device float *d, device int *out) {{
  threadgroup float t[4]; float s[4] = {{0}};
  out[0] = place(d); out[1] = place(t); out[2] = place(s);
}}
kernel void passed_told_apart(device float *d, device int *out, threadgroup float *t [[threadgroup(0)]]) {{
  out[0] = place(d); out[1] = place(t); out[2] = place(t + 100);
}}
kernel void constructed(device const Seed *d, device const Ten *ten, device uint *out) {{
  threadgroup Seed t; Seed s(3); Seed none; none.state = 4; t.state = 5;
  threadgroup Zeroed shared; Zeroed own; shared.sum = 6;
  Kind<float> f; Kind<int> i;
  out[0] = s.state; out[1] = none.state; out[2] = t.state; out[3] = d->state; out[4] = fixed_seed.state;
  out[5] = own.plus(1); out[6] = shared.plus(1); out[7] = ten->plus(1); out[8] = 10 * f.id() + i.id();
}}
kernel void with_defaults(device uint *d, device uint *out) {{
  threadgroup uint t[2]; Copier c;
  c.copy(t, 1, d, 100000); out[0] = c.sum;
  c.copy(d + 1, 100000, t, 1); out[1] = c.sum;
  c.copy(t, 1, d, 2, true, 6); out[2] = c.sum;
  c.copy(d + 2, 1, t, 2, true); out[3] = c.sum;
}}
kernel void with_other_defaults(device uint *d, device uint *out) {{
  threadgroup uint t[4];
  for (uint i = 0; i < 4; ++i) t[i] = 10 + i;
  out[0] = at(d); out[1] = at(t); out[2] = at(d, 3); out[3] = at(t, 3);
  put(d); out[4] = d[0]; put(t); out[5] = t[0]; put(d, 7); out[6] = d[0]; put(t, 7); out[7] = t[0]; put(t, 7, 8); out[8] = t[0];
  give(d); out[9] = d[0]; give(t, 4); out[10] = t[0]; give(t, 4, 5); out[11] = t[0];
  const Place place = {{100}}; out[12] = place.of(d); out[13] = place.of(t);
  out[14] = is_written(d); out[15] = is_written(t);
  out[16] = spelled(d, 1u); out[17] = spelled(t, 1u);
}}
kernel void calls_one_another(device uint *d, device uint *out) {{
  uint own[2]; fill(own, 4); fill(d, 5);
  out[0] = sum_of(own); out[1] = sum_of(d); out[2] = between(d);
}}
kernel void members(device Accumulator *d, constant Accumulator &c, device float *out) {{
  threadgroup Accumulator t; Accumulator s; t.sum = 0; t.add(2); s.add(3); d[0].add(4);
  out[0] = t.total(); out[1] = s.total(); out[2] = d->total(); out[3] = c.total();
}}
"""


@pytest.fixture(scope="module")
def library(dev: ost.Device) -> ost.Library:
    return dev.library(SOURCE)


def test_equal_bodies_become_one_function(dev: ost.Device, library: ost.Library) -> None:
    given, held = np.array([1, 2, 3, 4], np.float32), np.array([9], np.float32)
    got = launch(dev, library["merged"], given, held, np.zeros(11, np.float32))
    np.testing.assert_array_equal(got, [30, 2, 400, 9, 6, 4, 40, 18, 2, 1 + 10 + 100 + 9, 2 + 9])


def test_different_bodies_are_told_apart_by_where_the_pointer_points(dev: ost.Device, library: ost.Library) -> None:
    _, got = launch(
        dev, library["told_apart"], np.zeros(4, np.float32), np.zeros(12, np.int32), threads=64, group_size=64
    )
    np.testing.assert_array_equal(got, [1, 2, 3, 2, 1, 11, 22, 1, 2, 1, 10, 100])


def test_kernels_without_barriers_tell_them_apart_too(dev: ost.Device, library: ost.Library) -> None:
    _, got = launch(dev, library["plain_told_apart"], np.zeros(4, np.float32), np.zeros(3, np.int32))
    np.testing.assert_array_equal(got, [1, 2, 3])


def test_threadgroup_arguments_are_threadgroup_memory(dev: ost.Device, library: ost.Library) -> None:
    kernel = library["passed_told_apart"]
    _, got = launch(dev, kernel, np.zeros(4, np.float32), np.zeros(3, np.int32), shared={0: 1024})
    np.testing.assert_array_equal(got, [1, 2, 2])


def test_member_functions_may_be_qualified_by_space(dev: ost.Device, library: ost.Library) -> None:
    stored, constant = np.array([10], np.float32).view(np.uint8), np.float32(7).tobytes()
    _, got = launch(dev, library["members"], stored, constant, np.zeros(4, np.float32))
    np.testing.assert_array_equal(got, [2, 3, 14, 7])


def test_constructors_may_be_qualified_by_space(dev: ost.Device, library: ost.Library) -> None:
    stored, ten = np.array([7], np.uint32).view(np.uint8), np.zeros(4, np.uint8)
    got = launch(dev, library["constructed"], stored, ten, np.zeros(9, np.uint32))
    np.testing.assert_array_equal(got, [3, 4, 5, 7, 42, 1, 7, 11, 12])


def test_overloads_may_have_defaults_beyond_those_of_others(dev: ost.Device, library: ost.Library) -> None:
    copied, sums = launch(dev, library["with_defaults"], np.array([8, 0, 0], np.uint32), np.zeros(4, np.uint32))
    np.testing.assert_array_equal(copied, [8, 8, 8])
    np.testing.assert_array_equal(np.diff(sums, prepend=np.uint32(0)), [100006, 700007, 10, 28])


def test_each_overload_has_its_own_defaults_and_constness(dev: ost.Device, library: ost.Library) -> None:
    kernel = library["with_other_defaults"]
    _, got = launch(dev, kernel, np.array([0, 1, 2, 3], np.uint32), np.zeros(18, np.uint32))
    np.testing.assert_array_equal(got, [1, 12, 3, 13, 1, 32, 7, 37, 87, 1, 34, 54, 101, 120, 1, 0, 11, 21])


@pytest.mark.parametrize(
    "second",
    ["int f(constant float *p, int n = 2) { return n; }", "int f(constant float *p, int n) { return n; }"],
)
def test_device_against_constant_is_refused_if_the_defaults_differ(dev: ost.Device, second: str) -> None:
    if dev.capabilities.backend == "metal":
        pytest.skip("Metal's own compiler tells them apart")
    with pytest.raises(ost.UnsupportedFeature, match="differ only in address space"):
        dev.library(f"{HEAD}int f(const device float *p, int n = 1) {{ return n; }}\n{second}\nkernel void k() {{}}")


def test_overloads_may_call_one_another_and_take_arrays(dev: ost.Device, library: ost.Library) -> None:
    _, out = launch(dev, library["calls_one_another"], np.zeros(2, np.uint32), np.zeros(3, np.uint32))
    assert out.tolist() == [8, 100 + 11, 10]


def test_device_against_constant_is_refused_with_its_line(dev: ost.Device) -> None:
    if dev.capabilities.backend == "metal":
        pytest.skip("Metal's own compiler tells them apart")
    source = f"{HEAD}int f(const device float *p) {{ return 1; }}\nint f(constant float *p) {{ return 2; }}\nkernel void k(device int *o) {{ o[0] = 1; }}"
    with pytest.raises(ost.UnsupportedFeature, match="address space") as caught:
        dev.library(source)
    assert caught.value.line == 3


POINTER_ALIASES = f"""{HEAD}
struct Params {{ float scale; int shift[2]; }};
using In = const device float *; typedef device float *Out; typedef Out Again; typedef constant Params &Settings;
typedef threadgroup float *Shared;
kernel void k(In x, const Again out, Settings settings, Shared shared [[threadgroup(0)]],
              uint i [[thread_index_in_threadgroup]]) {{
  shared[i] = x[i] * settings.scale;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = shared[63 - i] + settings.shift[1];
}}
"""


def test_arguments_may_have_aliases_of_pointers_as_types(dev: ost.Device) -> None:
    x = np.arange(64, dtype=np.float32)
    settings = {"scale": 2.0, "shift": [0, 5]}
    kernel = dev.library(POINTER_ALIASES)["k"]
    got = launch(dev, kernel, x, 0 * x, settings, threads=64, group_size=64, shared={0: 256})
    np.testing.assert_array_equal(got, 2 * x[::-1] + 5)
