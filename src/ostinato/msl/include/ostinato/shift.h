// Shifts take only as many bits of the amount as the width of what is shifted needs; in C++ a larger amount has no meaning.
//
// The translator writes `a << __ost::by * b` for `a << b`. `by *` binds as tightly as the amount's own first operator,
// whatever follows, so the amount keeps its extent and arrives here as an Amount.
#pragma once

namespace __ost {

template <class A> struct Amount { A bits; };
struct By {};
constexpr By by = {};

template <class A> OST_FN constexpr Amount<A> operator*(By, A a) { return {a}; }
#define OST_AMOUNT(op)                                                                         \
  template <class A, class B> OST_FN constexpr auto operator op(Amount<A> a, B b) {            \
    return Amount<decltype(a.bits op b)>{a.bits op b};                                         \
  }
OST_AMOUNT(*)
OST_AMOUNT(/)
OST_AMOUNT(%)
OST_AMOUNT(+)
OST_AMOUNT(-)
#undef OST_AMOUNT

template <class T, class A, bool scalars = scalar_kind<T>::value && scalar_kind<A>::value> struct shift_by {
  static OST_FN constexpr A of(A bits) { return bits; }  // vectors see to it themselves
};
template <class T, class A> struct shift_by<T, A, true> {
  static OST_FN constexpr int of(A bits) {
    constexpr A last = A(sizeof(decltype(+T())) * 8 - 1);
    OST_CHECK_SHIFT(bits, last);
    return int(bits & last);
  }
};

#define OST_SHIFTS(op)                                                                         \
  template <class T, class A> OST_FN constexpr auto operator op(const T &a, Amount<A> b) {     \
    return a op shift_by<T, A>::of(b.bits);                                                    \
  }                                                                                            \
  template <class T, class A> OST_FN constexpr T &operator op##=(T &a, Amount<A> b) {          \
    return a op##= shift_by<T, A>::of(b.bits);                                                 \
  }
OST_SHIFTS(<<)
OST_SHIFTS(>>)
#undef OST_SHIFTS

}  // namespace __ost
