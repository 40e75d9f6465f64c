// C = A B in tiles of 128 × 128 by simdgroup matrices: operands through threadgroup memory, the next ones read from device
// memory meanwhile. Each of four simdgroups has 64 × 64 of a tile, since what it reads of threadgroup memory for each product
// decides. Sides are multiples of 128 and the depth is one of 64. The two operands take 35 KiB; a depth of 32 at a time
// would do for GPUs with less, but reads halves of lines.
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

constant constexpr uint SIDE = 128, DEPTH = 64;
constant constexpr uint LEFT = DEPTH + 8, RIGHT = SIDE + 8;  // rows in threadgroup memory, in different banks
constant constexpr uint ROUNDS = 8, LEFT_ROWS = SIDE / ROUNDS, RIGHT_ROWS = DEPTH / ROUNDS;

template <typename T>
[[max_total_threads_per_threadgroup(128)]]
kernel void tiled(device const uint4 *a [[buffer(0)]], device const uint4 *b [[buffer(1)]],
                  device vec<T, 2> *c [[buffer(2)]], constant uint &columns [[buffer(3)]],
                  constant uint &depth [[buffer(4)]], uint2 tile [[threadgroup_position_in_grid]],
                  ushort thread_index [[thread_index_in_threadgroup]],
                  ushort simdgroup [[simdgroup_index_in_threadgroup]], ushort lane [[thread_index_in_simdgroup]]) {
  threadgroup T left[SIDE * LEFT];
  threadgroup T right[DEPTH * RIGHT];
  // Eight elements at a time, in buffers that are declared so: others could begin anywhere. The lanes that hold a row of a
  // matrix read neighbours.
  const uint left_row = depth / 8, right_row = columns / 8;
  const uint eight = (thread_index & 3) | (thread_index >> 1 & 4);
  const uint row_of_left = (thread_index >> 2 & 1) | thread_index >> 4 << 1;
  const uint eight_of_right = eight | (thread_index & 4) << 1, row_of_right = thread_index >> 4;
  a += ulong(tile.y * SIDE + row_of_left) * left_row + eight;
  b += ulong(row_of_right) * right_row + tile.x * (SIDE / 8) + eight_of_right;
  threadgroup T *const left_at = left + row_of_left * LEFT + eight * 8;
  threadgroup T *const right_at = right + row_of_right * RIGHT + eight_of_right * 8;
  const threadgroup T *const from_left = left + simdgroup / 2 * 64 * LEFT;
  const threadgroup T *const from_right = right + simdgroup % 2 * 64;

  simdgroup_matrix<float, 8, 8> sums[8][8];
#pragma clang loop unroll(full)
  for (uint i = 0; i < 8; ++i)
#pragma clang loop unroll(full)
    for (uint j = 0; j < 8; ++j) { sums[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f); }

  uint4 next_left[ROUNDS], next_right[ROUNDS];
#pragma clang loop unroll(full)
  for (uint i = 0; i < ROUNDS; ++i) {
    next_left[i] = a[ulong(i) * LEFT_ROWS * left_row];
    next_right[i] = b[ulong(i) * RIGHT_ROWS * right_row];
  }
  for (uint k = 0; k < depth; k += DEPTH) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma clang loop unroll(full)
    for (uint i = 0; i < ROUNDS; ++i) {
      *(threadgroup uint4 *)(left_at + i * LEFT_ROWS * LEFT) = next_left[i];
      *(threadgroup uint4 *)(right_at + i * RIGHT_ROWS * RIGHT) = next_right[i];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (k + DEPTH < depth) {
      a += DEPTH / 8;
      b += DEPTH * right_row;
#pragma clang loop unroll(full)
      for (uint i = 0; i < ROUNDS; ++i) {
        next_left[i] = a[ulong(i) * LEFT_ROWS * left_row];
        next_right[i] = b[ulong(i) * RIGHT_ROWS * right_row];
      }
    }
#pragma clang loop unroll(full)
    for (uint part = 0; part < DEPTH; part += 8) {
      simdgroup_matrix<T, 8, 8> x[8], y[8];
#pragma clang loop unroll(full)
      for (uint i = 0; i < 8; ++i) { simdgroup_load(x[i], from_left + i * 8 * LEFT + part, LEFT); }
#pragma clang loop unroll(full)
      for (uint j = 0; j < 8; ++j) { simdgroup_load(y[j], from_right + part * RIGHT + j * 8, RIGHT); }
#pragma clang loop unroll(full)
      for (uint i = 0; i < 8; ++i)
#pragma clang loop unroll(full)
        for (uint j = 0; j < 8; ++j) { simdgroup_multiply_accumulate(sums[i][j], x[i], y[j], sums[i][j]); }
    }
  }
  // Two neighbours at a time, where the lane has them.
  const uint row = tile.y * SIDE + simdgroup / 2 * 64 + ((lane >> 2 & 4) | (lane >> 1 & 3));
  const uint column = tile.x * SIDE + simdgroup % 2 * 64 + ((lane >> 1 & 4) | (lane & 1) << 1);
#pragma clang loop unroll(full)
  for (uint i = 0; i < 8; ++i)
#pragma clang loop unroll(full)
    for (uint j = 0; j < 8; ++j) {
      c[(ulong(row + i * 8) * columns + column + j * 8) / 2] = vec<T, 2>(sums[i][j].thread_elements());
    }
}
#define TILED(T) \
  template [[host_name("tiled_" #T)]] kernel void tiled<T>(device const uint4 *, device const uint4 *, device vec<T, 2> *, \
                                                           constant uint &, constant uint &, uint2, ushort, ushort, ushort);
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
