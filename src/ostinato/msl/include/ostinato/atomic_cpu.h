// <metal_atomic> on the CPU: atomic<T> with the size of T, over the compiler's atomic builtins. Every order but
// relaxed is taken as sequentially consistent. Functions take pointers to volatile, so plain and volatile ones both
// bind.
#pragma once

namespace metal {

enum memory_order {
  memory_order_relaxed, memory_order_acquire, memory_order_release, memory_order_acq_rel, memory_order_seq_cst
};
enum thread_scope { thread_scope_thread, thread_scope_simdgroup, thread_scope_threadgroup, thread_scope_device };

template <class T> struct atomic {
  T __value;
  atomic() = default;
  OST_FN constexpr atomic(T value) : __value(value) {}
  atomic(const atomic &) = delete;
  atomic &operator=(const atomic &) = delete;
};
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<long> atomic_long;
typedef atomic<ulong> atomic_ulong;
typedef atomic<bool> atomic_bool;
typedef atomic<float> atomic_float;

}  // namespace metal

namespace __ost {

template <int Bytes> struct word;
template <> struct word<1> { typedef uint8_t type; };
template <> struct word<2> { typedef uint16_t type; };
template <> struct word<4> { typedef uint32_t type; };
template <> struct word<8> { typedef uint64_t type; };
template <class T> using word_t = typename word<int(sizeof(T))>::type;
template <class T> struct identity { typedef T type; };
template <class T> using exactly = typename identity<T>::type;  // a parameter that is converted to, never deduced from

// Floating-point atomics work on the bits: a NaN compares equal to itself, as in C++.
template <class T> OST_FN volatile word_t<T> *bits_at(volatile metal::atomic<T> *p) {
  return reinterpret_cast<volatile word_t<T> *>(&p->__value);
}
template <class T> OST_FN T atomic_read(const volatile metal::atomic<T> *p, metal::memory_order order) {
  const volatile word_t<T> *bits = reinterpret_cast<const volatile word_t<T> *>(&p->__value);
  return bits_as<T>(order == metal::memory_order_relaxed ? __atomic_load_n(bits, __ATOMIC_RELAXED)
                                                         : __atomic_load_n(bits, __ATOMIC_SEQ_CST));
}
template <class T> OST_FN bool atomic_try(volatile metal::atomic<T> *p, T &expected, T desired) {
  word_t<T> old = bits_as<word_t<T>>(expected);
  bool swapped = __atomic_compare_exchange_n(bits_at(p), &old, bits_as<word_t<T>>(desired), true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
  expected = bits_as<T>(old);
  return swapped;
}
template <class Op, class T> OST_FN T atomic_modify(volatile metal::atomic<T> *p, T operand) {
  T old = atomic_read(p, metal::memory_order_relaxed);
  while (!atomic_try(p, old, T(Op::of(old, operand)))) {}
  return old;
}
struct fn_add { template <class T> static OST_FN T of(T x, T y) { return x + y; } };
struct fn_sub { template <class T> static OST_FN T of(T x, T y) { return x - y; } };

}  // namespace __ost

namespace metal {

template <class T> OST_FN void atomic_init(volatile atomic<T> *object, __ost::exactly<T> value) {
  __atomic_store_n(__ost::bits_at(object), __ost::bits_as<__ost::word_t<T>>(T(value)), __ATOMIC_RELAXED);
}
template <class T> OST_FN void atomic_store_explicit(volatile atomic<T> *object, __ost::exactly<T> value, memory_order order) {
  if (order == memory_order_relaxed)
    __atomic_store_n(__ost::bits_at(object), __ost::bits_as<__ost::word_t<T>>(T(value)), __ATOMIC_RELAXED);
  else
    __atomic_store_n(__ost::bits_at(object), __ost::bits_as<__ost::word_t<T>>(T(value)), __ATOMIC_SEQ_CST);
}
template <class T> OST_FN T atomic_load_explicit(const volatile atomic<T> *object, memory_order order) {
  return __ost::atomic_read(object, order);
}
template <class T> OST_FN T atomic_exchange_explicit(volatile atomic<T> *object, __ost::exactly<T> value, memory_order) {
  return __ost::bits_as<T>(
      __atomic_exchange_n(__ost::bits_at(object), __ost::bits_as<__ost::word_t<T>>(T(value)), __ATOMIC_SEQ_CST));
}
template <class T>
OST_FN bool atomic_compare_exchange_weak_explicit(volatile atomic<T> *object, __ost::exactly<T> *expected,
                                                  __ost::exactly<T> desired, memory_order, memory_order) {
  return __ost::atomic_try(object, *expected, T(desired));
}

#define OST_ATOMIC_INTEGER(name, builtin)                                                                              \
  template <class T>                                                                                                   \
  OST_FN T atomic_fetch_##name##_explicit(volatile atomic<T> *object, __ost::exactly<T> operand, memory_order order) { \
    return T(order == memory_order_relaxed ? builtin(__ost::bits_at(object), __ost::word_t<T>(operand), __ATOMIC_RELAXED)  \
                                           : builtin(__ost::bits_at(object), __ost::word_t<T>(operand), __ATOMIC_SEQ_CST)); \
  }
#define OST_ATOMIC_ARITHMETIC(name, builtin)                                                                           \
  template <class T>                                                                                                   \
  OST_FN T atomic_fetch_##name##_explicit(volatile atomic<T> *object, __ost::exactly<T> operand, memory_order order) { \
    if constexpr (is_floating_point_v<T>)                                                                              \
      return __ost::atomic_modify<__ost::fn_##name>(object, T(operand));                                               \
    else                                                                                                               \
      return T(order == memory_order_relaxed                                                                           \
                   ? builtin(__ost::bits_at(object), __ost::word_t<T>(operand), __ATOMIC_RELAXED)                      \
                   : builtin(__ost::bits_at(object), __ost::word_t<T>(operand), __ATOMIC_SEQ_CST));                    \
  }
OST_ATOMIC_ARITHMETIC(add, __atomic_fetch_add)
OST_ATOMIC_ARITHMETIC(sub, __atomic_fetch_sub)
OST_ATOMIC_INTEGER(and, __atomic_fetch_and)
OST_ATOMIC_INTEGER(or, __atomic_fetch_or)
OST_ATOMIC_INTEGER(xor, __atomic_fetch_xor)
#undef OST_ATOMIC_INTEGER
#undef OST_ATOMIC_ARITHMETIC

template <class T> OST_FN T atomic_fetch_min_explicit(volatile atomic<T> *object, __ost::exactly<T> operand, memory_order) {
  return __ost::atomic_modify<__ost::fn_min>(object, T(operand));
}
template <class T> OST_FN T atomic_fetch_max_explicit(volatile atomic<T> *object, __ost::exactly<T> operand, memory_order) {
  return __ost::atomic_modify<__ost::fn_max>(object, T(operand));
}
// The forms without a result (64-bit atomics).
template <class T> OST_FN void atomic_min_explicit(volatile atomic<T> *object, __ost::exactly<T> operand, memory_order order) {
  atomic_fetch_min_explicit(object, operand, order);
}
template <class T> OST_FN void atomic_max_explicit(volatile atomic<T> *object, __ost::exactly<T> operand, memory_order order) {
  atomic_fetch_max_explicit(object, operand, order);
}

}  // namespace metal
