// How lanes exchange values where a simdgroup runs as a vector; results are those of simd_cpu.h, in the same order of
// operations.
#pragma once

namespace __ost {

template <class T> constexpr bool wide = sizeof(T) == 8;
template <class T> using lane_bits = metal::conditional_t<wide<T>, uint64_t, uint32_t>;

template <class T> OST_FN lane_bits<T> to_bits(T value) {
  if constexpr (sizeof(T) == 8) return bits_as<uint64_t>(value);
  else if constexpr (sizeof(T) == 4) return bits_as<uint32_t>(value);
  else if constexpr (__is_same(T, bool)) return uint32_t(value);
  else if constexpr (sizeof(T) == 2) return bits_as<uint16_t>(value);
  else return bits_as<uint8_t>(value);
}
template <class T> OST_FN T from_bits(lane_bits<T> bits) {
  if constexpr (sizeof(T) == 8 || sizeof(T) == 4) return bits_as<T>(bits);
  else if constexpr (__is_same(T, bool)) return (bits & 1u) != 0;
  else if constexpr (sizeof(T) == 2) return bits_as<T>(uint16_t(bits));
  else return bits_as<T>(uint8_t(bits));
}

#define OST_LANES(name)                                                        \
  template <class T> OST_FN T name(T value, uint32_t from) {                   \
    if constexpr (wide<T>) return from_bits<T>(__ost_##name##64(to_bits(value), from)); \
    else return from_bits<T>(__ost_##name##32(to_bits(value), from));          \
  }
OST_LANES(shuffle)
OST_LANES(pick)
OST_LANES(filled)
#undef OST_LANES
template <class T> OST_FN T fill(T value, T absent) {
  if constexpr (wide<T>) return from_bits<T>(__ost_fill64(to_bits(value), to_bits(absent)));
  else return from_bits<T>(__ost_fill32(to_bits(value), to_bits(absent)));
}

// Of(component) for each component of a scalar or vector.
template <class V, class Of> OST_FN V each_component(V v, Of of) {
  if constexpr (arg<V>::n == 1) {
    return of(v, 0);
  } else {
    V result;
    for (int c = 0; c < arg<V>::n; c++) result[c] = of(v[c], c);
    return result;
  }
}
template <class V> OST_FN auto component(V v, int c) {
  if constexpr (arg<V>::n == 1) return v;
  else return v[c];
}

OST_FN uint32_t active_lanes() { return __ost_ballot(true); }
template <int W> OST_FN uint32_t group_base() { return lane_id() & ~uint32_t(W - 1); }
// The first active lane of one's group.
template <int W> OST_FN uint32_t first_lane() {
  const uint32_t active = active_lanes();
  if constexpr (W == 32) return uint32_t(__builtin_ctz(active));
  else return group_base<W>() + uint32_t(__builtin_ctz(((active >> group_base<W>()) & lanes_mask<W>) | 1u << W));
}
template <int W, class T> OST_FN T first_value(T value) {
  if constexpr (W == 32) return pick(value, first_lane<W>());
  else return shuffle(value, first_lane<W>() & 31u);
}

// Over groups of W lanes, by halves.
template <int W, class Op, class V> OST_FN V reduce(Site, V v) {
  typedef accumulator_t<typename arg<V>::elem> Acc;
  return each_component(v, [](auto x, int) {
    typedef decltype(x) T;
    Acc part = Acc(x);
    if constexpr (Op::identity >= 0) part = fill(part, Acc(Op::identity));
    else part = fill(part, first_value<W>(part));
    for (int width = W / 2; width > 0; width >>= 1)
      part = Op::of(part, filled(part, (lane_id() + uint32_t(width)) & 31u));
    if constexpr (W == 32) return T(pick(filled(part, 0), 0));
    else return T(filled(part, group_base<W>()));
  });
}

template <int W, class Op, bool Inclusive, class V> OST_FN V prefix(Site, V v) {
  typedef accumulator_t<typename arg<V>::elem> Acc;
  return each_component(v, [](auto x, int) {
    typedef decltype(x) T;
    const uint32_t active = active_lanes();
    const Acc own = Acc(x);
    Acc sum = Acc(Op::identity), result = sum;
#pragma unroll
    for (uint32_t i = 0; i < 32; i++) {
      if (i % W == 0) sum = Acc(Op::identity);
      const Acc other = filled(own, i);
      const Acc next = (active >> i) & 1u ? Op::of(sum, other) : sum;
      result = lane_id() == i ? (Inclusive ? next : sum) : result;
      sum = next;
    }
    return T(result);
  });
}

// Each lane names the lane it reads; one outside its group, or absent, leaves it its own value.
template <int W, class V> OST_FN V read_lane(Site, V v, uint32_t lane) {
  const uint32_t from = lane < uint32_t(W) ? group_base<W>() + lane : lane_id();
  return each_component(v, [=](auto x, int) { return shuffle(x, from); });
}

// Values move by delta; where they run out, those of `filling` come in from the other end of each group of `modulo`
// lanes.
template <int W, bool Up, class V> OST_FN V shift_in(Site, V v, V filling, uint32_t delta, uint32_t modulo) {
  const uint32_t i = lane_id(), width = modulo ? modulo : 1, by = delta % width;
  const uint32_t base = group_base<W>() + (i % W) / width * width, at = i - base;
  const uint32_t from = (at + (Up ? width - by : by)) % width;
  const bool fills = delta >= width || (Up ? at < by : at + by >= width);
  const uint32_t lane = base + from < 32 ? base + from : i;
  return each_component(v, [=](auto x, int c) {
    const auto data = shuffle(x, lane), from_filling = shuffle(component(filling, c), lane);
    return fills ? from_filling : data;
  });
}

// The value of the first active lane of the group.
template <int W, class V> OST_FN V read_first(Site, V v) {
  return each_component(v, [](auto x, int) { return first_value<W>(x); });
}

template <int W> OST_FN vote_of<W> ballot(Site, bool value) {
  const uint32_t votes = __ost_ballot(value), voters = active_lanes();
  if constexpr (W == 32) return vote_of<W>(votes, voters);
  else {
    const uint32_t shift = group_base<W>();
    return vote_of<W>((votes >> shift) & lanes_mask<W>, (voters >> shift) & lanes_mask<W>);
  }
}

}  // namespace __ost
