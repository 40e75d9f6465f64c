// The memory a worker runs kernels in: its Worker with all lane stacks, and its threadgroup memory.
#ifndef OSTINATO_WORKER_H
#define OSTINATO_WORKER_H

#include "abi.h"

namespace [[gnu::visibility("hidden")]] __ost {

// NULL when the address space or memory for it cannot be had.
Worker *open_worker(uint64_t arena_bytes, uint32_t checks);
void close_worker(Worker *);

// Forgets every suspended lane. A fault leaves a group half run; its stacks are abandoned, not unwound.
void reset_worker(Worker *);

}  // namespace __ost

#endif
