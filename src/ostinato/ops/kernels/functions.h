// Functions in a precision that is enough for results of type T: those of float are the library's own; those of 16 bits
// take few instructions, since computing an element must not take longer than moving it. Their relative error is below
// 2^-15, but a reciprocal below 2^-126 may be zero, and so may x · sigmoid_of(x) where it is below 2^-119.
template <typename T>
struct Functions {
    static float exp_of(float x) { return fast::exp(x); }
    static float quotient(float x, float y) { return fast::divide(x, y); }
    // Not metal::fast::tanh, whose error is relative to one. Near zero, three terms of the power series are enough.
    static float tanh_of(float x) {
        const float square = x * x, far = 1.0f - fast::divide(2.0f, 1.0f + fast::exp2(2.8853900817779268f * x));
        return square < 0.04f ? x - x * square * (0.33333333f - 0.13333333f * square) : far;
    }
    static float normal_tail(float x) {
        const float q = fast::divide(1.0f, 1.0f + 0.3f * x);
        const float p = 0.143473315f + q * (-0.0155975120f + q * (0.214848992f - 0.0767006210f * q));
        return fast::exp(-0.5f * x * x) * q * (0.120057415f + q * (0.113922851f + q * p));
    }
};
template <>
struct Functions<float> {
    static float exp_of(float x) { return exp(x); }
    static float quotient(float x, float y) { return x / y; }
    static float tanh_of(float x) { return tanh(x); }
    // A normal variable is above x, which is not negative, with this probability. What is multiplied with the Gaussian is
    // a polynomial of 1 / (1 + c x) without a constant term, fitted to the least relative error: 3e-8.
    static float normal_tail(float x) {
        const float q = 1.0f / (1.0f + 0.35f * x);
        const float high = 0.159317326f + q * (-0.255836734f + q * (0.144029723f - 0.0291576194f * q));
        const float p = 0.119821418f + q * (0.105551934f + q * (-0.0232108699f + q * high));
        return exp(-0.5f * x * x) * q * (0.139621308f + q * (0.139863499f + q * p));
    }
};

template <typename T>
inline float sigmoid_of(float x) {
    return Functions<T>::quotient(1.0f, 1.0f + Functions<T>::exp_of(-x));
}

// x · sigmoid(x) with one division, in the precision of float.
inline float silu(float x) { return x / (1.0f + exp(-x)); }

// The probability that a normal variable is below x, ½ (1 + erf(x / √2)).
template <typename T>
inline float normal_below(float x) {
    const float tail = Functions<T>::normal_tail(abs(x));
    return x < 0.0f ? tail : 1.0f - tail;
}
