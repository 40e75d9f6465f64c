// <MetalPerformancePrimitives/MPPTensorOpsMatMul2d.h>: products of matrices by the threads of an execution scope.
//
// Of operands in memory each thread computes the elements of the product that it holds, unless the target has tensor
// cores for them (`tensor_cores`). Operands that are cooperative tensors of a simdgroup meet as simdgroup matrices of 8
// by 8. Sums are kept in float, of integers in int, so relaxed_precision changes nothing.
#pragma once

namespace __ost {

template <class T> struct is_cooperative : metal::false_type {};
template <class T, class E, class L> struct is_cooperative<metal::cooperative_tensor<T, E, L>> : metal::true_type {};

template <class T> OST_FN T one_of_four(metal::vec<T, 4> v, uint32_t i) {
  return i & 2u ? (i & 1u ? v.w : v.z) : (i & 1u ? v.y : v.x);
}
// Four elements of another lane; two of 16 bits travel as one word.
template <class T> OST_FN metal::vec<T, 4> four_of(Site site, const T *own, uint32_t lane) {
  const metal::vec<T, 4> all(own[0], own[1], own[2], own[3]);
  if constexpr (sizeof(T) == 2)
    return as_type<metal::vec<T, 4>>(metal::simd_shuffle(site, as_type<metal::uint2>(all), lane));
  else return metal::simd_shuffle(site, all, lane);
}

// Fragments of 16 by 16 (eight elements a lane, see cooperative_tensor.h) as four tiles of 8 by 8. Tiles hold two
// neighbours a lane where fragments hold four, so the columns of the product are taken in another order: tile p has the
// columns 4 g + 2 p and 4 g + 2 p + 1 of the lanes' groups g. That leaves the product's elements where they are.
template <class T> using tile = metal::simdgroup_matrix<T, 8, 8>;
// The lane of a row's group.
OST_FN uint32_t fragment_lane(uint32_t row, uint32_t group) {
  return ((row & 4u) << 2) | ((group & 2u) << 2) | ((row & 3u) << 1) | (group & 1u);
}
struct fragment_place { uint32_t lane = lane_id(), row = tile_row(lane), group = tile_column(lane) / 2; };
// Rows 8 h and on of the left operand, 8 t and on of the sum.
template <bool Transposed, class T> OST_FN tile<T> left_tile(Site site, const T *fragment, uint32_t h, uint32_t t) {
  const fragment_place own;
  tile<T> out;
  if constexpr (Transposed) {
    const auto from = [&](uint32_t i) {
      const uint32_t lane = fragment_lane(2 * own.group + i, 2 * h + (own.row >> 2));
      return one_of_four(four_of(site, fragment + 4 * t, lane), own.row & 3);
    };
    const T first = from(0), second = from(1);
    out.__elements = tile_of<T>(first, second);
  } else {
    const auto row = four_of(site, fragment + 4 * h, fragment_lane(own.row, 2 * t + (own.group >> 1)));
    const bool later = own.group & 1;
    out.__elements = tile_of<T>(later ? row.z : row.x, later ? row.w : row.y);
  }
  return out;
}
// Rows 8 t and on of the sum, columns p of the product.
template <bool Transposed, class T> OST_FN tile<T> right_tile(Site site, const T *fragment, uint32_t t, uint32_t p) {
  const fragment_place own;
  tile<T> out;
  if constexpr (Transposed) {
    const auto from = [&](uint32_t i) {
      const uint32_t lane = fragment_lane((4 * own.group + 2 * p + i) & 7, 2 * t + (own.row >> 2));
      const T upper = one_of_four(four_of(site, fragment, lane), own.row & 3);
      const T lower = one_of_four(four_of(site, fragment + 4, lane), own.row & 3);
      return own.group & 2 ? lower : upper;
    };
    const T first = from(0), second = from(1);
    out.__elements = tile_of<T>(first, second);
  } else {
    out.__elements = tile_of<T>(fragment[4 * t + 2 * p], fragment[4 * t + 2 * p + 1]);
  }
  return out;
}

}  // namespace __ost

namespace mpp {
namespace tensor_ops {

// A k that is read off the operands. The descriptor's own default is `dynamic_extent`, and both are meant so.
template <class T, typename __ost::only_if<metal::is_integral_v<T>>::type = 0> struct dynamic_length {
  static constexpr T value = metal::numeric_limits<T>::max();
};
template <class T> inline constexpr T dynamic_length_v = dynamic_length<T>::value;

struct matmul2d_descriptor {
  enum class mode { multiply, multiply_accumulate };
  int m, n, k;
  bool transpose_left, transpose_right, relaxed_precision;
  mode matmul_mode;

  OST_FN constexpr matmul2d_descriptor(int m_, int n_, int k_ = int(metal::dynamic_extent), bool left = false,
                                       bool right = false, bool relaxed = false, mode mode_ = mode::multiply)
      : m(m_), n(n_), k(k_), transpose_left(left), transpose_right(right), relaxed_precision(relaxed),
        matmul_mode(mode_) {}

  // As a template argument: C++17 has none of class type.
  OST_FN constexpr operator uint64_t() const {
    if (m <= 0 || m > 0x3fff || n <= 0 || n > 0x3fff) return 0;
    return uint64_t(uint32_t(k)) << 32 | uint64_t(m) << 18 | uint64_t(n) << 4 | uint64_t(transpose_left) << 3 |
           uint64_t(transpose_right) << 2 | uint64_t(relaxed_precision) << 1 |
           uint64_t(matmul_mode == mode::multiply_accumulate);
  }
  OST_FN static constexpr matmul2d_descriptor __of(uint64_t packed) {
    return matmul2d_descriptor(int(packed >> 18) & 0x3fff, int(packed >> 4) & 0x3fff, int(packed >> 32), packed & 8,
                               packed & 4, packed & 2, packed & 1 ? mode::multiply_accumulate : mode::multiply);
  }
};

template <uint64_t Descriptor, class Scope, class... Args> struct matmul2d {
  static constexpr matmul2d_descriptor descriptor = matmul2d_descriptor::__of(Descriptor);
  typedef Scope scope;

  static constexpr int __m = descriptor.m, __n = descriptor.n, __k = descriptor.k;
  static_assert(__m > 0 && __n > 0, "m and n of a matmul2d are between 1 and 16383");
  static constexpr bool __dynamic = __k == int(metal::dynamic_extent) || __k == dynamic_length_v<int>;
  static constexpr bool __left_turned = descriptor.transpose_left, __right_turned = descriptor.transpose_right;
  static constexpr bool __accumulates = descriptor.matmul_mode == matmul2d_descriptor::mode::multiply_accumulate;

  // Matrices as they lie in memory: turned, the left one has m columns and the right one k.
  template <class T, class Index, int Columns, int Rows, bool Turned> using __spread =
      metal::cooperative_tensor<T, metal::extents<Index, size_t(Columns), size_t(Rows)>,
                                __ost::spread<Columns, Rows, Scope, Turned>>;
  static constexpr int __depth = __dynamic ? 16 : __k;
  template <class L, class R, class T, class Index = int> using cooperative_tensor_left_input_t =
      __spread<L, Index, __left_turned ? __m : __depth, __left_turned ? __depth : __m, __left_turned>;
  template <class L, class R, class T, class Index = int> using cooperative_tensor_right_input_t =
      __spread<R, Index, __right_turned ? __depth : __n, __right_turned ? __n : __depth, __right_turned>;
  template <class L, class R, class T, class Index = int> using cooperative_tensor_destination_t =
      __spread<T, Index, __n, __m, false>;

  template <class L, class R, class T, class Index = int> OST_FN auto get_left_input_cooperative_tensor() const {
    static_assert(!__dynamic, "a cooperative tensor as an operand of matmul2d needs a k that is known");
    return cooperative_tensor_left_input_t<L, R, T, Index>();
  }
  template <class L, class R, class T, class Index = int> OST_FN auto get_right_input_cooperative_tensor() const {
    static_assert(!__dynamic, "a cooperative tensor as an operand of matmul2d needs a k that is known");
    return cooperative_tensor_right_input_t<L, R, T, Index>();
  }
  template <class L, class R, class T, class Index = int> OST_FN auto get_destination_cooperative_tensor() const {
    return cooperative_tensor_destination_t<L, R, T, Index>();
  }

  template <class Left, class Right, class Destination>
  OST_FN void run(const Left &left, const Right &right, Destination &&destination) const {
    typedef metal::remove_cvref_t<Destination> To;
    if constexpr (!__ost::is_cooperative<To>::value) {
      auto product = get_destination_cooperative_tensor<Left, Right, __sum_t<Left, Right>>();
      if constexpr (__accumulates) product.load(destination);
      run(left, right, product);
      product.store(destination);
    } else if constexpr (!__ost::is_cooperative<Left>::value && !__ost::is_cooperative<Right>::value) {
      __from_memory(left, right, destination);
    } else if constexpr (!__ost::is_cooperative<Left>::value) {
      auto loaded = get_left_input_cooperative_tensor<typename Left::value_type, typename Right::value_type,
                                                      typename To::value_type>();
      loaded.load(left);
      run(loaded, right, destination);
    } else if constexpr (!__ost::is_cooperative<Right>::value) {
      auto loaded = get_right_input_cooperative_tensor<typename Left::value_type, typename Right::value_type,
                                                       typename To::value_type>();
      loaded.load(right);
      run(left, loaded, destination);
    } else {
      __from_lanes(left, right, destination);
    }
  }

  template <class Left, class Right> using __sum_t = metal::conditional_t<
      metal::is_integral_v<typename Left::value_type> && metal::is_integral_v<typename Right::value_type>, int, float>;

  // Rows and columns beyond an operand add nothing. They are computed from the last ones inside and left out at the end,
  // so that all threads do the same.
  template <class Left, class Right, class Destination>
  static OST_FN void __from_memory(const Left &left, const Right &right, Destination &destination) {
    typedef typename Destination::value_type T;
    typedef typename Destination::layout Layout;
    typedef __sum_t<Left, Right> Sum;
    const auto l = __ost::view_of(left, !__left_turned);
    const auto r = __ost::view_of(right, __right_turned);
    const int shared = __ost::smaller_of(l.inner_size, r.inner_size);
    const int inside = __dynamic ? shared : __ost::smaller_of(shared, __k);
    const int depth = l.outer_size > 0 && r.outer_size > 0 ? inside : 0;
    typedef __ost::tensor_cores<Layout, typename Left::value_type, typename Right::value_type, __dynamic> Cores;
    if constexpr (Cores::take) {
      if constexpr (metal::is_same_v<T, float>) {
        if constexpr (!__accumulates) {
          OST_EACH_ELEMENT
          for (int i = 0; i < Layout::capacity; i++) destination[i] = 0.0f;
        }
        Cores::add(l, r, depth, &destination[0]);
      } else {
        float sums[Layout::capacity];
        OST_EACH_ELEMENT
        for (int i = 0; i < Layout::capacity; i++) sums[i] = __accumulates ? float(destination[i]) : 0.0f;
        Cores::add(l, r, depth, sums);
        OST_EACH_ELEMENT
        for (int i = 0; i < Layout::capacity; i++) destination[i] = T(sums[i]);
      }
      return;
    }
    constexpr int step = Layout::step;
    OST_EACH_ELEMENT
    for (int i = 0; i < Layout::capacity; i += step) {
      const __ost::matrix_place at = Layout::place(i);
      const auto *x = l.data + __ost::smaller_of(at.row, l.outer_size - 1) * l.outer_stride;
      ptrdiff_t column[step];
      Sum sum[step] = {};
#pragma unroll
      for (int j = 0; j < step; j++) column[j] = __ost::smaller_of(at.column + j, r.outer_size - 1) * r.outer_stride;
      OST_EACH_PRODUCT
      for (int k = 0; k < depth; k++) {
        const Sum value = Sum(x[k * l.inner_stride]);
#pragma unroll
        for (int j = 0; j < step; j++) sum[j] += value * Sum(r.data[column[j] + k * r.inner_stride]);
      }
      const bool in_row = Layout::holds(i) && at.row < l.outer_size;
#pragma unroll
      for (int j = 0; j < step; j++) {
        const Sum add = in_row && at.column + j < r.outer_size ? sum[j] : Sum(0);
        destination[i + j] = T(__accumulates ? Sum(destination[i + j]) + add : add);
      }
    }
  }

  template <class Left, class Right, class Destination>
  static OST_PRODUCT_FN void __from_lanes(const Left &left, const Right &right, Destination &destination) {
    typedef typename Left::value_type L;
    typedef typename Right::value_type R;
    typedef typename Destination::value_type T;
    static_assert(metal::is_same_v<Scope, metal::execution_simdgroup>,
                  "matmul2d takes cooperative tensors as operands only in execution_simdgroup");
    static_assert(__m % 16 == 0 && __n % 16 == 0 && __k % 16 == 0,
                  "matmul2d takes cooperative tensors as operands only if m, n and k are multiples of 16");
    static_assert(metal::is_floating_point_v<L> && metal::is_floating_point_v<R>,
                  "matmul2d takes cooperative tensors as operands only of half, bfloat and float");
    constexpr int across = __n / 16, down = __m / 16, deep = __k / 16;
    const auto site = __ost::scope_site();
    __ost::tile<L> l[down * deep][2][2];
    __ost::tile<R> r[deep * across][2][2];
    for (int fragment = 0; fragment < down * deep; fragment++)
      for (uint32_t h = 0; h < 2; h++)
        for (uint32_t t = 0; t < 2; t++)
          l[fragment][h][t] = __ost::left_tile<__left_turned>(site, &left[fragment * 8], h, t);
    for (int fragment = 0; fragment < deep * across; fragment++)
      for (uint32_t t = 0; t < 2; t++)
        for (uint32_t p = 0; p < 2; p++)
          r[fragment][t][p] = __ost::right_tile<__right_turned>(site, &right[fragment * 8], t, p);
    for (int row = 0; row < down; row++)
      for (int column = 0; column < across; column++)
        for (uint32_t h = 0; h < 2; h++)
          for (uint32_t p = 0; p < 2; p++) {
            T *to = &destination[(row * across + column) * 8 + 4 * h + 2 * p];
            __ost::tile<float> sum;
            sum.__elements =
                __accumulates ? __ost::tile_of<float>(float(to[0]), float(to[1])) : __ost::tile_of<float>(0.0f, 0.0f);
            for (int k = 0; k < deep; k++)
              for (uint32_t t = 0; t < 2; t++)
                metal::simdgroup_multiply_accumulate(site, sum, l[row * deep + k][h][t], r[k * across + column][t][p],
                                                     sum);
            to[0] = T(sum.thread_elements().x);
            to[1] = T(sum.thread_elements().y);
          }
  }
};

#define OST_REFUSED(name)                                                                                       \
  template <class... A> OST_FN void name(const A &...) {                                                        \
    static_assert(sizeof...(A) > 99, #name " of Metal 4 tensors is not supported");                             \
  }
OST_REFUSED(reduce_rows)
OST_REFUSED(reduce_columns)
#undef OST_REFUSED

}  // namespace tensor_ops
}  // namespace mpp
