// The step between the projections and attention, for a GPU: queries and keys are normalised, if the model does that,
// and rotated by their position; keys and values go to the cache. rope_append_plain.metal is for CPUs.
//
// x is [tokens, heads + 2 · kept, size]: for each token its queries, keys and values. A pair of elements is
// (i, i + pairs); elements behind the pairs are not rotated. The first token is at `position`, the others follow it.
// Queries become [tokens, heads, size], the caches are [kept, capacity, size]; tokens past their end are dropped.
//
// Intermediates of the separate kernels are rounded to the stored type here too.

#include <metal_stdlib>
using namespace metal;

#include "fours.h"

constant constexpr uint SIMD = 32;
constant constexpr uint KEPT = 2;  // angles that a lane keeps for all of its heads

// A simdgroup takes `together` heads of a token, for which the angles are the same. The grid is [heads + 2 · kept in
// groups of `together`, tokens] groups of one simdgroup.
template <typename T>
[[max_total_threads_per_threadgroup(SIMD)]]
kernel void rope_append(device const T *x [[buffer(0)]], device const float *frequencies [[buffer(1)]],
                        device const T *query_weight [[buffer(2)]], device const T *key_weight [[buffer(3)]],
                        device T *queries [[buffer(4)]], device T *keys [[buffer(5)]], device T *values [[buffer(6)]],
                        constant uint &position [[buffer(7)]], constant uint &heads [[buffer(8)]],
                        constant uint &kept [[buffer(9)]], constant uint &size [[buffer(10)]],
                        constant uint &pairs [[buffer(11)]], constant uint &capacity [[buffer(12)]],
                        constant uint &normed [[buffer(13)]], constant float &eps [[buffer(14)]],
                        constant uint &together [[buffer(15)]], uint2 group [[threadgroup_position_in_grid]],
                        uint lane [[thread_index_in_simdgroup]]) {
    const uint token = group.y, rows = heads + 2 * kept;
    const ulong place = ulong(position) + token;
    float cosines[KEPT], sines[KEPT];
    for (uint step = 0; step < KEPT; ++step) {
        const float angle = float(position + token) * frequencies[min(lane + step * SIMD, pairs - 1)];
        cosines[step] = precise::cos(angle);
        sines[step] = precise::sin(angle);
    }
    for (uint head = group.x * together; head < min((group.x + 1) * together, rows); ++head) {
        device const T *from = x + (ulong(token) * rows + head) * size;
        device T *to = queries + (ulong(token) * heads + head) * size;
        if (head >= heads) {
            if (place >= capacity) { return; }
            const uint number = head - heads;
            to = (number < kept ? keys : values) + (ulong(number % kept) * capacity + place) * size;
            if (number >= kept) {
                for (uint at = lane; at < size; at += SIMD) { to[at] = from[at]; }
                continue;
            }
        }
        float scale = 1.0f;
        if (normed) {
            float squares = 0.0f;
            for (uint at = lane; at < size; at += SIMD) { squares += float(from[at]) * float(from[at]); }
            scale = rsqrt(simd_sum(squares) / float(size) + eps);
        }
        device const T *weight = head < heads ? query_weight : key_weight;
        for (uint at = lane, step = 0; at < pairs; at += SIMD, ++step) {
            float a = float(from[at]), b = float(from[at + pairs]);
            if (normed) {
                a = float(T(a * scale * float(weight[at])));
                b = float(T(b * scale * float(weight[at + pairs])));
            }
            float cosine = step == 0 ? cosines[0] : cosines[1], sine = step == 0 ? sines[0] : sines[1];
            if (step >= KEPT) {
                const float angle = float(position + token) * frequencies[at];
                cosine = precise::cos(angle);
                sine = precise::sin(angle);
            }
            to[at] = T(a * cosine - b * sine);
            to[at + pairs] = T(b * cosine + a * sine);
        }
        for (uint at = 2 * pairs + lane; at < size; at += SIMD) {
            to[at] = normed ? T(float(from[at]) * scale * float(weight[at])) : from[at];
        }
    }
}

/// The same for heads of nothing but pairs, whose number is a power of two from EACH to 32 · EACH, in aligned rows: a lane
/// takes EACH pairs, so a simdgroup takes several heads at a time. The grid is [heads + 2 · kept in groups of `together`,
/// tokens].
template <typename T, uint EACH>
[[max_total_threads_per_threadgroup(SIMD)]]
kernel void rope_append_whole(device const T *x [[buffer(0)]], device const float *frequencies [[buffer(1)]],
                              device const T *query_weight [[buffer(2)]], device const T *key_weight [[buffer(3)]],
                              device T *queries [[buffer(4)]], device T *keys [[buffer(5)]],
                              device T *values [[buffer(6)]], constant uint &position [[buffer(7)]],
                              constant uint &heads [[buffer(8)]], constant uint &kept [[buffer(9)]],
                              constant uint &size [[buffer(10)]], constant uint &pairs [[buffer(11)]],
                              constant uint &capacity [[buffer(12)]], constant uint &normed [[buffer(13)]],
                              constant float &eps [[buffer(14)]], constant uint &together [[buffer(15)]],
                              uint2 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
    const uint token = group.y, rows = heads + 2 * kept, lanes = pairs / EACH, at = lane % lanes * EACH;
    const ulong place = ulong(position) + token;
    const uint end = min((group.x + 1) * together, rows), own = lane / lanes, step = SIMD / lanes;
    device const T *line = x + ulong(token) * rows * size + at;
    // The next elements are read before those at hand are computed, the first ones before the angles.
    typedef typename Elements<T, EACH>::Kept Kept;
    device const T *from = line + ulong(min(group.x * together + own, end - 1)) * size;
    Kept next_a = get((device const Kept *)from), next_b = get((device const Kept *)(from + pairs));
    float angle[EACH], cosine[EACH], sine[EACH];
    FOR_EACH { angle[i] = float(position + token) * frequencies[at + i]; }
    FOR_EACH {
        cosine[i] = precise::cos(angle[i]);
        sine[i] = precise::sin(angle[i]);
    }
    for (uint first = group.x * together; first < end; first += step) {
        // Lanes without a head take the last one again, and store nothing.
        const uint head = min(first + own, end - 1);
        const bool is_key = head >= heads && head < heads + kept, is_value = head >= heads + kept;
        const bool stores = first + own < end && (head < heads || place < capacity);
        float a[EACH], b[EACH];
        Elements<T, EACH>::widen(next_a, a);
        Elements<T, EACH>::widen(next_b, b);
        if (first + step < end) {
            from = line + ulong(min(first + step + own, end - 1)) * size;
            next_a = get((device const Kept *)from);
            next_b = get((device const Kept *)(from + pairs));
        }
        if (normed) {
            float squares = 0.0f;
            FOR_EACH { squares += a[i] * a[i] + b[i] * b[i]; }
            for (ushort other = 1; other < lanes; other *= 2) { squares += simd_shuffle_xor(squares, other); }
            const float scale = rsqrt(squares / float(size) + eps);
            device const T *weight = (head < heads ? query_weight : key_weight) + at;
            float by_a[EACH], by_b[EACH];
            load<T, EACH>(weight, by_a);
            load<T, EACH>(weight + pairs, by_b);
            if (!is_value) {
                FOR_EACH {
                    a[i] = float(T(a[i] * scale * by_a[i]));
                    b[i] = float(T(b[i] * scale * by_b[i]));
                }
            }
        }
        if (!is_value) {
            FOR_EACH {
                const float before = a[i];
                a[i] = before * cosine[i] - b[i] * sine[i];
                b[i] = b[i] * cosine[i] + before * sine[i];
            }
        }
        if (stores) {
            device T *to = queries + (ulong(token) * heads + head) * size;
            if (is_key) { to = keys + (ulong(head - heads) * capacity + place) * size; }
            if (is_value) { to = values + (ulong(head - heads - kept) * capacity + place) * size; }
            store<T, EACH>(a, to + at);
            store<T, EACH>(b, to + at + pairs);
        }
    }
}

#define SIGNATURE(T)                                                                                                  \
    (device const T *, device const float *, device const T *, device const T *, device T *, device T *, device T *,  \
     constant uint &, constant uint &, constant uint &, constant uint &, constant uint &, constant uint &,            \
     constant uint &, constant float &, constant uint &, uint2, uint)
#define INSTANCE(T)                                                                                                   \
    template [[host_name("rope_append_" #T)]] kernel void rope_append<T> SIGNATURE(T);                                \
    template [[host_name("rope_append_fours_" #T)]] kernel void rope_append_whole<T, 4> SIGNATURE(T);
#define EIGHTS(T) template [[host_name("rope_append_eights_" #T)]] kernel void rope_append_whole<T, 8> SIGNATURE(T);

INSTANCE(float)
INSTANCE(half)
INSTANCE(bfloat)
EIGHTS(half)
EIGHTS(bfloat)
