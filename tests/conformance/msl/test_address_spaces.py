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
float merged_twice(thread const float *p) {{ return p[0]; }}
float merged_twice(threadgroup const float *p) {{ return p[0] + 100; }}
float merged_twice(device const float *p) {{ return p[0]; }}
float both(thread const float *p, thread const float *q) {{ return p[0] + 10 * q[0]; }}
float both(thread const float *p, device const float *q) {{ return p[0] + 20 * q[0]; }}
float both(device const float *p, thread const float *q) {{ return p[0] + 30 * q[0]; }}
float both(device const float *p, device const float *q) {{ return p[0] + 40 * q[0]; }}
template <typename P> float twice_of(P p) {{ return merged_twice(p); }}
template <typename P, typename Q> float both_of(P p, Q q) {{ return both(p, q); }}
kernel void merged_with_another(device float *d, device float *out) {{
  threadgroup float t[1]; float s[1] = {{5}}; t[0] = 3;
  out[0] = merged_twice(d); out[1] = merged_twice(t); out[2] = merged_twice(s);
  out[3] = twice_of(d); out[4] = twice_of((threadgroup float *)t); out[5] = twice_of((thread float *)s);
  out[6] = both(s, s); out[7] = both(s, d); out[8] = both(d, s); out[9] = both(d, d);
  out[10] = both_of((thread float *)s, d); out[11] = both_of(d, (thread float *)s); out[12] = both_of(d, d);
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


def test_what_one_overload_says_for_two_spaces_holds_for_both(dev: ost.Device, library: ost.Library) -> None:
    _, got = launch(dev, library["merged_with_another"], np.array([2], np.float32), np.zeros(13, np.float32))
    np.testing.assert_array_equal(got, [2, 103, 5, 2, 103, 5, 55, 45, 152, 82, 45, 152, 82])


KNOWN = f"""{HEAD}
struct Cell {{ uint v[4]; uint w; uint2 pair; }};
struct Holder {{ device uint *far; uint near[2]; }};
struct Number {{ uint n; Number(uint x) : n(x + 1) {{}} }};
constant Cell table_cell = {{{{7, 8, 9, 10}}, 11, {{1, 2}}}};
uint space_of_pointer(device const uint *p) {{ return 100 + p[0]; }}
uint space_of_pointer(thread const uint *p) {{ uint own[1] = {{p[0]}}; device const uint *none = nullptr; return own[0] + (p[0] > 1000 ? space_of_pointer(none) : 200); }}
uint space_of_pointer(threadgroup const uint *p) {{ uint own[1] = {{p[0]}}; return 100 + space_of_pointer(own); }}
uint space_of_cell(device const Cell &c) {{ return c.w; }}
uint space_of_cell(thread const Cell &c) {{ return c.w + 10; }}
uint space_of_cell(threadgroup const Cell &c) {{ return c.w + 20; }}
template <typename T> uint space_of_any(device const T *p, uint n) {{ return n + p[0]; }}
template <typename T> uint space_of_any(thread const T *p, uint n) {{ return 10 * n + p[0]; }}
uint within(device const Cell &c, thread const Cell *p) {{ return space_of_pointer(c.v) + space_of_pointer(p->v + 1) + space_of_cell(c) + space_of_cell(*p); }}

kernel void known(device uint *d, device const Cell *cells, device uint *out, uint i [[thread_position_in_grid]]) {{
  uint own[4] = {{1, 2, 3, 4}}, other[2] = {{5, 6}}; Cell cell = cells[0]; threadgroup uint t[2]; t[1] = 9; Holder h; h.near[0] = 12; h.far = d;
  out[0] = space_of_pointer(d + i); out[1] = space_of_pointer(own); out[2] = space_of_pointer(&t[1]); out[3] = space_of_pointer(&own[2]);
  out[4] = space_of_pointer(cell.v); out[5] = space_of_pointer(cells[i].v + 1); out[6] = space_of_pointer(&cells->w);
  out[7] = space_of_cell(cell); out[8] = space_of_cell(cells[0]); out[9] = space_of_cell(*cells); out[10] = space_of_any<uint>(other, 3);
  out[11] = space_of_any(d, 3); out[12] = within(cells[0], &cell); out[13] = space_of_pointer((device const uint *)cells);
  for (device uint *p = d; p < d + 1; ++p) out[14] = space_of_pointer(p);
}}
"""
HIDDEN = f"""{KNOWN}
struct Cursor {{ device uint *at; device uint &operator*() const {{ return at[0]; }} }};
uint of_value(device const uint &x) {{ return x; }}
uint of_value(thread const uint &x) {{ return x + 1000; }}
uint of_number(device const Number &x) {{ return x.n; }}
uint of_number(thread const Number &x) {{ return x.n + 1000; }}
kernel void not_in_the_source(device uint *d, device uint *out) {{
  Holder h; h.near[0] = 12; h.far = d; auto p = d; uint own[1] = {{1}}; auto q = &own[0];
  out[0] = space_of_pointer(h.far); out[1] = space_of_pointer(h.near); out[2] = space_of_pointer(p); out[3] = space_of_pointer(q);
  out[4] = of_number(d[0]);
  using Far = device uint *; typedef Far Further; Further far = d; Far aliased = d; struct Local {{ device uint *v; }}; Local local = {{d}};
  out[7] = space_of_pointer(far); out[8] = space_of_pointer(aliased); out[9] = space_of_pointer(local.v);
  Cursor cursor = {{d}}; out[10] = of_value(*cursor);
  {{ device uint *own = d; out[5] = space_of_pointer(own); }}
  out[6] = space_of_pointer(own);
}}
"""


def test_overloads_are_told_apart_by_the_source_where_it_says_the_space(dev: ost.Device) -> None:
    kernel = dev.library(KNOWN)["known"]
    cells = np.array([1, 2, 3, 4, 5, 0, 6, 7], np.uint32)
    out = launch(dev, kernel, np.array([50], np.uint32), cells.view(np.uint8), np.zeros(15, np.uint32))[-1]
    within = 101 + 202 + 5 + 15
    np.testing.assert_array_equal(out, [150, 201, 309, 203, 201, 102, 105, 15, 5, 5, 35, 53, within, 101, 150])
    if dev.capabilities.backend == "cpu":
        assert "fibers" not in str(kernel.execution)
        assert "threads may meet" not in str(kernel.execution)


def test_overloads_are_told_apart_by_address_where_the_source_says_nothing(dev: ost.Device) -> None:
    kernel = dev.library(HIDDEN)["not_in_the_source"]
    _, out = launch(dev, kernel, np.array([50], np.uint32), np.zeros(11, np.uint32))
    np.testing.assert_array_equal(out, [150, 212, 150, 201, 1051, 150, 201, 150, 150, 150, 50])


MEMBERS = f"""{HEAD}
constant uint modulus = 97;
struct Field {{
  uint v;
  Field() = default;
  constexpr Field(uint x) : v(x % modulus) {{}}
  Field(device const Field &o) : v(o.v) {{}}
  Field(thread const Field &o) {{ v = o.v; }}
  constexpr Field operator+(Field o) const {{ return Field((v + o.v) % modulus); }}
  Field operator+(Field o) device const {{ return Field(*this) + o; }}
  Field operator-() const {{ return Field(modulus - v); }}
  Field operator-() const device {{ return -Field(*this); }}
  Field operator*(Field o) const {{ return Field(v * o.v); }}
  Field operator*(Field o) const device {{ Field copy = *this; return copy * o; }}
  uint doubled() const {{ return 2 * v; }}
  uint doubled() const device {{ return Field(*this).doubled(); }}
}};
Field twice(Field x) {{ return x + x; }}
kernel void copying(device Field *d, device uint *out) {{
  Field a(90), b = d[0];
  out[0] = (a + b).v; out[1] = (d[0] + a).v; out[2] = (-d[1]).v; out[3] = (-a).v; out[4] = (d[0] * d[1]).v; out[5] = (a * b).v;
  out[6] = d[1].doubled(); out[7] = twice(d[1]).v; out[8] = d->doubled() + a.doubled();
}}
"""
DIFFERENT = f"""{HEAD}
template <typename T> struct Marked {{
  T v;
  uint get() const {{ return v; }}
  uint get() const device {{ return v + 100; }}
  uint get() const threadgroup {{ return v + 200; }}
  uint add(uint n) thread {{ v += n; return v; }}
  uint add(uint n) device {{ v += 2 * n; return v + 1000; }}
  constexpr uint operator+(uint o) const {{ return v + o; }}
  uint operator+(uint o) const device {{ return v + o + 10; }}
  uint operator()(uint o) const thread {{ return v * o; }}
  uint operator()(uint o) const device {{ return v * o + 1; }}
  operator uint() const thread {{ return v + 5; }}
  operator uint() const device {{ return v + 6; }}
}};
struct Plain {{ uint v; constexpr uint operator*(uint o) const {{ return v * o; }} uint operator*(uint o) device const {{ return v * o + 1; }} }};
constant Plain four = {{4}};
constant uint twelve = Plain{{4}} * 3;
uint operator-(device const Plain &a, uint b) {{ return a.v - b; }}
uint operator-(thread const Plain &a, uint b) {{ return 10 * (a.v - b); }}
kernel void by_object(device Marked<uint> *d, device uint *out) {{
  Marked<uint> own = {{3}}; threadgroup Marked<uint> shared; shared.v = 4;
  out[0] = own.get(); out[1] = d->get(); out[2] = d[1].get(); out[3] = shared.get();
  out[4] = own.add(1); out[5] = d[0].add(1); out[6] = own + 1u; out[7] = d[0] + 1u;
  out[8] = own(2); out[9] = d[0](2); out[10] = uint(own); out[11] = uint(d[1]);
  device Plain *plain = (device Plain *)d; Plain mine = {{8}};
  out[12] = plain[0] - 1; out[13] = mine - 1; out[14] = plain[1] * 2; out[15] = mine * 2; out[16] = twelve;
}}
"""


def test_members_that_call_others_with_a_copy_are_these(dev: ost.Device) -> None:
    kernel = dev.library(MEMBERS)["copying"]
    stored = np.array([10, 20], np.uint32)
    out = launch(dev, kernel, stored.view(np.uint8), np.zeros(9, np.uint32))[-1]
    np.testing.assert_array_equal(out, [3, 3, 77, 7, 200 % 97, 900 % 97, 40, 40, 200])
    if dev.capabilities.backend == "cpu":
        assert str(kernel.execution).startswith("loop")


def test_members_with_other_bodies_are_told_apart_by_the_object(dev: ost.Device) -> None:
    kernel = dev.library(DIFFERENT)["by_object"]
    out = launch(dev, kernel, np.array([10, 20], np.uint32).view(np.uint8), np.zeros(17, np.uint32))[-1]
    np.testing.assert_array_equal(out, [3, 110, 120, 204, 4, 1012, 5, 23, 8, 25, 9, 26, 11, 70, 41, 16, 12])


def test_members_are_told_apart_by_the_source_where_it_says_the_space_of_the_object(dev: ost.Device) -> None:
    source = f"""{HEAD}
    struct Element {{ uint v; uint marked() const {{ return v; }} uint marked() const device {{ return v + 100; }}
      uint marked() const threadgroup {{ return v + 200; }} }};
    struct Pair {{ Element both[2]; uint first() thread {{ return both[0].v; }} }};
    uint helper(device const Element &e, thread const Element *p) {{ return e.marked() + p->marked(); }}
    kernel void k(device Element *d, device Pair *pairs, device uint *out) {{
      Element own = {{3}}; threadgroup Element shared[2]; shared[1].v = 4; Pair pair; pair.both[1].v = 5;
      out[0] = own.marked(); out[1] = d->marked(); out[2] = d[1].marked(); out[3] = shared[1].marked();
      out[4] = (*d).marked(); out[5] = pair.both[1].marked(); out[6] = pairs->both[1].marked(); out[7] = helper(d[0], &own);
    }}
    """
    kernel = dev.library(source)["k"]
    stored = np.array([10, 20], np.uint32).view(np.uint8)
    out = launch(dev, kernel, stored, stored, np.zeros(8, np.uint32))[-1]
    np.testing.assert_array_equal(out, [3, 110, 120, 204, 110, 5, 120, 113])
    if dev.capabilities.backend == "cpu":
        assert kernel.execution.reason == "its lanes share threadgroup memory"


def test_a_member_that_changes_a_copy_does_not_change_the_object(dev: ost.Device) -> None:
    source = f"""{HEAD}
    struct Sum {{ uint v; uint bump(uint n) {{ v += n; return v; }} uint bump(uint n) device {{ return Sum(*this).bump(n); }} }};
    struct Odd {{ uint v; Odd(uint x) : v(x) {{}} Odd(device const Odd &o) : v(o.v + 1) {{}} Odd(thread const Odd &o) : v(o.v + 1) {{}}
      uint get() const {{ return v; }} uint get() const device {{ return Odd(*this).get(); }} }};
    kernel void k(device Sum *d, device uint *out) {{ out[0] = d->bump(5); out[1] = d->v; out[2] = ((device Odd *)d)->get(); Sum own = {{1}}; out[3] = own.bump(2) + own.v; }}
    """
    out = launch(dev, dev.library(source)["k"], np.array([10], np.uint32).view(np.uint8), np.zeros(4, np.uint32))[-1]
    np.testing.assert_array_equal(out, [15, 10, 11, 6])


CONSTRUCTORS = f"""{HEAD}
struct Wide {{ uint v; uint from;
  constexpr Wide(uint x) : v(x), from(0) {{}}
  Wide(device const Wide &o) : v(o.v), from(1) {{}}
  Wide(thread const Wide &o) : v(o.v), from(2) {{}}
  Wide(threadgroup const Wide &o, uint more = 3) : v(o.v + more), from(3) {{}} }};
template <typename T> struct Loaded {{ T v;
  Loaded(device const T *p) : v(p[0]) {{}}
  Loaded(thread const T *p, T more = 5) : v(p[0] + more) {{}} }};
kernel void k(device Wide *d, device uint *out) {{
  threadgroup uint room[2]; threadgroup Wide *t = (threadgroup Wide *)room; t->v = 30;
  Wide own(7); Wide far = d[0]; Wide near = own; Wide shared(*t);
  out[0] = far.v; out[1] = far.from; out[2] = near.v; out[3] = near.from; out[4] = shared.v; out[5] = shared.from;
  uint mine[1] = {{20}}; Loaded<uint> a((device uint *)d), b(mine), c(mine, 6); out[6] = a.v; out[7] = b.v; out[8] = c.v;
}}
"""


def test_constructors_with_other_bodies_are_told_apart_by_their_argument(dev: ost.Device) -> None:
    out = launch(
        dev, dev.library(CONSTRUCTORS)["k"], np.array([10, 0], np.uint32).view(np.uint8), np.zeros(9, np.uint32)
    )[-1]
    np.testing.assert_array_equal(out, [10, 1, 7, 2, 33, 3, 10, 25, 26])
