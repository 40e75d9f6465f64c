// Vectors of clang's attribute ext_vector_type, which shaders use for more than four components. Functions of Metal take
// none of these: there are operators, indices and conversions.
#pragma once

namespace __ost {

template <class T, int N> struct alignas(sizeof(T) * N) wide_vec {
  T at[N];

  wide_vec() = default;
  template <class S, if_scalar<S> = 0> OST_FN constexpr wide_vec(S s) : at{} {
    for (int i = 0; i < N; i++) at[i] = T(s);
  }
  template <class... S, typename only_if<sizeof...(S) == N && N != 1>::type = 0>
  OST_FN constexpr wide_vec(S... s) : at{T(s)...} {}
  template <class U> OST_FN explicit constexpr wide_vec(const wide_vec<U, N> &v) : at{} {
    for (int i = 0; i < N; i++) at[i] = T(v.at[i]);
  }
  OST_FN constexpr T &operator[](int i) { return at[i]; }
  OST_FN constexpr const T &operator[](int i) const { return at[i]; }

#define OST_WIDE(op)                                                              \
  friend OST_FN constexpr wide_vec operator op(wide_vec p, const wide_vec &q) {   \
    for (int i = 0; i < N; i++) p.at[i] = T(p.at[i] op q.at[i]);                  \
    return p;                                                                     \
  }                                                                               \
  OST_FN constexpr wide_vec &operator op##=(const wide_vec &q) { return *this = *this op q; }
  // clang-format off
  OST_WIDE(+) OST_WIDE(-) OST_WIDE(*) OST_WIDE(/) OST_WIDE(%) OST_WIDE(&) OST_WIDE(|) OST_WIDE(^) OST_WIDE(<<) OST_WIDE(>>)
  // clang-format on
#undef OST_WIDE
      friend OST_FN constexpr wide_vec operator-(wide_vec p) {
    for (int i = 0; i < N; i++) p.at[i] = T(-p.at[i]);
    return p;
  }
};

template <class T, int N, bool Metals = (N >= 2 && N <= 4)> struct ext_vector_of { typedef wide_vec<T, N> type; };
template <class T, int N> struct ext_vector_of<T, N, true> { typedef metal::vec<T, N> type; };
template <class T, int N> using ext_vector = typename ext_vector_of<T, N>::type;

}  // namespace __ost
