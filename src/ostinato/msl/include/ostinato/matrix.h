// floatCxR, halfCxR, bfloatCxR: C columns of R rows, m[column][row], as in MSL. A matrix is an array of its columns.
#pragma once

namespace __ost {
template <int R, class... V> struct columns_of { static constexpr bool value = ((lanes<V>::value == R) && ...); };
template <int C, int R, class... V> using if_columns =
    typename only_if<part_list<V...>::count == C && columns_of<R, V...>::value>::type;
template <int N, class... S> using if_cells =
    typename only_if<part_list<S...>::count == N && fills<N, S...>::value>::type;
}  // namespace __ost

namespace metal {

template <class T, int C, int R> struct matrix {
  typedef vec<T, R> column_type;
  column_type columns[C];

  matrix() = default;
  OST_FN explicit constexpr matrix(T diagonal) : columns{} {
    for (int i = 0; i < (C < R ? C : R); i++) columns[i][i] = diagonal;
  }
  template <class... V, __ost::if_columns<C, R, V...> = 0>
  OST_FN constexpr matrix(V... column) : columns{column_type(column)...} {}
  template <class... S, __ost::if_cells<C * R, S...> = 0>
  OST_FN constexpr matrix(S... s) : columns{} {
    const T all[C * R] = {T(s)...};
    for (int c = 0; c < C; c++)
      for (int r = 0; r < R; r++) columns[c][r] = all[c * R + r];
  }
  template <class U> OST_FN explicit constexpr matrix(const matrix<U, C, R> &m) : columns{} {
    for (int c = 0; c < C; c++) columns[c] = column_type(m.columns[c]);
  }

  OST_FN constexpr column_type &operator[](int c) { return columns[c]; }
  OST_FN constexpr const column_type &operator[](int c) const { return columns[c]; }

#define OST_MATRIX_EACH(op)                                                               \
  friend OST_FN constexpr matrix operator op(const matrix &a, const matrix &b) {          \
    matrix r = a;                                                                         \
    for (int c = 0; c < C; c++) r.columns[c] = a.columns[c] op b.columns[c];              \
    return r;                                                                             \
  }                                                                                       \
  OST_FN constexpr matrix &operator op##=(const matrix &b) { return *this = *this op b; }
  OST_MATRIX_EACH(+)
  OST_MATRIX_EACH(-)
#undef OST_MATRIX_EACH
  friend OST_FN constexpr matrix operator-(const matrix &a) {
    matrix r = a;
    for (int c = 0; c < C; c++) r.columns[c] = -a.columns[c];
    return r;
  }
  friend OST_FN constexpr matrix operator*(const matrix &a, T s) {
    matrix r = a;
    for (int c = 0; c < C; c++) r.columns[c] = a.columns[c] * s;
    return r;
  }
  friend OST_FN constexpr matrix operator*(T s, const matrix &a) { return a * s; }
  OST_FN constexpr matrix &operator*=(T s) { return *this = *this * s; }
  OST_FN constexpr matrix &operator*=(const matrix<T, C, C> &b) { return *this = *this * b; }
  friend OST_FN constexpr vec<T, R> operator*(const matrix &m, vec<T, C> v) {
    vec<T, R> sum = m.columns[0] * v[0];
    for (int c = 1; c < C; c++) sum += m.columns[c] * v[c];
    return sum;
  }
  friend OST_FN constexpr vec<T, C> operator*(vec<T, R> v, const matrix &m) {
    vec<T, C> r = vec<T, C>(T(0));
    for (int c = 0; c < C; c++) r[c] = dot(v, m.columns[c]);
    return r;
  }
  friend OST_FN constexpr bool operator==(const matrix &a, const matrix &b) {
    bool same = true;
    for (int c = 0; c < C; c++) same = same && all(a.columns[c] == b.columns[c]);
    return same;
  }
  friend OST_FN constexpr bool operator!=(const matrix &a, const matrix &b) { return !(a == b); }
};

template <class T, int K, int R, int C>
OST_FN constexpr matrix<T, C, R> operator*(const matrix<T, K, R> &a, const matrix<T, C, K> &b) {
  matrix<T, C, R> r = matrix<T, C, R>(T(0));
  for (int c = 0; c < C; c++) r.columns[c] = a * b.columns[c];
  return r;
}

template <class T, int C, int R> OST_FN constexpr matrix<T, R, C> transpose(const matrix<T, C, R> &m) {
  matrix<T, R, C> t = matrix<T, R, C>(T(0));
  for (int c = 0; c < C; c++)
    for (int r = 0; r < R; r++) t.columns[r][c] = m.columns[c][r];
  return t;
}

template <class T> OST_FN constexpr T determinant(const matrix<T, 2, 2> &m) {
  return m[0][0] * m[1][1] - m[1][0] * m[0][1];
}
template <class T> OST_FN constexpr T determinant(const matrix<T, 3, 3> &m) {
  return m[0][0] * (m[1][1] * m[2][2] - m[2][1] * m[1][2]) - m[1][0] * (m[0][1] * m[2][2] - m[2][1] * m[0][2]) +
         m[2][0] * (m[0][1] * m[1][2] - m[1][1] * m[0][2]);
}
template <class T> OST_FN constexpr T determinant(const matrix<T, 4, 4> &m) {
  // Laplace by pairs: the six minors of the first two columns times those of the last two
  const T a0 = m[0][0] * m[1][1] - m[1][0] * m[0][1], a1 = m[0][0] * m[1][2] - m[1][0] * m[0][2];
  const T a2 = m[0][0] * m[1][3] - m[1][0] * m[0][3], a3 = m[0][1] * m[1][2] - m[1][1] * m[0][2];
  const T a4 = m[0][1] * m[1][3] - m[1][1] * m[0][3], a5 = m[0][2] * m[1][3] - m[1][2] * m[0][3];
  const T b0 = m[2][0] * m[3][1] - m[3][0] * m[2][1], b1 = m[2][0] * m[3][2] - m[3][0] * m[2][2];
  const T b2 = m[2][0] * m[3][3] - m[3][0] * m[2][3], b3 = m[2][1] * m[3][2] - m[3][1] * m[2][2];
  const T b4 = m[2][1] * m[3][3] - m[3][1] * m[2][3], b5 = m[2][2] * m[3][3] - m[3][2] * m[2][3];
  return a0 * b5 - a1 * b4 + a2 * b3 + a3 * b2 - a4 * b1 + a5 * b0;
}

#define OST_MATRIX_NAMES(type)                                                                                        \
  typedef matrix<type, 2, 2> type##2x2; typedef matrix<type, 2, 3> type##2x3; typedef matrix<type, 2, 4> type##2x4;   \
  typedef matrix<type, 3, 2> type##3x2; typedef matrix<type, 3, 3> type##3x3; typedef matrix<type, 3, 4> type##3x4;   \
  typedef matrix<type, 4, 2> type##4x2; typedef matrix<type, 4, 3> type##4x3; typedef matrix<type, 4, 4> type##4x4;
OST_MATRIX_NAMES(float)
OST_MATRIX_NAMES(half)
OST_MATRIX_NAMES(bfloat)
#undef OST_MATRIX_NAMES

}  // namespace metal

#define OST_MATRIX_NAMES(type)                                                                                  \
  using metal::type##2x2; using metal::type##2x3; using metal::type##2x4; using metal::type##3x2;               \
  using metal::type##3x3; using metal::type##3x4; using metal::type##4x2; using metal::type##4x3; using metal::type##4x4;
OST_MATRIX_NAMES(float)
OST_MATRIX_NAMES(half)
OST_MATRIX_NAMES(bfloat)
#undef OST_MATRIX_NAMES
