// <metal_simdgroup> and <metal_quadgroup>: the public names. Every function takes its call site first, by which a target
// knows the lanes that meet; only those count as active. T is any scalar or vector type, bool and 64-bit ones included,
// which is more than Metal allows. Sums of half and bfloat are kept in float. How lanes exchange values is in
// simd_cpu.h and simd_cuda.h.
#pragma once

namespace __ost {

// `own`: the lane's place in its group.
template <int W> OST_FN uint32_t own() { return lane_id() & uint32_t(W - 1); }

}  // namespace __ost

namespace metal {

typedef __ost::vote_of<32> simd_vote;
typedef __ost::vote_of<4> quad_vote;

#define OST_T template <class A> OST_FN __ost::common_t<A>
#define OST_V static_cast<__ost::common_t<A>>
#define OST_SITE __ost::Site site

#define OST_GROUP_FUNCTIONS(g, W)                                                                                      \
  OST_T g##_sum(OST_SITE, A x) { return __ost::reduce<W, __ost::reduce_sum>(site, OST_V(x)); }                         \
  OST_T g##_product(OST_SITE, A x) { return __ost::reduce<W, __ost::reduce_product>(site, OST_V(x)); }                 \
  OST_T g##_min(OST_SITE, A x) { return __ost::reduce<W, __ost::reduce_min>(site, OST_V(x)); }                         \
  OST_T g##_max(OST_SITE, A x) { return __ost::reduce<W, __ost::reduce_max>(site, OST_V(x)); }                         \
  OST_T g##_and(OST_SITE, A x) { return __ost::reduce<W, __ost::reduce_and>(site, OST_V(x)); }                         \
  OST_T g##_or(OST_SITE, A x) { return __ost::reduce<W, __ost::reduce_or>(site, OST_V(x)); }                           \
  OST_T g##_xor(OST_SITE, A x) { return __ost::reduce<W, __ost::reduce_xor>(site, OST_V(x)); }                         \
  OST_T g##_prefix_inclusive_sum(OST_SITE, A x) { return __ost::prefix<W, __ost::reduce_sum, true>(site, OST_V(x)); }  \
  OST_T g##_prefix_exclusive_sum(OST_SITE, A x) { return __ost::prefix<W, __ost::reduce_sum, false>(site, OST_V(x)); } \
  OST_T g##_prefix_inclusive_product(OST_SITE, A x) {                                                                  \
    return __ost::prefix<W, __ost::reduce_product, true>(site, OST_V(x));                                              \
  }                                                                                                                    \
  OST_T g##_prefix_exclusive_product(OST_SITE, A x) {                                                                  \
    return __ost::prefix<W, __ost::reduce_product, false>(site, OST_V(x));                                             \
  }                                                                                                                    \
  OST_T g##_shuffle(OST_SITE, A x, ushort lane) { return __ost::read_lane<W>(site, OST_V(x), lane); }                  \
  OST_T g##_broadcast(OST_SITE, A x, ushort lane) { return __ost::read_lane<W>(site, OST_V(x), lane); }                \
  OST_T g##_shuffle_up(OST_SITE, A x, ushort delta) {                                                                  \
    return __ost::read_lane<W>(site, OST_V(x), __ost::own<W>() - uint32_t(delta));                                     \
  }                                                                                                                    \
  OST_T g##_shuffle_down(OST_SITE, A x, ushort delta) {                                                                \
    return __ost::read_lane<W>(site, OST_V(x), __ost::own<W>() + uint32_t(delta));                                     \
  }                                                                                                                    \
  OST_T g##_shuffle_xor(OST_SITE, A x, ushort mask) {                                                                  \
    return __ost::read_lane<W>(site, OST_V(x), __ost::own<W>() ^ uint32_t(mask));                                      \
  }                                                                                                                    \
  OST_T g##_shuffle_rotate_up(OST_SITE, A x, ushort delta) {                                                           \
    return __ost::read_lane<W>(site, OST_V(x), (__ost::own<W>() - uint32_t(delta)) & uint32_t(W - 1));                 \
  }                                                                                                                    \
  OST_T g##_shuffle_rotate_down(OST_SITE, A x, ushort delta) {                                                         \
    return __ost::read_lane<W>(site, OST_V(x), (__ost::own<W>() + uint32_t(delta)) & uint32_t(W - 1));                 \
  }                                                                                                                    \
  OST_T g##_shuffle_and_fill_up(OST_SITE, A x, __ost::exactly<A> filling, ushort delta, ushort modulo = W) {           \
    return __ost::shift_in<W, true>(site, OST_V(x), OST_V(filling), delta, modulo);                                    \
  }                                                                                                                    \
  OST_T g##_shuffle_and_fill_down(OST_SITE, A x, __ost::exactly<A> filling, ushort delta, ushort modulo = W) {         \
    return __ost::shift_in<W, false>(site, OST_V(x), OST_V(filling), delta, modulo);                                   \
  }                                                                                                                    \
  OST_T g##_broadcast_first(OST_SITE, A x) { return __ost::read_first<W>(site, OST_V(x)); }                            \
  OST_FN g##_vote g##_ballot(OST_SITE, bool x) { return __ost::ballot<W>(site, x); }                                   \
  OST_FN g##_vote g##_active_threads_mask(OST_SITE) { return __ost::ballot<W>(site, true); }                           \
  OST_FN bool g##_all(OST_SITE, bool x) { return __ost::ballot<W>(site, x).all(); }                                    \
  OST_FN bool g##_any(OST_SITE, bool x) { return __ost::ballot<W>(site, x).any(); }                                    \
  OST_FN bool g##_is_first(OST_SITE) {                                                                                 \
    return uint32_t(__builtin_ctz(__ost::ballot<W>(site, true).votes)) == __ost::own<W>();                             \
  }                                                                                                                    \
  OST_FN bool g##_is_helper_thread(OST_SITE) { return false; }
OST_GROUP_FUNCTIONS(simd, 32)
OST_GROUP_FUNCTIONS(quad, 4)
#undef OST_GROUP_FUNCTIONS
#undef OST_SITE
#undef OST_V
#undef OST_T

}  // namespace metal
