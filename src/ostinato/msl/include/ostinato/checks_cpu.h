// What the translated text of a checked kernel needs: local memory that is declared to the runtime (local_memory.py
// writes these classes), and shifts that report an amount out of range.
#pragma once

#include "checks.h"

// Of the library's hooks.
extern "C" __attribute__((visibility("hidden"), cold)) void __ost_shift_failed(int64_t amount, uint64_t width);
extern "C" __attribute__((visibility("hidden"))) void __ost_local(const void *begin, unsigned long bytes,
                                                                  uint32_t state, const char *name);

#if defined(__clang__) && !defined(__OST_BOUNDS)
// Before a value is copied whole, where clang looks at no alignment: backends/cpu/clang_code.py has kernels call it.
extern "C" __attribute__((visibility("hidden"), cold)) void __ost_misaligned(const void *address, uint64_t alignment);
extern "C" __attribute__((used, visibility("hidden"), always_inline, nodebug)) inline void __ost_copied(
    const void *address, uint64_t alignment) {
  if (uintptr_t(address) % alignment) __ost_misaligned(address, alignment);
}
#endif

#ifdef __OST_BOUNDS
#define OST_CHECK_SHIFT(amount, last)
#else
// A null statement in constants; the amount is checked before Metal takes it modulo the width.
#define OST_CHECK_SHIFT(amount, last)                                                     \
  if (!__builtin_is_constant_evaluated() && uint64_t(int64_t(amount)) > uint64_t(last))   \
  __ost_shift_failed(int64_t(amount), uint64_t(last) + 1)
#endif

namespace __ost {

// Scalars and pointers are left to the compiler, which warns of one that is used before it is set; so they may stay in
// registers. What a constructor sets counts as written.
#ifdef __OST_BOUNDS
template <class T> struct Tracked { static constexpr bool value = false; };
#else
template <class T> struct Tracked { static constexpr bool value = __is_class(T) || __is_union(T); };
template <class T, size_t N> struct Tracked<T[N]> { static constexpr bool value = true; };
#endif

// Lives as long as a variable that has no initialiser.
template <class T, bool tracked = Tracked<T>::value && __is_trivially_constructible(T)> struct LocalGuard {
  T *variable;
  __OST_INLINE LocalGuard(T &x, const char *name) : variable(&x) {
    __ost_local(variable, sizeof(T), local_unwritten, name);
  }
  __OST_INLINE ~LocalGuard() { __ost_local(variable, sizeof(T), local_written, nullptr); }
  LocalGuard(const LocalGuard &) = delete;
};
template <class T> struct LocalGuard<T, false> {
  __OST_INLINE LocalGuard(T &, const char *) {}
};

// An array between fences. Aligned so that the runtime can tell where the array begins.
template <class T> struct alignas(16) LocalArray {
  static constexpr size_t fence_bytes = 64;
  unsigned char before[fence_bytes];
  T value;
  unsigned char after[fence_bytes];

  __OST_INLINE void fence(bool written, const char *name) {
    __ost_local(before, fence_bytes, local_fence, nullptr);
    __ost_local(after, fence_bytes, local_fence, nullptr);
    __ost_local(&value, sizeof(T), written || !__is_trivially_constructible(T) ? local_written : local_unwritten, name);
  }
  __OST_INLINE ~LocalArray() {
    __ost_local(&value, sizeof(T), local_written, nullptr);
    __ost_local(this, sizeof(LocalArray), local_written, nullptr);
  }
};

}  // namespace __ost
