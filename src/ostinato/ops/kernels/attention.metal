// Attention of queries to the keys and values kept so far, for a GPU. attention_plain.metal is for CPUs.
//
// out[token, head] = Σ softmax(scale · query · keys) · values, over the keys up to the query's own place, which is
// position + token; with a window, over so many of the last of them; with a cap, scores are cap · tanh(score / cap).
// Queries are [tokens, heads, size], keys and values [heads / queries_per_key, capacity, size]. Sums are in float.
//
// A group takes one head of one query. Its simdgroups take every n-th four keys each, with a softmax of their own that
// is rescaled when a larger score comes; at the end the simdgroups' sums are put together.

#include <metal_stdlib>
using namespace metal;

constant constexpr uint SIMD = 32;
constant constexpr uint MOST_SIMDGROUPS = 16;
constant constexpr uint TOGETHER = 4;  // keys whose loads are under way at a time

// A lane's N elements of a row, zero beyond its end; by vectors where rows start at whole ones.
template <typename T, uint N>
inline void load(device const T *row, uint lane, uint size, uint aligned, thread float *to) {
    const uint first = lane * N;
    if (aligned) {
        constexpr uint TAKEN = N < 4 ? N : 4;
        for (uint part = 0; part < N; part += TAKEN) {
            vec<T, TAKEN> taken = vec<T, TAKEN>(T(0));
            if (first < size) {
                taken = *(device const vec<T, TAKEN> *)(row + first + part);
            }
            for (uint step = 0; step < TAKEN; ++step) {
                to[part + step] = float(taken[step]);
            }
        }
    } else {
        for (uint part = 0; part < N; ++part) {
            to[part] = first + part < size ? float(row[first + part]) : 0.0f;
        }
    }
}

// N is the number of elements of a head that a lane takes: sizes up to 32 · N. The grid is [heads, tokens] groups.
template <typename T, uint N>
[[max_total_threads_per_threadgroup(SIMD * MOST_SIMDGROUPS)]]
kernel void attend(device const T *queries [[buffer(0)]], device const T *keys [[buffer(1)]],
                   device const T *values [[buffer(2)]], device T *out [[buffer(3)]],
                   constant uint &position [[buffer(4)]], constant uint &size [[buffer(5)]],
                   constant uint &queries_per_key [[buffer(6)]], constant uint &capacity [[buffer(7)]],
                   constant uint &window [[buffer(8)]], constant float &scale [[buffer(9)]],
                   constant float &cap [[buffer(10)]], constant uint &aligned [[buffer(11)]],
                   uint2 group [[threadgroup_position_in_grid]],
                   uint2 extent [[threadgroups_per_grid]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                   uint simdgroups [[simdgroups_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float sums_of[MOST_SIMDGROUPS][SIMD * N];
    threadgroup float largest_of[MOST_SIMDGROUPS];
    threadgroup float total_of[MOST_SIMDGROUPS];
    const uint head = group.x, token = group.y;
    const uint end = min(position + token + 1, capacity);
    const uint begin = window && end > window ? end - window : 0;
    const ulong start = (ulong(token) * extent.x + head) * size;
    const ulong kept = ulong(head / queries_per_key) * capacity * size;
    float query[N], sums[N] = {};
    load<T, N>(queries + start, lane, size, aligned, query);
    float largest = -INFINITY, total = 0.0f;
    for (uint first = begin + simdgroup * TOGETHER; first < end; first += simdgroups * TOGETHER) {
        float scores[TOGETHER];
        float value[TOGETHER][N];
        for (uint step = 0; step < TOGETHER; ++step) {
            const ulong row = kept + ulong(min(first + step, end - 1)) * size;
            float key[N];
            load<T, N>(keys + row, lane, size, aligned, key);
            load<T, N>(values + row, lane, size, aligned, value[step]);
            scores[step] = 0.0f;
            for (uint part = 0; part < N; ++part) {
                scores[step] += query[part] * key[part];
            }
        }
        float top = largest;
        for (uint step = 0; step < TOGETHER; ++step) {
            float score = simd_sum(scores[step]) * scale;
            score = cap > 0.0f ? cap * tanh(score / cap) : score;
            scores[step] = first + step < end ? score : -INFINITY;
            top = max(top, scores[step]);
        }
        const float shrink = exp(largest - top);
        total *= shrink;
        for (uint part = 0; part < N; ++part) {
            sums[part] *= shrink;
        }
        for (uint step = 0; step < TOGETHER; ++step) {
            const float weight = exp(scores[step] - top);
            total += weight;
            for (uint part = 0; part < N; ++part) {
                sums[part] += weight * value[step][part];
            }
        }
        largest = top;
    }
    for (uint part = 0; part < N; ++part) {
        sums_of[simdgroup][lane * N + part] = sums[part];
    }
    if (lane == 0) {
        largest_of[simdgroup] = largest;
        total_of[simdgroup] = total;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float top = -INFINITY;
    for (uint other = 0; other < simdgroups; ++other) {
        top = max(top, largest_of[other]);
    }
    float whole = 0.0f;
    for (uint other = 0; other < simdgroups; ++other) {
        whole += total_of[other] * exp(largest_of[other] - top);
    }
    for (uint at = simdgroup * SIMD + lane; at < size; at += simdgroups * SIMD) {
        float sum = 0.0f;
        for (uint other = 0; other < simdgroups; ++other) {
            sum += sums_of[other][at] * exp(largest_of[other] - top);
        }
        out[start + at] = T(sum / whole);
    }
}

#define INSTANCE(T, N)                                                                                                \
    template [[host_name("attend_" #T "_" #N)]] kernel void attend<T, N>(                                             \
        device const T *, device const T *, device const T *, device T *, constant uint &, constant uint &,           \
        constant uint &, constant uint &, constant uint &, constant float &, constant float &, constant uint &,       \
        uint2, uint2, uint, uint, uint);
#define INSTANCES(T) INSTANCE(T, 2) INSTANCE(T, 4) INSTANCE(T, 8)

INSTANCES(float)
INSTANCES(half)
INSTANCES(bfloat)
