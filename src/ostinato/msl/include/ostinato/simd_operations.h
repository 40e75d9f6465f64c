// What the simdgroup and quadgroup functions of every target are made of: the operations of reductions, and votes.
#pragma once

namespace __ost {

template <int W> constexpr uint32_t lanes_mask = W == 32 ? 0xffffffffu : (1u << (W & 31)) - 1;

// What a reduction accumulates in.
template <class T> struct accumulator { typedef T type; };
template <> struct accumulator<half> { typedef float type; };
template <> struct accumulator<bfloat> { typedef float type; };
template <class T> using accumulator_t = typename accumulator<T>::type;

struct reduce_sum {
  template <class T> static OST_FN T of(T x, T y) { return T(x + y); }
  static constexpr int identity = 0;
};
struct reduce_product {
  template <class T> static OST_FN T of(T x, T y) { return T(x * y); }
  static constexpr int identity = 1;
};
struct reduce_xor {
  template <class T> static OST_FN T of(T x, T y) { return T(x ^ y); }
  // not in MSL, yet named by shaders that define every function for every type: on the bits
  static OST_FN float of(float x, float y) { return bits_as<float>(bits_as<uint32_t>(x) ^ bits_as<uint32_t>(y)); }
  static constexpr int identity = 0;
};
// Idempotent ones need no identity: absent lanes stand in with the value of a present one.
struct reduce_min {
  template <class T> static OST_FN T of(T x, T y) { return fn_min::of(x, y); }
  static constexpr int identity = -1;
};
struct reduce_max {
  template <class T> static OST_FN T of(T x, T y) { return fn_max::of(x, y); }
  static constexpr int identity = -1;
};
struct reduce_and {
  template <class T> static OST_FN T of(T x, T y) { return T(x & y); }
  static constexpr int identity = -1;
};
struct reduce_or {
  template <class T> static OST_FN T of(T x, T y) { return T(x | y); }
  static constexpr int identity = -1;
};

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

}  // namespace __ost
