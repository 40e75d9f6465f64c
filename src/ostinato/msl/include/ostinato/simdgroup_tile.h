// How an 8 x 8 matrix is spread over the 32 lanes of a simdgroup: two neighbours of a row in each lane, in the layout of
// Apple GPUs (template code relies on it).
#pragma once

namespace __ost {

OST_FN constexpr uint32_t tile_row(uint32_t lane) { return ((lane >> 2) & 4u) + ((lane >> 1) & 3u); }
OST_FN constexpr uint32_t tile_column(uint32_t lane) { return ((lane >> 2) & 2u) * 2u + (lane & 1u) * 2u; }

#ifndef __OST_VECTOR
struct tile_out { float d[2]; };
template <class A, class B> OST_FN tile_out multiply_tiles(Site site, vec<A, 2> a, vec<B, 2> b, tile_out c);

template <class T> using tile_elements = vec<T, 2>;
template <class T> OST_FN vec<T, 2> tile_of(T x, T y) { return vec<T, 2>(x, y); }
template <class T> OST_FN vec<T, 2> &tile_parts(vec<T, 2> &elements) { return elements; }
template <class T> OST_FN const vec<T, 2> &tile_parts(const vec<T, 2> &elements) { return elements; }

// Reading and writing is each lane's own affair.
template <class T, class U> OST_FN vec<T, 2> read_elements(const U *source, ulong stride, bool transposed) {
  const uint32_t lane = lane_id(), row = tile_row(lane), column = tile_column(lane);
  if (transposed) return vec<T, 2>(T(source[column * stride + row]), T(source[(column + 1) * stride + row]));
  return vec<T, 2>(T(source[row * stride + column]), T(source[row * stride + column + 1]));
}
template <class T, class U> OST_FN void write_tile(vec<T, 2> elements, U *target, ulong stride, bool transposed) {
  const uint32_t lane = lane_id(), row = tile_row(lane), column = tile_column(lane);
  if (transposed) {
    target[column * stride + row] = U(elements.x);
    target[(column + 1) * stride + row] = U(elements.y);
  } else {
    target[row * stride + column] = U(elements.x);
    target[row * stride + column + 1] = U(elements.y);
  }
}
template <class D, class A, class B, class C>
OST_FN vec<D, 2> multiply(Site site, vec<A, 2> a, vec<B, 2> b, vec<C, 2> c) {
  const tile_out out = multiply_tiles<A, B>(site, a, b, tile_out{{float(c.x), float(c.y)}});
  return vec<D, 2>(D(out.d[0]), D(out.d[1]));
}
#endif

}  // namespace __ost
