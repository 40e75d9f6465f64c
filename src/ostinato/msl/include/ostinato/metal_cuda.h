// What a translated Metal kernel sees on CUDA, compiled by NVRTC with unannotated functions on the device. Contract: that
// of metal_cpu.h. No headers of the toolkit or of C are needed.
//
// CUDA has functions and types of its own under many of MSL's names (float4, sin, min), all global. So shim and kernels
// live together in one namespace, where MSL's names come first.
#pragma once

#define OST_FN __device__ __forceinline__
#define OST_ROOT __ost_program
#define __OST_IF_EVALUATED

// Real shaders convert freely inside braces and leave helpers unused; in Metal neither is worth a message. These stay
// off for the rest of the file on purpose: user code follows.
#pragma nv_diag_suppress 177, 550, 2361, 161, 111, 128, 174, 186, 68, 1866

namespace __ost_program {

#include "builtins_cuda.h"

struct half;

namespace __ost {
// To nearest, ties to even.
OST_FN uint16_t native_bfloat_bits(float value) {
#if __CUDA_ARCH__ >= 800
  uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
#else
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  return uint16_t(value != value ? 0x7fffu : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
#endif
}
OST_FN constexpr float larger(float x, float y) {
  return __builtin_is_constant_evaluated() ? (y != y ? x : (x > y ? x : y)) : ::fmaxf(x, y);
}
OST_FN constexpr float smaller(float x, float y) {
  return __builtin_is_constant_evaluated() ? (y != y ? x : (x < y ? x : y)) : ::fminf(x, y);
}
// Sixteen bytes of device memory at any address, without a branch: those of the 16 aligned bytes in which they begin, and of
// the next 16 if they reach into them. So a thread can ask for several before the first arrives.
OST_FN ::uint4 load_16(const unsigned char *from) {
  const uint32_t past = uint32_t(uint64_t(from)) & 15u;
  const unsigned char *const whole = from - past;
  const ::uint4 low = *reinterpret_cast<const ::uint4 *>(whole);
  ::uint4 high = {0, 0, 0, 0};
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0; @p ld.global.v4.u32 {%0, %1, %2, %3}, [%4]; }"
               : "+r"(high.x), "+r"(high.y), "+r"(high.z), "+r"(high.w)
               : "l"(whole + 16), "r"(past)
               : "memory");
  const bool by_8 = past & 8u, by_4 = past & 4u;
  const uint32_t a = by_8 ? low.z : low.x, b = by_8 ? low.w : low.y, c = by_8 ? high.x : low.z,
                 d = by_8 ? high.y : low.w, e = by_8 ? high.z : high.x, f = by_8 ? high.w : high.y;
  const uint32_t g = by_4 ? b : a, h = by_4 ? c : b, i = by_4 ? d : c, j = by_4 ? e : d, k = by_4 ? f : e;
  const uint32_t bits = 8 * (past & 3u);
  return {::__funnelshift_r(g, h, bits), ::__funnelshift_r(h, i, bits), ::__funnelshift_r(i, j, bits),
          ::__funnelshift_r(j, k, bits)};
}
// Bytes in as few accesses as their alignment allows. Threads of a warp mostly have the same.
template <uint32_t Bytes> OST_FN void copy_aligned(void *to, const void *from) {
  const uint64_t places = uint64_t(to) | uint64_t(from) | Bytes;
  if ((places & 15) == 0)
    for (uint32_t i = 0; i < Bytes / 16; i++) static_cast<::uint4 *>(to)[i] = static_cast<const ::uint4 *>(from)[i];
  else if ((places & 3) == 0)
    for (uint32_t i = 0; i < Bytes / 4; i++) static_cast<uint32_t *>(to)[i] = static_cast<const uint32_t *>(from)[i];
  else
    for (uint32_t i = 0; i < Bytes; i++)
      static_cast<unsigned char *>(to)[i] = static_cast<const unsigned char *>(from)[i];
}
template <uint32_t Bytes> OST_FN void copy_bytes(void *to, const void *from) {
  if constexpr (Bytes % 16 == 0) {
    if (::__isGlobal(from) && ::__isShared(to)) {
      ::uint4 parts[Bytes / 16];
#pragma unroll
      for (uint32_t i = 0; i < Bytes / 16; i++) parts[i] = load_16(static_cast<const unsigned char *>(from) + 16 * i);
      return copy_aligned<Bytes>(to, parts);
    }
  }
  copy_aligned<Bytes>(to, from);
}
// For a lambda's parameter where a constant is needed (captured_constants.py).
template <class T> OST_FN constexpr T stateless() {
  static_assert(__is_empty(T), "the value of a lambda's parameter is not constant");
  return T{};
}
}  // namespace __ost
#define OST_BFLOAT_BITS(value) __ost::native_bfloat_bits(value)
#define OST_FLOAT_MAX(x, y) __ost::larger(x, y)
#define OST_FLOAT_MIN(x, y) __ost::smaller(x, y)
#define OST_FAST_FUNCTIONS  // of metal::fast

#include "types.h"
#include "half_cuda.h"
#include "traits.h"
#include "limits.h"
#include "vector.h"
#include "ext_vector.h"
#include "wide_vector.h"
#include "shift.h"
#include "arguments.h"
#include "scalar_math.h"
#include "scalar_math_cuda.h"
#include "math.h"
#include "relational.h"
#include "integer.h"
#include "geometric.h"
#include "matrix.h"
#include "unaligned.h"
#include "pack.h"
#include "logging.h"
#include "utility.h"
#include "dot_cuda.h"
#include "dot.h"
#include "waiting.h"
#include "atomic_types.h"
#include "atomic_cuda.h"
#include "atomic.h"
#include "exec_cuda.h"
#include "exec.h"
#include "simd_operations.h"
#include "simd_cuda.h"
#include "simd.h"
#include "mma_cuda.h"
#include "simdgroup_tile.h"
#include "simdgroup_matrix_cuda.h"
#include "simdgroup_matrix.h"
#include "internals.h"

}  // namespace __ost_program
