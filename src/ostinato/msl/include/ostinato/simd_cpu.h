// How lanes exchange values on the CPU: those of a simdgroup meet in __ost::exchange, where one of them computes for all.
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
template <class V> struct addressed {
  wire<V> data;
  uint32_t lane;
};
template <class V> struct filled {
  wire<V> data, filling;
  uint32_t delta, modulo;
};

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

#ifdef __OST_CHECKED
extern "C" void __ost_check_lane_read(uint32_t lane);
#endif

// Each lane names the lane it reads; one outside its group, or absent, leaves it its own value.
template <int W, class V> OST_FN V read_lane(Site site, V v, uint32_t lane) {
  typedef addressed<V> In;
  typedef wire<V> X;
  const V result = exchange<In, X>(site, In{X::of(v), lane}, [](const In *in, X *out, uint32_t active) {
    for (uint32_t i = 0; i < 32; i++) {
      uint32_t from = in[i].lane < uint32_t(W) ? (i & ~uint32_t(W - 1)) + in[i].lane : i;
      from = (active >> (from & 31u)) & 1u ? from & 31u : i;
      out[i] = in[from].data;
    }
  }).value();
#ifdef __OST_CHECKED
  if (lane < uint32_t(W)) __ost_check_lane_read((lane_id() & ~uint32_t(W - 1)) + lane);
#endif
  return result;
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

// The value of the first active lane of the group.
template <int W, class V> OST_FN V read_first(Site site, V v) {
  typedef wire<V> X;
  return exchange<X, X>(site, X::of(v), [](const X *in, X *out, uint32_t active) {
    for (int i = 0; i < 32; i++) {
      uint32_t live = (active >> (i & ~(W - 1))) & lanes_mask<W>;
      out[i] = in[(i & ~(W - 1)) + (live ? __builtin_ctz(live) : 0)];
    }
  }).value();
}

struct ballot_result { uint32_t votes, voters; };
template <int W> OST_FN vote_of<W> ballot(Site site, bool value) {
  ballot_result r = exchange<uint8_t, ballot_result>(site, uint8_t(value),
                                                     [](const uint8_t *in, ballot_result *out, uint32_t active) {
    uint32_t bits = 0;
    for (int i = 0; i < 32; i++) bits |= uint32_t(in[i] != 0) << i;
    for (int i = 0; i < 32; i++) out[i] = ballot_result{bits & active, active};
  });
  uint32_t shift = W == 32 ? 0 : lane_id() & ~uint32_t(W - 1);
  return vote_of<W>((r.votes >> shift) & lanes_mask<W>, (r.voters >> shift) & lanes_mask<W>);
}

}  // namespace __ost
