// The step between the projections and attention, for a CPU: one thread per head of a token. rope_append.metal is for
// GPUs and describes the computation.

#include <metal_stdlib>
using namespace metal;

// The grid is [heads + 2 · kept, tokens].
template <typename T>
kernel void rope_append(device const T *x [[buffer(0)]], device const float *frequencies [[buffer(1)]],
                        device const T *query_weight [[buffer(2)]], device const T *key_weight [[buffer(3)]],
                        device T *queries [[buffer(4)]], device T *keys [[buffer(5)]], device T *values [[buffer(6)]],
                        constant uint &position [[buffer(7)]], constant uint &heads [[buffer(8)]],
                        constant uint &kept [[buffer(9)]], constant uint &size [[buffer(10)]],
                        constant uint &pairs [[buffer(11)]], constant uint &capacity [[buffer(12)]],
                        constant uint &normed [[buffer(13)]], constant float &eps [[buffer(14)]],
                        uint2 thread_position [[thread_position_in_grid]]) {
    const uint head = thread_position.x, token = thread_position.y;
    device const T *from = x + (ulong(token) * (heads + 2 * kept) + head) * size;
    device T *to = queries + (ulong(token) * heads + head) * size;
    if (head >= heads) {
        const ulong place = ulong(position) + token;
        if (place >= capacity) { return; }
        const uint number = head - heads;
        to = (number < kept ? keys : values) + (ulong(number % kept) * capacity + place) * size;
        if (number >= kept) {
            for (uint at = 0; at < size; ++at) { to[at] = from[at]; }
            return;
        }
    }
    float scale = 1.0f;
    if (normed) {
        float squares = 0.0f;
        for (uint at = 0; at < size; ++at) { squares += float(from[at]) * float(from[at]); }
        scale = rsqrt(squares / float(size) + eps);
    }
    device const T *weight = head < heads ? query_weight : key_weight;
    for (uint at = 0; at < pairs; ++at) {
        float a = float(from[at]), b = float(from[at + pairs]);
        if (normed) {
            a = float(T(a * scale * float(weight[at])));
            b = float(T(b * scale * float(weight[at + pairs])));
        }
        const float angle = float(position + token) * frequencies[at];
        const float cosine = precise::cos(angle), sine = precise::sin(angle);
        to[at] = T(a * cosine - b * sine);
        to[at + pairs] = T(b * cosine + a * sine);
    }
    for (uint at = 2 * pairs; at < size; ++at) {
        to[at] = normed ? T(float(from[at]) * scale * float(weight[at])) : from[at];
    }
}

#define INSTANCE(T)                                                                                                   \
    template [[host_name("rope_append_" #T)]] kernel void rope_append<T>(                                             \
        device const T *, device const float *, device const T *, device const T *, device T *, device T *,           \
        device T *, constant uint &, constant uint &, constant uint &, constant uint &, constant uint &,              \
        constant uint &, constant uint &, constant float &, uint2);

INSTANCE(float)
INSTANCE(half)
INSTANCE(bfloat)
