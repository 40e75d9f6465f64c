// What a translated Metal kernel sees on the CPU. Contract: after this one include every name of the Metal
// standard library that Ostinato supports means in C++17 what the Metal Shading Language specification says,
// with IEEE arithmetic (denormals, NaN) and 32-wide simdgroups. Textures are not here; tensors are in tensors_cpu.h.
//
// All but the *_cpu.h and *_cuda.h parts is shared between targets: a target defines OST_FN (how a library function is
// declared), OST_ROOT (the namespace in which MSL's global names are) and half, and brings its own elementary functions,
// execution and atomics. No C or C++ library headers but <stdint.h> and <stddef.h>.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __OST_DEBUG
#define OST_FN inline
#else
#define OST_FN inline __attribute__((always_inline))
#endif
#define OST_ROOT

// Before the body of a constexpr function, which in Metal may be one that is never constant. g++ refuses that, but it
// does not look behind a condition that is only known when the function is evaluated.
#ifdef __clang__
#define __OST_IF_EVALUATED
#else
#define __OST_IF_EVALUATED         \
  bool __ost_is_evaluated = true; \
  if (__ost_is_evaluated)
#endif

// Real shaders convert freely inside braces and leave helpers unused; in Metal neither is worth a message. These stay
// off for the rest of the file on purpose: user code follows.
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wc++11-narrowing"
#pragma clang diagnostic ignored "-Winvalid-constexpr"
#pragma clang diagnostic ignored "-Wunknown-pragmas"
#else
#pragma GCC diagnostic ignored "-Wnarrowing"
#pragma GCC diagnostic ignored "-Wunknown-pragmas"
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

#ifdef __OST_VECTOR
#include "lanes_vector.h"
#else
#include "fiber.h"
#ifdef __OST_CHECKED
#include "checks_cpu.h"
#endif
#include "division_cpu.h"
#endif

typedef _Float16 half;

#include "types.h"
#include "traits.h"
#include "limits.h"
#include "vector.h"
#include "ext_vector.h"
#include "wide_vector.h"
#include "shift.h"
#include "arguments.h"
#include "scalar_math.h"
#include "scalar_math_cpu.h"
#include "math.h"
#include "relational.h"
#include "integer.h"
#include "geometric.h"
#include "matrix.h"
#include "pack.h"
#include "logging.h"
#include "utility.h"
#ifdef __OST_VECTOR
#include "dot_vector.h"
#endif
#include "dot.h"
#include "waiting.h"
#include "atomic_types.h"
#include "atomic_cpu.h"
#include "atomic.h"
#include "exec_cpu.h"
#include "exec.h"
#include "simd_operations.h"
#ifdef __OST_VECTOR
#include "simd_vector.h"
#else
#include "simd_cpu.h"
#endif
#include "simd.h"
#include "simdgroup_tile.h"
#ifdef __OST_VECTOR
#include "simdgroup_matrix_vector.h"
#else
#include "simdgroup_matrix_cpu.h"
#endif
#include "simdgroup_matrix.h"
#include "internals.h"
#ifdef __OST_CHECKED
#include "unaligned.h"
#endif
