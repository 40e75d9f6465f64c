// Names of Apple's own implementation that well-known shaders call (`#pragma METAL internals : enable`): the math
// functions with a trailing mode, and the simdgroup functions. The latter are convergent and take their call site
// first.
#pragma once

namespace __ost {
template <class... A> using if_values = void_t<typename arg<A>::elem...>;
}

#define OST_INTERNAL_1(name, target) \
  template <class A, class M, class = __ost::if_values<A>> OST_FN auto __metal_##name(A x, M) { return metal::target(x); }
#define OST_INTERNAL_2(name, target) \
  template <class A, class M> OST_FN auto __metal_##name(A x, A y, M) { return metal::target(x, y); }
#define OST_INTERNAL_3(name, target) \
  template <class A, class M> OST_FN auto __metal_##name(A x, A y, A z, M) { return metal::target(x, y, z); }
// clang-format off
OST_INTERNAL_1(fabs, fabs) OST_INTERNAL_1(acos, acos) OST_INTERNAL_1(acosh, acosh) OST_INTERNAL_1(asin, asin)
OST_INTERNAL_1(asinh, asinh) OST_INTERNAL_1(atan, atan) OST_INTERNAL_1(atanh, atanh) OST_INTERNAL_1(ceil, ceil)
OST_INTERNAL_1(cos, cos) OST_INTERNAL_1(cosh, cosh) OST_INTERNAL_1(cospi, cospi) OST_INTERNAL_1(exp, exp)
OST_INTERNAL_1(exp10, exp10) OST_INTERNAL_1(exp2, exp2) OST_INTERNAL_1(floor, floor) OST_INTERNAL_1(fract, fract)
OST_INTERNAL_1(log, log) OST_INTERNAL_1(log10, log10) OST_INTERNAL_1(log2, log2) OST_INTERNAL_1(rint, rint)
OST_INTERNAL_1(round, round) OST_INTERNAL_1(rsqrt, rsqrt) OST_INTERNAL_1(sin, sin) OST_INTERNAL_1(sinh, sinh)
OST_INTERNAL_1(sinpi, sinpi) OST_INTERNAL_1(sqrt, sqrt) OST_INTERNAL_1(tan, tan) OST_INTERNAL_1(tanh, tanh)
OST_INTERNAL_1(tanpi, tanpi) OST_INTERNAL_1(trunc, trunc)
OST_INTERNAL_2(atan2, atan2) OST_INTERNAL_2(divide, divide) OST_INTERNAL_2(fmax, fmax) OST_INTERNAL_2(fmin, fmin)
OST_INTERNAL_2(fmod, fmod) OST_INTERNAL_2(pow, pow) OST_INTERNAL_2(powr, powr)
OST_INTERNAL_3(fmax3, fmax3) OST_INTERNAL_3(fmin3, fmin3) OST_INTERNAL_3(fmedian3, fmedian3)
// clang-format on
#undef OST_INTERNAL_1
#undef OST_INTERNAL_2
#undef OST_INTERNAL_3
template <class A> OST_FN auto __metal_fma(A x, A y, A z) { return metal::fma(x, y, z); }
template <class A> OST_FN auto __metal_nextafter(A x, A y) { return metal::nextafter(x, y); }
template <class A> OST_FN auto __metal_frexp(A x, int *exponent) { return metal::frexp(x, *exponent); }
template <class A, class M> OST_FN auto __metal_ldexp(A x, int k, M) { return metal::ldexp(x, k); }

#define OST_INTERNAL_SIMD(name) \
  template <class... A> OST_FN auto __metal_##name(__ost::Site site, A... a) { return metal::name(site, a...); }
// clang-format off
OST_INTERNAL_SIMD(simd_sum) OST_INTERNAL_SIMD(simd_product) OST_INTERNAL_SIMD(simd_min) OST_INTERNAL_SIMD(simd_max)
OST_INTERNAL_SIMD(simd_and) OST_INTERNAL_SIMD(simd_or) OST_INTERNAL_SIMD(simd_xor)
OST_INTERNAL_SIMD(simd_prefix_inclusive_sum) OST_INTERNAL_SIMD(simd_prefix_exclusive_sum)
OST_INTERNAL_SIMD(simd_prefix_inclusive_product) OST_INTERNAL_SIMD(simd_prefix_exclusive_product)
OST_INTERNAL_SIMD(simd_shuffle) OST_INTERNAL_SIMD(simd_broadcast) OST_INTERNAL_SIMD(simd_broadcast_first)
OST_INTERNAL_SIMD(simd_shuffle_up) OST_INTERNAL_SIMD(simd_shuffle_down) OST_INTERNAL_SIMD(simd_shuffle_xor)
OST_INTERNAL_SIMD(simd_shuffle_rotate_up) OST_INTERNAL_SIMD(simd_shuffle_rotate_down)
OST_INTERNAL_SIMD(simd_shuffle_and_fill_up) OST_INTERNAL_SIMD(simd_shuffle_and_fill_down)
// clang-format on
#undef OST_INTERNAL_SIMD

template <class T> OST_FN T __metal_get_simdgroup_size(T) { return T(32); }
template <class T> OST_FN T __metal_get_thread_index_in_simdgroup(T) { return T(__ost::lane_id()); }

// An 8 x 8 matrix of a simdgroup: a lane has two of its 64 elements.
namespace metal {
template <class T> struct vec<T, 64> { vec<T, 2> __elements; };
}  // namespace metal

template <class A, class B, class C, class D>
OST_FN metal::vec<D, 64> __metal_simdgroup_matrix_8x8_multiply_accumulate(__ost::Site site, metal::vec<A, 64> a,
                                                                          metal::vec<B, 64> b, metal::vec<C, 64> c,
                                                                          metal::vec<D, 64>) {
  metal::simdgroup_matrix<A, 8, 8> left;
  metal::simdgroup_matrix<B, 8, 8> right;
  metal::simdgroup_matrix<C, 8, 8> sum;
  metal::simdgroup_matrix<D, 8, 8> result;
  left.thread_elements() = a.__elements, right.thread_elements() = b.__elements, sum.thread_elements() = c.__elements;
  metal::simdgroup_multiply_accumulate(site, result, left, right, sum);
  return {result.thread_elements()};
}

// Copies that a simdgroup makes together, each lane its columns. They are complete when all lanes have waited. A tile of
// the source that is smaller than the one of the target is extended by zeros or, if `clamp`, by its last elements.
namespace __ost {

struct copy_event {
  template <class E> OST_FN operator E *() const { return nullptr; }
};

template <class W> OST_FN void copy_tile(W *target, ulong target_row, ulong2 target_tile, const W *source,
                                         ulong source_row, ulong2 source_tile, long2 offset, bool clamp) {
  for (long y = 0; y < long(target_tile.y); y++)
    for (long x = lane_id(); x < long(target_tile.x); x += 32) {
      const long in_x = x + offset.x, in_y = y + offset.y, last_x = source_tile.x - 1, last_y = source_tile.y - 1;
      const bool inside = in_x >= 0 && in_x <= last_x && in_y >= 0 && in_y <= last_y;
      const long near_x = in_x < 0        ? 0
                          : in_x > last_x ? last_x
                                          : in_x,
                 near_y = in_y < 0        ? 0
                          : in_y > last_y ? last_y
                                          : in_y;
      target[y * target_row + x] = inside || clamp ? source[near_y * source_row + near_x] : W(0);
    }
}

}  // namespace __ost

OST_FN __ost::copy_event __metal_simdgroup_async_copy_2d(ulong element_bytes, ulong, void *target, ulong target_row,
                                                         ulong, ulong2 target_tile, const void *source,
                                                         ulong source_row, ulong, ulong2 source_tile, long2 offset,
                                                         int clamp) {
#define OST_COPY_TILE(type)                                                                                          \
  if (element_bytes == sizeof(type))                                                                                 \
    __ost::copy_tile((type *)target, target_row, target_tile, (const type *)source, source_row, source_tile, offset, \
                     clamp);
  OST_COPY_TILE(uchar)
  OST_COPY_TILE(ushort)
  OST_COPY_TILE(uint)
  OST_COPY_TILE(ulong)
  OST_COPY_TILE(ulong2)
#undef OST_COPY_TILE
  return {};
}
OST_FN __ost::copy_event __metal_simdgroup_async_copy_1d(ulong element_bytes, ulong alignment, void *target,
                                                         const void *source, ulong count) {
  const ulong2 row(count, 1);
  return __metal_simdgroup_async_copy_2d(element_bytes, alignment, target, count, 1, row, source, count, 1, row, 0, 0);
}
template <class E> OST_FN void __metal_wait_simdgroup_events(__ost::Site site, int, E **) {
  metal::simdgroup_barrier(site, metal::mem_flags::mem_threadgroup);
}
