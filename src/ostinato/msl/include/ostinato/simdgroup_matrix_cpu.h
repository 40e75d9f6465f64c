// Products of tiles on the CPU: an exchange in which one lane multiplies for all.
#pragma once

namespace __ost {

template <class T, class U> OST_FN vec<T, 2> read_tile(const U *source, ulong stride, bool transposed) {
  return read_elements<T>(source, stride, transposed);
}

struct tile_in { float a[2], b[2], c[2], unused[2]; };

static __attribute__((noinline, unused)) void multiply_all_tiles(const tile_in *in, tile_out *out, uint32_t active) {
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

template <class A, class B> OST_FN tile_out multiply_tiles(Site site, vec<A, 2> a, vec<B, 2> b, tile_out c) {
  const tile_in in = {{float(a.x), float(a.y)}, {float(b.x), float(b.y)}, {c.d[0], c.d[1]}, {0.0f, 0.0f}};
  const auto product = [](const tile_in *all, tile_out *results, uint32_t active) {
    multiply_all_tiles(all, results, active);
  };
  const tile_out out = exchange<tile_in, tile_out>(site, in, product);
#if defined(__OST_CHECKED) && !defined(__OST_BOUNDS)
  __ost_check_all_met();
#endif
  return out;
}
// The site at which operators meet, since they have none of their own.
OST_FN Site unnamed_site() { return Site{0}; }

}  // namespace __ost
