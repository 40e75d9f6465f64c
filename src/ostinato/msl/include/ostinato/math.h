// <metal_math> and <metal_common>: the floating-point functions on scalars and vectors of float, half and bfloat, and
// those shared with integers (abs, min, max, clamp, ...). metal::precise names the same functions but for sin, cos
// and tan, which are exact to the end of the range, and metal::fast but for those that a target has a faster way for.
#pragma once

namespace metal {

#define OST_MATH_1(name, rule) OST_FUNCTION_1(name, fn_##name, rule)
#define OST_MATH_2(name, rule) OST_FUNCTION_2(name, fn_##name, rule)
#define OST_MATH_3(name, rule) OST_FUNCTION_3(name, fn_##name, rule)

// clang-format off
OST_MATH_1(acos, inexact_t) OST_MATH_1(acosh, inexact_t) OST_MATH_1(asin, inexact_t) OST_MATH_1(asinh, inexact_t)
OST_MATH_1(atan, inexact_t) OST_MATH_1(atanh, inexact_t) OST_MATH_1(cos, inexact_t) OST_MATH_1(cosh, inexact_t)
OST_MATH_1(cospi, inexact_t) OST_MATH_1(exp, inexact_t) OST_MATH_1(exp2, inexact_t) OST_MATH_1(exp10, inexact_t)
OST_MATH_1(log, inexact_t) OST_MATH_1(log2, inexact_t) OST_MATH_1(log10, inexact_t) OST_MATH_1(rsqrt, inexact_t)
OST_MATH_1(sin, inexact_t) OST_MATH_1(sinh, inexact_t) OST_MATH_1(sinpi, inexact_t) OST_MATH_1(sqrt, inexact_t)
OST_MATH_1(tan, inexact_t) OST_MATH_1(tanh, inexact_t) OST_MATH_1(tanpi, inexact_t)
OST_MATH_2(atan2, inexact_t) OST_MATH_2(pow, inexact_t) OST_MATH_2(powr, inexact_t) OST_MATH_2(fmod, inexact_t)
OST_MATH_2(fdim, inexact_t) OST_MATH_2(divide, inexact_t)
OST_MATH_3(fma, floating_t) OST_MATH_3(mad, inexact_t) OST_MATH_3(mix, inexact_t) OST_MATH_3(smoothstep, inexact_t)

OST_MATH_1(ceil, floating_t) OST_MATH_1(floor, floating_t) OST_MATH_1(rint, floating_t) OST_MATH_1(round, floating_t)
OST_MATH_1(trunc, floating_t) OST_MATH_1(fract, floating_t) OST_MATH_1(sign, floating_t)
OST_MATH_2(copysign, floating_t) OST_MATH_2(step, floating_t)
OST_FUNCTION_2(fmax, fn_max, floating_t) OST_FUNCTION_2(fmin, fn_min, floating_t)
OST_FUNCTION_3(fmax3, fn_max3, floating_t) OST_FUNCTION_3(fmin3, fn_min3, floating_t) OST_FUNCTION_3(fmedian3, fn_median3, floating_t)

OST_MATH_1(abs, common_t) OST_FUNCTION_1(fabs, fn_abs, floating_t) OST_FUNCTION_1(saturate, fn_saturate, floating_t)
OST_MATH_2(max, common_t) OST_MATH_2(min, common_t)
OST_MATH_3(max3, common_t) OST_MATH_3(min3, common_t) OST_MATH_3(median3, common_t) OST_MATH_3(clamp, common_t)
// clang-format on

// Functions with a second result by reference.
template <class A> OST_FN __ost::inexact_t<A> sincos(A x, __ost::inexact_t<A> &cosine) {
  cosine = cos(x);
  return sin(x);
}
template <class A> OST_FN __ost::floating_t<A> modf(A x, __ost::floating_t<A> &whole) {
  typedef __ost::floating_t<A> V;
  V value = static_cast<V>(x);
  whole = trunc(value);
  V rest = value - whole;
  if constexpr (__ost::arg<A>::n == 1) {
    return copysign(value == whole ? V(0.0f) : rest, value);
  } else {
    for (int i = 0; i < __ost::arg<A>::n; i++)
      rest[i] = copysign(value[i] == whole[i] ? V(0.0f)[i] : rest[i], value[i]);
    return rest;
  }
}
template <class A, typename __ost::only_if<__ost::arg<A>::n == 1>::type = 0>
OST_FN __ost::floating_t<A> frexp(A x, int &exponent) {
  return static_cast<__ost::floating_t<A>>(__builtin_frexpf(float(x), &exponent));
}
template <class T, int N> OST_FN vec<T, N> frexp(vec<T, N> x, vec<int, N> &exponent) {
  vec<T, N> r;
  for (int i = 0; i < N; i++) r[i] = frexp(x[i], exponent[i]);
  return r;
}
template <class A, typename __ost::only_if<__ost::arg<A>::n == 1>::type = 0>
OST_FN __ost::floating_t<A> ldexp(A x, int k) {
  return static_cast<__ost::floating_t<A>>(__ost::scale_by_pow2(float(x), k));
}
template <class T, int N> OST_FN vec<T, N> ldexp(vec<T, N> x, vec<int, N> k) {
  vec<T, N> r;
  for (int i = 0; i < N; i++) r[i] = ldexp(x[i], k[i]);
  return r;
}
template <class A, typename __ost::only_if<__ost::arg<A>::n == 1>::type = 0> OST_FN int ilogb(A x) {
  return __builtin_ilogbf(float(x));
}
template <class T, int N> OST_FN vec<int, N> ilogb(vec<T, N> x) {
  vec<int, N> r;
  for (int i = 0; i < N; i++) r[i] = ilogb(x[i]);
  return r;
}

}  // namespace metal

namespace __ost {

// One step of the representation: sign-magnitude bits, through zero.
template <class Bits, class T> OST_FN T step_toward(T x, T y) {
  constexpr Bits sign = Bits(Bits(1) << (sizeof(Bits) * 8 - 1));
  Bits bits = bits_as<Bits>(x);
  bool up_in_bits = (y > x) == (bits < sign);
  Bits next = (bits & Bits(~sign)) == 0 ? Bits((y > x ? Bits(0) : sign) | 1) : Bits(up_in_bits ? bits + 1 : bits - 1);
  return x != x ? x : y != y || x == y ? y : bits_as<T>(next);
}
struct fn_nextafter {
  static OST_FN float of(float x, float y) { return step_toward<uint32_t>(x, y); }
  static OST_FN half of(half x, half y) { return step_toward<uint16_t>(x, y); }
  static OST_FN bfloat of(bfloat x, bfloat y) { return step_toward<uint16_t>(x, y); }
};

}  // namespace __ost

namespace metal {

OST_MATH_2(nextafter, floating_t)

#define OST_SAME(X)                                                                                                    \
  X(acos) X(acosh) X(asin) X(asinh) X(atan) X(atanh) X(cosh) X(cospi) X(exp10) X(rsqrt) X(sinh) X(sinpi) X(sqrt)       \
  X(tanpi) X(atan2) X(pow) X(powr) X(fmod) X(fdim) X(fma) X(mad)                                                       \
  X(mix) X(smoothstep) X(ceil) X(floor) X(rint) X(round) X(trunc) X(fract) X(sign) X(copysign) X(step) X(fmax) X(fmin) \
  X(fmax3) X(fmin3) X(fmedian3) X(abs) X(max) X(min) X(max3) X(min3) X(median3) X(clamp) X(fabs) X(saturate) X(modf)   \
  X(frexp) X(ldexp) X(ilogb) X(nextafter)
#define OST_DIFFER(X) X(exp) X(exp2) X(log) X(log2) X(log10) X(tanh) X(divide)
#define OST_USING(name) using metal::name;

namespace fast {
OST_SAME(OST_USING)
#ifdef OST_FAST_FUNCTIONS
// clang-format off
#define OST_FAST_1(name) OST_FUNCTION_1(name, fn_fast_##name, inexact_t)
OST_FAST_1(exp) OST_FAST_1(exp2) OST_FAST_1(log) OST_FAST_1(log2) OST_FAST_1(log10)
OST_FAST_1(sin) OST_FAST_1(cos) OST_FAST_1(tan) OST_FAST_1(tanh) OST_FUNCTION_2(divide, fn_fast_divide, inexact_t)
// clang-format on
#undef OST_FAST_1
        template <class A> OST_FN __ost::inexact_t<A> sincos(A x, __ost::inexact_t<A> &cosine) {
  cosine = fast::cos(x);
  return fast::sin(x);
}
#else
OST_DIFFER(OST_USING)
OST_USING(sin)
OST_USING(cos)
OST_USING(tan)
OST_USING(sincos)
#endif
}  // namespace fast
namespace precise {
OST_SAME(OST_USING)
OST_DIFFER(OST_USING)
#define OST_PRECISE(name)                                                                     \
  template <class A> OST_FN __ost::inexact_t<A> name(A x) {                                   \
    return __ost::map<__ost::fn_precise_##name>(static_cast<__ost::inexact_t<A>>(x));         \
  }
OST_PRECISE(sin)
OST_PRECISE(cos)
OST_PRECISE(tan)
#undef OST_PRECISE
template <class A> OST_FN __ost::inexact_t<A> sincos(A x, __ost::inexact_t<A> &cosine) {
  cosine = precise::cos(x);
  return precise::sin(x);
}
}  // namespace precise

#undef OST_SAME
#undef OST_DIFFER
#undef OST_USING
#undef OST_MATH_1
#undef OST_MATH_2
#undef OST_MATH_3

}  // namespace metal
