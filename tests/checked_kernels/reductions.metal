#include <metal_stdlib>
using namespace metal;

kernel void sum_tree(device const float *in, device float *out, uint i [[thread_position_in_grid]],
                     uint t [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]],
                     uint g [[threadgroup_position_in_grid]]) {
  threadgroup float sums[256];
  sums[t] = in[i];                                  //: put
  threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders put>add
  for (uint width = n; width > 1;) {
    uint rest = (width + 1) / 2;
    if (t + rest < width) sums[t] += sums[t + rest];  //: add
    threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders add>add
    width = rest;
  }
  if (t == 0) out[g] = sums[0];
}

kernel void sum_simd(device const float *in, device float *out, uint i [[thread_position_in_grid]],
                     uint lane [[thread_index_in_simdgroup]], uint s [[simdgroup_index_in_threadgroup]],
                     uint simdgroups [[simdgroups_per_threadgroup]], uint g [[threadgroup_position_in_grid]]) {
  threadgroup float sums[8];
  float sum = simd_sum(in[i]);
  if (lane == 0) sums[s] = sum;                     //: put
  threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders put>take
  if (s == 0) {
    sum = simd_sum(lane < simdgroups ? sums[lane] : 0.0f);  //: take
    if (lane == 0) out[g] = sum;
  }
}

kernel void arg_max(device const float *in, device uint *out, uint i [[thread_position_in_grid]],
                    uint t [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]],
                    uint g [[threadgroup_position_in_grid]]) {
  threadgroup float values[256];
  threadgroup uint places[256];
  values[t] = in[i];                                //: value
  places[t] = i;                                    //: place
  threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders value>look, place>move
  for (uint width = n; width > 1;) {
    uint rest = (width + 1) / 2;
    if (t + rest < width) {
      float other = values[t + rest];  //: look
      if (other > values[t]) {
        values[t] = other;             //: keep
        places[t] = places[t + rest];  //: move
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders keep>look, move>move
    width = rest;
  }
  if (t == 0) out[g] = places[0];
}

// Several dot products, one after the other, through the same threadgroup memory.
kernel void dot_rows(device const float *a, device const float *b, device float *out, constant uint &width,
                     constant uint &rows, uint t [[thread_index_in_threadgroup]],
                     uint lane [[thread_index_in_simdgroup]], uint s [[simdgroup_index_in_threadgroup]],
                     uint simdgroups [[simdgroups_per_threadgroup]], uint n [[threads_per_threadgroup]],
                     uint g [[threadgroup_position_in_grid]], uint groups [[threadgroups_per_grid]]) {
  threadgroup float parts[8];
  for (uint row = g; row < rows; row += groups) {
    float sum = 0;
    for (uint c = t; c < width; c += n) sum += a[row * width + c] * b[c];
    sum = simd_sum(sum);
    if (lane == 0) parts[s] = sum;                    //: put
    threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders put>take
    if (t == 0) {
      float total = 0;
      for (uint k = 0; k < simdgroups; ++k) total += parts[k];  //: take
      out[row] = total;                                         //: store
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders take>put
  }
}

// The last group to arrive adds what all groups have left in device memory.
kernel void sum_last_group(device const float *in, device float *partial, device atomic_uint *arrived,
                           device float *out, uint i [[thread_position_in_grid]],
                           uint t [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                           uint s [[simdgroup_index_in_threadgroup]], uint simdgroups [[simdgroups_per_threadgroup]],
                           uint n [[threads_per_threadgroup]], uint g [[threadgroup_position_in_grid]],
                           uint groups [[threadgroups_per_grid]]) {
  threadgroup float sums[8];
  threadgroup uint last;
  float sum = simd_sum(in[i]);
  if (lane == 0) sums[s] = sum;                     //: put
  threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders put>add
  if (t == 0) {
    float total = 0;
    for (uint k = 0; k < simdgroups; ++k) total += sums[k];                                 //: add
    partial[g] = total;                                                                     //: publish
    atomic_thread_fence(mem_flags::mem_device, memory_order_release, thread_scope_device);  //: orders publish>collect
    //: arrive, plain arrive>arrive, publish>collect
    uint before = atomic_fetch_add_explicit(arrived, 1u, memory_order_relaxed);
    atomic_thread_fence(mem_flags::mem_device, memory_order_acquire, thread_scope_device);  //: orders publish>collect
    last = before + 1 == groups;                                                            //: decide
  }
  //: orders decide>check, add>again, device publish>collect
  threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  if (last == 0) return;  //: check
  float whole = 0;
  for (uint k = t; k < groups; k += n) whole += partial[k];  //: collect
  whole = simd_sum(whole);
  if (lane == 0) sums[s] = whole;                   //: again
  threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders again>finish
  if (t == 0) {
    float total = 0;
    for (uint k = 0; k < simdgroups; ++k) total += sums[k];  //: finish
    out[0] = total;
  }
}

// All accesses are atomic: an order that is missing makes a wrong result, and no race.
kernel void max_atomic(device const uint *in, device atomic_uint *out, uint i [[thread_position_in_grid]],
                       uint t [[thread_index_in_threadgroup]]) {
  threadgroup atomic_uint best;
  // Plain: the barrier below stands between it and every other access.
  if (t == 0) atomic_store_explicit(&best, 0u, memory_order_relaxed);  //: clear, plain nothing
  // Clear and raise are both atomic: without an order the result is wrong, and there is no race.
  threadgroup_barrier(mem_flags::mem_threadgroup);                //: orders nothing
  atomic_fetch_max_explicit(&best, in[i], memory_order_relaxed);  //: raise, plain raise>raise
  // Raise and load are both atomic: without an order the result is wrong, and there is no race.
  threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders nothing
  if (t == 0) {
    // Plain: the barrier above stands between it and every other access.
    uint mine = atomic_load_explicit(&best, memory_order_relaxed);  //: load, plain nothing
    atomic_fetch_max_explicit(out, mine, memory_order_relaxed);     //: merge, plain merge>merge
  }
}
