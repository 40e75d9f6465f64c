// Products of tiles on CUDA: in float, by shuffles and fused multiply-adds, every product exact in what it adds to (the
// tensor cores round float inputs, so they are no substitute). Inputs of 16 bits travel in pairs.
#pragma once

namespace __ost {

// The lane that holds an element, and its neighbour in the row.
OST_FN constexpr uint32_t tile_lane(uint32_t row, uint32_t column) {
  return ((row & 4u) << 2) | ((row & 3u) << 1) | ((column & 4u) << 1) | ((column >> 1) & 1u);
}

template <class T> struct tile_pair { T at[2]; };

// Two neighbours of a row from the lane that holds them; zero where that lane is absent.
template <class T> OST_FN tile_pair<T> pair_of(uint32_t lanes, tile_pair<T> own, uint32_t lane) {
  const bool there = is_in(lanes, lane);
  const tile_pair<T> pair = shuffled(lanes, own, there ? lane : lane_id());
  return there ? pair : tile_pair<T>{T(0), T(0)};
}

// What an input travels as: itself when it has 16 bits, float else.
template <class T> struct travels_as { typedef float type; };
template <> struct travels_as<half> { typedef half type; };
template <> struct travels_as<bfloat> { typedef bfloat type; };

template <class A, class B> OST_FN tile_out multiply_tiles(Site site, tile_in in) {
  typedef typename travels_as<A>::type TA;
  typedef typename travels_as<B>::type TB;
  const uint32_t lane = lane_id(), row = tile_row(lane), column = tile_column(lane);
  const tile_pair<TA> a = {TA(in.a[0]), TA(in.a[1])};
  const tile_pair<TB> b = {TB(in.b[0]), TB(in.b[1])};
  tile_out out = {{in.c[0], in.c[1]}};
#pragma unroll
  for (uint32_t k = 0; k < 8; k += 2) {
    const tile_pair<TA> left = pair_of(site.lanes, a, tile_lane(row, k));
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
      const tile_pair<TB> right = pair_of(site.lanes, b, tile_lane(k + i, column));
      out.d[0] = ::fmaf(float(left.at[i]), float(right.at[0]), out.d[0]);
      out.d[1] = ::fmaf(float(left.at[i]), float(right.at[1]), out.d[1]);
    }
  }
  return out;
}
// Where operators meet, which have no site of their own.
OST_FN Site unnamed_site() { return active_lanes(); }

}  // namespace __ost
