"""Spellings that compilers of plain C++ do not all take: literals with a type in brackets, names from the root of all
namespaces, enumerations beside integers, what headers shared with a host program use, and parameters that are easily
misread."""

from __future__ import annotations

import numpy as np
import pytest

import ostinato as ost
from launching import HEAD, launch

SOURCE = f"""{HEAD}
struct Point {{ int x; float y; }};
namespace shapes {{ struct Line {{ Point from, to; }}; }}
struct Scale {{ int by; int operator()(int) {{ return by; }} Scale operator-(Scale) {{ return *this; }} }};
float total(float4 v) {{ return v.x + v.y + v.z + v.w; }}

kernel void literals(device float *out, constant int &two [[buffer(1)]]) {{
  uint4 whole = (uint4){{1, 2, 3, 4}}; out[0] = whole.w;
  out[1] = total((float4){{1, 2.5, out[0], 4}} * (vec<float, 4>){{2, 2, 2, 2}});
  out[2] = (Point){{two, 1.5}}.y;
  shapes::Line line = (shapes::Line){{{{1, 2}}, {{3, 4}}}}; out[3] = line.to.y;
  out[4] = two > 1 ? (int2){{7, 8}}.x : (int2){{5, 6}}.y;
  out[5] = ((float[3]){{1, 2, 4}})[two]; out[6] = (int){{two}} + (Scale){{6}}(two);
  if (two == 2) {{ out[7] = 9; }}
  auto twice = [](int x) {{ return 2 * x; }}; out[8] = twice(two);
  out[9] = (Point){{.x = two, .y = 2.5 * two}}.y + (Point){{.y = 3,}}.x;
}}

template <typename T> ::metal::vec<T, 2> pair(T x) {{ return ::metal::vec<T, 2>(x, x + 1); }}
template <typename T> METAL_FUNC ::metal::vec<T, 2> turned(T x) {{ return (::metal::vec<T, 2>)::metal::vec<int, 2>(x + 1, x); }}
int seven() {{ return 7; }}
namespace inner {{ int seven() {{ return 8; }} template <int N> int least() {{ return N > ::seven() ? 1 : 0; }} }}
kernel void rooted(device float *out, constant int &two [[buffer(1)]]) {{
  out[0] = pair(float(two)).y; out[1] = turned(float(two)).x; out[2] = inner::least<8>() + inner::seven();
  float cosine = 2; if (two) ::metal::sincos(0.0f, cosine);
  out[3] = cosine + (two > ::seven() || two > ::metal::max(two, 3)); out[4] = (float)::seven();
}}

enum Mode {{ Add, Multiply = 5, Last }};
enum Width : ushort {{ Narrow = 1, Wide = 65535 }};
kernel void enumerated(device float *out, constant int &two [[buffer(1)]]) {{
  uint five = two + 3; half h = half(five); bfloat b = bfloat(h); Mode mode = Mode(five);
  out[0] = five == Multiply; out[1] = two != Add; out[2] = Last > two; out[3] = ulong(five) <= Multiply; out[4] = Narrow < uchar(two);
  out[5] = h == Multiply; out[6] = Last > b; out[7] = b == Multiply; out[8] = float(five) >= mode; out[9] = mode == five;
  out[10] = (five & Multiply) + (two | Narrow) + two * Multiply + (mode - 1);
}}

kernel void parameters(device float *const out, constant int const &two [[buffer(1)]],
                       unsigned id [[thread_position_in_grid]], ushort const at [[thread_index_in_threadgroup]],
                       ::metal::uint const n [[threads_per_grid]], unsigned short volatile lane [[thread_index_in_simdgroup]]) {{
  out[0] = id + two; out[1] = at + lane + n;
}}

int space(device const float *, unsigned) {{ return 1; }}
int space(threadgroup float const *, unsigned n) {{ return 2 + n; }}
template <typename T> int third(thread T *, uint const n, unsigned const) {{ return 3 * n; }}
template <typename T> int third(device T *, uint const n, unsigned const m) {{ return 4 * n + m; }}
kernel void overloads(device float *out, constant int &two [[buffer(1)]]) {{
  threadgroup float shared[4]; float own[4]; own[0] = two;
  out[0] = space(out, two); out[1] = space(shared, two); out[2] = third(own, two, 1); out[3] = third(out, two, 1);
}}

#define NS_ENUM(type, name) enum name : type name; enum name : type
typedef metal::int32_t Backing;
typedef NS_ENUM(Backing, Slot) {{ SlotOut, SlotTwo }};
typedef enum class Side : uchar Side; enum class Side : uchar {{ Left = 3 }};
struct Header {{ uchar tag; float4 body; }};
kernel void shared(device float *out [[buffer(SlotOut)]], constant int &two [[buffer(SlotTwo)]]) {{
  Slot slot = Slot(two / 2); out[0] = slot == SlotTwo; out[1] = int(Side::Left) + sizeof(Side) + sizeof(Slot);
  out[2] = offsetof(Header, body) * two;
}}

struct Limbs {{ uint v[2]; }};
struct Carried {{ Limbs limbs; uint carry; }};
Carried add(Limbs a, Limbs b) {{ Carried r; r.limbs.v[0] = a.v[0] + b.v[0]; r.limbs.v[1] = a.v[1] + b.v[1]; r.carry = 0; return r; }}
constexpr Limbs operator+(const Limbs a, const Limbs b) {{ Carried sum = add(a, b); return sum.limbs; }}
constexpr Limbs thrice(const Limbs a) {{ return a + a + a; }}
class Element {{
public:
  constexpr Element(uint v) : inner(v) {{}}
  constexpr Element operator+(const Element other) const {{ return Element(add(inner, other.inner)); }}
  constexpr void increase(uint by) {{ inner = add(inner, by); }}
  constexpr explicit operator uint() const {{ return inner; }}
private:
  uint inner;
  inline uint add(uint a, uint b) const {{ return a + b; }}
}};
constexpr uint twice(uint n) {{ return 2 * n; }}
constant float four[twice(2)] = {{1, 2, 3, 4}};
kernel void never_constant(device float *out, constant int &two [[buffer(1)]]) {{
  Limbs limbs = {{{{uint(two), 3}}}}; limbs = thrice(limbs); out[0] = limbs.v[0]; out[1] = limbs.v[1];
  Element element(two); element = element + element; element.increase(1); out[2] = uint(element); out[3] = four[two + 1];
}}
"""


@pytest.fixture(scope="module")
def library(dev: ost.Device) -> ost.Library:
    return dev.library(SOURCE)


LITERALS = [4, 2 * 11.5, 1.5, 4, 7, 4, 2 + 6, 9, 4, 5]
ROOTED = [3, 3, 1 + 8, 1, 7]
ENUMERATED = [1] * 10 + [5 + 3 + 10 + 4]
SHARED = [1, 3 + 1 + 4, 32]
NEVER_CONSTANT = [6, 9, 5, 4]
EXPECTED = {
    "literals": LITERALS,
    "rooted": ROOTED,
    "enumerated": ENUMERATED,
    "parameters": [2, 1],
    "overloads": [1, 4, 6, 9],
    "shared": SHARED,
    "never_constant": NEVER_CONSTANT,
}


@pytest.mark.parametrize(("name", "expected"), EXPECTED.items())
def test_a_spelling_has_its_meaning(dev: ost.Device, library: ost.Library, name: str, expected: list[float]) -> None:
    got = launch(dev, library[name], np.zeros(len(expected), np.float32), np.int32(2))
    assert got.tolist() == expected


CLANGS = f"""{HEAD}
enum Kind {{ first = 2, last = 5 }};
constant int table[5] = {{[1] = 3, [3] = 7, 8}};
struct Held {{ int v[4]; int w; }};
kernel void k(device int *out, device const int *x, uint i [[thread_position_in_grid]]) {{
  int t[3] = {{[1] = 3}}; int u[2][2] = {{[1] = {{[1] = 9}}}}; int w[] = {{[2] = 5, [0] = 1}}; int same[3] = {{[0 ... 2] = 2}};
  int r = 0;
  switch (x[i]) {{
    case 0: r = 1; break; case first ... last: r = 2; break; case 'a' ... 'c': r = 3; break; case -3 ... -1: r = 4; break;
    default: r = 5;
  }}
  out[i] = r + 10 * (t[0] + t[1] + t[2]) + 100 * u[1][1] + 1000 * (table[1] + table[3] + table[4] + table[0]) +
           100000 * w[2] + 1000000 * w[0] + 10000000 * (same[0] + same[2]) + 100000000 * (sizeof(w) / 4);
}}
"""


def test_ranges_of_cases_and_elements_by_index_are_those_of_clang(dev: ost.Device) -> None:
    x = np.array([0, 2, 3, 5, 6, 97, 99, -2, -4], np.int32)
    out = launch(dev, dev.library(CLANGS)["k"], np.zeros(9, np.int32), x, threads=9)
    np.testing.assert_array_equal(out, np.array([1, 2, 2, 2, 5, 3, 3, 4, 5]) + 341518930)
