// Matrix by vector and matrix by matrix, for a GPU: a row of the weights a simdgroup, or several where there are few
// rows, read 16 bytes a lane where rows start at multiples of 16. matvec_plain.metal is for CPUs.
//
// Weights are [out, in]. Sums are kept in float and rounded once, to the type that is stored.

#include <metal_stdlib>
using namespace metal;

constant constexpr uint SIMD = 32;
constant constexpr uint MOST_SIMDGROUPS = 8;

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

// A lane's share of the product of two rows. The lanes of the simdgroups that share a row take 16 bytes of it in turn:
// this one the part `at`, and every `stride`-th after it. Four loads of the weights are under way at a time.
template <typename T>
inline float lane_product(device const T *line, device const T *x, uint width, uint aligned, uint at, uint stride) {
    if (!aligned) {
        float sum = 0.0f;
        for (; at < width; at += stride) {
            sum += float(line[at]) * float(x[at]);
        }
        return sum;
    }
    device const uint4 *left = (device const uint4 *)line;
    device const uint4 *right = (device const uint4 *)x;
    const uint chunks = width / (16 / sizeof(T));
    float sums[4] = {};
    for (; at < chunks; at += 4 * stride) {
        uint4 loaded[4];
        for (uint step = 0; step < 4; ++step) {
            loaded[step] = left[min(at + step * stride, chunks - 1)];
        }
        for (uint step = 0; step < 4; ++step) {
            const uint place = at + step * stride;
            const float product = product_of_16_bytes<T>(loaded[step], right[min(place, chunks - 1)]);
            sums[step] += place < chunks ? product : 0.0f;
        }
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

inline float silu(float x) { return x / (1.0f + exp(-x)); }

// `split` simdgroups share a row: which row that is, and where in it a lane begins.
#define PLACE_OF_SIMDGROUP(group)                                                    \
    const uint row = group * (simdgroups / split) + simdgroup / split;               \
    const uint first = simdgroup % split * SIMD + lane, stride = split * SIMD;

// Makes `sum`, a lane's share, the sum of the whole row.
#define SUM_OF_ROW(sum)                                                              \
    sum = simd_sum(sum);                                                             \
    if (split > 1) {                                                                 \
        threadgroup_barrier(mem_flags::mem_threadgroup);                             \
        if (lane == 0) {                                                             \
            partial[simdgroup] = sum;                                                \
        }                                                                            \
        threadgroup_barrier(mem_flags::mem_threadgroup);                             \
        sum = 0.0f;                                                                  \
        for (uint part = 0; part < split; ++part) {                                  \
            sum += partial[simdgroup / split * split + part];                        \
        }                                                                            \
    }

/// out = weight · x
template <typename T>
[[max_total_threads_per_threadgroup(SIMD * MOST_SIMDGROUPS)]]
kernel void matvec(device const T *weight [[buffer(0)]], device const T *x [[buffer(1)]],
                   device T *out [[buffer(2)]], constant uint &width [[buffer(3)]], constant uint &rows [[buffer(4)]],
                   constant uint &aligned [[buffer(5)]], constant uint &split [[buffer(6)]],
                   uint group [[threadgroup_position_in_grid]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                   uint simdgroups [[simdgroups_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float partial[MOST_SIMDGROUPS];
    PLACE_OF_SIMDGROUP(group)
    float total = 0.0f;
    if (row < rows) {
        total = lane_product(weight + ulong(row) * width, x, width, aligned, first, stride);
    }
    SUM_OF_ROW(total)
    if (row < rows && first == 0) {
        out[row] = T(total);
    }
}

/// out = silu(weight[0] · x) · (weight[1] · x)
template <typename T>
[[max_total_threads_per_threadgroup(SIMD * MOST_SIMDGROUPS)]]
kernel void gated_matvec(device const T *weight [[buffer(0)]], device const T *x [[buffer(1)]],
                         device T *out [[buffer(2)]], constant uint &width [[buffer(3)]],
                         constant uint &rows [[buffer(4)]], constant uint &aligned [[buffer(5)]],
                         constant uint &split [[buffer(6)]], uint group [[threadgroup_position_in_grid]],
                         uint simdgroup [[simdgroup_index_in_threadgroup]],
                         uint simdgroups [[simdgroups_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float partial[MOST_SIMDGROUPS];
    PLACE_OF_SIMDGROUP(group)
    float gate = 0.0f, up = 0.0f;
    if (row < rows) {
        gate = lane_product(weight + ulong(row) * width, x, width, aligned, first, stride);
        up = lane_product(weight + (ulong(rows) + row) * width, x, width, aligned, first, stride);
    }
    SUM_OF_ROW(gate)
    SUM_OF_ROW(up)
    if (row < rows && first == 0) {
        out[row] = T(silu(gate) * up);
    }
}

/// For each slot, out = weight[indices[slot]] · x[slot / slots_per_x]; an index past the last expert gives NaN.
template <typename T>
[[max_total_threads_per_threadgroup(SIMD * MOST_SIMDGROUPS)]]
kernel void expert_matvec(device const T *weight [[buffer(0)]], device const T *x [[buffer(1)]],
                          device const uint *indices [[buffer(2)]], device T *out [[buffer(3)]],
                          constant uint &width [[buffer(4)]], constant uint &slots_per_x [[buffer(5)]],
                          constant uint &experts [[buffer(6)]], constant uint &rows [[buffer(7)]],
                          constant uint &aligned [[buffer(8)]], constant uint &split [[buffer(9)]],
                          uint2 group [[threadgroup_position_in_grid]],
                          uint simdgroup [[simdgroup_index_in_threadgroup]],
                          uint simdgroups [[simdgroups_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float partial[MOST_SIMDGROUPS];
    PLACE_OF_SIMDGROUP(group.x)
    const uint slot = group.y, expert = indices[slot];
    float total = NAN;
    if (row < rows && expert < experts) {
        device const T *line = weight + (ulong(expert) * rows + row) * width;
        total = lane_product(line, x + ulong(slot / slots_per_x) * width, width, aligned, first, stride);
    }
    SUM_OF_ROW(total)
    if (row < rows && first == 0) {
        out[ulong(slot) * rows + row] = T(total);
    }
}

/// For each slot, out = silu(weight[indices[slot], 0] · x) · (weight[indices[slot], 1] · x), as in expert_matvec.
template <typename T>
[[max_total_threads_per_threadgroup(SIMD * MOST_SIMDGROUPS)]]
kernel void expert_gated_matvec(device const T *weight [[buffer(0)]], device const T *x [[buffer(1)]],
                                device const uint *indices [[buffer(2)]], device T *out [[buffer(3)]],
                                constant uint &width [[buffer(4)]], constant uint &slots_per_x [[buffer(5)]],
                                constant uint &experts [[buffer(6)]], constant uint &rows [[buffer(7)]],
                                constant uint &aligned [[buffer(8)]], constant uint &split [[buffer(9)]],
                                uint2 group [[threadgroup_position_in_grid]],
                                uint simdgroup [[simdgroup_index_in_threadgroup]],
                                uint simdgroups [[simdgroups_per_threadgroup]],
                                uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float partial[MOST_SIMDGROUPS];
    PLACE_OF_SIMDGROUP(group.x)
    const uint slot = group.y, expert = indices[slot];
    float gate = NAN, up = NAN;
    if (row < rows && expert < experts) {
        device const T *from = x + ulong(slot / slots_per_x) * width;
        device const T *line = weight + (ulong(expert) * 2 * rows + row) * width;
        gate = lane_product(line, from, width, aligned, first, stride);
        up = lane_product(line + ulong(rows) * width, from, width, aligned, first, stride);
    }
    SUM_OF_ROW(gate)
    SUM_OF_ROW(up)
    if (row < rows && first == 0) {
        out[ulong(slot) * rows + row] = T(silu(gate) * up);
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

#define BY_ROWS(name, T)                                                                                              \
    template [[host_name(#name "_" #T)]] kernel void name<T>(device const T *, device const T *, device T *,          \
                                                             constant uint &, constant uint &, constant uint &,       \
                                                             constant uint &, uint, uint, uint, uint);
#define BY_EXPERTS(name, T)                                                                                           \
    template [[host_name(#name "_" #T)]] kernel void name<T>(                                                         \
        device const T *, device const T *, device const uint *, device T *, constant uint &, constant uint &,        \
        constant uint &, constant uint &, constant uint &, constant uint &, uint2, uint, uint, uint);
#define INSTANCES(T)                                                                                                  \
    BY_ROWS(matvec, T)                                                                                                \
    BY_ROWS(gated_matvec, T)                                                                                          \
    BY_EXPERTS(expert_matvec, T)                                                                                      \
    BY_EXPERTS(expert_gated_matvec, T)                                                                                \
    template [[host_name("matmul_" #T)]] kernel void matmul<T>(device const T *, device const T *, device T *,        \
                                                               constant uint &, constant uint &, constant uint &,     \
                                                               uint2, uint);

INSTANCES(float)
INSTANCES(half)
INSTANCES(bfloat)
