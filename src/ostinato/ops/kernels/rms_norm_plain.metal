// RMS norm of rows for a CPU, which splits these kernels at their barriers into plain loops. rms_norm.metal is for GPUs
// and describes the computation.
//
// A group takes one row, whatever its number of threads. Sums are in float. The intermediate of separate
// kernels is rounded to the stored type here too, and the sum of squares is taken by the same threads
// in the same order, so a fused kernel gives the same bits as the two kernels that it replaces.
//
// In place: a thread reads the elements that it writes, before it writes them, and no other group reads them. So `out`
// may be `x` or `factor`, and `sum` may be `a` or `b`, if it is exactly the same range.

#include <metal_stdlib>
using namespace metal;

constant constexpr uint MOST_THREADS = 1024;

// Makes `scale`, 1 / sqrt(mean of squares + eps) over the row, from each thread's sum of its own `squares`.
// A macro and not a function: barriers in the body of a kernel are where the CPU backend splits it into plain loops.
#define SCALE_OF_ROW()                                                    \
    partial[member] = squares;                                            \
    threadgroup_barrier(mem_flags::mem_threadgroup);                      \
    for (uint stride = MOST_THREADS / 2; stride > 0; stride /= 2) {       \
        if (member < stride && member + stride < members) {               \
            partial[member] += partial[member + stride];                  \
        }                                                                 \
        threadgroup_barrier(mem_flags::mem_threadgroup);                  \
    }                                                                     \
    const float scale = rsqrt(partial[0] / float(width) + eps);

template <typename T>
[[max_total_threads_per_threadgroup(MOST_THREADS)]]
kernel void rms_norm(device const T *x [[buffer(0)]], device const T *weight [[buffer(1)]], device T *out [[buffer(2)]],
                     constant uint &width [[buffer(3)]], constant float &eps [[buffer(4)]],
                     uint row [[threadgroup_position_in_grid]], uint member [[thread_index_in_threadgroup]],
                     uint members [[threads_per_threadgroup]]) {
    threadgroup float partial[MOST_THREADS];
    const ulong start = ulong(row) * width;
    float squares = 0.0f;
    for (uint at = member; at < width; at += members) {
        const float value = float(x[start + at]);
        squares += value * value;
    }
    SCALE_OF_ROW()
    for (uint at = member; at < width; at += members) {
        out[start + at] = T(float(x[start + at]) * scale * float(weight[at]));
    }
}

/// `rms_norm` of x, then times `factor`, element by element.
template <typename T>
[[max_total_threads_per_threadgroup(MOST_THREADS)]]
kernel void rms_norm_mul(device const T *x [[buffer(0)]], device const T *weight [[buffer(1)]],
                         device const T *factor [[buffer(2)]], device T *out [[buffer(3)]],
                         constant uint &width [[buffer(4)]], constant float &eps [[buffer(5)]],
                         uint row [[threadgroup_position_in_grid]], uint member [[thread_index_in_threadgroup]],
                         uint members [[threads_per_threadgroup]]) {
    threadgroup float partial[MOST_THREADS];
    const ulong start = ulong(row) * width;
    float squares = 0.0f;
    for (uint at = member; at < width; at += members) {
        const float value = float(x[start + at]);
        squares += value * value;
    }
    SCALE_OF_ROW()
    for (uint at = member; at < width; at += members) {
        const T normed = T(float(x[start + at]) * scale * float(weight[at]));
        out[start + at] = T(float(normed) * float(factor[start + at]));
    }
}

/// sum = a + b, then out = `rms_norm` of sum.
template <typename T>
[[max_total_threads_per_threadgroup(MOST_THREADS)]]
kernel void add_rms_norm(device const T *a [[buffer(0)]], device const T *b [[buffer(1)]],
                         device const T *weight [[buffer(2)]], device T *sum [[buffer(3)]], device T *out [[buffer(4)]],
                         constant uint &width [[buffer(5)]], constant float &eps [[buffer(6)]],
                         uint row [[threadgroup_position_in_grid]], uint member [[thread_index_in_threadgroup]],
                         uint members [[threads_per_threadgroup]]) {
    threadgroup float partial[MOST_THREADS];
    const ulong start = ulong(row) * width;
    float squares = 0.0f;
    for (uint at = member; at < width; at += members) {
        const T added = T(float(a[start + at]) + float(b[start + at]));
        sum[start + at] = added;
        const float value = float(added);
        squares += value * value;
    }
    SCALE_OF_ROW()
    for (uint at = member; at < width; at += members) {
        out[start + at] = T(float(sum[start + at]) * scale * float(weight[at]));
    }
}

#define INSTANCES(T)                                                                                                  \
    template [[host_name("rms_norm_" #T)]] kernel void rms_norm<T>(device const T *, device const T *, device T *,    \
                                                                   constant uint &, constant float &, uint, uint,     \
                                                                   uint);                                             \
    template [[host_name("rms_norm_mul_" #T)]] kernel void rms_norm_mul<T>(                                           \
        device const T *, device const T *, device const T *, device T *, constant uint &, constant float &, uint,    \
        uint, uint);                                                                                                  \
    template [[host_name("add_rms_norm_" #T)]] kernel void add_rms_norm<T>(                                           \
        device const T *, device const T *, device const T *, device T *, device T *, constant uint &,                \
        constant float &, uint, uint, uint);

INSTANCES(float)
INSTANCES(half)
INSTANCES(bfloat)
