// How threads meet on CUDA. A simdgroup is a warp. Convergent functions take a Site first, which on CUDA names the lanes
// that meet: all existing lanes where the translator has proved uniform flow, the active lanes elsewhere.
#pragma once

namespace __ost {

struct Site { uint32_t lanes; };
// For barriers that all lanes of a warp reach together.
struct Everyone : Site {};
// For barriers that need not be waited at (idle_barriers.py).
struct Nobody {};

OST_FN uint32_t lane_id() { return threadIdx.x & 31u; }
OST_FN Site active_lanes() { return Site{::__activemask()}; }
// Only where every lane that has not returned arrives: returned lanes are not waited for, and not counted.
OST_FN Site existing_lanes() { return Site{::__ballot_sync(0xffffffffu, 1)}; }

OST_FN void group_barrier(Everyone) { ::__syncthreads(); }
OST_FN void group_barrier(Nobody) {}
// Waits for every thread of the group that has not ended, whichever barrier it waits at.
OST_FN void group_barrier(Site) { asm volatile("barrier.sync 0;" ::: "memory"); }
OST_FN void simd_barrier(Site site) { ::__syncwarp(site.lanes); }

OST_FN void fence(metal::thread_scope scope) {
  if (scope == metal::thread_scope_device) ::__threadfence();
  else if (scope != metal::thread_scope_thread) ::__threadfence_block();
}

}  // namespace __ost
