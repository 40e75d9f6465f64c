// Matrix by vector and matrix by matrix, for a CPU: a row of the weights a thread. matvec.metal is for GPUs.
//
// Weights are [out, in]. Sums are kept in float and rounded once, to the type that is stored.

#include <metal_stdlib>
using namespace metal;

#include "plain.h"

/// out = weight · x
template <typename T>
kernel void matvec(device const T *weight [[buffer(0)]], device const T *x [[buffer(1)]],
                   device T *out [[buffer(2)]], constant uint &width [[buffer(3)]],
                   uint row [[thread_position_in_grid]]) {
    out[row] = T(row_product(weight + ulong(row) * width, x, width));
}

/// For each slot, out = weight[indices[slot]] · x[slot / slots_per_x]; an index past the last expert gives NaN.
template <typename T>
kernel void expert_matvec(device const T *weight [[buffer(0)]], device const T *x [[buffer(1)]],
                          device const uint *indices [[buffer(2)]], device T *out [[buffer(3)]],
                          constant uint &width [[buffer(4)]], constant uint &slots_per_x [[buffer(5)]],
                          constant uint &experts [[buffer(6)]], uint2 position [[thread_position_in_grid]],
                          uint2 extent [[threads_per_grid]]) {
    const uint row = position.x, rows = extent.x, slot = position.y;
    const uint expert = indices[slot];
    const ulong at = ulong(slot) * rows + row;
    if (expert >= experts) {
        out[at] = T(NAN);
        return;
    }
    device const T *line = weight + (ulong(expert) * rows + row) * width;
    out[at] = T(row_product(line, x + ulong(slot / slots_per_x) * width, width));
}

constant constexpr uint TOKENS = 8;
constant constexpr int PART = 32;

/// out[token, row] = weight[row] · x[token]: a thread takes a row and eight tokens, so weights are read once for them.
template <typename T>
kernel void matmul(device const T *weight [[buffer(0)]], device const T *x [[buffer(1)]],
                   device T *out [[buffer(2)]], constant uint &width [[buffer(3)]],
                   constant uint &rows [[buffer(4)]], constant uint &tokens [[buffer(5)]],
                   uint2 position [[thread_position_in_grid]]) {
    const uint row = position.x, first = position.y * TOKENS;
    const uint count = min(TOKENS, tokens - first);
    device const T *line = weight + ulong(row) * width;
    device const T *inputs = x + ulong(first) * width;
    if (count < TOKENS) {
        for (uint token = 0; token < count; ++token) {
            out[ulong(first + token) * rows + row] = T(row_product(line, inputs + ulong(token) * width, width));
        }
        return;
    }
    float sums[TOKENS][PART] = {};
    uint done = 0;
    for (; done + PART <= width; done += PART) {
        float part[PART];
        device const T *left = line + done;
        for (int lane = 0; lane < PART; ++lane) {
            part[lane] = wide(left, lane);
        }
        for (uint token = 0; token < TOKENS; ++token) {
            device const T *right = inputs + ulong(token) * width + done;
            for (int lane = 0; lane < PART; ++lane) {
                sums[token][lane] += part[lane] * wide(right, lane);
            }
        }
    }
    for (uint token = 0; token < TOKENS; ++token) {
        float total = sum_of<PART>(sums[token]);
        device const T *input = inputs + ulong(token) * width;
        for (uint at = done; at < width; ++at) {
            total += wide(line, at) * wide(input, at);
        }
        out[ulong(first + token) * rows + row] = T(total);
    }
}

#define INSTANCES(T)                                                                                                  \
    template [[host_name("matvec_" #T)]] kernel void matvec<T>(device const T *, device const T *, device T *,        \
                                                               constant uint &, uint);                                \
    template [[host_name("expert_matvec_" #T)]] kernel void expert_matvec<T>(                                         \
        device const T *, device const T *, device const uint *, device T *, constant uint &, constant uint &,        \
        constant uint &, uint2, uint2);                                                                               \
    template [[host_name("matmul_" #T)]] kernel void matmul<T>(device const T *, device const T *, device T *,        \
                                                               constant uint &, constant uint &, constant uint &,     \
                                                               uint2);

INSTANCES(float)
INSTANCES(half)
INSTANCES(bfloat)
