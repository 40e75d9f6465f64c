// The hooks of a checked kernel library: what compilers call before each access where they instrument for a thread
// sanitizer, and what the shim calls where threads meet. Each finds its worker and passes on to the runtime.
//
// Linked into the library, so that it still calls nothing outside; compiled without instrumentation.
#define __OST_HOOKS
#include "cells.h"
#include "checks.h"
#include "fiber.h"

using namespace __ost;

#define HOOK extern "C" __attribute__((visibility("hidden"), noinline, used))
#define HERE __builtin_return_address(0)

HOOK void __tsan_init() {}
HOOK void __tsan_func_entry(void *) {}
HOOK void __tsan_func_exit() {}
HOOK void __tsan_vptr_read(void **) {}
HOOK void __tsan_vptr_update(void **, void *) {}

#ifdef __OST_BOUNDS
#define SKIPS(bytes, address, how) is_inside<bytes>(w, address)
#else
#define SKIPS(bytes, address, how) adds_nothing<bytes>(w, address, how & how_write)
#endif

#define ACCESS(name, bytes, how) \
  HOOK void __tsan_##name(void *address) { \
    Worker *w = worker(); \
    if (!SKIPS(bytes, address, how)) w->checks->access(w, address, bytes, how, HERE); \
  }
#define ACCESSES(bytes) \
  ACCESS(read##bytes, bytes, how_read) \
  ACCESS(write##bytes, bytes, how_write) \
  ACCESS(unaligned_read##bytes, bytes, how_read) \
  ACCESS(unaligned_write##bytes, bytes, how_write) \
  ACCESS(volatile_read##bytes, bytes, how_read) \
  ACCESS(volatile_write##bytes, bytes, how_write) \
  ACCESS(unaligned_volatile_read##bytes, bytes, how_read) \
  ACCESS(unaligned_volatile_write##bytes, bytes, how_write) \
  HOOK void __tsan_read_write##bytes(void *address) { \
    Worker *w = worker(); \
    if (!SKIPS(bytes, address, how_read)) w->checks->access(w, address, bytes, how_read, HERE); \
    if (!SKIPS(bytes, address, how_write)) w->checks->access(w, address, bytes, how_write, HERE); \
  } \
  HOOK void __tsan_unaligned_read_write##bytes(void *address) { \
    Worker *w = worker(); \
    if (!SKIPS(bytes, address, how_read)) w->checks->access(w, address, bytes, how_read, HERE); \
    if (!SKIPS(bytes, address, how_write)) w->checks->access(w, address, bytes, how_write, HERE); \
  }
// clang-format off
ACCESSES(1) ACCESSES(2) ACCESSES(4) ACCESSES(8) ACCESSES(16)
// clang-format on

#if defined(__OST_BOUNDS) && defined(__clang__)
    // Where hooks are inlined: what they do not know.
    HOOK __attribute__((preserve_most)) void __ost_bounds_access(const void *address, uint64_t bytes, uint32_t how) {
  Worker *w = worker();
  const bool known = bytes == 16  ? is_inside<16>(w, address)
                     : bytes == 8 ? is_inside<8>(w, address)
                     : bytes == 4 ? is_inside<4>(w, address)
                     : bytes == 2 ? is_inside<2>(w, address)
                                  : is_inside<1>(w, address);
  if (!known) w->checks->access(w, address, bytes, how, HERE);
}
#endif

HOOK void __tsan_read_range(void *address, unsigned long bytes) {
  Worker *w = worker();
  w->checks->access(w, address, bytes, how_read, HERE);
}
HOOK void __tsan_write_range(void *address, unsigned long bytes) {
  Worker *w = worker();
  w->checks->access(w, address, bytes, how_write, HERE);
}
HOOK void *__tsan_memcpy(void *to, const void *from, unsigned long bytes) {
  Worker *w = worker();
  w->checks->access(w, from, bytes, how_read, HERE);
  w->checks->access(w, to, bytes, how_write, HERE);
  return __builtin_memcpy(to, from, bytes);
}
HOOK void *__tsan_memmove(void *to, const void *from, unsigned long bytes) {
  Worker *w = worker();
  w->checks->access(w, from, bytes, how_read, HERE);
  w->checks->access(w, to, bytes, how_write, HERE);
  return __builtin_memmove(to, from, bytes);
}
HOOK void *__tsan_memset(void *to, int value, unsigned long bytes) {
  Worker *w = worker();
  w->checks->access(w, to, bytes, how_write, HERE);
  return __builtin_memset(to, value, bytes);
}

template <uint32_t bytes>
static inline void before(const volatile void *address, uint32_t how, int order, const void *site) {
  Worker *w = worker();
#ifdef __OST_BOUNDS
  if (is_inside<bytes>(w, const_cast<const void *>(address))) return;
#endif
  const uint32_t ordering = order == __ATOMIC_RELAXED ? order_none : order_acquire | order_release;
  w->checks->atomic(w, const_cast<const void *>(address), bytes, how | how_atomic, ordering, site);
}

#define MODIFY(bits, type, name) \
  HOOK type __tsan_atomic##bits##_##name(volatile type *at, type value, int order) { \
    before<sizeof(type)>(at, how_write, order, HERE); \
    return __atomic_##name(at, value, __ATOMIC_SEQ_CST); \
  }
#define COMPARE(bits, type, strength, weak) \
  HOOK int __tsan_atomic##bits##_compare_exchange_##strength(volatile type *at, type *expected, type value, int order, \
                                                             int) { \
    before<sizeof(type)>(at, how_write, order, HERE); \
    return __atomic_compare_exchange_n(at, expected, value, weak, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }
#define ATOMICS(bits, type) \
  HOOK type __tsan_atomic##bits##_load(const volatile type *at, int order) { \
    before<sizeof(type)>(at, how_read, order, HERE); \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST); \
  } \
  HOOK void __tsan_atomic##bits##_store(volatile type *at, type value, int order) { \
    before<sizeof(type)>(at, how_write | how_replaces, order, HERE); \
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST); \
  } \
  HOOK type __tsan_atomic##bits##_exchange(volatile type *at, type value, int order) { \
    before<sizeof(type)>(at, how_write, order, HERE); \
    return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST); \
  } \
  MODIFY(bits, type, fetch_add) \
  MODIFY(bits, type, fetch_sub) \
  MODIFY(bits, type, fetch_and) \
  MODIFY(bits, type, fetch_or) \
  MODIFY(bits, type, fetch_xor) \
  MODIFY(bits, type, fetch_nand) \
  COMPARE(bits, type, strong, false) \
  COMPARE(bits, type, weak, false) \
  HOOK type __tsan_atomic##bits##_compare_exchange_val(volatile type *at, type expected, type value, int order, int) { \
    before<sizeof(type)>(at, how_write, order, HERE); \
    __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
    return expected; \
  }
ATOMICS(8, uint8_t)
ATOMICS(16, uint16_t)
ATOMICS(32, uint32_t)
ATOMICS(64, uint64_t)
HOOK void __tsan_atomic_thread_fence(int) {}  // the shim passes fences on itself, with flags and scope
HOOK void __tsan_atomic_signal_fence(int) {}

// What the shim calls in checked builds.
HOOK void __ost_check_fence(uint32_t fenced, uint32_t order, uint32_t scope) {
  Worker *w = worker();
  w->checks->fence(w, fenced, order, scope);
}
HOOK void __ost_check_group_barrier(uint32_t fenced, uint32_t id) {
  Worker *w = worker();
  w->checks->group_barrier(w, fenced, id, HERE);
}
HOOK void __ost_check_simdgroup_barrier(uint32_t fenced) {
  Worker *w = worker();
  w->checks->simdgroup_barrier(w, fenced);
}

HOOK void __ost_check_all_met() {
  Worker *w = worker();
  w->checks->all_met(w, HERE);
}
HOOK void __ost_check_lane_read(uint32_t lane) {
  Worker *w = worker();
  w->checks->lane_read(w, lane, HERE);
}

// What the translator calls after the declaration of a variable: in threadgroup memory, and in a thread's own.
HOOK void __ost_check_stored(const void *address, unsigned long bytes, const char *name) {
  Worker *w = worker();
  w->checks->stored(w, address, bytes, name);
}
HOOK void __ost_local(const void *address, unsigned long bytes, uint32_t state, const char *name) {
  Worker *w = worker();
  w->checks->local(w, address, bytes, LocalState(state), name);
}

// Where the library lies in memory.
extern "C" __attribute__((visibility("hidden"))) const char __ehdr_start[], _end[];
extern "C" __attribute__((visibility("default"))) const void *const __ost_image[2] = {__ehdr_start, _end};
