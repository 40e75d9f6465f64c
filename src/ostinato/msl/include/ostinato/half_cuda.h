// half on CUDA, whose front end has no type for it: a class over its 16 bits with the conversions of a built-in type
// (everything arithmetic goes to half and half goes to float by itself). Arithmetic of two halves is one instruction;
// constants are folded by hand, bit for bit the same. Included after types.h, which brings bfloat.
//
// Because conversions go both ways, `c ? h : 1.0f` would be ambiguous: the translator passes the arms of every
// conditional expression through arm() and its value through disarm(), between which a half only goes to float.
#pragma once

namespace __ost {

OST_FN uint16_t rounded_to_half(float value) {
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
OST_FN float widened_half(uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

// To nearest, ties to even.
OST_FN constexpr uint16_t half_bits(float value) {
  if (!__builtin_is_constant_evaluated()) return rounded_to_half(value);
  const uint32_t bits = bits_as<uint32_t>(value), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return uint16_t(sign | 0x7fffu);
  if (magnitude >= 0x477ff000u) return uint16_t(sign | 0x7c00u);
  if (magnitude >= 0x38800000u)
    return uint16_t(sign | ((magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13));
  if (magnitude <= 0x33000000u) return uint16_t(sign);
  const uint32_t shift = 126u - (magnitude >> 23), mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  const uint32_t rest = mantissa & ((1u << shift) - 1u), tie = 1u << (shift - 1u), whole = mantissa >> shift;
  return uint16_t(sign | (whole + (rest > tie || (rest == tie && (whole & 1u)) ? 1u : 0u)));
}
OST_FN constexpr float half_value(uint16_t bits) {
  if (!__builtin_is_constant_evaluated()) return widened_half(bits);
  const uint32_t sign = (bits & 0x8000u) << 16, exponent = (bits >> 10) & 31u, mantissa = bits & 0x3ffu;
  if (exponent == 0) return bits_as<float>(sign | bits_as<uint32_t>(float(mantissa) * 0x1p-24f));
  return bits_as<float>(sign | (exponent == 31u ? 0x7f800000u : (exponent + 112u) << 23) | mantissa << 13);
}

template <class T> using if_half = typename only_if<__is_same(T, half)>::type;
// The arithmetic types of C++ itself.
template <class T> using if_native =
    typename only_if<(scalar_kind<T>::value >= 1 && scalar_kind<T>::value <= 4 && !__is_same(T, half))>::type;
// A class, const or not, that converts to float.
template <class T> struct bare { typedef T type; };
template <class T> struct bare<const T> : bare<T> {};
template <class T> struct bare<T &> : bare<T> {};
template <class T> T &&any();
template <class T> using if_to_float =
    typename only_if<(__is_class(typename bare<T>::type) && scalar_kind<typename bare<T>::type>::value == 0),
                     decltype(int(static_cast<float>(any<T>())))>::type;
template <class T> using if_wide_float = typename only_if<(__is_same(T, float) || __is_same(T, double))>::type;

}  // namespace __ost

struct half {
  uint16_t __bits;

  half() = default;
  template <class A, __ost::if_native<A> = 0> OST_FN constexpr half(A value) : __bits(__ost::half_bits(float(value))) {}
  template <class C, __ost::if_to_float<C> = 0> OST_FN constexpr half(C &&value)
      : __bits(__ost::half_bits(static_cast<float>(value))) {}
  // One conversion: where several arithmetic types would do, float is the nearest and the call is not ambiguous.
  OST_FN constexpr operator float() const { return __ost::half_value(__bits); }

  OST_FN constexpr half operator-() const { return __ost::bits_as<half>(uint16_t(__bits ^ 0x8000u)); }
  OST_FN constexpr half operator+() const { return *this; }
  OST_FN constexpr half &operator++() { return *this = half(float(*this) + 1.0f); }
  OST_FN constexpr half &operator--() { return *this = half(float(*this) - 1.0f); }
  OST_FN constexpr half operator++(int) {
    half old = *this;
    ++*this;
    return old;
  }
  OST_FN constexpr half operator--(int) {
    half old = *this;
    --*this;
    return old;
  }
};

namespace __ost {

// Without a rounding mode in its name a product and a sum may become one fused operation, as for float.
#define OST_HALF_INSTRUCTION(name, text)                                                                      \
  OST_FN half name(half a, half b) {                                                                          \
    half r;                                                                                                   \
    asm(text " %0, %1, %2;" : "=h"(r.__bits) : "h"(a.__bits), "h"(b.__bits));                                 \
    return r;                                                                                                 \
  }
OST_HALF_INSTRUCTION(half_add, "add.f16")
OST_HALF_INSTRUCTION(half_subtract, "sub.f16")
OST_HALF_INSTRUCTION(half_multiply, "mul.f16")
#undef OST_HALF_INSTRUCTION
// A float has more than twice the bits of a half, so rounding its quotient again gives the right one.
OST_FN half half_divide(half a, half b) { return half(float(a) / float(b)); }

}  // namespace __ost

// half with half or an integer stays half; with float it becomes float. Templates for the very type: nothing that only
// converts to half may find them.
#define OST_HALF_ARITHMETIC(op, native)                                                                              \
  template <class A, class B, __ost::if_half<A> = 0, __ost::if_half<B> = 0>                                          \
  OST_FN constexpr half operator op(A a, B b) {                                                                      \
    return __builtin_is_constant_evaluated() ? half(float(a) op float(b)) : __ost::native(a, b);                     \
  }                                                                                                                  \
  template <class A, class I, __ost::if_half<A> = 0, __ost::if_integer<I> = 0>                                       \
  OST_FN constexpr half operator op(A a, I b) {                                                                      \
    return a op half(b);                                                                                             \
  }                                                                                                                  \
  template <class I, class B, __ost::if_integer<I> = 0, __ost::if_half<B> = 0>                                       \
  OST_FN constexpr half operator op(I a, B b) {                                                                      \
    return half(a) op b;                                                                                             \
  }                                                                                                                  \
  template <class A, class F, __ost::if_half<A> = 0, __ost::if_wide_float<F> = 0>                                    \
  OST_FN constexpr float operator op(A a, F b) {                                                                     \
    return float(a) op float(b);                                                                                     \
  }                                                                                                                  \
  template <class F, class B, __ost::if_wide_float<F> = 0, __ost::if_half<B> = 0>                                    \
  OST_FN constexpr float operator op(F a, B b) {                                                                     \
    return float(a) op float(b);                                                                                     \
  }                                                                                                                  \
  template <class S, __ost::if_builtin<S> = 0> OST_FN constexpr half &operator op##=(half &a, S b) {                 \
    return a = half(a op b);                                                                                         \
  }
OST_HALF_ARITHMETIC(+, half_add)
OST_HALF_ARITHMETIC(-, half_subtract)
OST_HALF_ARITHMETIC(*, half_multiply)
OST_HALF_ARITHMETIC(/, half_divide)
#undef OST_HALF_ARITHMETIC

#define OST_HALF_COMPARE(op)                                                                                         \
  template <class A, class B, __ost::if_half<A> = 0, __ost::if_half<B> = 0>                                          \
  OST_FN constexpr bool operator op(A a, B b) {                                                                      \
    return float(a) op float(b);                                                                                     \
  }                                                                                                                  \
  template <class A, class S, __ost::if_half<A> = 0, __ost::if_native<S> = 0>                                        \
  OST_FN constexpr bool operator op(A a, S b) {                                                                      \
    return float(a) op float(b);                                                                                     \
  }                                                                                                                  \
  template <class S, class B, __ost::if_native<S> = 0, __ost::if_half<B> = 0>                                        \
  OST_FN constexpr bool operator op(S a, B b) {                                                                      \
    return float(a) op float(b);                                                                                     \
  }
OST_HALF_COMPARE(==)
OST_HALF_COMPARE(!=)
OST_HALF_COMPARE(<)
OST_HALF_COMPARE(>)
OST_HALF_COMPARE(<=)
OST_HALF_COMPARE(>=)
#undef OST_HALF_COMPARE

namespace __ost {

// A half as the arm of a conditional expression: with a float the expression is float, with an integer or another half
// it is half.
struct half_arm {
  half value;
  OST_FN explicit constexpr half_arm(half value_, int) : value(value_) {}
  template <class I, if_integer<I> = 0> OST_FN constexpr half_arm(I value_) : value(value_) {}
  template <class F, typename only_if<__is_same(F, float)>::type = 0> OST_FN constexpr operator F() const {
    return value;
  }
};

template <class T> struct armed { typedef T type; };
template <> struct armed<half> { typedef half_arm type; };
template <> struct armed<const half> { typedef half_arm type; };
template <> struct armed<half &> { typedef half_arm type; };
template <> struct armed<const half &> { typedef half_arm type; };
template <class T> struct disarmed { typedef T type; };
template <> struct disarmed<half_arm> { typedef half type; };

// Other types pass unchanged; an lvalue stays an lvalue, so that the expression may still be assigned to.
template <class T> OST_FN constexpr typename armed<T>::type arm(T &&x) {
  if constexpr (__is_same(typename armed<T>::type, half_arm)) {
    return half_arm(x, 0);
  } else {
    return static_cast<T &&>(x);
  }
}
template <class T> OST_FN constexpr typename disarmed<T>::type disarm(T &&x) {
  if constexpr (__is_same(T, half_arm)) {
    return x.value;
  } else {
    return static_cast<T &&>(x);
  }
}

}  // namespace __ost
