// out = a + b and out = a * b: a one-dimensional grid with exactly one thread per element; or four elements per thread,
// read and written as one vector, for large buffers with the alignment of such vectors.
//
// The arithmetic is done in float and rounded once, to the type that is stored.

#include <metal_stdlib>
using namespace metal;

#include "fours.h"

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

template <typename T>
kernel void add_fours(device const T *a [[buffer(0)]], device const T *b [[buffer(1)]], device T *out [[buffer(2)]],
                      uint at [[thread_position_in_grid]]) {
    float left[4], right[4];
    load<T, 4>(a + ulong(at) * 4, left);
    load<T, 4>(b + ulong(at) * 4, right);
    for (uint i = 0; i < 4; ++i) { left[i] += right[i]; }
    store<T, 4>(left, out + ulong(at) * 4);
}

template <typename T>
kernel void mul_fours(device const T *a [[buffer(0)]], device const T *b [[buffer(1)]], device T *out [[buffer(2)]],
                      uint at [[thread_position_in_grid]]) {
    float left[4], right[4];
    load<T, 4>(a + ulong(at) * 4, left);
    load<T, 4>(b + ulong(at) * 4, right);
    for (uint i = 0; i < 4; ++i) { left[i] *= right[i]; }
    store<T, 4>(left, out + ulong(at) * 4);
}

#define INSTANCE(name, T) \
    template [[host_name(#name "_" #T)]] kernel void name<T>(device const T *, device const T *, device T *, uint);
#define INSTANCES(T) INSTANCE(add, T) INSTANCE(mul, T) INSTANCE(add_fours, T) INSTANCE(mul_fours, T)

INSTANCES(float)
INSTANCES(half)
INSTANCES(bfloat)
