// The index of the largest element of each row, for a GPU, with few long rows: `argmax` takes a group for each row,
// `argmax_part` several for a single one, whose results `argmax_join` joins. The kernel for CPUs is in selection.metal.

#include <metal_stdlib>
using namespace metal;

constant constexpr uint MOST_THREADS = 1024;
constant constexpr uint MOST_SIMDGROUPS = 32;
constant constexpr uint NOWHERE = 0xffffffff;
constant constexpr uint TOGETHER = 8;  // loads in flight

// The larger of two elements, the first of equal ones; NaN is skipped.
inline void take(thread float &largest, thread uint &place, float value, uint at) {
    if (value > largest || (value == largest && at < place)) {
        largest = value;
        place = at;
    }
}

inline void take_of_simdgroup(thread float &largest, thread uint &place) {
    for (ushort step = 16; step > 0; step /= 2) {
        const float other = simd_shuffle_xor(largest, step);
        const uint there = simd_shuffle_xor(place, step);
        take(largest, place, other, there);
    }
}

// A thread's share of a row of vectors. The pointer is a parameter, so its alignment is known.
template <typename T>
inline void take_fours(device const vec<T, 4> *parts, uint count, uint member, uint members, thread float &largest,
                       thread uint &place) {
    for (uint first = member; first < count; first += TOGETHER * members) {
        vec<T, 4> taken[TOGETHER];
        for (uint step = 0; step < TOGETHER; ++step) { taken[step] = parts[min(first + step * members, count - 1)]; }
        for (uint step = 0; step < TOGETHER; ++step) {
            const uint at = 4 * min(first + step * members, count - 1);
            const float4 four = float4(taken[step]);
            // Later elements are taken only if they are larger, which is rare.
            if (max(max(four.x, four.y), max(four.z, four.w)) > largest || place == NOWHERE) {
                for (uint part = 0; part < 4; ++part) { take(largest, place, four[part], at + part); }
            }
        }
    }
}

// The largest element of a group's `width` elements from `line` on, in the first simdgroup's lanes. With `fours`, they start
// at a multiple of four elements.
#define TAKE_OF_GROUP(line, width)                                                                                    \
    threadgroup float values[MOST_SIMDGROUPS];                                                                        \
    threadgroup uint places[MOST_SIMDGROUPS];                                                                         \
    float largest = -INFINITY;                                                                                        \
    uint place = NOWHERE, done = 0;                                                                                   \
    if (fours) {                                                                                                      \
        take_fours<T>((device const vec<T, 4> *)line, width / 4, member, members, largest, place);                    \
        done = width / 4 * 4;                                                                                         \
    }                                                                                                                 \
    for (uint at = done + member; at < width; at += members) { take(largest, place, float(line[at]), at); }           \
    take_of_simdgroup(largest, place);                                                                                \
    if (lane == 0) {                                                                                                  \
        values[simdgroup] = largest;                                                                                  \
        places[simdgroup] = place;                                                                                    \
    }                                                                                                                 \
    threadgroup_barrier(mem_flags::mem_threadgroup);                                                                  \
    if (simdgroup == 0) {                                                                                             \
        largest = lane < simdgroups ? values[lane] : -INFINITY;                                                       \
        place = lane < simdgroups ? places[lane] : NOWHERE;                                                           \
        take_of_simdgroup(largest, place);                                                                            \
    }

/// out[row] = the index of the row's largest element.
template <typename T>
[[max_total_threads_per_threadgroup(MOST_THREADS)]]
kernel void argmax(device const T *x [[buffer(0)]], device uint *out [[buffer(1)]], constant uint &width [[buffer(2)]],
                   constant uint &fours [[buffer(3)]], uint row [[threadgroup_position_in_grid]],
                   uint member [[thread_index_in_threadgroup]], uint members [[threads_per_threadgroup]],
                   uint simdgroup [[simdgroup_index_in_threadgroup]], uint simdgroups [[simdgroups_per_threadgroup]],
                   uint lane [[thread_index_in_simdgroup]]) {
    device const T *line = x + ulong(row) * width;
    TAKE_OF_GROUP(line, width)
    if (member == 0) { out[row] = place == NOWHERE ? 0 : place; }
}

/// partial[part] = the bits of the largest of `each` elements, and its index.
template <typename T>
[[max_total_threads_per_threadgroup(MOST_THREADS)]]
kernel void argmax_part(device const T *x [[buffer(0)]], device uint2 *partial [[buffer(1)]],
                        constant uint &width [[buffer(2)]], constant uint &fours [[buffer(3)]],
                        constant uint &each [[buffer(4)]], uint part [[threadgroup_position_in_grid]],
                        uint member [[thread_index_in_threadgroup]], uint members [[threads_per_threadgroup]],
                        uint simdgroup [[simdgroup_index_in_threadgroup]],
                        uint simdgroups [[simdgroups_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    const uint begin = min(part * each, width), count = min(each, width - begin);
    device const T *line = x + begin;
    TAKE_OF_GROUP(line, count)
    if (member == 0) { partial[part] = uint2(as_type<uint>(largest), place == NOWHERE ? NOWHERE : begin + place); }
}

/// out = the index of the largest of all parts; one simdgroup.
kernel void argmax_join(device const uint2 *partial [[buffer(0)]], device uint *out [[buffer(1)]],
                        constant uint &parts [[buffer(2)]], uint lane [[thread_index_in_simdgroup]]) {
    float largest = -INFINITY;
    uint place = NOWHERE;
    for (uint part = lane; part < parts; part += 32) {
        const uint2 found = partial[part];
        take(largest, place, as_type<float>(found.x), found.y);
    }
    take_of_simdgroup(largest, place);
    if (lane == 0) { *out = place == NOWHERE ? 0 : place; }
}

#define INSTANCE(T)                                                                                                   \
    template [[host_name("argmax_" #T)]] kernel void argmax<T>(device const T *, device uint *, constant uint &,      \
                                                               constant uint &, uint, uint, uint, uint, uint, uint);  \
    template [[host_name("argmax_part_" #T)]] kernel void argmax_part<T>(device const T *, device uint2 *,            \
                                                                         constant uint &, constant uint &,            \
                                                                         constant uint &, uint, uint, uint, uint,     \
                                                                         uint, uint);

INSTANCE(float)
INSTANCE(half)
INSTANCE(bfloat)
