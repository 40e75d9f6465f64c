// metal::numeric_limits for every scalar and vector type; the functions of a vector type return vectors. Shaders add their
// own types by a specialisation of _numeric_limits_impl, as in Apple's library.
#pragma once

namespace metal {

template <class T> struct _numeric_limits_impl { static constexpr bool is_specialized = false; };
template <class T> struct numeric_limits : _numeric_limits_impl<remove_cv_t<T>> {};

template <class T, int N> struct _numeric_limits_impl<vec<T, N>> : _numeric_limits_impl<T> {
#define OST_VECTOR_LIMIT(name) \
  static OST_FN constexpr vec<T, N> name() { return vec<T, N>(_numeric_limits_impl<T>::name()); }
  // clang-format off
  OST_VECTOR_LIMIT(min) OST_VECTOR_LIMIT(max) OST_VECTOR_LIMIT(lowest) OST_VECTOR_LIMIT(epsilon)
  OST_VECTOR_LIMIT(round_error) OST_VECTOR_LIMIT(infinity) OST_VECTOR_LIMIT(quiet_NaN) OST_VECTOR_LIMIT(signaling_NaN)
  OST_VECTOR_LIMIT(denorm_min)
  // clang-format on
#undef OST_VECTOR_LIMIT
};

#define OST_INTEGER_LIMITS(type, signed_, low, high)                                            \
  template <> struct _numeric_limits_impl<type> {                                                  \
    static constexpr bool is_specialized = true, is_integer = true, is_exact = true;            \
    static constexpr bool is_signed = signed_, has_infinity = false, has_quiet_NaN = false;     \
    static constexpr int radix = 2;                                                             \
    static constexpr int digits = __is_same(type, bool) ? 1 : int(sizeof(type) * 8 - signed_);  \
    static constexpr int digits10 = digits * 30103 / 100000, max_digits10 = 0;                  \
    static OST_FN constexpr type min() { return low; }                                          \
    static OST_FN constexpr type lowest() { return low; }                                       \
    static OST_FN constexpr type max() { return high; }                                         \
    static OST_FN constexpr type epsilon() { return 0; }                                        \
    static OST_FN constexpr type infinity() { return 0; }                                       \
    static OST_FN constexpr type quiet_NaN() { return 0; }                                      \
  };
// clang-format off
OST_INTEGER_LIMITS(bool, false, false, true)
OST_INTEGER_LIMITS(char, (char(-1) < char(0)), (char(-1) < char(0) ? char(-128) : char(0)), char(char(-1) < char(0) ? 127 : 255))
OST_INTEGER_LIMITS(signed char, true, -128, 127)
OST_INTEGER_LIMITS(unsigned char, false, 0, 255)
OST_INTEGER_LIMITS(short, true, -32768, 32767)
OST_INTEGER_LIMITS(unsigned short, false, 0, 65535)
OST_INTEGER_LIMITS(int, true, -2147483647 - 1, 2147483647)
OST_INTEGER_LIMITS(unsigned int, false, 0, 4294967295u)
OST_INTEGER_LIMITS(long, true, -__LONG_MAX__ - 1L, __LONG_MAX__)
OST_INTEGER_LIMITS(unsigned long, false, 0, ~0ul)
OST_INTEGER_LIMITS(long long, true, -__LONG_LONG_MAX__ - 1ll, __LONG_LONG_MAX__)
OST_INTEGER_LIMITS(unsigned long long, false, 0, ~0ull)
// clang-format on
#undef OST_INTEGER_LIMITS

#define OST_FLOAT_LIMITS(type, digits_, digits10_, max10, min_e, max_e, low, high, eps, denorm)                        \
  template <> struct _numeric_limits_impl<type> {                                                                        \
    static constexpr bool is_specialized = true, is_integer = false, is_exact = false;                                \
    static constexpr bool is_signed = true, has_infinity = true, has_quiet_NaN = true, is_iec559 = true;              \
    static constexpr int radix = 2, digits = digits_, digits10 = digits10_, max_digits10 = max10;                     \
    static constexpr int min_exponent = min_e, max_exponent = max_e;                                                  \
    static OST_FN constexpr type min() { return type(low); }                                                          \
    static OST_FN constexpr type lowest() { return type(-(high)); }                                                   \
    static OST_FN constexpr type max() { return type(high); }                                                         \
    static OST_FN constexpr type epsilon() { return type(eps); }                                                      \
    static OST_FN constexpr type round_error() { return type(0.5f); }                                                 \
    static OST_FN constexpr type infinity() { return type(__builtin_inff()); }                                        \
    static OST_FN constexpr type quiet_NaN() { return type(__builtin_nanf("")); }                                     \
    static OST_FN constexpr type signaling_NaN() { return type(__builtin_nanf("")); }                                 \
    static OST_FN constexpr type denorm_min() { return type(denorm); }                                                \
  };
OST_FLOAT_LIMITS(half, 11, 3, 5, -13, 16, 0x1p-14f, 65504.0f, 0x1p-10f, 0x1p-24f)
OST_FLOAT_LIMITS(bfloat, 8, 2, 4, -125, 128, 0x1p-126f, 0x1.fep127f, 0x1p-7f, 0x1p-133f)
OST_FLOAT_LIMITS(float, 24, 6, 9, -125, 128, 0x1p-126f, 0x1.fffffep127f, 0x1p-23f, 0x1p-149f)
OST_FLOAT_LIMITS(double, 53, 15, 17, -1021, 1024, 0x1p-1022, 0x1.fffffffffffffp1023, 0x1p-52, 0x1p-1074)
#undef OST_FLOAT_LIMITS

}  // namespace metal
