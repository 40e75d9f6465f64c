// <metal_tensor>: a tensor that a kernel makes over memory it has (tensor_inline), its extents and slices. The first
// dimension is the innermost. Tensors that the host binds (tensor_handle) are not here.
#pragma once

namespace metal {

inline constexpr size_t dynamic_extent = size_t(-1);

// The size of each dimension, at compile time or, for dynamic_extent, kept here. Takes all sizes, or the dynamic ones.
template <class Index, size_t... Sizes> struct extents {
  typedef Index index_type;
  static constexpr size_t __rank = sizeof...(Sizes), __dynamic = (size_t(Sizes == dynamic_extent) + ... + 0);
  Index __sizes[__rank];

  OST_FN constexpr extents() : __sizes{Index(Sizes == dynamic_extent ? 0 : Sizes)...} {}
  template <class First, class... Rest, typename __ost::only_if<sizeof...(Rest) + 1 == __rank>::type = 0>
  OST_FN constexpr extents(First first, Rest... rest) : __sizes{Index(first), Index(rest)...} {}
  template <class First, class... Rest,
            typename __ost::only_if<sizeof...(Rest) + 1 == __dynamic && __dynamic != __rank>::type = 0, class = void>
  OST_FN constexpr extents(First first, Rest... rest) : extents() {
    const Index given[] = {Index(first), Index(rest)...};
    for (size_t r = 0, next = 0; r < __rank; r++)
      if (static_extent(r) == dynamic_extent) __sizes[r] = given[next++];
  }
  static OST_FN constexpr size_t rank() { return __rank; }
  static OST_FN constexpr size_t rank_dynamic() { return __dynamic; }
  static OST_FN constexpr size_t static_extent(size_t r) {
    const size_t sizes[] = {Sizes...};
    return sizes[r];
  }
  OST_FN constexpr Index extent(size_t r) const {
    return static_extent(r) == dynamic_extent ? __sizes[r] : Index(static_extent(r));
  }
};

}  // namespace metal

namespace __ost {

template <class Index, size_t Rank, size_t... Sizes>
struct all_dynamic : all_dynamic<Index, Rank - 1, Sizes..., metal::dynamic_extent> {};
template <class Index, size_t... Sizes> struct all_dynamic<Index, 0, Sizes...> {
  typedef metal::extents<Index, Sizes...> type;
};

}  // namespace __ost

namespace metal {

template <class Index, size_t Rank> using dextents = typename __ost::all_dynamic<Index, Rank>::type;

struct tensor_inline {};
struct tensor_handle {};
struct tensor_offset {};

template <class T, class Extents, class Descriptor = tensor_handle, class... Tags> struct tensor {
  static_assert(__is_same(Descriptor, tensor_inline), "only tensors that a kernel makes (tensor_inline) are supported");
  typedef T element_type;
  typedef remove_cv_t<T> value_type;
  typedef Extents extents_type;
  typedef typename Extents::index_type index_type;
  typedef T *data_handle_type;
  static constexpr size_t __rank = Extents::rank();

  T *__data;
  Extents __extents;
  ptrdiff_t __strides[__rank];

  // Dense, in order of the dimensions.
  OST_FN tensor(T *data, Extents sizes) : __data(data), __extents(sizes) {
    ptrdiff_t stride = 1;
    for (size_t r = 0; r < __rank; r++) {
      __strides[r] = stride;
      stride *= sizes.extent(r);
    }
  }
  template <class Stride>
  OST_FN tensor(T *data, Extents sizes, array<Stride, Extents::rank()> strides) : __data(data), __extents(sizes) {
    for (size_t r = 0; r < __rank; r++) __strides[r] = strides[r];
  }

  static OST_FN constexpr size_t get_rank() { return __rank; }
  OST_FN const Extents &extents() const { return __extents; }
  OST_FN index_type get_extent(size_t r) const { return __extents.extent(r); }
  OST_FN index_type get_stride(size_t r) const { return index_type(__strides[r]); }
  OST_FN T &operator[](array<index_type, Extents::rank()> at) const {
    ptrdiff_t offset = 0;
    for (size_t r = 0; r < __rank; r++) offset += at[r] * __strides[r];
    return __data[offset];
  }

  // From an origin on; the rest of each dimension, or the sizes given.
  template <class... Origin> OST_FN auto slice(Origin... origin) const {
    return __part<dextents<index_type, Extents::rank()>>(origin...);
  }
  template <size_t First, size_t... Rest, class... Origin> OST_FN auto slice(Origin... origin) const {
    return __part<metal::extents<index_type, First, Rest...>>(origin...);
  }
  template <size_t First, size_t... Rest, class... Origin> OST_FN auto static_slice(Origin... origin) const {
    return __part<metal::extents<index_type, First, Rest...>>(origin...);
  }

  template <class Part, class... Origin> OST_FN tensor<T, Part, Descriptor, Tags...> __part(Origin... origin) const {
    static_assert(sizeof...(Origin) == __rank && Part::rank() == __rank, "a slice has an origin in every dimension");
    const index_type first[] = {index_type(origin)...};
    array<ptrdiff_t, Extents::rank()> strides;
    Part sizes;
    T *data = __data;
    for (size_t r = 0; r < __rank; r++) {
      const index_type left = get_extent(r) - first[r];
      if (Part::static_extent(r) == dynamic_extent) sizes.__sizes[r] = left > 0 ? left : 0;
      data += first[r] * __strides[r];
      strides[r] = __strides[r];
    }
    return tensor<T, Part, Descriptor, Tags...>(data, sizes, strides);
  }
};
template <class T, class Index, size_t... Sizes>
tensor(T *, extents<Index, Sizes...>) -> tensor<T, extents<Index, Sizes...>, tensor_inline>;
template <class T, class Index, size_t... Sizes, class Stride, size_t Rank>
tensor(T *, extents<Index, Sizes...>, array<Stride, Rank>) -> tensor<T, extents<Index, Sizes...>, tensor_inline>;

}  // namespace metal

namespace __ost {

// A matrix in memory, by the indices of the product: `outer` of the result, `inner` of the sum.
template <class T> struct operand_view {
  T *data;
  ptrdiff_t outer_stride, inner_stride;
  int outer_size, inner_size;
};
template <class Tensor> OST_FN auto view_of(const Tensor &t, bool inner_first) {
  static_assert(Tensor::get_rank() == 2, "matmul2d takes tensors of two dimensions");
  const int inner = inner_first ? 0 : 1;
  return operand_view<typename Tensor::element_type>{t.__data, t.__strides[1 - inner], t.__strides[inner],
                                                     int(t.get_extent(1 - inner)), int(t.get_extent(inner))};
}

OST_FN constexpr int smaller_of(int a, int b) { return a < b ? a : b; }

}  // namespace __ost
