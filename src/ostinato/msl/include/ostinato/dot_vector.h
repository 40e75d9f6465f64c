// Products of four bytes where a simdgroup runs as a vector. The names end in the instructions that the lane pass may use
// (backends/cpu/simt/dots.py).
#pragma once

#if defined(__AVX512VNNI__) && defined(__AVX512F__)
#define OST_DOT_NAME(kind) __ost_dot_##kind##_vnni512
#elif defined(__AVXVNNI__)
#define OST_DOT_NAME(kind) __ost_dot_##kind##_vnni256
#elif defined(__AVX2__)
#define OST_DOT_NAME(kind) __ost_dot_##kind##_avx2
#else
#define OST_DOT_NAME(kind) __ost_dot_##kind##_plain
#endif
#define OST_DOT

extern "C" __attribute__((const, nothrow, visibility("hidden"))) int OST_DOT_NAME(signed)(uint32_t, uint32_t, int);
extern "C" __attribute__((const, nothrow, visibility("hidden"))) int OST_DOT_NAME(unsigned)(uint32_t, uint32_t, int);

namespace __ost {

OST_FN int dot_add(metal::vec<char, 4> a, metal::vec<char, 4> b, int sum) {
  return OST_DOT_NAME(signed)(as_type<uint32_t>(a), as_type<uint32_t>(b), sum);
}
OST_FN int dot_add(metal::vec<unsigned char, 4> a, metal::vec<char, 4> b, int sum) {
  return OST_DOT_NAME(unsigned)(as_type<uint32_t>(a), as_type<uint32_t>(b), sum);
}

}  // namespace __ost
