// The types of <metal_atomic>: atomic<T> has the size of T.
#pragma once

namespace metal {

enum memory_order {
  memory_order_relaxed,
  memory_order_acquire,
  memory_order_release,
  memory_order_acq_rel,
  memory_order_seq_cst
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

struct fn_add {
  template <class T> static OST_FN T of(T x, T y) { return x + y; }
};
struct fn_sub {
  template <class T> static OST_FN T of(T x, T y) { return x - y; }
};
struct fn_and {
  template <class T> static OST_FN T of(T x, T y) { return x & y; }
};
struct fn_or {
  template <class T> static OST_FN T of(T x, T y) { return x | y; }
};
struct fn_xor {
  template <class T> static OST_FN T of(T x, T y) { return x ^ y; }
};

}  // namespace __ost
