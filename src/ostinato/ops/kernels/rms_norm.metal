// RMS norm of rows: out = x / sqrt(mean(x²) + eps) · weight; alone, with a multiply after it, and with an add before it.
// For a GPU; rms_norm_plain.metal is for CPUs.
//
// A group of whole simdgroups takes one row. Threads keep what they read in registers, as far as these suffice. Sums
// are in float. The intermediate of two separate kernels is rounded to the stored type here too, and the sum of
// squares is taken by the same threads in the same order, each step rounded once; so a fused kernel gives the same bits
// as the two kernels that it replaces.
//
// In place: a thread reads the elements that it writes, before it writes them, and no other group reads them. So `out`
// may be `x` or `factor`, and `sum` may be `a` or `b`, if it is exactly the same range.

#include <metal_stdlib>
using namespace metal;

constant constexpr uint MOST_THREADS = 1024;
constant constexpr uint MOST_SIMDGROUPS = 32;
constant constexpr uint KEPT = 8;  // elements of a row that a thread keeps

// A row is read twice; `place` is the index of a thread's next element. The loop is short and unrolled, so that arrays
// of kept elements stay in registers.
#define FOR_KEPT                                                                       \
    for (uint step = 0, place = member; step < KEPT; ++step, place += members)         \
        if (place < width)
#define FOR_REST for (uint place = member + KEPT * members; place < width; place += members)

// Makes `scale`, 1 / sqrt(mean of squares + eps) over the row, from each thread's sum of its own `squares`.
#define SCALE_OF_ROW()                                                              \
    squares = simd_sum(squares);                                                    \
    if (lane == 0) {                                                                \
        partial[simdgroup] = squares;                                               \
    }                                                                               \
    threadgroup_barrier(mem_flags::mem_threadgroup);                                \
    const float whole = simd_sum(lane < simdgroups ? partial[lane] : 0.0f);         \
    const float scale = rsqrt(whole / float(width) + eps);

template <typename T>
[[max_total_threads_per_threadgroup(MOST_THREADS)]]
kernel void rms_norm(device const T *x [[buffer(0)]], device const T *weight [[buffer(1)]], device T *out [[buffer(2)]],
                     constant uint &width [[buffer(3)]], constant float &eps [[buffer(4)]],
                     uint row [[threadgroup_position_in_grid]], uint member [[thread_index_in_threadgroup]],
                     uint members [[threads_per_threadgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                     uint simdgroups [[simdgroups_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float partial[MOST_SIMDGROUPS];
    const ulong start = ulong(row) * width;
    float kept[KEPT], gain[KEPT], squares = 0.0f;
    FOR_KEPT {
        kept[step] = float(x[start + place]);
        gain[step] = float(weight[place]);
    }
    FOR_KEPT { squares = fma(kept[step], kept[step], squares); }
    FOR_REST {
        const float value = float(x[start + place]);
        squares = fma(value, value, squares);
    }
    SCALE_OF_ROW()
    FOR_KEPT { out[start + place] = T(kept[step] * scale * gain[step]); }
    FOR_REST { out[start + place] = T(float(x[start + place]) * scale * float(weight[place])); }
}

/// `rms_norm` of x, then times `factor`, element by element.
template <typename T>
[[max_total_threads_per_threadgroup(MOST_THREADS)]]
kernel void rms_norm_mul(device const T *x [[buffer(0)]], device const T *weight [[buffer(1)]],
                         device const T *factor [[buffer(2)]], device T *out [[buffer(3)]],
                         constant uint &width [[buffer(4)]], constant float &eps [[buffer(5)]],
                         uint row [[threadgroup_position_in_grid]], uint member [[thread_index_in_threadgroup]],
                         uint members [[threads_per_threadgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                         uint simdgroups [[simdgroups_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float partial[MOST_SIMDGROUPS];
    const ulong start = ulong(row) * width;
    float kept[KEPT], gain[KEPT], squares = 0.0f;
    FOR_KEPT {
        kept[step] = float(x[start + place]);
        gain[step] = float(weight[place]);
    }
    FOR_KEPT { squares = fma(kept[step], kept[step], squares); }
    FOR_REST {
        const float value = float(x[start + place]);
        squares = fma(value, value, squares);
    }
    SCALE_OF_ROW()
    FOR_KEPT {
        const T normed = T(kept[step] * scale * gain[step]);
        out[start + place] = T(float(normed) * float(factor[start + place]));
    }
    FOR_REST {
        const T normed = T(float(x[start + place]) * scale * float(weight[place]));
        out[start + place] = T(float(normed) * float(factor[start + place]));
    }
}

/// sum = a + b, then out = `rms_norm` of sum.
template <typename T>
[[max_total_threads_per_threadgroup(MOST_THREADS)]]
kernel void add_rms_norm(device const T *a [[buffer(0)]], device const T *b [[buffer(1)]],
                         device const T *weight [[buffer(2)]], device T *sum [[buffer(3)]], device T *out [[buffer(4)]],
                         constant uint &width [[buffer(5)]], constant float &eps [[buffer(6)]],
                         uint row [[threadgroup_position_in_grid]], uint member [[thread_index_in_threadgroup]],
                         uint members [[threads_per_threadgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                         uint simdgroups [[simdgroups_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float partial[MOST_SIMDGROUPS];
    const ulong start = ulong(row) * width;
    float kept[KEPT], gain[KEPT], squares = 0.0f;
    FOR_KEPT {
        kept[step] = float(T(float(a[start + place]) + float(b[start + place])));
        gain[step] = float(weight[place]);
    }
    FOR_KEPT {
        sum[start + place] = T(kept[step]);
        squares = fma(kept[step], kept[step], squares);
    }
    FOR_REST {
        const T added = T(float(a[start + place]) + float(b[start + place]));
        sum[start + place] = added;
        squares = fma(float(added), float(added), squares);
    }
    SCALE_OF_ROW()
    FOR_KEPT { out[start + place] = T(kept[step] * scale * gain[step]); }
    FOR_REST { out[start + place] = T(float(sum[start + place]) * scale * float(weight[place])); }
}

#define INSTANCES(T)                                                                                                  \
    template [[host_name("rms_norm_" #T)]] kernel void rms_norm<T>(device const T *, device const T *, device T *,    \
                                                                   constant uint &, constant float &, uint, uint,     \
                                                                   uint, uint, uint, uint);                           \
    template [[host_name("rms_norm_mul_" #T)]] kernel void rms_norm_mul<T>(                                           \
        device const T *, device const T *, device const T *, device T *, constant uint &, constant float &, uint,    \
        uint, uint, uint, uint, uint);                                                                                \
    template [[host_name("add_rms_norm_" #T)]] kernel void add_rms_norm<T>(                                           \
        device const T *, device const T *, device const T *, device T *, device T *, constant uint &,                \
        constant float &, uint, uint, uint, uint, uint, uint);

INSTANCES(float)
INSTANCES(half)
INSTANCES(bfloat)
