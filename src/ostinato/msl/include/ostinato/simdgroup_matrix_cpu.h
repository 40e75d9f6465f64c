// <metal_simdgroup_matrix> on the CPU: 8 x 8 matrices spread over the 32 lanes of a simdgroup, two neighbours of a
// row in each lane, in the layout of Apple GPUs (template code relies on it). Loading and storing is each lane's own
// affair; a product is an exchange in which one lane multiplies for all, in float. Lanes that do not take part count
// as zero.
#pragma once

namespace __ost {

OST_FN constexpr uint32_t tile_row(uint32_t lane) { return ((lane >> 2) & 4u) + ((lane >> 1) & 3u); }
OST_FN constexpr uint32_t tile_column(uint32_t lane) { return ((lane >> 2) & 2u) * 2u + (lane & 1u) * 2u; }

struct tile_in { float a[2], b[2], c[2], unused[2]; };
struct tile_out { float d[2]; };

static __attribute__((noinline, unused)) void multiply_tiles(const tile_in *in, tile_out *out, uint32_t active) {
  float a[8][8], b[8][8], d[8][8];
  for (uint32_t lane = 0; lane < 32; lane++) {
    const uint32_t row = tile_row(lane), column = tile_column(lane);
    const bool live = (active >> lane) & 1u;
    for (uint32_t i = 0; i < 2; i++) {
      a[row][column + i] = live ? in[lane].a[i] : 0.0f;
      b[row][column + i] = live ? in[lane].b[i] : 0.0f;
      d[row][column + i] = live ? in[lane].c[i] : 0.0f;
    }
  }
  for (int row = 0; row < 8; row++)
    for (int k = 0; k < 8; k++)
      for (int column = 0; column < 8; column++) d[row][column] += a[row][k] * b[k][column];
  for (uint32_t lane = 0; lane < 32; lane++) {
    const uint32_t row = tile_row(lane), column = tile_column(lane);
    out[lane] = tile_out{{d[row][column], d[row][column + 1]}};
  }
}

}  // namespace __ost

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
OST_FN void simdgroup_load(simdgroup_matrix<T, 8, 8> &d, const U *source, ulong elements_per_row = 8, ulong2 matrix_origin = 0,
                           bool transpose_matrix = false) {
  const uint32_t lane = __ost::lane_id(), row = __ost::tile_row(lane), column = __ost::tile_column(lane);
  source += matrix_origin.y * elements_per_row + matrix_origin.x;
  if (transpose_matrix)
    d.__elements = vec<T, 2>(T(source[column * elements_per_row + row]), T(source[(column + 1) * elements_per_row + row]));
  else
    d.__elements = vec<T, 2>(T(source[row * elements_per_row + column]), T(source[row * elements_per_row + column + 1]));
}
template <class T, class U>
OST_FN void simdgroup_store(const simdgroup_matrix<T, 8, 8> &a, U *target, ulong elements_per_row = 8, ulong2 matrix_origin = 0,
                            bool transpose_matrix = false) {
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
OST_FN void simdgroup_multiply_accumulate(__ost::Site site, simdgroup_matrix<D, 8, 8> &d, const simdgroup_matrix<A, 8, 8> &a,
                                          const simdgroup_matrix<B, 8, 8> &b, const simdgroup_matrix<C, 8, 8> &c) {
  const __ost::tile_in in = {{float(a.__elements.x), float(a.__elements.y)},
                             {float(b.__elements.x), float(b.__elements.y)},
                             {float(c.__elements.x), float(c.__elements.y)},
                             {0.0f, 0.0f}};
  const __ost::tile_out out = __ost::exchange<__ost::tile_in, __ost::tile_out>(
      site, in, [](const __ost::tile_in *all, __ost::tile_out *results, uint32_t active) {
        __ost::multiply_tiles(all, results, active);
      });
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
  simdgroup_multiply(__ost::Site{0}, d, a, b);
  return d;
}

}  // namespace metal
