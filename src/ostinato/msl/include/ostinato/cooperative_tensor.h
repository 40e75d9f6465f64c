// <metal_cooperative_tensor>: a matrix spread over the threads of an execution scope, and how it is spread.
//
// Where sides are multiples of 16, the matrix is cut into fragments of 16 by 16, each held by one simdgroup with eight
// elements a lane, in the layout of Apple GPUs: template code that fills a cooperative tensor element by element relies
// on it. Other matrices are dealt out element by element.
#pragma once

namespace metal {

template <size_t N> struct execution_simdgroups {
  static constexpr size_t static_size = N;
  OST_FN constexpr uint size() const { return uint(N); }
};
template <size_t N> struct execution_threads {
  static_assert(N == 1, "an operation runs on one thread, or on simdgroups");
  static constexpr size_t static_size = N;
  OST_FN constexpr uint size() const { return uint(N); }
};
typedef execution_simdgroups<1> execution_simdgroup;
typedef execution_threads<1> execution_thread;

}  // namespace metal

namespace __ost {

template <class Scope> struct scope_of;
template <size_t N> struct scope_of<metal::execution_simdgroups<N>> {
  static constexpr int simdgroups = int(N), threads = int(N) * 32;
  static OST_FN uint32_t thread() { return N == 1 ? lane_id() : group_thread(); }
};
template <> struct scope_of<metal::execution_thread> {
  static constexpr int simdgroups = 1, threads = 1;
  static OST_FN uint32_t thread() { return 0; }
};

struct matrix_place { int column, row; };

OST_FN constexpr int common_divisor(int a, int b) { return b == 0 ? a : common_divisor(b, a % b); }

// Element i of a thread in a matrix of Columns by Rows. `step`: elements that follow each other in a row.
//
// Simdgroups, or fours of them where that comes out even, hold blocks of fragments side by side. The four of one take
// every fourth row of fragments, as the warpgroups of NVIDIA's GPUs do. In a block fragments follow each other along the
// rows of the matrix, or along its columns.
template <int Columns, int Rows, class Scope, bool AlongColumns> struct spread {
  typedef scope_of<Scope> scope;
  static constexpr int across = Columns / 16, down = Rows / 16, fragments = across * down;
  static constexpr bool fragmented =
      scope::threads > 1 && Columns % 16 == 0 && Rows % 16 == 0 && fragments % scope::simdgroups == 0;
  static constexpr int capacity =
      fragmented ? fragments / scope::simdgroups * 8 : (Columns * Rows + scope::threads - 1) / scope::threads;
  static constexpr int step = fragmented ? 4 : 1;
  static constexpr bool by_fours = fragmented && scope::simdgroups % 4 == 0 && down % 4 == 0;
  static constexpr int together = by_fours ? 4 : 1, blocks = scope::simdgroups / together;
  static constexpr int blocks_down = common_divisor(blocks, down / together);
  static constexpr int rows_held = down / together / blocks_down, columns_held = across / (blocks / blocks_down);

  // Of a block, in units of `together` fragments down and of one across.
  static OST_FN int first_row_block(int block) { return block % blocks_down * rows_held; }
  static OST_FN int first_column_block(int block) { return block / blocks_down * columns_held; }
  // The upper left corner of a fragment.
  static OST_FN matrix_place corner(int fragment) {
    const int simdgroup = int(scope::thread()) / 32, block = simdgroup / together;
    const int row = first_row_block(block) + (AlongColumns ? fragment % rows_held : fragment / columns_held);
    const int column = first_column_block(block) + (AlongColumns ? fragment / rows_held : fragment % columns_held);
    return {column * 16, (row * together + simdgroup % together) * 16};
  }
  static OST_FN matrix_place place(int i) {
    const int thread = int(scope::thread());
    if constexpr (fragmented) {
      const int lane = thread & 31;
      const matrix_place at = corner(i / 8);
      return {at.column + fragment_group(lane) * 4 + i % 4, at.row + int(tile_row(lane)) + (i / 4 % 2) * 8};
    } else {
      const int at = i * scope::threads + thread;
      return {at % Columns, at / Columns};
    }
  }
  static OST_FN bool holds(int i) { return fragmented || i * scope::threads + int(scope::thread()) < Columns * Rows; }
  // Which of the four lanes of a row.
  static OST_FN int fragment_group(int lane) { return ((lane >> 2) & 2) | (lane & 1); }
};

}  // namespace __ost

namespace metal {

template <class T, class Extents, class Layout> struct cooperative_tensor {
  typedef T element_type;
  typedef T value_type;
  typedef Extents extents_type;
  typedef Layout layout;
  typedef typename Extents::index_type index_type;
  typedef array<index_type, 2> multidimensional_index_type;

  T __elements[Layout::capacity] = {};

  template <class Tensor, class Element> struct __iterator {
    Tensor *tensor;
    int at;
    OST_FN Element &operator*() const { return tensor->__elements[at]; }
    OST_FN __iterator &operator++() {
      at++;
      return *this;
    }
    OST_FN __iterator operator++(int) {
      __iterator old = *this;
      at++;
      return old;
    }
    friend OST_FN bool operator==(__iterator a, __iterator b) { return a.at == b.at; }
    friend OST_FN bool operator!=(__iterator a, __iterator b) { return a.at != b.at; }
    OST_FN multidimensional_index_type get_multidimensional_index() const {
      return tensor->get_multidimensional_index(at);
    }
    OST_FN bool is_valid_element() const { return tensor->is_valid_element(at); }
  };
  typedef __iterator<cooperative_tensor, T> iterator;
  typedef __iterator<const cooperative_tensor, const T> const_iterator;

  OST_FN iterator begin() { return {this, 0}; }
  OST_FN iterator end() { return {this, Layout::capacity}; }
  OST_FN const_iterator begin() const { return {this, 0}; }
  OST_FN const_iterator end() const { return {this, Layout::capacity}; }

  static OST_FN constexpr uint16_t get_capacity() { return uint16_t(Layout::capacity); }
  OST_FN T &operator[](int i) { return __elements[i]; }
  OST_FN const T &operator[](int i) const { return __elements[i]; }
  OST_FN bool is_valid_element(int i) const { return Layout::holds(i); }
  OST_FN bool get_mask(int i) const { return Layout::holds(i); }
  OST_FN multidimensional_index_type get_multidimensional_index(int i) const {
    const __ost::matrix_place at = Layout::place(i);
    return {{index_type(at.column), index_type(at.row)}};
  }
  template <class Tensor, class Element>
  OST_FN multidimensional_index_type get_multidimensional_index(__iterator<Tensor, Element> it) const {
    return get_multidimensional_index(it.at);
  }

  // Elements outside of the other tensor are zero, or not stored.
  template <class U, class Sizes, class... Tags> OST_FN void load(
      const tensor<U, Sizes, tensor_inline, Tags...> &from) {
    OST_EACH_ELEMENT
    for (int i = 0; i < Layout::capacity; i++) {
      const __ost::matrix_place at = Layout::place(i);
      __elements[i] = __lies_in(from, i, at) ? T(*__address(from, at)) : T(0);
    }
  }
  template <class U, class Sizes, class... Tags>
  OST_FN void store(const tensor<U, Sizes, tensor_inline, Tags...> &to) const {
#ifdef OST_WIDE_STORES
    typedef vec<remove_cv_t<U>, 4> Four;
    if (Layout::fragmented && to.__strides[0] == 1 && int(to.get_extent(0)) >= Layout::across * 16 &&
        int(to.get_extent(1)) >= Layout::down * 16 &&
        ((uint64_t(to.__data) | uint64_t(to.__strides[1]) * sizeof(U)) & (sizeof(Four) - 1)) == 0) {
      OST_EACH_ELEMENT
      for (int i = 0; i < Layout::capacity; i += 4)
        *reinterpret_cast<Four *>(__address(to, Layout::place(i))) =
            Four(U(__elements[i]), U(__elements[i + 1]), U(__elements[i + 2]), U(__elements[i + 3]));
      return;
    }
#endif
    OST_EACH_ELEMENT
    for (int i = 0; i < Layout::capacity; i++) {
      const __ost::matrix_place at = Layout::place(i);
      if (__lies_in(to, i, at)) *__address(to, at) = U(__elements[i]);
    }
  }

  template <class Tensor> static OST_FN bool __lies_in(const Tensor &t, int i, __ost::matrix_place at) {
    static_assert(Tensor::get_rank() == 2, "a cooperative tensor of two dimensions is loaded from and stored to one");
    return Layout::holds(i) && at.column < int(t.get_extent(0)) && at.row < int(t.get_extent(1));
  }
  template <class Tensor> static OST_FN auto __address(const Tensor &t, __ost::matrix_place at) {
    return t.__data + at.column * t.__strides[0] + at.row * t.__strides[1];
  }
};

}  // namespace metal
