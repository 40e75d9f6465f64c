// Elements of a row in float, EACH at a time: one; four, read and written as one vector; or eight of 16 bits, as one vector
// of 16 bytes. Pointers to vectors are parameters here, so the caller vouches for their alignment.

#define FOR_EACH _Pragma("clang loop unroll(full)") for (uint i = 0; i < EACH; ++i)

// Loops of a thread over its elements of a row: the KEPT ones that it holds in an array, and the rest. `place` is where
// the next EACH stand in the row, and `step` their number in the array. The first loop is short and unrolled, so that
// the array stays in registers.
#define FOR_KEPT                                                                                                     \
    _Pragma("clang loop unroll(full)") for (uint step = 0, place = member * EACH; step < KEPT / EACH;                \
                                            ++step, place += members * EACH) if (place < width)
#define FOR_REST for (uint place = (member + KEPT / EACH * members) * EACH; place < width; place += members * EACH)

// Two elements of 16 bits. A bfloat is the upper half of a float.
template <typename T>
inline float2 two_of(uint bits, thread T *) {
    return float2(as_type<vec<T, 2>>(bits));
}
inline float2 two_of(uint bits, thread bfloat *) {
    return float2(as_type<float>(bits << 16), as_type<float>(bits & 0xffff0000));
}

// How EACH elements are kept as they are, and what they are in float.
template <typename T, uint EACH>
struct Elements;
template <typename T>
struct Elements<T, 1> {
    typedef T Kept;
    static void widen(Kept one, thread float *to) { to[0] = float(one); }
    static Kept rounded(thread const float *from) { return T(from[0]); }
};
template <typename T>
struct Elements<T, 4> {
    typedef vec<T, 4> Kept;
    static void widen(Kept four, thread float *to) {
        to[0] = float(four.x), to[1] = float(four.y), to[2] = float(four.z), to[3] = float(four.w);
    }
    static Kept rounded(thread const float *from) { return Kept(T(from[0]), T(from[1]), T(from[2]), T(from[3])); }
};
template <typename T>
struct Elements<T, 8> {
    typedef uint4 Kept;
    static void widen(Kept eight, thread float *to) {
        const float2 a = two_of(eight.x, (thread T *)0), b = two_of(eight.y, (thread T *)0);
        const float2 c = two_of(eight.z, (thread T *)0), d = two_of(eight.w, (thread T *)0);
        to[0] = a.x, to[1] = a.y, to[2] = b.x, to[3] = b.y, to[4] = c.x, to[5] = c.y, to[6] = d.x, to[7] = d.y;
    }
    static Kept rounded(thread const float *from) {
        return uint4(as_type<uint2>(Elements<T, 4>::rounded(from)), as_type<uint2>(Elements<T, 4>::rounded(from + 4)));
    }
};

template <typename V>
inline V get(device const V *from) {
    return *from;
}
template <typename V>
inline void put(V value, device V *to) {
    *to = value;
}

template <typename T, uint EACH>
inline void load(device const T *from, thread float *to) {
    typedef typename Elements<T, EACH>::Kept Kept;
    Elements<T, EACH>::widen(get((device const Kept *)from), to);
}
// Rounds to the stored type.
template <typename T, uint EACH>
inline void store(thread const float *from, device T *to) {
    typedef typename Elements<T, EACH>::Kept Kept;
    put(Elements<T, EACH>::rounded(from), (device Kept *)to);
}
// As they are.
template <typename T, uint EACH>
inline void copy(device const T *from, device T *to) {
    typedef typename Elements<T, EACH>::Kept Kept;
    put(get((device const Kept *)from), (device Kept *)to);
}
