// Unions of sets of releases, and who owns their nodes.
#include "releases.h"

#include <stdlib.h>
#include <string.h>

namespace __ost {
namespace {

constexpr uint64_t group_length = 2 * max_lanes;  // of the range of a group

uint64_t range_of(uint64_t group, uint32_t lane) { return 2 * (group * max_lanes + lane) + 1; }
uint64_t half_of(uint64_t range) { return range & -range; }

const Releases *keep(const Releases *set) {
  if (set) ++set->owners;
  return set;
}

void drop(const Releases *set) {
  while (set && !--set->owners) {
    const Releases *high = set->high;
    drop(set->low);
    free(const_cast<Releases *>(set));
    set = high;
  }
}

const Releases *make(const Releases &node) {
  void *memory = malloc(sizeof node);
  if (!memory) __builtin_trap();
  return static_cast<const Releases *>(memcpy(memory, &node, sizeof node));
}

bool same(const Releases &a, const Releases &b) {
  return a.range == b.range && a.low == b.low && a.high == b.high && !memcmp(a.counts, b.counts, sizeof a.counts);
}

const Releases *joined(const Releases *a, const Releases *b) {
  if (!b || a == b) return keep(a);
  if (!a) return keep(b);
  if (half_of(a->range) < half_of(b->range)) {
    const Releases *longer = b;
    b = a, a = longer;
  }
  const bool b_is_lower = b->range < a->range;
  const uint64_t differ = a->range ^ b->range;
  Releases both = {a->range, 1, {}, nullptr, nullptr};
  for (uint32_t i = 0; i < reaches; ++i) both.counts[i] = a->counts[i] > b->counts[i] ? a->counts[i] : b->counts[i];
  if (!differ) {
    both.low = joined(a->low, b->low);
    both.high = joined(a->high, b->high);
  } else if (differ < 2 * half_of(a->range)) {  // b lies within a half of a
    both.low = b_is_lower ? joined(a->low, b) : keep(a->low);
    both.high = b_is_lower ? keep(a->high) : joined(a->high, b);
  } else {
    const uint64_t half = uint64_t(1) << (63 - __builtin_clzll(differ));
    both.range = (a->range & -half) | half;
    both.low = keep(b_is_lower ? b : a);
    both.high = keep(b_is_lower ? a : b);
  }
  const Releases *known = same(both, *a) ? a : same(both, *b) ? b : nullptr;
  if (!known) return make(both);
  drop(both.low);
  drop(both.high);
  return keep(known);
}

}  // namespace

const Releases *release_of(uint64_t group, uint32_t lane, const uint32_t counts[reaches]) {
  Releases leaf = {range_of(group, lane), 1, {}, nullptr, nullptr};
  memcpy(leaf.counts, counts, sizeof leaf.counts);
  return make(leaf);
}

void join(const Releases **set, const Releases *more) {
  const Releases *before = *set;
  *set = joined(before, more);
  drop(before);
}

void clear(const Releases **set) {
  drop(*set);
  *set = nullptr;
}

bool covers(const Releases *set, Reach reach, uint64_t group, uint32_t lane, uint32_t barriers) {
  const uint64_t thread = range_of(group, lane);
  while (set) {
    const uint64_t differ = set->range ^ thread, length = 2 * half_of(set->range);
    const bool is_in_group = differ < group_length && length <= group_length;
    if (is_in_group && set->counts[reach] > barriers + 1) return true;
    if (!differ) return set->counts[reach] > barriers;
    if (differ >= length) return false;
    set = thread < set->range ? set->low : set->high;
  }
  return false;
}

}  // namespace __ost
