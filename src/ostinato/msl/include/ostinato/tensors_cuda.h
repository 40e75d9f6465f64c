// Metal 4 tensors on CUDA, for sources that use them; included after metal_cuda.h.
#pragma once

namespace __ost_program {

namespace __ost {

// Where the lanes of an operation meet: all lanes of its scope take part in it, and a scope has whole simdgroups.
OST_FN constexpr Site scope_site() { return Site{all_lanes}; }

}  // namespace __ost

#define OST_PRODUCT_FN OST_FN
// Loops over the elements that a thread holds, which are in registers, and over the products of a sum.
#define OST_EACH_ELEMENT _Pragma("unroll")
#define OST_EACH_PRODUCT _Pragma("unroll 4")
// Four neighbours of a row are stored at once where the whole matrix is.
#define OST_WIDE_STORES

#include "tensor.h"
#include "cooperative_tensor.h"
#include "wgmma_cuda.h"
#include "products_cuda.h"
#include "tensor_ops.h"

}  // namespace __ost_program
