// <metal_atomic>: the public names. Every order but relaxed is taken as sequentially consistent. Functions take pointers
// to volatile, so plain and volatile ones both bind. How memory is changed is in atomic_cpu.h and atomic_cuda.h.
#pragma once

namespace metal {

template <class T> OST_FN void atomic_init(volatile atomic<T> *object, __ost::exactly<T> value) {
  __ost::atomic_write(object, T(value), memory_order_relaxed);
}
template <class T>
OST_FN void atomic_store_explicit(volatile atomic<T> *object, __ost::exactly<T> value, memory_order order) {
  __ost::atomic_write(object, T(value), order);
}
template <class T> OST_FN T atomic_load_explicit(const volatile atomic<T> *object, memory_order order) {
  return __ost::atomic_read(object, order);
}
template <class T>
OST_FN T atomic_exchange_explicit(volatile atomic<T> *object, __ost::exactly<T> value, memory_order order) {
  return __ost::atomic_swap(object, T(value), order);
}
template <class T>
OST_FN bool atomic_compare_exchange_weak_explicit(volatile atomic<T> *object, __ost::exactly<T> *expected,
                                                  __ost::exactly<T> desired, memory_order order, memory_order) {
  return __ost::atomic_try(object, *expected, T(desired), order);
}

#define OST_ATOMIC_FETCH(name)                                                                                         \
  template <class T>                                                                                                   \
  OST_FN T atomic_fetch_##name##_explicit(volatile atomic<T> *object, __ost::exactly<T> operand, memory_order order) { \
    return __ost::atomic_fetch(__ost::fn_##name(), object, T(operand), order);                                         \
  }
// clang-format off
OST_ATOMIC_FETCH(add) OST_ATOMIC_FETCH(sub) OST_ATOMIC_FETCH(and) OST_ATOMIC_FETCH(or) OST_ATOMIC_FETCH(xor)
OST_ATOMIC_FETCH(min) OST_ATOMIC_FETCH(max)
// clang-format on
#undef OST_ATOMIC_FETCH

// The forms without a result (64-bit atomics).
template <class T>
OST_FN void atomic_min_explicit(volatile atomic<T> *object, __ost::exactly<T> operand, memory_order order) {
  atomic_fetch_min_explicit(object, operand, order);
}
template <class T>
OST_FN void atomic_max_explicit(volatile atomic<T> *object, __ost::exactly<T> operand, memory_order order) {
  atomic_fetch_max_explicit(object, operand, order);
}

}  // namespace metal
