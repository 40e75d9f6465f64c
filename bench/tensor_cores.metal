// C = A B in tiles of 128 × 128 by simdgroup matrices, as one would write it for Apple's GPUs: operands through threadgroup
// memory, the next ones read from device memory meanwhile. Sides are multiples of 128 and the depth is one of 32.
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

constant constexpr uint SIDE = 128, DEPTH = 32;
constant constexpr uint LEFT = DEPTH + 8, RIGHT = SIDE + 8;  // rows in threadgroup memory, in different banks

template <typename T>
[[max_total_threads_per_threadgroup(256)]]
kernel void tiled(device const uint4 *a [[buffer(0)]], device const uint4 *b [[buffer(1)]], device T *c [[buffer(2)]],
                  constant uint &columns [[buffer(3)]], constant uint &depth [[buffer(4)]],
                  uint2 tile [[threadgroup_position_in_grid]], ushort thread_index [[thread_index_in_threadgroup]],
                  ushort simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup T left[SIDE * LEFT];
  threadgroup T right[DEPTH * RIGHT];
  // Eight elements at a time, in buffers that are declared so: others could begin anywhere.
  const uint left_row = depth / 8, right_row = columns / 8;
  a += ulong(tile.y * SIDE + thread_index / 4) * left_row + thread_index % 4;
  b += ulong(thread_index / 16) * right_row + tile.x * (SIDE / 8) + thread_index % 16;
  threadgroup T *const left_at = left + thread_index / 4 * LEFT + thread_index % 4 * 8;
  threadgroup T *const right_at = right + thread_index / 16 * RIGHT + thread_index % 16 * 8;
  const threadgroup T *const from_left = left + simdgroup / 4 * 64 * LEFT;
  const threadgroup T *const from_right = right + simdgroup % 4 * 32;

  simdgroup_matrix<float, 8, 8> sums[8][4];
#pragma clang loop unroll(full)
  for (uint i = 0; i < 8; ++i)
#pragma clang loop unroll(full)
    for (uint j = 0; j < 4; ++j) { sums[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f); }

  uint4 next_left[2], next_right[2];
  for (uint i = 0; i < 2; ++i) {
    next_left[i] = a[ulong(i) * 64 * left_row];
    next_right[i] = b[ulong(i) * 16 * right_row];
  }
  for (uint k = 0; k < depth; k += DEPTH) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = 0; i < 2; ++i) {
      *(threadgroup uint4 *)(left_at + i * 64 * LEFT) = next_left[i];
      *(threadgroup uint4 *)(right_at + i * 16 * RIGHT) = next_right[i];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (k + DEPTH < depth) {
      a += DEPTH / 8;
      b += DEPTH * right_row;
      for (uint i = 0; i < 2; ++i) {
        next_left[i] = a[ulong(i) * 64 * left_row];
        next_right[i] = b[ulong(i) * 16 * right_row];
      }
    }
#pragma clang loop unroll(full)
    for (uint part = 0; part < DEPTH; part += 8) {
      simdgroup_matrix<T, 8, 8> x[8], y[4];
#pragma clang loop unroll(full)
      for (uint i = 0; i < 8; ++i) { simdgroup_load(x[i], from_left + i * 8 * LEFT + part, LEFT); }
#pragma clang loop unroll(full)
      for (uint j = 0; j < 4; ++j) { simdgroup_load(y[j], from_right + part * RIGHT + j * 8, RIGHT); }
#pragma clang loop unroll(full)
      for (uint i = 0; i < 8; ++i)
#pragma clang loop unroll(full)
        for (uint j = 0; j < 4; ++j) { simdgroup_multiply_accumulate(sums[i][j], x[i], y[j], sums[i][j]); }
    }
  }
  c += ulong(tile.y * SIDE + simdgroup / 4 * 64) * columns + tile.x * SIDE + simdgroup % 4 * 32;
#pragma clang loop unroll(full)
  for (uint i = 0; i < 8; ++i)
#pragma clang loop unroll(full)
    for (uint j = 0; j < 4; ++j) {
      simdgroup_matrix<T, 8, 8> rounded;
      rounded.thread_elements()[0] = T(sums[i][j].thread_elements()[0]);
      rounded.thread_elements()[1] = T(sums[i][j].thread_elements()[1]);
      simdgroup_store(rounded, c + i * 8 * columns + j * 8, columns);
    }
}
#define TILED(T)                                                                                                      \
    template [[host_name("tiled_" #T)]] kernel void tiled<T>(device const uint4 *, device const uint4 *, device T *,          \
                                                             constant uint &, constant uint &, uint2, ushort, ushort);
TILED(bfloat)
TILED(half)

// What the bounds are made of: how fast the second-level cache is read, and how fast simdgroups multiply from registers.
kernel void read_all(device const uint4 *x [[buffer(0)]], device uint4 *out [[buffer(1)]],
                     constant uint &times [[buffer(2)]], uint id [[thread_position_in_grid]],
                     uint size [[threads_per_grid]]) {
  uint4 all = 0;
  for (uint time = 0; time < times; ++time) {
    const uint i = (id + time * 256) % size;  // others each time, or a compiler reads once
    all ^= x[i] ^ x[i + size] ^ x[i + 2 * size] ^ x[i + 3 * size];
  }
  if (all.x == 0x12345678) { out[id] = all; }
}
[[max_total_threads_per_threadgroup(256)]]
kernel void multiply_registers(device const bfloat *x [[buffer(0)]], device float *out [[buffer(1)]],
                               constant uint &times [[buffer(2)]], uint group [[threadgroup_position_in_grid]]) {
  simdgroup_matrix<float, 8, 8> sums[8][4];
  simdgroup_matrix<bfloat, 8, 8> left[2][8], right[2][4];
  for (uint k = 0; k < 2; ++k) {
    for (uint i = 0; i < 8; ++i) { simdgroup_load(left[k][i], x + (k * 8 + i) * 64); }
    for (uint j = 0; j < 4; ++j) { simdgroup_load(right[k][j], x + (k * 4 + j) * 64); }
  }
  for (uint i = 0; i < 8; ++i) {
    for (uint j = 0; j < 4; ++j) { sums[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f); }
  }
  for (uint time = 0; time < times; ++time) {
#pragma clang loop unroll(full)
    for (uint k = 0; k < 2; ++k)
#pragma clang loop unroll(full)
      for (uint i = 0; i < 8; ++i)
#pragma clang loop unroll(full)
        for (uint j = 0; j < 4; ++j) { simdgroup_multiply_accumulate(sums[i][j], left[k][i], right[k][j], sums[i][j]); }
  }
  for (uint i = 0; i < 8; ++i) {
    for (uint j = 0; j < 4; ++j) {
      if (sums[i][j].thread_elements()[0] == 12345.0f) { simdgroup_store(sums[i][j], out + group * 64); }
    }
  }
}
