// Element-wise operations between the matrices of a decoder: activations, gates, a scale, a cap, casts; and the
// sum over the experts of a token.
//
// One thread per element: a one-dimensional grid of exactly that size. The arithmetic is done in float and
// rounded once, to the type that is stored. `out` may be any of the inputs of its own type.

#include <metal_stdlib>
using namespace metal;

inline float sigmoid_of(float x) { return 1.0f / (1.0f + exp(-x)); }

/// out = silu(gate) · up
template <typename T>
kernel void silu_mul(device const T *gate [[buffer(0)]], device const T *up [[buffer(1)]], device T *out [[buffer(2)]],
                     uint at [[thread_position_in_grid]]) {
    const float x = float(gate[at]);
    out[at] = T(x * sigmoid_of(x) * float(up[at]));
}

/// out[token] = silu(x[token, 0]) · x[token, 1]
template <typename T>
kernel void silu_mul_halves(device const T *x [[buffer(0)]], device T *out [[buffer(1)]],
                            uint2 position [[thread_position_in_grid]], uint2 extent [[threads_per_grid]]) {
    const uint at = position.x, width = extent.x, token = position.y;
    device const T *line = x + ulong(token) * 2 * width;
    const float gate = float(line[at]);
    out[ulong(token) * width + at] = T(gate * sigmoid_of(gate) * float(line[width + at]));
}

/// out = sigmoid(gate) · up
template <typename T>
kernel void sigmoid_mul(device const T *gate [[buffer(0)]], device const T *up [[buffer(1)]],
                        device T *out [[buffer(2)]], uint at [[thread_position_in_grid]]) {
    out[at] = T(sigmoid_of(float(gate[at])) * float(up[at]));
}

/// out = gelu(x), in the tanh approximation that most models use.
template <typename T>
kernel void gelu(device const T *x [[buffer(0)]], device T *out [[buffer(1)]], uint at [[thread_position_in_grid]]) {
    const float value = float(x[at]);
    const float inner = 0.7978845608028654f * (value + 0.044715f * value * value * value);
    out[at] = T(0.5f * value * (1.0f + tanh(inner)));
}

// The error function, within 3e-7: its power series near zero, a continued fraction away from it.
inline float erf_of(float x) {
    const float size = abs(x);
    float result;
    if (size < 2.0f) {
        float term = size, sum = size;
        for (int n = 1; n < 28; ++n) {
            term *= -size * size / float(n);
            sum += term / float(2 * n + 1);
        }
        result = 1.1283791670955126f * sum;
    } else {
        float tail = 0.0f;
        for (int n = 24; n > 0; --n) { tail = 0.5f * float(n) / (size + tail); }
        result = 1.0f - exp(-size * size) * 0.5641895835477563f / (size + tail);
    }
    return copysign(result, x);
}

/// out = gelu(x), by the error function.
template <typename T>
kernel void gelu_erf(device const T *x [[buffer(0)]], device T *out [[buffer(1)]],
                     uint at [[thread_position_in_grid]]) {
    const float value = float(x[at]);
    out[at] = T(0.5f * value * (1.0f + erf_of(value * 0.7071067811865476f)));
}

/// out = x · factor
template <typename T>
kernel void scalar_mul(device const T *x [[buffer(0)]], device T *out [[buffer(1)]],
                       constant float &factor [[buffer(2)]], uint at [[thread_position_in_grid]]) {
    out[at] = T(float(x[at]) * factor);
}

/// out = cap · tanh(x / cap)
template <typename T>
kernel void softcap(device const T *x [[buffer(0)]], device T *out [[buffer(1)]], constant float &cap [[buffer(2)]],
                    uint at [[thread_position_in_grid]]) {
    out[at] = T(cap * tanh(float(x[at]) / cap));
}

/// out = x, in another type.
template <typename From, typename To>
kernel void cast(device const From *x [[buffer(0)]], device To *out [[buffer(1)]],
                 uint at [[thread_position_in_grid]]) {
    out[at] = To(float(x[at]));
}

/// out[token] = Σ weights[token, slot] · x[token, slot], over the slots of each token.
template <typename T>
kernel void weighted_sum(device const T *x [[buffer(0)]], device const float *weights [[buffer(1)]],
                         device T *out [[buffer(2)]], constant uint &slots [[buffer(3)]],
                         uint2 position [[thread_position_in_grid]], uint2 extent [[threads_per_grid]]) {
    const uint at = position.x, width = extent.x, token = position.y;
    float sum = 0.0f;
    for (uint slot = token * slots; slot < (token + 1) * slots; ++slot) {
        sum += weights[slot] * float(x[ulong(slot) * width + at]);
    }
    out[ulong(token) * width + at] = T(sum);
}

#define INSTANCES(T)                                                                                                  \
    template [[host_name("silu_mul_" #T)]] kernel void silu_mul<T>(device const T *, device const T *, device T *,    \
                                                                   uint);                                             \
    template [[host_name("silu_mul_halves_" #T)]] kernel void silu_mul_halves<T>(device const T *, device T *, uint2, \
                                                                                 uint2);                              \
    template [[host_name("sigmoid_mul_" #T)]] kernel void sigmoid_mul<T>(device const T *, device const T *,          \
                                                                         device T *, uint);                           \
    template [[host_name("gelu_" #T)]] kernel void gelu<T>(device const T *, device T *, uint);                       \
    template [[host_name("gelu_erf_" #T)]] kernel void gelu_erf<T>(device const T *, device T *, uint);               \
    template [[host_name("scalar_mul_" #T)]] kernel void scalar_mul<T>(device const T *, device T *,                  \
                                                                       constant float &, uint);                       \
    template [[host_name("softcap_" #T)]] kernel void softcap<T>(device const T *, device T *, constant float &,      \
                                                                 uint);                                               \
    template [[host_name("cast_" #T "_float")]] kernel void cast<T, float>(device const T *, device float *, uint);   \
    template [[host_name("cast_" #T "_half")]] kernel void cast<T, half>(device const T *, device half *, uint);      \
    template [[host_name("cast_" #T "_bfloat")]] kernel void cast<T, bfloat>(device const T *, device bfloat *,       \
                                                                             uint);                                   \
    template [[host_name("weighted_sum_" #T)]] kernel void weighted_sum<T>(                                           \
        device const T *, device const float *, device T *, constant uint &, uint2, uint2);

INSTANCES(float)
INSTANCES(half)
INSTANCES(bfloat)
