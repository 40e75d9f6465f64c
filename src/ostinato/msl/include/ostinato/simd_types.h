// The names of <simd/simd.h> for vectors and matrices. Headers that a host program shares with its kernels use them.
#pragma once

namespace simd {
using namespace metal;
}

#define OST_SIMD_NAMES(type)                                              \
  typedef metal::type##2 simd_##type##2, vector_##type##2;                \
  typedef metal::type##3 simd_##type##3, vector_##type##3;                \
  typedef metal::type##4 simd_##type##4, vector_##type##4;
OST_SIMD_NAMES(char)
OST_SIMD_NAMES(uchar)
OST_SIMD_NAMES(short)
OST_SIMD_NAMES(ushort)
OST_SIMD_NAMES(int)
OST_SIMD_NAMES(uint)
OST_SIMD_NAMES(long)
OST_SIMD_NAMES(ulong)
OST_SIMD_NAMES(half)
OST_SIMD_NAMES(float)
#undef OST_SIMD_NAMES

#define OST_SIMD_NAMES(type, columns)                                                          \
  typedef metal::type##columns##x2 simd_##type##columns##x2, matrix_##type##columns##x2;       \
  typedef metal::type##columns##x3 simd_##type##columns##x3, matrix_##type##columns##x3;       \
  typedef metal::type##columns##x4 simd_##type##columns##x4, matrix_##type##columns##x4;
OST_SIMD_NAMES(half, 2)
OST_SIMD_NAMES(half, 3)
OST_SIMD_NAMES(half, 4)
OST_SIMD_NAMES(float, 2)
OST_SIMD_NAMES(float, 3)
OST_SIMD_NAMES(float, 4)
#undef OST_SIMD_NAMES
