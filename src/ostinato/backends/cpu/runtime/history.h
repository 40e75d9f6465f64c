// The history of each cell of memory: what the calls of hooks, and the ends of groups and dispatches, add to it.
#ifndef OSTINATO_HISTORY_H
#define OSTINATO_HISTORY_H

#include "shadow_parts.h"

namespace [[gnu::visibility("hidden")]] __ost {

// An access by the running thread: bounds, writes before it, and what it does to the history.
void check_access(Worker *, const void *address, uint64_t bytes, uint32_t how, const void *site);
// One of local memory.
void look_at_local(Worker *, const KernelAccess &);

// The running thread goes through a barrier of its group, or of its simdgroup, that covers this memory.
void count_barrier(Worker *, uint32_t fenced, bool simdgroup);
// All threads of a group are before its first barrier.
void begin_counts(Worker *);

// Writes of two threads that may be equal, once the second has happened.
void compare_deferred(Worker *);
inline void settle(Worker *w) {
  if (__builtin_expect(w->shadow->has_deferred, 0)) compare_deferred(w);
}

// False when memory is short.
bool make_cells(Region *);
void drop_cells(Region *);
// The cell of a byte, also a small one.
void load(const Shadow *, const Region &, uint64_t offset, Slot *cell);
// Shows hooks the cells of threadgroup memory.
void show_arena(Shadow *);
// A variable as it is when a group begins.
void forget(const Shadow *, const Variable &);

}  // namespace __ost

#endif
