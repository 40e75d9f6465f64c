// The floating-point functions on one float that CUDA computes its own way: its precise device functions, never the fast
// intrinsics. Within 2 ulp but for sinh, asinh, atanh and atan2 (3), and tan, tanpi, acosh and pow (4).
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
