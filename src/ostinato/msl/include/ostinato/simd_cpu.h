// <metal_simdgroup> and <metal_quadgroup> on the CPU. Lanes of a simdgroup meet in __ost::exchange, where one of them
// computes for all; only lanes that meet count as active. Every function takes its call site first. T is any scalar
// or vector type, bool and 64-bit ones included, which is more than Metal allows. Sums of half and bfloat are kept in
// float.
#pragma once

namespace __ost {

// A scalar or vector as the plain bytes an exchange moves.
template <class V> struct wire {
  typedef typename arg<V>::elem elem;
  static constexpr int n = arg<V>::n;
  elem at[n == 3 ? 4 : n];
  static OST_FN wire of(V v) {
    wire w;
    if constexpr (n == 1) {
      w.at[0] = v;
    } else {
      for (int i = 0; i < n; i++) w.at[i] = v[i];
      if constexpr (n == 3) w.at[3] = v[2];
    }
    return w;
  }
  OST_FN V value() const {
    if constexpr (n == 1) {
      return at[0];
    } else {
      V v;
      for (int i = 0; i < n; i++) v[i] = at[i];
      return v;
    }
  }
};
template <class V> struct addressed { wire<V> data; uint32_t lane; };
template <class V> struct filled { wire<V> data, filling; uint32_t delta, modulo; };

template <int W> constexpr uint32_t lanes_mask = W == 32 ? 0xffffffffu : (1u << (W & 31)) - 1;

// What a reduction accumulates in.
template <class T> struct accumulator { typedef T type; };
template <> struct accumulator<half> { typedef float type; };
template <> struct accumulator<bfloat> { typedef float type; };
template <class T> using accumulator_t = typename accumulator<T>::type;

struct reduce_sum { template <class T> static OST_FN T of(T x, T y) { return T(x + y); } static constexpr int identity = 0; };
struct reduce_product { template <class T> static OST_FN T of(T x, T y) { return T(x * y); } static constexpr int identity = 1; };
struct reduce_xor {
  template <class T> static OST_FN T of(T x, T y) { return T(x ^ y); }
  // not in MSL, yet named by shaders that define every function for every type: on the bits
  static OST_FN float of(float x, float y) { return bits_as<float>(bits_as<uint32_t>(x) ^ bits_as<uint32_t>(y)); }
  static constexpr int identity = 0;
};
// Idempotent ones need no identity: absent lanes stand in with the value of a present one.
struct reduce_min { template <class T> static OST_FN T of(T x, T y) { return fn_min::of(x, y); } static constexpr int identity = -1; };
struct reduce_max { template <class T> static OST_FN T of(T x, T y) { return fn_max::of(x, y); } static constexpr int identity = -1; };
struct reduce_and { template <class T> static OST_FN T of(T x, T y) { return T(x & y); } static constexpr int identity = -1; };
struct reduce_or { template <class T> static OST_FN T of(T x, T y) { return T(x | y); } static constexpr int identity = -1; };

// Over groups of W lanes, by halves.
template <int W, class Op, class V> OST_FN V reduce(Site site, V v) {
  typedef wire<V> X;
  typedef accumulator_t<typename X::elem> Acc;
  return exchange<X, X>(site, X::of(v), [](const X *in, X *out, uint32_t active) {
    for (int c = 0; c < X::n; c++) {
      Acc part[32];
      for (int i = 0; i < 32; i++) part[i] = Acc(in[i].at[c]);
      if (active != 0xffffffffu) {
        for (int base = 0; base < 32; base += W) {
          uint32_t live = (active >> base) & lanes_mask<W>;
          Acc absent = Op::identity >= 0 ? Acc(Op::identity) : part[base + (live ? __builtin_ctz(live) : 0)];
          for (int i = 0; i < W; i++) part[base + i] = (live >> i) & 1u ? part[base + i] : absent;
        }
      }
      for (int width = 16; width > 0; width >>= 1) {
        if (width >= W) continue;
        for (int base = 0; base < 32; base += W)
          for (int i = 0; i < width; i++) part[base + i] = Op::of(part[base + i], part[base + i + width]);
      }
      for (int i = 0; i < 32; i++) out[i].at[c] = typename X::elem(part[i & ~(W - 1)]);
    }
  }).value();
}

template <int W, class Op, bool Inclusive, class V> OST_FN V prefix(Site site, V v) {
  typedef wire<V> X;
  typedef accumulator_t<typename X::elem> Acc;
  return exchange<X, X>(site, X::of(v), [](const X *in, X *out, uint32_t active) {
    for (int c = 0; c < X::n; c++) {
      Acc sum = Acc(Op::identity);
      for (int i = 0; i < 32; i++) {
        if (i % W == 0) sum = Acc(Op::identity);
        Acc next = (active >> i) & 1u ? Op::of(sum, Acc(in[i].at[c])) : sum;
        out[i].at[c] = typename X::elem(Inclusive ? next : sum);
        sum = next;
      }
    }
  }).value();
}

// Each lane names the lane it reads; one outside its group, or absent, leaves it its own value.
template <int W, class V> OST_FN V read_lane(Site site, V v, uint32_t lane) {
  typedef addressed<V> In;
  typedef wire<V> X;
  return exchange<In, X>(site, In{X::of(v), lane}, [](const In *in, X *out, uint32_t active) {
    for (uint32_t i = 0; i < 32; i++) {
      uint32_t from = in[i].lane < uint32_t(W) ? (i & ~uint32_t(W - 1)) + in[i].lane : i;
      from = (active >> (from & 31u)) & 1u ? from & 31u : i;
      out[i] = in[from].data;
    }
  }).value();
}

// Values move by delta; where they run out, those of `filling` come in from the other end of each group of `modulo`
// lanes.
template <int W, bool Up, class V> OST_FN V shift_in(Site site, V v, V filling, uint32_t delta, uint32_t modulo) {
  typedef filled<V> In;
  typedef wire<V> X;
  return exchange<In, X>(site, In{X::of(v), X::of(filling), delta, modulo}, [](const In *in, X *out, uint32_t active) {
    for (uint32_t i = 0; i < 32; i++) {
      uint32_t width = in[i].modulo ? in[i].modulo : 1, by = in[i].delta % width;
      uint32_t base = (i & ~uint32_t(W - 1)) + (i % W) / width * width, at = i - base;
      uint32_t from = (at + (Up ? width - by : by)) % width;
      bool fill = in[i].delta >= width || (Up ? at < by : at + by >= width);
      uint32_t lane = base + from < 32 && (active >> (base + from)) & 1u ? base + from : i;
      out[i] = fill ? in[lane].filling : in[lane].data;
    }
  }).value();
}

// `own`: the lane's place in its group.
template <int W> OST_FN uint32_t own() { return lane_id() & uint32_t(W - 1); }

template <int W> struct vote_of {
  typedef uint64_t vote_t;
  uint32_t votes = 0, voters = 0;
  vote_of() = default;
  OST_FN explicit constexpr vote_of(vote_t bits) : votes(uint32_t(bits)), voters(lanes_mask<W>) {}
  OST_FN constexpr vote_of(uint32_t votes_, uint32_t voters_) : votes(votes_), voters(voters_) {}
  template <class I, if_integer<I> = 0> OST_FN explicit constexpr operator I() const { return I(votes); }
  OST_FN constexpr bool all() const { return votes == voters; }
  OST_FN constexpr bool any() const { return votes != 0; }
  OST_FN constexpr bool none() const { return votes == 0; }
};
struct ballot_result { uint32_t votes, voters; };
template <int W> OST_FN vote_of<W> ballot(Site site, bool value) {
  ballot_result r = exchange<uint8_t, ballot_result>(site, uint8_t(value), [](const uint8_t *in, ballot_result *out, uint32_t active) {
    uint32_t bits = 0;
    for (int i = 0; i < 32; i++) bits |= uint32_t(in[i] != 0) << i;
    for (int i = 0; i < 32; i++) out[i] = ballot_result{bits & active, active};
  });
  uint32_t shift = W == 32 ? 0 : lane_id() & ~uint32_t(W - 1);
  return vote_of<W>((r.votes >> shift) & lanes_mask<W>, (r.voters >> shift) & lanes_mask<W>);
}

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
  OST_T g##_broadcast_first(OST_SITE, A x) {                                                                           \
    typedef __ost::wire<__ost::common_t<A>> X;                                                                         \
    return __ost::exchange<X, X>(site, X::of(OST_V(x)), [](const X *in, X *out, uint32_t active) {                     \
      for (int i = 0; i < 32; i++) {                                                                                   \
        uint32_t live = (active >> (i & ~(W - 1))) & __ost::lanes_mask<W>;                                             \
        out[i] = in[(i & ~(W - 1)) + (live ? __builtin_ctz(live) : 0)];                                                \
      }                                                                                                                \
    }).value();                                                                                                        \
  }                                                                                                                    \
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
