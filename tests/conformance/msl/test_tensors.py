"""Metal 4 tensors: extents, slices, cooperative tensors, and products of matrices in memory and in registers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ostinato as ost
from launching import launch

DTYPES: dict[str, Any] = {
    "float": np.float32,
    "half": np.float16,
    "bfloat": ml_dtypes.bfloat16,
    "int8_t": np.int8,
    "int": np.int32,
}
# The types of the operands and of the product.
PRODUCTS = [
    ("float", "float", "float"),
    ("half", "half", "half"),
    ("bfloat", "bfloat", "float"),
    ("int8_t", "int8_t", "int"),
    ("half", "int8_t", "float"),
]
# What simdgroups hold in registers: types, sides, and whether the operands are transposed.
FRAGMENTS = [
    ("half", "float", 16, 32, 16, False, False),
    ("bfloat", "float", 16, 16, 16, False, True),
    ("half", "half", 16, 16, 16, True, False),
    ("float", "float", 16, 16, 16, True, True),
    ("float", "float", 32, 16, 32, False, False),
    ("half", "float", 16, 32, 32, True, True),
]


def flag(value: bool) -> str:
    return "true" if value else "false"


HEAD = """#include <metal_stdlib>
#include <metal_tensor>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
using namespace metal;
using namespace mpp::tensor_ops;
"""
SOURCE = f"""{HEAD}
kernel void shapes(device float *data, device int *out, constant int2 &size) {{
  auto whole = tensor<device float, dextents<int32_t, 2>, tensor_inline>(data, dextents<int32_t, 2>(size.x, size.y));
  auto padded = tensor(data, dextents<int, 2>(3, 4), array<int, 2>({{1, 5}}));
  auto fixed = tensor(data, extents<int, 4, dynamic_extent>(6));
  auto part = whole.slice(2, 1);
  auto tile = whole.slice<2, dynamic_extent>(3, 4);
  auto inner = part.slice(1, 1);
  out[0] = whole.get_extent(0); out[1] = whole.get_extent(1); out[2] = whole.get_stride(1); out[3] = padded.get_stride(1);
  out[4] = fixed.extents().extent(0); out[5] = fixed.extents().extent(1); out[6] = fixed.get_stride(1);
  out[7] = part.get_extent(0); out[8] = part.get_extent(1); out[9] = part.get_stride(1);
  out[10] = tile.get_extent(0); out[11] = tile.get_extent(1);
  out[12] = int(part[{{{{1, 2}}}}]); out[13] = int(tile[{{{{0, 1}}}}]); out[14] = int(inner[{{{{0, 0}}}}]); out[15] = int(padded[{{{{2, 3}}}}]);
  out[16] = whole.slice(size.x + 1, 0).get_extent(0);
}}

// Each threadgroup makes 32 rows by 64 columns of the product.
template <typename L, typename R, typename T, bool transpose_left, bool transpose_right>
kernel void tiles(device const L *a, device const R *b, device T *c, constant int4 &size, uint2 group [[threadgroup_position_in_grid]]) {{
  const int M = size.x, N = size.y, K = size.z;
  auto left = tensor(a, dextents<int, 2>(transpose_left ? M : K, transpose_left ? K : M));
  auto right = tensor(b, dextents<int, 2>(transpose_right ? K : N, transpose_right ? N : K));
  auto whole = tensor(c, dextents<int, 2>(N, M));
  constexpr auto product = matmul2d_descriptor(32, 64, static_cast<int>(dynamic_extent), transpose_left, transpose_right);
  matmul2d<product, execution_simdgroups<4>> op;
  const int row = group.y * 32, column = group.x * 64;
  auto x = left.slice(transpose_left ? row : 0, transpose_left ? 0 : row);
  auto y = right.slice(transpose_right ? 0 : column, transpose_right ? column : 0);
  auto to = op.template get_destination_cooperative_tensor<decltype(x), decltype(y), T>();
  op.run(x, y, to);
  to.store(whole.slice(column, row));
}}
#define TILES(l, r, t, tl, tr) template [[host_name("tiles_" #l "_" #r "_" #t "_" #tl #tr)]] \\
  kernel void tiles<l, r, t, tl, tr>(device const l *, device const r *, device t *, constant int4 &, uint2);
{" ".join(f"TILES({left}, {right}, {total}, false, true)" for left, right, total in PRODUCTS)}
TILES(float, float, float, false, false) TILES(float, float, float, true, false) TILES(float, float, float, true, true)

// Through threadgroup memory, k by 32, added up in registers; the shape that ggml's kernels have.
kernel void staged(device const half *a, device const half *b, device float *c, constant int4 &size,
                   uint2 group [[threadgroup_position_in_grid]], ushort thread_index [[thread_index_in_threadgroup]]) {{
  constexpr int NR0 = 64, NR1 = 32, NK = 32;
  const int M = size.x, N = size.y, K = size.z, row = group.y * NR1, column = group.x * NR0;
  threadgroup half sa[NR0 * NK], sb[NR1 * NK];
  auto tA = tensor<threadgroup half, dextents<int32_t, 2>, tensor_inline>(sa, dextents<int32_t, 2>(NK, NR0));
  auto tB = tensor<threadgroup half, dextents<int32_t, 2>, tensor_inline>(sb, dextents<int32_t, 2>(NK, NR1));
  matmul2d<matmul2d_descriptor(NR1, NR0, NK, false, true, false, matmul2d_descriptor::mode::multiply_accumulate),
           execution_simdgroups<4>> mm;
  auto cT = mm.get_destination_cooperative_tensor<decltype(tB), decltype(tA), float>();
  for (int k = 0; k < K; k += NK) {{
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int i = thread_index; i < NR0 * NK; i += 128)
      sa[i] = column + i / NK < N && k + i % NK < K ? b[(column + i / NK) * K + k + i % NK] : half(0);
    for (int i = thread_index; i < NR1 * NK; i += 128)
      sb[i] = row + i / NK < M && k + i % NK < K ? a[(row + i / NK) * K + k + i % NK] : half(0);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    auto sA = tA.slice(0, 0);
    auto sB = tB.slice(0, 0);
    mm.run(sB, sA, cT);
  }}
  auto tC = tensor<device float, dextents<int32_t, 2>, tensor_inline>(c, dextents<int32_t, 2>(N, M));
  cT.store(tC.slice(column, row));
}}

// The product of a simdgroup with all three matrices in registers, added to what `c` has; one simdgroup after the other.
template <typename T, typename C, int M, int N, int K, bool transpose_left, bool transpose_right>
kernel void registers(device const T *a, device const T *b, device C *c, uint simdgroup [[simdgroup_index_in_threadgroup]]) {{
  constexpr auto desc = matmul2d_descriptor(M, N, K, transpose_left, transpose_right, true, matmul2d_descriptor::mode::multiply_accumulate);
  matmul2d<desc, execution_simdgroup> op;
  auto left = op.template get_left_input_cooperative_tensor<T, T, C>();
  auto right = op.template get_right_input_cooperative_tensor<T, T, C>();
  auto to = op.template get_destination_cooperative_tensor<decltype(left), decltype(right), C>();
  a += simdgroup * M * K; b += simdgroup * K * N; c += simdgroup * M * N;
  for (ushort i = 0; i < left.get_capacity(); i++) {{
    auto at = left.get_multidimensional_index(i); left[i] = a[at[1] * (transpose_left ? M : K) + at[0]];
  }}
  right.load(tensor(b, extents<int, transpose_right ? K : N, transpose_right ? N : K>()));
  for (auto it = to.begin(); it != to.end(); ++it) {{
    auto at = it.get_multidimensional_index(); *it = c[at[1] * N + at[0]];
  }}
  op.run(left, right, to);
  to.store(tensor(c, dextents<int, 2>(N, M)));
}}
#define REGISTERS(name, t, c, m, n, k, tl, tr) template [[host_name(name)]] \\
  kernel void registers<t, c, m, n, k, tl, tr>(device const t *, device const t *, device c *, uint);
{
    " ".join(
        f'REGISTERS("registers_{index}", {element}, {total}, {m}, {n}, {k}, {flag(left)}, {flag(right)})'
        for index, (element, total, m, n, k, left, right) in enumerate(FRAGMENTS)
    )
}

// Where the elements of a lane lie: template code of other projects fills fragments by it.
kernel void layout(device int *left, device int *right, device int *out, ushort lane [[thread_index_in_simdgroup]]) {{
  matmul2d<matmul2d_descriptor(16, 32, 16, false, true), execution_simdgroup> op;
  auto a = op.get_left_input_cooperative_tensor<half, half, float>();
  auto b = op.get_right_input_cooperative_tensor<half, half, float>();
  auto c = op.get_destination_cooperative_tensor<decltype(a), decltype(b), float>();
  for (int i = 0; i < a.get_capacity(); i++) left[lane * 8 + i] = a.get_multidimensional_index(i)[1] * 16 + a.get_multidimensional_index(i)[0];
  for (int i = 0; i < b.get_capacity(); i++) right[lane * 16 + i] = b.get_multidimensional_index(i)[1] * 16 + b.get_multidimensional_index(i)[0];
  for (int i = 0; i < c.get_capacity(); i++) out[lane * 16 + i] = c.get_multidimensional_index(i)[1] * 32 + c.get_multidimensional_index(i)[0];
}}
// Every element of a product has one place, whatever its sides and scope.
template <int M, int N, typename Scope> kernel void places(device atomic_int *counts, device int *capacity, constant int &k) {{
  matmul2d<matmul2d_descriptor(M, N, 8), Scope> op;
  auto t = tensor(capacity, dextents<int, 2>(1, 1));
  auto c = op.template get_destination_cooperative_tensor<decltype(t), decltype(t), float>();
  for (int i = 0; i < c.get_capacity(); i++)
    if (c.is_valid_element(i)) {{
      auto at = c.get_multidimensional_index(i);
      atomic_fetch_add_explicit(&counts[at[1] * N + at[0]], 1, memory_order_relaxed);
    }}
  capacity[0] = c.get_capacity();
}}
#define PLACES(name, m, n, ...) template [[host_name(name)]] kernel void places<m, n, __VA_ARGS__>(device atomic_int *, device int *, constant int &);
PLACES("places_64_32", 64, 32, execution_simdgroups<4>) PLACES("places_8_24", 8, 24, execution_simdgroup)
PLACES("places_16_16", 16, 16, execution_simdgroups<4>) PLACES("places_5_3", 5, 3, execution_thread)

// Straight to memory: overwritten, and added to.
kernel void to_memory(device float *a, device float *b, device float *c, device float *d) {{
  auto x = tensor(a, extents<int, 12, 8>());
  auto y = tensor(b, extents<int, 20, 12>());
  auto over = tensor(c, extents<int, 20, 8>());
  auto more = tensor(d, extents<int, 20, 8>());
  matmul2d<matmul2d_descriptor(8, 20), execution_simdgroup> writes;
  writes.run(x, y, over);
  matmul2d<matmul2d_descriptor(8, 20, 12, false, false, false, matmul2d_descriptor::mode::multiply_accumulate), execution_simdgroup> op;
  op.run(x, y, more);
}}
// The operands say how deep the product is, in each of the ways to ask for that.
template <int k> void as_deep_as_operands(device float *a, device float *b, device float *c, int depth) {{
  matmul2d<matmul2d_descriptor(8, 20, k), execution_simdgroup> op;
  auto x = tensor(a, dextents<int, 2>(depth, 8));
  auto y = tensor(b, dextents<int, 2>(20, depth));
  auto z = tensor(c, extents<int, 20, 8>());
  op.run(x, y, z);
}}
kernel void depths(device float *a, device float *b, device float *c, constant int &depth) {{
  as_deep_as_operands<dynamic_length_v<int>>(a, b, c, depth);
  as_deep_as_operands<mpp::tensor_ops::dynamic_length<int>::value>(a, b, c + 160, depth);
  as_deep_as_operands<static_cast<int>(dynamic_extent)>(a, b, c + 320, depth);
}}
// One thread, and one operand in registers.
kernel void one_thread(device float *a, device float *b, device float *c, uint i [[thread_position_in_grid]]) {{
  auto x = tensor(a + i * 6, extents<int, 3, 2>());
  auto y = tensor(b, extents<int, 4, 3>());
  matmul2d<matmul2d_descriptor(2, 4, 3), execution_thread> op;
  auto z = op.get_destination_cooperative_tensor<decltype(x), decltype(y), float>();
  op.run(x, y, z);
  for (int j = 0; j < 8; j++) c[i * 8 + j] = z[j] + 1;
}}
kernel void half_in_registers(device half *a, device half *b, device float *c) {{
  auto x = tensor(a, extents<int, 16, 16>());
  matmul2d<matmul2d_descriptor(16, 16, 16, false, true), execution_simdgroup> op;
  auto y = op.get_right_input_cooperative_tensor<half, half, float>();
  y.load(tensor(b, extents<int, 16, 16>()));
  auto z = op.get_destination_cooperative_tensor<decltype(x), decltype(y), float>();
  op.run(x, y, z);
  z.store(tensor(c, extents<int, 16, 16>()));
}}
kernel void wide_vectors(device float *out) {{
  vec<float, 8> v(2); vec<half, 16> w(3); vec<float, 8> copy = v;
  v[3] = 7; thread float *at = (thread float *)&v;
  for (int i = 0; i < 8; i++) out[i] = at[i] + copy[i] + float(w[2 * i]);
}}
"""


@pytest.fixture(scope="module")
def library(dev: ost.Device) -> ost.Library:
    return dev.library(SOURCE)


def matrix(rng: np.random.Generator, name: str, *shape: int) -> Any:
    if DTYPES[name] in (np.int8, np.int32):
        return rng.integers(-100, 100, shape).astype(DTYPES[name])
    return rng.normal(size=shape).astype(DTYPES[name])


def check(got: Any, a: Any, b: Any, start: Any = 0.0) -> None:
    """Against the product in double, within the rounding of the sum and of the result."""
    exact = a.astype(np.float64) @ b.astype(np.float64) + np.asarray(start, np.float64)
    if got.dtype == np.int32:
        np.testing.assert_array_equal(got, exact)
        return
    bound = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)) * a.shape[1] * 2.0**-24
    eps = float(ml_dtypes.finfo(got.dtype).eps)
    assert np.all(np.abs(got.astype(np.float64) - exact) <= bound + np.abs(exact) * eps + 1e-7)


def test_extents_strides_and_slices(dev: ost.Device, library: ost.Library) -> None:
    data, out = np.arange(70, dtype=np.float32), np.zeros(17, np.int32)
    got = launch(dev, library["shapes"], data, out, np.array([10, 7], np.int32))[1]
    expected = [10, 7, 10, 5, 4, 6, 4, 8, 6, 10, 2, 3, (1 + 2) * 10 + 2 + 1, 5 * 10 + 3, 2 * 10 + 3, 3 * 5 + 2, 0]
    assert got.tolist() == expected


@pytest.mark.parametrize(("left", "right", "total"), PRODUCTS)
def test_products_of_matrices_in_device_memory(
    dev: ost.Device, library: ost.Library, left: str, right: str, total: str
) -> None:
    rng = np.random.default_rng(1)
    M, N, K = 32, 128, 40
    a, b = matrix(rng, left, M, K), matrix(rng, right, N, K)
    kernel = library[f"tiles_{left}_{right}_{total}_falsetrue"]
    c, size = np.zeros((M, N), DTYPES[total]), np.array([M, N, K, 0], np.int32)
    check(launch(dev, kernel, a, b, c, size, groups=(2, 1), group_size=128), a, b.T)


@settings(max_examples=10, deadline=None)
@given(
    sides=st.tuples(st.integers(1, 70), st.integers(1, 130), st.integers(1, 50)),
    turned=st.sampled_from(["falsefalse", "falsetrue", "truefalse", "truetrue"]),
    seed=st.integers(0, 99),
)
def test_tiles_at_the_edge_stay_inside_whatever_is_transposed(
    dev: ost.Device, library: ost.Library, sides: tuple[int, int, int], turned: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    M, N, K = sides
    a, b = matrix(rng, "float", M, K), matrix(rng, "float", K, N)
    left, right = (a.T.copy() if turned.startswith("true") else a), (b.T.copy() if turned.endswith("true") else b)
    kernel, groups = library[f"tiles_float_float_float_{turned}"], (-(-N // 64), -(-M // 32))
    c = np.zeros((M, N), np.float32)
    check(launch(dev, kernel, left, right, c, np.array([*sides, 0], np.int32), groups=groups, group_size=128), a, b)


@pytest.mark.parametrize("sides", [(32, 64, 32), (45, 70, 65)])
def test_products_staged_through_threadgroup_memory(
    dev: ost.Device, library: ost.Library, sides: tuple[int, int, int]
) -> None:
    rng = np.random.default_rng(2)
    M, N, K = sides
    a, b = matrix(rng, "half", M, K), matrix(rng, "half", N, K)
    groups = (-(-N // 64), -(-M // 32))
    c = np.zeros((M, N), np.float32)
    got = launch(dev, library["staged"], a, b, c, np.array([*sides, 0], np.int32), groups=groups, group_size=128)
    check(got, a, b.T)


@pytest.mark.parametrize("index", range(len(FRAGMENTS)))
def test_products_of_matrices_in_registers(dev: ost.Device, library: ost.Library, index: int) -> None:
    element, total, m, n, k, turned_left, turned_right = FRAGMENTS[index]
    rng = np.random.default_rng(3)
    a, b, c = matrix(rng, element, 3, m, k), matrix(rng, element, 3, k, n), matrix(rng, total, 3, m, n)
    left = a.transpose(0, 2, 1).copy() if turned_left else a
    right = b.transpose(0, 2, 1).copy() if turned_right else b
    got = launch(dev, library[f"registers_{index}"], left, right, c, threads=96, group_size=96)
    for simdgroup in range(3):
        check(got[simdgroup], a[simdgroup], b[simdgroup], c[simdgroup])


def test_lanes_hold_two_rows_of_four_neighbours_of_each_fragment(dev: ost.Device, library: ost.Library) -> None:
    left, right, out = (np.zeros((32, n), np.int32) for n in (8, 16, 16))
    left, right, out = launch(dev, library["layout"], left, right, out, threads=32, group_size=32)
    lane, element = np.arange(32)[:, None], np.arange(8)[None, :]
    row = ((lane >> 2) & 4) + ((lane >> 1) & 3) + element // 4 * 8
    column = (((lane >> 2) & 2) | (lane & 1)) * 4 + element % 4
    assert np.array_equal(left, row * 16 + column)
    assert np.array_equal(right, np.hstack([row * 16 + column, (row + 16) * 16 + column]))
    assert np.array_equal(out, np.hstack([row * 32 + column, row * 32 + column + 16]))


@pytest.mark.parametrize(("m", "n", "threads"), [(64, 32, 128), (8, 24, 32), (16, 16, 128), (5, 3, 1)])
def test_every_element_has_one_place(dev: ost.Device, library: ost.Library, m: int, n: int, threads: int) -> None:
    counts, capacity = launch(
        dev, library[f"places_{m}_{n}"], np.zeros(m * n, np.int32), np.zeros(1, np.int32), np.int32(8),
        threads=threads, group_size=threads,
    )  # fmt: skip
    assert counts.tolist() == [1] * (m * n)
    assert capacity[0] == -(-m * n // threads)


def test_a_product_can_go_to_memory(dev: ost.Device, library: ost.Library) -> None:
    rng = np.random.default_rng(4)
    a, b, d = matrix(rng, "float", 8, 12), matrix(rng, "float", 12, 20), matrix(rng, "float", 8, 20)
    c = np.full((8, 20), 9, np.float32)
    _, _, over, more = launch(dev, library["to_memory"], a, b, c, d, threads=32, group_size=32)
    check(over, a, b)
    check(more, a, b, d)


def test_the_operands_say_how_deep_a_product_is(dev: ost.Device, library: ost.Library) -> None:
    rng = np.random.default_rng(7)
    a, b, c = matrix(rng, "float", 8, 37), matrix(rng, "float", 37, 20), np.zeros((3, 8, 20), np.float32)
    for got in launch(dev, library["depths"], a, b, c, np.int32(37), threads=32, group_size=32)[2]:
        check(got, a, b)


def test_threads_multiply_alone(dev: ost.Device, library: ost.Library) -> None:
    rng = np.random.default_rng(5)
    a, b = matrix(rng, "float", 6, 2, 3), matrix(rng, "float", 3, 4)
    got = launch(dev, library["one_thread"], a, b, np.zeros((6, 2, 4), np.float32), threads=6, group_size=3)[2]
    for i in range(6):
        check(got[i], a[i], b, 1.0)


def test_an_operand_in_memory_meets_one_in_registers(dev: ost.Device, library: ost.Library) -> None:
    rng = np.random.default_rng(6)
    a, b = matrix(rng, "half", 16, 16), matrix(rng, "half", 16, 16)
    c = np.zeros((16, 16), np.float32)
    check(launch(dev, library["half_in_registers"], a, b, c, threads=32, group_size=32)[2], a, b.T)


def test_vectors_of_eight_and_sixteen(dev: ost.Device, library: ost.Library) -> None:
    got = launch(dev, library["wide_vectors"], np.zeros(8, np.float32))
    assert got.tolist() == [7, 7, 7, 12, 7, 7, 7, 7]
