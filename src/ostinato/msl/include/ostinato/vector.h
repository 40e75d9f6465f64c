// metal::vec<T, N> (float4, uint2, ...), its swizzles, and the packed_ types.
//
// A vec is its components, nothing else: the compiler's vectorisers make SIMD of it, across components inside one
// thread or across threads in a plain kernel's loop, whichever is wider. Everything but swizzles is constexpr. Size
// and alignment are Metal's (a 3-vector takes the room of a 4-vector). Scalars become vectors by themselves, vectors
// of another element type only by a constructor or cast.
//
// Swizzles of more than one component are union members over the same storage, only those the translated source uses:
// it defines __OST_SWIZZLES_2/3/4(S), lists of S(count, name, i0, i1, ...) valid on a 2-, 3- and 4-vector.
#pragma once

namespace metal {
template <class T, int N> struct vec;
}

namespace __ost {

using metal::vec;
template <class T, int N> struct packed_vec;

#ifndef OST_CHECK_SHIFT
#define OST_CHECK_SHIFT(amount, last) (void)0
#endif
// The bits of the amount by which a component is shifted.
template <class T> OST_FN constexpr T shift_amount(T bits) {
  constexpr T last = T(sizeof(T) * 8 - 1);
  OST_CHECK_SHIFT(bits, last);
  return T(bits & last);
}

// What `v.zyx` is: a view of the N components of a vec in another order. Reads as vec<T, count>; assigning writes
// through. It holds the whole vector, so that a copy (`auto p = v.xy;`) is a value of its own.
template <class T, int N, int... I> struct swizzle {
  typedef vec<T, int(sizeof...(I))> value_type;
  T __at[N];

  OST_FN constexpr operator value_type() const { return value_type(__at[I]...); }
  OST_FN constexpr T operator[](int i) const { return value_type(*this)[i]; }
  swizzle() = default;
  swizzle(const swizzle &) = default;
  OST_FN swizzle &operator=(const swizzle &other) { return *this = value_type(other); }
  OST_FN swizzle &operator=(value_type value) {
    static_assert(((1u << I) | ...) == ((1u << I) + ... + 0u), "a component may be written only once");
    int from = 0;
    ((__at[I] = value[from++]), ...);
    return *this;
  }
#define OST_SWIZZLE_ASSIGN(op) \
  OST_FN swizzle &operator op##=(value_type other) { return *this = value_type(*this) op other; }
  // clang-format off
  OST_SWIZZLE_ASSIGN(+) OST_SWIZZLE_ASSIGN(-) OST_SWIZZLE_ASSIGN(*) OST_SWIZZLE_ASSIGN(/) OST_SWIZZLE_ASSIGN(%)
  OST_SWIZZLE_ASSIGN(&) OST_SWIZZLE_ASSIGN(|) OST_SWIZZLE_ASSIGN(^) OST_SWIZZLE_ASSIGN(<<) OST_SWIZZLE_ASSIGN(>>)
  // clang-format on
#undef OST_SWIZZLE_ASSIGN
};

// The translator puts every swizzle that is only read through value(): there it is a vector like any other, for
// templates, `auto` and further swizzles. Everything else that is spelled alike (a struct's member `xy`) passes through.
template <class T> OST_FN constexpr T &&value(T &&x) { return static_cast<T &&>(x); }
template <class T, int N, int... I> OST_FN constexpr vec<T, int(sizeof...(I))> value(swizzle<T, N, I...> &x) {
  return x;
}
template <class T, int N, int... I> OST_FN constexpr vec<T, int(sizeof...(I))> value(const swizzle<T, N, I...> &x) {
  return x;
}
template <class T, int N, int... I> OST_FN constexpr vec<T, int(sizeof...(I))> value(swizzle<T, N, I...> &&x) {
  return x;
}

// The same for constants, where no other member of a union may be read.
template <int... I, class T, int N> OST_FN constexpr vec<T, int(sizeof...(I))> pick(const vec<T, N> &v) {
  return vec<T, int(sizeof...(I))>(v[I]...);
}

// How many components a constructor argument brings; 0 for what is no argument at all.
template <class A> struct lanes { static constexpr int value = scalar_kind<A>::value ? 1 : 0; };
template <class T, int N> struct lanes<metal::vec<T, N>> { static constexpr int value = N; };
template <class T, int N> struct lanes<packed_vec<T, N>> { static constexpr int value = N; };
template <class T, int N, int... I> struct lanes<swizzle<T, N, I...>> { static constexpr int value = sizeof...(I); };

template <class... A> struct part_list {
  static constexpr int count = sizeof...(A), total = (lanes<A>::value + ... + 0);
  static constexpr bool valid = ((lanes<A>::value > 0) && ...);
};
template <int N, class... A> struct fills {
  static constexpr bool value = part_list<A...>::valid && part_list<A...>::total == N;
};
// Several parts, not all of them scalars, that fill N components together.
template <int N, class... A> using if_parts =
    typename only_if<fills<N, A...>::value && part_list<A...>::count != N>::type;
template <int N, class... A> using if_fills = typename only_if<fills<N, A...>::value>::type;
// Fewer scalars than components, in braces: the rest is zero.
template <int N, class... A> using if_fewer =
    typename only_if<part_list<A...>::valid && part_list<A...>::total == part_list<A...>::count &&
                     (part_list<A...>::count < N)>::type;
// As many scalars as there are types.
template <class... A> using if_scalars = if_fills<part_list<A...>::count, A...>;

template <class T, int N> struct parts {
  T at[N] = {};
  int n = 0;
  template <class S, if_scalar<S> = 0> OST_FN constexpr void put(S s) { at[n++] = T(s); }
  template <class U, int M> OST_FN constexpr void put(metal::vec<U, M> v) {
    for (int i = 0; i < M; i++) at[n++] = T(v[i]);
  }
  template <class U, int M> OST_FN constexpr void put(packed_vec<U, M> v) { put(metal::vec<U, M>(v)); }
  template <class U, int M, int... I> OST_FN constexpr void put(swizzle<U, M, I...> v) {
    put(metal::vec<U, int(sizeof...(I))>(v));
  }
};

}  // namespace __ost

// A union over members that write through has no assignment of its own; without them the compiler's stays. It takes the
// vector by value: read whole before anything is written, one access of memory and not one a component.
#ifdef __OST_SWIZZLES_2
#define OST_VEC_ASSIGN_2 OST_FN constexpr vec &operator=(vec v) { OST_EACH_2(OST_COPY, ); return *this; }
#else
#define OST_VEC_ASSIGN_2 vec &operator=(const vec &) = default;
#define __OST_SWIZZLES_2(S)
#endif
#ifdef __OST_SWIZZLES_3
#define OST_VEC_ASSIGN_3 OST_FN constexpr vec &operator=(vec v) { OST_EACH_3(OST_COPY, ); return *this; }
#else
#define OST_VEC_ASSIGN_3 vec &operator=(const vec &) = default;
#define __OST_SWIZZLES_3(S)
#endif
#ifdef __OST_SWIZZLES_4
#define OST_VEC_ASSIGN_4 OST_FN constexpr vec &operator=(vec v) { OST_EACH_4(OST_COPY, ); return *this; }
#else
#define OST_VEC_ASSIGN_4 vec &operator=(const vec &) = default;
#define __OST_SWIZZLES_4(S)
#endif
#define OST_SWIZZLE_2(count, name, ...) __ost::swizzle<T, 2, __VA_ARGS__> name;
#define OST_SWIZZLE_3(count, name, ...) __ost::swizzle<T, 3, __VA_ARGS__> name;
#define OST_SWIZZLE_4(count, name, ...) __ost::swizzle<T, 4, __VA_ARGS__> name;

#define OST_EACH_2(M, op) M(x, op), M(y, op)
#define OST_EACH_3(M, op) M(x, op), M(y, op), M(z, op)
#define OST_EACH_4(M, op) M(x, op), M(y, op), M(z, op), M(w, op)
#define OST_BINARY(c, op) T(p.c op q.c)
#define OST_SHIFT(c, op) T(p.c op __ost::shift_amount(q.c))
#define OST_COMPARE(c, op) (p.c op q.c)
#define OST_UNARY(c, op) T(op p.c)
#define OST_NOT(c, op) (!p.c)
#define OST_INIT(c, op) c(T(v.c))
#define OST_SPLAT(c, op) c(T(s))
#define OST_COPY(c, op) c = v.c

#define OST_VEC_BINARY(EACH, op)                                                                            \
  friend OST_FN constexpr vec operator op(vec p, vec q) { return vec(EACH(OST_BINARY, op)); }               \
  OST_FN constexpr vec &operator op##=(vec q) { return *this = *this op q; }
#define OST_VEC_SHIFT(EACH, op)                                                                             \
  friend OST_FN constexpr vec operator op(vec p, vec q) { return vec(EACH(OST_SHIFT, op)); }                \
  OST_FN constexpr vec &operator op##=(vec q) { return *this = *this op q; }
#define OST_VEC_COMPARE(EACH, N, op) \
  friend OST_FN constexpr vec<bool, N> operator op(vec p, vec q) { return vec<bool, N>(EACH(OST_COMPARE, op)); }

#define OST_VEC_MEMBERS(N, EACH)                                                                            \
  vec() = default;                                                                                          \
  vec(const vec &) = default;                                                                               \
  OST_VEC_ASSIGN_##N                                                                                        \
  template <class S, __ost::if_scalar<S> = 0> OST_FN constexpr vec(S s) : EACH(OST_SPLAT, ) {}              \
  template <class U> OST_FN explicit constexpr vec(vec<U, N> v) : EACH(OST_INIT, ) {}                       \
  template <class U> OST_FN explicit constexpr vec(packed_vec<U, N> v) : EACH(OST_INIT, ) {}                \
  template <class U, int M, int... I, typename __ost::only_if<sizeof...(I) == N>::type = 0>                 \
  OST_FN explicit constexpr vec(__ost::swizzle<U, M, I...> v) : vec(vec<U, N>(v.__at[I]...)) {}                    \
  template <class A, class B, class... R, __ost::if_parts<N, A, B, R...> = 0>                               \
  OST_FN constexpr vec(A first, B second, R... rest) : vec() {                                              \
    __ost::parts<T, N> all;                                                                                 \
    all.put(first), all.put(second), (all.put(rest), ...);                                                  \
    for (int i = 0; i < N; i++) (*this)[i] = all.at[i];                                                     \
  }                                                                                                         \
  OST_VEC_BINARY(EACH, +) OST_VEC_BINARY(EACH, -) OST_VEC_BINARY(EACH, *) OST_VEC_BINARY(EACH, /)           \
  OST_VEC_BINARY(EACH, %) OST_VEC_BINARY(EACH, &) OST_VEC_BINARY(EACH, |) OST_VEC_BINARY(EACH, ^)           \
  OST_VEC_SHIFT(EACH, <<) OST_VEC_SHIFT(EACH, >>)                                                           \
  OST_VEC_COMPARE(EACH, N, ==) OST_VEC_COMPARE(EACH, N, !=) OST_VEC_COMPARE(EACH, N, <)                     \
  OST_VEC_COMPARE(EACH, N, >) OST_VEC_COMPARE(EACH, N, <=) OST_VEC_COMPARE(EACH, N, >=)                     \
  OST_VEC_COMPARE(EACH, N, &&) OST_VEC_COMPARE(EACH, N, ||)                                                 \
  friend OST_FN constexpr vec operator-(vec p) { return vec(EACH(OST_UNARY, -)); }                          \
  friend OST_FN constexpr vec operator+(vec p) { return p; }                                                \
  friend OST_FN constexpr vec operator~(vec p) { return vec(EACH(OST_UNARY, ~)); }                          \
  friend OST_FN constexpr vec<bool, N> operator!(vec p) { return vec<bool, N>(EACH(OST_NOT, )); }           \
  OST_FN constexpr vec &operator++() { return *this += vec(1); }                                            \
  OST_FN constexpr vec &operator--() { return *this -= vec(1); }                                            \
  OST_FN constexpr vec operator++(int) { vec old = *this; ++*this; return old; }                            \
  OST_FN constexpr vec operator--(int) { vec old = *this; --*this; return old; }

namespace metal {

using __ost::packed_vec;
template <class T> struct alignas(2 * sizeof(T)) vec<T, 2> {
  typedef T value_type;
  union {
    struct { T x, y; };
    struct { T r, g; };
    T __at[2];
    __OST_SWIZZLES_2(OST_SWIZZLE_2)
  };
  template <class A, class B, __ost::if_scalars<A, B> = 0> OST_FN constexpr vec(A a, B b) : x(T(a)), y(T(b)) {}
  OST_VEC_MEMBERS(2, OST_EACH_2)
  OST_FN constexpr T &operator[](int i) { return __builtin_is_constant_evaluated() ? (i == 0 ? x : y) : __at[i]; }
  OST_FN constexpr const T &operator[](int i) const {
    return __builtin_is_constant_evaluated() ? (i == 0 ? x : y) : __at[i];
  }
};

template <class T> struct alignas(4 * sizeof(T)) vec<T, 3> {
  typedef T value_type;
  union {
    struct { T x, y, z; };
    struct { T r, g, b; };
    T __at[3];
    __OST_SWIZZLES_3(OST_SWIZZLE_3)
  };
  template <class A, class B, class C, __ost::if_scalars<A, B, C> = 0>
  OST_FN constexpr vec(A a, B b, C c) : x(T(a)), y(T(b)), z(T(c)) {}
  template <class A, class B, __ost::if_fewer<3, A, B> = 0> OST_FN constexpr vec(A a, B b) : vec(a, b, T(0)) {}
  OST_VEC_MEMBERS(3, OST_EACH_3)
  OST_FN constexpr T &operator[](int i) {
    return __builtin_is_constant_evaluated() ? (i == 0 ? x : i == 1 ? y : z) : __at[i];
  }
  OST_FN constexpr const T &operator[](int i) const {
    return __builtin_is_constant_evaluated() ? (i == 0 ? x : i == 1 ? y : z) : __at[i];
  }
};

template <class T> struct alignas(4 * sizeof(T)) vec<T, 4> {
  typedef T value_type;
  union {
    struct { T x, y, z, w; };
    struct { T r, g, b, a; };
    T __at[4];
    __OST_SWIZZLES_4(OST_SWIZZLE_4)
  };
  template <class A, class B, class C, class D, __ost::if_scalars<A, B, C, D> = 0>
  OST_FN constexpr vec(A a, B b, C c, D d) : x(T(a)), y(T(b)), z(T(c)), w(T(d)) {}
  template <class A, class B, __ost::if_fewer<4, A, B> = 0> OST_FN constexpr vec(A a, B b) : vec(a, b, T(0), T(0)) {}
  template <class A, class B, class C, __ost::if_fewer<4, A, B, C> = 0>
  OST_FN constexpr vec(A a, B b, C c) : vec(a, b, c, T(0)) {}
  OST_VEC_MEMBERS(4, OST_EACH_4)
  OST_FN constexpr T &operator[](int i) {
    return __builtin_is_constant_evaluated() ? (i == 0 ? x : i == 1 ? y : i == 2 ? z : w) : __at[i];
  }
  OST_FN constexpr const T &operator[](int i) const {
    return __builtin_is_constant_evaluated() ? (i == 0 ? x : i == 1 ? y : i == 2 ? z : w) : __at[i];
  }
};

// A vector of one component is its component's type with an index; template code instantiates it.
template <class T> struct vec<T, 1> {
  typedef T value_type;
  union { T x, r; };
  vec() = default;
  template <class S, __ost::if_scalar<S> = 0> OST_FN constexpr vec(S s) : x(T(s)) {}
  OST_FN constexpr operator T() const { return x; }
  OST_FN constexpr T &operator[](int) { return x; }
  OST_FN constexpr const T &operator[](int) const { return x; }
};

}  // namespace metal

namespace __ost {

// Tight layout with the alignment of T; becomes a vec for every operation.
#define OST_PACKED_MEMBERS(N, EACH)                                                                         \
  packed_vec() = default;                                                                                   \
  template <class S, __ost::if_scalar<S> = 0> OST_FN constexpr packed_vec(S s) : EACH(OST_SPLAT, ) {}       \
  OST_FN constexpr packed_vec(vec<T, N> v) : EACH(OST_INIT, ) {}                                            \
  template <class U> OST_FN explicit constexpr packed_vec(vec<U, N> v) : EACH(OST_INIT, ) {}                \
  template <class U, int M, int... I> OST_FN constexpr packed_vec(swizzle<U, M, I...> v)                    \
      : packed_vec(vec<T, N>(v)) {}                                                                         \
  template <class A, class B, class... R, __ost::if_fills<N, A, B, R...> = 0>                               \
  OST_FN constexpr packed_vec(A p, B q, R... rest) : packed_vec(vec<T, N>(p, q, rest...)) {}                \
  OST_FN constexpr operator vec<T, N>() const { return vec<T, N>(EACH(OST_MEMBER, )); }                     \
  OST_FN T &operator[](int i) { return (&x)[i]; }                                                           \
  OST_FN const T &operator[](int i) const { return (&x)[i]; }                                               \
  OST_PACKED_ASSIGN(N, +) OST_PACKED_ASSIGN(N, -) OST_PACKED_ASSIGN(N, *) OST_PACKED_ASSIGN(N, /)           \
  OST_PACKED_ASSIGN(N, %) OST_PACKED_ASSIGN(N, &) OST_PACKED_ASSIGN(N, |) OST_PACKED_ASSIGN(N, ^)           \
  OST_PACKED_ASSIGN(N, <<) OST_PACKED_ASSIGN(N, >>)
#define OST_MEMBER(c, op) c
#define OST_PACKED_ASSIGN(N, op) \
  OST_FN constexpr packed_vec &operator op##=(vec<T, N> v) { return *this = vec<T, N>(*this) op v; }

template <class T> struct packed_vec<T, 2> {
  union { T x, r; };
  union { T y, g; };
  OST_PACKED_MEMBERS(2, OST_EACH_2)
};
template <class T> struct packed_vec<T, 3> {
  union { T x, r; };
  union { T y, g; };
  union { T z, b; };
  OST_PACKED_MEMBERS(3, OST_EACH_3)
};
template <class T> struct packed_vec<T, 4> {
  union { T x, r; };
  union { T y, g; };
  union { T z, b; };
  union { T w, a; };
  OST_PACKED_MEMBERS(4, OST_EACH_4)
};

}  // namespace __ost

#undef OST_SWIZZLE_2
#undef OST_SWIZZLE_3
#undef OST_SWIZZLE_4
#undef OST_EACH_2
#undef OST_EACH_3
#undef OST_EACH_4
#undef OST_BINARY
#undef OST_COMPARE
#undef OST_UNARY
#undef OST_NOT
#undef OST_INIT
#undef OST_SPLAT
#undef OST_COPY
#undef OST_MEMBER
#undef OST_VEC_ASSIGN_2
#undef OST_VEC_ASSIGN_3
#undef OST_VEC_ASSIGN_4
#undef OST_VEC_BINARY
#undef OST_VEC_COMPARE
#undef OST_VEC_MEMBERS
#undef OST_PACKED_ASSIGN
#undef OST_PACKED_MEMBERS

namespace __ost {

// Swizzles and packed vectors stand for the vec they read as.
template <class A> struct stands_for {
  typedef A type;
  static constexpr bool proxy = false;
};
template <class T, int N, int... I> struct stands_for<swizzle<T, N, I...>> {
  typedef metal::vec<T, int(sizeof...(I))> type;
  static constexpr bool proxy = true;
};
template <class T, int N> struct stands_for<packed_vec<T, N>> {
  typedef metal::vec<T, N> type;
  static constexpr bool proxy = true;
};
template <class A> using value_t = typename stands_for<A>::type;
template <class A, class B> using if_proxies = typename only_if<stands_for<A>::proxy || stands_for<B>::proxy>::type;
template <class A> using if_proxy = typename only_if<stands_for<A>::proxy>::type;

#define OST_PROXY_BINARY(op)                                                            \
  template <class A, class B, if_proxies<A, B> = 0>                              \
  OST_FN constexpr auto operator op(const A &a, const B &b) {                           \
    return static_cast<value_t<A>>(a) op static_cast<value_t<B>>(b);      \
  }
// clang-format off
OST_PROXY_BINARY(+) OST_PROXY_BINARY(-) OST_PROXY_BINARY(*) OST_PROXY_BINARY(/) OST_PROXY_BINARY(%)
OST_PROXY_BINARY(&) OST_PROXY_BINARY(|) OST_PROXY_BINARY(^) OST_PROXY_BINARY(<<) OST_PROXY_BINARY(>>)
OST_PROXY_BINARY(==) OST_PROXY_BINARY(!=) OST_PROXY_BINARY(<) OST_PROXY_BINARY(>) OST_PROXY_BINARY(<=)
OST_PROXY_BINARY(>=) OST_PROXY_BINARY(&&) OST_PROXY_BINARY(||)
// clang-format on
#undef OST_PROXY_BINARY
#define OST_PROXY_UNARY(op) \
  template <class A, if_proxy<A> = 0> OST_FN constexpr auto operator op(const A &a) { return op value_t<A>(a); }
OST_PROXY_UNARY(-)
OST_PROXY_UNARY(+)
OST_PROXY_UNARY(~)
OST_PROXY_UNARY(!)
#undef OST_PROXY_UNARY

}  // namespace __ost

namespace metal {

// Shifting by a vector of another integer type.
template <class T, class U, int N, typename __ost::only_if<!__is_same(T, U)>::type = 0>
OST_FN constexpr vec<T, N> operator<<(vec<T, N> a, vec<U, N> b) {
  return a << vec<T, N>(b);
}
template <class T, class U, int N, typename __ost::only_if<!__is_same(T, U)>::type = 0>
OST_FN constexpr vec<T, N> operator>>(vec<T, N> a, vec<U, N> b) {
  return a >> vec<T, N>(b);
}

}  // namespace metal

// The names of the vector types are global in MSL.
#define OST_VECTOR_NAMES(name, type)                                                                            \
  namespace metal {                                                                                             \
  typedef vec<type, 2> name##2; typedef vec<type, 3> name##3; typedef vec<type, 4> name##4;                     \
  typedef packed_vec<type, 2> packed_##name##2; typedef packed_vec<type, 3> packed_##name##3;                   \
  typedef packed_vec<type, 4> packed_##name##4;                                                                 \
  }                                                                                                             \
  using metal::name##2; using metal::name##3; using metal::name##4;                                             \
  using metal::packed_##name##2; using metal::packed_##name##3; using metal::packed_##name##4;
OST_VECTOR_NAMES(bool, bool)
OST_VECTOR_NAMES(char, char)
OST_VECTOR_NAMES(uchar, uchar)
OST_VECTOR_NAMES(short, short)
OST_VECTOR_NAMES(ushort, ushort)
OST_VECTOR_NAMES(int, int)
OST_VECTOR_NAMES(uint, uint)
OST_VECTOR_NAMES(long, long)
OST_VECTOR_NAMES(ulong, ulong)
OST_VECTOR_NAMES(half, half)
OST_VECTOR_NAMES(bfloat, bfloat)
OST_VECTOR_NAMES(float, float)
#undef OST_VECTOR_NAMES

namespace metal {
#define OST_USING(name) using OST_ROOT::name;
// clang-format off
OST_USING(uchar) OST_USING(ushort) OST_USING(uint) OST_USING(ulong) OST_USING(half) OST_USING(bfloat) OST_USING(size_t)
OST_USING(ptrdiff_t) OST_USING(int8_t) OST_USING(uint8_t) OST_USING(int16_t) OST_USING(uint16_t) OST_USING(int32_t)
OST_USING(uint32_t) OST_USING(int64_t) OST_USING(uint64_t)
// clang-format on
#undef OST_USING
}  // namespace metal
