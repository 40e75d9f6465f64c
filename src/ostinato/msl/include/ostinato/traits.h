// <metal_type_traits>: compile-time questions about types. Same names and meaning as in the C++ standard library, but
// that a vector is what its components are (floating point, integral, signed); is_scalar tells them apart. half and
// bfloat count as floating point and arithmetic. Only what Metal has: well-known shaders add the rest (is_empty,
// void_t, ...) to namespace metal themselves.
#pragma once

namespace metal {
template <class T, int N> struct vec;
}

namespace __ost {
template <class...> using void_t = void;
template <class T, int N> struct packed_vec;

// Components of a vector type, 0 for any other; and the scalar_kind of a scalar or of the components.
template <class T> struct components { static constexpr int count = 0, kind = scalar_kind<T>::value; };
template <class T, int N> struct components<metal::vec<T, N>> {
  static constexpr int count = N, kind = scalar_kind<T>::value;
};
template <class T, int N> struct components<packed_vec<T, N>> : components<metal::vec<T, N>> {};
template <class T> struct components<const T> : components<T> {};
template <class T> struct components<volatile T> : components<T> {};
template <class T> struct components<const volatile T> : components<T> {};
// A type that has no name of its own, where C++ wants a name: itself<float[3]>{1, 2, 3}.
template <class T> using itself = T;
}  // namespace __ost

namespace metal {

template <class T, T V> struct integral_constant {
  static constexpr T value = V;
  typedef T value_type;
  typedef integral_constant type;
  OST_FN constexpr operator T() const { return V; }
  OST_FN constexpr T operator()() const { return V; }
};
template <bool B> using bool_constant = integral_constant<bool, B>;
typedef bool_constant<true> true_type;
typedef bool_constant<false> false_type;

template <bool B, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { typedef T type; };
template <bool B, class T = void> using enable_if_t = typename enable_if<B, T>::type;
template <bool B, class T, class F> struct conditional { typedef T type; };
template <class T, class F> struct conditional<false, T, F> { typedef F type; };
template <bool B, class T, class F> using conditional_t = typename conditional<B, T, F>::type;

template <class...> struct conjunction : true_type {};
template <class A> struct conjunction<A> : A {};
template <class A, class... R> struct conjunction<A, R...> : conditional_t<bool(A::value), conjunction<R...>, A> {};
template <class...> struct disjunction : false_type {};
template <class A> struct disjunction<A> : A {};
template <class A, class... R> struct disjunction<A, R...> : conditional_t<bool(A::value), A, disjunction<R...>> {};
template <class A> struct negation : bool_constant<!bool(A::value)> {};
template <class... A> using _disjunction = disjunction<A...>;
template <class... A> using _conjunction = conjunction<A...>;

template <class T> struct remove_const { typedef T type; };
template <class T> struct remove_const<const T> { typedef T type; };
template <class T> struct remove_volatile { typedef T type; };
template <class T> struct remove_volatile<volatile T> { typedef T type; };
template <class T> struct remove_cv { typedef typename remove_const<typename remove_volatile<T>::type>::type type; };
template <class T> struct remove_reference { typedef T type; };
template <class T> struct remove_reference<T &> { typedef T type; };
template <class T> struct remove_reference<T &&> { typedef T type; };
template <class T> struct remove_pointer { typedef T type; };
template <class T> struct remove_pointer<T *> { typedef T type; };
template <class T> struct remove_pointer<T *const> { typedef T type; };
template <class T> struct remove_extent { typedef T type; };
template <class T> struct remove_extent<T[]> { typedef T type; };
template <class T, size_t N> struct remove_extent<T[N]> { typedef T type; };
template <class T> struct add_const { typedef const T type; };
template <class T> struct add_volatile { typedef volatile T type; };
template <class T> struct add_cv { typedef const volatile T type; };
template <class T> struct add_pointer { typedef typename remove_reference<T>::type *type; };
template <class T> struct add_lvalue_reference { typedef T &type; };
template <class T> struct add_rvalue_reference { typedef T &&type; };
// Address spaces are gone once a kernel is C++: nothing to remove.
template <class T> struct remove_addrspace { typedef T type; };

template <class T> using remove_const_t = typename remove_const<T>::type;
template <class T> using remove_volatile_t = typename remove_volatile<T>::type;
template <class T> using remove_cv_t = typename remove_cv<T>::type;
template <class T> using remove_reference_t = typename remove_reference<T>::type;
template <class T> using remove_cvref_t = remove_cv_t<remove_reference_t<T>>;
template <class T> using remove_pointer_t = typename remove_pointer<T>::type;
template <class T> using remove_extent_t = typename remove_extent<T>::type;
template <class T> using add_const_t = typename add_const<T>::type;
template <class T> using add_cv_t = typename add_cv<T>::type;
template <class T> using add_pointer_t = typename add_pointer<T>::type;
template <class T> using add_lvalue_reference_t = typename add_lvalue_reference<T>::type;
template <class T> using remove_addrspace_t = typename remove_addrspace<T>::type;
template <class T> using remove_address_space_t = typename remove_addrspace<T>::type;

template <class T> typename add_rvalue_reference<T>::type declval() noexcept;

template <class T> struct decay { typedef remove_cv_t<T> type; };
template <class T> struct decay<T &> : decay<T> {};
template <class T> struct decay<T &&> : decay<T> {};
template <class T> struct decay<T[]> { typedef T *type; };
template <class T, size_t N> struct decay<T[N]> { typedef T *type; };
template <class T> using decay_t = typename decay<T>::type;

template <class A, class B> struct is_same : bool_constant<__is_same(A, B)> {};
template <class A, class B> inline constexpr bool is_same_v = __is_same(A, B);

#define OST_TRAIT(name, ...)                                                \
  template <class T> inline constexpr bool name##_v = (__VA_ARGS__);        \
  template <class T> struct name : bool_constant<name##_v<T>> {};
// clang-format off
OST_TRAIT(is_integral, !__is_enum(remove_cv_t<T>) && __ost::components<T>::kind >= 1 && __ost::components<T>::kind <= 3)
OST_TRAIT(is_floating_point, __ost::components<T>::kind >= 4)
OST_TRAIT(is_arithmetic, is_integral_v<T> || is_floating_point_v<T>)
OST_TRAIT(is_signed, (is_integral_v<T> && __ost::components<T>::kind == 2) || is_floating_point_v<T>)
OST_TRAIT(is_unsigned, __ost::components<T>::kind == 1 || __ost::components<T>::kind == 3)
OST_TRAIT(is_void, __is_same(remove_cv_t<T>, void))
OST_TRAIT(is_fundamental, is_arithmetic_v<T> || is_void_v<T>)
OST_TRAIT(is_enum, __is_enum(T))
OST_TRAIT(is_class, __is_class(T))
OST_TRAIT(is_union, __is_union(T))
OST_TRAIT(is_trivially_copyable, __is_trivially_copyable(T))
OST_TRAIT(is_standard_layout, __is_standard_layout(T))
// clang-format on
#undef OST_TRAIT

#define OST_MATCH_TRAIT(name, pattern)                                      \
  template <class T> struct name : false_type {};                           \
  template <class T> struct name<pattern> : true_type {};                   \
  template <class T> inline constexpr bool name##_v = name<T>::value;
OST_MATCH_TRAIT(is_const, const T)
OST_MATCH_TRAIT(is_volatile, volatile T)
OST_MATCH_TRAIT(is_lvalue_reference, T &)
OST_MATCH_TRAIT(is_rvalue_reference, T &&)
#undef OST_MATCH_TRAIT
template <class T> inline constexpr bool is_reference_v = is_lvalue_reference_v<T> || is_rvalue_reference_v<T>;
template <class T> struct is_reference : bool_constant<is_reference_v<T>> {};
template <class T> inline constexpr bool is_pointer_v = !__is_same(remove_pointer_t<remove_cv_t<T>>, remove_cv_t<T>);
template <class T> struct is_pointer : bool_constant<is_pointer_v<T>> {};
template <class T> inline constexpr bool is_scalar_v = __ost::scalar_kind<T>::value >= 1 || is_pointer_v<T>;
template <class T> struct is_scalar : bool_constant<is_scalar_v<T>> {};
template <class T> struct vec_elements : integral_constant<int, __ost::components<T>::count> {};
// Of Apple's own implementation: the types that simd_sum and its like take, which are no wider than 32 bits.
template <class T, bool = is_arithmetic_v<T>> struct __is_valid_simdgroup_type : false_type {};
template <class T>
struct __is_valid_simdgroup_type<T, true>
    : bool_constant<!__is_same(remove_cv_t<T>, bool) && sizeof(T) <= 4 * (__ost::components<T>::count + 1)> {};
template <class T> struct is_array : false_type {};
template <class T> struct is_array<T[]> : true_type {};
template <class T, size_t N> struct is_array<T[N]> : true_type {};
template <class T> inline constexpr bool is_array_v = is_array<T>::value;
template <class A, class B> inline constexpr bool is_base_of_v = __is_base_of(A, B);
template <class A, class B> struct is_base_of : bool_constant<__is_base_of(A, B)> {};

}  // namespace metal

namespace __ost {
template <class To> metal::true_type accepts(To);
template <class From, class To, class = void> struct convertible : metal::false_type {};
template <class From, class To>
struct convertible<From, To, void_t<decltype(accepts<To>(metal::declval<From>()))>> : metal::true_type {};
template <class T, class A, class = void> struct constructible : metal::false_type {};
template <class T, class A> struct constructible<T, A, void_t<decltype(T(metal::declval<A>()))>> : metal::true_type {};
}  // namespace __ost

namespace metal {

template <class From, class To> struct is_convertible : bool_constant<__ost::convertible<From, To>::value> {};
template <class From, class To> inline constexpr bool is_convertible_v = is_convertible<From, To>::value;
template <class T, class A> struct is_constructible : bool_constant<__ost::constructible<T, A>::value> {};
template <class T, class A> inline constexpr bool is_constructible_v = is_constructible<T, A>::value;

template <class T> struct make_unsigned;
template <class T> struct make_signed;
#define OST_SIGN_PAIR(s, u)                                                 \
  template <> struct make_unsigned<s> { typedef u type; };                  \
  template <> struct make_unsigned<u> { typedef u type; };                  \
  template <> struct make_signed<s> { typedef s type; };                    \
  template <> struct make_signed<u> { typedef s type; };
OST_SIGN_PAIR(signed char, unsigned char)
OST_SIGN_PAIR(short, unsigned short)
OST_SIGN_PAIR(int, unsigned int)
OST_SIGN_PAIR(long, unsigned long)
OST_SIGN_PAIR(long long, unsigned long long)
#undef OST_SIGN_PAIR
template <> struct make_unsigned<char> { typedef unsigned char type; };
template <> struct make_signed<char> { typedef signed char type; };
template <class T> using make_unsigned_t = typename make_unsigned<T>::type;
template <class T> using make_signed_t = typename make_signed<T>::type;

template <class T> struct underlying_type { typedef __underlying_type(T) type; };
template <class T> using underlying_type_t = typename underlying_type<T>::type;

template <class... T> struct common_type;
template <class A> struct common_type<A> { typedef decay_t<A> type; };
template <class A, class B> struct common_type<A, B> {
  typedef decay_t<decltype(true ? declval<A>() : declval<B>())> type;
};
template <class A, class B, class C, class... R>
struct common_type<A, B, C, R...> : common_type<typename common_type<A, B>::type, C, R...> {};
template <class... T> using common_type_t = typename common_type<T...>::type;

}  // namespace metal
