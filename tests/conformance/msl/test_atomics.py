"""Atomics in device and threadgroup memory: int, uint and float, under contention of many groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ostinato as ost
from launching import HEAD, launch

RELAXED = "memory_order_relaxed"

SOURCE = f"""{HEAD}
template <typename T> kernel void contend(device const T *in, device metal::atomic<T> *out, uint i [[thread_position_in_grid]]) {{
  atomic_fetch_add_explicit(&out[0], in[i], {RELAXED}); atomic_fetch_sub_explicit(&out[1], in[i], {RELAXED});
}}
template [[host_name("contend_int")]] kernel void contend<int>(device const int *, device metal::atomic<int> *, uint);
template [[host_name("contend_uint")]] kernel void contend<uint>(device const uint *, device metal::atomic<uint> *, uint);
template [[host_name("contend_float")]] kernel void contend<float>(device const float *, device metal::atomic<float> *, uint);

template <typename T> kernel void extremes(device const T *in, device metal::atomic<T> *out, uint i [[thread_position_in_grid]]) {{
  atomic_fetch_min_explicit(&out[0], in[i], {RELAXED}); atomic_fetch_max_explicit(&out[1], in[i], {RELAXED});
  atomic_fetch_and_explicit(&out[2], in[i], {RELAXED}); atomic_fetch_or_explicit(&out[3], in[i], {RELAXED});
  atomic_fetch_xor_explicit(&out[4], in[i], {RELAXED});
}}
template [[host_name("extremes_int")]] kernel void extremes<int>(device const int *, device metal::atomic<int> *, uint);
template [[host_name("extremes_uint")]] kernel void extremes<uint>(device const uint *, device metal::atomic<uint> *, uint);

kernel void tickets(device atomic_uint *next, device uint *taken, uint i [[thread_position_in_grid]]) {{
  taken[atomic_fetch_add_explicit(next, 1u, {RELAXED})] = i + 1;
}}
kernel void returned_values(device atomic_int *a, device int *out) {{
  out[0] = atomic_fetch_add_explicit(a, 5, {RELAXED}); out[1] = atomic_fetch_sub_explicit(a, 1, {RELAXED});
  out[2] = atomic_fetch_max_explicit(a, 100, {RELAXED}); out[3] = atomic_fetch_min_explicit(a, -7, {RELAXED});
  out[4] = atomic_exchange_explicit(a, 12, {RELAXED}); out[5] = atomic_fetch_or_explicit(a, 3, {RELAXED});
  out[6] = atomic_fetch_and_explicit(a, 9, {RELAXED}); out[7] = atomic_fetch_xor_explicit(a, 1, {RELAXED});
  atomic_store_explicit(a, atomic_load_explicit(a, {RELAXED}) * 2, {RELAXED}); out[8] = atomic_load_explicit(a, {RELAXED});
  int expected = 5; out[9] = atomic_compare_exchange_weak_explicit(a, &expected, 77, {RELAXED}, {RELAXED}); out[10] = expected;
  while (!atomic_compare_exchange_weak_explicit(a, &expected, 77, {RELAXED}, {RELAXED})) {{}} out[11] = atomic_load_explicit(a, {RELAXED});
}}
kernel void multiply(device atomic_uint *product, device const uint *in, uint i [[thread_position_in_grid]]) {{
  uint seen = atomic_load_explicit(product, {RELAXED});
  while (!atomic_compare_exchange_weak_explicit(product, &seen, seen * in[i], {RELAXED}, {RELAXED})) {{}}
}}
kernel void float_max(device atomic_uint *bits, device const float *in, uint i [[thread_position_in_grid]]) {{
  uint seen = atomic_load_explicit(bits, {RELAXED});
  while (as_type<float>(seen) < in[i] &&
         !atomic_compare_exchange_weak_explicit(bits, &seen, as_type<uint>(in[i]), {RELAXED}, {RELAXED})) {{}}
}}
kernel void histogram(device const uchar *in, device atomic_uint *bins, constant uint &n, uint i [[thread_position_in_grid]],
                      uint t [[thread_index_in_threadgroup]], uint size [[threads_per_threadgroup]]) {{
  threadgroup atomic_uint local[256];
  for (uint b = t; b < 256; b += size) atomic_store_explicit(&local[b], 0, {RELAXED});
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (i < n) atomic_fetch_add_explicit(local + in[i], 1, {RELAXED});
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint b = t; b < 256; b += size)
    if (uint count = atomic_load_explicit(&local[b], {RELAXED})) atomic_fetch_add_explicit(&bins[b], count, {RELAXED});
}}
struct Shared {{ atomic_int count; float value; }};
kernel void in_a_struct(device Shared *s, volatile device atomic_uint *v, uint i [[thread_position_in_grid]]) {{
  atomic_fetch_add_explicit(&s->count, 1, {RELAXED}); atomic_fetch_add_explicit(v, 2u, {RELAXED}); if (i == 0) s->value = 1.5;
}}
kernel void threadgroup_floats(device float *out, uint g [[threadgroup_position_in_grid]], uint i [[thread_index_in_threadgroup]]) {{
  threadgroup atomic_float sum; if (i == 0) atomic_store_explicit(&sum, 0.0f, {RELAXED});
  threadgroup_barrier(mem_flags::mem_threadgroup); atomic_fetch_add_explicit(&sum, 0.5f, {RELAXED});
  threadgroup_barrier(mem_flags::mem_threadgroup); if (i == 0) out[g] = atomic_load_explicit(&sum, {RELAXED});
}}
// The last group to arrive adds up what the others left.
kernel void last_group(device const float *in, device float *parts, device atomic_uint *arrived, device float *out,
                       uint at [[thread_position_in_grid]], uint i [[thread_index_in_threadgroup]],
                       uint g [[threadgroup_position_in_grid]], uint groups [[threadgroups_per_grid]]) {{
  threadgroup bool last; float sum = simd_sum(in[at]);
  if (i == 0) {{ parts[g] = sum; atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
                 last = atomic_fetch_add_explicit(arrived, 1u, {RELAXED}) == groups - 1; }}
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (last && i == 0) {{ float all = 0; for (uint k = 0; k < groups; ++k) all += parts[k]; out[0] = all; }}
}}
"""


@pytest.fixture(scope="module")
def library(dev: ost.Device) -> ost.Library:
    return dev.library(SOURCE)


@pytest.mark.parametrize(("name", "dtype"), [("int", np.int32), ("uint", np.uint32), ("float", np.float32)])
def test_sums_survive_contention(dev: ost.Device, library: ost.Library, name: str, dtype: Any) -> None:
    x = np.random.default_rng(1).integers(0, 50, 100_000).astype(dtype)
    got = launch(dev, library[f"contend_{name}"], x, np.zeros(2, dtype), threads=len(x), group_size=64)
    total = int(x.sum())
    np.testing.assert_array_equal(got, np.array([total, -total], np.int64).astype(dtype))


@pytest.mark.parametrize(("name", "dtype"), [("int", np.int32), ("uint", np.uint32)])
def test_extremes_and_bits_survive_contention(dev: ost.Device, library: ost.Library, name: str, dtype: Any) -> None:
    x = np.frombuffer(np.random.default_rng(2).bytes(4 * 20_000), dtype).copy() | dtype(8)
    info = np.iinfo(dtype)
    start = np.array([info.max, info.min, -1 if info.min else info.max, 0, 0], dtype)
    got = launch(dev, library[f"extremes_{name}"], x, start, threads=len(x), group_size=100)
    expected = [x.min(), x.max(), np.bitwise_and.reduce(x), np.bitwise_or.reduce(x), np.bitwise_xor.reduce(x)]
    np.testing.assert_array_equal(got, expected)


def test_every_ticket_is_given_once(dev: ost.Device, library: ost.Library) -> None:
    _, taken = launch(dev, library["tickets"], np.zeros(1, np.uint32), np.zeros(50_000, np.uint32), threads=50_000)
    np.testing.assert_array_equal(np.sort(taken), np.arange(1, 50_001))


def test_operations_return_what_was_there_before(dev: ost.Device, library: ost.Library) -> None:
    _, got = launch(dev, library["returned_values"], np.array([10], np.int32), np.zeros(12, np.int32))
    np.testing.assert_array_equal(got, [10, 15, 14, 100, -7, 12, 15, 9, 16, 0, 16, 77])


def test_a_compare_exchange_loop_makes_any_operation_atomic(dev: ost.Device, library: ost.Library) -> None:
    x = np.random.default_rng(3).integers(0, 2**31, 20_000).astype(np.uint32) | np.uint32(1)
    got = launch(dev, library["multiply"], np.array([1], np.uint32), x, threads=len(x), group_size=32)
    assert got[0] == np.multiply.reduce(x, dtype=np.uint32)
    y = np.random.default_rng(4).normal(size=20_000).astype(np.float32)
    got = launch(
        dev, library["float_max"], np.array([-np.inf], np.float32).view(np.uint32), y, threads=len(y), group_size=32
    )
    assert got.view(np.float32)[0] == y.max()


@pytest.mark.parametrize("size", [32, 200, 1024])
def test_a_histogram_of_groups_is_the_histogram(dev: ost.Device, library: ost.Library, size: int) -> None:
    x = np.random.default_rng(5).integers(0, 256, 30_000).astype(np.uint8)
    got = launch(dev, library["histogram"], x, np.zeros(256, np.uint32), len(x), threads=len(x), group_size=size)
    np.testing.assert_array_equal(got, np.bincount(x, minlength=256))


def test_atomics_live_in_structs_and_behind_volatile_pointers(dev: ost.Device, library: ost.Library) -> None:
    struct, plain = launch(dev, library["in_a_struct"], np.zeros(8, np.uint8), np.zeros(1, np.uint32), threads=5000)
    assert (struct.view(np.int32)[0], struct.view(np.float32)[1], plain[0]) == (5000, 1.5, 10_000)


def test_threadgroup_floats_add_up(dev: ost.Device, library: ost.Library) -> None:
    got = launch(dev, library["threadgroup_floats"], np.zeros(20, np.float32), threads=20 * 96, group_size=96)
    np.testing.assert_array_equal(got, 48)


def test_the_last_group_sees_what_all_others_wrote(dev: ost.Device, library: ost.Library) -> None:
    x = np.random.default_rng(6).integers(0, 9, 32 * 500).astype(np.float32)
    parts = np.zeros(500, np.float32)
    _, _, out = launch(
        dev,
        library["last_group"],
        x,
        parts,
        np.zeros(1, np.uint32),
        np.zeros(1, np.float32),
        threads=len(x),
        group_size=32,
    )
    assert out[0] == x.sum()
