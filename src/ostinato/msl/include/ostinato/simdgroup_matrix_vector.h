// Tiles where a simdgroup runs as a vector: what a lane holds is a vector, and the lane pass keeps those of all lanes as
// one tile. Only whole tiles are converted, read, written and multiplied here.
#pragma once

namespace __ost {

// 16 bytes, of which the first two elements count: vectors of that size are passed as they are.
template <class T> struct tile_vector { typedef T type __attribute__((ext_vector_type(16 / sizeof(T)))); };
template <> struct tile_vector<bfloat> : tile_vector<uint16_t> {};
template <class T> using tile_elements = typename tile_vector<T>::type;
typedef tile_elements<float> float_tile;
typedef tile_elements<uint32_t> word_tile;
template <class T> using half_of_tile = T __attribute__((ext_vector_type(4)));

}  // namespace __ost

__OST_TOGETHER __ost::float_tile __ost_tile_multiply(__ost::float_tile a, __ost::float_tile b, __ost::float_tile c);
__OST_TOGETHER __ost::float_tile __ost_tile_load_float(const void *source, uint64_t stride, bool transposed);
__OST_TOGETHER __ost::tile_elements<half> __ost_tile_load_half(const void *source, uint64_t stride, bool transposed);
__OST_TOGETHER __ost::tile_elements<uint16_t> __ost_tile_load_bfloat(const void *source, uint64_t stride,
                                                                     bool transposed);
__OST_TOGETHER void __ost_tile_store_float(__ost::float_tile, void *target, uint64_t stride, bool transposed);
__OST_TOGETHER void __ost_tile_store_half(__ost::tile_elements<half>, void *target, uint64_t stride, bool transposed);
__OST_TOGETHER void __ost_tile_store_bfloat(__ost::tile_elements<uint16_t>, void *target, uint64_t stride,
                                            bool transposed);

namespace __ost {

template <class T> struct tile_scalar { typedef T type; };
template <> struct tile_scalar<bfloat> { typedef uint16_t type; };
template <class T> OST_FN tile_elements<T> tile_of(T x, T y) {
  tile_elements<T> elements;
  elements.x = bits_as<typename tile_scalar<T>::type>(x);
  elements.y = bits_as<typename tile_scalar<T>::type>(y);
  return elements;
}
template <class T> OST_FN vec<T, 2> &tile_parts(tile_elements<T> &elements) {
  return reinterpret_cast<vec<T, 2> &>(elements);
}
template <class T> OST_FN const vec<T, 2> &tile_parts(const tile_elements<T> &elements) {
  return reinterpret_cast<const vec<T, 2> &>(elements);
}

template <class T> OST_FN float_tile tile_to_float(tile_elements<T> tile) {
  if constexpr (__is_same(T, float)) return tile;
  else if constexpr (__is_same(T, half))
    return __builtin_convertvector(__builtin_shufflevector(tile, tile, 0, 1, 2, 3), float_tile);
  else
    return __builtin_bit_cast(
        float_tile, __builtin_convertvector(__builtin_shufflevector(tile, tile, 0, 1, 2, 3), word_tile) << 16u);
}
template <class S> OST_FN auto widened_tile(S tile) {
  return __builtin_shufflevector(tile, tile, 0, 1, 2, 3, -1, -1, -1, -1);
}
template <class T> OST_FN tile_elements<T> tile_from_float(float_tile tile) {
  if constexpr (__is_same(T, float)) return tile;
  else if constexpr (__is_same(T, half)) return widened_tile(__builtin_convertvector(tile, half_of_tile<half>));
  else {
    const word_tile bits = __builtin_bit_cast(word_tile, tile);
    const word_tile rounded = (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u, quiet = (bits >> 16u) | 0x40u;
    const word_tile nan = __builtin_bit_cast(word_tile, (bits & 0x7fffffffu) > 0x7f800000u);
    return widened_tile(__builtin_convertvector((quiet & nan) | (rounded & ~nan), half_of_tile<uint16_t>));
  }
}
template <class T, class U> OST_FN tile_elements<T> convert_tile(tile_elements<U> tile) {
  if constexpr (__is_same(T, U)) return tile;
  else return tile_from_float<T>(tile_to_float<U>(tile));
}

template <class T, class U> OST_FN tile_elements<T> read_tile(const U *source, ulong stride, bool transposed) {
  if constexpr (__is_same(U, float)) return convert_tile<T, U>(__ost_tile_load_float(source, stride, transposed));
  else if constexpr (__is_same(U, half)) return convert_tile<T, U>(__ost_tile_load_half(source, stride, transposed));
  else return convert_tile<T, bfloat>(__ost_tile_load_bfloat(source, stride, transposed));
}
template <class T, class U>
OST_FN void write_tile(tile_elements<T> elements, U *target, ulong stride, bool transposed) {
  if constexpr (__is_same(U, float)) __ost_tile_store_float(convert_tile<U, T>(elements), target, stride, transposed);
  else if constexpr (__is_same(U, half))
    __ost_tile_store_half(convert_tile<U, T>(elements), target, stride, transposed);
  else __ost_tile_store_bfloat(convert_tile<bfloat, T>(elements), target, stride, transposed);
}
template <class D, class A, class B, class C>
OST_FN tile_elements<D> multiply(Site, tile_elements<A> a, tile_elements<B> b, tile_elements<C> c) {
  return tile_from_float<D>(__ost_tile_multiply(tile_to_float<A>(a), tile_to_float<B>(b), tile_to_float<C>(c)));
}
OST_FN Site unnamed_site() { return Site{0}; }

}  // namespace __ost
