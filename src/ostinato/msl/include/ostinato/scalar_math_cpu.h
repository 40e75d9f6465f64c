// The floating-point functions on one float that a CPU computes its own way. Contract: fn_NAME::of(float) is within
// 2 ulp of the true value (tan: 3) unless its comment says otherwise, gets infinities, NaN and denormals right, and
// raises nothing.
//
// The ones kernels spend their time in (exp, log, sin, cos, tanh, pow and their kin) are written without branches and
// calls, so that a loop over threads that uses them still becomes SIMD; the rest go to the C library through the
// compiler's builtins. Polynomials are minimax fits; a*b + c is left to contraction, nothing depends on it.
#pragma once

namespace __ost {

// 2^n * (1 + r + r*r*P(r)) for e^r, |r| <= ln(2)/2; in two steps, so that n may reach into the denormals.
OST_FN float scaled_exp(float r, int n) {
  float p = 0x1.6dbc68p-10f;
  p = p * r + 0x1.124148p-7f;
  p = p * r + 0x1.555454p-5f;
  p = p * r + 0x1.555486p-3f;
  p = p * r + 0.5f;
  p = 1.0f + (r + r * r * p);
  int half_n = n >> 1;
  return p * pow2_bits(half_n) * pow2_bits(n - half_n);
}

// Adding this rounds a float under 2^22 to an integer, which then stands in the low bits.
constexpr float round_magic = 0x1.8p23f;
OST_FN int magic_int(float t) { return bits_as<int>(t) - bits_as<int>(round_magic); }

OST_FN float clamp_keeping_nan(float x, float low, float high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}

struct fn_exp {
  static OST_FN float of(float x) {
    float c = clamp_keeping_nan(x, -104.0f, 89.0f);
    float t = c * 0x1.715476p+0f + round_magic;
    float n = t - round_magic;
    float r = c - n * 0x1.62e4p-1f;
    r = r - n * 0x1.7f7d1cp-20f;
    return scaled_exp(r, magic_int(t));
  }
};
struct fn_exp2 {
  static OST_FN float of(float x) {
    float c = clamp_keeping_nan(x, -151.0f, 129.0f);
    float t = c + round_magic;
    return scaled_exp((c - (t - round_magic)) * 0x1.62e43p-1f, magic_int(t));
  }
};
struct fn_exp10 {
  static OST_FN float of(float x) {
    float c = clamp_keeping_nan(x, -46.0f, 39.0f);
    float t = c * 0x1.a934fp+1f + round_magic;
    float n = t - round_magic;
    float r = c - n * 0x1.344p-2f;
    r = r - n * 0x1.3509f8p-18f;
    return scaled_exp(r * 0x1.26bb1cp+1f, magic_int(t));
  }
};

// x = 2^exponent * (1 + f), -1/3 <= f < 1/3, and log(1 + f) = f + tail.
struct log_parts {
  float exponent, f, tail;
  OST_FN explicit log_parts(float x) {
    bool tiny = x < 0x1p-126f;
    int bits = bits_as<int>(tiny ? x * 0x1p23f : x) - 0x3f2aaaab;
    exponent = float((bits >> 23) - (tiny ? 23 : 0));
    f = bits_as<float>((bits & 0x007fffff) + 0x3f2aaaab) - 1.0f;
    float p = -0x1.0e52c4p-3f;
    p = p * f + 0x1.1e1618p-3f;
    p = p * f + -0x1.f029e6p-4f;
    p = p * f + 0x1.1eeb3cp-3f;
    p = p * f + -0x1.55b88cp-3f;
    p = p * f + 0x1.99ce98p-3f;
    p = p * f + -0x1.fffe5ap-3f;
    p = p * f + 0x1.55550cp-2f;
    float square = f * f;
    tail = square * (p * f - 0.5f);
  }
};
OST_FN float log_special(float x, float result) {
  result = x == __builtin_inff() ? x : result;
  result = x == 0.0f ? -__builtin_inff() : result;
  return x < 0.0f || x != x ? __builtin_nanf("") : result;
}
#ifdef __OST_NAN
// Where operations that make a NaN or an infinity are looked for, the C library's functions raise the signals.
struct fn_log {
  static OST_FN float of(float x) { return __builtin_logf(x); }
};
struct fn_log2 {
  static OST_FN float of(float x) { return __builtin_log2f(x); }
};
struct fn_log10 {
  static OST_FN float of(float x) { return __builtin_log10f(x); }
};
#else
struct fn_log {
  static OST_FN float of(float x) {
    log_parts p(x);
    return log_special(x, p.exponent * 0x1.62e4p-1f + (p.f + (p.exponent * 0x1.7f7d1cp-20f + p.tail)));
  }
};
struct fn_log2 {
  static OST_FN float of(float x) {
    log_parts p(x);
    // 1/ln(2) in two pieces: one rounding of f * 1.4427 would be the whole error budget near x = 1
    float low = p.f * 0x1.d94ae000p-18f + p.tail * 0x1.715476p+0f;
    return log_special(x, p.exponent + (p.f * 0x1.7154p+0f + low));
  }
};
struct fn_log10 {
  static OST_FN float of(float x) {
    log_parts p(x);
    float low = p.exponent * 0x1.3509f8p-18f + (p.f * -0x1.3ab64600p-20f + p.tail * 0x1.bcb7b2p-2f);
    return log_special(x, p.exponent * 0x1.344p-2f + (p.f * 0x1.bcb8p-2f + low));
  }
};

#endif

// sin and cos after reduction by quarter turns: r in [-pi/4, pi/4] and the number of quarter turns.
OST_FN float sin_poly(float r) {
  float z = r * r;
  float p = 0x1.6ccbb4p-19f;
  p = p * z + -0x1.a00f68p-13f;
  p = p * z + 0x1.111108p-7f;
  p = p * z + -0x1.555556p-3f;
  return r + r * z * p;
}
OST_FN float cos_poly(float r) {
  float z = r * r;
  float p = 0x1.99f2dep-16f;
  p = p * z + -0x1.6c0c58p-10f;
  p = p * z + 0x1.55554ap-5f;
  return 1.0f + (z * z * p - 0.5f * z);
}
struct turns {
  float r;
  uint32_t quarter;
  // The reduction is in double: exact for |x| < 2^20, good to 2 ulp below 2^40. Larger arguments of the fast
  // functions keep a bounded result without meaning; precise::sin and its kin take the C library's.
  static OST_FN turns of_radians(float value) {
    double x = value;
    double t = x * 0x1.45f306dc9c883p-1 + 0x1.8p52;
    double n = t - 0x1.8p52;
    double r = x - n * 0x1.921fb544p+0;
    r = r - n * 0x1.0b4611a6p-34;
    r = r - n * 0x1.3198a2e037073p-69;
    return turns{float(r), uint32_t(bits_as<uint64_t>(t))};
  }
  static OST_FN turns of_half_turns(float x) {
    float y = x - 2.0f * __builtin_rintf(x * 0.5f);  // exact, in [-1, 1]; NaN for infinities
    float t = y * 2.0f + round_magic;
    float r = y - (t - round_magic) * 0.5f;
    return turns{float(double(r) * 0x1.921fb54442d18p+1), uint32_t(magic_int(t))};
  }
  OST_FN float sin() const { return flip(quarter & 1u ? cos_poly(r) : sin_poly(r), quarter & 2u); }
  OST_FN float cos() const { return flip(quarter & 1u ? sin_poly(r) : cos_poly(r), (quarter + 1u) & 2u); }
  OST_FN float tan() const {
    float s = sin_poly(r), c = cos_poly(r);
    return quarter & 1u ? -c / s : s / c;
  }
  static OST_FN float flip(float value, uint32_t two) { return bits_as<float>(bits_as<uint32_t>(value) ^ (two << 30)); }
};

struct fn_sin {
  static OST_FN float of(float x) {
    float s = turns::of_radians(x).sin();
    return x == 0.0f ? x : s;
  }
};
struct fn_cos {
  static OST_FN float of(float x) { return turns::of_radians(x).cos(); }
};
struct fn_tan {
  static OST_FN float of(float x) {
    float t = turns::of_radians(x).tan();
    return x == 0.0f ? x : t;
  }
};
struct fn_sinpi {
  static OST_FN float of(float x) {
    float s = turns::of_half_turns(x).sin();
    return s == 0.0f ? with_sign(0.0f, x) : s;
  }
};
struct fn_cospi {
  static OST_FN float of(float x) {
    float c = turns::of_half_turns(x).cos();
    return c == 0.0f ? 0.0f : c;
  }
};
struct fn_tanpi {
  static OST_FN float of(float x) {
    float t = turns::of_half_turns(x).tan();
    return x == 0.0f ? x : t;
  }
};
struct fn_precise_sin {
  static OST_FN float of(float x) { return __builtin_sinf(x); }
};
struct fn_precise_cos {
  static OST_FN float of(float x) { return __builtin_cosf(x); }
};
struct fn_precise_tan {
  static OST_FN float of(float x) { return __builtin_tanf(x); }
};

struct fn_tanh {
  static OST_FN float of(float x) {
    float a = __builtin_fabsf(x), z = x * x;
    float p = -0x1.830c06p-8f;
    p = p * z + 0x1.54e01cp-6f;
    p = p * z + -0x1.b89edap-5f;
    p = p * z + 0x1.1109dcp-3f;
    p = p * z + -0x1.55553ep-2f;
    float small = x + x * z * p;
    float large = 1.0f - 2.0f / (fn_exp::of(a + a) + 1.0f);
    return a < 0.6f ? small : with_sign(large, x);
  }
};

#define OST_LIBM_1(name) struct fn_##name { static OST_FN float of(float x) { return __builtin_##name##f(x); } };
#define OST_LIBM_2(name) struct fn_##name { static OST_FN float of(float x, float y) { return __builtin_##name##f(x, y); } };
// clang-format off
OST_LIBM_1(sinh) OST_LIBM_1(cosh) OST_LIBM_1(asin) OST_LIBM_1(acos) OST_LIBM_1(atan)
OST_LIBM_1(asinh) OST_LIBM_1(acosh) OST_LIBM_1(atanh)
OST_LIBM_1(ceil) OST_LIBM_1(floor) OST_LIBM_1(trunc) OST_LIBM_1(rint) OST_LIBM_1(sqrt)
OST_LIBM_2(atan2) OST_LIBM_2(fmod)
// clang-format on
#undef OST_LIBM_1
#undef OST_LIBM_2

struct fn_round {  // halves away from zero; the largest float under one half keeps 0.49999997 from reaching 1
  static OST_FN float of(float x) { return __builtin_truncf(x + with_sign(0x1.fffffep-2f, x)); }
};
struct fn_rsqrt {
  static OST_FN float of(float x) { return 1.0f / __builtin_sqrtf(x); }
};
#ifdef __OST_NAN
struct fn_pow {
  static OST_FN float of(float x, float y) { return __builtin_powf(x, y); }
};
#else
// 2^(y log2 |x|) in double, so that the product keeps the bits the power needs; then the special cases of C.
struct fn_pow {
  static OST_FN float of(float x, float y) {
    const float infinity = __builtin_inff();
    const double a = __builtin_fabsf(x);
    // a = 2^exponent * m, m in [1/sqrt(2), sqrt(2)); log2(m) = s * L(s * s), s = (m - 1) / (m + 1)
    uint64_t bits = bits_as<uint64_t>(a) - 0x3fe6a09e667f3bcdu;
    double m = bits_as<double>((bits & 0x000fffffffffffffu) + 0x3fe6a09e667f3bcdu);
    double exponent = bits_as<double>(((bits >> 52) ^ 0x800u) + 0x4330000000000000u) - (0x1p52 + 0x800);
    double s = (m - 1.0) / (m + 1.0), z = s * s;
    double l = 0x1.d469490d0eba9p-3;
    l = l * z + 0x1.0d5a2857024c7p-2;
    l = l * z + 0x1.483ddcd47cf01p-2;
    l = l * z + 0x1.a617b11cda6ebp-2;
    l = l * z + 0x1.2776c4ac8847dp-1;
    l = l * z + 0x1.ec709dc3f8ff7p-1;
    l = l * z + 0x1.71547652b82d7p+1;
    double log2 = exponent + s * l;
    double t = clamp_keeping_nan(y, -0x1.fffffep127f, 0x1.fffffep127f) * log2;  // finite: infinite powers of 1 are 1
    t = t < -200.0 ? -200.0 : t;
    t = t > 200.0 ? 200.0 : t;
    double shifted = t + 0x1.8p52, r = t - (shifted - 0x1.8p52);
    double p = 0x1.641125d986620p-20;
    p = p * r + 0x1.00de486a049c9p-16;
    p = p * r + 0x1.43086cb3f69e1p-13;
    p = p * r + 0x1.5d8742a6896dfp-10;
    p = p * r + 0x1.3b2ab73fef904p-7;
    p = p * r + 0x1.c6b08dd980bddp-5;
    p = p * r + 0x1.ebfbdff804046p-3;
    p = p * r + 0x1.62e42fef83cbcp-1;
    p = p * r + 0x1.000000000007fp+0;
    double scale = bits_as<double>((bits_as<uint64_t>(shifted) + 1023u) << 52);
    float power = float(p * scale);
    // The special cases. What depends on y alone is made a number first: y is often the same for all threads, and g++
    // does not vectorise a select whose condition is constant in the loop.
    float of_zero = y < 0.0f ? infinity : y > 0.0f ? 0.0f : y == 0.0f ? 1.0f : y;
    float of_infinity = y < 0.0f ? 0.0f : y > 0.0f ? infinity : y == 0.0f ? 1.0f : y;
    float of_nan = y == 0.0f ? 1.0f : __builtin_nanf("");
    float half_y = y * 0.5f;
    bool whole = y == __builtin_truncf(y);
    uint32_t odd_sign = (whole & (half_y != __builtin_truncf(half_y))) ? 0x80000000u : 0u;
    float of_negative = whole ? 1.0f : __builtin_nanf("");
    power = x == 0.0f ? of_zero : power;
    power = ((x == infinity) | (x == -infinity)) ? of_infinity : power;
    power = bits_as<float>(bits_as<uint32_t>(power) | (bits_as<uint32_t>(x) & odd_sign));
    power = ((x < 0.0f) & (x > -infinity)) ? power * of_negative : power;
    power = x != x ? of_nan : power;
    return x == 1.0f ? 1.0f : power;
  }
};
#endif
struct fn_powr {
  static OST_FN float of(float x, float y) { return x < 0.0f ? __builtin_nanf("") : fn_pow::of(x, y); }
};

struct fn_fma {
  static OST_FN float of(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
  // Products of halves and bfloats are exact in float and their sums fit a double but for vanishing tails; rounding
  // the double to odd keeps the last rounding right even then.
  static OST_FN double to_odd(double a, double b) {
    double s = a + b, t = s - a;
    double e = (a - (s - t)) + (b - t);
    uint64_t bits = bits_as<uint64_t>(s);
    uint64_t odd = (e > 0) == (s > 0) ? bits | 1 : (bits & 1 ? bits : bits - 1);
    return e == 0 || e != e || s - s != 0 ? s : bits_as<double>(odd);
  }
  static OST_FN half of(half x, half y, half z) { return half(to_odd(double(float(x) * float(y)), double(float(z)))); }
  static OST_FN bfloat of(bfloat x, bfloat y, bfloat z) {
    double wide = to_odd(double(float(x)) * double(float(y)), double(float(z)));
    // the same once more on the way to float
    float f = float(wide);
    double back = f;
    uint32_t bits = bits_as<uint32_t>(f);
    bool short_of = (wide > back) == (wide > 0);
    uint32_t odd = short_of ? bits | 1u : (bits & 1u ? bits : bits - 1u);
    return bfloat(back == wide || wide != wide || f - f != 0.0f ? f : bits_as<float>(odd));
  }
};

}  // namespace __ost
