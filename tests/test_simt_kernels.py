"""Kernels that run as vectors: what the lane pass makes of single constructs."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import ostinato as ost
from launching import HEAD, launch
from ostinato.backends.cpu.simt import blocks, exchanges, lanes
from ostinato.backends.cpu.simt.code import parse_function
from ostinato.native import toolchain

pytestmark = pytest.mark.skipif(toolchain.find_clang() is None, reason="no clang for kernels as vectors")

IDS = np.arange(64, dtype=np.uint32)
SOURCE = """#include <metal_stdlib>
using namespace metal;

struct Numbered { uint number; bfloat value; };

kernel void squared(device const bfloat2 *x, device float *out, uint id [[thread_position_in_grid]]) {
    simdgroup_matrix<bfloat, 8, 8> matrix;
    matrix.thread_elements() = x[id];
    simdgroup_matrix<float, 8, 8> square = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    simdgroup_multiply_accumulate(square, matrix, matrix, square);
    simdgroup_store(square, out + id / 32 * 64, 8);
}

kernel void halved(device const float *x, device ushort4 *out, uint id [[thread_position_in_grid]]) {
    simdgroup_matrix<float, 8, 8> matrix;
    simdgroup_load(matrix, x + id / 32 * 64, 8);
    out[id] = as_type<ushort4>(matrix.thread_elements());
}

kernel void turned(device const float *x, device float *out, constant bool2 &turned,
                   uint id [[thread_index_in_threadgroup]]) {
    simdgroup_matrix<float, 8, 8> matrix;
    simdgroup_load(matrix, x + id / 32 * 64, 8, ulong2(0), turned.x);
    simdgroup_store(matrix, out + id / 32 * 64, 8, ulong2(0), turned.y);
}

kernel void copied(device const uchar *in, device uint *out, uint id [[thread_position_in_grid]],
                   uint lane [[thread_index_in_simdgroup]]) {
    uchar bytes[32];
    uint words[8];
    for (uint i = 0; i < 32; ++i) bytes[i] = in[(id * 32 + i) & 1023];
    for (uint i = 0; i < 8; ++i) words[i] = *(thread uint *)(bytes + 4 * i);
    words[lane & 7] += simd_max(1u);
    out[id] = words[(lane + 1) & 7] ^ words[lane * 5 & 7] ^ bytes[lane * 7 & 31];
}

kernel void parted(device uint *x, device const uint *places, uint id [[thread_position_in_grid]],
                   uint lane [[thread_index_in_simdgroup]]) {
    uint sum = 0;
    for (uint i = 0; i < lane % 5; ++i) {
        sum += x[places[id] + i] * simd_sum(1u);
        simdgroup_barrier(mem_flags::mem_device);
        x[128 + places[id]] = sum;
    }
}

kernel void lesser(device const bfloat *in, device uint *out, uint i [[thread_index_in_threadgroup]]) {
    threadgroup Numbered all[64];
    all[i] = Numbered{i, in[i]};
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const Numbered own = all[i], other = all[i ^ 32];
    out[i] = (own.value < other.value ? own : other).number * simd_max(1u);
}
"""

TILES = """#include <metal_stdlib>
using namespace metal;
kernel void product(device const float *a, device const float *b, device float *c, constant uint &n,
                    uint2 at [[thread_position_in_grid]], uint2 t [[thread_position_in_threadgroup]]) {
    threadgroup float rows[W * H], columns[W][W];
    float sum = 0;
    for (uint k = 0; k < n; k += W) {
        rows[t.y * W + t.x] = a[at.y * n + k + t.x];
        for (uint y = t.y; y < W; y += H) columns[y][t.x] = b[(k + y) * n + at.x];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint i = 0; i < W; ++i) sum += rows[t.y * W + i] * columns[i][t.x];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    c[at.y * n + at.x] = sum;
}
"""


def _run(dev: ost.Device, name: str, *arrays: ost.Buffer) -> None:
    kernel = dev.library(SOURCE)[name]
    assert kernel.execution.way == "vector", kernel.execution
    encoder = dev.command_encoder()
    encoder.dispatch(kernel, *arrays, threads=64, group_size=64)
    encoder.commit_and_wait()


def test_the_elements_of_a_bfloat_matrix_are_read_from_memory(dev: ost.Device) -> None:
    """Clang casts them from four integers to eight of half the width."""
    elements = np.random.default_rng(1).integers(-9, 9, (64, 2)).astype(ml_dtypes.bfloat16)
    out = dev.zeros((2, 8, 8), np.float32)
    _run(dev, "squared", dev.array(elements), out)
    lane = IDS % 32
    row, column = (lane >> 2 & 4) + (lane >> 1 & 3), (lane >> 2 & 2) * 2 + (lane & 1) * 2
    matrices = np.zeros((2, 8, 8), np.float32)
    for part in range(2):
        matrices[IDS // 32, row, column + part] = elements[:, part]
    np.testing.assert_array_equal(out.numpy(), matrices @ matrices)


def test_the_elements_of_a_matrix_are_taken_apart(dev: ost.Device) -> None:
    """Not element by element, as in casts between elements of one width."""
    elements, out = np.random.default_rng(1).random((2, 8, 8), np.float32), dev.zeros((64, 4), np.uint16)
    _run(dev, "halved", dev.array(elements), out)
    lane = IDS % 32
    row, column = (lane >> 2 & 4) + (lane >> 1 & 3), (lane >> 2 & 2) * 2 + (lane & 1) * 2
    expected = np.stack([elements[IDS // 32, row, column + part] for part in range(2)], axis=1)
    np.testing.assert_array_equal(out.numpy(), expected.view(np.uint16))


@pytest.mark.parametrize("size", [(64,), (8, 8)])
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
def test_a_variable_says_whether_matrices_are_transposed(
    dev: ost.Device, turned: tuple[bool, bool], size: tuple[int, ...]
) -> None:
    kernel = dev.library(SOURCE)["turned"]
    assert kernel.execution.way == "vector", kernel.execution
    matrices, out = np.random.default_rng(1).random((2, 8, 8), np.float32), dev.zeros((2, 8, 8), np.float32)
    encoder = dev.command_encoder()
    encoder.dispatch(kernel, dev.array(matrices), out, np.array(turned), threads=size, group_size=size)
    encoder.commit_and_wait()
    np.testing.assert_array_equal(out.numpy(), matrices.transpose(0, 2, 1) if turned[0] != turned[1] else matrices)


def test_bytes_of_a_thread_are_copied_to_its_words(dev: ost.Device) -> None:
    data, out = np.random.default_rng(3).integers(0, 256, 1024, dtype=np.uint8), dev.zeros(64, np.uint32)
    _run(dev, "copied", dev.array(data), out)
    own, lane = data.reshape(32, 32)[IDS % 32], IDS % 32
    words = own.copy().view(np.uint32)
    words[IDS, lane % 8] += 1
    expected = words[IDS, (lane + 1) % 8] ^ words[IDS, lane * 5 % 8] ^ own[IDS, lane * 7 % 32]
    np.testing.assert_array_equal(out.numpy(), expected)


def test_lanes_that_have_parted_read_and_write_at_places_of_their_own(dev: ost.Device) -> None:
    random = np.random.default_rng(2)
    before = np.append(random.integers(0, 1000, 128, dtype=np.uint32), np.zeros(64, np.uint32))
    places = random.permutation(IDS)
    memory = dev.array(before)
    _run(dev, "parted", memory, dev.array(places))
    turns = IDS % 32 % 5
    expected = before.copy()
    for thread in IDS:
        for turn in range(turns[thread]):
            active = np.count_nonzero(turns[thread // 32 * 32 :][:32] > turn)
            expected[128 + places[thread]] += before[places[thread] + turn] * active
    np.testing.assert_array_equal(memory.numpy(), expected)


def test_structs_that_end_in_padding_lie_where_the_next_one_does_not(dev: ost.Device) -> None:
    """Clang stores six bytes of them as one integer, `i48`; in a vector such integers lie side by side."""
    values = np.random.default_rng(3).permutation(64).astype(ml_dtypes.bfloat16)
    out = dev.zeros(64, np.uint32)
    _run(dev, "lesser", dev.array(values), out)
    np.testing.assert_array_equal(out.numpy(), np.where(values < values[IDS ^ 32], IDS, IDS ^ 32))


def test_values_whose_other_elements_are_read_are_no_tiles() -> None:
    """Clang puts the elements of two matrices into one value, and reads those of the second as one integer."""
    function = parse_function("""define void @f(ptr %p, ptr %q) {
start:
  %a = call <2 x float> @__ost_tile_load_float(ptr %p, i64 8, i1 false)
  %b = call <2 x float> @__ost_tile_load_float(ptr %q, i64 8, i1 false)
  %twice = fadd <2 x float> %a, %a
  %first = shufflevector <2 x float> %twice, <2 x float> poison, <4 x i32> <i32 0, i32 1, i32 poison, i32 poison>
  %second = shufflevector <2 x float> %b, <2 x float> poison, <4 x i32> <i32 0, i32 1, i32 poison, i32 poison>
  %both = shufflevector <4 x float> %first, <4 x float> %second, <4 x i32> <i32 0, i32 1, i32 4, i32 5>
  %negated = fneg <4 x float> %both
  %bits = bitcast <4 x float> %negated to <2 x i64>
  %upper = extractelement <2 x i64> %bits, i64 1
  store i64 %upper, ptr %p, align 8
  ret void
}""")
    assert exchanges.tile_values(function) == {"%a", "%b", "%twice", "%first", "%second"}


def test_only_the_code_of_32_lanes_is_compiled_and_only_once() -> None:
    widened = lanes.widen("""
define void @__ost_row_0(ptr %0, i32 %1, i32 %2, i32 %3, i32 %4, i32 %5) #0 {
  ret void
}
define hidden void @_Z6calledv() #0 {
  ret void
}
attributes #0 = { alwaysinline nounwind }
""")
    assert re.findall("^define (.*) void @", widened.text, re.M) == ["internal", "internal"]
    assert "noinline #0" in widened.text
    assert "attributes #0 = { nounwind }" in widened.text


def test_in_groups_of_known_width_lanes_of_several_rows_read_as_neighbours() -> None:
    widened = lanes.widen("""
declare i32 @__ost_lane()
define void @__ost_tile16_0(ptr %0, i32 %1, i32 %2, i32 %3, i32 %4) #0 {
  %6 = call i32 @__ost_lane()
  %7 = and i32 %6, 15
  %8 = lshr i32 %6, 4
  %9 = add i32 %8, %3
  %10 = shl i32 %9, 5
  %11 = or disjoint i32 %10, %7
  %12 = zext i32 %11 to i64
  %13 = getelementptr float, ptr %0, i64 %12
  %14 = load float, ptr %13, align 4
  store float %14, ptr %0, align 4
  ret void
}
attributes #0 = { nounwind }
""")
    assert not widened.refused
    assert "define internal void @__ost_tile16s_0(" in widened.text
    assert "load <48 x float>" in widened.text
    assert "gather" not in widened.text


@pytest.mark.parametrize(
    "size", [(16, 16), (16, 2), (16, 3), (16, 5), (8, 8), (8, 4), (8, 12), (8, 3), (32, 4), (10, 6), (40, 3)]
)
def test_products_by_tiles(dev: ost.Device, size: tuple[int, int]) -> None:
    width, height = size
    kernel = dev.library(f"constant constexpr uint W = {width}, H = {height};\n{TILES}")["product"]
    assert kernel.execution.way == "vector"
    numbers = np.random.default_rng(width)
    a, b = (numbers.integers(-9, 9, (2 * n, 2 * width)).astype(np.float32) for n in (height, width))
    c = dev.zeros((2 * height, 2 * width), np.float32)
    encoder = dev.command_encoder()
    encoder.dispatch(kernel, dev.array(a), dev.array(b), c, np.uint32(2 * width), groups=(2, 2), group_size=size)
    encoder.commit_and_wait()
    np.testing.assert_array_equal(c.numpy(), a @ b)


def test_regions_without_a_copy_for_all_lanes_are_entered_by_the_masked_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also behind a branch that is the same for all lanes: `if (same && different) … else …`."""
    monkeypatch.setattr(blocks, "_LARGEST_COPIED_REGION", 0)
    widened = lanes.widen("""
declare i32 @__ost_lane()
define void @__ost_row_0(ptr %0, i32 %1, i32 %2, i32 %3, i32 %4, i32 %5) #0 {
  %7 = call i32 @__ost_lane()
  %8 = getelementptr i32, ptr %0, i32 %7
  %9 = icmp ult i32 %1, 5
  br i1 %9, label %10, label %13

10:
  %11 = icmp ult i32 %7, 5
  br i1 %11, label %12, label %13

12:
  store i32 1, ptr %8, align 4
  br label %14

13:
  store i32 2, ptr %8, align 4
  br label %14

14:
  ret void
}
attributes #0 = { nounwind }
""")
    assert not widened.refused
    named = set(re.findall(r"label %([\w.]+)", widened.text))
    assert named <= set(re.findall(r"^([\w.]+):", widened.text, re.M))


def test_functions_take_and_return_vectors_in_memory() -> None:
    """In registers, caller and callee would have to agree on which, by attributes that inlining changes."""
    widened = lanes.widen("""
declare i32 @__ost_lane()
define void @__ost_row_0(ptr %0, i32 %1, i32 %2, i32 %3, i32 %4, i32 %5) #0 {
  %7 = call i32 @__ost_lane()
  %8 = icmp ult i32 %7, 5
  br i1 %8, label %9, label %14

9:
  %10 = mul i32 %7, %7
  %11 = getelementptr i32, ptr %0, i32 %10
  %12 = load i32, ptr %11, align 4
  %13 = getelementptr i32, ptr %11, i32 %10
  store i32 %12, ptr %13, align 4
  br label %14

14:
  ret void
}
attributes #0 = { nounwind }
""")
    assert not widened.refused
    functions = re.findall("^define .*?@__ost_(gather|scatter)_i32.*$", widened.text, re.M)
    assert functions == ["gather", "scatter"]
    assert not re.search(r"^define [^\n]*<\d+ x ", widened.text, re.M)


def test_a_number_is_defined_as_far_as_its_parts_are() -> None:
    """Clang knows bfloats in the upper halves of floats that nobody has set as integers beside undefined ones."""
    widened = lanes.widen("""
declare i32 @__ost_lane()
define void @__ost_row_0(ptr %0, i32 %1, i32 %2, i32 %3, i32 %4, i32 %5) #0 {
  %7 = call i32 @__ost_lane()
  %8 = getelementptr [3 x i16], ptr %0, i32 %7
  %9 = load i16, ptr %8
  %10 = insertelement <2 x i16> undef, i16 %9, i64 1
  %11 = bitcast <2 x i16> %10 to <1 x float>
  %12 = extractelement <1 x float> %11, i64 0
  %13 = getelementptr [3 x float], ptr %0, i32 %7
  store float %12, ptr %13
  ret void
}
""")
    assert not widened.refused
    assert "zext <32 x i16> zeroinitializer to" in widened.text
    assert "zext <32 x i16> poison" not in widened.text


def test_lanes_store_pointers_at_places_of_their_own(dev: ost.Device) -> None:
    kernel = dev.library(f"""{HEAD}
        struct Row {{ device uint *begin; uint own[2]; }};
        uint first(thread const uint *p) {{ return 100 + p[0]; }}
        kernel void k(device uint *x, device uint *out, constant uint &count, uint l [[thread_index_in_simdgroup]]) {{
            Row row;
            if (l < count) {{
                row.begin = x + 2 * l; row.own[0] = simd_sum(1u); row.own[1] = l;
                thread Row *rows[2] = {{&row, &row}};
                out[l] = first(rows[l & 1]->own + (l & 1)) + rows[l & 1]->begin[0] * 1000;
            }}
        }}""")["k"]
    assert kernel.execution.way == "vector"
    got = launch(
        dev, kernel, np.arange(64, dtype=np.uint32), np.zeros(32, np.uint32), np.uint32(5), threads=32, group_size=32
    )
    assert got[1].tolist() == [105, 2101, 4105, 6103, 8105, *[0] * 27]
