"""Products in the shapes that tensor cores take, in types and sizes where every sum is exact; lanes beside matrices.

Small integers are multiplied, so that any order of additions gives the same bits.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ostinato as ost
from launching import HEAD, launch
from op_cases import run
from ostinato import ops

DTYPES: dict[str, Any] = {"half": np.float16, "bfloat": ml_dtypes.bfloat16, "float": np.float32}
FLAGS = {False: "false", True: "true"}
# Rows and columns of a product, and the simdgroups that make it: warpgroups of Hopper can make all but the last two.
SCOPES = [(64, 32, 4), (128, 128, 8), (32, 64, 4), (48, 32, 1)]

TENSORS = f"""{HEAD}
#include <metal_tensor>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
using namespace mpp::tensor_ops;
template <typename T, typename C, int M, int N, int S, bool turn_left, bool turn_right>
kernel void deep(device const T *a, device const T *b, device C *c, constant int4 &size, uint2 group [[threadgroup_position_in_grid]]) {{
  const int rows = size.x, columns = size.y, depth = size.z;
  auto left = tensor(a, dextents<int, 2>(turn_left ? rows : depth, turn_left ? depth : rows));
  auto right = tensor(b, dextents<int, 2>(turn_right ? depth : columns, turn_right ? columns : depth));
  auto whole = tensor(c, dextents<int, 2>(columns, rows));
  matmul2d<matmul2d_descriptor(M, N, static_cast<int>(dynamic_extent), turn_left, turn_right, false,
                               matmul2d_descriptor::mode::multiply_accumulate), execution_simdgroups<S>> op;
  const int row = group.y * M, column = group.x * N;
  auto x = left.slice(turn_left ? row : 0, turn_left ? 0 : row);
  auto y = right.slice(turn_right ? 0 : column, turn_right ? column : 0);
  auto to = op.template get_destination_cooperative_tensor<decltype(x), decltype(y), C>();
  to.load(whole.slice(column, row));
  op.run(x, y, to);
  op.run(x, y, to);
  to.store(whole.slice(column, row));
}}
#define DEEP(t, c, m, n, s, l, r) template [[host_name("deep_" #t "_" #c "_" #m "_" #n "_" #l #r)]] \\
  kernel void deep<t, c, m, n, s, l, r>(device const t *, device const t *, device c *, constant int4 &, uint2);
{" ".join(f"DEEP(bfloat, float, {m}, {n}, {s}, false, true)" for m, n, s in SCOPES)}
DEEP(half, half, 64, 32, 4, false, false) DEEP(half, half, 64, 32, 4, true, true) DEEP(half, half, 64, 32, 4, true, false)
"""

MATRICES = f"""{HEAD}
#include <metal_simdgroup_matrix>
// 16 rows and 24 columns of a product; sums are looked at and changed on the way, as each lane holds them.
template <typename T> kernel void blocked(device const T *a, device const T *b, device float *c, constant uint &depth,
                                          ushort lane [[thread_index_in_simdgroup]]) {{
  simdgroup_matrix<float, 8, 8> sums[2][3];
  for (int i = 0; i < 2; ++i) for (int j = 0; j < 3; ++j) sums[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(1.0f);
  for (uint k = 0; k < depth; k += 16) {{
    #pragma unroll
    for (uint part = 0; part < 16; part += 8) {{
      simdgroup_matrix<T, 8, 8> x[2], y[3];
      for (int i = 0; i < 2; ++i) simdgroup_load(x[i], a + i * 8 * depth + k + part, depth);
      for (int j = 0; j < 3; ++j) simdgroup_load(y[j], b + j * 8 * depth + k + part, depth, ulong2(0, 0), true);
      for (int i = 0; i < 2; ++i) for (int j = 0; j < 3; ++j) simdgroup_multiply_accumulate(sums[i][j], x[i], y[j], sums[i][j]);
    }}
    if (k == 16) for (int j = 0; j < 3; ++j) sums[1][j].thread_elements()[1] += lane;
  }}
  for (int i = 0; i < 2; ++i) for (int j = 0; j < 3; ++j) simdgroup_store(sums[i][j], c + i * 8 * 24 + j * 8, 24);
}}
#define BLOCKED(t) template [[host_name("blocked_" #t)]] kernel void blocked<t>(device const t *, device const t *, device float *, constant uint &, ushort);
BLOCKED(half) BLOCKED(bfloat) BLOCKED(float)
"""

# What threads know of their lanes and of each other. In a source with matrices it must be the same as in one without.
LANES = f"""{HEAD}
kernel void lanes(device uint *out, uint place [[thread_position_in_threadgroup]], uint i [[thread_index_in_threadgroup]],
                  uint g [[thread_position_in_grid]], ushort lane [[thread_index_in_simdgroup]], ushort quad [[thread_index_in_quadgroup]],
                  ushort simdgroup [[simdgroup_index_in_threadgroup]]) {{
  device uint *to = out + g * 24;
  const uint v = i * 7 + 3;
  to[0] = place; to[1] = i; to[2] = lane; to[3] = quad; to[4] = simdgroup;
  to[5] = simd_sum(v); to[6] = simd_max(v); to[7] = simd_prefix_exclusive_sum(v); to[8] = simd_prefix_inclusive_product(v | 1);
  to[9] = simd_shuffle(v, (lane * 5 + 1) % 32); to[10] = simd_shuffle_xor(v, 6); to[11] = simd_shuffle_up(v, 3);
  to[12] = simd_shuffle_down(v, 2); to[13] = simd_shuffle_rotate_down(v, 5); to[14] = simd_broadcast_first(v);
  to[15] = uint(uint64_t(simd_ballot(v % 3 == 0))); to[16] = uint(uint64_t(simd_active_threads_mask())); to[17] = simd_is_first();
  to[18] = quad_sum(v); to[19] = quad_shuffle_xor(v, 1); to[20] = quad_prefix_exclusive_sum(v); to[21] = uint(uint64_t(quad_ballot(v % 5 < 2)));
  uint some = 0;
  if (lane % 3 == 1) some = simd_sum(v) + simd_broadcast_first(v) + (simd_is_first() ? 1000000 : 0);
  to[22] = some; to[23] = simd_shuffle_and_fill_up(v, v + 100, 4);
}}"""
MENTIONED = "inline void unused(thread simdgroup_float8x8 &m) { m.thread_elements()[0] = 0; }\n"


def small(rng: np.random.Generator, dtype: Any, *shape: int) -> Any:
    return rng.integers(-2, 3, shape).astype(dtype)


@pytest.fixture(scope="module")
def tensors(dev: ost.Device) -> ost.Library:
    return dev.library(TENSORS)


@pytest.mark.parametrize(("m", "n", "simdgroups"), SCOPES)
@pytest.mark.parametrize("sides", [(128, 128, 128), (70, 150, 200), (1, 33, 9)], ids=str)
def test_deep_products_in_every_scope(
    dev: ost.Device, tensors: ost.Library, m: int, n: int, simdgroups: int, sides: tuple[int, int, int]
) -> None:
    rng = np.random.default_rng(1)
    rows, columns, depth = sides
    a, b = small(rng, DTYPES["bfloat"], rows, depth), small(rng, DTYPES["bfloat"], columns, depth)
    c = small(rng, np.float32, rows, columns)
    grid = {"groups": (-(-columns // n), -(-rows // m)), "group_size": 32 * simdgroups}
    got = launch(dev, tensors[f"deep_bfloat_float_{m}_{n}_falsetrue"], a, b, c, np.array([*sides, 0], np.int32), **grid)
    np.testing.assert_array_equal(got, 2 * (a.astype(np.float64) @ b.astype(np.float64).T) + c)


@settings(max_examples=8, deadline=None)
@given(
    sides=st.tuples(st.integers(1, 140), st.integers(1, 70), st.integers(1, 150)),
    turned=st.sampled_from([(False, False), (True, True), (True, False)]),
    seed=st.integers(0, 99),
)
def test_deep_products_whatever_is_transposed(
    dev: ost.Device, tensors: ost.Library, sides: tuple[int, int, int], turned: tuple[bool, bool], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    rows, columns, depth = sides
    a, b = small(rng, np.float16, rows, depth), small(rng, np.float16, depth, columns)
    left, right = (a.T.copy() if turned[0] else a), (b.T.copy() if turned[1] else b)
    kernel = tensors[f"deep_half_half_64_32_{FLAGS[turned[0]]}{FLAGS[turned[1]]}"]
    grid = {"groups": (-(-columns // 32), -(-rows // 64)), "group_size": 128}
    got = launch(
        dev, kernel, left, right, np.zeros((rows, columns), np.float16), np.array([*sides, 0], np.int32), **grid
    )
    np.testing.assert_array_equal(got, 2 * (a.astype(np.float64) @ b.astype(np.float64)))


@pytest.mark.parametrize("name", DTYPES)
def test_tiles_that_are_joined_keep_the_layout_of_the_lanes(dev: ost.Device, name: str) -> None:
    rng = np.random.default_rng(2)
    depth = 48
    a, b = small(rng, DTYPES[name], 16, depth), small(rng, DTYPES[name], 24, depth)
    kernel = dev.library(MATRICES)[f"blocked_{name}"]
    got = launch(dev, kernel, a, b, np.zeros((16, 24), np.float32), np.uint32(depth), threads=32, group_size=32)
    expected = 1 + a.astype(np.float64) @ b.astype(np.float64).T
    lane = np.arange(32)
    row, column = (lane >> 2 & 4) + (lane >> 1 & 3), (lane >> 2 & 2) * 2 + lane % 2 * 2 + 1
    for j in range(3):
        expected[8 + row, 8 * j + column] += lane
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(("threads", "group_size"), [(64, 64), (40, 40), (100, 72), (7, 7), (160, 96)])
def test_lanes_are_numbered_beside_matrices_as_elsewhere(dev: ost.Device, threads: int, group_size: int) -> None:
    results = []
    for source in (LANES, LANES.replace("kernel void lanes", f"{MENTIONED}kernel void lanes")):
        out = np.zeros((threads, 24), np.uint32)
        results.append(launch(dev, dev.library(source)["lanes"], out, threads=threads, group_size=group_size))
    np.testing.assert_array_equal(results[0], results[1])


@pytest.mark.parametrize(("rows", "width", "tokens"), [(70, 136, 70), (33, 47, 3), (300, 64, 129)])
def test_matmul_by_tensors(
    dev: ost.Device, monkeypatch: pytest.MonkeyPatch, rows: int, width: int, tokens: int
) -> None:
    monkeypatch.setattr(ops.linear, "prefers_plain", lambda encoder: False)
    monkeypatch.setattr(ops.linear, "prefers_tensors", lambda encoder: True)
    monkeypatch.setattr("ostinato.native.toolchain.find_clang", lambda: None)  # fibers: compiled in less time
    rng = np.random.default_rng(3)
    weight, x = small(rng, DTYPES["bfloat"], rows, width), small(rng, DTYPES["bfloat"], tokens, width)
    out = dev.zeros((tokens, rows), DTYPES["bfloat"])
    run(dev, ops.matmul, dev.array(weight), dev.array(x), out)
    expected = (x.astype(np.float64) @ weight.astype(np.float64).T).astype(DTYPES["bfloat"])
    np.testing.assert_array_equal(out.numpy(), expected)


def test_tiles_are_chosen_by_what_the_busiest_worker_has_to_do() -> None:
    assert ops.linear._tile(4096, 4096, 132)[:2] == (128, 256)
    assert ops.linear._tile(128, 2048, 132)[:2] == (64, 64)
    assert ops.linear._tile(512, 3072, 132)[:2] == (128, 128)


SHIFTED = f"""{HEAD}
#include <metal_simdgroup_matrix>
kernel void shifted(device const half4 *x, device half4x4 *out, device float *sums, constant uint &shift,
                    uint i [[thread_index_in_threadgroup]]) {{
  out[i] = *(device const half4x4 *)(x + shift + i * 4);
  simdgroup_half8x8 diagonal(2.0h);
  simdgroup_float8x8 product;
  simdgroup_multiply(product, diagonal, diagonal);
  simdgroup_store(product, sums);
}}"""


@pytest.mark.parametrize("shift", [0, 1, 2, 3])
def test_matrices_in_device_memory_begin_at_any_column(dev: ost.Device, shift: int) -> None:
    given = np.arange(36 * 16).astype(np.float16)
    out, sums = np.zeros(32 * 16, np.float16), np.zeros(64, np.float32)
    grid = {"threads": 32, "group_size": 32}
    got, product = launch(dev, dev.library(SHIFTED)["shifted"], given, out, sums, np.uint32(shift), **grid)
    np.testing.assert_array_equal(got, given[4 * shift :][: 32 * 16])
    np.testing.assert_array_equal(product.reshape(8, 8), 4 * np.eye(8))


THREADGROUP = f"""{HEAD}
#include <metal_simdgroup_matrix>
// 32 rows and 16 columns of a product of two simdgroups, all of threadgroup memory, with rows or columns next to each other.
template <typename T, uint PITCH, bool turn_left, bool turn_right>
kernel void staged(device const T *a, device const T *b, device float *c, ushort i [[thread_index_in_threadgroup]],
                   ushort simdgroup [[simdgroup_index_in_threadgroup]]) {{
  threadgroup T left[32 * PITCH], right[32 * PITCH];
  for (uint at = i; at < 32 * 16; at += 64) {{
    const uint row = at / 16, column = at % 16;
    left[turn_left ? column * PITCH + row : row * PITCH + column] = a[at];
    if (row < 16) right[turn_right ? column * PITCH + row : row * PITCH + column] = b[at];
  }}
  threadgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_matrix<float, 8, 8> sums[2][2];
  for (int m = 0; m < 2; ++m) for (int n = 0; n < 2; ++n) sums[m][n] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  #pragma unroll
  for (uint k = 0; k < 16; k += 8) {{
    simdgroup_matrix<T, 8, 8> x[2], y[2];
    for (uint m = 0; m < 2; ++m) {{
      const uint row = simdgroup * 16 + m * 8;
      simdgroup_load(x[m], left + (turn_left ? k * PITCH + row : row * PITCH + k), PITCH, ulong2(0, 0), turn_left);
    }}
    for (uint n = 0; n < 2; ++n)
      simdgroup_load(y[n], right + (turn_right ? n * 8 * PITCH + k : k * PITCH + n * 8), PITCH, ulong2(0, 0), turn_right);
    for (int m = 0; m < 2; ++m) for (int n = 0; n < 2; ++n) simdgroup_multiply_accumulate(sums[m][n], x[m], y[n], sums[m][n]);
  }}
  for (int m = 0; m < 2; ++m) for (int n = 0; n < 2; ++n)
    simdgroup_store(sums[m][n], c + (simdgroup * 16 + m * 8) * 16 + n * 8, 16);
}}
#define STAGED(t, p, l, r) template [[host_name("staged_" #t "_" #p "_" #l #r)]] \\
  kernel void staged<t, p, l, r>(device const t *, device const t *, device float *, ushort, ushort);
#define TURNS(t, p) STAGED(t, p, false, false) STAGED(t, p, false, true) STAGED(t, p, true, false) STAGED(t, p, true, true)
TURNS(bfloat, 40) TURNS(half, 40) TURNS(bfloat, 34) TURNS(half, 33)
"""


@pytest.fixture(scope="module")
def staged(dev: ost.Device) -> ost.Library:
    return dev.library(THREADGROUP)


@pytest.mark.parametrize(("name", "pitch"), [("bfloat", 40), ("half", 40), ("bfloat", 34), ("half", 33)])
@pytest.mark.parametrize("turns", ["falsefalse", "falsetrue", "truefalse", "truetrue"])
def test_products_of_threadgroup_memory(
    dev: ost.Device, staged: ost.Library, name: str, pitch: int, turns: str
) -> None:
    rng = np.random.default_rng(4)
    a, b = small(rng, DTYPES[name], 32, 16), small(rng, DTYPES[name], 16, 16)
    out = np.zeros((32, 16), np.float32)
    got = launch(dev, staged[f"staged_{name}_{pitch}_{turns}"], a, b, out, threads=64, group_size=64)
    np.testing.assert_array_equal(got, a.astype(np.float64) @ b.astype(np.float64))
