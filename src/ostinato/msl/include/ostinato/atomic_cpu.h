// Atomic memory on the CPU, over the compiler's atomic builtins.
#pragma once

namespace __ost {

// Floating-point atomics work on the bits: a NaN compares equal to itself, as in C++.
template <class T> OST_FN volatile word_t<T> *bits_at(volatile metal::atomic<T> *p) {
  return reinterpret_cast<volatile word_t<T> *>(&p->__value);
}
template <class T> OST_FN T atomic_read(const volatile metal::atomic<T> *p, metal::memory_order order) {
  const volatile word_t<T> *bits = reinterpret_cast<const volatile word_t<T> *>(&p->__value);
  return bits_as<T>(order == metal::memory_order_relaxed ? __atomic_load_n(bits, __ATOMIC_RELAXED)
                                                         : __atomic_load_n(bits, __ATOMIC_SEQ_CST));
}
template <class T> OST_FN void atomic_write(volatile metal::atomic<T> *p, T value, metal::memory_order order) {
  if (order == metal::memory_order_relaxed) __atomic_store_n(bits_at(p), bits_as<word_t<T>>(value), __ATOMIC_RELAXED);
  else __atomic_store_n(bits_at(p), bits_as<word_t<T>>(value), __ATOMIC_SEQ_CST);
}
template <class T> OST_FN T atomic_swap(volatile metal::atomic<T> *p, T value, metal::memory_order order) {
  const word_t<T> bits = bits_as<word_t<T>>(value);
  return bits_as<T>(order == metal::memory_order_relaxed ? __atomic_exchange_n(bits_at(p), bits, __ATOMIC_RELAXED)
                                                         : __atomic_exchange_n(bits_at(p), bits, __ATOMIC_SEQ_CST));
}
template <class T>
OST_FN bool atomic_try(volatile metal::atomic<T> *p, T &expected, T desired, metal::memory_order order) {
  word_t<T> old = bits_as<word_t<T>>(expected);
  const word_t<T> bits = bits_as<word_t<T>>(desired);
  bool swapped = order == metal::memory_order_relaxed
                     ? __atomic_compare_exchange_n(bits_at(p), &old, bits, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)
                     : __atomic_compare_exchange_n(bits_at(p), &old, bits, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
  expected = bits_as<T>(old);
  return swapped;
}
template <class Op, class T>
OST_FN T atomic_modify(volatile metal::atomic<T> *p, T operand, metal::memory_order order) {
  T old = atomic_read(p, metal::memory_order_relaxed);
  while (!atomic_try(p, old, T(Op::of(old, operand)), order)) {}
  return old;
}

template <class Op, class T>
OST_FN T atomic_fetch(Op, volatile metal::atomic<T> *p, T operand, metal::memory_order order) {
  return atomic_modify<Op>(p, operand, order);
}
#define OST_ATOMIC_NATIVE(name)                                                                                  \
  template <class T>                                                                                             \
  OST_FN T atomic_fetch(fn_##name, volatile metal::atomic<T> *p, T operand, metal::memory_order order) {         \
    if constexpr (metal::is_floating_point_v<T>)                                                                 \
      return atomic_modify<fn_##name>(p, operand, order);                                                        \
    else                                                                                                         \
      return T(order == metal::memory_order_relaxed                                                              \
                   ? __atomic_fetch_##name(bits_at(p), word_t<T>(operand), __ATOMIC_RELAXED)                     \
                   : __atomic_fetch_##name(bits_at(p), word_t<T>(operand), __ATOMIC_SEQ_CST));                   \
  }
OST_ATOMIC_NATIVE(add)
OST_ATOMIC_NATIVE(sub)
OST_ATOMIC_NATIVE(and)
OST_ATOMIC_NATIVE(or)
OST_ATOMIC_NATIVE(xor)
#undef OST_ATOMIC_NATIVE

}  // namespace __ost
