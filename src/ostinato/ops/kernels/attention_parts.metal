// Causal attention of one token to many cached keys, for a GPU: `attend_part` splits the keys over groups, and `join_parts`
// joins what they computed.
//
// A group takes a head of the cache, a part of its keys, and up to eight of the queries that share the head, so keys and
// values are read once for all of them. Its simdgroups take 16 keys in turn, and multiply them as simdgroup matrices.
//
// Rows are read by 16 bytes at a time: of every 32 elements of a row, each of its four lanes reads eight that are
// neighbours. A tile takes two of these eight from every lane, so the elements of a head are in another order than in
// memory: the lane's pair of tile 4 j + u are the elements 32 j + 8 p + 2 u and the next, where p is the lane's number in
// its row. Queries are put in the same order, which leaves scores as they are.
//
// `partial` has, for each head and part, the sum of weighted values: [heads, parts, size]; after all of these the largest
// score, as a logarithm to base 2, and the sum of weights: [heads, parts, 2]. A part without keys has the largest score −∞.

#include "parts.h"
#include <metal_simdgroup_matrix>
using namespace metal;

#include "vectors.h"

constant constexpr uint SIMD = 32;
constant constexpr uint SIMDGROUPS = 4;
constant constexpr uint QUERIES = 8;
constant constexpr uint TOGETHER = 2;     // tiles of eight keys whose loads are in flight
constant constexpr uint LEAST_KEYS = 64;  // a part with fewer is not worth a group
constant constexpr uint MOST_PARTS = 128;
constant constexpr uint SLICES = 8;  // of the parts, when they are joined
constant constexpr float LOG2_E = 1.4426950408889634f;
#define EACH(i, count) _Pragma("clang loop unroll(full)") for (uint i = 0; i < count; ++i)

// The lane that holds the `pair`-th two elements of a tile's row.
inline ushort lane_of(uint row, uint pair) { return (row & 4) << 2 | (row & 3) << 1 | (pair & 2) << 2 | (pair & 1); }

// One of two neighbours of 16 bits.
inline uint one_of(uint both, uint second) { return both >> 16 * second & 0xffff; }

// −∞ stands for no key at all: nothing is left of what it multiplies.
inline float share_of(float score, float largest) { return score == -INFINITY ? 0.0f : exp2(score - largest); }

// The grid is [parts, heads of the cache, eights of queries] groups of 128 threads.
template <typename T, uint SIZE>
[[max_total_threads_per_threadgroup(SIMD * SIMDGROUPS)]]
kernel void attend_part(device const T *queries [[buffer(0)]], device const T *keys [[buffer(1)]],
                        device const T *values [[buffer(2)]], device float *partial [[buffer(3)]],
                        constant uint &position [[buffer(4)]], constant uint &queries_per_key [[buffer(5)]],
                        constant uint &capacity [[buffer(6)]], constant uint &window [[buffer(7)]],
                        constant float &scale [[buffer(8)]], constant float &cap [[buffer(9)]],
                        uint3 group [[threadgroup_position_in_grid]], uint3 extent [[threadgroups_per_grid]],
                        uint member [[thread_index_in_threadgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                        uint lane [[thread_index_in_simdgroup]]) {
    constexpr uint WORDS = SIZE / 32, TILES = SIZE / 8, STEP = 8 * TOGETHER;
    threadgroup float sums_of[SIMDGROUPS][QUERIES][SIZE];
    threadgroup float largest_of[SIMDGROUPS][QUERIES];
    threadgroup float total_of[SIMDGROUPS][QUERIES];
    const uint part = group.x, parts = extent.x, kept_head = group.y, first_query = group.z * QUERIES;
    const uint first_head = kept_head * queries_per_key + first_query, heads = extent.y * queries_per_key;
    const uint here = min(queries_per_key - first_query, QUERIES);  // queries; the others repeat the last
    const uint end = min(position + 1, capacity);
    const uint begin = window && end > window ? end - window : 0;
    const uint each = max((end - begin + parts - 1) / parts, LEAST_KEYS);
    const uint from = min(begin + part * each, end), to = min(from + each, end);
    const uint row = (lane >> 4 & 1) * 4 + (lane >> 1 & 3), pair = (lane >> 3 & 1) * 2 + (lane & 1);
    if (from == to) {  // nobody reads the sums of a part without keys
        if (member < here) {
            partial[(ulong(heads) * SIZE + (first_head + member) * 2) * parts + part * 2] = -INFINITY;
            partial[(ulong(heads) * SIZE + (first_head + member) * 2) * parts + part * 2 + 1] = 0.0f;
        }
        return;
    }
    const ulong kept = ulong(kept_head) * capacity * (SIZE / 8) + pair;
    device const uint4 *key_words = in_vectors<uint4>(keys) + kept;
    device const uint4 *value_words = in_vectors<uint4>(values) + kept;

    simdgroup_matrix<T, 8, 8> query[TILES];
    device const T *first = queries + ulong(first_head + min(pair * 2, here - 1)) * SIZE;
    device const T *second = queries + ulong(first_head + min(pair * 2 + 1, here - 1)) * SIZE;
    EACH(tile, TILES) {
        const uint at = tile / 4 * 32 + row / 2 * 8 + tile % 4 * 2 + row % 2;
        query[tile].thread_elements() = vec<T, 2>(first[at], second[at]);
    }
    simdgroup_matrix<float, 8, 8> sums[TILES];
    EACH(tile, TILES) { sums[tile] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f); }
    float2 largest = -INFINITY, total = 0.0f;  // of this lane's queries
    for (uint at = from + simdgroup * STEP; at < to; at += SIMDGROUPS * STEP) {
        uint4 key[TOGETHER][WORDS], value[TOGETHER][WORDS];
        EACH(i, TOGETHER) {
            const ulong place = ulong(min(at + i * 8 + row, to - 1)) * (SIZE / 8);
            EACH(j, WORDS) {
                key[i][j] = key_words[place + j * 4];
                value[i][j] = value_words[place + j * 4];
            }
        }
        float2 scores[TOGETHER], top = largest;
        EACH(i, TOGETHER) {
            simdgroup_matrix<float, 8, 8> products = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
            EACH(j, WORDS) {
                EACH(u, 4) {
                    simdgroup_matrix<T, 8, 8> left;
                    left.thread_elements() = as_type<vec<T, 2>>(key[i][j][u]);
                    simdgroup_multiply_accumulate(products, left, query[4 * j + u], products);
                }
            }
            float2 score = products.thread_elements() * scale;
            if (cap > 0.0f) { score = cap * tanh(score / cap); }
            scores[i] = at + i * 8 + row < to ? score * LOG2_E : float2(-INFINITY);
            top = max(top, scores[i]);
        }
        // Over the keys, which are the rows.
        top = max(top, simd_shuffle_xor(top, ushort(2)));
        top = max(top, simd_shuffle_xor(top, ushort(4)));
        top = max(top, simd_shuffle_xor(top, ushort(16)));
        const float2 shrink = float2(share_of(largest.x, top.x), share_of(largest.y, top.y));
        total *= shrink;
        largest = top;
        const float2 shrinks = simd_shuffle(shrink, lane_of(0, row / 2));
        const float shrunk = row % 2 ? shrinks.y : shrinks.x;
        EACH(tile, TILES) { sums[tile].thread_elements() *= shrunk; }
        EACH(i, TOGETHER) {
            const float2 weight = float2(exp2(scores[i].x - top.x), exp2(scores[i].y - top.y));
            total += weight;
            // Keys become columns.
            const uint both = as_type<uint>(vec<T, 2>(weight));
            const uint low = one_of(simd_shuffle(both, lane_of(pair * 2, row / 2)), row % 2);
            const uint high = one_of(simd_shuffle(both, lane_of(pair * 2 + 1, row / 2)), row % 2);
            simdgroup_matrix<T, 8, 8> weights;
            weights.thread_elements() = as_type<vec<T, 2>>(low | high << 16);
            EACH(j, WORDS) {
                EACH(u, 4) {
                    simdgroup_matrix<T, 8, 8> right;
                    right.thread_elements() = as_type<vec<T, 2>>(value[i][j][u]);
                    simdgroup_multiply_accumulate(sums[4 * j + u], weights, right, sums[4 * j + u]);
                }
            }
        }
    }
    total += simd_shuffle_xor(total, ushort(2));
    total += simd_shuffle_xor(total, ushort(4));
    total += simd_shuffle_xor(total, ushort(16));
    if (row == 0) {
        largest_of[simdgroup][pair * 2] = largest.x;
        largest_of[simdgroup][pair * 2 + 1] = largest.y;
        total_of[simdgroup][pair * 2] = total.x;
        total_of[simdgroup][pair * 2 + 1] = total.y;
    }
    EACH(tile, TILES) {
        const uint at = tile / 4 * 32 + pair * 8 + tile % 4 * 2;
        sums_of[simdgroup][row][at] = sums[tile].thread_elements().x;
        sums_of[simdgroup][row][at + 1] = sums[tile].thread_elements().y;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint at = member; at < here * SIZE; at += SIMD * SIMDGROUPS) {
        const uint q = at / SIZE;
        float highest = -INFINITY, sum = 0.0f, whole = 0.0f;
        EACH(other, SIMDGROUPS) { highest = max(highest, largest_of[other][q]); }
        EACH(other, SIMDGROUPS) {
            const float share = share_of(largest_of[other][q], highest);
            sum += sums_of[other][q][at % SIZE] * share;
            whole += total_of[other][q] * share;
        }
        const ulong slot = ulong(first_head + q) * parts + part;
        partial[slot * SIZE + at % SIZE] = sum;
        if (at % SIZE == 0) {
            device float *state = partial + ulong(heads) * parts * SIZE + slot * 2;
            state[0] = highest;
            state[1] = whole;
        }
    }
}

// out[head] = the sums of all parts, weighted by their shares. One group per head, of a row of threads per slice of parts.
template <typename T, uint SIZE>
[[max_total_threads_per_threadgroup(SIZE * SLICES)]]
kernel void join_parts(device const float *partial [[buffer(0)]], device T *out [[buffer(1)]],
                       constant uint &parts [[buffer(2)]], uint head [[threadgroup_position_in_grid]],
                       uint heads [[threadgroups_per_grid]], uint member [[thread_index_in_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float sums_of[SLICES][SIZE];
    device const float2 *states = in_vectors<float2>(partial + ulong(heads) * parts * SIZE) + ulong(head) * parts;
    const uint slice = member / SIZE, at = member % SIZE;
    device const float *sums = partial + ulong(head) * parts * SIZE + at;
    // All loads are in flight at once. Every simdgroup looks at all parts, so that none waits for another.
    float2 state[MOST_PARTS / SIMD];
    float loaded[MOST_PARTS / SLICES];
    EACH(i, MOST_PARTS / SIMD) {
        const uint part = lane + i * SIMD;
        state[i] = part < parts ? states[part] : float2(-INFINITY, 0.0f);
    }
    EACH(i, MOST_PARTS / SLICES) {
        const uint part = slice + i * SLICES;
        loaded[i] = part < parts ? sums[part * SIZE] : 0.0f;
    }
    float highest = -INFINITY, whole = 0.0f, sum = 0.0f;
    EACH(i, MOST_PARTS / SIMD) { highest = max(highest, state[i].x); }
    highest = simd_max(highest);
    EACH(i, MOST_PARTS / SIMD) {
        state[i].x = share_of(state[i].x, highest);
        whole += state[i].x * state[i].y;
    }
    whole = simd_sum(whole);
    EACH(i, MOST_PARTS / SLICES) {
        const uint part = slice + i * SLICES;
        const float share = simd_shuffle(state[i * SLICES / SIMD].x, ushort(part % SIMD));
        sum += share > 0.0f ? share * loaded[i] : 0.0f;
    }
    sums_of[slice][at] = sum / whole;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (slice == 0) {
        float all = 0.0f;
        EACH(i, SLICES) { all += sums_of[i][at]; }
        out[ulong(head) * SIZE + at] = T(all);
    }
}

#define INSTANCE(T, SIZE)                                                                                             \
    template [[host_name("attend_part_" #T "_" #SIZE)]] kernel void attend_part<T, SIZE>(                             \
        device const T *, device const T *, device const T *, device float *, constant uint &, constant uint &,       \
        constant uint &, constant uint &, constant float &, constant float &, uint3, uint3, uint, uint, uint);        \
    template [[host_name("join_parts_" #T "_" #SIZE)]] kernel void join_parts<T, SIZE>(                               \
        device const float *, device T *, constant uint &, uint, uint, uint, uint);
#define INSTANCES(T) INSTANCE(T, 64) INSTANCE(T, 96) INSTANCE(T, 128)

INSTANCES(half)
INSTANCES(bfloat)
