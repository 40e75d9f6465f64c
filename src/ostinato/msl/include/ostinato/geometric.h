// <metal_geometric>: dot, cross, length and their kin on vectors of float, half and bfloat. Sums of half and bfloat
// are kept in float and rounded once at the end.
#pragma once

namespace __ost {

template <class V> struct geometric {};
template <int N> struct geometric<metal::vec<float, N>> { typedef float type; };
template <int N> struct geometric<metal::vec<half, N>> { typedef half type; };
template <int N> struct geometric<metal::vec<bfloat, N>> { typedef bfloat type; };
// The scalar a geometric function of these vectors returns; none for other arguments.
template <class... A> using scalar_of_t = typename geometric<common_t<A...>>::type;

OST_FN constexpr float dot_float(float2 a, float2 b) { return a.x * b.x + a.y * b.y; }
OST_FN constexpr float dot_float(float3 a, float3 b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
OST_FN constexpr float dot_float(float4 a, float4 b) { return (a.x * b.x + a.y * b.y) + (a.z * b.z + a.w * b.w); }
template <class V> OST_FN constexpr auto as_float(V v) { return reshape_t<float, V>(v); }

}  // namespace __ost

namespace metal {

template <class A, class B> OST_FN constexpr __ost::scalar_of_t<A, B> dot(A x, B y) {
  typedef __ost::common_t<A, B> V;
  return __ost::scalar_of_t<A, B>(
      __ost::dot_float(__ost::as_float(static_cast<V>(x)), __ost::as_float(static_cast<V>(y))));
}
template <class A> OST_FN __ost::scalar_of_t<A> length_squared(A x) { return dot(x, x); }
template <class A> OST_FN __ost::scalar_of_t<A> length(A x) {
  auto f = __ost::as_float(static_cast<__ost::common_t<A>>(x));
  return __ost::scalar_of_t<A>(__builtin_sqrtf(__ost::dot_float(f, f)));
}
template <class A, class B> OST_FN __ost::scalar_of_t<A, B> distance_squared(A x, B y) {
  typedef __ost::common_t<A, B> V;
  return length_squared(static_cast<V>(x) - static_cast<V>(y));
}
template <class A, class B> OST_FN __ost::scalar_of_t<A, B> distance(A x, B y) {
  typedef __ost::common_t<A, B> V;
  return length(static_cast<V>(x) - static_cast<V>(y));
}
template <class A, class = __ost::scalar_of_t<A>> OST_FN __ost::common_t<A> normalize(A x) {
  auto f = __ost::as_float(static_cast<__ost::common_t<A>>(x));
  return static_cast<__ost::common_t<A>>(f * (1.0f / __builtin_sqrtf(__ost::dot_float(f, f))));
}
template <class A, class B, class = __ost::scalar_of_t<A, B>, typename __ost::only_if<__ost::arg<A>::n == 3>::type = 0>
OST_FN __ost::common_t<A, B> cross(A x, B y) {
  typedef __ost::common_t<A, B> V;
  V a = static_cast<V>(x), b = static_cast<V>(y);
  return V(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x);
}
template <class A, class B, class S = __ost::scalar_of_t<A, B>>
OST_FN __ost::common_t<A, B> reflect(A incident, B normal) {
  typedef __ost::common_t<A, B> V;
  V i = static_cast<V>(incident), n = static_cast<V>(normal);
  return i - S(2 * dot(n, i)) * n;
}
template <class A, class B, class S = __ost::scalar_of_t<A, B>>
OST_FN __ost::common_t<A, B> refract(A incident, B normal, __ost::common_t<S> eta) {
  typedef __ost::common_t<A, B> V;
  auto i = __ost::as_float(static_cast<V>(incident)), n = __ost::as_float(static_cast<V>(normal));
  float cosine = __ost::dot_float(n, i), e = float(eta);
  float k = 1.0f - e * e * (1.0f - cosine * cosine);
  return k < 0.0f ? V(0) : static_cast<V>(e * i - (e * cosine + __builtin_sqrtf(k)) * n);
}
template <class A, class B, class C, class S = __ost::scalar_of_t<A, B, C>>
OST_FN __ost::common_t<A, B, C> faceforward(A normal, B incident, C reference) {
  typedef __ost::common_t<A, B, C> V;
  V n = static_cast<V>(normal);
  return dot(static_cast<V>(reference), static_cast<V>(incident)) < S(0) ? n : -n;
}

}  // namespace metal
