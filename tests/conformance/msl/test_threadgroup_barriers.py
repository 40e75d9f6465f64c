"""Barriers: memory written before them is read after them, by all threads of a group that have not returned."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ostinato as ost
from launching import HEAD, launch

BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
PLACE = (
    "uint at [[thread_position_in_grid]], uint i [[thread_index_in_threadgroup]], "
    "uint n [[threads_per_threadgroup]], uint g [[threadgroup_position_in_grid]]"
)

SOURCE = f"""{HEAD}
float tree_sum(threadgroup float *t, uint i, uint n) {{
  for (uint half_ = 512; half_ > 0; half_ /= 2) {{ if (i < half_ && i + half_ < n) t[i] += t[i + half_]; {BARRIER} }}
  return t[0];
}}
kernel void reduce(device const float *in, device float *out, {PLACE}) {{
  threadgroup float t[1024]; t[i] = in[at]; {BARRIER}
  float sum = tree_sum(t, i, n); if (i == 0) out[g] = sum;
}}
kernel void two_level(device const float *in, device float *out, {PLACE}, uint lane [[thread_index_in_simdgroup]],
                      uint simdgroup [[simdgroup_index_in_threadgroup]], uint simdgroups [[simdgroups_per_threadgroup]]) {{
  threadgroup float parts[32]; float sum = simd_sum(in[at]); if (lane == 0) parts[simdgroup] = sum; {BARRIER}
  sum = simd_sum(lane < simdgroups ? parts[lane] : 0.0f); if (i == 0) out[g] = sum;
}}
kernel void scan(device int *x, {PLACE}) {{
  threadgroup int t[1024]; t[i] = x[at]; {BARRIER}
  for (uint step = 1; step < n; step *= 2) {{ int add = i >= step ? t[i - step] : 0; {BARRIER} t[i] += add; {BARRIER} }}
  x[at] = t[i];
}}
kernel void through_device(device int *x, device int *out, {PLACE}) {{
  x[at] = int(i) * 3; threadgroup_barrier(mem_flags::mem_device); out[at] = x[at - i + (i + 1) % n];
}}
kernel void returns_early(device const uint *limit, device uint *out, {PLACE}) {{
  threadgroup atomic_uint count; if (i == 0) atomic_store_explicit(&count, 0u, memory_order_relaxed); {BARRIER}
  if (i >= limit[g]) return;
  atomic_fetch_add_explicit(&count, 1u, memory_order_relaxed); {BARRIER}
  if (i % 2 == 1) return;
  {BARRIER}
  out[at] = atomic_load_explicit(&count, memory_order_relaxed);
}}
kernel void leaves_one_by_one(device uint *out, {PLACE}) {{
  threadgroup uint last; uint rounds = 0;
  for (;;) {{ {BARRIER} if (i == rounds) last = rounds; {BARRIER} if (last == i) {{ out[at] = rounds; return; }} ++rounds; }}
}}
void exchange_halves(threadgroup int *t, uint i, uint n) {{ int mine = t[(i + n / 2) % n]; {BARRIER} t[i] = mine; {BARRIER} }}
kernel void helpers(device int *x, {PLACE}) {{
  threadgroup int t[1024]; t[i] = x[at]; {BARRIER} for (int k = 0; k < 3; ++k) exchange_halves(t, i, n); x[at] = t[i];
}}
kernel void turns(device uint *out, constant uint &rounds, {PLACE}) {{
  threadgroup uint counter; if (i == 0) counter = 0; {BARRIER}
  for (uint k = 0; k < rounds; ++k) {{ if (k % n == i) counter += i + 1; {BARRIER} }}
  out[at] = counter;
}}
kernel void simd_barriers(device int *x, {PLACE}, uint lane [[thread_index_in_simdgroup]]) {{
  threadgroup int t[1024]; t[i] = x[at]; simdgroup_barrier(mem_flags::mem_threadgroup); x[at] = t[i ^ 1] + int(lane);
}}
kernel void flags(device int *x, {PLACE}) {{
  x[at] = 1; threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup); threadgroup_barrier(mem_flags::mem_none);
  threadgroup_barrier(mem_flags::mem_texture); atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst); x[at] += 1;
}}
kernel void kept_in_step(device const float *in, device float *out, constant uint &width, {PLACE}) {{
  float sum = 0;
  if (at % 32 < width) {{
    for (uint k = 0; k < 4; ++k) {{ threadgroup_barrier(mem_flags::mem_none); float part[2] = {{in[4 * at + k], k}}; sum += part[0]; }}
  }}
  for (uint step = 16; step > 0; step /= 2) sum += simd_shuffle_xor(sum, step);
  out[at] = sum;
}}
"""


@pytest.fixture(scope="module")
def library(dev: ost.Device) -> ost.Library:
    return dev.library(SOURCE)


@pytest.mark.parametrize("name", ["reduce", "two_level"])
@given(n=st.integers(1, 2500), size=st.integers(1, 1024))
@settings(max_examples=30, deadline=None)
def test_a_reduction_sums_each_group(dev: ost.Device, library: ost.Library, name: str, n: int, size: int) -> None:
    size = min(size, library[name].max_threads_per_group)
    x = np.random.default_rng(n).integers(-50, 50, n).astype(np.float32)
    got = launch(dev, library[name], x, np.zeros(-(-n // size), np.float32), threads=n, group_size=size)
    np.testing.assert_array_equal(got, np.add.reduceat(x, np.arange(0, n, size)))


@pytest.mark.parametrize("size", [1, 31, 256, 1024])
def test_a_scan_needs_two_barriers_a_step(dev: ost.Device, library: ost.Library, size: int) -> None:
    x = np.random.default_rng(1).integers(-9, 9, (3, size)).astype(np.int32)
    np.testing.assert_array_equal(launch(dev, library["scan"], x, threads=3 * size, group_size=size), x.cumsum(1))


def test_device_memory_is_ordered_within_a_group(dev: ost.Device, library: ost.Library) -> None:
    zeros = np.zeros((4, 200), np.int32)
    _, got = launch(dev, library["through_device"], zeros, zeros, threads=800, group_size=200)
    np.testing.assert_array_equal(got, np.tile((np.arange(200) + 1) % 200 * 3, (4, 1)))


@pytest.mark.parametrize("size", [32, 100, 1024])
def test_threads_that_returned_never_hold_up_a_barrier(dev: ost.Device, library: ost.Library, size: int) -> None:
    limit = np.array([0, 1, 5, size // 2, size], np.uint32)
    got = launch(
        dev, library["returns_early"], limit, np.zeros((5, size), np.uint32), threads=5 * size, group_size=size
    )
    at = np.arange(size)
    np.testing.assert_array_equal(got, [np.where((at < k) & (at % 2 == 0), k, 0) for k in limit])


def test_threads_may_leave_one_after_the_other(dev: ost.Device, library: ost.Library) -> None:
    got = launch(dev, library["leaves_one_by_one"], np.zeros(70, np.uint32), threads=70, group_size=70)
    np.testing.assert_array_equal(got, np.arange(70))


def test_barriers_inside_helpers_are_barriers(dev: ost.Device, library: ost.Library) -> None:
    x = np.arange(256, dtype=np.int32)
    np.testing.assert_array_equal(launch(dev, library["helpers"], x, threads=256, group_size=256), np.roll(x, 128))


@pytest.mark.parametrize("size", [1, 33, 1024])
def test_hundreds_of_barriers_keep_the_threads_in_step(dev: ost.Device, library: ost.Library, size: int) -> None:
    got = launch(dev, library["turns"], np.zeros(size, np.uint32), 700, threads=size, group_size=size)
    np.testing.assert_array_equal(got, sum(k % size + 1 for k in range(700)))


def test_a_simdgroup_barrier_orders_a_simdgroup(dev: ost.Device, library: ost.Library) -> None:
    x = np.arange(128, dtype=np.int32) * 10
    got = launch(dev, library["simd_barriers"], x, threads=128, group_size=64)
    np.testing.assert_array_equal(got, x.reshape(-1, 2)[:, ::-1].reshape(-1) + np.arange(128) % 32)


def test_every_memory_flag_is_accepted(dev: ost.Device, library: ost.Library) -> None:
    np.testing.assert_array_equal(launch(dev, library["flags"], np.zeros(100, np.int32), threads=100), 2)


@pytest.mark.parametrize("width", [3, 32])
def test_lanes_may_skip_a_loop_with_a_barrier_that_orders_nothing(
    dev: ost.Device, library: ost.Library, width: int
) -> None:
    x = np.random.default_rng(width).integers(-50, 50, (2, 32, 4)).astype(np.float32)
    got = launch(dev, library["kept_in_step"], x, np.zeros(64, np.float32), width, threads=64, group_size=64)
    np.testing.assert_array_equal(got, x[:, :width].sum((1, 2)).repeat(32))
