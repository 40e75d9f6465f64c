// Metal 4 tensors on the CPU, for sources that use them; included after metal_cpu.h.
#pragma once

namespace __ost {

// The thread's place in its threadgroup.
#ifdef __OST_VECTOR
OST_FN uint32_t group_thread() { return (worker()->lane - max_lanes) * simd_width + lane_id(); }
#else
OST_FN uint32_t group_thread() { return worker()->lane; }
#endif
// Where the lanes of an operation meet: all lanes of its scope take part in it.
OST_FN Site scope_site() { return unnamed_site(); }

}  // namespace __ost

#include "tensor.h"
#include "cooperative_tensor.h"
#include "tensor_ops.h"
