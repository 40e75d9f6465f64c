// Matrix by vector for weights in blocks of few bits, for a GPU: one simdgroup per row. quantised_plain.metal is for CPUs.
//
// Q4_0: blocks of 32, each a half `scale` and 16 bytes; byte i holds elements i (low four bits) and i + 16, as
// scale · (bits − 8). Q8_0: a half `scale` and 32 signed bytes, as scale · byte. Affine 4 bits: words of eight elements,
// the first in the lowest bits, as scale · bits + bias, with a scale and a bias for each 64 elements.

#include <metal_stdlib>
using namespace metal;

constant constexpr uint SIMD = 32;

#define ROW_OF_SIMDGROUP()                              \
    const uint row = group * simdgroups + simdgroup;    \
    if (row >= rows) {                                  \
        return;                                         \
    }

#define STORE_SUM()                        \
    const float total = simd_sum(sum);     \
    if (lane == 0) {                       \
        out[row] = T(total);               \
    }

// Half a block per lane. Blocks start at even addresses, so they are read two bytes at a time.
template <typename T>
kernel void matvec_q4_0(device const uchar *weight [[buffer(0)]], device const T *x [[buffer(1)]],
                        device T *out [[buffer(2)]], constant uint &width [[buffer(3)]],
                        constant uint &rows [[buffer(4)]], uint group [[threadgroup_position_in_grid]],
                        uint simdgroup [[simdgroup_index_in_threadgroup]],
                        uint simdgroups [[simdgroups_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    ROW_OF_SIMDGROUP()
    const uint blocks = width / 32, side = lane % 2;
    device const uchar *line = weight + ulong(row) * blocks * 18;
    float sum = 0.0f;
    for (uint number = lane / 2; number < blocks; number += SIMD / 2) {
        device const uchar *block = line + number * 18;
        device const half *scale = (device const half *)block;
        device const ushort *pairs = (device const ushort *)(block + 2) + side * 4;
        device const T *part = x + number * 32 + side * 8;
        float product = 0.0f;
        for (uint step = 0; step < 4; ++step) {
            const int bits = pairs[step];
            product += float((bits & 15) - 8) * float(part[2 * step]);
            product += float((bits >> 4 & 15) - 8) * float(part[2 * step + 16]);
            product += float((bits >> 8 & 15) - 8) * float(part[2 * step + 1]);
            product += float((bits >> 12) - 8) * float(part[2 * step + 17]);
        }
        sum += float(*scale) * product;
    }
    STORE_SUM()
}

// A quarter of a block per lane.
template <typename T>
kernel void matvec_q8_0(device const uchar *weight [[buffer(0)]], device const T *x [[buffer(1)]],
                        device T *out [[buffer(2)]], constant uint &width [[buffer(3)]],
                        constant uint &rows [[buffer(4)]], uint group [[threadgroup_position_in_grid]],
                        uint simdgroup [[simdgroup_index_in_threadgroup]],
                        uint simdgroups [[simdgroups_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    ROW_OF_SIMDGROUP()
    const uint blocks = width / 32, quarter = lane % 4;
    device const uchar *line = weight + ulong(row) * blocks * 34;
    float sum = 0.0f;
    for (uint number = lane / 4; number < blocks; number += SIMD / 4) {
        device const uchar *block = line + number * 34;
        device const half *scale = (device const half *)block;
        device const ushort *pairs = (device const ushort *)(block + 2) + quarter * 4;
        device const T *part = x + number * 32 + quarter * 8;
        float product = 0.0f;
        for (uint step = 0; step < 4; ++step) {
            const char2 numbers = as_type<char2>(pairs[step]);
            product += float(numbers.x) * float(part[2 * step]) + float(numbers.y) * float(part[2 * step + 1]);
        }
        sum += float(*scale) * product;
    }
    STORE_SUM()
}

// One word per lane.
template <typename T>
kernel void matvec_affine4(device const uint *weight [[buffer(0)]], device const T *scales [[buffer(1)]],
                           device const T *biases [[buffer(2)]], device const T *x [[buffer(3)]],
                           device T *out [[buffer(4)]], constant uint &width [[buffer(5)]],
                           constant uint &rows [[buffer(6)]], uint group [[threadgroup_position_in_grid]],
                           uint simdgroup [[simdgroup_index_in_threadgroup]],
                           uint simdgroups [[simdgroups_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    ROW_OF_SIMDGROUP()
    const uint words = width / 8;
    device const uint *line = weight + ulong(row) * words;
    const ulong first_group = ulong(row) * (width / 64);
    float sum = 0.0f;
    for (uint word = lane; word < words; word += SIMD) {
        const uint bits = line[word];
        device const T *part = x + word * 8;
        float product = 0.0f, plain = 0.0f;
        for (uint step = 0; step < 8; ++step) {
            const float value = float(part[step]);
            product += float(bits >> (4 * step) & 15) * value;
            plain += value;
        }
        sum += float(scales[first_group + word / 8]) * product + float(biases[first_group + word / 8]) * plain;
    }
    STORE_SUM()
}

#define INSTANCES(T)                                                                                                  \
    template [[host_name("matvec_q4_0_" #T)]] kernel void matvec_q4_0<T>(                                             \
        device const uchar *, device const T *, device T *, constant uint &, constant uint &, uint, uint, uint,       \
        uint);                                                                                                        \
    template [[host_name("matvec_q8_0_" #T)]] kernel void matvec_q8_0<T>(                                             \
        device const uchar *, device const T *, device T *, constant uint &, constant uint &, uint, uint, uint,       \
        uint);                                                                                                        \
    template [[host_name("matvec_affine4_" #T)]] kernel void matvec_affine4<T>(                                       \
        device const uint *, device const T *, device const T *, device const T *, device T *, constant uint &,       \
        constant uint &, uint, uint, uint, uint);

INSTANCES(float)
INSTANCES(half)
INSTANCES(bfloat)
