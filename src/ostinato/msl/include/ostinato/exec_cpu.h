// Fences and the log on the CPU; barriers are in fiber.h. Threads of a group are fibers of one worker, so a barrier only
// has to make them meet; the memory flags have no further effect.
#pragma once

namespace __ost {

OST_FN void fence(metal::thread_scope) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

#ifndef __OST_VECTOR
// Kernels that print run each thread as a fiber.
OST_LOG_FN LogRecord *log_record(uint32_t bytes) {
  Worker *const w = worker();
  LogRecord *const record = static_cast<LogRecord *>(w->log_room(w, bytes));
  if (!record) return nullptr;
  const uint32_t *const groups = w->dispatch->groups;
  *record = {bytes, w->node, 0, w->lane, (uint64_t(w->group[2]) * groups[1] + w->group[1]) * groups[0] + w->group[0]};
  return record;
}
#endif

}  // namespace __ost
