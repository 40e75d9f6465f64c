// Which commands must wait for which: the hazard engine of ir/hazards.py, compiled.
//
// Memory is cut into disjoint half-open segments, kept sorted; each knows its last writer and its readers since then.
// A read depends on the writer of every segment it touches; a write on the readers since the last write, or on the
// writer where there were none. Segments are split where an access begins or ends inside one, so adjacent ranges do not
// conflict. A fence (a barrier, or a command whose accesses are unknown) depends on everything before it, and
// everything after depends on it.
//
// An edge that is implied through one other predecessor is left out.
#ifndef OSTINATO_HAZARDS_H
#define OSTINATO_HAZARDS_H

#include <stdint.h>

namespace [[gnu::visibility("hidden")]] __ost {

// Addresses [begin, end); a write has the top bit of `begin` set, as in a record.
struct Access {
  uint64_t begin_and_write, end;

  bool write() const { return begin_and_write >> 63; }
  uint64_t begin() const { return begin_and_write & ~(uint64_t(1) << 63); }
};

struct Hazards;

Hazards *make_hazards(uint32_t nodes);
void free_hazards(Hazards *);

// Nodes come in ascending order. False when memory is short.
bool add_node(Hazards *, uint32_t node, const Access *, uint32_t count);
bool add_fence(Hazards *, uint32_t node);

struct Edges {
  const uint32_t *pairs;  // before, after
  uint64_t count;
  uint32_t ranges;  // segments tracked at the end
};
Edges edges_of(const Hazards *);

// An order in numbers, for a device that has barriers rather than edges. It runs a group of nodes concurrently until
// one depends on another of the same group.
struct Inferred {
  uint32_t barriers;    // nodes that need a barrier before them on such a device
  uint32_t concurrent;  // nodes that need no barrier
  uint32_t ranges;      // tracked at the end of the list
};

template <class IsBarrier> Inferred inferred_of(const Edges &edges, uint32_t nodes, IsBarrier is_barrier) {
  Inferred inferred = {0, 0, edges.ranges};
  uint32_t first = 0;  // of the group
  uint64_t edge = 0;
  for (uint32_t i = 0; i < nodes; ++i) {
    bool waits = false;
    for (; edge < edges.count && edges.pairs[2 * edge + 1] == i; ++edge) waits |= edges.pairs[2 * edge] >= first;
    if (is_barrier(i)) {
      first = i + 1;
    } else if (waits) {
      ++inferred.barriers;
      first = i;
    } else {
      ++inferred.concurrent;
    }
  }
  return inferred;
}

}  // namespace __ost

#endif
