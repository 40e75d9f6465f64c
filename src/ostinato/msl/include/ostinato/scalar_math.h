// The floating-point functions on one float that are the same on every target; what a target computes its own way
// (exp, sin, fma, ...) is in scalar_math_cpu.h and scalar_math_cuda.h.
#pragma once

namespace __ost {

OST_FN constexpr float pow2_bits(int exponent) { return bits_as<float>((exponent + 127) << 23); }
OST_FN float with_sign(float magnitude, float sign) { return __builtin_copysignf(magnitude, sign); }

struct fn_fract {
  static OST_FN float below_one(float x, float limit) {
    float f = x - __builtin_floorf(x);
    f = f > limit ? limit : f;
    return x - x == 0.0f || x != x ? f : 0.0f;
  }
  static OST_FN float of(float x) { return below_one(x, 0x1.fffffep-1f); }
  static OST_FN half of(half x) { return half(below_one(x, 0x1.ffcp-1f)); }
  static OST_FN bfloat of(bfloat x) { return bfloat(below_one(x, 0x1.fep-1f)); }
};

struct fn_sign {
  static OST_FN float of(float x) {
    float s = with_sign(1.0f, x);
    s = x == 0.0f ? x : s;
    return x != x ? 0.0f : s;
  }
};
struct fn_copysign {
  static OST_FN float of(float x, float y) { return with_sign(x, y); }
  // Not by way of float, where a NaN may lose its sign.
  template <class T> static OST_FN T of(T x, T y) {
    return bits_as<T>(uint16_t((bits_as<uint16_t>(x) & 0x7fffu) | (bits_as<uint16_t>(y) & 0x8000u)));
  }
};
struct fn_fdim {
  static OST_FN float of(float x, float y) {
    float d = x > y ? x - y : 0.0f;
    return x != x || y != y ? x + y : d;
  }
};
struct fn_step {
  static OST_FN float of(float edge, float x) { return x < edge ? 0.0f : 1.0f; }
};
struct fn_smoothstep {
  static OST_FN float of(float low, float high, float x) {
    float t = (x - low) / (high - low);
    t = t > 0.0f ? t : 0.0f;
    t = t < 1.0f ? t : 1.0f;
    return t * t * (3.0f - 2.0f * t);
  }
};
struct fn_mix {
  static OST_FN float of(float x, float y, float a) { return x + (y - x) * a; }
};
struct fn_mad {
  static OST_FN float of(float x, float y, float z) { return x * y + z; }
};
struct fn_divide {
  static OST_FN float of(float x, float y) { return x / y; }
};

// Comparisons ignore a NaN when the other argument is a number. Any ordered type.
#ifndef OST_FLOAT_MAX  // a target with instructions for it says so
#define OST_FLOAT_MAX(x, y) (y != y ? x : (x > y ? x : y))
#define OST_FLOAT_MIN(x, y) (y != y ? x : (x < y ? x : y))
#endif
struct fn_max {
  static OST_FN constexpr float of(float x, float y) { return OST_FLOAT_MAX(x, y); }
  static OST_FN constexpr half of(half x, half y) { return y != y ? x : (x > y ? x : y); }
  static OST_FN constexpr bfloat of(bfloat x, bfloat y) { return y != y ? x : (x > y ? x : y); }
  template <class T> static OST_FN constexpr T of(T x, T y) { return x > y ? x : y; }
};
struct fn_min {
  static OST_FN constexpr float of(float x, float y) { return OST_FLOAT_MIN(x, y); }
  static OST_FN constexpr half of(half x, half y) { return y != y ? x : (x < y ? x : y); }
  static OST_FN constexpr bfloat of(bfloat x, bfloat y) { return y != y ? x : (x < y ? x : y); }
  template <class T> static OST_FN constexpr T of(T x, T y) { return x < y ? x : y; }
};
struct fn_max3 {
  template <class T> static OST_FN constexpr T of(T x, T y, T z) { return fn_max::of(fn_max::of(x, y), z); }
};
struct fn_min3 {
  template <class T> static OST_FN constexpr T of(T x, T y, T z) { return fn_min::of(fn_min::of(x, y), z); }
};
struct fn_median3 {
  template <class T> static OST_FN constexpr T of(T x, T y, T z) {
    return fn_max::of(fn_min::of(x, y), fn_min::of(fn_max::of(x, y), z));
  }
};
struct fn_clamp {
  template <class T> static OST_FN constexpr T of(T x, T low, T high) { return fn_min::of(fn_max::of(x, low), high); }
};
struct fn_saturate {
  template <class T> static OST_FN constexpr T of(T x) { return fn_clamp::of(x, T(0.0f), T(1.0f)); }
};
struct fn_abs {
  static OST_FN constexpr float of(float x) { return __builtin_fabsf(x); }
  static OST_FN constexpr half of(half x) { return bits_as<half>(uint16_t(bits_as<uint16_t>(x) & 0x7fffu)); }
  static OST_FN constexpr bfloat of(bfloat x) { return bits_as<bfloat>(uint16_t(x.__bits & 0x7fffu)); }
  static OST_FN constexpr bool of(bool x) { return x; }
  template <class T> static OST_FN constexpr T of(T x) { return T(x < T(0) ? T(0) - x : x); }
};

OST_FN float scale_by_pow2(float x, int k) {
  k = k < -278 ? -278 : (k > 278 ? 278 : k);
  int third = k / 3;
  return x * pow2_bits(third) * pow2_bits(third) * pow2_bits(k - 2 * third);
}

}  // namespace __ost
