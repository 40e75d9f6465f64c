// Functions in a precision that is enough for results of type T: those of float are the library's own; those of 16 bits
// take few instructions, since computing an element must not take longer than moving it. Their relative error is below
// 2^-15 where results are normal numbers.
template <typename T>
struct Functions {
    static float exp_of(float x) { return fast::exp(x); }
    static float quotient(float x, float y) { return fast::divide(x, y); }
    // Not metal::fast::tanh, whose error is relative to one. Near zero, two terms of the power series are enough.
    static float tanh_of(float x) {
        const float square = x * x, far = 1.0f - fast::divide(2.0f, 1.0f + fast::exp2(2.8853900817779268f * x));
        return square < 0.04f ? x - x * square * (0.33333333f - 0.13333333f * square) : far;
    }
};
template <>
struct Functions<float> {
    static float exp_of(float x) { return exp(x); }
    static float quotient(float x, float y) { return x / y; }
    static float tanh_of(float x) { return tanh(x); }
};

template <typename T>
inline float sigmoid_of(float x) {
    return Functions<T>::quotient(1.0f, 1.0f + Functions<T>::exp_of(-x));
}
