// The common type of the arguments of library functions. Library functions are templates over their arguments;
// these rules choose the one type the function works in, as Metal's overload sets would, and remove the function from
// the overload set when an argument is not an MSL value (so that a user's overloads for other types are chosen).
//
//   scalars:       equal types stay (no promotion of short or half); others convert as in C++ arithmetic; double is float
//   vectors:       scalars widen to the vector's element type; two vectors must agree
//   swizzles and packed vectors count as vectors; enumerations as int
//
// A library function exists three times, so that it ranks against a shader's own template of the same name as Metal's
// would, where it is no template: for scalars of one type as a plain function, which wins; for vectors of one type as a
// template for vectors, which is the more special one; for everything else as a template with an empty pack at its end
// (`none`), which gives way to any other template. bfloat is among the rest: Metal leaves its functions to shaders.
#pragma once

namespace __ost {

template <class T, int N> struct shape {
  typedef T elem;
  static constexpr int n = N;
  typedef metal::vec<T, N> type;
};
template <class T> struct shape<T, 1> {
  typedef T elem;
  static constexpr int n = 1;
  typedef T type;
};

struct nothing {};
template <class... None> using none = typename only_if<sizeof...(None) == 0>::type;
template <class A> struct arg
    : metal::conditional_t<__is_enum(A), shape<int, 1>,
                           metal::conditional_t<(scalar_kind<A>::value > 0), shape<A, 1>, nothing>> {};
template <> struct arg<double> : shape<float, 1> {};
template <class T> struct arg<const T> : arg<T> {};
template <class T> struct arg<volatile T> : arg<T> {};
template <class T, int N> struct arg<metal::vec<T, N>> : shape<T, N> {};
template <class T, int N> struct arg<packed_vec<T, N>> : shape<T, N> {};
template <class T, int N, int... I> struct arg<swizzle<T, N, I...>> : shape<T, int(sizeof...(I))> {};

template <class A, class B> struct meet_scalars { typedef decltype(A() + B()) type; };
template <class A> struct meet_scalars<A, A> { typedef A type; };

// The common shape of two shapes; no type if there is none.
template <class A, class B, int NA, int NB> struct meet_shapes {};
template <class A, class B> struct meet_shapes<A, B, 1, 1> : shape<typename meet_scalars<A, B>::type, 1> {};
template <class A, class B, int N> struct meet_shapes<A, B, N, 1> : shape<A, N> {};
template <class A, class B, int N> struct meet_shapes<A, B, 1, N> : shape<B, N> {};
template <class A, int N> struct meet_shapes<A, A, N, N> : shape<A, N> {};
template <class A> struct meet_shapes<A, A, 1, 1> : shape<A, 1> {};

template <class A, class B, class = void> struct meet2 {};
template <class A, class B>
struct meet2<A, B, void_t<typename arg<A>::elem, typename arg<B>::elem>>
    : meet_shapes<typename arg<A>::elem, typename arg<B>::elem, arg<A>::n, arg<B>::n> {};

template <class A, class B> using meet2_t = typename meet2<A, B>::type;

// The common type of the arguments.
template <class...> struct meet {};
template <class A> struct meet<A> : arg<A> {};
template <class A, class B> struct meet<A, B> : meet2<A, B> {};
template <class A, class B, class C, class = void> struct meet3 {};
template <class A, class B, class C> struct meet3<A, B, C, void_t<meet2_t<A, B>>> : meet2<meet2_t<A, B>, C> {};
template <class A, class B, class C> struct meet<A, B, C> : meet3<A, B, C> {};
template <class... A> using common_t = typename meet<A...>::type;

// Scalar integers where a floating-point function is called: float.
template <class E, int N> struct floating_shape {};
template <int N> struct floating_shape<float, N> : shape<float, N> {};
template <int N> struct floating_shape<half, N> : shape<half, N> {};
template <int N> struct floating_shape<bfloat, N> : shape<bfloat, N> {};
template <class E, class = void> struct floating_scalar {};
template <class E> struct floating_scalar<
    E, metal::enable_if_t<(scalar_kind<E>::value >= 1 && scalar_kind<E>::value <= 3)>> : shape<float, 1> {};
template <class E> struct floating_scalar<E, metal::enable_if_t<(scalar_kind<E>::value >= 4)>> : shape<E, 1> {};
template <class E> struct floating_shape<E, 1> : floating_scalar<E> {};
template <> struct floating_shape<float, 1> : shape<float, 1> {};
template <> struct floating_shape<half, 1> : shape<half, 1> {};
template <> struct floating_shape<bfloat, 1> : shape<bfloat, 1> {};
template <class M, class = void> struct floating_of {};
template <class M> struct floating_of<M, void_t<typename M::elem>> : floating_shape<typename M::elem, M::n> {};

// The type a floating-point function works in and returns.
template <class... A> using floating_t = typename floating_of<meet<A...>>::type;
// The same for functions whose result is not exact in bfloat: scalar bfloat arguments give float, as in Metal, where
// such functions exist for float only and bfloat converts to it.
template <class V> struct inexact { typedef V type; };
template <> struct inexact<bfloat> { typedef float type; };
template <class... A> using inexact_t = typename inexact<floating_t<A...>>::type;

template <class M, bool Integer> struct integer_of {};
template <class M> struct integer_of<M, true> { typedef typename M::type type; };
template <class M, class = void> struct integer_checked {};
template <class M> struct integer_checked<M, void_t<typename M::elem>>
    : integer_of<M, (scalar_kind<typename M::elem>::value >= 1 && scalar_kind<typename M::elem>::value <= 3)> {};
template <class... A> using integer_t = typename integer_checked<meet<A...>>::type;

// vec<R, N> or R, of the shape of V.
template <class R, class V> struct reshape { typedef R type; };
template <class R, class T, int N> struct reshape<R, metal::vec<T, N>> { typedef metal::vec<R, N> type; };
template <class R, class V> using reshape_t = typename reshape<R, V>::type;

// Op::of applied to each component. Op::of(float) serves half and bfloat too: they convert, and the result is rounded
// back.
template <class Op, class R, class T> OST_FN constexpr R map_to(T a) { return R(Op::of(a)); }
template <class Op, class R, class T> OST_FN constexpr R map_to(T a, T b) { return R(Op::of(a, b)); }
template <class Op, class R, class T> OST_FN constexpr R map_to(T a, T b, T c) { return R(Op::of(a, b, c)); }
#define OST_MAP(N, ...)                                                                                             \
  template <class Op, class R, class T> OST_FN constexpr metal::vec<R, N> map_to(metal::vec<T, N> a) {              \
    return metal::vec<R, N>(__VA_ARGS__(OST_MAP_1));                                                                \
  }                                                                                                                 \
  template <class Op, class R, class T>                                                                             \
  OST_FN constexpr metal::vec<R, N> map_to(metal::vec<T, N> a, metal::vec<T, N> b) {                                \
    return metal::vec<R, N>(__VA_ARGS__(OST_MAP_2));                                                                \
  }                                                                                                                 \
  template <class Op, class R, class T>                                                                             \
  OST_FN constexpr metal::vec<R, N> map_to(metal::vec<T, N> a, metal::vec<T, N> b, metal::vec<T, N> c) {            \
    return metal::vec<R, N>(__VA_ARGS__(OST_MAP_3));                                                                \
  }
#define OST_MAP_1(i) R(Op::of(a.i))
#define OST_MAP_2(i) R(Op::of(a.i, b.i))
#define OST_MAP_3(i) R(Op::of(a.i, b.i, c.i))
#define OST_MAP_OVER_2(M) M(x), M(y)
#define OST_MAP_OVER_3(M) M(x), M(y), M(z)
#define OST_MAP_OVER_4(M) M(x), M(y), M(z), M(w)
OST_MAP(2, OST_MAP_OVER_2)
OST_MAP(3, OST_MAP_OVER_3)
OST_MAP(4, OST_MAP_OVER_4)
#undef OST_MAP
#undef OST_MAP_1
#undef OST_MAP_2
#undef OST_MAP_3
#undef OST_MAP_OVER_2
#undef OST_MAP_OVER_3
#undef OST_MAP_OVER_4

template <class V> struct elem_of { typedef V type; };
template <class T, int N> struct elem_of<metal::vec<T, N>> { typedef T type; };
template <class V> using elem_t = typename elem_of<V>::type;

template <class Op, class V> OST_FN constexpr V map(V a) { return map_to<Op, elem_t<V>>(a); }
template <class Op, class V> OST_FN constexpr V map(V a, V b) { return map_to<Op, elem_t<V>>(a, b); }
template <class Op, class V> OST_FN constexpr V map(V a, V b, V c) { return map_to<Op, elem_t<V>>(a, b, c); }

}  // namespace __ost

// M(T, name, fn) for each scalar type T that a function of a kind has a plain overload for.
#define OST_EACH_FLOAT(M, name, fn) M(float, name, fn) M(half, name, fn)
#define OST_EACH_INTEGER(M, name, fn)                                                                                 \
  M(char, name, fn) M(signed char, name, fn) M(uchar, name, fn) M(short, name, fn) M(ushort, name, fn)               \
  M(int, name, fn) M(uint, name, fn) M(long, name, fn) M(ulong, name, fn) M(long long, name, fn)                     \
  M(unsigned long long, name, fn)
#define OST_EACH_floating_t OST_EACH_FLOAT
#define OST_EACH_inexact_t OST_EACH_FLOAT
#define OST_EACH_integer_t OST_EACH_INTEGER
#define OST_EACH_common_t(M, name, fn) OST_EACH_FLOAT(M, name, fn) OST_EACH_INTEGER(M, name, fn)

// A function of one, two or three arguments that applies __ost::fn to each component, in the type that a rule above gives.
#define OST_SCALAR_1(T, name, fn) OST_FN T name(T x) { return static_cast<T>(__ost::fn::of(x)); }
#define OST_SCALAR_2(T, name, fn) OST_FN T name(T x, T y) { return static_cast<T>(__ost::fn::of(x, y)); }
#define OST_SCALAR_3(T, name, fn) OST_FN T name(T x, T y, T z) { return static_cast<T>(__ost::fn::of(x, y, z)); }
#define OST_TEMPLATES_1(name, fn, rule)                                                                               \
  template <class T, int N> OST_FN __ost::rule<vec<T, N>> name(vec<T, N> x) { return __ost::map<__ost::fn>(x); }      \
  template <class A, class... None, __ost::none<None...> = 0> OST_FN __ost::rule<A> name(A x, None...) {              \
    return __ost::map<__ost::fn>(static_cast<__ost::rule<A>>(x));                                                     \
  }
#define OST_TEMPLATES_2(name, fn, rule)                                                                               \
  template <class T, int N> OST_FN __ost::rule<vec<T, N>> name(vec<T, N> x, vec<T, N> y) {                            \
    return __ost::map<__ost::fn>(x, y);                                                                               \
  }                                                                                                                   \
  template <class A, class B, class... None, __ost::none<None...> = 0>                                                \
  OST_FN __ost::rule<A, B> name(A x, B y, None...) {                                                                  \
    typedef __ost::rule<A, B> V;                                                                                      \
    return __ost::map<__ost::fn>(static_cast<V>(x), static_cast<V>(y));                                               \
  }
#define OST_TEMPLATES_3(name, fn, rule)                                                                               \
  template <class T, int N> OST_FN __ost::rule<vec<T, N>> name(vec<T, N> x, vec<T, N> y, vec<T, N> z) {               \
    return __ost::map<__ost::fn>(x, y, z);                                                                            \
  }                                                                                                                   \
  template <class A, class B, class C, class... None, __ost::none<None...> = 0>                                       \
  OST_FN __ost::rule<A, B, C> name(A x, B y, C z, None...) {                                                          \
    typedef __ost::rule<A, B, C> V;                                                                                   \
    return __ost::map<__ost::fn>(static_cast<V>(x), static_cast<V>(y), static_cast<V>(z));                            \
  }
#define OST_FUNCTION_1(name, fn, rule) OST_EACH_##rule(OST_SCALAR_1, name, fn) OST_TEMPLATES_1(name, fn, rule)
#define OST_FUNCTION_2(name, fn, rule) OST_EACH_##rule(OST_SCALAR_2, name, fn) OST_TEMPLATES_2(name, fn, rule)
#define OST_FUNCTION_3(name, fn, rule) OST_EACH_##rule(OST_SCALAR_3, name, fn) OST_TEMPLATES_3(name, fn, rule)
