// Matrix by matrix for a CPU whose simdgroups run as vectors: lanes take neighbouring elements of rows, each element that is
// read is used for several products, and x is widened to float once, by `widen`, and not for every row of the weights.

#include <metal_stdlib>
using namespace metal;

constant constexpr uint ROWS = 4;    // rows of the weights per simdgroup
constant constexpr uint TOKENS = 3;  // rows of x at a time; sums of both are 24 registers of 16 floats

template <typename T>
kernel void widen(device const T *x [[buffer(0)]], device float *out [[buffer(1)]],
                  uint at [[thread_position_in_grid]]) {
    out[at] = float(x[at]);
}

/// out[token, row] = weight[row] · x[token]; the width is a multiple of 32. A simdgroup for each ROWS rows.
template <typename T>
kernel void multiply_many(device const T *weight [[buffer(0)]], device const float *x [[buffer(1)]],
                          device T *out [[buffer(2)]], constant uint &width [[buffer(3)]],
                          constant uint &rows [[buffer(4)]], constant uint &tokens [[buffer(5)]],
                          uint group [[threadgroup_position_in_grid]],
                          uint simdgroup [[simdgroup_index_in_threadgroup]],
                          uint simdgroups [[simdgroups_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    const uint row = (group * simdgroups + simdgroup) * ROWS;
    if (row >= rows) { return; }
    // Past the last row or token the last one is computed again, and not stored.
    device const T *lines[ROWS];
    for (uint i = 0; i < ROWS; ++i) { lines[i] = weight + ulong(min(row + i, rows - 1)) * width; }
    for (uint token = 0; token < tokens; token += TOKENS) {
        device const float *inputs[TOKENS];
        for (uint j = 0; j < TOKENS; ++j) { inputs[j] = x + ulong(min(token + j, tokens - 1)) * width; }
        float sums[ROWS][TOKENS] = {};
        for (uint at = 0; at < width; at += 32) {
            float right[TOKENS];
            for (uint j = 0; j < TOKENS; ++j) { right[j] = inputs[j][at + lane]; }
            for (uint i = 0; i < ROWS; ++i) {
                const float left = float(lines[i][at + lane]);
                for (uint j = 0; j < TOKENS; ++j) { sums[i][j] += left * right[j]; }
            }
        }
        for (uint j = 0; j < TOKENS; ++j) {
            for (uint i = 0; i < ROWS; ++i) {
                const float total = simd_sum(sums[i][j]);
                if (lane == 0 && row + i < rows && token + j < tokens) {
                    out[ulong(token + j) * rows + row + i] = T(total);
                }
            }
        }
    }
}

#define INSTANCES(T)                                                                                                  \
    template [[host_name("widen_" #T)]] kernel void widen<T>(device const T *, device float *, uint);                 \
    template [[host_name("multiply_many_" #T)]] kernel void multiply_many<T>(                                         \
        device const T *, device const float *, device T *, constant uint &, constant uint &, constant uint &, uint,  \
        uint, uint, uint);

INSTANCES(float)
INSTANCES(half)
INSTANCES(bfloat)
