"""Simdgroup matrices: loading and storing in every way, the layout over the lanes, products of every element type."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ostinato as ost
from launching import HEAD, launch

DTYPES: dict[str, Any] = {"float": np.float32, "half": np.float16, "bfloat": ml_dtypes.bfloat16}
# The types of a, b and of the accumulator.
PRODUCTS = [("float", "float"), ("half", "half"), ("half", "float"), ("bfloat", "float"), ("bfloat", "bfloat")]

SOURCE = f"""{HEAD}
#include <metal_simdgroup_matrix>
template <typename T> kernel void copies(device const T *in, device T *out) {{
  simdgroup_matrix<T, 8, 8> m;
  simdgroup_load(m, in); simdgroup_store(m, out);
  simdgroup_load(m, in, 16); simdgroup_store(m, out + 64, 8);
  simdgroup_load(m, in, 16, ulong2(4, 2)); simdgroup_store(m, out + 128, 8);
  simdgroup_load(m, in, 16, ulong2(0, 0), true); simdgroup_store(m, out + 192);
  simdgroup_load(m, in, 16); simdgroup_store(m, out + 256, 8, ulong2(0, 0), true);
  simdgroup_load(m, in, 16); simdgroup_store(m, out + 320, 16, ulong2(8, 1));
  simdgroup_load(m, in + 3, 16, ulong2(1, 1), true); simdgroup_store(m, out + 512, 8, ulong2(0, 0), false);
}}
template [[host_name("copies_float")]] kernel void copies<float>(device const float *, device float *);
template [[host_name("copies_half")]] kernel void copies<half>(device const half *, device half *);
template [[host_name("copies_bfloat")]] kernel void copies<bfloat>(device const bfloat *, device bfloat *);

template <typename T, typename A> kernel void products(device const T *a, device const T *b, device const A *c, device A *out) {{
  simdgroup_matrix<T, 8, 8> x, y; simdgroup_matrix<A, 8, 8> z, d;
  simdgroup_load(x, a); simdgroup_load(y, b); simdgroup_load(z, c);
  simdgroup_multiply_accumulate(d, x, y, z); simdgroup_store(d, out);
  simdgroup_multiply_accumulate(z, x, y, z); simdgroup_multiply_accumulate(z, x, y, z); simdgroup_store(z, out + 64);
}}
#define PRODUCT(t, a) template [[host_name("products_" #t "_" #a)]] kernel void products<t, a>(device const t *, device const t *, device const a *, device a *);
{" ".join(f"PRODUCT({t}, {a})" for t, a in PRODUCTS)}

kernel void others(device const float *a, device const float *b, device float *out, ushort lane [[thread_index_in_simdgroup]]) {{
  simdgroup_float8x8 x, y, d; simdgroup_load(x, a); simdgroup_load(y, b);
  simdgroup_multiply(d, x, y); simdgroup_store(d, out);
  simdgroup_store(x * y, out + 64);
  simdgroup_float8x8 filled = make_filled_simdgroup_matrix<float, 8, 8>(2.5f); simdgroup_store(filled, out + 128);
  simdgroup_store(simdgroup_float8x8(3), out + 192);
  simdgroup_float8x8 zero(0); simdgroup_store(zero, out + 256);
  x.thread_elements()[0] *= 2; x.thread_elements()[1] = -1; simdgroup_store(x, out + 320);
  simdgroup_half8x8 h; h.thread_elements() = half2(lane, lane + 0.5h); simdgroup_half8x8 g = h;
  out[384 + 2 * lane] = g.thread_elements().x; out[385 + 2 * lane] = g.thread_elements()[1];
}}
kernel void layout(device const float *a, device float2 *out, ushort lane [[thread_index_in_simdgroup]]) {{
  simdgroup_float8x8 x; simdgroup_load(x, a); out[lane] = x.thread_elements();
}}
kernel void through_threadgroup(device const half *a, device half *out, uint i [[thread_index_in_threadgroup]]) {{
  threadgroup half tile[8 * 12]; for (uint k = i; k < 96; k += 32) tile[k] = a[k];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_half8x8 m; simdgroup_load(m, tile, 12, ulong2(3, 0)); simdgroup_barrier(mem_flags::mem_threadgroup);
  threadgroup half back[64]; simdgroup_store(m, back, 8, 0, true);
  threadgroup_barrier(mem_flags::mem_threadgroup); out[i] = back[i]; out[i + 32] = back[i + 32];
}}
// C = A B for row-major matrices whose sides are multiples of 8; each simdgroup makes a tile of 8 by 16.
kernel void matmul(device const half *A, device const half *B, device float *C, constant uint3 &size, uint2 group [[threadgroup_position_in_grid]],
                   uint simdgroup [[simdgroup_index_in_threadgroup]]) {{
  const uint M = size.x, N = size.y, K = size.z, row = group.y * 8, column = (group.x * 2 + simdgroup) * 16;
  if (row >= M || column >= N) return;
  simdgroup_float8x8 acc[2];
  #pragma clang loop unroll(full)
  for (int j = 0; j < 2; ++j) acc[j] = make_filled_simdgroup_matrix<float, 8>(0.f);
  for (uint k = 0; k < K; k += 8) {{
    simdgroup_half8x8 a; simdgroup_load(a, A + row * K + k, K);
    for (int j = 0; j < 2; ++j) {{
      simdgroup_half8x8 b; simdgroup_load(b, B + k * N + column + 8 * j, N);
      simdgroup_multiply_accumulate(acc[j], a, b, acc[j]);
    }}
  }}
  for (int j = 0; j < 2; ++j) simdgroup_store(acc[j], C + row * N + column + 8 * j, N);
}}
"""


@pytest.fixture(scope="module")
def library(dev: ost.Device) -> ost.Library:
    return dev.library(SOURCE)


@pytest.mark.parametrize("name", DTYPES)
def test_tiles_are_loaded_and_stored_with_stride_origin_and_transposition(
    dev: ost.Device, library: ost.Library, name: str
) -> None:
    x = (np.arange(16 * 16) % 251).astype(DTYPES[name])
    got = launch(dev, library[f"copies_{name}"], x, np.zeros(576, x.dtype), threads=32, group_size=32).astype(
        np.float64
    )
    wide, tile = x.astype(np.float64).reshape(16, 16), x[:64].astype(np.float64).reshape(8, 8)
    tiles = [got[k : k + 64].reshape(8, 8) for k in (0, 64, 128, 192, 256)]
    expected = [tile, wide[:8, :8], wide[2:10, 4:12], wide[:8, :8].T, wide[:8, :8].T]
    for k, (mine, theirs) in enumerate(zip(tiles, expected, strict=True)):
        np.testing.assert_array_equal(mine, theirs, err_msg=f"tile {k}")
    board = np.zeros((12, 16))
    board[1:9, 8:16] = wide[:8, :8]
    np.testing.assert_array_equal(got[320:512].reshape(12, 16), board)
    np.testing.assert_array_equal(got[512:576].reshape(8, 8), wide[1:9, 4:12].T)


@pytest.mark.parametrize(("operands", "accumulator"), PRODUCTS)
def test_products_accumulate(dev: ost.Device, library: ost.Library, operands: str, accumulator: str) -> None:
    random = np.random.default_rng(3)
    a, b = random.integers(-2, 3, (2, 8, 8)).astype(DTYPES[operands])
    c = random.integers(-5, 6, (8, 8)).astype(DTYPES[accumulator])
    out = np.zeros((2, 8, 8), DTYPES[accumulator])
    got = launch(dev, library[f"products_{operands}_{accumulator}"], a, b, c, out, threads=32, group_size=32)
    product, start = a.astype(np.float64) @ b.astype(np.float64), c.astype(np.float64)
    np.testing.assert_array_equal(got.astype(np.float64), [product + start, 2 * product + start])


def test_real_products_lose_no_more_than_float_does(dev: ost.Device, library: ost.Library) -> None:
    a, b, c = np.random.default_rng(3).normal(size=(3, 8, 8)).astype(np.float32)
    got = launch(
        dev, library["products_float_float"], a, b, c, np.zeros((2, 8, 8), np.float32), threads=32, group_size=32
    )
    np.testing.assert_allclose(got[0], a.astype(np.float64) @ b + c, rtol=1e-5, atol=1e-5)


def lane_layout() -> tuple[Any, Any]:
    """Row and first column of each lane on Apple GPUs."""
    lane = np.arange(32)
    quad = lane // 4
    return (quad & 4) + lane // 2 % 4, (quad & 2) * 2 + lane % 2 * 2


def test_each_lane_holds_two_neighbours_of_a_row(dev: ost.Device, library: ost.Library) -> None:
    a = np.arange(64, dtype=np.float32).reshape(8, 8)
    got = launch(dev, library["layout"], a, np.zeros((32, 2), np.float32), threads=32, group_size=32)
    row, column = lane_layout()
    np.testing.assert_array_equal(got, np.stack([a[row, column], a[row, column + 1]], 1))


def test_multiply_fill_diagonal_and_elements(dev: ost.Device, library: ost.Library) -> None:
    a, b = np.random.default_rng(4).integers(-3, 4, (2, 8, 8)).astype(np.float32)
    got = launch(dev, library["others"], a, b, np.zeros(448, np.float32), threads=32, group_size=32)
    changed = a.copy()
    changed[:, ::2] *= 2
    changed[:, 1::2] = -1
    expected = [a @ b, a @ b, np.full((8, 8), 2.5), 3 * np.eye(8), np.zeros((8, 8)), changed]
    for k, theirs in enumerate(expected):
        np.testing.assert_array_equal(got[64 * k : 64 * k + 64].reshape(8, 8), theirs, err_msg=f"tile {k}")
    lane = np.arange(32)
    np.testing.assert_array_equal(got[384:].reshape(32, 2), np.stack([lane, lane + 0.5], 1))


def test_tiles_come_from_threadgroup_memory(dev: ost.Device, library: ost.Library) -> None:
    a = np.arange(96, dtype=np.float16)
    got = launch(dev, library["through_threadgroup"], a, np.zeros((8, 8), np.float16), threads=32, group_size=32)
    np.testing.assert_array_equal(got, a.reshape(8, 12)[:, 3:11].T)


@pytest.mark.parametrize("size", [(8, 16, 8), (24, 80, 40), (64, 64, 64)])
def test_a_tiled_product_of_matrices(dev: ost.Device, library: ost.Library, size: tuple[int, int, int]) -> None:
    m, n, k = size
    random = np.random.default_rng(5)
    a, b = random.integers(-3, 4, (m, k)).astype(np.float16), random.integers(-3, 4, (k, n)).astype(np.float16)
    size_bytes = np.array([*size, 0], np.uint32)
    groups = (-(-n // 32), m // 8)
    got = launch(dev, library["matmul"], a, b, np.zeros((m, n), np.float32), size_bytes, groups=groups, group_size=64)
    np.testing.assert_array_equal(got, a.astype(np.float64) @ b)


def test_a_sum_that_is_used_twice_keeps_its_value(dev: ost.Device) -> None:
    library = dev.library(f"""{HEAD}
#include <metal_simdgroup_matrix>
kernel void pairs(device const float *in, device float *out, constant uint &rounds) {{
  simdgroup_float8x8 a, b, first(0.0f), second(0.0f);
  simdgroup_load(a, in); simdgroup_load(b, in + 64); simdgroup_load(first, in + 128);
  for (uint round = 0; round < rounds; ++round) {{
    simdgroup_float8x8 next;
    simdgroup_multiply_accumulate(next, a, b, first);
    simdgroup_multiply_accumulate(second, b, a, first);
    first = next;
  }}
  simdgroup_store(first, out); simdgroup_store(second, out + 64);
}}""")
    a, b, first = values = np.random.default_rng(5).integers(-4, 5, (3, 8, 8)).astype(np.float32)
    second = np.zeros_like(a)
    for _ in range(3):
        first, second = a @ b + first, b @ a + first
    got = launch(dev, library["pairs"], values, np.zeros((2, 8, 8), np.float32), 3, threads=32, group_size=32)
    np.testing.assert_array_equal(got, [first, second])
