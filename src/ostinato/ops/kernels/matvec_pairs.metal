// Products whose results are made of two rows each: gates, and queries and keys that are rotated in pairs. For a GPU.
//
// A simdgroup computes a result from both rows, so no simdgroup waits for another after x has been staged. A lane has
// 2 * FLIGHT loads of 16 bytes in flight: what has been multiplied makes room for the next part, of these rows or of the
// next result's. The first parts are loaded before the kernel waits for x.
//
// Weights are [out, in]. Sums are kept in float and rounded once, to the type that is stored.

#include "parts.h"
#include "functions.h"
#include "normed.h"
#include "vectors.h"
#include <ostinato>

constant constexpr uint MOST_SIMDGROUPS = 16;

// A pair of rows from a lane's first part on, and how many parts they have; none if there is no such pair.
struct Pair {
    device const uint4 *first;
    device const uint4 *second;
    uint parts;
};

template <typename T>
inline Pair pair_of(device const T *first, ulong apart, uint parts, uint lane) {
    return {in_vectors<uint4>(first) + lane, in_vectors<uint4>(first + apart) + lane, parts};
}

// A lane's part `step` of a pair, in place of the one it has.
template <uint FLIGHT>
inline void load_part(Pair pair, uint step, uint lane, thread uint4 *first, thread uint4 *second) {
    if (lane + step * SIMD < pair.parts) {
        first[step] = pair.first[step * SIMD];
        second[step] = pair.second[step * SIMD];
    }
}

// A lane's share of the products of two rows with x. The first parts of `pair` have been loaded; on return those of
// `next` have.
template <typename T, uint FLIGHT>
inline float2 products(Pair pair, Pair next, threadgroup const uint4 *x, uint lane, thread uint4 *first,
                       thread uint4 *second) {
    float2 sums = 0.0f;
    for (x += lane;; x += FLIGHT * SIMD) {
        const uint left = pair.parts;
        const bool ends = left <= FLIGHT * SIMD;
        pair = ends ? next : Pair{pair.first + FLIGHT * SIMD, pair.second + FLIGHT * SIMD, left - FLIGHT * SIMD};
        for (uint step = 0; step < FLIGHT; ++step) {
            if (lane + step * SIMD < left) {
                const uint4 held = x[step * SIMD];
                sums += float2(product_of_16_bytes<T>(first[step], held), product_of_16_bytes<T>(second[step], held));
            }
            load_part<FLIGHT>(pair, step, lane, first, second);
        }
        if (ends) { return sums; }
    }
}

// The same for rows that do not begin at multiples of 16 bytes.
template <typename T>
inline float2 products_of_elements(device const T *first, ulong apart, threadgroup const T *x, uint width, uint lane) {
    float2 sums = 0.0f;
    for (uint at = lane; at < width; at += SIMD) { sums += float2(first[at], first[apart + at]) * float(x[at]); }
    return sums;
}

// Building blocks of the kernels: where a simdgroup works, its first loads, and the products for a result. ROW is the first
// of its two rows; the second is `apart` elements behind it.
#define PLACE_OF_SIMDGROUP()                                                                                          \
    const uint parts = width / (16 / sizeof(T)), stride = groups * simdgroups;                                        \
    threadgroup T *own_x = (threadgroup T *)room;                                                                     \
    uint4 first[FLIGHT] = {}, second[FLIGHT] = {};                                                                    \
    uint result = group * simdgroups + simdgroup;
#define PAIR(result, results)                                                                                         \
    pair_of(weight + ulong(ROW(result)) * width, apart, aligned && (result) < (results) ? parts : 0, lane)
#define LOAD_FIRST(results)                                                                                           \
    Pair pair = PAIR(result, results);                                                                                \
    for (uint step = 0; step < FLIGHT; ++step) { load_part<FLIGHT>(pair, step, lane, first, second); }
#define PRODUCTS(results)                                                                                             \
    const Pair next = PAIR(result + stride, results);                                                                 \
    float2 own;                                                                                                       \
    if (aligned) {                                                                                                    \
        own = products<T, FLIGHT>(pair, next, room, lane, first, second);                                             \
    } else {                                                                                                          \
        own = products_of_elements(weight + ulong(ROW(result)) * width, apart, own_x, width, lane);                   \
    }                                                                                                                 \
    pair = next;

/// out = silu(weight[0] · y) · (weight[1] · y), where y = rms_norm(x, norm)
#define ROW(result) (result)
template <typename T, uint FLIGHT>
[[max_total_threads_per_threadgroup(SIMD * MOST_SIMDGROUPS)]]
kernel void norm_gated_matvec(device const T *weight [[buffer(0)]], device const T *x [[buffer(1)]],
                              device const T *norm [[buffer(2)]], device T *out [[buffer(3)]],
                              constant uint &width [[buffer(4)]], constant float &eps [[buffer(5)]],
                              constant uint &rows [[buffer(6)]], constant uint &aligned [[buffer(7)]],
                              threadgroup uint4 *room [[threadgroup(0)]], uint group [[threadgroup_position_in_grid]],
                              uint groups [[threadgroups_per_grid]], uint member [[thread_index_in_threadgroup]],
                              uint members [[threads_per_threadgroup]],
                              uint simdgroup [[simdgroup_index_in_threadgroup]],
                              uint simdgroups [[simdgroups_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float partial[MOST_SIMDGROUPS];
    PLACE_OF_SIMDGROUP()
    const ulong apart = ulong(rows) * width;
    LOAD_FIRST(rows)
    LOAD_GAIN()
    ostinato::wait_for_all_but(weight, norm);
    STAGE_NORMED_X()
    for (; result < rows; result += stride) {
        PRODUCTS(rows)
        const float gate = simd_sum(own.x), up = simd_sum(own.y);
        if (lane == 0) { out[result] = T(silu(gate) * up); }
    }
}
#undef ROW

/// Queries, keys and values of one token, from y = rms_norm(x, norm): weight · y, [heads + 2 · kept, size], of which
/// queries and keys are rotated by their position, in pairs (i, i + size / 2), and keys and values go to the cache, as
/// in rope_append.metal. A result is a pair, from one row of each half of its head.
#define ROW(result) ((result) / pairs * size + (result) % pairs)
template <typename T, uint FLIGHT>
[[max_total_threads_per_threadgroup(SIMD * MOST_SIMDGROUPS)]]
kernel void qkv_matvec(device const T *weight [[buffer(0)]], device const T *x [[buffer(1)]],
                       device const T *norm [[buffer(2)]], device const float *frequencies [[buffer(3)]],
                       device T *queries [[buffer(4)]], device T *keys [[buffer(5)]], device T *values [[buffer(6)]],
                       constant uint &width [[buffer(7)]], constant float &eps [[buffer(8)]],
                       constant uint &position [[buffer(9)]], constant uint &heads [[buffer(10)]],
                       constant uint &kept [[buffer(11)]], constant uint &size [[buffer(12)]],
                       constant uint &capacity [[buffer(13)]], constant uint &results [[buffer(14)]],
                       constant uint &aligned [[buffer(15)]], threadgroup uint4 *room [[threadgroup(0)]],
                       uint group [[threadgroup_position_in_grid]], uint groups [[threadgroups_per_grid]],
                       uint member [[thread_index_in_threadgroup]], uint members [[threads_per_threadgroup]],
                       uint simdgroup [[simdgroup_index_in_threadgroup]],
                       uint simdgroups [[simdgroups_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float partial[MOST_SIMDGROUPS];
    PLACE_OF_SIMDGROUP()
    const uint pairs = size / 2;
    const ulong apart = ulong(pairs) * width;
    float next_frequency = frequencies[result % pairs];
    LOAD_FIRST(results)
    LOAD_GAIN()
    ostinato::wait_for_all_but(weight, norm, frequencies);
    STAGE_NORMED_X()
    for (; result < results; result += stride) {
        PRODUCTS(results)
        const float frequency = next_frequency;
        next_frequency = frequencies[(result + stride) % pairs];
        float a = simd_sum(own.x), b = simd_sum(own.y);
        if (lane == 0) {
            const uint head = result / pairs, at = result % pairs;
            device T *to = queries + head * size;
            if (head < heads + kept) {
                const float angle = float(position) * frequency;
                const float cosine = precise::cos(angle), sine = precise::sin(angle), before = a;
                a = a * cosine - b * sine;
                b = b * cosine + before * sine;
            }
            if (head >= heads) {
                const uint number = head - heads;
                to = (number < kept ? keys : values) + (ulong(number % kept) * capacity + position) * size;
            }
            if (head < heads || position < capacity) {
                to[at] = T(a);
                to[at + pairs] = T(b);
            }
        }
    }
}

#define INSTANCE(T, FLIGHT)                                                                                           \
    template [[host_name("norm_gated_matvec_" #T "_" #FLIGHT)]] kernel void norm_gated_matvec<T, FLIGHT>(             \
        device const T *, device const T *, device const T *, device T *, constant uint &, constant float &,          \
        constant uint &, constant uint &, threadgroup uint4 *, uint, uint, uint, uint, uint, uint, uint);             \
    template [[host_name("qkv_matvec_" #T "_" #FLIGHT)]] kernel void qkv_matvec<T, FLIGHT>(                           \
        device const T *, device const T *, device const T *, device const float *, device T *, device T *,           \
        device T *, constant uint &, constant float &, constant uint &, constant uint &, constant uint &,             \
        constant uint &, constant uint &, constant uint &, constant uint &, threadgroup uint4 *, uint, uint, uint,    \
        uint, uint, uint, uint);
#define INSTANCES(T)                                                                                                  \
    INSTANCE(T, 4)                                                                                                    \
    INSTANCE(T, 8)

INSTANCES(float)
INSTANCES(half)
INSTANCES(bfloat)
