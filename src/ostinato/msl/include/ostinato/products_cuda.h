// Products of matrices in memory on tensor cores, for operands of one type that the hardware multiplies (mma_cuda.h).
//
// In general every simdgroup reads what it needs for its own fragments, from threadgroup or device memory. Products with a
// sum of any length (`Deep`) are left to warpgroups where the GPU has them (wgmma_cuda.h).
#pragma once

namespace __ost {

// Reads four neighbours along the sum, with zeros beyond the end of the operand.
template <class T> struct quad_reader {
  operand_view<const T> from;
  int depth;
  bool whole;  // four at once
  OST_FN quad_reader(const operand_view<const T> &view, int depth_) : from(view), depth(depth_) {
    whole = view.inner_stride == 1 &&
            ((uint64_t(view.data) | uint64_t(view.outer_stride) * sizeof(T)) & (4 * sizeof(T) - 1)) == 0;
  }
  OST_FN mma_quad<T> at(int outer, int k) const {
    T four[4] = {};
    if (outer < from.outer_size) {
      const T *const place = from.data + outer * from.outer_stride + k * from.inner_stride;
      if (whole && k + 3 < depth) return mma_element<T>::read(place);
#pragma unroll
      for (int i = 0; i < 4; i++)
        if (k + i < depth) four[i] = place[i * from.inner_stride];
    }
    return mma_element<T>::pack(four);
  }
};

template <class Layout, class L, class R, bool Deep> struct tensor_cores {
  static constexpr bool take = Layout::fragmented && metal::is_same_v<L, R> && mma_element<L>::native;

  template <class T> static OST_FN operand_view<const L> constant(const operand_view<T> &v) {
    return {v.data, v.outer_stride, v.inner_stride, v.outer_size, v.inner_size};
  }
  // Adds to `sums`, which are those of a thread in the order of its fragments.
  template <class A, class B>
  static OST_FN void add(const operand_view<A> &left, const operand_view<B> &right, int depth, float *sums) {
    const operand_view<const L> l = constant(left), r = constant(right);
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if constexpr (Deep && staged_product<Layout, L>::possible) staged_product<Layout, L>::add(l, r, depth, sums);
    else
#endif
      by_simdgroups(l, r, depth, sums);
  }

  static OST_FN void by_simdgroups(const operand_view<const L> &l, const operand_view<const L> &r, int depth,
                                   float *sums) {
    constexpr int down = Layout::rows_held, across = Layout::columns_held;
    const quad_reader<L> left(l, depth), right(r, depth);
    const int row = int(mma_row()), quarter = int(mma_quarter());
#pragma unroll 1
    for (int k = 4 * quarter; k - 4 * quarter < depth; k += 16) {
      mma_quad<L> upper[down], lower[down];
#pragma unroll
      for (int i = 0; i < down; i++) {
        const int first = Layout::corner(i * across).row + row;
        upper[i] = left.at(first, k);
        lower[i] = left.at(first + 8, k);
      }
#pragma unroll
      for (int j = 0; j < across; j++)
#pragma unroll
        for (int pair = 0; pair < 2; pair++) {
          // The columns 2 q and 2 q + 1 of the hardware's product are 4 q + 2 pair and the next of the fragment's.
          const int column = Layout::corner(j).column + 4 * (row / 2) + 2 * pair + row % 2;
          const mma_quad<L> quad = right.at(column, k);
#pragma unroll
          for (int i = 0; i < down; i++) {
            float *const to = sums + (i * across + j) * 8 + 2 * pair;
            mma_element<L>::multiply(to[0], to[1], to[4], to[5], upper[i], lower[i], quad);
          }
        }
    }
  }
};

}  // namespace __ost
