// Causal attention of queries to the cached keys and values, for a CPU: one thread per head of a query.
// attention.metal is for GPUs and describes the computation.

#include <metal_stdlib>
using namespace metal;

#include "plain.h"

constant constexpr uint MOST_SIZE = 256;
constant constexpr uint BLOCK = 32;  // keys per update of the largest score
constant constexpr int PART = 32;

// The grid is [heads, tokens].
template <typename T>
kernel void attend(device const T *queries [[buffer(0)]], device const T *keys [[buffer(1)]],
                   device const T *values [[buffer(2)]], device T *out [[buffer(3)]],
                   constant uint &position [[buffer(4)]], constant uint &size [[buffer(5)]],
                   constant uint &queries_per_key [[buffer(6)]], constant uint &capacity [[buffer(7)]],
                   constant uint &window [[buffer(8)]], constant float &scale [[buffer(9)]],
                   constant float &cap [[buffer(10)]], uint2 thread_position [[thread_position_in_grid]],
                   uint2 extent [[threads_per_grid]]) {
    const uint head = thread_position.x, token = thread_position.y;
    const uint end = min(position + token + 1, capacity);
    const uint begin = window && end > window ? end - window : 0;
    const ulong start = (ulong(token) * extent.x + head) * size;
    const ulong kept = ulong(head / queries_per_key) * capacity * size;
    float query[MOST_SIZE], sums[MOST_SIZE];
    device const T *given = queries + start;
    for (uint at = 0; at < size; ++at) {
        query[at] = wide(given, at) * scale;
        sums[at] = 0.0f;
    }
    float largest = -INFINITY, total = 0.0f;
    for (uint first = begin; first < end; first += BLOCK) {
        const uint count = min(BLOCK, end - first);
        float scores[BLOCK];
        for (uint step = 0; step < BLOCK; ++step) { scores[step] = -INFINITY; }
        float top = largest;
        for (uint step = 0; step < count; ++step) {
            device const T *key = keys + kept + ulong(first + step) * size;
            float parts[PART] = {};
            uint at = 0;
            for (; at + PART <= size; at += PART) {
                device const T *part = key + at;
                thread const float *mine = query + at;
                for (int lane = 0; lane < PART; ++lane) { parts[lane] += mine[lane] * wide(part, lane); }
            }
            float score = sum_of<PART>(parts);
            for (; at < size; ++at) { score += query[at] * wide(key, at); }
            score = cap > 0.0f ? cap * tanh(score / cap) : score;
            scores[step] = score;
            top = max(top, score);
        }
        if (top > largest) {
            const float shrink = exp(largest - top);
            total *= shrink;
            for (uint at = 0; at < size; ++at) { sums[at] *= shrink; }
            largest = top;
        }
        for (uint step = 0; step < BLOCK; ++step) { scores[step] = exp(scores[step] - largest); }
        device const T *value = values + kept + ulong(first) * size;
        uint step = 0;
        for (; step + 4 <= count; step += 4, value += 4 * size) {
            const float a = scores[step], b = scores[step + 1], c = scores[step + 2], d = scores[step + 3];
            device const T *second = value + size, *third = second + size, *fourth = third + size;
            for (uint at = 0; at < size; ++at) {
                sums[at] += (a * wide(value, at) + b * wide(second, at)) + (c * wide(third, at) + d * wide(fourth, at));
            }
        }
        for (; step < count; ++step, value += size) {
            for (uint at = 0; at < size; ++at) { sums[at] += scores[step] * wide(value, at); }
        }
        total += sum_of<BLOCK>(scores);
    }
    device T *result = out + start;
    for (uint at = 0; at < size; ++at) { result[at] = T(sums[at] / total); }
}

#define INSTANCES(T)                                                                                                  \
    template [[host_name("attend_" #T)]] kernel void attend<T>(                                                       \
        device const T *, device const T *, device const T *, device T *, constant uint &, constant uint &,           \
        constant uint &, constant uint &, constant uint &, constant float &, constant float &, uint2, uint2);

INSTANCES(float)
INSTANCES(half)
INSTANCES(bfloat)
