// What NVRTC leaves out: the fixed-width integer names (it has no headers), and those compiler builtins that the shared
// headers and users' sources name and its front end does not know.
#pragma once

using ::size_t;
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
typedef long intptr_t;
typedef unsigned long uintptr_t;
typedef decltype(static_cast<char *>(nullptr) - static_cast<char *>(nullptr)) ptrdiff_t;
static_assert(sizeof(long) == 8 && sizeof(size_t) == 8, "long has 64 bits in MSL");

#ifndef __LONG_MAX__
#define __LONG_MAX__ 9223372036854775807L
#endif
#ifndef __LONG_LONG_MAX__
#define __LONG_LONG_MAX__ 9223372036854775807LL
#endif

#define __extension__

namespace __ost {
template <class A, class B> struct same { static constexpr bool value = false; };
template <class A> struct same<A, A> { static constexpr bool value = true; };

// What a source calls nullptr: a null pointer of which the compiler does not know that it is null. Beside comparisons the
// source keeps its own.
struct Null {
  Null() = default;
  OST_FN constexpr Null(decltype(nullptr)) {}
  template <class T> OST_FN static T *hidden() {
    uint64_t address;
    asm("mov.u64 %0, 0;" : "=l"(address));
    return reinterpret_cast<T *>(address);
  }
  template <class T> OST_FN constexpr operator T *() const {
    return __builtin_is_constant_evaluated() ? nullptr : hidden<T>();
  }
  OST_FN explicit constexpr operator bool() const { return false; }
  OST_FN friend constexpr bool operator==(Null, Null) { return true; }
  OST_FN friend constexpr bool operator!=(Null, Null) { return false; }
};
}  // namespace __ost
#define __is_same(...) (__ost::same<__VA_ARGS__>::value)

OST_FN constexpr float __builtin_inff() { return __builtin_bit_cast(float, 0x7f800000u); }
OST_FN constexpr float __builtin_huge_valf() { return __builtin_inff(); }
OST_FN constexpr float __builtin_nanf(const char *) { return __builtin_bit_cast(float, 0x7fc00000u); }
OST_FN constexpr float __builtin_fabsf(float x) {
  return __builtin_bit_cast(float, __builtin_bit_cast(unsigned, x) & 0x7fffffffu);
}

#define OST_BUILTIN_1(name) OST_FN float __builtin_##name(float x) { return ::name(x); }
#define OST_BUILTIN_2(name) OST_FN float __builtin_##name(float x, float y) { return ::name(x, y); }
// clang-format off
OST_BUILTIN_1(sqrtf) OST_BUILTIN_1(floorf) OST_BUILTIN_1(ceilf) OST_BUILTIN_1(truncf) OST_BUILTIN_1(rintf)
OST_BUILTIN_1(roundf) OST_BUILTIN_1(expf) OST_BUILTIN_1(exp2f) OST_BUILTIN_1(logf) OST_BUILTIN_1(log2f)
OST_BUILTIN_1(sinf) OST_BUILTIN_1(cosf)
OST_BUILTIN_2(powf) OST_BUILTIN_2(fminf) OST_BUILTIN_2(fmaxf)
// clang-format on
#undef OST_BUILTIN_1
#undef OST_BUILTIN_2
OST_FN float __builtin_fmaf(float x, float y, float z) { return ::fmaf(x, y, z); }
OST_FN float __builtin_frexpf(float x, int *exponent) { return ::frexpf(x, exponent); }
OST_FN int __builtin_ilogbf(float x) { return ::ilogbf(x); }

OST_FN void *__builtin_memcpy(void *to, const void *from, size_t bytes) { return ::memcpy(to, from, bytes); }

// Bit counts are constants where their arguments are, as users' tables expect.
OST_FN constexpr int __builtin_popcountll(unsigned long long x) {
  if (!__builtin_is_constant_evaluated()) return ::__popcll(x);
  int count = 0;
  for (; x; x &= x - 1) count++;
  return count;
}
OST_FN constexpr int __builtin_clzll(unsigned long long x) {
  if (!__builtin_is_constant_evaluated()) return ::__clzll(x);
  int count = 0;
  for (; count < 64 && !(x >> 63); x <<= 1) count++;
  return count;
}
OST_FN constexpr int __builtin_ctzll(unsigned long long x) {
  if (!__builtin_is_constant_evaluated()) return ::__ffsll(static_cast<long long>(x)) - 1;
  int count = 0;
  for (; count < 64 && !(x & 1); x >>= 1) count++;
  return count;
}
OST_FN constexpr unsigned long long __builtin_bswap64(unsigned long long x) {
  x = ((x >> 8) & 0x00ff00ff00ff00ffull) | ((x & 0x00ff00ff00ff00ffull) << 8);
  x = ((x >> 16) & 0x0000ffff0000ffffull) | ((x & 0x0000ffff0000ffffull) << 16);
  return (x >> 32) | (x << 32);
}
OST_FN constexpr int __builtin_popcount(unsigned x) { return __builtin_popcountll(x); }
OST_FN constexpr int __builtin_popcountl(unsigned long x) { return __builtin_popcountll(x); }
OST_FN constexpr int __builtin_clz(unsigned x) { return __builtin_clzll(x) - 32; }
OST_FN constexpr int __builtin_clzl(unsigned long x) { return __builtin_clzll(x); }
OST_FN constexpr int __builtin_ctz(unsigned x) { return __builtin_ctzll(x | 1ull << 32); }
OST_FN constexpr int __builtin_ctzl(unsigned long x) { return __builtin_ctzll(x); }
OST_FN constexpr int __builtin_ffsll(long long x) {
  return x ? __builtin_ctzll(static_cast<unsigned long long>(x)) + 1 : 0;
}
OST_FN constexpr int __builtin_ffsl(long x) { return __builtin_ffsll(x); }
OST_FN constexpr int __builtin_ffs(int x) { return __builtin_ffsll(static_cast<unsigned>(x)); }
OST_FN constexpr unsigned __builtin_bswap32(unsigned x) { return static_cast<unsigned>(__builtin_bswap64(x) >> 32); }
OST_FN constexpr unsigned short __builtin_bswap16(unsigned short x) {
  return static_cast<unsigned short>(x >> 8 | x << 8);
}
