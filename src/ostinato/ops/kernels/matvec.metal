// Matrix by vector and matrix by matrix, for a GPU: a row of the weights a simdgroup, read 16 bytes a lane where rows
// start at multiples of 16. matvec_plain.metal is for CPUs.
//
// Weights are [out, in]. Sums are kept in float and rounded once, to the type that is stored.

#include <metal_stdlib>
using namespace metal;

constant constexpr uint SIMD = 32;

// The product of the elements in 16 bytes of two rows.
template <typename T> inline float product_of_16_bytes(uint4 a, uint4 b);
template <> inline float product_of_16_bytes<float>(uint4 a, uint4 b) {
    return dot(as_type<float4>(a), as_type<float4>(b));
}
inline float product_of_halves(uint a, uint b) { return dot(float2(as_type<half2>(a)), float2(as_type<half2>(b))); }
template <> inline float product_of_16_bytes<half>(uint4 a, uint4 b) {
    return (product_of_halves(a.x, b.x) + product_of_halves(a.y, b.y)) +
           (product_of_halves(a.z, b.z) + product_of_halves(a.w, b.w));
}
inline float product_of_bfloats(uint a, uint b) {
    return as_type<float>(a << 16) * as_type<float>(b << 16) +
           as_type<float>(a & 0xffff0000) * as_type<float>(b & 0xffff0000);
}
template <> inline float product_of_16_bytes<bfloat>(uint4 a, uint4 b) {
    return (product_of_bfloats(a.x, b.x) + product_of_bfloats(a.y, b.y)) +
           (product_of_bfloats(a.z, b.z) + product_of_bfloats(a.w, b.w));
}

// A lane's share of the product of two rows. Four loads of the weights are under way at a time.
template <typename T>
inline float lane_product(device const T *line, device const T *x, uint width, uint aligned, uint lane) {
    if (!aligned) {
        float sum = 0.0f;
        for (uint at = lane; at < width; at += SIMD) {
            sum += float(line[at]) * float(x[at]);
        }
        return sum;
    }
    device const uint4 *left = (device const uint4 *)line;
    device const uint4 *right = (device const uint4 *)x;
    const uint chunks = width / (16 / sizeof(T));
    float sums[4] = {};
    uint at = lane;
    for (; at + 3 * SIMD < chunks; at += 4 * SIMD) {
        uint4 loaded[4];
        for (uint step = 0; step < 4; ++step) {
            loaded[step] = left[at + step * SIMD];
        }
        for (uint step = 0; step < 4; ++step) {
            sums[step] += product_of_16_bytes<T>(loaded[step], right[at + step * SIMD]);
        }
    }
    for (; at < chunks; at += SIMD) {
        sums[0] += product_of_16_bytes<T>(left[at], right[at]);
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/// out = weight · x
template <typename T>
kernel void matvec(device const T *weight [[buffer(0)]], device const T *x [[buffer(1)]],
                   device T *out [[buffer(2)]], constant uint &width [[buffer(3)]], constant uint &rows [[buffer(4)]],
                   constant uint &aligned [[buffer(5)]], uint group [[threadgroup_position_in_grid]],
                   uint simdgroup [[simdgroup_index_in_threadgroup]],
                   uint simdgroups [[simdgroups_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    const uint row = group * simdgroups + simdgroup;
    if (row >= rows) {
        return;
    }
    const float total = simd_sum(lane_product(weight + ulong(row) * width, x, width, aligned, lane));
    if (lane == 0) {
        out[row] = T(total);
    }
}

/// For each slot, out = weight[indices[slot]] · x[slot / slots_per_x]; an index past the last expert gives NaN.
template <typename T>
kernel void expert_matvec(device const T *weight [[buffer(0)]], device const T *x [[buffer(1)]],
                          device const uint *indices [[buffer(2)]], device T *out [[buffer(3)]],
                          constant uint &width [[buffer(4)]], constant uint &slots_per_x [[buffer(5)]],
                          constant uint &experts [[buffer(6)]], constant uint &rows [[buffer(7)]],
                          constant uint &aligned [[buffer(8)]], uint2 group [[threadgroup_position_in_grid]],
                          uint simdgroup [[simdgroup_index_in_threadgroup]],
                          uint simdgroups [[simdgroups_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    const uint row = group.x * simdgroups + simdgroup, slot = group.y;
    if (row >= rows) {
        return;
    }
    const uint expert = indices[slot];
    float total = NAN;
    if (expert < experts) {
        device const T *line = weight + (ulong(expert) * rows + row) * width;
        total = lane_product(line, x + ulong(slot / slots_per_x) * width, width, aligned, lane);
    }
    total = simd_sum(total);
    if (lane == 0) {
        out[ulong(slot) * rows + row] = T(total);
    }
}

constant constexpr uint TILE = 64;   // rows of the weights, and tokens, that a group takes
constant constexpr uint DEPTH = 16;  // columns at a time
constant constexpr uint SIDE = 16;   // threads along each side of a tile; 4 × 4 results a thread

/// out[token, row] = weight[row] · x[token], in tiles of 64 × 64; groups of 256 threads.
template <typename T>
[[max_total_threads_per_threadgroup(256)]]
kernel void matmul(device const T *weight [[buffer(0)]], device const T *x [[buffer(1)]],
                   device T *out [[buffer(2)]], constant uint &width [[buffer(3)]],
                   constant uint &rows [[buffer(4)]], constant uint &tokens [[buffer(5)]],
                   uint2 group [[threadgroup_position_in_grid]], uint member [[thread_index_in_threadgroup]]) {
    threadgroup float left[DEPTH][TILE + 1];
    threadgroup float right[DEPTH][TILE + 1];
    const uint first_row = group.x * TILE, first_token = group.y * TILE;
    const uint across = member % SIDE, down = member / SIDE;
    float sums[4][4] = {};
    for (uint start = 0; start < width; start += DEPTH) {
        const uint column = start + across;
        for (uint line = down; line < TILE; line += SIDE) {
            const uint row = first_row + line, token = first_token + line;
            left[across][line] = column < width && row < rows ? float(weight[ulong(row) * width + column]) : 0.0f;
            right[across][line] = column < width && token < tokens ? float(x[ulong(token) * width + column]) : 0.0f;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint depth = 0; depth < DEPTH; ++depth) {
            float a[4], b[4];
            for (uint step = 0; step < 4; ++step) {
                a[step] = left[depth][across + step * SIDE];
                b[step] = right[depth][down + step * SIDE];
            }
            for (uint i = 0; i < 4; ++i) {
                for (uint j = 0; j < 4; ++j) {
                    sums[i][j] += a[i] * b[j];
                }
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    for (uint i = 0; i < 4; ++i) {
        for (uint j = 0; j < 4; ++j) {
            const uint row = first_row + across + i * SIDE, token = first_token + down + j * SIDE;
            if (row < rows && token < tokens) {
                out[ulong(token) * rows + row] = T(sums[i][j]);
            }
        }
    }
}

#define INSTANCES(T)                                                                                                  \
    template [[host_name("matvec_" #T)]] kernel void matvec<T>(device const T *, device const T *, device T *,        \
                                                               constant uint &, constant uint &, constant uint &,     \
                                                               uint, uint, uint, uint);                               \
    template [[host_name("expert_matvec_" #T)]] kernel void expert_matvec<T>(                                         \
        device const T *, device const T *, device const uint *, device T *, constant uint &, constant uint &,        \
        constant uint &, constant uint &, constant uint &, uint2, uint, uint, uint);                                  \
    template [[host_name("matmul_" #T)]] kernel void matmul<T>(device const T *, device const T *, device T *,        \
                                                               constant uint &, constant uint &, constant uint &,     \
                                                               uint2, uint);

INSTANCES(float)
INSTANCES(half)
INSTANCES(bfloat)
