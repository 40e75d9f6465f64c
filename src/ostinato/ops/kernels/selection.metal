// Softmax of rows, and choices by it: the largest element, the experts of a token, the next token.
//
// A group computes one row; its number of threads is any power of two. Sums are in float.

#include <metal_stdlib>
using namespace metal;

constant constexpr uint MOST_THREADS = 1024;
constant constexpr uint MOST_EXPERTS = 1024;
constant constexpr uint MOST_CHOSEN = 64;

// Puts partial[0..members) together into partial[0]. A macro and not a function: barriers in the body of a kernel are
// where the CPU backend splits it into plain loops.
#define REDUCE(combine)                                                                  \
    threadgroup_barrier(mem_flags::mem_threadgroup);                                     \
    for (uint stride = MOST_THREADS / 2; stride > 0; stride /= 2) {                      \
        if (member < stride && member + stride < members) {                              \
            partial[member] = combine(partial[member], partial[member + stride]);        \
        }                                                                                \
        threadgroup_barrier(mem_flags::mem_threadgroup);                                 \
    }

inline float plus_of(float a, float b) { return a + b; }
inline float larger_of(float a, float b) { return max(a, b); }

// An integer that orders as floats do.
inline uint ordered(float value) {
    const uint bits = as_type<uint>(value);
    return bits & 0x80000000 ? ~bits : bits | 0x80000000;
}

/// out = softmax(x), over rows of `width`. `out` may be `x`.
template <typename T>
[[max_total_threads_per_threadgroup(MOST_THREADS)]]
kernel void softmax(device const T *x [[buffer(0)]], device T *out [[buffer(1)]], constant uint &width [[buffer(2)]],
                    uint row [[threadgroup_position_in_grid]], uint member [[thread_index_in_threadgroup]],
                    uint members [[threads_per_threadgroup]]) {
    threadgroup float partial[MOST_THREADS];
    const ulong start = ulong(row) * width;
    float own = -INFINITY;
    for (uint at = member; at < width; at += members) { own = max(own, float(x[start + at])); }
    partial[member] = own;
    REDUCE(larger_of)
    const float largest = partial[0];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float sum = 0.0f;
    for (uint at = member; at < width; at += members) { sum += exp(float(x[start + at]) - largest); }
    partial[member] = sum;
    REDUCE(plus_of)
    const float total = partial[0];
    for (uint at = member; at < width; at += members) {
        out[start + at] = T(exp(float(x[start + at]) - largest) / total);
    }
}

/// out[row] = the index of the row's largest element, the first of equal ones; NaN is skipped.
template <typename T>
[[max_total_threads_per_threadgroup(MOST_THREADS)]]
kernel void argmax(device const T *x [[buffer(0)]], device uint *out [[buffer(1)]], constant uint &width [[buffer(2)]],
                   uint row [[threadgroup_position_in_grid]], uint member [[thread_index_in_threadgroup]],
                   uint members [[threads_per_threadgroup]]) {
    threadgroup float partial[MOST_THREADS];
    threadgroup uint places[MOST_THREADS];
    const ulong start = ulong(row) * width;
    float own = -INFINITY;
    uint place = 0xffffffff;
    for (uint at = member; at < width; at += members) {
        const float value = float(x[start + at]);
        if (value > own || (value == own && place == 0xffffffff)) {
            own = value;
            place = at;
        }
    }
    partial[member] = own;
    places[member] = place;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint stride = MOST_THREADS / 2; stride > 0; stride /= 2) {
        if (member < stride && member + stride < members) {
            const float other = partial[member + stride];
            const uint there = places[member + stride];
            if (other > partial[member] || (other == partial[member] && there < places[member])) {
                partial[member] = other;
                places[member] = there;
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (member == 0) { out[row] = places[0] == 0xffffffff ? 0 : places[0]; }
}

/// The `chosen` experts of each token with the largest softmax(logits), largest first (the first of equal ones), and
/// their share; with `renormalise`, shares add up to one. At most MOST_EXPERTS and MOST_CHOSEN.
///
/// Every thread counts how many experts rank before its own, which is its index among the chosen.
template <typename T>
[[max_total_threads_per_threadgroup(MOST_THREADS)]]
kernel void moe_route(device const T *logits [[buffer(0)]], device uint *indices [[buffer(1)]],
                      device float *weights [[buffer(2)]], constant uint &experts [[buffer(3)]],
                      constant uint &chosen [[buffer(4)]], constant uint &renormalise [[buffer(5)]],
                      uint token [[threadgroup_position_in_grid]], uint member [[thread_index_in_threadgroup]],
                      uint members [[threads_per_threadgroup]]) {
    threadgroup float partial[MOST_THREADS];
    threadgroup float values[MOST_EXPERTS];
    threadgroup float shares[MOST_CHOSEN];
    const ulong start = ulong(token) * experts;
    float own = -INFINITY;
    for (uint at = member; at < experts; at += members) {
        const float value = float(logits[start + at]);
        values[at] = value;
        own = max(own, value);
    }
    partial[member] = own;
    REDUCE(larger_of)
    const float largest = partial[0];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float sum = 0.0f;
    for (uint at = member; at < experts; at += members) { sum += exp(values[at] - largest); }
    partial[member] = sum;
    REDUCE(plus_of)
    const float total = partial[0];
    for (uint at = member; at < experts; at += members) {
        const float value = values[at];
        uint place = 0;
        for (uint other = 0; other < at; ++other) { place += values[other] >= value ? 1 : 0; }
        for (uint other = at + 1; other < experts; ++other) { place += values[other] > value ? 1 : 0; }
        if (place < chosen) {
            indices[ulong(token) * chosen + place] = at;
            shares[place] = exp(value - largest) / total;
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float whole = 0.0f;
    for (uint place = 0; place < chosen; ++place) { whole += shares[place]; }
    for (uint place = member; place < chosen; place += members) {
        weights[ulong(token) * chosen + place] = renormalise ? shares[place] / whole : shares[place];
    }
}

// The share of one element in the softmax of a row, from the row alone.
template <typename T>
inline float share_of(device const T *row, uint width, uint at) {
    float largest = -INFINITY, total = 0.0f;
    for (uint other = 0; other < width; ++other) { largest = max(largest, float(row[other])); }
    for (uint other = 0; other < width; ++other) { total += exp(float(row[other]) - largest); }
    return exp(float(row[at]) - largest) / total;
}

/// The same result as moe_route, by one thread per token, which computes the share of an expert again at each use, as a
/// careless kernel would: slow on purpose, for a profile to find.
template <typename T>
kernel void serial_topk(device const T *logits [[buffer(0)]], device uint *indices [[buffer(1)]],
                        device float *weights [[buffer(2)]], constant uint &experts [[buffer(3)]],
                        constant uint &chosen [[buffer(4)]], constant uint &renormalise [[buffer(5)]],
                        uint token [[thread_position_in_grid]]) {
    device const T *row = logits + ulong(token) * experts;
    device uint *places = indices + ulong(token) * chosen;
    device float *shares = weights + ulong(token) * chosen;
    float whole = 0.0f;
    for (uint place = 0; place < chosen; ++place) {
        float best = -INFINITY;
        uint where = 0xffffffff;
        for (uint at = 0; at < experts; ++at) {
            const float share = share_of(row, experts, at);
            bool taken = false;
            for (uint before = 0; before < place; ++before) { taken = taken || places[before] == at; }
            if (!taken && (share > best || where == 0xffffffff)) {
                best = share;
                where = at;
            }
        }
        places[place] = where;
        shares[place] = best;
        whole += best;
    }
    if (renormalise) {
        for (uint place = 0; place < chosen; ++place) { shares[place] /= whole; }
    }
}

/// The next token, sampled from the most probable tokens that together reach `top_p`: `random`, from 0 to 1, chooses by
/// their cumulative probability in the order of the tokens. Tokens as probable as the last of them are included.
///
/// One group. The least logit that is included is searched for bit by bit, as an integer that orders as floats do.
template <typename T>
[[max_total_threads_per_threadgroup(MOST_THREADS)]]
kernel void sample_top_p(device const T *logits [[buffer(0)]], device uint *out [[buffer(1)]],
                         constant uint &width [[buffer(2)]], constant float &temperature [[buffer(3)]],
                         constant float &top_p [[buffer(4)]], constant float &random [[buffer(5)]],
                         uint member [[thread_index_in_threadgroup]], uint members [[threads_per_threadgroup]]) {
    threadgroup float partial[MOST_THREADS];
    threadgroup float before[MOST_THREADS];
    threadgroup uint least;
    threadgroup float target;
    float own = -INFINITY;
    for (uint at = member; at < width; at += members) { own = max(own, float(logits[at])); }
    partial[member] = own;
    REDUCE(larger_of)
    const float largest = partial[0];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float sum = 0.0f;
    for (uint at = member; at < width; at += members) { sum += exp((float(logits[at]) - largest) / temperature); }
    partial[member] = sum;
    REDUCE(plus_of)
    if (member == 0) {
        least = 0;
        target = top_p * partial[0];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    // The largest bound for which the logits at or above it reach the target.
    for (uint bit = 32; bit > 0; --bit) {
        const uint bound = least | 1u << (bit - 1);
        float above = 0.0f;
        for (uint at = member; at < width; at += members) {
            const float value = float(logits[at]);
            if (ordered(value) >= bound) { above += exp((value - largest) / temperature); }
        }
        partial[member] = above;
        REDUCE(plus_of)
        if (member == 0 && partial[0] >= target && partial[0] > 0.0f) { least = bound; }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    // Each thread takes a contiguous range of tokens, in the order of the threads.
    const uint stretch = (width + members - 1) / members;
    const uint first = min(member * stretch, width);
    const uint last = min(first + stretch, width);
    float part = 0.0f;
    for (uint at = first; at < last; ++at) {
        const float value = float(logits[at]);
        part += ordered(value) >= least ? exp((value - largest) / temperature) : 0.0f;
    }
    partial[member] = part;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (member == 0) {
        float whole = 0.0f;
        for (uint other = 0; other < members; ++other) {
            before[other] = whole;
            whole += partial[other];
        }
        target = min(random, 0.999999f) * whole;
        out[0] = 0;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
    float running = before[member];
    if (target < running + part && target >= running) {
        for (uint at = first; at < last; ++at) {
            const float value = float(logits[at]);
            if (ordered(value) >= least) {
                running += exp((value - largest) / temperature);
                out[0] = at;
                if (target < running) { break; }
            }
        }
    }
}

#define INSTANCES(T)                                                                                                  \
    template [[host_name("softmax_" #T)]] kernel void softmax<T>(device const T *, device T *, constant uint &, uint, \
                                                                 uint, uint);                                         \
    template [[host_name("argmax_" #T)]] kernel void argmax<T>(device const T *, device uint *, constant uint &,      \
                                                               uint, uint, uint);                                     \
    template [[host_name("moe_route_" #T)]] kernel void moe_route<T>(                                                 \
        device const T *, device uint *, device float *, constant uint &, constant uint &, constant uint &, uint,     \
        uint, uint);                                                                                                  \
    template [[host_name("serial_topk_" #T)]] kernel void serial_topk<T>(                                             \
        device const T *, device uint *, device float *, constant uint &, constant uint &, constant uint &, uint);    \
    template [[host_name("sample_top_p_" #T)]] kernel void sample_top_p<T>(                                           \
        device const T *, device uint *, constant uint &, constant float &, constant float &, constant float &, uint, \
        uint);

INSTANCES(float)
INSTANCES(half)
INSTANCES(bfloat)
