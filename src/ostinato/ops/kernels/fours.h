// Elements of a row in float, EACH at a time: one, or a multiple of four, of which four are read and written as one vector.
// Pointers to vectors are parameters here, so the caller vouches for their alignment.

#define FOR_EACH _Pragma("clang loop unroll(full)") for (uint i = 0; i < EACH; ++i)
#define FOR_FOURS _Pragma("clang loop unroll(full)") for (uint four = 0; four < EACH; four += 4)

template <typename T>
inline void load_four(device const vec<T, 4> *from, thread float *to) {
    const vec<T, 4> four = *from;
    to[0] = float(four.x), to[1] = float(four.y), to[2] = float(four.z), to[3] = float(four.w);
}
template <typename T>
inline void store_four(vec<T, 4> four, device vec<T, 4> *to) {
    *to = four;
}

template <typename T, uint EACH>
inline void load(device const T *from, thread float *to) {
    if (EACH > 1) {
        FOR_FOURS { load_four<T>((device const vec<T, 4> *)(from + four), to + four); }
    } else {
        to[0] = float(from[0]);
    }
}
// Rounds to the stored type.
template <typename T, uint EACH>
inline void store(thread const float *from, device T *to) {
    if (EACH > 1) {
        FOR_FOURS {
            store_four<T>(vec<T, 4>(T(from[four]), T(from[four + 1]), T(from[four + 2]), T(from[four + 3])),
                          (device vec<T, 4> *)(to + four));
        }
    } else {
        to[0] = T(from[0]);
    }
}

// As they are.
template <typename T>
inline void copy_four(device const vec<T, 4> *from, device vec<T, 4> *to) {
    *to = *from;
}
template <typename T, uint EACH>
inline void copy(device const T *from, device T *to) {
    if (EACH > 1) {
        FOR_FOURS { copy_four<T>((device const vec<T, 4> *)(from + four), (device vec<T, 4> *)(to + four)); }
    } else {
        to[0] = from[0];
    }
}
