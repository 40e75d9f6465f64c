// RMS norm of rows: out = x / sqrt(mean(x²) + eps) · weight; alone, with a multiply after it, and with an add before it.
// For a GPU; rms_norm_plain.metal is for CPUs.
//
// A group of whole simdgroups takes one row. Threads keep what they read in registers, as far as these suffice. They read
// and write an element at a time, or four as one vector (`fours`), for large buffers with the alignment of such vectors.
// Sums are in float. The intermediate of two separate kernels is rounded to the stored type here too, and the sum of
// squares is taken by the same threads in the same order, each step rounded once; so a fused kernel gives the same bits
// as the two kernels that it replaces.
//
// In place: a thread reads the elements that it writes, before it writes them, and no other group reads them. So `out`
// may be `x` or `factor`, and `sum` may be `a` or `b`, if it is exactly the same range.

#include <metal_stdlib>
using namespace metal;

#include "fours.h"

constant constexpr uint MOST_THREADS = 1024;
constant constexpr uint MOST_SIMDGROUPS = 32;

// Elements of a row that a thread keeps; of vectors 32 bytes, so that enough loads are in flight.
template <typename T, uint EACH> constexpr uint kept_elements() { return EACH == 4 ? 32 / sizeof(T) : 8; }

// Makes `scale`, 1 / sqrt(mean of squares + eps) over the row, from each thread's sum of its own `squares`.
#define SCALE_OF_ROW()                                                              \
    squares = simd_sum(squares);                                                    \
    if (lane == 0) {                                                                \
        partial[simdgroup] = squares;                                               \
    }                                                                               \
    threadgroup_barrier(mem_flags::mem_threadgroup);                                \
    const float whole = simd_sum(lane < simdgroups ? partial[lane] : 0.0f);         \
    const float scale = rsqrt(whole / float(width) + eps);

template <typename T, uint EACH>
[[max_total_threads_per_threadgroup(MOST_THREADS)]]
kernel void rms_norm(device const T *x [[buffer(0)]], device const T *weight [[buffer(1)]], device T *out [[buffer(2)]],
                     constant uint &width [[buffer(3)]], constant float &eps [[buffer(4)]],
                     uint row [[threadgroup_position_in_grid]], uint member [[thread_index_in_threadgroup]],
                     uint members [[threads_per_threadgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                     uint simdgroups [[simdgroups_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float partial[MOST_SIMDGROUPS];
    const ulong start = ulong(row) * width;
    constexpr uint KEPT = kept_elements<T, EACH>();
    float kept[KEPT], squares = 0.0f;
    FOR_KEPT { load<T, EACH>(x + start + place, kept + step * EACH); }
    FOR_KEPT {
        FOR_EACH { squares = fma(kept[step * EACH + i], kept[step * EACH + i], squares); }
    }
    FOR_REST {
        float value[EACH];
        load<T, EACH>(x + start + place, value);
        FOR_EACH { squares = fma(value[i], value[i], squares); }
    }
    SCALE_OF_ROW()
    FOR_KEPT {
        float normed[EACH], own[EACH];
        load<T, EACH>(weight + place, own);
        FOR_EACH { normed[i] = kept[step * EACH + i] * scale * own[i]; }
        store<T, EACH>(normed, out + start + place);
    }
    FOR_REST {
        float value[EACH], own[EACH];
        load<T, EACH>(x + start + place, value);
        load<T, EACH>(weight + place, own);
        FOR_EACH { value[i] = value[i] * scale * own[i]; }
        store<T, EACH>(value, out + start + place);
    }
}

/// `rms_norm` of x, then times `factor`, element by element.
template <typename T, uint EACH>
[[max_total_threads_per_threadgroup(MOST_THREADS)]]
kernel void rms_norm_mul(device const T *x [[buffer(0)]], device const T *weight [[buffer(1)]],
                         device const T *factor [[buffer(2)]], device T *out [[buffer(3)]],
                         constant uint &width [[buffer(4)]], constant float &eps [[buffer(5)]],
                         uint row [[threadgroup_position_in_grid]], uint member [[thread_index_in_threadgroup]],
                         uint members [[threads_per_threadgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                         uint simdgroups [[simdgroups_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float partial[MOST_SIMDGROUPS];
    const ulong start = ulong(row) * width;
    constexpr uint KEPT = kept_elements<T, EACH>();
    float kept[KEPT], squares = 0.0f;
    FOR_KEPT { load<T, EACH>(x + start + place, kept + step * EACH); }
    FOR_KEPT {
        FOR_EACH { squares = fma(kept[step * EACH + i], kept[step * EACH + i], squares); }
    }
    FOR_REST {
        float value[EACH];
        load<T, EACH>(x + start + place, value);
        FOR_EACH { squares = fma(value[i], value[i], squares); }
    }
    SCALE_OF_ROW()
    FOR_KEPT {
        float own[EACH], by[EACH];
        load<T, EACH>(weight + place, own);
        load<T, EACH>(factor + start + place, by);
        FOR_EACH { by[i] *= float(T(kept[step * EACH + i] * scale * own[i])); }
        store<T, EACH>(by, out + start + place);
    }
    FOR_REST {
        float value[EACH], own[EACH], by[EACH];
        load<T, EACH>(x + start + place, value);
        load<T, EACH>(weight + place, own);
        load<T, EACH>(factor + start + place, by);
        FOR_EACH { by[i] *= float(T(value[i] * scale * own[i])); }
        store<T, EACH>(by, out + start + place);
    }
}

/// sum = a + b, then out = `rms_norm` of sum.
template <typename T, uint EACH>
[[max_total_threads_per_threadgroup(MOST_THREADS)]]
kernel void add_rms_norm(device const T *a [[buffer(0)]], device const T *b [[buffer(1)]],
                         device const T *weight [[buffer(2)]], device T *sum [[buffer(3)]], device T *out [[buffer(4)]],
                         constant uint &width [[buffer(5)]], constant float &eps [[buffer(6)]],
                         uint row [[threadgroup_position_in_grid]], uint member [[thread_index_in_threadgroup]],
                         uint members [[threads_per_threadgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                         uint simdgroups [[simdgroups_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float partial[MOST_SIMDGROUPS];
    const ulong start = ulong(row) * width;
    constexpr uint KEPT = kept_elements<T, EACH>();
    float kept[KEPT], squares = 0.0f;
    FOR_KEPT {
        float other[EACH];
        load<T, EACH>(a + start + place, kept + step * EACH);
        load<T, EACH>(b + start + place, other);
        FOR_EACH { kept[step * EACH + i] = float(T(kept[step * EACH + i] + other[i])); }
    }
    FOR_KEPT {
        store<T, EACH>(kept + step * EACH, sum + start + place);
        FOR_EACH { squares = fma(kept[step * EACH + i], kept[step * EACH + i], squares); }
    }
    FOR_REST {
        float added[EACH], other[EACH];
        load<T, EACH>(a + start + place, added);
        load<T, EACH>(b + start + place, other);
        FOR_EACH { added[i] = float(T(added[i] + other[i])); }
        store<T, EACH>(added, sum + start + place);
        FOR_EACH { squares = fma(added[i], added[i], squares); }
    }
    SCALE_OF_ROW()
    FOR_KEPT {
        float normed[EACH], own[EACH];
        load<T, EACH>(weight + place, own);
        FOR_EACH { normed[i] = kept[step * EACH + i] * scale * own[i]; }
        store<T, EACH>(normed, out + start + place);
    }
    FOR_REST {
        float value[EACH], own[EACH];
        load<T, EACH>(sum + start + place, value);
        load<T, EACH>(weight + place, own);
        FOR_EACH { value[i] = value[i] * scale * own[i]; }
        store<T, EACH>(value, out + start + place);
    }
}

#define INSTANCE(T, EACH, NAME)                                                                                       \
    template [[host_name("rms_norm" NAME #T)]] kernel void rms_norm<T, EACH>(                                         \
        device const T *, device const T *, device T *, constant uint &, constant float &, uint, uint, uint, uint,    \
        uint, uint);                                                                                                  \
    template [[host_name("rms_norm_mul" NAME #T)]] kernel void rms_norm_mul<T, EACH>(                                 \
        device const T *, device const T *, device const T *, device T *, constant uint &, constant float &, uint,    \
        uint, uint, uint, uint, uint);                                                                                \
    template [[host_name("add_rms_norm" NAME #T)]] kernel void add_rms_norm<T, EACH>(                                 \
        device const T *, device const T *, device const T *, device T *, device T *, constant uint &,                \
        constant float &, uint, uint, uint, uint, uint, uint);
#define INSTANCES(T) INSTANCE(T, 1, "_") INSTANCE(T, 4, "_fours_")

INSTANCES(float)
INSTANCES(half)
INSTANCES(bfloat)
