#include <metal_stdlib>
using namespace metal;

kernel void sort_bitonic(device const uint *in, device uint *out, uint i [[thread_position_in_grid]],
                         uint t [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
  threadgroup uint keys[256];
  uint size = 1;
  while (size < n) size *= 2;
  keys[t] = in[i];                             //: put
  if (t + n < size) keys[t + n] = 0xffffffff;  //: pad
  for (uint span = 2; span <= size; span *= 2) {
    for (uint step = span / 2; step > 0; step /= 2) {
      //: orders put>look, pad>look, put>swap, pad>swap, swap>look, swap>swap
      threadgroup_barrier(mem_flags::mem_threadgroup);
      uint low = 2 * t - (t & (step - 1));
      if (low + step < size) {
        uint a = keys[low], b = keys[low + step];  //: look
        bool ascending = (low & span) == 0;
        if ((a > b) == ascending) keys[low] = b, keys[low + step] = a;  //: swap
      }
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders swap>take
  out[i] = keys[t];                                 //: take
}

// Sorts each group by two bits, keeping the order of equals.
kernel void sort_radix_step(device const uint *in, device uint *out, constant uint &shift,
                            uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]],
                            uint lane [[thread_index_in_simdgroup]], uint s [[simdgroup_index_in_threadgroup]],
                            uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup uint totals[4 * 8];
  threadgroup uint sorted[256];
  uint key = in[i];
  uint digit = (key >> shift) & 3;
  uint rank = 0;
  for (uint d = 0; d < 4; ++d) {
    uint mine = digit == d ? 1 : 0;
    uint before = simd_prefix_exclusive_sum(mine);
    uint total = simd_sum(mine);
    if (mine != 0) rank = before;
    if (lane == 0) totals[d * simdgroups + s] = total;  //: put
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders put>scan, put>spread, scatter>scatter
  if (t == 0) {
    uint sum = 0;
    for (uint k = 0; k < 4 * simdgroups; ++k) {
      uint total = totals[k];  //: scan
      totals[k] = sum;         //: spread
      sum += total;
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);     //: orders spread>start, scatter>scatter
  uint place = totals[digit * simdgroups + s] + rank;  //: start
  sorted[place & 255] = key;                           //: scatter
  threadgroup_barrier(mem_flags::mem_threadgroup);     //: orders scatter>take
  out[i] = sorted[t];                                  //: take
}

// Neighbours trade places, at even places and at odd ones in turns.
kernel void sort_odd_even(device const uint *in, device uint *out, uint i [[thread_position_in_grid]],
                          uint t [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
  threadgroup uint keys[256];
  keys[t] = in[i];                                  //: put
  threadgroup_barrier(mem_flags::mem_threadgroup);  //: lockstep orders put>look, put>swap
  for (uint round = 0; round < n; ++round) {
    if (t % 2 == round % 2 && t + 1 < n) {
      uint a = keys[t], b = keys[t + 1];        //: look
      if (a > b) keys[t] = b, keys[t + 1] = a;  //: swap
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders swap>look, swap>swap, swap>take, look>swap
  }
  out[i] = keys[t];  //: take
}

kernel void top_k(device const float *in, device float *out, constant uint &k, uint i [[thread_position_in_grid]],
                  uint t [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                  uint s [[simdgroup_index_in_threadgroup]], uint simdgroups [[simdgroups_per_threadgroup]],
                  uint g [[threadgroup_position_in_grid]]) {
  threadgroup float bests[8];
  float mine = in[i];
  for (uint round = 0; round < k; ++round) {
    float best = simd_max(mine);
    if (lane == 0) bests[s] = best;                                                    //: put
    threadgroup_barrier(mem_flags::mem_threadgroup);                                   //: orders put>compare
    for (uint other = 0; other < simdgroups; ++other) best = max(best, bests[other]);  //: compare
    if (t == 0) out[g * k + round] = best;
    if (mine == best) mine = -MAXFLOAT;
    threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders compare>put
  }
}
