// What generated entry points need on every target: constexpr helpers, and the positions of a thread. A target's Dispatch
// has grid, group_size and groups.
#pragma once

namespace __ost {

template <uint32_t N> constexpr uint32_t constant = N;

// In checked builds threadgroup variables lie apart, and the runtime knows where.
#ifdef __OST_CHECKED
constexpr uint32_t red_zone = 64;
#define __OST_STORED(name) __ost_check_stored(&name, sizeof(name), #name);
#else
constexpr uint32_t red_zone = 0;
#define __OST_STORED(name)
#endif

OST_FN constexpr uint32_t aligned(uint32_t at, uint32_t first, uint32_t second) {
  const uint32_t to = first > second ? first : second;
  return (at + to - 1) / to * to;
}

template <class T> struct SizeOf { static constexpr uint32_t size = sizeof(T), alignment = alignof(T); };
template <> struct SizeOf<void> { static constexpr uint32_t size = 0, alignment = 1; };
template <> struct SizeOf<const void> { static constexpr uint32_t size = 0, alignment = 1; };
template <> struct SizeOf<volatile void> { static constexpr uint32_t size = 0, alignment = 1; };

// One thread's positions; everything is inlined, so what a kernel does not ask for costs nothing.
struct Thread {
  const Dispatch *d;
  const uint32_t *group_position, *group_size;
  uint32_t grid[3], local[3], index;

  template <class T> struct As {
    static OST_FN T of(uint32_t x, uint32_t, uint32_t) { return T(x); }
  };
  template <class S> struct As<metal::vec<S, 2>> {
    static OST_FN metal::vec<S, 2> of(uint32_t x, uint32_t y, uint32_t) { return metal::vec<S, 2>(S(x), S(y)); }
  };
  template <class S> struct As<metal::vec<S, 3>> {
    static OST_FN metal::vec<S, 3> of(uint32_t x, uint32_t y, uint32_t z) { return metal::vec<S, 3>(S(x), S(y), S(z)); }
  };
  template <class T> struct As<const T> : As<T> {};  // `const uint2 i`: a specialisation is for its type alone
  template <class T> static OST_FN T as(const uint32_t *v) { return As<T>::of(v[0], v[1], v[2]); }

  OST_FN uint32_t count() const { return group_size[0] * group_size[1] * group_size[2]; }
  OST_FN uint32_t nominal() const { return d->group_size[0] * d->group_size[1] * d->group_size[2]; }

#define __OST_POSITION(name, expression) \
  template <class T> OST_FN T name() const { return as<T>(expression); }
#define __OST_LINEAR(name, expression) \
  template <class T> OST_FN T name() const { return As<T>::of(expression, 0, 0); }

  __OST_POSITION(thread_position_in_grid, grid)
  __OST_POSITION(thread_position_in_threadgroup, local)
  __OST_POSITION(threadgroup_position_in_grid, group_position)
  __OST_POSITION(threads_per_threadgroup, group_size)
  __OST_POSITION(dispatch_threads_per_threadgroup, d->group_size)
  __OST_POSITION(threads_per_grid, d->grid)
  __OST_POSITION(grid_size, d->grid)
  __OST_POSITION(threadgroups_per_grid, d->groups)
  template <class T> OST_FN T grid_origin() const { return As<T>::of(0, 0, 0); }

  __OST_LINEAR(thread_index_in_threadgroup, index)
  __OST_LINEAR(thread_index_in_simdgroup, index & 31)
  __OST_LINEAR(simdgroup_index_in_threadgroup, index >> 5)
  __OST_LINEAR(simdgroups_per_threadgroup, (count() + 31) / 32)
  __OST_LINEAR(dispatch_simdgroups_per_threadgroup, (nominal() + 31) / 32)
  __OST_LINEAR(threads_per_simdgroup, 32)
  __OST_LINEAR(thread_execution_width, 32)
  __OST_LINEAR(thread_index_in_quadgroup, index & 3)
  __OST_LINEAR(quadgroup_index_in_threadgroup, index >> 2)
  __OST_LINEAR(quadgroups_per_threadgroup, (count() + 3) / 4)
  __OST_LINEAR(dispatch_quadgroups_per_threadgroup, (nominal() + 3) / 4)
#undef __OST_POSITION
#undef __OST_LINEAR
};

}  // namespace __ost
