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
template <bool All, class T> OST_FN tile_pair<T> pair_of(uint32_t lanes, tile_pair<T> own, uint32_t lane) {
  if constexpr (All) {
    return shuffled(all_lanes, own, lane);
  } else {
    const bool there = is_in(lanes, lane);
    const tile_pair<T> pair = shuffled(lanes, own, there ? lane : lane_id());
    return there ? pair : tile_pair<T>{T(0), T(0)};
  }
}

// What an input travels as: itself when it has 16 bits, float else.
template <class T> struct travels_as { typedef float type; };
template <> struct travels_as<half> { typedef half type; };
template <> struct travels_as<bfloat> { typedef bfloat type; };

template <bool All, class A, class B>
OST_FN tile_out multiply_pairs(uint32_t lanes, tile_pair<A> a, tile_pair<B> b, tile_out sum) {
  const uint32_t row = tile_row(lane_id()), column = tile_column(lane_id());
#pragma unroll
  for (uint32_t k = 0; k < 8; k += 2) {
    const tile_pair<A> left = pair_of<All>(lanes, a, tile_lane(row, k));
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
      const tile_pair<B> right = pair_of<All>(lanes, b, tile_lane(k + i, column));
      sum.d[0] = ::fmaf(float(left.at[i]), float(right.at[0]), sum.d[0]);
      sum.d[1] = ::fmaf(float(left.at[i]), float(right.at[1]), sum.d[1]);
    }
  }
  return sum;
}

template <class A, class B> OST_FN tile_out multiply_tiles(Site site, tile_in in) {
  typedef typename travels_as<A>::type TA;
  typedef typename travels_as<B>::type TB;
  const tile_pair<TA> a = {TA(in.a[0]), TA(in.a[1])};
  const tile_pair<TB> b = {TB(in.b[0]), TB(in.b[1])};
  const tile_out sum = {{in.c[0], in.c[1]}};
  return site.lanes == all_lanes ? multiply_pairs<true>(all_lanes, a, b, sum)
                                 : multiply_pairs<false>(site.lanes, a, b, sum);
}
// The site at which operators meet, since they have none of their own.
OST_FN Site unnamed_site() { return active_lanes(); }

}  // namespace __ost
