// <metal_compute>: barriers and fences. Convergent functions take their call site first; what a barrier is, is in
// exec_cpu.h and exec_cuda.h.
#pragma once

namespace metal {

enum class mem_flags {
  mem_none = 0,
  mem_device = 1,
  mem_threadgroup = 2,
  mem_texture = 4,
  mem_threadgroup_imageblock = 8,
  mem_object_data = 16,
  mem_simdgroup = 32
};
OST_FN constexpr mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(int(a) | int(b)); }
OST_FN constexpr mem_flags operator&(mem_flags a, mem_flags b) { return mem_flags(int(a) & int(b)); }
OST_FN mem_flags &operator|=(mem_flags &a, mem_flags b) { return a = a | b; }

template <class Site> OST_FN void threadgroup_barrier(Site site, mem_flags) { __ost::group_barrier(site); }
template <class Site> OST_FN void threadgroup_barrier(Site site, mem_flags, thread_scope) {
  __ost::group_barrier(site);
}
OST_FN void simdgroup_barrier(__ost::Site site, mem_flags) { __ost::simd_barrier(site); }
OST_FN void simdgroup_barrier(__ost::Site site, mem_flags, thread_scope) { __ost::simd_barrier(site); }

OST_FN void atomic_thread_fence(mem_flags, memory_order order, thread_scope scope = thread_scope_device) {
  if (order != memory_order_relaxed) __ost::fence(scope);
}

}  // namespace metal
