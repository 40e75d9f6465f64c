// Order between threads by fences: what a thread did before a release fence comes before what another does after an
// acquire fence, if an atomic read between reads what an atomic write after the release wrote.
//
// A release covers what its thread did, and what its group did before the last barrier that the thread passed. An
// acquire covers what its thread does, and what its group does after the next barrier. Groups run one after another, so
// what has been acquired is kept for one group at a time.
#ifndef OSTINATO_FENCES_H
#define OSTINATO_FENCES_H

#include "checks.h"

namespace [[gnu::visibility("hidden")]] __ost {

// Barriers that a thread passed, whose flags cover device [0] and threadgroup memory [1].
struct Passed { uint32_t group[2], simdgroup[2]; };

struct Who { uint32_t group, lane, epoch; };

struct Released {
  uint32_t group, lane, epoch[2], flags;
  bool wide;  // also for other groups
};

struct ReleasedList {
  Released *at;
  uint32_t count, room;
};

struct Acquired {
  Released released;
  uint32_t lane, epoch[2], flags;
  bool wide;
};

struct Flag {  // an atomic variable, and what its value releases
  uintptr_t address;
  ReleasedList list;
};

struct Fences {
  Acquired *acquired;
  uint32_t n_acquired, acquired_room;
  ReleasedList released[max_lanes];  // by fences of each thread of the group
  ReleasedList seen[max_lanes];      // what each read, not acquired yet
  uint64_t used[max_lanes / 64];     // threads that have a list
  Flag *flags;                       // a hash table
  uint32_t n_flags, flag_room;
};

void fence(Fences *, const Passed *, Who, uint32_t flags, uint32_t order, bool wide);
// An atomic access; one that replaces does not read.
void touch_flag(Fences *, uintptr_t address, Who, bool writes, bool replaces);
// Whether fences order an access before another.
bool fenced(const Fences *, Fenced memory, Who before, Who now);

void forget_group(Fences *);
void forget_flags(Fences *);
void drop_fences(Fences *);

}  // namespace __ost

#endif
