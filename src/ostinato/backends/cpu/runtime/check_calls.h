// The calls of hooks, by what a device looks for.
#ifndef OSTINATO_CHECK_CALLS_H
#define OSTINATO_CHECK_CALLS_H

#include "findings.h"

namespace [[gnu::visibility("hidden")]] __ost {

const CheckCalls *calls_for(uint32_t checks);

// The thread that came first to the barrier at which others of its group wait or do not.
Touch first_at_barrier(const Worker *);

}  // namespace __ost

#endif
