// <metal_simdgroup_matrix>: 8 x 8 matrices spread over the lanes of a simdgroup. Products are computed in float; lanes that
// do not take part count as zero, except on tensor cores, which need all of them. What a lane holds, and how tiles are
// read, written and multiplied, is in simdgroup_tile.h with simdgroup_matrix_cpu.h or simdgroup_matrix_cuda.h, or in
// simdgroup_matrix_vector.h.
#pragma once

namespace metal {

template <class T, int Columns, int Rows = Columns> struct simdgroup_matrix {
  static_assert(Columns == 8 && Rows == 8, "a simdgroup_matrix is 8 by 8");
  typedef T value_type;
  typedef vec<T, 2> storage_type;
  __ost::tile_elements<T> __elements;

  simdgroup_matrix() = default;
  // The value on the diagonal.
  OST_FN explicit simdgroup_matrix(T value) {
    const uint32_t lane = __ost::lane_id(), row = __ost::tile_row(lane), column = __ost::tile_column(lane);
    __elements = __ost::tile_of<T>(row == column ? value : T(0), row == column + 1 ? value : T(0));
  }
  OST_FN storage_type &thread_elements() { return __ost::tile_parts<T>(__elements); }
  OST_FN const storage_type &thread_elements() const { return __ost::tile_parts<T>(__elements); }
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;

template <class T, int Columns, int Rows = Columns>
OST_FN simdgroup_matrix<T, Columns, Rows> make_filled_simdgroup_matrix(__ost::exactly<T> value) {
  simdgroup_matrix<T, Columns, Rows> m;
  m.__elements = __ost::tile_of<T>(value, value);
  return m;
}
template <class T, int Columns, int Rows = Columns>
OST_FN simdgroup_matrix<T, Columns, Rows> make_diagonal_simdgroup_matrix(__ost::exactly<T> value) {
  return simdgroup_matrix<T, Columns, Rows>(value);
}

}  // namespace metal

namespace __ost {

// All lanes of a simdgroup must reach its matrix functions together; a checked build has them meet there and looks.
#if defined(__OST_CHECKED) && !defined(__OST_BOUNDS)
OST_FN void tile_meeting() {
  simd_barrier(unnamed_site());
  __ost_check_all_met();
}
#else
OST_FN void tile_meeting() {}
#endif

}  // namespace __ost

namespace metal {

template <class T, class U>
OST_FN void simdgroup_load(simdgroup_matrix<T, 8, 8> &d, const U *source, ulong elements_per_row = 8,
                           ulong2 matrix_origin = 0, bool transpose_matrix = false) {
  __ost::tile_meeting();
  source += matrix_origin.y * elements_per_row + matrix_origin.x;
  d.__elements = __ost::read_tile<T>(source, elements_per_row, transpose_matrix);
}
template <class T, class U>
OST_FN void simdgroup_store(const simdgroup_matrix<T, 8, 8> &a, U *target, ulong elements_per_row = 8,
                            ulong2 matrix_origin = 0, bool transpose_matrix = false) {
  __ost::tile_meeting();
  target += matrix_origin.y * elements_per_row + matrix_origin.x;
  __ost::write_tile<T>(a.__elements, target, elements_per_row, transpose_matrix);
}

template <class D, class A, class B, class C>
OST_FN void simdgroup_multiply_accumulate(__ost::Site site, simdgroup_matrix<D, 8, 8> &d,
                                          const simdgroup_matrix<A, 8, 8> &a, const simdgroup_matrix<B, 8, 8> &b,
                                          const simdgroup_matrix<C, 8, 8> &c) {
  d.__elements = __ost::multiply<D, A, B, C>(site, a.__elements, b.__elements, c.__elements);
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
