"""What products of matrices become on CUDA: instructions of tensor cores, and room for their stages."""

from __future__ import annotations

import re

import pytest

from nvrtc import Nvrtc
from ostinato.backends.cuda import compiling, kernels
from ostinato.msl import cuda_options, parse

SOURCE = """#include <metal_stdlib>
#include <metal_tensor>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
using namespace metal;
using namespace mpp::tensor_ops;
kernel void product(device const TYPE *a, device const TYPE *b, device float *c, constant int &depth) {
  auto left = tensor(a, dextents<int, 2>(depth, 64));
  auto right = tensor(b, dextents<int, 2>(depth, 32));
  matmul2d<matmul2d_descriptor(64, 32, DEPTH, false, true), execution_simdgroups<4>> op;
  auto sums = op.get_destination_cooperative_tensor<decltype(left), decltype(right), float>();
  op.run(left, right, sums);
  sums.store(tensor(c, extents<int, 32, 64>()));
}"""
PLAIN = """#include <metal_stdlib>
using namespace metal;
kernel void k(device float *x, uint i [[thread_index_in_threadgroup]]) { x[i] = i; }"""
DYNAMIC = "static_cast<int>(dynamic_extent)"


def text(element: str, depth: str = DYNAMIC) -> str:
    return parse(SOURCE.replace("TYPE", element).replace("DEPTH", depth)).translate("cuda").text


def products(ptx: str) -> set[str]:
    return set(re.findall(r"\b(wgmma\.mma_async\S*?k\d+|mma\.sync\.aligned\.\w+|fma\.rn\.f32)\b", ptx))


@pytest.mark.parametrize(
    ("element", "depth", "architecture", "expected"),
    [
        ("bfloat", DYNAMIC, "compute_90a", {"wgmma.mma_async.sync.aligned.m64n32k16"}),
        ("half", "dynamic_length_v<int>", "compute_90a", {"wgmma.mma_async.sync.aligned.m64n32k16"}),
        ("half", DYNAMIC, "compute_90a", {"wgmma.mma_async.sync.aligned.m64n32k16"}),
        ("bfloat", DYNAMIC, "compute_90", {"mma.sync.aligned.m16n8k16"}),
        ("bfloat", "48", "compute_90a", {"mma.sync.aligned.m16n8k16"}),
        ("half", DYNAMIC, "compute_80", {"mma.sync.aligned.m16n8k16"}),
        ("half", DYNAMIC, "compute_75", {"fma.rn.f32"}),
        ("float", DYNAMIC, "compute_90a", {"fma.rn.f32"}),
    ],
)
def test_matmul2d_takes_the_units_that_there_are(
    element: str, depth: str, architecture: str, expected: set[str]
) -> None:
    compiled = Nvrtc().compile_text(text(element, depth), architecture)
    assert products(compiled.ptx) == expected, compiled.log


def test_float_runs_on_tensor_cores_if_asked_for() -> None:
    compiled = Nvrtc().compile_text("#define __OST_TF32 1\n" + text("float"), "compute_90a")
    assert products(compiled.ptx) == {"mma.sync.aligned.m16n8k8"}, compiled.log


def test_the_backend_finds_the_size_of_the_stages() -> None:
    compiling.nvrtc()
    image = compiling._compile(text("bfloat"), cuda_options("sm_90a"))
    stage = (64 + 32) * 128
    assert [int(size) for size in set(kernels._STAGING.findall(image))] == [8 * stage + 1024]
    image = compiling._compile(text("bfloat", "48"), cuda_options("sm_90a"))
    assert not kernels._STAGING.search(image)


def test_lanes_are_renumbered_only_beside_matrices() -> None:
    named = PLAIN.replace("kernel", "inline void f(simdgroup_half8x8 m) {}\nkernel")
    found = [
        "__OST_MATRICES" in part for part in (text("float"), *(parse(s).translate("cuda").text for s in (named, PLAIN)))
    ]
    assert found == [True, True, False]


def test_structs_of_bytes_from_device_memory_are_read_without_a_branch() -> None:
    source = """#include <metal_stdlib>
using namespace metal;
struct Bytes { uint8_t v[16]; };
kernel void k(device const half *x, device half *out, constant uint &a, constant uint &b) {
  threadgroup half memory[16];
  *(threadgroup Bytes *)memory = *(device const Bytes *)(x + a);
  *(threadgroup Bytes *)(memory + 8) = *(device const Bytes *)(x + b);
  out[a] = memory[b];
}"""
    compiled = Nvrtc().compile(parse(source).translate("cuda"))
    assert "ld.global.v4.u32" in compiled.ptx, compiled.log
    assert "ld.global.u8" not in compiled.ptx
