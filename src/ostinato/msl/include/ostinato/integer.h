// <metal_integer>: the integer functions, on scalars and vectors of every integer type. Arithmetic wraps where MSL
// says so and saturates where the name says so; nothing here is undefined for any input.
#pragma once

namespace __ost {

// Twice as wide, for exact intermediate results.
template <class T> struct wider;
template <> struct wider<char> { typedef int type; };
template <> struct wider<signed char> { typedef int type; };
template <> struct wider<short> { typedef int type; };
template <> struct wider<int> { typedef long long type; };
template <> struct wider<long> { typedef __int128 type; };
template <> struct wider<long long> { typedef __int128 type; };
template <> struct wider<unsigned char> { typedef unsigned type; };
template <> struct wider<unsigned short> { typedef unsigned type; };
template <> struct wider<unsigned int> { typedef unsigned long long type; };
template <> struct wider<unsigned long> { typedef unsigned __int128 type; };
template <> struct wider<unsigned long long> { typedef unsigned __int128 type; };
template <class T> using wider_t = typename wider<T>::type;
// Sums and differences want a signed type even for unsigned T.
template <class T> using exact_t =
    metal::conditional_t<(sizeof(T) < 4), int, metal::conditional_t<sizeof(T) == 4, long long, __int128>>;
template <class T> using unsigned_t = metal::make_unsigned_t<T>;

template <class T, class W> OST_FN constexpr T saturated(W value) {
  constexpr W low = metal::numeric_limits<T>::min(), high = metal::numeric_limits<T>::max();
  return T(value < low ? low : value > high ? high : value);
}

#define OST_OP(name, params, ...) \
  struct fn_##name { template <class T> static OST_FN constexpr T of params { __VA_ARGS__ } };
// clang-format off
OST_OP(absdiff, (T x, T y), return T(x > y ? unsigned_t<T>(x) - unsigned_t<T>(y) : unsigned_t<T>(y) - unsigned_t<T>(x));)
OST_OP(addsat, (T x, T y), return saturated<T>(exact_t<T>(x) + exact_t<T>(y));)
OST_OP(subsat, (T x, T y), return saturated<T>(exact_t<T>(x) - exact_t<T>(y));)
OST_OP(hadd, (T x, T y), return T((exact_t<T>(x) + exact_t<T>(y)) >> 1);)
OST_OP(rhadd, (T x, T y), return T((exact_t<T>(x) + exact_t<T>(y) + 1) >> 1);)
OST_OP(mulhi, (T x, T y), return T((wider_t<T>(x) * wider_t<T>(y)) >> (sizeof(T) * 8));)
OST_OP(madhi, (T x, T y, T z), return T(unsigned_t<T>(fn_mulhi::of(x, y)) + unsigned_t<T>(z));)
OST_OP(madsat, (T x, T y, T z), return saturated<T>(wider_t<T>(x) * wider_t<T>(y) + wider_t<T>(z));)
OST_OP(popcount, (T x), return T(__builtin_popcountll((unsigned long long)(unsigned_t<T>(x))));)
OST_OP(clz, (T x),
       constexpr int bits = sizeof(T) * 8;
       return T(x == 0 ? bits : __builtin_clzll((unsigned long long)(unsigned_t<T>(x)) | 0) - (64 - bits));)
OST_OP(ctz, (T x), constexpr int bits = sizeof(T) * 8;
       return T(x == 0 ? bits : __builtin_ctzll((unsigned long long)(unsigned_t<T>(x))));)
OST_OP(rotate, (T x, T by),
       constexpr unsigned mask = sizeof(T) * 8 - 1;
       unsigned_t<T> u = unsigned_t<T>(x);
       unsigned n = unsigned(by) & mask;
       return T(unsigned_t<T>(u << n) | unsigned_t<T>(u >> ((mask + 1 - n) & mask)));)
OST_OP(reverse_bits, (T x),
       uint64_t v = uint64_t(unsigned_t<T>(x));
       v = ((v >> 1) & 0x5555555555555555u) | ((v & 0x5555555555555555u) << 1);
       v = ((v >> 2) & 0x3333333333333333u) | ((v & 0x3333333333333333u) << 2);
       v = ((v >> 4) & 0x0f0f0f0f0f0f0f0fu) | ((v & 0x0f0f0f0f0f0f0f0fu) << 4);
       return T(__builtin_bswap64(v) >> (64 - sizeof(T) * 8));)
// clang-format on
#undef OST_OP

// 24-bit operands of a 32-bit type: what is above them is ignored.
struct fn_mul24 {
  static OST_FN constexpr int of(int x, int y) {
    return int(uint32_t(int32_t(uint32_t(x) << 8) >> 8) * uint32_t(int32_t(uint32_t(y) << 8) >> 8));
  }
  static OST_FN constexpr unsigned of(unsigned x, unsigned y) { return (x & 0xffffffu) * (y & 0xffffffu); }
};
struct fn_mad24 {
  template <class T> static OST_FN constexpr T of(T x, T y, T z) {
    return T(uint32_t(fn_mul24::of(x, y)) + uint32_t(z));
  }
};

}  // namespace __ost

namespace metal {

#define OST_INTEGER_1(name) OST_FUNCTION_1(name, fn_##name, integer_t)
#define OST_INTEGER_2(name) OST_FUNCTION_2(name, fn_##name, integer_t)
#define OST_INTEGER_3(name) OST_FUNCTION_3(name, fn_##name, integer_t)
// clang-format off
OST_INTEGER_1(popcount) OST_INTEGER_1(clz) OST_INTEGER_1(ctz) OST_INTEGER_1(reverse_bits)
OST_INTEGER_2(addsat) OST_INTEGER_2(subsat) OST_INTEGER_2(hadd) OST_INTEGER_2(rhadd) OST_INTEGER_2(mulhi)
OST_INTEGER_2(rotate)
OST_INTEGER_3(madhi) OST_INTEGER_3(madsat)
OST_SCALAR_2(int, mul24, fn_mul24) OST_SCALAR_2(uint, mul24, fn_mul24) OST_TEMPLATES_2(mul24, fn_mul24, integer_t)
OST_SCALAR_3(int, mad24, fn_mad24) OST_SCALAR_3(uint, mad24, fn_mad24) OST_TEMPLATES_3(mad24, fn_mad24, integer_t)
// clang-format on
#undef OST_INTEGER_1
#undef OST_INTEGER_2
#undef OST_INTEGER_3

        template <class A, class B, class V = __ost::integer_t<A, B>>
        OST_FN __ost::reshape_t<__ost::unsigned_t<__ost::elem_t<V>>, V> absdiff(A x, B y) {
  return static_cast<__ost::reshape_t<__ost::unsigned_t<__ost::elem_t<V>>, V>>(
      __ost::map<__ost::fn_absdiff>(static_cast<V>(x), static_cast<V>(y)));
}

// `bits` bits of x from `offset` on, sign-extended for signed types; the whole of x when the field is all of it, 0
// when empty.
template <class A, class V = __ost::integer_t<A>> OST_FN V extract_bits(A x, uint offset, uint bits) {
  typedef __ost::elem_t<V> T;
  constexpr uint width = sizeof(T) * 8;
  offset = offset < width ? offset : width - 1;
  bits = bits < width - offset ? bits : width - offset;
  if (bits == 0) return V(0);
  const T left = T(width - bits - offset), right = T(width - bits);
  typedef __ost::reshape_t<__ost::unsigned_t<T>, V> U;
  return static_cast<V>(static_cast<U>(static_cast<V>(x)) << static_cast<U>(V(left))) >> V(right);
}
// base with its field of `bits` bits from `offset` on replaced by the low bits of `insert`.
template <class A, class B, class V = __ost::integer_t<A, B>>
OST_FN V insert_bits(A base, B insert, uint offset, uint bits) {
  typedef __ost::elem_t<V> T;
  constexpr uint width = sizeof(T) * 8;
  offset = offset < width ? offset : width - 1;
  bits = bits < width - offset ? bits : width - offset;
  const uint64_t field = bits == 64 ? ~uint64_t(0) : ((uint64_t(1) << bits) - 1) << offset;
  const V mask = V(T(field));
  return (static_cast<V>(base) & ~mask) | ((static_cast<V>(insert) << V(T(offset))) & mask);
}

}  // namespace metal
