// Fences on the CPU; barriers are in fiber.h. Threads of a group are fibers of one worker, so a barrier only
// has to make them meet; the memory flags have no further effect.
#pragma once

namespace __ost {

OST_FN void fence(metal::thread_scope) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

}  // namespace __ost
