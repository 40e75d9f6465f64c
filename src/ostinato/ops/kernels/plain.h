// How the kernels for CPUs read and sum: loops of a fixed length over an array, which compilers vectorise. A thread
// does the work of a whole simdgroup of the kernels for GPUs. Loops over lanes have at least 32 iterations, since
// compilers unroll shorter ones into scalar operations.

constant constexpr int LANES = 64;  // enough running sums to hide the latency of an addition

// Element `at`, as a float. Written with integers for half: compilers that have no vectors of halves vectorise it.
inline float wide(device const float *from, uint at) { return from[at]; }
inline float wide(device const bfloat *from, uint at) { return float(from[at]); }
inline float wide(device const half *from, uint at) {
    const uint bits = ((device const ushort *)from)[at];
    const uint magnitude = (bits & 0x7fff) << 13;
    const float finite = as_type<float>(magnitude) * 0x1p112f;
    const uint kept = magnitude < 0x0f800000 ? as_type<uint>(finite) : magnitude | 0x7f800000;
    return as_type<float>(kept | (bits & 0x8000) << 16);
}

// The sum of `count` numbers, a power of two; the halves are added pairwise, so that this vectorises too.
template <int count>
inline float sum_of(thread float *sums) {
    for (int left = count / 2; left > 0; left /= 2) {
        for (int lane = 0; lane < left; ++lane) { sums[lane] += sums[lane + left]; }
    }
    return sums[0];
}

// The product of two rows.
template <typename T>
inline float row_product(device const T *a, device const T *b, uint width) {
    float sums[LANES] = {};
    uint done = 0;
    for (; done + LANES <= width; done += LANES) {
        device const T *left = a + done;
        device const T *right = b + done;
        for (int lane = 0; lane < LANES; ++lane) { sums[lane] += wide(left, lane) * wide(right, lane); }
    }
    float total = sum_of<LANES>(sums);
    for (; done < width; ++done) { total += wide(a, done) * wide(b, done); }
    return total;
}
