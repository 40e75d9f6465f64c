// Vectors of more than four components, which template code of Metal 4 keeps fragments of matrices in: components by
// index, and one value in all of them.
#pragma once

namespace metal {

template <class T, int N> struct alignas(N * sizeof(T)) vec {
  static_assert(N == 8 || N == 16, "a vector has 2, 3, 4, 8 or 16 components");
  typedef T value_type;
  T __at[N];

  vec() = default;
  template <class S, __ost::if_scalar<S> = 0> OST_FN constexpr vec(S s) : __at() {
    for (int i = 0; i < N; i++) __at[i] = T(s);
  }
  OST_FN constexpr T &operator[](int i) { return __at[i]; }
  OST_FN constexpr const T &operator[](int i) const { return __at[i]; }
};

}  // namespace metal
