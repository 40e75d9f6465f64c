#include <metal_stdlib>
using namespace metal;

kernel void histogram_shared(device const uint *in, device atomic_uint *out, uint i [[thread_position_in_grid]],
                             uint t [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
  threadgroup atomic_uint bins[64];
  threadgroup uint *plain = (threadgroup uint *)bins;
  for (uint k = t; k < 64; k += n) plain[k] = 0;                           //: clear
  threadgroup_barrier(mem_flags::mem_threadgroup);                         //: orders clear>count
  atomic_fetch_add_explicit(&bins[in[i] % 64], 1u, memory_order_relaxed);  //: count, plain count>count
  threadgroup_barrier(mem_flags::mem_threadgroup);                         //: orders count>flush
  for (uint k = t; k < 64; k += n) {
    uint total = plain[k];                                                           //: flush
    if (total > 0) atomic_fetch_add_explicit(&out[k], total, memory_order_relaxed);  //: merge, plain merge>merge
  }
}

// Cleared and read with atomics too: an order that is missing makes a wrong result, and no race.
kernel void histogram_atomic(device const uint *in, device atomic_uint *out, uint i [[thread_position_in_grid]],
                             uint t [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
  threadgroup atomic_uint bins[16];
  // Plain: the barrier below stands between it and every other access.
  for (uint k = t; k < 16; k += n) atomic_store_explicit(&bins[k], 0u, memory_order_relaxed);  //: clear, plain nothing
  // Clear and count are both atomic: without an order the result is wrong, and there is no race.
  threadgroup_barrier(mem_flags::mem_threadgroup);                         //: orders nothing
  atomic_fetch_add_explicit(&bins[in[i] % 16], 1u, memory_order_relaxed);  //: count, plain count>count
  // Count and flush are both atomic: without an order the result is wrong, and there is no race.
  threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders nothing
  for (uint k = t; k < 16; k += n) {
    // Plain: the barrier above stands between it and every other access.
    uint total = atomic_load_explicit(&bins[k], memory_order_relaxed);  //: flush, plain nothing
    atomic_fetch_add_explicit(&out[k], total, memory_order_relaxed);    //: merge, plain merge>merge
  }
}

kernel void histogram_private(device const uint *in, device atomic_uint *out, constant uint &count,
                              uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]],
                              uint n [[threads_per_threadgroup]], uint all [[threads_per_grid]]) {
  threadgroup ushort bins[256][16];
  for (uint k = 0; k < 16; ++k) bins[t][k] = 0;                    //: clear
  for (uint k = i; k < count; k += all) bins[t][in[k] % 16] += 1;  //: count
  threadgroup_barrier(mem_flags::mem_threadgroup);                 //: orders count>sum, clear>sum
  for (uint k = t; k < 16; k += n) {
    uint total = 0;
    for (uint other = 0; other < n; ++other) total += bins[other][k];  //: sum
    atomic_fetch_add_explicit(&out[k], total, memory_order_relaxed);   //: merge, plain merge>merge
  }
}
