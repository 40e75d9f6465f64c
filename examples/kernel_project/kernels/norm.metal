#include <metal_stdlib>
using namespace metal;

// One simdgroup per row: y = x / sqrt(mean(x²) + eps) · weight.
kernel void rms_norm(device const float *x [[buffer(0)]], device const float *weight [[buffer(1)]],
                     device float *y [[buffer(2)]], constant uint &columns [[buffer(3)]],
                     constant float &eps [[buffer(4)]], uint row [[threadgroup_position_in_grid]],
                     uint lane [[thread_index_in_simdgroup]], uint width [[threads_per_simdgroup]]) {
  x += row * columns;
  y += row * columns;
  float sum = 0.0f;
  for (uint i = lane; i < columns; i += width) { sum += x[i] * x[i]; }
  const float scale = rsqrt(simd_sum(sum) / columns + eps);
  for (uint i = lane; i < columns; i += width) { y[i] = x[i] * scale * weight[i]; }
}

// Rounds to the nearest integer, ties to even, and clamps to eight bits.
kernel void quantise(device const float *x [[buffer(0)]], device char *q [[buffer(1)]],
                     constant float &scale [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  q[i] = char(clamp(rint(x[i] * scale), -128.0f, 127.0f));
}
