// Matrix by vector for weights in blocks of few bits, for a CPU: one thread per row. quantised.metal is for GPUs and
// describes the formats.

#include <metal_stdlib>
using namespace metal;

#include "plain.h"

template <typename T>
kernel void matvec_q4_0(device const uchar *weight [[buffer(0)]], device const T *x [[buffer(1)]],
                        device T *out [[buffer(2)]], constant uint &width [[buffer(3)]],
                        uint row [[thread_position_in_grid]]) {
    const uint blocks = width / 32;
    device const uchar *block = weight + ulong(row) * blocks * 18;
    device const T *part = x;
    float sums[32] = {};
    for (uint number = 0; number < blocks; ++number, block += 18, part += 32) {
        const float scale = float(*(device const half *)block);
        device const uchar *pairs = block + 2;
        float numbers[32];
        for (int lane = 0; lane < 16; ++lane) { numbers[lane] = float(int(pairs[lane] & 15) - 8); }
        for (int lane = 0; lane < 16; ++lane) { numbers[lane + 16] = float(int(pairs[lane] >> 4) - 8); }
        for (int lane = 0; lane < 32; ++lane) { sums[lane] += scale * numbers[lane] * wide(part, lane); }
    }
    out[row] = T(sum_of<32>(sums));
}

template <typename T>
kernel void matvec_q8_0(device const uchar *weight [[buffer(0)]], device const T *x [[buffer(1)]],
                        device T *out [[buffer(2)]], constant uint &width [[buffer(3)]],
                        uint row [[thread_position_in_grid]]) {
    const uint blocks = width / 32;
    device const uchar *block = weight + ulong(row) * blocks * 34;
    device const T *part = x;
    float sums[32] = {};
    for (uint number = 0; number < blocks; ++number, block += 34, part += 32) {
        const float scale = float(*(device const half *)block);
        device const char *numbers = (device const char *)block + 2;
        for (int lane = 0; lane < 32; ++lane) { sums[lane] += scale * (float(numbers[lane]) * wide(part, lane)); }
    }
    out[row] = T(sum_of<32>(sums));
}

template <typename T>
kernel void matvec_affine4(device const uint *weight [[buffer(0)]], device const T *scales [[buffer(1)]],
                           device const T *biases [[buffer(2)]], device const T *x [[buffer(3)]],
                           device T *out [[buffer(4)]], constant uint &width [[buffer(5)]],
                           uint row [[thread_position_in_grid]]) {
    const uint groups = width / 64;
    // A byte holds two neighbouring elements.
    device const uchar *pairs = (device const uchar *)weight + ulong(row) * groups * 32;
    device const T *scale = scales + ulong(row) * groups;
    device const T *bias = biases + ulong(row) * groups;
    device const T *part = x;
    float sums[32] = {};
    for (uint number = 0; number < groups; ++number, pairs += 32, part += 64) {
        const float factor = wide(scale, number), offset = wide(bias, number);
        for (int lane = 0; lane < 32; ++lane) {
            const float even = wide(part, 2 * lane), odd = wide(part, 2 * lane + 1);
            const float product = float(int(pairs[lane] & 15)) * even + float(int(pairs[lane] >> 4)) * odd;
            sums[lane] += factor * product + offset * (even + odd);
        }
    }
    out[row] = T(sum_of<32>(sums));
}

#define INSTANCES(T)                                                                                                  \
    template [[host_name("matvec_q4_0_" #T)]] kernel void matvec_q4_0<T>(device const uchar *, device const T *,      \
                                                                         device T *, constant uint &, uint);          \
    template [[host_name("matvec_q8_0_" #T)]] kernel void matvec_q8_0<T>(device const uchar *, device const T *,      \
                                                                         device T *, constant uint &, uint);          \
    template [[host_name("matvec_affine4_" #T)]] kernel void matvec_affine4<T>(                                       \
        device const uint *, device const T *, device const T *, device const T *, device T *, constant uint &, uint);

INSTANCES(float)
INSTANCES(half)
INSTANCES(bfloat)
