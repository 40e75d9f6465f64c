"""Null pointers: as values, in comparisons and as defaults; and kernels that read through one what they do not use, as a
GPU of Apple lets them."""

from __future__ import annotations

import numpy as np
import pytest

import ostinato as ost
from launching import HEAD, launch

SOURCE = f"""{HEAD}
// Sorts eight values per thread and merges them with those of its neighbour, as libraries do it: with the numbers of the
// values, or without, and then the array of numbers is null.
template <bool NUMBERED> struct Sort {{
  static void sort(thread float (&values)[8], thread uint (&numbers)[8]) {{
    for (uint i = 0; i < 8; ++i)
      for (uint j = i & 1; j < 7; j += 2)
        if (values[j + 1] < values[j]) {{
          const float value = values[j]; values[j] = values[j + 1]; values[j + 1] = value;
          const uint number = numbers[j]; numbers[j] = numbers[j + 1]; numbers[j + 1] = number;
        }}
  }}
  static void merge(threadgroup const float *a, threadgroup const float *b, threadgroup const uint *a_numbers,
                    threadgroup const uint *b_numbers, thread float (&values)[8], thread uint (&numbers)[8]) {{
    uint at_a = 0, at_b = 0;
    for (uint i = 0; i < 8; ++i) {{
      const bool second = b[at_b] < a[at_a];
      values[i] = second ? b[at_b] : a[at_a];
      numbers[i] = second ? b_numbers[at_b] : a_numbers[at_a];
      at_a += !second, at_b += second;
    }}
  }}
}};
template <bool NUMBERED> kernel void least(device const float *in, device float *out, device uint *where,
                                           uint t [[thread_index_in_threadgroup]]) {{
  threadgroup float all[256];
  threadgroup uint all_numbers[256];
  float values[8];
  uint numbers[8];
  for (uint i = 0; i < 8; ++i) {{
    values[i] = in[t * 8 + i];
    if (NUMBERED) numbers[i] = t * 8 + i;
  }}
  Sort<NUMBERED>::sort(values, numbers);
  for (uint i = 0; i < 8; ++i) {{
    all[t * 8 + i] = values[i];
    if (NUMBERED) all_numbers[t * 8 + i] = numbers[i];
  }}
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint a = t * 8, b = (t ^ 1) * 8;
  threadgroup const uint *a_numbers = NUMBERED ? all_numbers + a : nullptr, *b_numbers = NUMBERED ? all_numbers + b : nullptr;
  Sort<NUMBERED>::merge(all + a, all + b, a_numbers, b_numbers, values, numbers);
  for (uint i = 0; i < 8; ++i) {{
    out[t * 8 + i] = values[i];
    if (NUMBERED) where[t * 8 + i] = numbers[i];
  }}
}}
template [[host_name("unnumbered")]] kernel void least<false>(device const float *, device float *, device uint *, uint);
template [[host_name("numbered")]] kernel void least<true>(device const float *, device float *, device uint *, uint);

struct Pair {{ device const float *x = nullptr; thread const float *y; Pair(device const float *a) : x(a), y(nullptr) {{}} }};
struct Plain {{ int n; device const float *x; }};
device const float *first(device const float *x, bool any) {{ if (!any) return nullptr; return x; }}
float or_one(device const float *x) {{ return x != nullptr ? x[0] : 1; }}
float or_two(device const float *x = nullptr) {{ return x ? x[0] : 2; }}
template <typename T, enable_if_t<is_floating_point_v<T>, int> * = nullptr> float kind(T) {{ return 4; }}
template <typename T, enable_if_t<is_integral_v<T>, int> * = nullptr> float kind(T) {{ return 5; }}
constant constexpr device const float *nothing = nullptr;

template <typename P> float is_null(P p) {{ return p == nullptr && !bool(p); }}
float taken(decltype(nullptr)) {{ return 1; }}
float taken(device const float *x) {{ return 2; }}
kernel void of_no_type(device float *out) {{
  const auto p = nullptr;
  decltype(nullptr) q = nullptr;
  bool never(nullptr);
  out[0] = p == nullptr && nullptr == p && p == q && !(p != nullptr) && out != p;
  out[1] = !never && !bool(nullptr) && !static_cast<bool>(q);
  out[2] = is_null(nullptr) + is_null(q) + is_null(out);
  out[3] = taken(nullptr) + 10 * taken(q) + 100 * taken(out);
}}

kernel void spelled(device const float *x, device float *out, constant int &two [[buffer(2)]]) {{
  device const float *p = nullptr, *q{{nullptr}};
  out[0] = p == nullptr && nullptr == q && !p && p == q;
  out[1] = or_one(nullptr) + or_two() + or_one(x);
  out[2] = first(x, two > 2) == nullptr && first(x, two == 2) != nullptr;
  p = two == 2 ? x : nullptr;
  out[3] = p[1];
  Pair pair(nullptr);
  out[4] = pair.x == nullptr && pair.y == nullptr && Plain{{3, nullptr}}.x == nullptr;
  out[5] = kind(1.0f) + kind(two);
  out[6] = (device const float *)nullptr == static_cast<device const float *>(nullptr) && nothing == nullptr;
  p = nullptr;
  out[7] = p ? *p : or_one(NULL);
  threadgroup float *shared = nullptr;
  out[8] = is_same_v<decltype(shared), threadgroup float *> && shared == nullptr;
}}
"""


@pytest.fixture(scope="module")
def library(dev: ost.Device) -> ost.Library:
    return dev.library(SOURCE)


def test_null_pointers_are_written_as_in_metal(dev: ost.Device, library: ost.Library) -> None:
    out = dev.zeros(9, np.float32)
    launch(dev, library["spelled"], dev.array(np.array([8, 9], np.float32)), out, 2, threads=1)
    assert out.numpy().tolist() == [1, 1 + 2 + 8, 1, 9, 1, 4 + 5, 1, 1, 1]


def test_a_null_pointer_of_no_type_is_false_and_compared(dev: ost.Device, library: ost.Library) -> None:
    assert launch(dev, library["of_no_type"], np.zeros(4, np.float32)).tolist() == [1, 1, 2, 211]


@pytest.mark.parametrize("name", ["unnumbered", "numbered"])
def test_what_is_read_through_a_null_pointer_does_not_matter_if_nobody_uses_it(
    dev: ost.Device, library: ost.Library, name: str
) -> None:
    """A compiler may otherwise take it that such code never runs."""
    values = np.random.default_rng(4).random((16, 16), np.float32)
    out, where = dev.zeros((16, 2, 8), np.float32), dev.zeros((16, 2, 8), np.uint32)
    launch(dev, library[name], dev.array(values.reshape(-1)), out, where, threads=32, group_size=32)
    places = np.argsort(values, axis=1)[:, None, :8] + np.arange(16)[:, None, None] * 16
    np.testing.assert_array_equal(out.numpy(), np.broadcast_to(values.reshape(-1)[places], out.shape))
    np.testing.assert_array_equal(where.numpy(), np.broadcast_to(places, out.shape) if name == "numbered" else 0)
