// What kernels print: arguments of os_log and printf as a record in the log of the submission. Contract: the translator
// has put a LogSite (or, where the call is switched off, a Silent) in the place of the format, and wrapped each argument
// in the function for its conversion, which refuses other types. The target says where records go (log_record).
#pragma once

// The log is not the kernel's memory: checked builds do not look at what is written there.
#ifdef __OST_CHECKED
#define OST_LOG_FN inline __attribute__((noinline, no_sanitize("thread")))
#else
#define OST_LOG_FN OST_FN
#endif

namespace __ost {

struct LogSite { uint32_t id; };
struct Silent {};

// The head of a record; runtime/kernel_log.py reads it. The arguments follow.
struct LogRecord {
  uint32_t bytes;   // with the arguments
  uint32_t node;    // of the list or graph
  uint32_t site;    // among those of the source
  uint32_t thread;  // in its group
  uint64_t group;   // in the grid
};

constexpr uint32_t log_unsigned = 1, log_signed = 2, log_floating = 3, log_address = 4;

template <int N> struct Logged {
  uint32_t kind, scalar_bytes;
  uint64_t lanes;
  uint64_t values[N];
};

template <class T> OST_FN uint64_t integer_bits(T value) { return uint64_t(int64_t(value)); }
template <class T> OST_FN uint64_t floating_bits(T value) { return bits_as<uint32_t>(float(value)); }

template <int N, class A> OST_FN Logged<N> log_integer(const A &argument) {
  typedef metal::remove_cv_t<value_t<A>> T;
  constexpr int kind = components<T>::kind, count = components<T>::count;
  static_assert(kind >= 1 && kind <= 3,
                "this conversion takes an integer (d i u o x X c); print a float with f, e, g or a");
  static_assert(N == 1 || count == N, "%v2, %v3 and %v4 take a vector with as many components");
  static_assert(N > 1 || count == 0, "this conversion takes a scalar; print a vector with v2, v3 or v4, as in %v4d");
  const T value = static_cast<T>(argument);
  if constexpr (kind >= 1 && kind <= 3 && (N == 1 ? count == 0 : count == N)) {
    if constexpr (N == 1) {
      return {kind == 2 ? log_signed : log_unsigned, uint32_t(sizeof(T)), 1, {integer_bits(value)}};
    } else {
      Logged<N> logged = {kind == 2 ? log_signed : log_unsigned, uint32_t(sizeof(value[0])), N, {}};
      for (int i = 0; i < N; i++) logged.values[i] = integer_bits(value[i]);
      return logged;
    }
  } else {
    return {};
  }
}

template <int N, class A> OST_FN Logged<N> log_float(const A &argument) {
  typedef metal::remove_cv_t<value_t<A>> T;
  constexpr int kind = components<T>::kind, count = components<T>::count;
  static_assert(kind >= 4, "this conversion takes a float (f e g a); print an integer with d, u or x");
  static_assert(N == 1 || count == N, "%v2, %v3 and %v4 take a vector with as many components");
  static_assert(N > 1 || count == 0, "this conversion takes a scalar; print a vector with v2, v3 or v4, as in %v4f");
  const T value = static_cast<T>(argument);
  if constexpr (kind >= 4 && (N == 1 ? count == 0 : count == N)) {
    if constexpr (N == 1) {
      return {log_floating, uint32_t(sizeof(T)), 1, {floating_bits(value)}};
    } else {
      Logged<N> logged = {log_floating, uint32_t(sizeof(value[0])), N, {}};
      for (int i = 0; i < N; i++) logged.values[i] = floating_bits(value[i]);
      return logged;
    }
  } else {
    return {};
  }
}

template <class A> OST_FN Logged<1> log_pointer(const A &argument) {
  static_assert(metal::is_pointer_v<metal::decay_t<A>>, "%p takes a pointer");
  if constexpr (metal::is_pointer_v<metal::decay_t<A>>)
    return {log_address, 8, 1, {(uint64_t)(const volatile void *)argument}};
  else return {};
}

template <class... A> OST_FN void print(Silent, const A &...) {}

#ifdef __OST_VECTOR
template <class... A> OST_FN void print(LogSite, const A &...) {
  static_assert(sizeof...(A) > 64, "kernels that print do not run as vectors");
}
#else
// Room for a record, with its head filled in but for the site; NULL when the log is full.
OST_LOG_FN LogRecord *log_record(uint32_t bytes);

template <class... A> OST_LOG_FN void print(LogSite site, const A &...arguments) {
  LogRecord *const record = log_record(uint32_t(sizeof(LogRecord) + (sizeof(A) + ... + 0)));
  if (!record) return;
  record->site = site.id;
  unsigned char *at = reinterpret_cast<unsigned char *>(record + 1);
  ((*reinterpret_cast<A *>(at) = arguments, at += sizeof(A)), ...);
}
#endif

}  // namespace __ost
