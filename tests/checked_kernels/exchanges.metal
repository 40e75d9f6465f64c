#include <metal_stdlib>
using namespace metal;

// Through device memory, inside a group.
kernel void reverse_in_device(device const uint *in, device uint *work, device uint *out,
                              uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]],
                              uint n [[threads_per_threadgroup]]) {
  work[i] = in[i] + 1;                         //: put
  threadgroup_barrier(mem_flags::mem_device);  //: orders put>take
  out[i] = work[i - t + n - 1 - t];            //: take
}

// Through both memories, with one barrier for both.
kernel void reverse_in_both(device const uint *in, device uint *work, device uint *out,
                            uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]],
                            uint n [[threads_per_threadgroup]]) {
  threadgroup uint near[256];
  near[t] = in[i];      //: put_near
  work[i] = in[i] * 3;  //: put_far
  //: orders put_near>take_near, device put_far>take_far
  threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  uint close = near[n - 1 - t];              //: take_near
  out[i] = close + work[i - t + n - 1 - t];  //: take_far
}

// Group by group: each adds its input to the block that the group before it has finished.
kernel void chain(device const uint *in, device uint *work, device atomic_uint *ticket, device atomic_uint *done,
                  uint t [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
  threadgroup uint part;
  if (t == 0) part = atomic_fetch_add_explicit(ticket, 1u, memory_order_relaxed);  //: draw, plain draw>draw
  threadgroup_barrier(mem_flags::mem_threadgroup);                                 //: orders draw>begin
  uint mine = part;                                                                //: begin
  uint before = 0;
  if (mine > 0) {
    if (t == 0) {
      //: wait, plain signal>wait, write>read
      while (atomic_load_explicit(&done[mine - 1], memory_order_relaxed) == 0) {}
      atomic_thread_fence(mem_flags::mem_device, memory_order_acquire, thread_scope_device);  //: orders write>read
    }
    threadgroup_barrier(mem_flags::mem_device);  //: orders write>read
    before = work[(mine - 1) * n + n - 1 - t];   //: read
  }
  work[mine * n + t] = in[mine * n + t] + before;  //: write
  threadgroup_barrier(mem_flags::mem_device);      //: orders write>read
  if (t == 0) {
    atomic_thread_fence(mem_flags::mem_device, memory_order_release, thread_scope_device);  //: orders write>read
    atomic_store_explicit(&done[mine], 1u, memory_order_relaxed);  //: signal, plain signal>wait, write>read
  }
}

// Nobody waits: a group takes the message of the group before it if it is there.
kernel void message(device const uint *in, device uint *work, device atomic_uint *sent, device uint *out,
                    uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]],
                    uint g [[threadgroup_position_in_grid]]) {
  work[i] = in[i] * 5;                         //: write
  threadgroup_barrier(mem_flags::mem_device);  //: orders write>read
  if (t != 0) return;
  atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);  //: orders write>read
  atomic_store_explicit(&sent[g], 1u, memory_order_relaxed);  //: send, plain send>receive, write>read
  if (g == 0) return;
  uint there = atomic_load_explicit(&sent[g - 1], memory_order_relaxed);  //: receive, plain send>receive, write>read
  atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);  //: orders write>read
  if (there != 0) out[g] = work[i - 1];                                                   //: read
}

kernel void append(device const uint *in, device uint *list, device atomic_uint *size, constant uint &limit,
                   uint i [[thread_position_in_grid]]) {
  if (in[i] >= limit) return;
  //: reserve, plain reserve>reserve, store>store
  uint place = atomic_fetch_add_explicit(size, 1u, memory_order_relaxed);
  list[place] = i;  //: store
}

// Neighbours inside a simdgroup, ordered as Metal asks.
kernel void swap_neighbours(device const uint *in, device uint *out, uint i [[thread_position_in_grid]],
                            uint t [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
  threadgroup uint cells[256];
  cells[t] = in[i];                               //: put
  simdgroup_barrier(mem_flags::mem_threadgroup);  //: lockstep orders put>take
  out[i] = cells[min(t ^ 1, n - 1)];              //: take
}

// The same without the barrier: right only as long as a simdgroup runs in lockstep.
kernel void swap_in_lockstep(device const uint *in, device uint *out, uint i [[thread_position_in_grid]],
                             uint t [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
  //: relies put>take
  threadgroup uint cells[256];
  cells[t] = in[i];                   //: put
  out[i] = cells[min(t ^ 1, n - 1)];  //: take
}

// The last 32 sums are folded by one simdgroup without barriers.
kernel void sum_in_lockstep(device const float *in, device float *out, uint i [[thread_position_in_grid]],
                            uint t [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]],
                            uint g [[threadgroup_position_in_grid]]) {
  threadgroup float sums[256];
  //: relies park>fold16, park>fold8, park>fold4, park>fold2, park>fold1, fold16>fold8, fold16>fold4, fold16>fold2
  //: relies fold16>fold1, fold8>fold4, fold8>fold2, fold8>fold1, fold4>fold2, fold4>fold1, fold2>fold1
  threadgroup float lanes[32];
  sums[t] = in[i];                                  //: put
  threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders put>gather
  if (t < 32) {
    float sum = 0;
    for (uint k = t; k < n; k += 32) sum += sums[k];  //: gather
    lanes[t] = sum;                                   //: park
    if (t < 16) lanes[t] += lanes[t + 16];            //: fold16
    if (t < 8) lanes[t] += lanes[t + 8];              //: fold8
    if (t < 4) lanes[t] += lanes[t + 4];              //: fold4
    if (t < 2) lanes[t] += lanes[t + 2];              //: fold2
    if (t < 1) out[g] = lanes[0] + lanes[1];          //: fold1
  }
}
