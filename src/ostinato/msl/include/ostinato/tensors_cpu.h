// Metal 4 tensors on the CPU, for sources that use them; included after metal_cpu.h.
#pragma once

namespace __ost {

// The thread's place in its threadgroup.
#ifdef __OST_VECTOR
#define OST_PRODUCT_FN OST_FN
OST_FN uint32_t group_thread() { return (worker()->lane - max_lanes) * simd_width + lane_id(); }
#else
// On fibers a product in registers is much code that gains nothing where it is called.
#define OST_PRODUCT_FN __attribute__((noinline))
OST_FN uint32_t group_thread() { return worker()->lane; }
#endif
// Where the lanes of an operation meet: all lanes of its scope take part in it.
OST_FN Site scope_site() { return unnamed_site(); }
// Which products of matrices in memory are left to the hardware: none.
template <class Layout, class L, class R, bool Deep> struct tensor_cores { static constexpr bool take = false; };

}  // namespace __ost

// Loops over the elements that a thread holds and over the products of a sum: unrolled they would be too much code.
#if defined(__clang__)
#define OST_EACH_ELEMENT _Pragma("clang loop unroll(disable)")
#else
#define OST_EACH_ELEMENT _Pragma("GCC unroll 1")
#endif
#define OST_EACH_PRODUCT OST_EACH_ELEMENT

#include "tensor.h"
#include "cooperative_tensor.h"
#include "tensor_ops.h"
