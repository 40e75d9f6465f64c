// Sets of releases: for each thread, how many barriers of its group it had passed when it last released what came before.
//
// A set is never changed: a union shares what it can with the sets that it was made of. So where each group of a chain
// knows the releases of all groups before it, one more group takes time and memory that grow only with the logarithm of
// their number. A set is a binary tree over the threads of a dispatch (Okasaki and Gill, "Fast mergeable integer maps",
// 1998), whose nodes count their owners. NULL is the empty set.
#ifndef OSTINATO_RELEASES_H
#define OSTINATO_RELEASES_H

#include "abi.h"

namespace [[gnu::visibility("hidden")]] __ost {

// What a release makes visible, and to whom.
enum Reach : uint32_t { device_to_all, device_to_group, threadgroup_to_group, reaches };

struct Releases {
  uint64_t range;  // of threads: its middle, whose lowest bit is half of its length
  mutable uint32_t owners;
  uint32_t counts[reaches];    // barriers passed before the release, plus 1; 0: none. The most of the range
  const Releases *low, *high;  // the halves; NULL in a leaf, which is one thread
};

// The release of one thread. The caller owns it.
const Releases *release_of(uint64_t group, uint32_t lane, const uint32_t counts[reaches]);
// Adds another set to one that the caller owns.
void join(const Releases **, const Releases *more);
void clear(const Releases **);

// Whether a release covers what a thread did after so many barriers: a later one of the same thread, or one of another
// thread of its group that has passed more barriers.
bool covers(const Releases *, Reach, uint64_t group, uint32_t lane, uint32_t barriers);

}  // namespace __ost

#endif
