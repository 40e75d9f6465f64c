// How lanes exchange values on CUDA: shuffles among the lanes of a Site. Where all 32 take part, reductions and prefixes
// take a logarithmic number of steps; otherwise (a last, partial warp; lanes that went another way) every lane is asked
// in turn, because a lane that is absent cannot pass on what it would have gathered.
#pragma once

namespace __ost {

constexpr uint32_t all_lanes = 0xffffffffu;

// A value moved between lanes by words: `move` does it with one.
template <class T, class Move> OST_FN T by_words(T value, Move move) {
  constexpr int words = (sizeof(T) + 3) / 4;
  uint32_t word[words] = {};
  ::memcpy(word, &value, sizeof(T));
  for (int i = 0; i < words; i++) word[i] = move(word[i]);
  T result;
  ::memcpy(&result, word, sizeof(T));
  return result;
}
// The value that lane `from` holds, which must be one of `lanes`.
template <class T> OST_FN T shuffled(uint32_t lanes, T value, uint32_t from) {
  return by_words(value, [=](uint32_t word) { return ::__shfl_sync(lanes, word, int(hardware_lane(from))); });
}
// Where all lanes take part: the value of the lane whose number differs in `bits`, or that is `by` lower.
template <class T> OST_FN T exchanged(T value, uint32_t bits) {
  return by_words(value, [=](uint32_t word) { return ::__shfl_xor_sync(all_lanes, word, int(hardware_lane(bits))); });
}
template <class T> OST_FN T from_below(T value, uint32_t by) {
#ifdef __OST_MATRICES
  return shuffled(all_lanes, value, lane_id() >= by ? lane_id() - by : lane_id());
#else
  return by_words(value, [=](uint32_t word) { return ::__shfl_up_sync(all_lanes, word, by); });
#endif
}

OST_FN bool is_in(uint32_t lanes, uint32_t lane) { return (lanes >> hardware_lane(lane & 31u)) & 1u; }
template <int W> OST_FN uint32_t first_of_group() { return lane_id() & ~uint32_t(W - 1); }

// The type whose values __reduce_*_sync takes in T's stead; void when there is none.
template <class T> struct reduced_in {
  typedef metal::conditional_t<(scalar_kind<T>::value >= 1 && scalar_kind<T>::value <= 3 && sizeof(T) <= 4),
                               metal::conditional_t<metal::is_signed_v<T>, int, unsigned>, void>
      type;
};
#if __CUDA_ARCH__ >= 800
OST_FN int reduce_lanes(reduce_sum, uint32_t lanes, int x) { return ::__reduce_add_sync(lanes, x); }
OST_FN unsigned reduce_lanes(reduce_sum, uint32_t lanes, unsigned x) { return ::__reduce_add_sync(lanes, x); }
OST_FN int reduce_lanes(reduce_min, uint32_t lanes, int x) { return ::__reduce_min_sync(lanes, x); }
OST_FN unsigned reduce_lanes(reduce_min, uint32_t lanes, unsigned x) { return ::__reduce_min_sync(lanes, x); }
OST_FN int reduce_lanes(reduce_max, uint32_t lanes, int x) { return ::__reduce_max_sync(lanes, x); }
OST_FN unsigned reduce_lanes(reduce_max, uint32_t lanes, unsigned x) { return ::__reduce_max_sync(lanes, x); }
template <class T> OST_FN T reduce_lanes(reduce_and, uint32_t lanes, T x) {
  return T(::__reduce_and_sync(lanes, unsigned(x)));
}
template <class T> OST_FN T reduce_lanes(reduce_or, uint32_t lanes, T x) {
  return T(::__reduce_or_sync(lanes, unsigned(x)));
}
template <class T> OST_FN T reduce_lanes(reduce_xor, uint32_t lanes, T x) {
  return T(::__reduce_xor_sync(lanes, unsigned(x)));
}
template <int W, class Op, class T> constexpr bool reduces_natively =
    W == 32 && !__is_same(Op, reduce_product) && !__is_same(typename reduced_in<T>::type, void);
#else
template <int W, class Op, class T> constexpr bool reduces_natively = false;
#endif

// Each lane of a group asked in turn: `use` says whether this lane takes a lane's value in.
template <int W, class Op, class T, class Use>
OST_FN T gathered(uint32_t lanes, T value, T start, bool started, Use use) {
  const uint32_t base = first_of_group<W>();
  T sum = start;
#pragma unroll 1
  for (uint32_t i = 0; i < W; i++) {
    const bool there = is_in(lanes, base + i);
    const T other = shuffled(lanes, value, there ? base + i : lane_id());
    if (there && use(base + i)) {
      sum = started ? Op::of(sum, other) : other;
      started = true;
    }
  }
  return sum;
}

template <int W, class Op, class T> OST_FN T reduce_scalar(Site site, T value) {
  if constexpr (reduces_natively<W, Op, T>) {
    return T(reduce_lanes(Op(), site.lanes, typename reduced_in<T>::type(value)));
  } else {
    typedef accumulator_t<T> Acc;
    Acc sum = Acc(value);
    if (site.lanes == all_lanes) {
#pragma unroll
      for (uint32_t width = W / 2; width > 0; width /= 2) sum = Op::of(sum, exchanged(sum, width));
    } else {
      sum = gathered<W, Op>(site.lanes, sum, sum, false, [](uint32_t) { return true; });
    }
    return T(sum);
  }
}

template <int W, class Op, bool Inclusive, class T> OST_FN T prefix_scalar(Site site, T value) {
  typedef accumulator_t<T> Acc;
  const uint32_t lane = lane_id(), own = lane & uint32_t(W - 1);
  Acc sum = Acc(value);
  if (site.lanes == all_lanes) {
#pragma unroll
    for (uint32_t width = 1; width < W; width *= 2) {
      const Acc below = from_below(sum, width);
      sum = own >= width ? Op::of(below, sum) : sum;
    }
    if (!Inclusive) {
      const Acc below = from_below(sum, 1);
      sum = own ? below : Acc(Op::identity);
    }
  } else {
    sum = gathered<W, Op>(site.lanes, sum, Acc(Op::identity), true,
                          [lane](uint32_t other) { return Inclusive ? other <= lane : other < lane; });
  }
  return T(sum);
}

// Vectors component by component.
template <class V, class F> OST_FN V each_component(V v, F f) {
  if constexpr (arg<V>::n == 1) {
    return f(v);
  } else {
    for (int i = 0; i < arg<V>::n; i++) v[i] = f(v[i]);
    return v;
  }
}
template <int W, class Op, class V> OST_FN V reduce(Site site, V v) {
  return each_component(v, [site](auto x) { return reduce_scalar<W, Op>(site, x); });
}
template <int W, class Op, bool Inclusive, class V> OST_FN V prefix(Site site, V v) {
  return each_component(v, [site](auto x) { return prefix_scalar<W, Op, Inclusive>(site, x); });
}

// Each lane names the lane it reads; one outside its group, or absent, leaves it its own value.
template <int W, class V> OST_FN V read_lane(Site site, V v, uint32_t lane) {
  const uint32_t from = lane < uint32_t(W) ? first_of_group<W>() + lane : lane_id();
  return shuffled(site.lanes, v, is_in(site.lanes, from) ? from : lane_id());
}
// The value of the first active lane of the group.
template <int W, class V> OST_FN V read_first(Site site, V v) {
  const uint32_t base = first_of_group<W>(), live = (metal_mask(site.lanes) >> base) & lanes_mask<W>;
  return shuffled(site.lanes, v, base + uint32_t(::__ffs(int(live))) - 1u);
}

// Values move by delta; where they run out, those of `filling` come in from the other end of each group of `modulo`
// lanes.
template <int W, bool Up, class V> OST_FN V shift_in(Site site, V v, V filling, uint32_t delta, uint32_t modulo) {
  const uint32_t lane = lane_id(), width = modulo ? modulo : 1, by = delta % width;
  const uint32_t base = (lane & ~uint32_t(W - 1)) + (lane % W) / width * width, at = lane - base;
  const uint32_t from = base + (at + (Up ? width - by : by)) % width;
  const bool fill = delta >= width || (Up ? at < by : at + by >= width);
  const uint32_t source = from < 32 && is_in(site.lanes, from) ? from : lane;
  const V moved = shuffled(site.lanes, v, source), filled = shuffled(site.lanes, filling, source);
  return fill ? filled : moved;
}

template <int W> OST_FN vote_of<W> ballot(Site site, bool value) {
  const uint32_t votes = metal_mask(::__ballot_sync(site.lanes, value)), voters = metal_mask(site.lanes);
  const uint32_t shift = W == 32 ? 0 : first_of_group<W>();
  return vote_of<W>((votes >> shift) & lanes_mask<W>, (voters >> shift) & lanes_mask<W>);
}

}  // namespace __ost
