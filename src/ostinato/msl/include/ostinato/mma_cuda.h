// The tensor cores' products of a warp (mma.sync): 16 rows by 8 columns, sums in float.
//
// A thread of the warp has a `row` (its place / 4) and a `quarter` (its place % 4), which are the row and half the column
// of what a lane holds of a simdgroup matrix (exec_cuda.h). It gives four neighbours along the sum for each of two rows of
// the left operand, `row` and 8 + `row`, and for one column of the right one, `row`. It holds the sums of both rows in the
// columns 2 * quarter and 2 * quarter + 1. The hardware sums 16 products and does not care in which order it is given
// them, so the four of a quarter may be any four, as long as both operands take the same.
#pragma once

namespace __ost {

OST_FN uint32_t mma_row() { return (threadIdx.x >> 2) & 7u; }
OST_FN uint32_t mma_quarter() { return threadIdx.x & 3u; }

// Four neighbours of an operand, as its registers. `native`: the tensor cores multiply this type.
template <class T> struct mma_quad;
template <class T> struct mma_element { static constexpr bool native = false; };

#define OST_MMA(type, name)                                                                                            \
  template <> struct mma_quad<type> { uint32_t word[2]; };                                                             \
  template <> struct mma_element<type> {                                                                               \
    static constexpr bool native = true;                                                                               \
    static OST_FN mma_quad<type> pack(const type (&four)[4]) {                                                         \
      mma_quad<type> quad;                                                                                             \
      ::memcpy(&quad, four, 8);                                                                                        \
      return quad;                                                                                                     \
    }                                                                                                                  \
    static OST_FN mma_quad<type> read(const type *aligned) {                                                           \
      const ::uint2 words = *reinterpret_cast<const ::uint2 *>(aligned);                                               \
      return {{words.x, words.y}};                                                                                     \
    }                                                                                                                  \
    static OST_FN void multiply(float &c0, float &c1, float &c2, float &c3, mma_quad<type> upper,                      \
                                mma_quad<type> lower, mma_quad<type> right) {                                          \
      asm("mma.sync.aligned.m16n8k16.row.col.f32." name "." name ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, " \
          "{%0, %1, %2, %3};"                                                                                          \
          : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)                                                                     \
          : "r"(upper.word[0]), "r"(lower.word[0]), "r"(upper.word[1]), "r"(lower.word[1]), "r"(right.word[0]),        \
            "r"(right.word[1]));                                                                                       \
    }                                                                                                                  \
    /* One matrix of 8 by 8 each: eight products, and eight rows that nobody asked for. backends/cuda/joining.py finds */ \
    /* these by their text, and makes one product of several. */ \
    static OST_FN void multiply(float &c0, float &c1, uint32_t left, uint32_t right) { \
      float d0, d1; \
      asm("{ .reg .b32 none; .reg .f32 nil, unused0, unused1; mov.b32 none, 0; mov.f32 nil, 0f00000000; " \
          "mma.sync.aligned.m16n8k8.row.col.f32." name "." name ".f32 {%0, %1, unused0, unused1}, {%2, none}, {%3}, " \
          "{%4, %5, nil, nil}; }" \
          : "=f"(d0), "=f"(d1) \
          : "r"(left), "r"(right), "f"(c0), "f"(c1)); \
      c0 = d0, c1 = d1; \
    } \
  };
#if __CUDA_ARCH__ >= 800
OST_MMA(half, "f16")
OST_MMA(bfloat, "bf16")
#endif
#undef OST_MMA

// Where the device was opened with tf32=True: float with a fraction of ten bits, rounded to nearest.
#if defined(__OST_TF32) && __CUDA_ARCH__ >= 800
OST_FN uint32_t tf32_bits(float value) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return bits;
}
template <> struct mma_quad<float> { uint32_t word[4]; };
template <> struct mma_element<float> {
  static constexpr bool native = true;
  static OST_FN mma_quad<float> pack(const float (&four)[4]) {
    return {{tf32_bits(four[0]), tf32_bits(four[1]), tf32_bits(four[2]), tf32_bits(four[3])}};
  }
  static OST_FN mma_quad<float> read(const float *aligned) {
    const ::float4 four = *reinterpret_cast<const ::float4 *>(aligned);
    return {{tf32_bits(four.x), tf32_bits(four.y), tf32_bits(four.z), tf32_bits(four.w)}};
  }
  static OST_FN void multiply(float &c0, float &c1, float &c2, float &c3, mma_quad<float> upper, mma_quad<float> lower,
                              mma_quad<float> right) {
#pragma unroll
    for (int i = 0; i < 4; i += 2)
      asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
          : "r"(upper.word[i]), "r"(lower.word[i]), "r"(upper.word[i + 1]), "r"(lower.word[i + 1]), "r"(right.word[i]),
            "r"(right.word[i + 1]));
  }
  // Matrices of 8 by 8: two neighbours along the sum of either operand.
  static OST_FN void multiply(float &c0, float &c1, uint32_t left0, uint32_t left1, uint32_t right0, uint32_t right1) {
    float d0, d1;
    asm("{ .reg .b32 none; .reg .f32 nil, unused0, unused1; mov.b32 none, 0; mov.f32 nil, 0f00000000; "
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, unused0, unused1}, {%2, none, %3, none}, {%4, "
        "%5}, "
        "{%6, %7, nil, nil}; }"
        : "=f"(d0), "=f"(d1)
        : "r"(left0), "r"(left1), "r"(right0), "r"(right1), "f"(c0), "f"(c1));
    c0 = d0, c1 = d1;
  }
};
#endif

}  // namespace __ost
