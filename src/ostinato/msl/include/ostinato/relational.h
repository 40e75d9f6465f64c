// <metal_relational>: questions about values (isnan, any, all, ...) and select.
#pragma once

namespace __ost {

// On the bits, so that no floating-point mode can fold them away.
#define OST_CLASSIFY(name, test32, test16h, test16b)                                                         \
  struct fn_##name {                                                                                         \
    static OST_FN constexpr bool of(float x) { uint32_t b = bits_as<uint32_t>(x) & 0x7fffffffu; return test32; }   \
    static OST_FN constexpr bool of(half x) { uint32_t b = bits_as<uint16_t>(x) & 0x7fffu; return test16h; } \
    static OST_FN constexpr bool of(bfloat x) { uint32_t b = x.__bits & 0x7fffu; return test16b; }           \
  };
OST_CLASSIFY(isnan, b > 0x7f800000u, b > 0x7c00u, b > 0x7f80u)
OST_CLASSIFY(isinf, b == 0x7f800000u, b == 0x7c00u, b == 0x7f80u)
OST_CLASSIFY(isfinite, b < 0x7f800000u, b < 0x7c00u, b < 0x7f80u)
OST_CLASSIFY(isnormal, b - 0x00800000u < 0x7f000000u, b - 0x0400u < 0x7800u, b - 0x0080u < 0x7f00u)
#undef OST_CLASSIFY
struct fn_signbit {
  static OST_FN constexpr bool of(float x) { return bits_as<uint32_t>(x) >> 31; }
  static OST_FN constexpr bool of(half x) { return bits_as<uint16_t>(x) >> 15; }
  static OST_FN constexpr bool of(bfloat x) { return x.__bits >> 15; }
};
struct fn_isordered {
  template <class T> static OST_FN constexpr bool of(T x, T y) { return x == x && y == y; }
};
struct fn_isunordered {
  template <class T> static OST_FN constexpr bool of(T x, T y) { return x != x || y != y; }
};

}  // namespace __ost

namespace metal {

// As the functions of arguments.h, but that the components of the result are bool.
#define OST_SCALAR(T, name, fn) OST_FN constexpr bool name(T x) { return __ost::fn::of(x); }
#define OST_RELATIONAL(name)                                                                            \
  OST_EACH_FLOAT(OST_SCALAR, name, fn_##name)                                                           \
  template <class T, int N> OST_FN constexpr __ost::reshape_t<bool, __ost::floating_t<vec<T, N>>> name(vec<T, N> x) { \
    return __ost::map_to<__ost::fn_##name, bool>(x);                                                    \
  }                                                                                                     \
  template <class A, class... None, __ost::none<None...> = 0>                                           \
  OST_FN constexpr __ost::reshape_t<bool, __ost::floating_t<A>> name(A x, None...) {                    \
    return __ost::map_to<__ost::fn_##name, bool>(static_cast<__ost::floating_t<A>>(x));                 \
  }
OST_RELATIONAL(isnan)
OST_RELATIONAL(isinf)
OST_RELATIONAL(isfinite)
OST_RELATIONAL(isnormal)
OST_RELATIONAL(signbit)
#undef OST_RELATIONAL
#undef OST_SCALAR
#define OST_SCALAR(T, name, fn) OST_FN constexpr bool name(T x, T y) { return __ost::fn::of(x, y); }
#define OST_RELATIONAL(name)                                                                            \
  OST_EACH_FLOAT(OST_SCALAR, name, fn_##name)                                                           \
  template <class T, int N>                                                                             \
  OST_FN constexpr __ost::reshape_t<bool, __ost::floating_t<vec<T, N>>> name(vec<T, N> x, vec<T, N> y) { \
    return __ost::map_to<__ost::fn_##name, bool>(x, y);                                                 \
  }                                                                                                     \
  template <class A, class B, class... None, __ost::none<None...> = 0>                                  \
  OST_FN constexpr __ost::reshape_t<bool, __ost::floating_t<A, B>> name(A x, B y, None...) {            \
    typedef __ost::floating_t<A, B> V;                                                                  \
    return __ost::map_to<__ost::fn_##name, bool>(static_cast<V>(x), static_cast<V>(y));                 \
  }
OST_RELATIONAL(isordered)
OST_RELATIONAL(isunordered)
#undef OST_RELATIONAL
#undef OST_SCALAR

OST_FN constexpr bool any(bool x) { return x; }
OST_FN constexpr bool all(bool x) { return x; }
OST_FN constexpr bool any(bool2 v) { return v.x | v.y; }
OST_FN constexpr bool any(bool3 v) { return v.x | v.y | v.z; }
OST_FN constexpr bool any(bool4 v) { return v.x | v.y | v.z | v.w; }
OST_FN constexpr bool all(bool2 v) { return v.x & v.y; }
OST_FN constexpr bool all(bool3 v) { return v.x & v.y & v.z; }
OST_FN constexpr bool all(bool4 v) { return v.x & v.y & v.z & v.w; }

// select(a, b, c): b where c, else a.
template <class A, class B> OST_FN constexpr __ost::common_t<A, B> select(A a, B b, bool c) {
  typedef __ost::common_t<A, B> V;
  return c ? static_cast<V>(b) : static_cast<V>(a);
}
template <class A, class B, int N, class V = __ost::common_t<A, B>,
          typename __ost::only_if<__ost::arg<V>::n == N>::type = 0>
OST_FN constexpr V select(A a, B b, vec<bool, N> c) {
  V no = static_cast<V>(a), yes = static_cast<V>(b);
  for (int i = 0; i < N; i++) no[i] = c[i] ? yes[i] : no[i];
  return no;
}

}  // namespace metal
