// Accesses through casts to a type of stricter alignment, such as a uint read from the bytes of a packed block. Apple's
// GPUs take any address; NVIDIA's fault at one that is no multiple of the type's alignment, and checked kernels on the
// CPU report it. The translator (unaligned.py) makes such casts by loose(), reads by load() and writes by at(). Where the
// types alone say that the address is aligned, these are the plain access. Elsewhere the address decides, and one that is
// not aligned is accessed in parts.
#pragma once

namespace __ost {

struct unknown {};
template <class V> struct pointee { typedef unknown type; };
template <class T> struct pointee<T *> { typedef T type; };
template <class T> struct pointee<T *const> { typedef T type; };
template <class T, uint64_t N> struct pointee<T[N]> { typedef T type; };
template <class V> struct pointee<V &> : pointee<V> {};
template <class V> using pointee_t = typename pointee<V>::type;

// Addresses that are computed as numbers are taken as they are.
template <class S> struct layout_of { static constexpr uint32_t bytes = sizeof(S), alignment = alignof(S); };
template <> struct layout_of<void> { static constexpr uint32_t bytes = 1, alignment = 1; };
template <> struct layout_of<const void> : layout_of<void> {};
template <> struct layout_of<unknown> { static constexpr uint32_t bytes = 1, alignment = 256; };

template <class T> struct part_of { typedef T type; };
template <class T> struct part_of<const T> : part_of<T> {};
template <class T, int N> struct part_of<metal::vec<T, N>> { typedef T type; };
template <class T, int C, int R> struct part_of<metal::matrix<T, C, R>> { typedef T type; };
// What a load touches: a vector of three components has the room of a fourth, which may lie outside the buffer.
template <class T> constexpr uint32_t touched_bytes = sizeof(T);
template <class T> constexpr uint32_t touched_bytes<metal::vec<T, 3>> = 3 * sizeof(T);

// A pointer to multiples of A bytes, which are no multiples of the alignment of T if they are `apart`.
template <class T, uint32_t A> struct Loose {
  T *at;
  bool apart, odd;
  template <class I> OST_FN Loose operator+(I count) const { return {at + count, apart, odd}; }
  template <class I> OST_FN Loose operator-(I count) const { return {at - count, apart, odd}; }
};

template <uint32_t A> OST_FN bool is_apart(uint64_t bytes) { return (bytes & (A - 1)) != 0; }

// A value as a pointer of type P. `root` is the struct in which it lies: only the distance to it counts if the struct is
// aligned well enough, and that is mostly a constant.
template <class P, class V> OST_FN auto loose(V &&value) {
  typedef pointee_t<P> T;
  constexpr uint32_t alignment = layout_of<pointee_t<V>>::alignment;
  const P at = (P)value;
  if constexpr (alignment >= alignof(T)) {
    return at;
  } else {
    return Loose<T, alignment>{at, is_apart<alignof(T)>(uint64_t(at)), is_apart<2>(uint64_t(at))};
  }
}
template <class P, class V, class R> OST_FN auto loose(V &&value, R *root) {
  typedef pointee_t<P> T;
  constexpr uint32_t alignment = layout_of<pointee_t<V>>::alignment;
  const P at = (P)value;
  if constexpr (alignment >= alignof(T)) {
    return at;
  } else {
    const uint64_t address = uint64_t(at), distance = address - uint64_t(root);
    return Loose<T, alignment>{at, is_apart<alignof(T)>(alignof(R) >= alignof(T) ? distance : address),
                               is_apart<2>(alignof(R) >= 2 ? distance : address)};
  }
}

// The same for the pointer with which a variable begins, whose accesses stand in loops. Untyped memory, and the components
// of a vector, are taken to be aligned for a component; `Vectors` says whether their address decides for whole vectors.
template <class P, bool Vectors, class V> OST_FN auto loose_variable(V &&value) {
  typedef pointee_t<P> T;
  typedef typename part_of<T>::type Part;
  constexpr uint32_t bytes = layout_of<pointee_t<V>>::bytes;
  if constexpr (bytes != 1 && bytes != sizeof(Part)) {
    return loose<P>(value);
  } else if constexpr (Vectors && alignof(T) > alignof(Part)) {
    const P at = (P)value;
    return Loose<T, alignof(Part)>{at, is_apart<alignof(T)>(uint64_t(at)), false};
  } else {
    return (P)value;
  }
}
template <class P, bool, class V, class R> OST_FN auto loose_variable(V &&value, R *root) {
  return loose<P>(value, root);
}
// The variable, which may have moved by whole elements since.
template <class S, class T> OST_FN T *like(S *, T *variable) { return variable; }
template <class S, uint32_t A, class T> OST_FN Loose<T, A> like(Loose<S, A> first, T *variable) {
  return {variable, first.apart, first.odd};
}

template <class Part, class T> OST_FN void copy_parts(T *to, const T *from) {
#pragma unroll
  for (uint32_t i = 0; i < touched_bytes<T> / sizeof(Part); ++i)
    reinterpret_cast<Part *>(to)[i] = reinterpret_cast<const Part *>(from)[i];
}
template <class T, uint32_t A> OST_FN void copy_apart(T *to, const T *from, Loose<const T, A> memory) {
  if (touched_bytes<T> % 2 != 0 || (A < 2 && memory.odd)) return copy_parts<uint8_t>(to, from);
  if constexpr (alignof(T) > 4 && touched_bytes<T> % 4 == 0) {
    if (A >= 4 || !is_apart<4>(uint64_t(memory.at))) return copy_parts<uint32_t>(to, from);
  }
  if constexpr (alignof(T) > 2 && A < 4) copy_parts<uint16_t>(to, from);
}

template <class T> OST_FN T &load(T *at) { return *at; }
template <class T, uint32_t A> OST_FN metal::remove_cv_t<T> load(Loose<T, A> from) {
  if (!from.apart) return *from.at;
  metal::remove_cv_t<T> value;
  copy_apart<metal::remove_cv_t<T>, A>(&value, from.at, {from.at, from.apart, from.odd});
  return value;
}

// What is assigned to.
template <class T, uint32_t A> struct Place {
  Loose<T, A> to;
  OST_FN T operator=(const T &value) const {
    if (to.apart) {
      copy_apart<T, A>(to.at, &value, {to.at, to.apart, to.odd});
    } else {
      *to.at = value;
    }
    return value;
  }
  template <class X> OST_FN T operator=(const X &given) const {
    T value;
    value = given;
    return *this = static_cast<const T &>(value);
  }
#define OST_PLACE_ASSIGN(op) \
  template <class X> OST_FN T operator op##=(const X &other) const { \
    T value = load(to); \
    value op##= other; \
    return *this = static_cast<const T &>(value); \
  }
  // clang-format off
  OST_PLACE_ASSIGN(+) OST_PLACE_ASSIGN(-) OST_PLACE_ASSIGN(*) OST_PLACE_ASSIGN(/) OST_PLACE_ASSIGN(%)
  OST_PLACE_ASSIGN(&) OST_PLACE_ASSIGN(|) OST_PLACE_ASSIGN(^) OST_PLACE_ASSIGN(<<) OST_PLACE_ASSIGN(>>)
  // clang-format on
#undef OST_PLACE_ASSIGN
};
template <class T> OST_FN T &at(T *to) { return *to; }
template <class T, uint32_t A> OST_FN Place<T, A> at(Loose<T, A> to) { return {to}; }

}  // namespace __ost
