// The hooks of a library that looks for bounds alone, where a compiler can inline them: clang, which instruments
// optimised code and optimises the result again.
//
// backends/cpu/inlined_hooks.py makes instrumented functions call these. Where threadgroup memory lies is loaded once for
// each function. Accesses of it, of local variables, and of arguments that were accessed before in the same MiB are
// checked here; others call ../hooks/hooks.cpp.
#ifndef OSTINATO_INLINE_HOOKS_H
#define OSTINATO_INLINE_HOOKS_H

#include "cells.h"
#include "checks.h"
#include "fiber.h"

extern "C" {

// An access that is not known to be within bounds. Keeps registers, so that little is saved around the common case.
__attribute__((visibility("hidden"), preserve_most)) void __ost_bounds_access(const void *, uint64_t bytes,
                                                                              uint32_t how);

#define OST_INLINED __attribute__((used, visibility("hidden"))) __OST_GLANCE

// As worker() finds it, which has lines of its own.
#define OST_REGION (uintptr_t(__builtin_frame_address(0)) & ~(__ost::region_bytes - 1))

// Of the worker whose stack this is.
OST_INLINED const void *__ost_glance() { return reinterpret_cast<const __ost::Worker *>(OST_REGION)->shadow; }

#define OST_HOOK(name, size, how) \
  OST_INLINED void name(const void *address, const void *seen, uintptr_t arena, uint64_t arena_bytes, \
                        const unsigned char *states) { \
    const __ost::Glance *glance = static_cast<const __ost::Glance *>(seen); \
    const uintptr_t offset = uintptr_t(address) - arena; \
    const bool known = offset < arena_bytes ? __ost::all_bytes<size>(states + offset, __ost::byte_written) \
                                            : __ost::is_argument(glance, uintptr_t(address), size); \
    if (!__OST_LIKELY(known)) __ost_bounds_access(address, size, how); \
  }
// Of a variable of the function.
#define OST_LOCAL_HOOK(name, size, how) \
  OST_INLINED void name(const void *address, const void *seen) { \
    const __ost::Glance *glance = static_cast<const __ost::Glance *>(seen); \
    if (!__OST_LIKELY(__ost::is_local<size>(glance, OST_REGION, uintptr_t(address)))) \
      __ost_bounds_access(address, size, how); \
  }
// Of one of a group, all of which are `known` to be within bounds or not. Its address is made where it is needed: the
// optimiser would keep it in memory of the fiber.
#define OST_GROUPED_HOOK(name, size, how) \
  OST_INLINED void name(const unsigned char *base, int64_t offset, bool known) { \
    if (__OST_LIKELY(known)) return; \
    asm volatile("" : "+r"(base)); \
    __ost_bounds_access(base + offset, size, how); \
  }
#define OST_HOOKS(size) \
  OST_HOOK(__ost_read##size, size, __ost::how_read) \
  OST_HOOK(__ost_write##size, size, __ost::how_write) \
  OST_LOCAL_HOOK(__ost_local_read##size, size, __ost::how_read) \
  OST_LOCAL_HOOK(__ost_local_write##size, size, __ost::how_write) \
  OST_GROUPED_HOOK(__ost_grouped_read##size, size, __ost::how_read) \
  OST_GROUPED_HOOK(__ost_grouped_write##size, size, __ost::how_write)
// clang-format off
OST_HOOKS(1) OST_HOOKS(2) OST_HOOKS(4) OST_HOOKS(8) OST_HOOKS(16)
// clang-format on
#undef OST_HOOKS
#undef OST_GROUPED_HOOK
#undef OST_LOCAL_HOOK
#undef OST_HOOK

    // Whether all from `first` to `end`, counted from the base, is known to be within bounds.
    OST_INLINED bool __ost_are_inside(const void *base, int64_t first, int64_t end, const void *seen, uintptr_t arena,
                                      uint64_t arena_bytes) {
  const __ost::Glance *glance = static_cast<const __ost::Glance *>(seen);
  const uintptr_t address = uintptr_t(base) + first, offset = address - arena, bytes = end - first;
  if (offset < arena_bytes) return glance->arena_ends[offset / __ost::arena_unit_bytes] >= offset + bytes;
  return __ost::is_argument(glance, address, bytes);
}
OST_INLINED uintptr_t __ost_arena(const void *seen) { return static_cast<const __ost::Glance *>(seen)->arena; }
OST_INLINED uint64_t __ost_arena_bytes(const void *seen) {
  return static_cast<const __ost::Glance *>(seen)->arena_bytes;
}
OST_INLINED const unsigned char *__ost_arena_states(const void *seen) {
  return static_cast<const __ost::Glance *>(seen)->arena_states;
}
#undef OST_INLINED
#undef OST_REGION

}  // extern "C"

#endif
