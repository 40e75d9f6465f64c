// Atomic memory on CUDA, device-wide, in device and threadgroup memory alike: one instruction where there is one, a loop
// of compare-and-swap where not. An order other than relaxed is a full fence on either side.
#pragma once

namespace __ost {

// A word as CUDA's own functions name it.
template <int Bytes> struct cuda_word { typedef unsigned int type; };
template <> struct cuda_word<8> { typedef unsigned long long type; };
template <class T> using cuda_word_t = typename cuda_word<int(sizeof(T))>::type;

struct Ordered {
  bool full;
  OST_FN explicit Ordered(metal::memory_order order) : full(order != metal::memory_order_relaxed) {
    if (full) ::__threadfence();
  }
  OST_FN ~Ordered() {
    if (full) ::__threadfence();
  }
};

template <class T> OST_FN cuda_word_t<T> *word_at(const volatile metal::atomic<T> *p) {
  return reinterpret_cast<cuda_word_t<T> *>(const_cast<metal::atomic<T> *>(const_cast<const metal::atomic<T> *>(p)));
}
template <class T> constexpr bool whole_word = sizeof(T) == 4 || sizeof(T) == 8;

template <class T> OST_FN T atomic_read(const volatile metal::atomic<T> *p, metal::memory_order order) {
  Ordered ordered(order);
  word_t<T> bits = *reinterpret_cast<const volatile word_t<T> *>(&p->__value);
  return bits_as<T>(bits);
}
template <class T> OST_FN void atomic_write(volatile metal::atomic<T> *p, T value, metal::memory_order order) {
  Ordered ordered(order);
  *reinterpret_cast<volatile word_t<T> *>(&p->__value) = bits_as<word_t<T>>(value);
}
// Compares and swaps the bits; gives back what was there. Small types are part of an aligned word.
template <class T> OST_FN T swap_if(volatile metal::atomic<T> *p, T expected, T desired) {
  if constexpr (whole_word<T>) {
    return bits_as<T>(word_t<T>(::atomicCAS(word_at(p), bits_as<word_t<T>>(expected), bits_as<word_t<T>>(desired))));
  } else {
    const uintptr_t at = reinterpret_cast<uintptr_t>(p);
    unsigned *word = reinterpret_cast<unsigned *>(at & ~uintptr_t(3));
    const uint32_t shift = uint32_t(at & 3) * 8, mask = ((1u << (sizeof(T) * 8)) - 1u) << shift;
    unsigned old = *const_cast<volatile unsigned *>(word);
    for (;;) {
      const word_t<T> mine = word_t<T>((old & mask) >> shift);
      if (mine != bits_as<word_t<T>>(expected)) return bits_as<T>(mine);
      const unsigned found = ::atomicCAS(word, old, (old & ~mask) | uint32_t(bits_as<word_t<T>>(desired)) << shift);
      if (found == old) return expected;
      old = found;
    }
  }
}
template <class T>
OST_FN bool atomic_try(volatile metal::atomic<T> *p, T &expected, T desired, metal::memory_order order) {
  Ordered ordered(order);
  const T old = swap_if(p, expected, desired);
  const bool swapped = bits_as<word_t<T>>(old) == bits_as<word_t<T>>(expected);
  expected = old;
  return swapped;
}
template <class Op, class T> OST_FN T atomic_modify(volatile metal::atomic<T> *p, T operand) {
  T old = atomic_read(p, metal::memory_order_relaxed);
  while (!atomic_try(p, old, T(Op::of(old, operand)), metal::memory_order_relaxed)) {}
  return old;
}
struct fn_second {
  template <class T> static OST_FN T of(T, T y) { return y; }
};
template <class T> OST_FN T atomic_swap(volatile metal::atomic<T> *p, T value, metal::memory_order order) {
  Ordered ordered(order);
  if constexpr (whole_word<T>) {
    return bits_as<T>(word_t<T>(::atomicExch(word_at(p), bits_as<word_t<T>>(value))));
  } else {
    return atomic_modify<fn_second>(p, value);
  }
}

template <class Op, class T>
OST_FN T atomic_fetch(Op, volatile metal::atomic<T> *p, T operand, metal::memory_order order) {
  Ordered ordered(order);
  if constexpr (!whole_word<T>) {
    return atomic_modify<Op>(p, operand);
  } else if constexpr (__is_same(T, float)) {
    float *at = reinterpret_cast<float *>(word_at(p));
    if constexpr (__is_same(Op, fn_add)) return ::atomicAdd(at, operand);
    else if constexpr (__is_same(Op, fn_sub)) return ::atomicAdd(at, -operand);
    else return atomic_modify<Op>(p, operand);
  } else if constexpr (!metal::is_integral_v<T>) {
    return atomic_modify<Op>(p, operand);
  } else {
    typedef cuda_word_t<T> Word;
    Word *at = word_at(p);
    if constexpr (__is_same(Op, fn_add)) return T(::atomicAdd(at, Word(operand)));
    else if constexpr (__is_same(Op, fn_sub)) return T(::atomicAdd(at, Word(0) - Word(operand)));
    else if constexpr (__is_same(Op, fn_and)) return T(::atomicAnd(at, Word(operand)));
    else if constexpr (__is_same(Op, fn_or)) return T(::atomicOr(at, Word(operand)));
    else if constexpr (__is_same(Op, fn_xor)) return T(::atomicXor(at, Word(operand)));
    else {
      typedef metal::conditional_t<sizeof(T) == 4, int, long long> Signed;
      typedef metal::conditional_t<metal::is_signed_v<T>, Signed, Word> Ranked;
      Ranked *ranked = reinterpret_cast<Ranked *>(at);
      if constexpr (__is_same(Op, fn_min)) return T(::atomicMin(ranked, Ranked(operand)));
      else return T(::atomicMax(ranked, Ranked(operand)));
    }
  }
}

}  // namespace __ost
