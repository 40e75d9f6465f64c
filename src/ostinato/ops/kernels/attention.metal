// Causal attention of queries to the cached keys and values, for a GPU. attention_plain.metal is for CPUs.
//
// out[token, head] = Σ softmax(scale · query · keys) · values, over the keys up to the query's own position, which is
// position + token; with a window, over that many last keys; with a cap, scores are cap · tanh(score / cap).
// Queries are [tokens, heads, size], keys and values [heads / queries_per_key, capacity, size]. Sums are in float.
//
// A group computes one head of one query. A lane holds eight elements of a head, so several lanes form a row, and a
// simdgroup processes several keys at a time, with four loads in flight each. Every row of lanes keeps its own running
// softmax, which is rescaled when a larger score comes; at the end the sums of all rows are combined.

#include <metal_stdlib>
using namespace metal;

#include "vectors.h"

constant constexpr uint SIMD = 32;
constant constexpr uint MOST_SIMDGROUPS = 16;
constant constexpr uint TOGETHER = 4;  // keys per row of lanes whose loads are in flight
constant constexpr uint OWN = 8;       // elements of a head per lane

// A lane's elements of a row, zero beyond its end. Loaded as vectors if rows are whole, aligned vectors.
template <typename T, bool WHOLE>
inline void load(device const T *row, uint first, uint size, thread float *to) {
    if (WHOLE) {
        const bool inside = first < size;
        device const vec<T, 4> *parts = in_vectors<vec<T, 4>>(row + (inside ? first : 0));
        const vec<T, 4> low = parts[0], high = parts[1];
        for (uint part = 0; part < 4; ++part) {
            to[part] = inside ? float(low[part]) : 0.0f;
            to[4 + part] = inside ? float(high[part]) : 0.0f;
        }
    } else {
        for (uint part = 0; part < OWN; ++part) { to[part] = first + part < size ? float(row[first + part]) : 0.0f; }
    }
}

// ROW is the number of lanes per row, for sizes up to 8 · ROW. The grid is [heads, tokens] groups.
template <typename T, uint ROW, bool WHOLE>
[[max_total_threads_per_threadgroup(SIMD * MOST_SIMDGROUPS)]]
kernel void attend(device const T *queries [[buffer(0)]], device const T *keys [[buffer(1)]],
                   device const T *values [[buffer(2)]], device T *out [[buffer(3)]],
                   constant uint &position [[buffer(4)]], constant uint &size [[buffer(5)]],
                   constant uint &queries_per_key [[buffer(6)]], constant uint &capacity [[buffer(7)]],
                   constant uint &window [[buffer(8)]], constant float &scale [[buffer(9)]],
                   constant float &cap [[buffer(10)]], uint2 group [[threadgroup_position_in_grid]],
                   uint2 extent [[threadgroups_per_grid]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                   uint simdgroups [[simdgroups_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    constexpr uint ROWS = SIMD / ROW;  // keys that a simdgroup processes at a time
    threadgroup float sums_of[MOST_SIMDGROUPS][OWN * ROW];
    threadgroup float largest_of[MOST_SIMDGROUPS];
    threadgroup float total_of[MOST_SIMDGROUPS];
    const uint head = group.x, token = group.y;
    const uint end = min(position + token + 1, capacity);
    const uint begin = window && end > window ? end - window : 0;
    const ulong start = (ulong(token) * extent.x + head) * size;
    const ulong kept = ulong(head / queries_per_key) * capacity * size;
    const uint own = lane % ROW * OWN, row = lane / ROW;
    float query[OWN], sums[OWN] = {};
    load<T, WHOLE>(queries + start, own, size, query);
    float largest = -INFINITY, total = 0.0f;
    constexpr uint STEP = ROWS * TOGETHER;
    for (uint first = begin + simdgroup * STEP; first < end; first += simdgroups * STEP) {
        float scores[TOGETHER], key[TOGETHER][OWN], value[TOGETHER][OWN];
        for (uint step = 0; step < TOGETHER; ++step) {
            const ulong from = kept + ulong(min(first + step * ROWS + row, end - 1)) * size;
            load<T, WHOLE>(keys + from, own, size, key[step]);
            load<T, WHOLE>(values + from, own, size, value[step]);
        }
        float top = largest;
        for (uint step = 0; step < TOGETHER; ++step) {
            float score = 0.0f;
            for (uint part = 0; part < OWN; ++part) { score += query[part] * key[step][part]; }
            for (ushort other = 1; other < ROW; other *= 2) { score += simd_shuffle_xor(score, other); }
            score *= scale;
            score = cap > 0.0f ? cap * tanh(score / cap) : score;
            scores[step] = first + step * ROWS + row < end ? score : -INFINITY;
            top = max(top, scores[step]);
        }
        // A row of lanes that has seen no key yet has nothing to rescale.
        const float shrink = largest == -INFINITY ? 0.0f : exp(largest - top);
        total *= shrink;
        for (uint part = 0; part < OWN; ++part) { sums[part] *= shrink; }
        for (uint step = 0; step < TOGETHER; ++step) {
            const float weight = scores[step] == -INFINITY ? 0.0f : exp(scores[step] - top);
            total += weight;
            for (uint part = 0; part < OWN; ++part) { sums[part] += weight * value[step][part]; }
        }
        largest = top;
    }
    // The rows of a simdgroup, then the simdgroups.
    const float top = simd_max(largest);
    const float share = largest == -INFINITY ? 0.0f : exp(largest - top);
    total *= share;
    for (uint part = 0; part < OWN; ++part) { sums[part] *= share; }
    for (ushort other = ROW; other < SIMD; other *= 2) {
        total += simd_shuffle_xor(total, other);
        for (uint part = 0; part < OWN; ++part) { sums[part] += simd_shuffle_xor(sums[part], other); }
    }
    if (row == 0) {
        for (uint part = 0; part < OWN; ++part) { sums_of[simdgroup][own + part] = sums[part]; }
    }
    if (lane == 0) {
        largest_of[simdgroup] = top;
        total_of[simdgroup] = total;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float highest = -INFINITY;
    for (uint other = 0; other < simdgroups; ++other) { highest = max(highest, largest_of[other]); }
    for (uint at = simdgroup * SIMD + lane; at < size; at += simdgroups * SIMD) {
        float sum = 0.0f, whole = 0.0f;
        for (uint other = 0; other < simdgroups; ++other) {
            // Simdgroups without a key contribute exp(−∞) = 0.
            const float factor = exp(largest_of[other] - highest);
            whole += total_of[other] * factor;
            sum += sums_of[other][at] * factor;
        }
        out[start + at] = T(sum / whole);
    }
}

#define INSTANCE(T, ROW, NAME, WHOLE)                                                                                 \
    template [[host_name("attend_" #T "_" #ROW NAME)]] kernel void attend<T, ROW, WHOLE>(                             \
        device const T *, device const T *, device const T *, device T *, constant uint &, constant uint &,           \
        constant uint &, constant uint &, constant uint &, constant float &, constant float &, uint2, uint2, uint,    \
        uint, uint);
#define BOTH(T, ROW) INSTANCE(T, ROW, "", true) INSTANCE(T, ROW, "_any", false)
#define INSTANCES(T) BOTH(T, 8) BOTH(T, 16) BOTH(T, 32)

INSTANCES(float)
INSTANCES(half)
INSTANCES(bfloat)
