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
