// Products of four bytes by the GPU's own instruction.
#pragma once

#if __CUDA_ARCH__ >= 610
#define OST_DOT
namespace __ost {

OST_FN int dot_add(metal::vec<char, 4> a, metal::vec<char, 4> b, int sum) {
  int total;
  asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(total) : "r"(as_type<int>(a)), "r"(as_type<int>(b)), "r"(sum));
  return total;
}
OST_FN int dot_add(metal::vec<unsigned char, 4> a, metal::vec<char, 4> b, int sum) {
  int total;
  asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(total) : "r"(as_type<int>(a)), "r"(as_type<int>(b)), "r"(sum));
  return total;
}

}  // namespace __ost
#endif
