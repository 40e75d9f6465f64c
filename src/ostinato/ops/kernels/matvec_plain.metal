// Matrix by vector and matrix by matrix, for a CPU: one thread per row of the weights. matvec.metal is for GPUs.
//
// Weights are [out, in]. Sums are kept in float and rounded once, to the type that is stored.

#include <metal_stdlib>
using namespace metal;

#include "functions.h"
#include "plain.h"

/// out = weight · x; with `added`, out = addend + weight · x, rounded after each of the two.
template <typename T>
kernel void matvec(device const T *weight [[buffer(0)]], device const T *x [[buffer(1)]], device T *out [[buffer(2)]],
                   constant uint &width [[buffer(3)]], device const T *addend [[buffer(4)]],
                   constant uint &added [[buffer(5)]], uint row [[thread_position_in_grid]]) {
    const T product = T(row_product(weight + ulong(row) * width, x, width));
    out[row] = added ? T(float(product) + float(addend[row])) : product;
}

// The product of a row with y = rms_norm(x, norm), from x alone; y is rounded as if it had been stored.
template <typename T>
inline float normed_product(device const T *line, device const T *x, device const T *norm, uint width, float eps) {
    const float scale = rsqrt(row_product(x, x, width) / float(width) + eps);
    float total = 0.0f;
    for (uint at = 0; at < width; ++at) { total += wide(line, at) * float(T(wide(x, at) * scale * wide(norm, at))); }
    return total;
}

/// out = weight · rms_norm(x, norm)
template <typename T>
kernel void norm_matvec(device const T *weight [[buffer(0)]], device const T *x [[buffer(1)]],
                        device const T *norm [[buffer(2)]], device T *out [[buffer(3)]],
                        constant uint &width [[buffer(4)]], constant float &eps [[buffer(5)]],
                        uint row [[thread_position_in_grid]]) {
    out[row] = T(normed_product(weight + ulong(row) * width, x, norm, width, eps));
}

/// out = silu(weight[0] · x) · (weight[1] · x)
template <typename T>
kernel void gated_matvec(device const T *weight [[buffer(0)]], device const T *x [[buffer(1)]],
                         device T *out [[buffer(2)]], constant uint &width [[buffer(3)]],
                         uint row [[thread_position_in_grid]], uint rows [[threads_per_grid]]) {
    const float gate = row_product(weight + ulong(row) * width, x, width);
    const float up = row_product(weight + (ulong(rows) + row) * width, x, width);
    out[row] = T(silu(gate) * up);
}

/// out = silu(weight[0] · y) · (weight[1] · y), where y = rms_norm(x, norm)
template <typename T>
kernel void norm_gated_matvec(device const T *weight [[buffer(0)]], device const T *x [[buffer(1)]],
                              device const T *norm [[buffer(2)]], device T *out [[buffer(3)]],
                              constant uint &width [[buffer(4)]], constant float &eps [[buffer(5)]],
                              uint row [[thread_position_in_grid]], uint rows [[threads_per_grid]]) {
    const float gate = normed_product(weight + ulong(row) * width, x, norm, width, eps);
    const float up = normed_product(weight + (ulong(rows) + row) * width, x, norm, width, eps);
    out[row] = T(silu(gate) * up);
}

/// Queries, keys and values of one token, as in matvec.metal. The grid is [pairs of elements, heads + 2 · kept].
template <typename T>
kernel void qkv_matvec(device const T *weight [[buffer(0)]], device const T *x [[buffer(1)]],
                       device const T *norm [[buffer(2)]], device const float *frequencies [[buffer(3)]],
                       device T *queries [[buffer(4)]], device T *keys [[buffer(5)]], device T *values [[buffer(6)]],
                       constant uint &width [[buffer(7)]], constant float &eps [[buffer(8)]],
                       constant uint &position [[buffer(9)]], constant uint &heads [[buffer(10)]],
                       constant uint &kept [[buffer(11)]], constant uint &size [[buffer(12)]],
                       constant uint &capacity [[buffer(13)]], uint2 thread_position [[thread_position_in_grid]]) {
    const uint at = thread_position.x, head = thread_position.y, pairs = size / 2;
    device const T *line = weight + (ulong(head) * size + at) * width;
    float a = normed_product(line, x, norm, width, eps);
    float b = normed_product(line + ulong(pairs) * width, x, norm, width, eps);
    if (head < heads + kept) {
        const float angle = float(position) * frequencies[at];
        const float cosine = precise::cos(angle), sine = precise::sin(angle), before = a;
        a = a * cosine - b * sine;
        b = b * cosine + before * sine;
    }
    device T *to = queries + head * size;
    if (head >= heads) {
        const uint number = head - heads;
        to = (number < kept ? keys : values) + (ulong(number % kept) * capacity + position) * size;
    }
    if (head < heads || position < capacity) {
        to[at] = T(a);
        to[at + pairs] = T(b);
    }
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

/// For each slot, out = silu(weight[indices[slot], 0] · x) · (weight[indices[slot], 1] · x), as in expert_matvec.
template <typename T>
kernel void expert_gated_matvec(device const T *weight [[buffer(0)]], device const T *x [[buffer(1)]],
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
    device const T *from = x + ulong(slot / slots_per_x) * width;
    device const T *line = weight + (ulong(expert) * 2 * rows + row) * width;
    const float gate = row_product(line, from, width), up = row_product(line + ulong(rows) * width, from, width);
    out[at] = T(silu(gate) * up);
}

constant constexpr uint ROWS = 2;    // rows of the weights per thread of matmul
constant constexpr uint TOKENS = 4;  // tokens per thread; each element read is used for several products
constant constexpr int PART = 32;

/// out[token, row] = weight[row] · x[token]. The grid is [rows / ROWS, tokens / TOKENS], rounded up.
template <typename T>
kernel void matmul(device const T *weight [[buffer(0)]], device const T *x [[buffer(1)]], device T *out [[buffer(2)]],
                   constant uint &width [[buffer(3)]], constant uint &rows [[buffer(4)]],
                   constant uint &tokens [[buffer(5)]], uint2 position [[thread_position_in_grid]]) {
    const uint row = position.x * ROWS, token = position.y * TOKENS;
    device const T *lines = weight + ulong(row) * width;
    device const T *inputs = x + ulong(token) * width;
    device T *results = out + ulong(token) * rows + row;
    if (row + ROWS > rows || token + TOKENS > tokens) {
        for (uint j = 0; j < min(TOKENS, tokens - token); ++j) {
            for (uint i = 0; i < min(ROWS, rows - row); ++i) {
                const float product = row_product(lines + ulong(i) * width, inputs + ulong(j) * width, width);
                results[ulong(j) * rows + i] = T(product);
            }
        }
        return;
    }
    float sums[ROWS][TOKENS][PART] = {};
    uint done = 0;
    for (; done + PART <= width; done += PART) {
        for (int lane = 0; lane < PART; ++lane) {
            float left[ROWS], right[TOKENS];
            for (uint i = 0; i < ROWS; ++i) { left[i] = wide(lines + ulong(i) * width + done, lane); }
            for (uint j = 0; j < TOKENS; ++j) { right[j] = wide(inputs + ulong(j) * width + done, lane); }
            for (uint i = 0; i < ROWS; ++i) {
                for (uint j = 0; j < TOKENS; ++j) { sums[i][j][lane] += left[i] * right[j]; }
            }
        }
    }
    for (uint j = 0; j < TOKENS; ++j) {
        for (uint i = 0; i < ROWS; ++i) {
            float total = sum_of<PART>(sums[i][j]);
            for (uint at = done; at < width; ++at) {
                total += wide(lines + ulong(i) * width, at) * wide(inputs + ulong(j) * width, at);
            }
            results[ulong(j) * rows + i] = T(total);
        }
    }
}

#define BY_EXPERTS(name, T)                                                                                           \
    template [[host_name(#name "_" #T)]] kernel void name<T>(                                                         \
        device const T *, device const T *, device const uint *, device T *, constant uint &, constant uint &,        \
        constant uint &, uint2, uint2);
#define INSTANCES(T)                                                                                                  \
    template [[host_name("matvec_" #T)]] kernel void matvec<T>(device const T *, device const T *, device T *,        \
                                                               constant uint &, device const T *, constant uint &,    \
                                                               uint);                                                 \
    template [[host_name("gated_matvec_" #T)]] kernel void gated_matvec<T>(device const T *, device const T *,        \
                                                                           device T *, constant uint &, uint, uint);  \
    template [[host_name("norm_matvec_" #T)]] kernel void norm_matvec<T>(                                             \
        device const T *, device const T *, device const T *, device T *, constant uint &, constant float &, uint);   \
    template [[host_name("norm_gated_matvec_" #T)]] kernel void norm_gated_matvec<T>(                                 \
        device const T *, device const T *, device const T *, device T *, constant uint &, constant float &, uint,    \
        uint);                                                                                                        \
    template [[host_name("qkv_matvec_" #T)]] kernel void qkv_matvec<T>(                                               \
        device const T *, device const T *, device const T *, device const float *, device T *, device T *,           \
        device T *, constant uint &, constant float &, constant uint &, constant uint &, constant uint &,             \
        constant uint &, constant uint &, uint2);                                                                     \
    BY_EXPERTS(expert_matvec, T)                                                                                      \
    BY_EXPERTS(expert_gated_matvec, T)                                                                                \
    template [[host_name("matmul_" #T)]] kernel void matmul<T>(device const T *, device const T *, device T *,        \
                                                               constant uint &, constant uint &, constant uint &,     \
                                                               uint2);

INSTANCES(float)
INSTANCES(half)
INSTANCES(bfloat)
