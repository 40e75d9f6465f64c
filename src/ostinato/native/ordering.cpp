// The hazard engine as a library of its own: the order of a list, from the accesses of its commands.
#include "hazards.h"

#include <string.h>

using namespace __ost;

namespace {

// Special values of the number of accesses.
constexpr uint32_t fence = UINT32_MAX, barrier = UINT32_MAX - 1;

bool add(Hazards *hazards, const Access *accesses, const uint32_t *counts, uint32_t nodes) {
  for (uint32_t i = 0; i < nodes; ++i) {
    const bool is_fence = counts[i] >= barrier;
    if (!(is_fence ? add_fence(hazards, i) : add_node(hazards, i, accesses, counts[i]))) return false;
    if (!is_fence) accesses += counts[i];
  }
  return true;
}

}  // namespace

// Writes the edges as pairs (before, after) and returns their number, even when it exceeds the capacity; UINT64_MAX
// when memory is short.
extern "C" __attribute__((visibility("default"))) uint64_t ost_order(const Access *accesses, const uint32_t *counts,
                                                                     uint32_t nodes, uint32_t *pairs, uint64_t capacity,
                                                                     Inferred *inferred) {
  Hazards *hazards = make_hazards(nodes);
  if (!hazards) return UINT64_MAX;
  uint64_t count = UINT64_MAX;
  if (add(hazards, accesses, counts, nodes)) {
    const Edges edges = edges_of(hazards);
    count = edges.count;
    *inferred = inferred_of(edges, nodes, [&](uint32_t i) { return counts[i] == barrier; });
    if (count && count <= capacity) memcpy(pairs, edges.pairs, count * 2 * sizeof(uint32_t));
  }
  free_hazards(hazards);
  return count;
}
