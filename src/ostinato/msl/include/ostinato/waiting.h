// <ostinato>: where a kernel waits for the dispatches that it depends on. Kernels for CUDA have the call rewritten; everywhere
// else a dispatch starts when all of them are done.
#pragma once

namespace ostinato {

template <class... T> OST_FN void wait_for_all_but(const T &...) {}

}  // namespace ostinato
