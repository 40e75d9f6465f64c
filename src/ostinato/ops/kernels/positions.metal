// Operations on tokens and their positions: the embedding of tokens, the rotation of queries and keys, and the cache of
// keys and values. The first token of `x` is at `position`, the others follow it.
//
// A thread takes one element, or pair, or four or eight of them that are read and written as vectors (`fours`, `eights`).

#include <metal_stdlib>
using namespace metal;

#include "fours.h"

constant constexpr uint HEADS = 8;  // heads of a thread, for which the angles are the same

#define FOR_TOGETHER _Pragma("clang loop unroll(full)") for (uint k = 0; k < TOGETHER; ++k)

/// out[i] = table[tokens[i]], for `count` tokens; a token past the end of the table gives NaN.
///
/// A thread takes its elements of TOGETHER neighbouring tokens: reading a row waits for its token, so several are read at
/// a time. The grid is [width / EACH, count / TOGETHER, rounded up].
template <typename T, uint EACH, uint TOGETHER>
kernel void embedding(device const T *table [[buffer(0)]], device const uint *tokens [[buffer(1)]],
                      device T *out [[buffer(2)]], constant uint &rows [[buffer(3)]],
                      constant uint &count [[buffer(4)]], uint2 thread_position [[thread_position_in_grid]],
                      uint2 extent [[threads_per_grid]]) {
    const uint at = thread_position.x * EACH, width = extent.x * EACH, first = thread_position.y * TOGETHER;
    uint row[TOGETHER];
    typedef typename Elements<T, EACH>::Kept Kept;
    Kept kept[TOGETHER];
    FOR_TOGETHER { row[k] = tokens[min(first + k, count - 1)]; }
    FOR_TOGETHER {
        if (row[k] < rows) { kept[k] = get((device const Kept *)(table + ulong(row[k]) * width + at)); }
    }
    float none[EACH];
    FOR_EACH { none[i] = NAN; }
    FOR_TOGETHER {
        if (first + k < count) {
            put(row[k] < rows ? kept[k] : Elements<T, EACH>::rounded(none),
                (device Kept *)(out + ulong(first + k) * width + at));
        }
    }
}

/// Rotates pairs of each head's elements by position · frequency; elements after the last pair are copied.
///
/// x is [tokens, heads, size]. One thread per pair or unpaired element: the grid is [size − pairs, heads,
/// tokens]. A pair is (i, i + pairs), or with `interleaved` (2i, 2i + 1). `out` may be `x`.
template <typename T>
kernel void rope(device const T *x [[buffer(0)]], device const float *frequencies [[buffer(1)]],
                 device T *out [[buffer(2)]], constant uint &position [[buffer(3)]], constant uint &pairs [[buffer(4)]],
                 constant uint &interleaved [[buffer(5)]], constant float &scale [[buffer(6)]],
                 uint3 thread_position [[thread_position_in_grid]], uint3 extent [[threads_per_grid]]) {
    const uint at = thread_position.x, head = thread_position.y, token = thread_position.z;
    const uint size = extent.x + pairs;
    const ulong start = (ulong(token) * extent.y + head) * size;
    if (at >= pairs) {
        out[start + pairs + at] = x[start + pairs + at];
        return;
    }
    const ulong first = start + (interleaved ? 2 * at : at);
    const ulong second = first + (interleaved ? 1 : pairs);
    const float angle = float(position + token) * frequencies[at];
    const float cosine = precise::cos(angle) * scale, sine = precise::sin(angle) * scale;
    const float a = float(x[first]), b = float(x[second]);
    out[first] = T(a * cosine - b * sine);
    out[second] = T(b * cosine + a * sine);
}

/// The same for heads of nothing but pairs (i, i + pairs), four pairs of up to eight heads per thread: the grid is
/// [pairs / 4, eights of heads, tokens].
template <typename T>
kernel void rope_fours(device const T *x [[buffer(0)]], device const float *frequencies [[buffer(1)]],
                       device T *out [[buffer(2)]], constant uint &position [[buffer(3)]],
                       constant uint &heads [[buffer(4)]], constant float &scale [[buffer(5)]],
                       uint3 thread_position [[thread_position_in_grid]], uint3 extent [[threads_per_grid]]) {
    constexpr uint EACH = 4;
    const uint at = thread_position.x * EACH, pairs = extent.x * EACH, token = thread_position.z;
    float cosine[EACH], sine[EACH];
    FOR_EACH {
        const float angle = float(position + token) * frequencies[at + i];
        cosine[i] = precise::cos(angle) * scale;
        sine[i] = precise::sin(angle) * scale;
    }
    const uint first = thread_position.y * HEADS;
    for (uint head = first; head < min(first + HEADS, heads); ++head) {
        const ulong start = (ulong(token) * heads + head) * 2 * pairs + at;
        float a[EACH], b[EACH], turned[EACH];
        load<T, EACH>(x + start, a);
        load<T, EACH>(x + start + pairs, b);
        FOR_EACH { turned[i] = a[i] * cosine[i] - b[i] * sine[i]; }
        store<T, EACH>(turned, out + start);
        FOR_EACH { turned[i] = b[i] * cosine[i] + a[i] * sine[i]; }
        store<T, EACH>(turned, out + start + pairs);
    }
}

/// cache[head, position + token] = x[token, head]; tokens past the end of the cache are dropped.
///
/// The grid is [size, heads, tokens].
template <typename T, uint EACH>
kernel void kv_append(device const T *keys [[buffer(0)]], device const T *values [[buffer(1)]],
                      device T *key_cache [[buffer(2)]], device T *value_cache [[buffer(3)]],
                      constant uint &position [[buffer(4)]], constant uint &capacity [[buffer(5)]],
                      uint3 thread_position [[thread_position_in_grid]], uint3 extent [[threads_per_grid]]) {
    const uint at = thread_position.x * EACH, size = extent.x * EACH;
    const uint head = thread_position.y, token = thread_position.z;
    const ulong place = ulong(position) + token;
    if (place < capacity) {
        const ulong from = (ulong(token) * extent.y + head) * size + at;
        const ulong to = (ulong(head) * capacity + place) * size + at;
        copy<T, EACH>(keys + from, key_cache + to);
        copy<T, EACH>(values + from, value_cache + to);
    }
}

#define EMBEDDING(T, EACH, TOGETHER, WAY)                                                                             \
    template [[host_name("embedding" WAY #T)]] kernel void embedding<T, EACH, TOGETHER>(                              \
        device const T *, device const uint *, device T *, constant uint &, constant uint &, uint2, uint2);
#define APPEND(T, EACH, WAY)                                                                                          \
    template [[host_name("kv_append" WAY #T)]] kernel void kv_append<T, EACH>(                                        \
        device const T *, device const T *, device T *, device T *, constant uint &, constant uint &, uint3, uint3);
#define INSTANCES(T)                                                                                                  \
    EMBEDDING(T, 1, 1, "_")                                                                                           \
    EMBEDDING(T, 4, 4, "_fours_")                                                                                     \
    APPEND(T, 1, "_")                                                                                                 \
    APPEND(T, 4, "_fours_")                                                                                           \
    template [[host_name("rope_" #T)]] kernel void rope<T>(device const T *, device const float *, device T *,        \
                                                           constant uint &, constant uint &, constant uint &,         \
                                                           constant float &, uint3, uint3);                           \
    template [[host_name("rope_fours_" #T)]] kernel void rope_fours<T>(device const T *, device const float *,        \
                                                                       device T *, constant uint &, constant uint &,  \
                                                                       constant float &, uint3, uint3);

INSTANCES(float)
INSTANCES(half)
INSTANCES(bfloat)
EMBEDDING(half, 8, 4, "_eights_")
EMBEDDING(bfloat, 8, 4, "_eights_")
