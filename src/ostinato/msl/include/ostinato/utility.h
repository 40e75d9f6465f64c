// Small things with no better home: as_type, array, uniform, and os_log.
#pragma once

// The bits of a value as another type of the same size; global in MSL.
template <class To, class From> OST_FN To as_type(From from) {
  typedef __ost::value_t<From> Value;
  static_assert(sizeof(To) == sizeof(Value), "as_type needs types of the same size");
  if constexpr (__is_same(To, Value)) {
    return from;
  } else if constexpr (__is_trivially_copyable(To) && __is_trivially_copyable(Value)) {
    return __ost::bits_as<To>(static_cast<Value>(from));
  } else {
    Value value = static_cast<Value>(from);
    To to;
    __builtin_memcpy(static_cast<void *>(&to), static_cast<const void *>(&value), sizeof to);
    return to;
  }
}

namespace metal {

using OST_ROOT::as_type;

template <class T, size_t N> struct array {
  typedef T value_type;
  T __elems[N];
  OST_FN constexpr T &operator[](size_t i) { return __elems[i]; }
  OST_FN constexpr const T &operator[](size_t i) const { return __elems[i]; }
  OST_FN constexpr T &at(size_t i) { return __elems[i]; }
  OST_FN constexpr const T &at(size_t i) const { return __elems[i]; }
  OST_FN constexpr size_t size() const { return N; }
  OST_FN constexpr bool empty() const { return N == 0; }
  OST_FN constexpr T *data() { return __elems; }
  OST_FN constexpr const T *data() const { return __elems; }
  OST_FN constexpr T &front() { return __elems[0]; }
  OST_FN constexpr const T &front() const { return __elems[0]; }
  OST_FN constexpr T &back() { return __elems[N - 1]; }
  OST_FN constexpr const T &back() const { return __elems[N - 1]; }
  OST_FN constexpr T *begin() { return __elems; }
  OST_FN constexpr const T *begin() const { return __elems; }
  OST_FN constexpr T *end() { return __elems + N; }
  OST_FN constexpr const T *end() const { return __elems + N; }
  OST_FN constexpr void fill(const T &value) {
    for (size_t i = 0; i < N; i++) __elems[i] = value;
  }
};

// A value that is the same in all threads; nothing more than a value here.
template <class T> struct uniform {
  T __value;
  uniform() = default;
  OST_FN constexpr uniform(T value) : __value(value) {}
  OST_FN constexpr operator T() const { return __value; }
  OST_FN constexpr uniform &operator+=(T other) {
    __value += other;
    return *this;
  }
  OST_FN constexpr uniform &operator-=(T other) {
    __value -= other;
    return *this;
  }
};
template <class T> OST_FN constexpr uniform<T> make_uniform(T value) { return uniform<T>(value); }

// The translator puts a LogSite or a Silent in the place of each format, and wraps the arguments (logging.h).
struct os_log {
  constexpr os_log(const char *, const char *) {}
  template <class S, class... A> OST_FN void log(S site, A... a) const { __ost::print(site, a...); }
  template <class S, class... A> OST_FN void log_debug(S site, A... a) const { __ost::print(site, a...); }
  template <class S, class... A> OST_FN void log_info(S site, A... a) const { __ost::print(site, a...); }
  template <class S, class... A> OST_FN void log_error(S site, A... a) const { __ost::print(site, a...); }
  template <class S, class... A> OST_FN void log_fault(S site, A... a) const { __ost::print(site, a...); }
};
inline constexpr os_log os_log_default{"", ""};

}  // namespace metal
