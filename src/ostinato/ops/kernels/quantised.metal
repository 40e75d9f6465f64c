// Products with weights in blocks of few bits, rows of such a table, and products with the experts of many tokens.
//
// Each product has two kernels with one body. In `…_plain`, for CPUs, a thread sums a row of the weights; in the other, for
// GPUs, the lanes of a simdgroup do. Both decode 16 weights at a time and multiply them with up to TOKENS rows of x. Sums
// are kept in float and rounded once, to the type that is stored.

#include <metal_stdlib>
using namespace metal;

#include "plain.h"
#include "formats.h"

// sums[j] += the products of a row of the weights with row places[j] of x, for every `step`-th part from `first` on.
template <typename R, typename T, int TOKENS>
inline void add_products(device const uchar *row, device const T *x, thread const uint *places, uint width, uint first,
                         uint step, thread float *totals) {
    float sums[TOKENS][16] = {};
    for (uint part = first; part < width / 16; part += step) {
        float weights[16];
        R::sixteen(row, part, weights);
        for (int j = 0; j < TOKENS; ++j) {
            device const T *from = x + ulong(places[j]) * width + 16 * part;
            for (int i = 0; i < 16; ++i) { sums[j][i] += weights[i] * wide(from, i); }
        }
    }
    for (int j = 0; j < TOKENS; ++j) { totals[j] = sum_of<16>(sums[j]); }
}

/// out[token, row] = weight[row] · x[token], where rows of out are `stride` apart. The grid is [rows, tokens / TOKENS], rounded up.
template <typename R, typename T, int TOKENS>
kernel void multiply_plain(device const uchar *weight [[buffer(0)]], device const T *x [[buffer(1)]],
                           device T *out [[buffer(2)]], constant uint &width [[buffer(3)]],
                           constant uint &rows [[buffer(4)]], constant uint &tokens [[buffer(5)]],
                           constant uint &stride [[buffer(6)]], uint2 position [[thread_position_in_grid]]) {
    const uint row = position.x, token = position.y * TOKENS;
    uint places[TOKENS];
    for (uint j = 0; j < TOKENS; ++j) { places[j] = min(token + j, tokens - 1); }
    float totals[TOKENS];
    add_products<R, T, TOKENS>(weight + row * R::row_bytes(width), x, places, width, 0, 1, totals);
    for (uint j = 0; j < TOKENS && token + j < tokens; ++j) { out[ulong(token + j) * stride + row] = T(totals[j]); }
}

/// The same; a group has a row for each of its simdgroups.
template <typename R, typename T, int TOKENS>
kernel void multiply(device const uchar *weight [[buffer(0)]], device const T *x [[buffer(1)]],
                     device T *out [[buffer(2)]], constant uint &width [[buffer(3)]], constant uint &rows [[buffer(4)]],
                     constant uint &tokens [[buffer(5)]], constant uint &stride [[buffer(6)]],
                     uint2 group [[threadgroup_position_in_grid]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                     uint simdgroups [[simdgroups_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    const uint row = group.x * simdgroups + simdgroup, token = group.y * TOKENS;
    if (row >= rows) { return; }
    uint places[TOKENS];
    for (uint j = 0; j < TOKENS; ++j) { places[j] = min(token + j, tokens - 1); }
    float totals[TOKENS];
    add_products<R, T, TOKENS>(weight + row * R::row_bytes(width), x, places, width, lane, 32, totals);
    for (uint j = 0; j < TOKENS; ++j) {
        const float total = simd_sum(totals[j]);
        if (lane == 0 && token + j < tokens) { out[ulong(token + j) * stride + row] = T(total); }
    }
}

// The slots that an expert works for. Without lists, each slot by itself: `number` counts slots and not experts.
struct Work { uint expert, begin, end; };
inline Work work_of(uint number, device const uint *indices, device const uint *starts, uint listed) {
    Work work;
    work.expert = listed ? number : indices[number];
    work.begin = listed ? starts[number] : number;
    work.end = listed ? starts[number + 1] : number + 1;
    return work;
}

/// out[slot, row] = weight[indices[slot], row] · x[slot / slots_per_x]; an index past the last expert gives NaN.
///
/// `order` and `starts` are what expert_lists makes; with them (`listed`) the grid is [rows, experts], else [rows, slots].
template <typename R, typename T, int TOKENS>
kernel void by_experts_plain(device const uchar *weight [[buffer(0)]], device const T *x [[buffer(1)]],
                             device const uint *indices [[buffer(2)]], device const uint *order [[buffer(3)]],
                             device const uint *starts [[buffer(4)]], device T *out [[buffer(5)]],
                             constant uint &width [[buffer(6)]], constant uint &rows [[buffer(7)]],
                             constant uint &slots_per_x [[buffer(8)]], constant uint &experts [[buffer(9)]],
                             constant uint &listed [[buffer(10)]], uint2 position [[thread_position_in_grid]]) {
    const uint row = position.x;
    const Work work = work_of(position.y, indices, starts, listed);
    if (work.expert >= experts) {
        out[ulong(work.begin) * rows + row] = T(NAN);
        return;
    }
    device const uchar *line = weight + (ulong(work.expert) * rows + row) * R::row_bytes(width);
    for (uint at = work.begin; at < work.end; at += TOKENS) {
        uint slots[TOKENS], places[TOKENS];
        for (uint j = 0; j < TOKENS; ++j) {
            slots[j] = listed ? order[min(at + j, work.end - 1)] : at;
            places[j] = slots[j] / slots_per_x;
        }
        float totals[TOKENS];
        add_products<R, T, TOKENS>(line, x, places, width, 0, 1, totals);
        for (uint j = 0; j < TOKENS && at + j < work.end; ++j) { out[ulong(slots[j]) * rows + row] = T(totals[j]); }
    }
}

/// The same; a group has a row for each of its simdgroups.
template <typename R, typename T, int TOKENS>
kernel void by_experts(device const uchar *weight [[buffer(0)]], device const T *x [[buffer(1)]],
                       device const uint *indices [[buffer(2)]], device const uint *order [[buffer(3)]],
                       device const uint *starts [[buffer(4)]], device T *out [[buffer(5)]],
                       constant uint &width [[buffer(6)]], constant uint &rows [[buffer(7)]],
                       constant uint &slots_per_x [[buffer(8)]], constant uint &experts [[buffer(9)]],
                       constant uint &listed [[buffer(10)]], uint2 group [[threadgroup_position_in_grid]],
                       uint simdgroup [[simdgroup_index_in_threadgroup]],
                       uint simdgroups [[simdgroups_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    const uint row = group.x * simdgroups + simdgroup;
    if (row >= rows) { return; }
    const Work work = work_of(group.y, indices, starts, listed);
    if (work.expert >= experts) {
        if (lane == 0) { out[ulong(work.begin) * rows + row] = T(NAN); }
        return;
    }
    device const uchar *line = weight + (ulong(work.expert) * rows + row) * R::row_bytes(width);
    for (uint at = work.begin; at < work.end; at += TOKENS) {
        uint slots[TOKENS], places[TOKENS];
        for (uint j = 0; j < TOKENS; ++j) {
            slots[j] = listed ? order[min(at + j, work.end - 1)] : at;
            places[j] = slots[j] / slots_per_x;
        }
        float totals[TOKENS];
        add_products<R, T, TOKENS>(line, x, places, width, lane, 32, totals);
        for (uint j = 0; j < TOKENS; ++j) {
            const float total = simd_sum(totals[j]);
            if (lane == 0 && at + j < work.end) { out[ulong(slots[j]) * rows + row] = T(total); }
        }
    }
}

/// The slots of each expert: those of expert e are order[starts[e]] to order[starts[e + 1] - 1]. One thread per expert.
kernel void expert_lists(device const uint *indices [[buffer(0)]], device uint *order [[buffer(1)]],
                         device uint *starts [[buffer(2)]], constant uint &slots [[buffer(3)]],
                         constant uint &experts [[buffer(4)]], uint expert [[thread_position_in_grid]]) {
    uint begin = 0;
    for (uint slot = 0; slot < slots; ++slot) { begin += indices[slot] < expert ? 1 : 0; }
    starts[expert] = begin;
    for (uint slot = 0; slot < slots; ++slot) {
        if (indices[slot] == expert) { order[begin++] = slot; }
    }
    if (expert + 1 == experts) { starts[experts] = begin; }
}

/// out[token] = table[tokens[token]]; a token past the last row gives NaN. The grid is [width / 16, tokens].
template <typename R, typename T>
kernel void look_up(device const uchar *table [[buffer(0)]], device const uint *tokens [[buffer(1)]],
                    device T *out [[buffer(2)]], constant uint &width [[buffer(3)]], constant uint &rows [[buffer(4)]],
                    uint2 position [[thread_position_in_grid]]) {
    const uint part = position.x, token = tokens[position.y];
    device T *to = out + ulong(position.y) * width + 16 * part;
    float weights[16];
    for (int i = 0; i < 16; ++i) { weights[i] = NAN; }
    if (token < rows) { R::sixteen(table + token * R::row_bytes(width), part, weights); }
    for (int i = 0; i < 16; ++i) { to[i] = T(weights[i]); }
}

#define MULTIPLY(name, R, label, T, tokens)                                                                           \
    template [[host_name(#name "_plain_" label "_" #T "_" #tokens)]] kernel void name##_plain<R, T, tokens>(          \
        device const uchar *, device const T *, device T *, constant uint &, constant uint &, constant uint &,        \
        constant uint &, uint2);                                                                                                       \
    template [[host_name(#name "_" label "_" #T "_" #tokens)]] kernel void name<R, T, tokens>(                        \
        device const uchar *, device const T *, device T *, constant uint &, constant uint &, constant uint &,        \
        constant uint &, uint2, uint, uint, uint);
#define BY_EXPERTS(R, label, T, tokens)                                                                               \
    template [[host_name("by_experts_plain_" label "_" #T "_" #tokens)]] kernel void by_experts_plain<R, T, tokens>(  \
        device const uchar *, device const T *, device const uint *, device const uint *, device const uint *,        \
        device T *, constant uint &, constant uint &, constant uint &, constant uint &, constant uint &, uint2);      \
    template [[host_name("by_experts_" label "_" #T "_" #tokens)]] kernel void by_experts<R, T, tokens>(              \
        device const uchar *, device const T *, device const uint *, device const uint *, device const uint *,        \
        device T *, constant uint &, constant uint &, constant uint &, constant uint &, constant uint &, uint2, uint, \
        uint, uint);
#define INSTANCES(R, label, T)                                                                                        \
    MULTIPLY(multiply, R, label, T, 1)                                                                                \
    MULTIPLY(multiply, R, label, T, 8)                                                                                \
    BY_EXPERTS(R, label, T, 1)                                                                                        \
    BY_EXPERTS(R, label, T, 8)                                                                                        \
    template [[host_name("look_up_" label "_" #T)]] kernel void look_up<R, T>(                                        \
        device const uchar *, device const uint *, device T *, constant uint &, constant uint &, uint2);
#define FORMAT(R, label)                                                                                              \
    INSTANCES(R, label, float)                                                                                        \
    INSTANCES(R, label, half)                                                                                         \
    INSTANCES(R, label, bfloat)

FORMAT(quantised<q4_0>, "q4_0")
FORMAT(quantised<q4_1>, "q4_1")
FORMAT(quantised<q5_0>, "q5_0")
FORMAT(quantised<q5_1>, "q5_1")
FORMAT(quantised<q8_0>, "q8_0")
FORMAT(quantised<q2_k>, "q2_k")
FORMAT(quantised<q3_k>, "q3_k")
FORMAT(quantised<q4_k>, "q4_k")
FORMAT(quantised<q5_k>, "q5_k")
FORMAT(quantised<q6_k>, "q6_k")
FORMAT(quantised<iq4_nl>, "iq4_nl")
FORMAT(quantised<affine<float>>, "affine_float")
FORMAT(quantised<affine<half>>, "affine_half")
FORMAT(quantised<affine<bfloat>>, "affine_bfloat")
BY_EXPERTS(dense<float>, "dense", float, 8)
BY_EXPERTS(dense<half>, "dense", half, 8)
BY_EXPERTS(dense<bfloat>, "dense", bfloat, 8)
