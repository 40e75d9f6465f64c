// out = a + b and out = a * b, an element a thread: one row of threads, exactly as many as there are elements.
//
// The arithmetic is done in float and rounded once, to the type that is stored.

#include <metal_stdlib>
using namespace metal;

template <typename T>
kernel void add(device const T *a [[buffer(0)]], device const T *b [[buffer(1)]], device T *out [[buffer(2)]],
                uint at [[thread_position_in_grid]]) {
    out[at] = T(float(a[at]) + float(b[at]));
}

template <typename T>
kernel void mul(device const T *a [[buffer(0)]], device const T *b [[buffer(1)]], device T *out [[buffer(2)]],
                uint at [[thread_position_in_grid]]) {
    out[at] = T(float(a[at]) * float(b[at]));
}

#define INSTANCES(T)                                                                                            \
    template [[host_name("add_" #T)]] kernel void add<T>(device const T *, device const T *, device T *, uint); \
    template [[host_name("mul_" #T)]] kernel void mul<T>(device const T *, device const T *, device T *, uint);

INSTANCES(float)
INSTANCES(half)
INSTANCES(bfloat)
