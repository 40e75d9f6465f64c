// out = a + b and out = a * b: a one-dimensional grid with exactly one thread per element; or four elements per thread,
// read and written as one vector, for large buffers with the alignment of such vectors.
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

template <typename T>
kernel void add_fours(device const T *a [[buffer(0)]], device const T *b [[buffer(1)]], device T *out [[buffer(2)]],
                      uint at [[thread_position_in_grid]]) {
    device const vec<T, 4> *lefts = (device const vec<T, 4> *)a;
    device const vec<T, 4> *rights = (device const vec<T, 4> *)b;
    device vec<T, 4> *fours = (device vec<T, 4> *)out;
    const vec<T, 4> left = lefts[at], right = rights[at];
    fours[at] = vec<T, 4>(T(float(left.x) + float(right.x)), T(float(left.y) + float(right.y)),
                          T(float(left.z) + float(right.z)), T(float(left.w) + float(right.w)));
}

template <typename T>
kernel void mul_fours(device const T *a [[buffer(0)]], device const T *b [[buffer(1)]], device T *out [[buffer(2)]],
                      uint at [[thread_position_in_grid]]) {
    device const vec<T, 4> *lefts = (device const vec<T, 4> *)a;
    device const vec<T, 4> *rights = (device const vec<T, 4> *)b;
    device vec<T, 4> *fours = (device vec<T, 4> *)out;
    const vec<T, 4> left = lefts[at], right = rights[at];
    fours[at] = vec<T, 4>(T(float(left.x) * float(right.x)), T(float(left.y) * float(right.y)),
                          T(float(left.z) * float(right.z)), T(float(left.w) * float(right.w)));
}

#define INSTANCE(name, T) \
    template [[host_name(#name "_" #T)]] kernel void name<T>(device const T *, device const T *, device T *, uint);
#define INSTANCES(T) INSTANCE(add, T) INSTANCE(mul, T) INSTANCE(add_fours, T) INSTANCE(mul_fours, T)

INSTANCES(float)
INSTANCES(half)
INSTANCES(bfloat)
