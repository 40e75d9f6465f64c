// What the body of an MLX kernel may use without including it: the names that MLX documents for `metal_kernel`, and the
// types of its signatures.

#pragma once

#include <metal_stdlib>

using namespace metal;

typedef half float16_t;
typedef bfloat bfloat16_t;

#define MLX_MTL_PRAGMA_UNROLL _Pragma("clang loop unroll(full)")

#define instantiate_kernel(name, function, ...) \
  template [[host_name(name)]] [[kernel]] decltype(function<__VA_ARGS__>) function<__VA_ARGS__>;

inline uint16_t bfloat16_to_uint16(const bfloat16_t value) { return as_type<uint16_t>(value); }
inline bfloat16_t uint16_to_bfloat16(const uint16_t bits) { return as_type<bfloat16_t>(bits); }

template <typename T>
struct WorkPerThread {
  static constexpr constant int n = 8 / sizeof(T);
};

template <bool condition, typename Yes, typename No>
struct ConditionalType {
  using type = Yes;
};
template <typename Yes, typename No>
struct ConditionalType<false, Yes, No> {
  using type = No;
};

// --- complex numbers ---

template <typename T>
struct complex_t;

template <typename T>
constexpr constant bool is_complex_v = false;
template <typename T>
constexpr constant bool is_complex_v<complex_t<T>> = true;

template <typename T>
struct complex_t {
  using value_type = T;
  T real, imag;

  constexpr complex_t() : real(0), imag(0) {}
  constexpr complex_t(T real, T imag) : real(real), imag(imag) {}
  template <typename U, typename = enable_if_t<is_arithmetic_v<U>>>
  constexpr complex_t(U value) : real(static_cast<T>(value)), imag(0) {}
  template <typename U, typename = enable_if_t<!is_same_v<U, T>>, typename = void>
  constexpr complex_t(complex_t<U> value) : real(static_cast<T>(value.real)), imag(static_cast<T>(value.imag)) {}
  constexpr complex_t(vec<T, 2> lanes) : real(lanes.x), imag(lanes.y) {}

  constexpr operator vec<T, 2>() const { return vec<T, 2>(real, imag); }
  template <typename U, typename = enable_if_t<is_arithmetic_v<U>>>
  constexpr operator U() const {
    return static_cast<U>(real);
  }
};

using complex32_t = complex_t<half>;
using complex64_t = complex_t<float>;

// A plain number is the complex number without an imaginary part.
template <typename T>
constexpr complex_t<T> operator-(complex_t<T> z) {
  return complex_t<T>(-z.real, -z.imag);
}

#define OSTINATO_COMPLEX_OPERATOR(symbol)                                                               \
  template <typename T, typename U, enable_if_t<is_arithmetic_v<U>, bool> = true>                       \
  constexpr auto operator symbol(complex_t<T> z, U number)->decltype(z symbol z) {                      \
    return z symbol complex_t<T>(number);                                                               \
  }                                                                                                     \
  template <typename T, typename U, enable_if_t<is_arithmetic_v<U>, bool> = true>                       \
  constexpr auto operator symbol(U number, complex_t<T> z)->decltype(z symbol z) {                      \
    return complex_t<T>(number) symbol z;                                                               \
  }

template <typename T>
constexpr complex_t<T> operator+(complex_t<T> a, complex_t<T> b) {
  return complex_t<T>(a.real + b.real, a.imag + b.imag);
}
template <typename T>
constexpr complex_t<T> operator-(complex_t<T> a, complex_t<T> b) {
  return complex_t<T>(a.real - b.real, a.imag - b.imag);
}
template <typename T>
constexpr complex_t<T> operator*(complex_t<T> a, complex_t<T> b) {
  return complex_t<T>(a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real);
}
// Smith's method: dividing by the larger part first neither overflows nor underflows.
template <typename T>
complex_t<T> operator/(complex_t<T> a, complex_t<T> b) {
  const bool real_is_larger = metal::abs(float(b.real)) >= metal::abs(float(b.imag));
  const float large = real_is_larger ? b.real : b.imag, small = real_is_larger ? b.imag : b.real;
  const float ratio = small / large, norm = large + small * ratio;
  const float x = a.real, y = a.imag;
  return real_is_larger ? complex_t<T>(T((x + y * ratio) / norm), T((y - x * ratio) / norm))
                        : complex_t<T>(T((x * ratio + y) / norm), T((y * ratio - x) / norm));
}
// By the real part, then by the imaginary one.
template <typename T>
constexpr bool operator<(complex_t<T> a, complex_t<T> b) {
  return a.real < b.real || (a.real == b.real && a.imag < b.imag);
}
template <typename T>
constexpr bool operator<=(complex_t<T> a, complex_t<T> b) {
  return a.real < b.real || (a.real == b.real && a.imag <= b.imag);
}
template <typename T>
constexpr bool operator>(complex_t<T> a, complex_t<T> b) {
  return b < a;
}
template <typename T>
constexpr bool operator>=(complex_t<T> a, complex_t<T> b) {
  return b <= a;
}
template <typename T>
constexpr bool operator==(complex_t<T> a, complex_t<T> b) {
  return a.real == b.real && a.imag == b.imag;
}
template <typename T>
constexpr bool operator!=(complex_t<T> a, complex_t<T> b) {
  return !(a == b);
}

OSTINATO_COMPLEX_OPERATOR(+)
OSTINATO_COMPLEX_OPERATOR(-)
OSTINATO_COMPLEX_OPERATOR(*)
OSTINATO_COMPLEX_OPERATOR(/)

template <typename T>
thread complex_t<T> &operator+=(thread complex_t<T> &a, complex_t<T> b) {
  return a = a + b;
}
template <typename T>
thread complex_t<T> &operator-=(thread complex_t<T> &a, complex_t<T> b) {
  return a = a - b;
}
template <typename T>
thread complex_t<T> &operator*=(thread complex_t<T> &a, complex_t<T> b) {
  return a = a * b;
}

// --- limits ---

template <typename T>
struct Limits {
  static constexpr constant T finite_max = metal::numeric_limits<T>::max();
  static constexpr constant T finite_min = metal::numeric_limits<T>::lowest();
  static constexpr constant T max =
      metal::numeric_limits<T>::has_infinity ? metal::numeric_limits<T>::infinity() : finite_max;
  static constexpr constant T min =
      metal::numeric_limits<T>::has_infinity ? T(-metal::numeric_limits<T>::infinity()) : finite_min;
};

template <typename T>
struct Limits<complex_t<T>> {
  static constexpr constant complex_t<T> max = complex_t<T>(Limits<T>::max, Limits<T>::max);
  static constexpr constant complex_t<T> min = complex_t<T>(Limits<T>::min, Limits<T>::min);
};

// --- where an element is ---

// The element of that number in row-major order.
template <typename Index = int64_t>
METAL_FUNC Index elem_to_loc(Index elem, constant const int *shape, constant const int64_t *strides, int ndim) {
  Index location = 0;
  for (int axis = ndim - 1; axis >= 0 && elem > 0; --axis) {
    const Index extent = Index(shape[axis]);
    location += (elem % extent) * Index(strides[axis]);
    elem /= extent;
  }
  return location;
}

// x counts along the last axis, y along the one before, z along all others together.
template <typename Index = int64_t>
METAL_FUNC Index elem_to_loc(uint3 elem, constant const int *shape, constant const int64_t *strides, int ndim) {
  Index location = Index(elem.x) * Index(strides[ndim - 1]) + Index(elem.y) * Index(strides[ndim - 2]);
  for (int axis = ndim - 3; axis >= 0; --axis) {
    location += Index(elem.z % shape[axis]) * Index(strides[axis]);
    elem.z /= shape[axis];
  }
  return location;
}

template <typename Index = int64_t>
METAL_FUNC Index elem_to_loc_1(uint elem, constant const int64_t &stride) {
  return Index(elem) * Index(stride);
}

template <typename Index = int64_t>
METAL_FUNC Index elem_to_loc_2(uint2 elem, constant const int64_t *strides) {
  return Index(elem.x) * Index(strides[1]) + Index(elem.y) * Index(strides[0]);
}

template <typename Index = int64_t>
METAL_FUNC Index elem_to_loc_3(uint3 elem, constant const int64_t *strides) {
  return Index(elem.x) * Index(strides[2]) + Index(elem.y) * Index(strides[1]) + Index(elem.z) * Index(strides[0]);
}

template <typename Index = int64_t>
METAL_FUNC vec<Index, 2> elem_to_loc_2_nd(uint3 elem, constant const int *shape, constant const int64_t *a_strides,
                                          constant const int64_t *b_strides, int ndim) {
  return vec<Index, 2>(elem_to_loc<Index>(elem, shape, a_strides, ndim),
                       elem_to_loc<Index>(elem, shape, b_strides, ndim));
}

template <typename Index = int64_t>
METAL_FUNC vec<Index, 3> elem_to_loc_3_nd(uint3 elem, constant const int *shape, constant const int64_t *a_strides,
                                          constant const int64_t *b_strides, constant const int64_t *c_strides,
                                          int ndim) {
  return vec<Index, 3>(elem_to_loc<Index>(elem, shape, a_strides, ndim),
                       elem_to_loc<Index>(elem, shape, b_strides, ndim),
                       elem_to_loc<Index>(elem, shape, c_strides, ndim));
}

// Locations of elements one after the other: `next` steps to the element after, or by `count` elements.
template <int DIM, typename Offset = size_t, bool General = true>
struct LoopedElemToLoc {
  int dim;
  Offset elem = 0, offset = 0;

  LoopedElemToLoc(int dim) : dim(dim) {}

  void next(int count, const constant int *shape, const constant int64_t *strides) {
    elem += count;
    offset = elem_to_loc<Offset>(elem, shape, strides, dim);
  }
  void next(const constant int *shape, const constant int64_t *strides) { next(1, shape, strides); }
  Offset location() { return offset; }
};

// --- arithmetic ---

template <typename T, typename U>
inline T ceildiv(T number, U divisor) {
  return (number + divisor - 1) / divisor;
}

// log(1 + x) without losing a small x: the error of 1 + x divides out.
inline float log1p(float x) {
  const float sum = 1.0f + x;
  if (sum == 1.0f || metal::isinf(sum)) { return x; }
  return metal::log(sum) * (x / (sum - 1.0f));
}
inline half log1p(half x) { return half(log1p(float(x))); }
inline bfloat16_t log1p(bfloat16_t x) { return bfloat16_t(log1p(float(x))); }
inline complex64_t log1p(complex64_t z) {
  const float square = z.real * (2.0f + z.real) + z.imag * z.imag;  // |1 + z|² − 1
  return complex64_t(0.5f * log1p(square), metal::atan2(z.imag, z.real + 1.0f));
}

inline float hypot(float x, float y) {
  const float large = metal::fmax(metal::fabs(x), metal::fabs(y)), small = metal::fmin(metal::fabs(x), metal::fabs(y));
  if (metal::isinf(large) || large == 0.0f) { return large; }
  const float ratio = small / large;
  return metal::isnan(x) || metal::isnan(y) ? NAN : large * metal::precise::sqrt(1.0f + ratio * ratio);
}

template <typename To, typename From>
inline To cast_to(From value) {
  if constexpr (is_complex_v<From> && is_same_v<To, bool>) {
    return value.real != 0 || value.imag != 0;
  } else {
    return static_cast<To>(value);
  }
}

// --- simdgroups ---

template <typename T>
inline complex_t<T> simd_shuffle(complex_t<T> z, uint16_t lane) {
  return complex_t<T>(metal::simd_shuffle(z.real, lane), metal::simd_shuffle(z.imag, lane));
}
template <typename T>
inline complex_t<T> simd_shuffle_down(complex_t<T> z, uint16_t delta) {
  return complex_t<T>(metal::simd_shuffle_down(z.real, delta), metal::simd_shuffle_down(z.imag, delta));
}
template <typename T>
inline complex_t<T> simd_shuffle_up(complex_t<T> z, uint16_t delta) {
  return complex_t<T>(metal::simd_shuffle_up(z.real, delta), metal::simd_shuffle_up(z.imag, delta));
}
