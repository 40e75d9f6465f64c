#include <metal_stdlib>
using namespace metal;

kernel void scan_hillis_steele(device const uint *in, device uint *out, uint i [[thread_position_in_grid]],
                               uint t [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
  threadgroup uint sums[256];
  sums[t] = in[i];                                  //: put
  threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders put>look
  for (uint step = 1; step < n; step *= 2) {
    uint left = t >= step ? sums[t - step] : 0;       //: look
    threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders look>add
    sums[t] += left;                                  //: add
    threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders add>look
  }
  out[i] = sums[t];
}

kernel void scan_ping_pong(device const uint *in, device uint *out, uint i [[thread_position_in_grid]],
                           uint t [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
  threadgroup uint sums[2][256];
  uint from = 0;
  sums[0][t] = in[i];                               //: put
  threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders put>add
  for (uint step = 1; step < n; step *= 2) {
    sums[1 - from][t] = sums[from][t] + (t >= step ? sums[from][t - step] : 0);  //: add
    from = 1 - from;
    threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders add>add
  }
  out[i] = sums[from][t];
}

kernel void scan_blelloch(device const uint *in, device uint *out, uint i [[thread_position_in_grid]],
                          uint t [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
  threadgroup uint sums[256];
  uint size = 1;
  while (size < n) size *= 2;
  sums[t] = in[i];                    //: put
  if (t + n < size) sums[t + n] = 0;  //: pad
  for (uint step = 1; step < size; step *= 2) {
    threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders put>up, pad>up, up>up
    uint right = (t + 1) * 2 * step - 1;
    if (right < size) sums[right] += sums[right - step];  //: up
  }
  // Thread 0 alone takes the last step up and clears; the barrier of the way down follows.
  threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders nothing
  if (t == 0) sums[size - 1] = 0;                   //: clear
  for (uint step = size / 2; step > 0; step /= 2) {
    //: orders clear>swap, clear>down, swap>swap, swap>down, keep>down, down>down
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint right = (t + 1) * 2 * step - 1;
    if (right < size) {
      uint left = sums[right - step];    //: keep
      sums[right - step] = sums[right];  //: swap
      sums[right] += left;               //: down
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders swap>take, down>take
  out[i] = sums[t];                                 //: take
}

kernel void scan_simd(device const uint *in, device uint *out, uint i [[thread_position_in_grid]],
                      uint lane [[thread_index_in_simdgroup]], uint s [[simdgroup_index_in_threadgroup]],
                      uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup uint totals[8];
  uint before = simd_prefix_exclusive_sum(in[i]);
  uint total = simd_sum(in[i]);
  if (lane == 0) totals[s] = total;                 //: put
  threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders put>scan, put>spread
  if (s == 0) {
    uint part = lane < simdgroups ? totals[lane] : 0;  //: scan
    uint offset = simd_prefix_exclusive_sum(part);
    if (lane < simdgroups) totals[lane] = offset;  //: spread
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders spread>take
  out[i] = before + totals[s];                      //: take
}

kernel void scan_quads(device const uint *in, device uint *out, uint i [[thread_position_in_grid]],
                       uint t [[thread_index_in_threadgroup]]) {
  threadgroup uint totals[64];
  uint before = quad_prefix_exclusive_sum(in[i]);
  uint total = quad_sum(in[i]);
  if (t % 4 == 0) totals[t / 4] = total;                             //: put
  threadgroup_barrier(mem_flags::mem_threadgroup);                   //: orders put>add
  for (uint quad = 0; quad < t / 4; ++quad) before += totals[quad];  //: add
  out[i] = before;
}

// Each group adds the totals of all groups before it, as they are published.
kernel void scan_look_back(device const uint *in, device uint *out, device atomic_uint *ticket,
                           device atomic_uint *ready, device uint *totals, constant uint &count,
                           uint t [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
  threadgroup uint sums[256];
  threadgroup uint part;
  threadgroup uint before;
  if (t == 0) part = atomic_fetch_add_explicit(ticket, 1u, memory_order_relaxed);  //: draw, plain draw>draw
  threadgroup_barrier(mem_flags::mem_threadgroup);                                 //: orders draw>begin
  uint i = part * n + t;                                                           //: begin
  sums[t] = i < count ? in[i] : 0;                                                 //: put
  threadgroup_barrier(mem_flags::mem_threadgroup);                                 //: orders put>look
  for (uint step = 1; step < n; step *= 2) {
    uint left = t >= step ? sums[t - step] : 0;       //: look
    threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders look>add
    sums[t] += left;                                  //: add
    threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders add>look, add>total
  }
  if (t == 0) {
    totals[part] = sums[n - 1];                                                             //: total
    atomic_thread_fence(mem_flags::mem_device, memory_order_release, thread_scope_device);  //: orders total>collect
    atomic_store_explicit(&ready[part], 1u, memory_order_relaxed);  //: signal, plain signal>wait, total>collect
    uint sum = 0;
    for (uint k = 0; k < part; ++k) {
      while (atomic_load_explicit(&ready[k], memory_order_relaxed) == 0) {}  //: wait, plain signal>wait, total>collect
      atomic_thread_fence(mem_flags::mem_device, memory_order_acquire, thread_scope_device);  //: orders total>collect
      sum += totals[k];                                                                       //: collect
    }
    before = sum;  //: hand
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders hand>take
  if (i < count) out[i] = before + sums[t];         //: take
}

kernel void compact(device const uint *in, device uint *out, device atomic_uint *size, constant uint &limit,
                    uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]], uint s [[simdgroup_index_in_threadgroup]],
                    uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup uint counts[8];
  threadgroup uint base;
  uint kept = in[i] < limit ? 1 : 0;
  uint place = simd_prefix_exclusive_sum(kept);
  uint total = simd_sum(kept);
  if (lane == 0) counts[s] = total;                 //: put
  threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders put>scan, put>spread, store>store
  if (t == 0) {
    uint sum = 0;
    for (uint k = 0; k < simdgroups; ++k) {
      uint part = counts[k];  //: scan
      counts[k] = sum;        //: spread
      sum += part;
    }
    base = atomic_fetch_add_explicit(size, sum, memory_order_relaxed);  //: reserve, plain reserve>reserve
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders spread>start, reserve>start, store>store
  uint start = base + counts[s];                    //: start
  if (kept != 0) out[start + place] = in[i];        //: store
}
