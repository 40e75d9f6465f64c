// Operations on tokens and their positions: the embedding of tokens, the rotation of queries and keys, and the cache of
// keys and values. The first token of `x` is at `position`, the others follow it.

#include <metal_stdlib>
using namespace metal;

/// out[token] = table[tokens[token]]; a token past the end of the table gives NaN.
template <typename T>
kernel void embedding(device const T *table [[buffer(0)]], device const uint *tokens [[buffer(1)]],
                      device T *out [[buffer(2)]], constant uint &rows [[buffer(3)]],
                      uint2 thread_position [[thread_position_in_grid]], uint2 extent [[threads_per_grid]]) {
    const uint at = thread_position.x, width = extent.x;
    const uint row = tokens[thread_position.y];
    out[ulong(thread_position.y) * width + at] = row < rows ? table[ulong(row) * width + at] : T(NAN);
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

/// cache[head, position + token] = x[token, head]; tokens past the end of the cache are dropped.
///
/// The grid is [size, heads, tokens].
template <typename T>
kernel void kv_append(device const T *keys [[buffer(0)]], device const T *values [[buffer(1)]],
                      device T *key_cache [[buffer(2)]], device T *value_cache [[buffer(3)]],
                      constant uint &position [[buffer(4)]], constant uint &capacity [[buffer(5)]],
                      uint3 thread_position [[thread_position_in_grid]], uint3 extent [[threads_per_grid]]) {
    const uint at = thread_position.x, head = thread_position.y, token = thread_position.z;
    const ulong place = ulong(position) + token;
    if (place < capacity) {
        const ulong from = (ulong(token) * extent.y + head) * extent.x + at;
        const ulong to = (ulong(head) * capacity + place) * extent.x + at;
        key_cache[to] = keys[from];
        value_cache[to] = values[from];
    }
}

#define INSTANCES(T)                                                                                                  \
    template [[host_name("embedding_" #T)]] kernel void embedding<T>(device const T *, device const uint *,           \
                                                                     device T *, constant uint &, uint2, uint2);      \
    template [[host_name("rope_" #T)]] kernel void rope<T>(device const T *, device const float *, device T *,        \
                                                           constant uint &, constant uint &, constant uint &,         \
                                                           constant float &, uint3, uint3);                           \
    template [[host_name("kv_append_" #T)]] kernel void kv_append<T>(device const T *, device const T *, device T *,  \
                                                                     device T *, constant uint &, constant uint &,    \
                                                                     uint3, uint3);

INSTANCES(float)
INSTANCES(half)
INSTANCES(bfloat)
