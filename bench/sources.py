"""Kernels that more than one benchmark runs."""

from __future__ import annotations

STEPS = """
#include <metal_stdlib>
using namespace metal;
kernel void steps(device uint *x [[buffer(0)]], constant uint &count [[buffer(1)]]) {
    uint value = x[0];
    for (uint i = 0; i < count; ++i) {
        value = value * 1664525u + 1013904223u;
        value ^= value >> 13;
    }
    x[0] = value;
}
"""
"""A chain of integer steps: one thread that takes a time in proportion to `count`."""

REDUCTIONS = """
#include <metal_stdlib>
using namespace metal;

kernel void rms_norm_barriers(device const float *x, device float *y, constant uint &width,
                              uint row [[threadgroup_position_in_grid]], uint t [[thread_index_in_threadgroup]],
                              uint threads [[threads_per_threadgroup]]) {
  threadgroup float partial[256];
  float sum = 0;
  for (uint i = t; i < width; i += threads) { float v = x[row * width + i]; sum += v * v; }
  partial[t] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint half_ = threads / 2; half_ > 0; half_ /= 2) {
    if (t < half_) partial[t] += partial[t + half_];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  float scale = 1.0f / sqrt(partial[0] / float(width) + 1e-6f);
  for (uint i = t; i < width; i += threads) y[row * width + i] = x[row * width + i] * scale;
}

kernel void rms_norm_simd(device const float *x, device float *y, constant uint &width,
                          uint row [[threadgroup_position_in_grid]], uint t [[thread_index_in_threadgroup]],
                          uint threads [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                          uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup float partial[32];
  float sum = 0;
  for (uint i = t; i < width; i += threads) { float v = x[row * width + i]; sum += v * v; }
  sum = simd_sum(sum);
  if (lane == 0) partial[simdgroup] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float total = simd_sum(lane < threads / 32 ? partial[lane] : 0.0f);
  float scale = 1.0f / sqrt(total / float(width) + 1e-6f);
  for (uint i = t; i < width; i += threads) y[row * width + i] = x[row * width + i] * scale;
}

kernel void matvec_barriers(device const float4 *m, device const float4 *v, device float *out, constant uint &width,
                            uint row [[threadgroup_position_in_grid]], uint t [[thread_index_in_threadgroup]],
                            uint threads [[threads_per_threadgroup]]) {
  threadgroup float partial[64];
  float sum = 0;
  for (uint i = t; i < width / 4; i += threads) sum += dot(m[row * (width / 4) + i], v[i]);
  partial[t] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint half_ = threads / 2; half_ > 0; half_ /= 2) {
    if (t < half_) partial[t] += partial[t + half_];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (t == 0) out[row] = partial[0];
}

kernel void matvec_plain(device const float4 *m, device const float4 *v, device float *out, constant uint &width,
                         uint row [[thread_position_in_grid]]) {
  float4 sum = 0;
  for (uint i = 0; i < width / 4; ++i) sum += m[row * (width / 4) + i] * v[i];
  out[row] = sum.x + sum.y + sum.z + sum.w;
}

kernel void matvec_simd(device const float4 *m, device const float4 *v, device float *out, constant uint &width,
                        uint row [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  float sum = 0;
  for (uint i = lane; i < width / 4; i += 32) sum += dot(m[row * (width / 4) + i], v[i]);
  sum = simd_sum(sum);
  if (lane == 0) out[row] = sum;
}
"""
"""Sums over rows: an RMS norm and matrix-vector products, by barriers, by simdgroups, and by one thread a row."""

OPENCL_REDUCTIONS = """
kernel void rms_norm(global const float *x, global float *y, uint width) {
  local float partial[256];
  uint row = get_group_id(0), t = get_local_id(0), threads = get_local_size(0);
  float sum = 0;
  for (uint i = t; i < width; i += threads) { float v = x[row * width + i]; sum += v * v; }
  partial[t] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint half_ = threads / 2; half_ > 0; half_ /= 2) {
    if (t < half_) partial[t] += partial[t + half_];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  float scale = 1.0f / sqrt(partial[0] / (float)width + 1e-6f);
  for (uint i = t; i < width; i += threads) y[row * width + i] = x[row * width + i] * scale;
}

kernel void matvec(global const float4 *m, global const float4 *v, global float *out, uint width) {
  local float partial[64];
  uint row = get_group_id(0), t = get_local_id(0), threads = get_local_size(0);
  float sum = 0;
  for (uint i = t; i < width / 4; i += threads) sum += dot(m[row * (width / 4) + i], v[i]);
  partial[t] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint half_ = threads / 2; half_ > 0; half_ /= 2) {
    if (t < half_) partial[t] += partial[t + half_];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (t == 0) out[row] = partial[0];
}
"""
"""The versions with barriers."""
