// The hazard engine as a library of its own: the order of a list, from the accesses of its commands.
#include "hazards.h"

#include <stdlib.h>
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

struct Pair { uint32_t before, after; };

int compare(const void *one, const void *other) {
  const uint32_t a = static_cast<const Pair *>(one)->before, b = static_cast<const Pair *>(other)->before;
  return (a > b) - (a < b);
}

// Sorts the edges, which come by ascending `after`, by `before` too.
void sort(Pair *pairs, uint64_t count) {
  for (uint64_t first = 0, end; first < count; first = end) {
    bool sorted = true;
    for (end = first + 1; end < count && pairs[end].after == pairs[first].after; ++end)
      sorted &= pairs[end - 1].before < pairs[end].before;
    if (!sorted) qsort(pairs + first, end - first, sizeof(Pair), compare);
  }
}

}  // namespace

// Writes the edges as pairs (before, after), sorted by `after`, then `before`, and returns their number, even when it exceeds the capacity; UINT64_MAX
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
    if (count && count <= capacity) {
      memcpy(pairs, edges.pairs, count * sizeof(Pair));
      sort(reinterpret_cast<Pair *>(pairs), count);
    }
  }
  free_hazards(hazards);
  return count;
}
