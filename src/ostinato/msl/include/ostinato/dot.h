// <ostinato>: what kernels have here beyond Metal's library. docs/kernels.md has the same in plain Metal.
//
// dot_add(a, b, sum) is sum + a.x · b.x + a.y · b.y + a.z · b.z + a.w · b.w, exact and wrapping: one instruction for many
// lanes where simdgroups run as vectors, one for each lane on CUDA.
#pragma once

namespace __ost {

#if !defined(OST_DOT)
template <class A> OST_FN int dot_add(metal::vec<A, 4> a, metal::vec<char, 4> b, int sum) {
  return int(uint32_t(sum) + uint32_t(int(a.x) * int(b.x) + int(a.y) * int(b.y)) +
             uint32_t(int(a.z) * int(b.z) + int(a.w) * int(b.w)));
}
#endif

}  // namespace __ost

namespace ostinato {

OST_FN int dot_add(metal::vec<char, 4> a, metal::vec<char, 4> b, int sum) { return __ost::dot_add(a, b, sum); }
OST_FN int dot_add(metal::vec<unsigned char, 4> a, metal::vec<char, 4> b, int sum) { return __ost::dot_add(a, b, sum); }

}  // namespace ostinato
