// Order between threads by fences: what a thread did before a release fence comes before what another does after an
// acquire fence, if an atomic read between reads what an atomic write after the release wrote.
//
// A release covers what its thread did, and what its group did before the last barrier that the thread passed. An
// acquire covers what its thread does, and what its group does after the next barrier. Groups run one after another, so
// what has been acquired is kept for one group at a time.
#ifndef OSTINATO_FENCES_H
#define OSTINATO_FENCES_H

#include "checks.h"
#include "releases.h"

namespace [[gnu::visibility("hidden")]] __ost {

// Barriers that a thread passed, whose flags cover device [0] and threadgroup memory [1].
struct Passed { uint32_t group[2], simdgroup[2]; };

struct Who {
  uint64_t group;
  uint32_t lane, barriers;  // barriers: of the group, that cover the memory
};

// An acquire's flags for memory, and a bit that says whether other groups are in its scope.
constexpr uint32_t wide_acquire = 4, acquire_kinds = 8;

struct LaneFences {
  const Releases *released;  // by fences of the thread, with what it had acquired before them
  const Releases *seen;      // read, not acquired yet
  const Releases *acquired[acquire_kinds];
};

struct Lanes { uint64_t bits[max_lanes / 64]; };

struct GroupFences {  // what all threads of the group may rely on in one kind of memory
  const Releases *acquired[acquire_kinds];
  uint32_t barriers;  // that it is up to date with
  Lanes unshared;     // threads that have acquired since
};

struct Flag {  // an atomic variable, and what its value releases
  uintptr_t address;
  const Releases *releases;
};

struct Fences {
  bool has_acquired;  // whether a thread of the group has
  LaneFences lanes[max_lanes];
  Lanes used;            // threads that have a set
  GroupFences group[2];  // for device [0] and threadgroup memory [1]
  Flag *flags;           // a hash table
  uint32_t n_flags, flag_room;
};

void fence(Fences *, const Passed *, Who, uint32_t flags, uint32_t order, bool wide);
// An atomic access; one that replaces does not read.
void touch_flag(Fences *, uintptr_t address, Who, bool writes, bool replaces);
// Whether fences order an access before another.
bool fenced(Fences *, Fenced memory, Who before, Who now);

void forget_group(Fences *);
void forget_flags(Fences *);
void drop_fences(Fences *);

}  // namespace __ost

#endif
