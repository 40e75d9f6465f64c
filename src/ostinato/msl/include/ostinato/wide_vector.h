// metal::vec of more than four components, in which template code of Metal 4 keeps fragments of matrices: what
// ext_vector.h has, by another name.
#pragma once

namespace metal {

template <class T, int N> struct vec : __ost::wide_vec<T, N> {
  static_assert(N == 8 || N == 16, "a vector has 2, 3, 4, 8 or 16 components");
  typedef T value_type;
  using __ost::wide_vec<T, N>::wide_vec;
  vec() = default;
  OST_FN constexpr vec(const __ost::wide_vec<T, N> &v) : __ost::wide_vec<T, N>(v) {}
};

}  // namespace metal
