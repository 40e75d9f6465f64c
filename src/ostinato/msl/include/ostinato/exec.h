// <metal_compute>: barriers and fences. Convergent functions take their call site first; what a barrier is, is in
// exec_cpu.h and exec_cuda.h.
#pragma once

// What a checked build tells the runtime, before it happens.
#ifdef __OST_CHECKED
extern "C" void __ost_check_group_barrier(uint32_t flags, uint32_t site);
extern "C" void __ost_check_simdgroup_barrier(uint32_t flags);
extern "C" void __ost_check_stored(const void *address, size_t bytes, const char *name);
extern "C" void __ost_check_all_met();
extern "C" void __ost_check_fence(uint32_t flags, uint32_t order, uint32_t scope);
#ifdef __OST_BOUNDS
#define OST_CHECK(call) (void)0
#else
#define OST_CHECK(call) __ost_check_##call
#endif
#else
#define OST_CHECK(call) (void)0
#endif

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

template <class Site> OST_FN void threadgroup_barrier(Site site, mem_flags flags,
                                                      thread_scope = thread_scope_threadgroup) {
  OST_CHECK(group_barrier(uint32_t(flags), site.id));
  __ost::group_barrier(site);
}
OST_FN void simdgroup_barrier(__ost::Site site, mem_flags flags, thread_scope = thread_scope_simdgroup) {
  OST_CHECK(simdgroup_barrier(uint32_t(flags)));
  __ost::simd_barrier(site);
  OST_CHECK(all_met());
}

OST_FN void atomic_thread_fence(mem_flags flags, memory_order order, thread_scope scope = thread_scope_device) {
  OST_CHECK(fence(uint32_t(flags), order == memory_order_seq_cst ? memory_order_acq_rel : order, scope));
  if (order != memory_order_relaxed) __ost::fence(scope);
}

}  // namespace metal

#undef OST_CHECK
