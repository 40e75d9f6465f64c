// How threads meet on CUDA. A simdgroup is a warp. Convergent functions take a Site first, which on CUDA names the lanes
// that meet: all existing lanes where the translator has proved uniform flow, the active lanes elsewhere.
#pragma once

namespace __ost {

struct Site { uint32_t lanes; };
// For barriers that all lanes of a warp reach together.
struct Everyone : Site {};
// For barriers that need not be waited at (idle_barriers.py).
struct Nobody {};

// Lanes as Metal numbers them, and as the hardware does. The two agree, except in sources with matrices: there a simdgroup
// is numbered so that a matrix that lies in its lanes as on Apple GPUs lies as the tensor cores take it, and no value has
// to move between lanes for a product. Metal's lane has row bits 4, 2, 1 and column bits 3, 0; the hardware's has its row
// in bits 4, 3, 2 and its column in bits 1, 0. Masks (Site) are always of the hardware's lanes.
#ifdef __OST_MATRICES
OST_FN constexpr uint32_t metal_lane(uint32_t hardware) {
  return (hardware & 17u) | (hardware & 2u) << 2 | (hardware & 12u) >> 1;
}
OST_FN constexpr uint32_t hardware_lane(uint32_t lane) { return (lane & 17u) | (lane & 6u) << 1 | (lane & 8u) >> 2; }
template <int Shift> OST_FN constexpr uint32_t swapped_bits(uint32_t mask, uint32_t where) {
  const uint32_t changed = (mask ^ (mask >> Shift)) & where;
  return mask ^ changed ^ (changed << Shift);
}
OST_FN constexpr uint32_t metal_mask(uint32_t hardware) {
  return swapped_bits<2>(swapped_bits<6>(hardware, 0x00cc00ccu), 0x0c0c0c0cu);
}
OST_FN constexpr uint32_t hardware_mask(uint32_t mask) {
  return swapped_bits<6>(swapped_bits<2>(mask, 0x0c0c0c0cu), 0x00cc00ccu);
}
#else
OST_FN constexpr uint32_t metal_lane(uint32_t hardware) { return hardware; }
OST_FN constexpr uint32_t hardware_lane(uint32_t lane) { return lane; }
OST_FN constexpr uint32_t metal_mask(uint32_t hardware) { return hardware; }
OST_FN constexpr uint32_t hardware_mask(uint32_t mask) { return mask; }
#endif

OST_FN uint32_t lane_id() { return metal_lane(threadIdx.x & 31u); }
// The thread's place in its threadgroup. Blocks have whole warps; threads past the end of the group have ended.
OST_FN uint32_t group_thread() { return (threadIdx.x & ~31u) | lane_id(); }
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
