// The floating-point functions on one float that CUDA computes its own way: its precise device functions, within 2 ulp but
// for sinh, asinh, atanh and atan2 (3), and tan, tanpi, acosh and pow (4); and those of metal::fast, of instructions that
// approximate, within the bounds that Metal states for them.
#pragma once

namespace __ost {

#define OST_DEVICE_1(name) struct fn_##name { static OST_FN float of(float x) { return ::name##f(x); } };
#define OST_DEVICE_2(name) struct fn_##name { static OST_FN float of(float x, float y) { return ::name##f(x, y); } };
// clang-format off
OST_DEVICE_1(exp) OST_DEVICE_1(exp2) OST_DEVICE_1(exp10) OST_DEVICE_1(log) OST_DEVICE_1(log2) OST_DEVICE_1(log10)
OST_DEVICE_1(sin) OST_DEVICE_1(cos) OST_DEVICE_1(tan) OST_DEVICE_1(sinpi) OST_DEVICE_1(cospi)
OST_DEVICE_1(sinh) OST_DEVICE_1(cosh) OST_DEVICE_1(tanh) OST_DEVICE_1(asin) OST_DEVICE_1(acos) OST_DEVICE_1(atan)
OST_DEVICE_1(asinh) OST_DEVICE_1(acosh) OST_DEVICE_1(atanh) OST_DEVICE_1(ceil) OST_DEVICE_1(floor)
OST_DEVICE_1(trunc) OST_DEVICE_1(rint) OST_DEVICE_1(round) OST_DEVICE_1(sqrt) OST_DEVICE_1(rsqrt)
OST_DEVICE_2(atan2) OST_DEVICE_2(fmod) OST_DEVICE_2(pow)
// clang-format on
#undef OST_DEVICE_1
#undef OST_DEVICE_2

// One instruction of the special function unit; numbers below 2^-126, given or made, count as zero.
#define OST_APPROXIMATE(name, instruction)                     \
  OST_FN float name(float x) {                                 \
    float r;                                                   \
    asm(instruction ".approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); \
    return r;                                                  \
  }
OST_APPROXIMATE(fast_inverse, "rcp")
OST_APPROXIMATE(fast_exp2, "ex2")
OST_APPROXIMATE(fast_log2, "lg2")
OST_APPROXIMATE(fast_sin, "sin")
OST_APPROXIMATE(fast_cos, "cos")
#undef OST_APPROXIMATE

struct fn_fast_divide {
  static OST_FN float of(float x, float y) { return x * fast_inverse(y); }
};
struct fn_fast_exp2 {
  static OST_FN float of(float x) { return fast_exp2(x); }
};
struct fn_fast_exp {
  static OST_FN float of(float x) { return fast_exp2(x * 0x1.715476p+0f); }
};
struct fn_fast_log2 {
  static OST_FN float of(float x) { return fast_log2(x); }
};
struct fn_fast_log {
  static OST_FN float of(float x) { return fast_log2(x) * 0x1.62e430p-1f; }
};
struct fn_fast_log10 {
  static OST_FN float of(float x) { return fast_log2(x) * 0x1.344136p-2f; }
};
// The instructions lose what a multiplication by 1 / 2 pi loses; an angle of one turn has little to lose.
OST_FN float within_a_turn(float x) {
  const float turns = ::rintf(x * 0x1.45f306p-3f);
  return ::fmaf(turns, 0x1.777a5cp-23f, ::fmaf(turns, -0x1.921fb6p+2f, x));
}
struct fn_fast_sin {
  static OST_FN float of(float x) { return fast_sin(within_a_turn(x)); }
};
struct fn_fast_cos {
  static OST_FN float of(float x) { return fast_cos(within_a_turn(x)); }
};
struct fn_fast_tan {
  static OST_FN float of(float x) {
    const float angle = within_a_turn(x);
    return fast_sin(angle) * fast_inverse(fast_cos(angle));
  }
};
// Near zero, where the difference would lose its digits, the first terms of the power series.
struct fn_fast_tanh {
  static OST_FN float of(float x) {
    const float square = x * x, far = 1.0f - 2.0f * fast_inverse(1.0f + fast_exp2(x * 0x1.715476p+1f));
    const float near = x * (1.0f + square * (-0x1.555556p-2f + square * (0x1.111112p-3f - 0x1.ba1ba2p-5f * square)));
    return square < 0.0625f ? near : far;
  }
};

typedef fn_sin fn_precise_sin;
typedef fn_cos fn_precise_cos;
typedef fn_tan fn_precise_tan;
struct fn_tanpi {
  static OST_FN float of(float x) { return ::sinpif(x) / ::cospif(x); }
};
struct fn_powr {
  static OST_FN float of(float x, float y) { return x < 0.0f ? __builtin_nanf("") : ::powf(x, y); }
};

struct fn_fma {
  static OST_FN float of(float x, float y, float z) { return ::fmaf(x, y, z); }
  static OST_FN half of(half x, half y, half z) {
    half r;
    asm("fma.rn.f16 %0, %1, %2, %3;" : "=h"(r.__bits) : "h"(x.__bits), "h"(y.__bits), "h"(z.__bits));
    return r;
  }
  static OST_FN bfloat of(bfloat x, bfloat y, bfloat z) {
    bfloat r;
    asm("fma.rn.bf16 %0, %1, %2, %3;" : "=h"(r.__bits) : "h"(x.__bits), "h"(y.__bits), "h"(z.__bits));
    return r;
  }
};

}  // namespace __ost
