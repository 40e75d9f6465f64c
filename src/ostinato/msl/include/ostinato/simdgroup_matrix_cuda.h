// Products of tiles on CUDA. Two of half or of bfloat are multiplied by the tensor cores: lanes are numbered so that tiles
// lie in them as the hardware has it (exec_cuda.h), except that it wants the right operand's columns where a tile has its
// rows, so that one is transposed among the lanes. All lanes take part, as Metal demands. Others are multiplied in float,
// by shuffles and fused multiply-adds, every product exact in what it adds to (the tensor cores round float inputs, so
// they are no substitute unless asked for). Inputs of 16 bits travel in pairs.
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

// A tile of 16-bit elements in threadgroup memory. Each lane reads its own two, unless backends/cuda/tile_loads.py, which
// finds this by its text, sees that the warp can fetch whole rows (ldmatrix). The comment has what that takes: the address
// of the row that this lane hands out, and a number with all bits of the tile's address and of the distance of its rows.
template <class T> OST_FN vec<T, 2> read_threadgroup_tile(const T *source, ulong stride, bool transposed) {
  const uint32_t from = uint32_t(::__cvta_generic_to_shared(source)), apart = 2 * uint32_t(stride);
  const uint32_t row = mma_row(), column = 2 * mma_quarter(), handed = from + (threadIdx.x & 7u) * apart;
  uint32_t pair;
#define OST_READ_TILE(kind, first, second)                                                                             \
  asm volatile("{ .reg .b16 x, y; ld.shared.b16 x, [%1]; ld.shared.b16 y, [%2]; mov.b32 %0, {x, y}; } // " kind        \
               " tile %3, %4"                                                                                          \
               : "=r"(pair)                                                                                            \
               : "r"(first), "r"(second), "r"(handed), "r"(from | apart)                                               \
               : "memory")
  if (transposed) {
    const uint32_t first = from + column * apart + 2 * row;
    OST_READ_TILE("turned", first, first + apart);
  } else {
    const uint32_t first = from + row * apart + 2 * column;
    OST_READ_TILE("straight", first, first + 2);
  }
#undef OST_READ_TILE
  return as_type<vec<T, 2>>(pair);
}
template <class T, class U> OST_FN vec<T, 2> read_tile(const U *source, ulong stride, bool transposed) {
  if constexpr (metal::is_same_v<T, U> && sizeof(T) == 2 && mma_element<T>::native) {
    if (::__isShared(source)) return read_threadgroup_tile(source, stride, transposed);
  }
  return read_elements<T>(source, stride, transposed);
}

// A tile's register with rows and columns exchanged.
OST_FN uint32_t transposed_tile(uint32_t pair) {
  uint32_t turned;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(pair));
  return turned;
}

// The same of 32 bits. A lane has two neighbours x and y of a row, and wants two neighbours of a column. In each of two
// exchanges one half of the lanes gets its first element and the other its second, so even rows hand out one of theirs
// while odd rows hand out the other.
struct turned_pair { uint32_t first, second; };
OST_FN turned_pair transposed_tile(uint32_t x, uint32_t y) {
  const uint32_t row = mma_row(), odd = row & 1u, from = 8u * mma_quarter() + row / 2;
  turned_pair turned;
  asm("{ .reg .pred odd; .reg .b32 a, b; setp.ne.u32 odd, %4, 0; selp.b32 a, %3, %2, odd; selp.b32 b, %2, %3, odd; "
      "shfl.sync.idx.b32 a, a, %5, 31, 0xffffffff; shfl.sync.idx.b32 b, b, %6, 31, 0xffffffff; "
      "selp.b32 %0, b, a, odd; selp.b32 %1, a, b, odd; }"
      : "=r"(turned.first), "=r"(turned.second)
      : "r"(x), "r"(y), "r"(odd), "r"(from + 4 * odd), "r"(from + 4 - 4 * odd));
  return turned;
}

template <class A, class B> OST_FN tile_out multiply_tiles(Site site, vec<A, 2> a, vec<B, 2> b, tile_out sum) {
  if constexpr (metal::is_same_v<A, B> && sizeof(A) == 2 && mma_element<A>::native) {
    mma_element<A>::multiply(sum.d[0], sum.d[1], as_type<uint32_t>(a), transposed_tile(as_type<uint32_t>(b)));
    return sum;
#ifdef __OST_TF32
  } else if constexpr (mma_element<float>::native) {
    const turned_pair right = transposed_tile(tf32_bits(float(b.x)), tf32_bits(float(b.y)));
    mma_element<float>::multiply(sum.d[0], sum.d[1], tf32_bits(float(a.x)), tf32_bits(float(a.y)), right.first,
                                 right.second);
    return sum;
#endif
  } else {
    typedef typename travels_as<A>::type TA;
    typedef typename travels_as<B>::type TB;
    const tile_pair<TA> left = {TA(a.x), TA(a.y)};
    const tile_pair<TB> right = {TB(b.x), TB(b.y)};
    return site.lanes == all_lanes ? multiply_pairs<true>(all_lanes, left, right, sum)
                                   : multiply_pairs<false>(site.lanes, left, right, sum);
  }
}
// The site at which operators meet, since they have none of their own.
OST_FN Site unnamed_site() { return active_lanes(); }

}  // namespace __ost
