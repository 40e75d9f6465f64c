// Element-wise operations between the matrices of a decoder: activations, gates, a scale, a cap, casts; and the
// sum over the experts of a token.
//
// One thread per element, or per four (`fours`) or eight of 16 bits (`eights`), which are read and written as one vector, for
// large buffers with the alignment of such vectors: a grid of exactly that size. The arithmetic is done in float and rounded once, to the
// type that is stored. `out` may be any of the inputs of its own type.

#include <metal_stdlib>
using namespace metal;

#include "fours.h"
#include "functions.h"

// What is computed of two elements, or of an element and a number that all share, for results of type T.
template <typename T>
struct SiluMul {
    static float of(float gate, float up) { return gate * sigmoid_of<T>(gate) * up; }
};
template <typename T>
struct SigmoidMul {
    static float of(float gate, float up) { return sigmoid_of<T>(gate) * up; }
};
template <typename T>
struct ScalarMul {
    static float of(float x, float factor) { return x * factor; }
};
template <typename T>
struct Softcap {
    static float of(float x, float cap) { return cap * Functions<T>::tanh_of(Functions<T>::quotient(x, cap)); }
};
// The tanh approximation that most models use, ½ x (1 + tanh u) = x · sigmoid(2 u), and the exact one, by the error function.
template <typename T>
struct Gelu {
    static float of(float x) { return x * sigmoid_of<T>(1.5957691216057308f * (x + 0.044715f * x * x * x)); }
};
template <typename T>
struct GeluErf {
    static float of(float x) { return x * normal_below<T>(x); }
};
template <typename T>
struct Same {
    static float of(float x) { return x; }
};

/// out = F(a, b)
template <typename T, typename F, uint EACH>
kernel void of_two(device const T *a [[buffer(0)]], device const T *b [[buffer(1)]], device T *out [[buffer(2)]],
                   uint at [[thread_position_in_grid]]) {
    float left[EACH], right[EACH];
    load<T, EACH>(a + ulong(at) * EACH, left);
    load<T, EACH>(b + ulong(at) * EACH, right);
    FOR_EACH { left[i] = F::of(left[i], right[i]); }
    store<T, EACH>(left, out + ulong(at) * EACH);
}

/// out = F(x, value)
template <typename T, typename F, uint EACH>
kernel void with_value(device const T *x [[buffer(0)]], device T *out [[buffer(1)]],
                       constant float &value [[buffer(2)]], uint at [[thread_position_in_grid]]) {
    float elements[EACH];
    load<T, EACH>(x + ulong(at) * EACH, elements);
    FOR_EACH { elements[i] = F::of(elements[i], value); }
    store<T, EACH>(elements, out + ulong(at) * EACH);
}

/// out = F(x), in the type of `out`.
template <typename From, typename To, typename F, uint EACH>
kernel void of_one(device const From *x [[buffer(0)]], device To *out [[buffer(1)]],
                   uint at [[thread_position_in_grid]]) {
    float elements[EACH];
    load<From, EACH>(x + ulong(at) * EACH, elements);
    FOR_EACH { elements[i] = F::of(elements[i]); }
    store<To, EACH>(elements, out + ulong(at) * EACH);
}

/// out[token] = silu(x[token, 0]) · x[token, 1]
template <typename T, uint EACH>
kernel void silu_mul_halves(device const T *x [[buffer(0)]], device T *out [[buffer(1)]],
                            uint2 position [[thread_position_in_grid]], uint2 extent [[threads_per_grid]]) {
    const ulong at = position.x * EACH, width = extent.x * EACH, token = position.y;
    device const T *line = x + token * 2 * width + at;
    float gate[EACH], up[EACH];
    load<T, EACH>(line, gate);
    load<T, EACH>(line + width, up);
    FOR_EACH { gate[i] = SiluMul<T>::of(gate[i], up[i]); }
    store<T, EACH>(gate, out + token * width + at);
}

/// out[token] = Σ weights[token, slot] · x[token, slot], over the slots of each token.
template <typename T, uint EACH>
kernel void weighted_sum(device const T *x [[buffer(0)]], device const float *weights [[buffer(1)]],
                         device T *out [[buffer(2)]], constant uint &slots [[buffer(3)]],
                         uint2 position [[thread_position_in_grid]], uint2 extent [[threads_per_grid]]) {
    const ulong at = position.x * EACH, width = extent.x * EACH, token = position.y;
    float sum[EACH] = {};
    for (uint slot = token * slots; slot < (token + 1) * slots; ++slot) {
        float elements[EACH];
        load<T, EACH>(x + slot * width + at, elements);
        FOR_EACH { sum[i] += weights[slot] * elements[i]; }
    }
    store<T, EACH>(sum, out + token * width + at);
}

#define OF_TWO(T, EACH, NAME, F)                                                                                      \
    template [[host_name(NAME #T)]] kernel void of_two<T, F<T>, EACH>(device const T *, device const T *, device T *, \
                                                                      uint);
#define WITH_VALUE(T, EACH, NAME, F)                                                                                  \
    template [[host_name(NAME #T)]] kernel void with_value<T, F<T>, EACH>(device const T *, device T *,               \
                                                                          constant float &, uint);
#define OF_ONE(T, To, EACH, NAME, F)                                                                                  \
    template [[host_name(NAME)]] kernel void of_one<T, To, F<To>, EACH>(device const T *, device To *, uint);
#define ELEMENTS(T, EACH, WAY)                                                                                        \
    OF_TWO(T, EACH, "silu_mul" WAY, SiluMul)                                                                          \
    OF_TWO(T, EACH, "sigmoid_mul" WAY, SigmoidMul)                                                                    \
    WITH_VALUE(T, EACH, "scalar_mul" WAY, ScalarMul)                                                                  \
    WITH_VALUE(T, EACH, "softcap" WAY, Softcap)                                                                       \
    OF_ONE(T, T, EACH, "gelu" WAY #T, Gelu)                                                                           \
    OF_ONE(T, T, EACH, "gelu_erf" WAY #T, GeluErf)
#define CASTS(T, EACH, WAY)                                                                                           \
    OF_ONE(T, float, EACH, "cast" WAY #T "_float", Same)                                                              \
    OF_ONE(T, half, EACH, "cast" WAY #T "_half", Same)                                                                \
    OF_ONE(T, bfloat, EACH, "cast" WAY #T "_bfloat", Same)
#define BY_ROWS(T, EACH, WAY)                                                                                         \
    template [[host_name("silu_mul_halves" WAY #T)]] kernel void silu_mul_halves<T, EACH>(device const T *,           \
                                                                                          device T *, uint2, uint2);  \
    template [[host_name("weighted_sum" WAY #T)]] kernel void weighted_sum<T, EACH>(                                  \
        device const T *, device const float *, device T *, constant uint &, uint2, uint2);
#define INSTANCE(T, EACH, WAY) ELEMENTS(T, EACH, WAY) CASTS(T, EACH, WAY) BY_ROWS(T, EACH, WAY)
#define INSTANCES(T) INSTANCE(T, 1, "_") INSTANCE(T, 4, "_fours_")
#define EIGHTS(T) ELEMENTS(T, 8, "_eights_") BY_ROWS(T, 8, "_eights_")

INSTANCES(float)
INSTANCES(half)
INSTANCES(bfloat)
EIGHTS(half)
EIGHTS(bfloat)
