// <metal_simdgroup_matrix>: 8 x 8 matrices spread over the lanes of a simdgroup. Loading and storing is each lane's own
// affair; a product (multiply_tiles, in simdgroup_matrix_cpu.h and simdgroup_matrix_cuda.h) is computed in float. Lanes
// that do not take part count as zero.
#pragma once

namespace metal {

template <class T, int Columns, int Rows = Columns> struct simdgroup_matrix {
  static_assert(Columns == 8 && Rows == 8, "a simdgroup_matrix is 8 by 8");
  typedef T value_type;
  typedef vec<T, 2> storage_type;
  storage_type __elements;

  simdgroup_matrix() = default;
  // The value on the diagonal.
  OST_FN explicit simdgroup_matrix(T value) {
    const uint32_t lane = __ost::lane_id(), row = __ost::tile_row(lane), column = __ost::tile_column(lane);
    __elements = storage_type(row == column ? value : T(0), row == column + 1 ? value : T(0));
  }
  OST_FN storage_type &thread_elements() { return __elements; }
  OST_FN const storage_type &thread_elements() const { return __elements; }
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;

template <class T, int Columns, int Rows = Columns>
OST_FN simdgroup_matrix<T, Columns, Rows> make_filled_simdgroup_matrix(__ost::exactly<T> value) {
  simdgroup_matrix<T, Columns, Rows> m;
  m.__elements = vec<T, 2>(value);
  return m;
}
template <class T, int Columns, int Rows = Columns>
OST_FN simdgroup_matrix<T, Columns, Rows> make_diagonal_simdgroup_matrix(__ost::exactly<T> value) {
  return simdgroup_matrix<T, Columns, Rows>(value);
}

template <class T, class U>
OST_FN void simdgroup_load(simdgroup_matrix<T, 8, 8> &d, const U *source, ulong elements_per_row = 8,
                           ulong2 matrix_origin = 0, bool transpose_matrix = false) {
  const uint32_t lane = __ost::lane_id(), row = __ost::tile_row(lane), column = __ost::tile_column(lane);
  source += matrix_origin.y * elements_per_row + matrix_origin.x;
  if (transpose_matrix)
    d.__elements =
        vec<T, 2>(T(source[column * elements_per_row + row]), T(source[(column + 1) * elements_per_row + row]));
  else
    d.__elements =
        vec<T, 2>(T(source[row * elements_per_row + column]), T(source[row * elements_per_row + column + 1]));
}
template <class T, class U>
OST_FN void simdgroup_store(const simdgroup_matrix<T, 8, 8> &a, U *target, ulong elements_per_row = 8,
                            ulong2 matrix_origin = 0, bool transpose_matrix = false) {
  const uint32_t lane = __ost::lane_id(), row = __ost::tile_row(lane), column = __ost::tile_column(lane);
  target += matrix_origin.y * elements_per_row + matrix_origin.x;
  if (transpose_matrix) {
    target[column * elements_per_row + row] = U(a.__elements.x);
    target[(column + 1) * elements_per_row + row] = U(a.__elements.y);
  } else {
    target[row * elements_per_row + column] = U(a.__elements.x);
    target[row * elements_per_row + column + 1] = U(a.__elements.y);
  }
}

template <class D, class A, class B, class C>
OST_FN void simdgroup_multiply_accumulate(__ost::Site site, simdgroup_matrix<D, 8, 8> &d,
                                          const simdgroup_matrix<A, 8, 8> &a, const simdgroup_matrix<B, 8, 8> &b,
                                          const simdgroup_matrix<C, 8, 8> &c) {
  const __ost::tile_in in = {{float(a.__elements.x), float(a.__elements.y)},
                             {float(b.__elements.x), float(b.__elements.y)},
                             {float(c.__elements.x), float(c.__elements.y)},
                             {0.0f, 0.0f}};
  const __ost::tile_out out = __ost::multiply_tiles<A, B>(site, in);
  d.__elements = vec<D, 2>(D(out.d[0]), D(out.d[1]));
}
template <class D, class A, class B>
OST_FN void simdgroup_multiply(__ost::Site site, simdgroup_matrix<D, 8, 8> &d, const simdgroup_matrix<A, 8, 8> &a,
                               const simdgroup_matrix<B, 8, 8> &b) {
  simdgroup_multiply_accumulate(site, d, a, b, make_filled_simdgroup_matrix<float, 8, 8>(0.0f));
}
// An operator has no room for a site: products in one loop iteration or function must be reached in the same order by
// all lanes.
template <class T>
OST_FN simdgroup_matrix<T, 8, 8> operator*(const simdgroup_matrix<T, 8, 8> &a, const simdgroup_matrix<T, 8, 8> &b) {
  simdgroup_matrix<T, 8, 8> d;
  simdgroup_multiply(__ost::unnamed_site(), d, a, b);
  return d;
}

}  // namespace metal
