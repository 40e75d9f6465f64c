// The scalar types of MSL that C++ does not have: unsigned short names, half, and bfloat.
// half is the target's: the compiler's own _Float16, or a class (half_cuda.h). bfloat is a class over its 16 bits because g++ 12 has no arithmetic for it:
// every operation is done in float and rounded to nearest even once, which is the correctly rounded bfloat result
// (24 >= 2 * 8 + 2 bits). NaN stays NaN.
//
// Conversions follow MSL: bfloat goes to float by itself; float and half go to bfloat only by a cast or an assignment
// (were they implicit too, `c ? b : 1.0f` would be ambiguous). Integers go to bfloat by themselves (`T sum = 0`).
#pragma once

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
struct bfloat;

namespace __ost {

template <bool B, class T = int> struct only_if {};
template <class T> struct only_if<true, T> { typedef T type; };

// 0 no scalar, 1 bool, 2 signed integer, 3 unsigned integer, 4 floating point, 5 bfloat
template <class T> struct scalar_kind { static constexpr int value = __is_enum(T) ? 2 : 0; };
template <class T> struct scalar_kind<const T> : scalar_kind<T> {};
template <class T> struct scalar_kind<volatile T> : scalar_kind<T> {};
template <class T> struct scalar_kind<const volatile T> : scalar_kind<T> {};
#define OST_KIND(type, kind) template <> struct scalar_kind<type> { static constexpr int value = kind; };
// clang-format off
OST_KIND(bool, 1)
OST_KIND(char, (char(-1) < char(0) ? 2 : 3))
OST_KIND(signed char, 2) OST_KIND(short, 2) OST_KIND(int, 2) OST_KIND(long, 2) OST_KIND(long long, 2)
OST_KIND(unsigned char, 3) OST_KIND(unsigned short, 3) OST_KIND(unsigned int, 3)
OST_KIND(unsigned long, 3) OST_KIND(unsigned long long, 3)
OST_KIND(half, 4) OST_KIND(float, 4) OST_KIND(double, 4)
OST_KIND(bfloat, 5)
// clang-format on
#undef OST_KIND

template <class T> using if_builtin =
    typename only_if<(scalar_kind<T>::value >= 1 && scalar_kind<T>::value <= 4)>::type;
template <class T> using if_integer =
    typename only_if<(scalar_kind<T>::value >= 1 && scalar_kind<T>::value <= 3)>::type;
template <class T> using if_floating = typename only_if<scalar_kind<T>::value == 4>::type;
template <class T> using if_scalar = typename only_if<(scalar_kind<T>::value >= 1)>::type;
template <class T> constexpr bool only_cast_from_bfloat =
    __is_same(T, int) || __is_same(T, half) || __is_same(T, double);
template <class T> using if_implicit_from_bfloat = typename only_if<(
    scalar_kind<T>::value >= 1 && scalar_kind<T>::value <= 4 && !only_cast_from_bfloat<T> && !__is_enum(T))>::type;
template <class T> using if_cast_from_bfloat = typename only_if<only_cast_from_bfloat<T>>::type;
// A class that converts to float.
template <class T> using if_float_like =
    typename only_if<(__is_class(T) && scalar_kind<T>::value == 0),
                     decltype(int(static_cast<float>(*static_cast<const T *>(nullptr))))>::type;

// The bits of a value as another type of the same size.
template <class To, class From> OST_FN constexpr To bits_as(const From &from) { return __builtin_bit_cast(To, from); }

OST_FN constexpr uint16_t bfloat_bits(float value) {
#ifdef OST_BFLOAT_BITS
  if (!__builtin_is_constant_evaluated()) return OST_BFLOAT_BITS(value);
#endif
  uint32_t bits = bits_as<uint32_t>(value);
  uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  uint32_t quiet = (bits >> 16) | 0x40u;
  return uint16_t((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

}  // namespace __ost

struct bfloat {
  uint16_t __bits;

  bfloat() = default;
  template <class I, __ost::if_integer<I> = 0> OST_FN constexpr bfloat(I value)
      : __bits(__ost::bfloat_bits(float(value))) {}
  template <class F, __ost::if_floating<F> = 0> OST_FN explicit constexpr bfloat(F value)
      : __bits(__ost::bfloat_bits(float(value))) {}
  template <class C, __ost::if_float_like<C> = 0> OST_FN explicit constexpr bfloat(const C &value)
      : __bits(__ost::bfloat_bits(static_cast<float>(value))) {}
  template <class F, __ost::if_floating<F> = 0> OST_FN constexpr bfloat &operator=(F value) {
    return *this = bfloat(value);
  }
  template <class C, __ost::if_float_like<C> = 0> OST_FN constexpr bfloat &operator=(const C &value) {
    return *this = bfloat(value);
  }

  // Templates, so that each conversion is to exactly that type. int, long, half and double only by a cast: `c ? b :
  // 0` is bfloat and an overload set of float, half and int is called with float.
  template <class U, __ost::if_implicit_from_bfloat<U> = 0> OST_FN constexpr operator U() const {
    return U(__ost::bits_as<float>(uint32_t(__bits) << 16));
  }
  template <class U, __ost::if_cast_from_bfloat<U> = 0> OST_FN explicit constexpr operator U() const {
    return U(__ost::bits_as<float>(uint32_t(__bits) << 16));
  }

  OST_FN constexpr bfloat operator-() const { return __ost::bits_as<bfloat>(uint16_t(__bits ^ 0x8000u)); }
  OST_FN constexpr bfloat operator+() const { return *this; }
  OST_FN constexpr bool operator!() const { return (__bits & 0x7fffu) == 0; }
  OST_FN constexpr bfloat &operator++() { return *this = float(*this) + 1.0f; }
  OST_FN constexpr bfloat &operator--() { return *this = float(*this) - 1.0f; }
  OST_FN constexpr bfloat operator++(int) {
    bfloat old = *this;
    ++*this;
    return old;
  }
  OST_FN constexpr bfloat operator--(int) {
    bfloat old = *this;
    --*this;
    return old;
  }
};

namespace __ost {
// The type itself, not what converts to it: an enumeration must not find these operators.
template <class T> using if_bfloat = typename only_if<__is_same(T, bfloat)>::type;
}  // namespace __ost

// bfloat with bfloat or an integer stays bfloat; with float, half or double it becomes float.
#define OST_BFLOAT_ARITHMETIC(op)                                                                                     \
  OST_FN constexpr bfloat operator op(bfloat a, bfloat b) { return bfloat(float(a) op float(b)); }                    \
  template <class B, class I, __ost::if_bfloat<B> = 0, __ost::if_integer<I> = 0>                                      \
  OST_FN constexpr bfloat operator op(B a, I b) {                                                                     \
    return a op bfloat(b);                                                                                            \
  }                                                                                                                   \
  template <class I, class B, __ost::if_integer<I> = 0, __ost::if_bfloat<B> = 0>                                      \
  OST_FN constexpr bfloat operator op(I a, B b) {                                                                     \
    return bfloat(a) op b;                                                                                            \
  }                                                                                                                   \
  template <class B, class F, __ost::if_bfloat<B> = 0, __ost::if_floating<F> = 0>                                     \
  OST_FN constexpr float operator op(B a, F b) {                                                                      \
    return float(a) op float(b);                                                                                      \
  }                                                                                                                   \
  template <class F, class B, __ost::if_floating<F> = 0, __ost::if_bfloat<B> = 0>                                     \
  OST_FN constexpr float operator op(F a, B b) {                                                                      \
    return float(a) op float(b);                                                                                      \
  }                                                                                                                   \
  template <class S, __ost::if_scalar<S> = 0> OST_FN constexpr bfloat &operator op##=(bfloat &a, S b) {               \
    return a = a op b;                                                                                                \
  }                                                                                                                   \
  template <class S, __ost::if_builtin<S> = 0> OST_FN constexpr S &operator op##=(S &a, bfloat b) {                   \
    return a = S(a op float(b));                                                                                      \
  }
OST_BFLOAT_ARITHMETIC(+)
OST_BFLOAT_ARITHMETIC(-)
OST_BFLOAT_ARITHMETIC(*)
OST_BFLOAT_ARITHMETIC(/)
#undef OST_BFLOAT_ARITHMETIC

#define OST_BFLOAT_COMPARE(op)                                                                                        \
  OST_FN constexpr bool operator op(bfloat a, bfloat b) { return float(a) op float(b); }                              \
  template <class B, class S, __ost::if_bfloat<B> = 0, __ost::if_builtin<S> = 0>                                      \
  OST_FN constexpr bool operator op(B a, S b) {                                                                       \
    return float(a) op float(b);                                                                                      \
  }                                                                                                                   \
  template <class S, class B, __ost::if_builtin<S> = 0, __ost::if_bfloat<B> = 0>                                      \
  OST_FN constexpr bool operator op(S a, B b) {                                                                       \
    return float(a) op float(b);                                                                                      \
  }
OST_BFLOAT_COMPARE(==)
OST_BFLOAT_COMPARE(!=)
OST_BFLOAT_COMPARE(<)
OST_BFLOAT_COMPARE(>)
OST_BFLOAT_COMPARE(<=)
OST_BFLOAT_COMPARE(>=)
#undef OST_BFLOAT_COMPARE
