// The segments are in one sorted array, with binary search and memmove: lists use the same ranges again and again, so
// nearly every look-up is exact and insertions are rare.
#include "hazards.h"

#include <stdlib.h>
#include <string.h>

namespace __ost {
namespace {

constexpr uint32_t none = UINT32_MAX;

template <class T> struct Array {
  T *items;
  uint64_t count, capacity;

  bool reserve(uint64_t wanted) {
    if (wanted <= capacity) return true;
    uint64_t larger = capacity ? capacity * 2 : 64;
    if (larger < wanted) larger = wanted;
    T *moved = static_cast<T *>(realloc(items, larger * sizeof(T)));
    if (!moved) return false;
    items = moved;
    capacity = larger;
    return true;
  }
  bool push(const T &item) {
    if (!reserve(count + 1)) return false;
    items[count++] = item;
    return true;
  }
  bool insert(uint64_t at, const T &item) {
    if (!reserve(count + 1)) return false;
    memmove(items + at + 1, items + at, (count - at) * sizeof(T));
    items[at] = item;
    ++count;
    return true;
  }
};

struct Segment {
  uint64_t begin, end;
  uint32_t writer;
  uint32_t readers;  // first of a list in Hazards::readers, or none
};

struct Reader { uint32_t node, next; };

}  // namespace

struct Hazards {
  Array<Segment> segments;
  Array<Reader> readers;
  Array<uint32_t> pairs;
  Array<uint32_t> found;  // predecessors of the node being added, before pruning
  uint64_t *first_pair;   // per node, into pairs; one more at the end
  uint32_t *mark;         // node + 1 that last found, or last implied, this predecessor
  uint32_t *implied;
  bool *has_successor;
  uint32_t nodes, fence, first_since_fence;
};

Hazards *make_hazards(uint32_t nodes) {
  Hazards *h = static_cast<Hazards *>(calloc(1, sizeof(Hazards)));
  if (!h) return nullptr;
  h->nodes = nodes;
  h->fence = none;
  h->first_pair = static_cast<uint64_t *>(calloc(uint64_t(nodes) + 1, sizeof(uint64_t)));
  h->mark = static_cast<uint32_t *>(calloc(uint64_t(nodes) + 1, sizeof(uint32_t)));
  h->implied = static_cast<uint32_t *>(calloc(uint64_t(nodes) + 1, sizeof(uint32_t)));
  h->has_successor = static_cast<bool *>(calloc(uint64_t(nodes) + 1, sizeof(bool)));
  if (h->first_pair && h->mark && h->implied && h->has_successor) return h;
  free_hazards(h);
  return nullptr;
}

void free_hazards(Hazards *h) {
  if (!h) return;
  free(h->segments.items);
  free(h->readers.items);
  free(h->pairs.items);
  free(h->found.items);
  free(h->first_pair);
  free(h->mark);
  free(h->implied);
  free(h->has_successor);
  free(h);
}

namespace {

// The first segment that ends after `address`. Most lists use few ranges, so short arrays are searched linearly.
uint64_t search(const Hazards *h, uint64_t address) {
  uint64_t low = 0, high = h->segments.count;
  if (high <= 8) {
    while (low < high && h->segments.items[low].end <= address) ++low;
    return low;
  }
  while (low < high) {
    const uint64_t middle = (low + high) / 2;
    if (h->segments.items[middle].end <= address) low = middle + 1;
    else high = middle;
  }
  return low;
}

bool copy_readers(Hazards *h, uint32_t from, uint32_t *to) {
  *to = none;
  uint32_t last = none;
  for (uint32_t at = from; at != none; at = h->readers.items[at].next) {
    const Reader reader = {h->readers.items[at].node, none};
    if (!h->readers.push(reader)) return false;
    const uint32_t fresh = uint32_t(h->readers.count - 1);
    if (last == none) *to = fresh;
    else h->readers.items[last].next = fresh;
    last = fresh;
  }
  return true;
}

// Makes `address` a boundary.
bool cut(Hazards *h, uint64_t address) {
  const uint64_t at = search(h, address);
  if (at == h->segments.count || h->segments.items[at].begin >= address) return true;
  Segment right = h->segments.items[at];
  right.begin = address;
  if (!copy_readers(h, right.readers, &right.readers)) return false;
  h->segments.items[at].end = address;
  return h->segments.insert(at + 1, right);
}

// Splits and adds segments so that whole segments make up [begin, end).
bool cover(Hazards *h, uint64_t begin, uint64_t end) {
  uint64_t at = search(h, begin);
  if (at < h->segments.count && h->segments.items[at].begin == begin && h->segments.items[at].end == end) return true;
  if (!cut(h, begin) || !cut(h, end)) return false;
  at = search(h, begin);
  while (begin < end) {
    const bool gap = at == h->segments.count || h->segments.items[at].begin > begin;
    if (gap) {
      const uint64_t next = at == h->segments.count ? end : h->segments.items[at].begin;
      const Segment fresh = {begin, next < end ? next : end, none, none};
      if (!h->segments.insert(at, fresh)) return false;
    }
    begin = h->segments.items[at++].end;
  }
  return true;
}

bool find(Hazards *h, uint32_t node, uint32_t predecessor) {
  if (predecessor == none || predecessor == node || h->mark[predecessor] == node + 1) return true;
  h->mark[predecessor] = node + 1;
  return h->found.push(predecessor);
}

bool keep(Hazards *h, uint32_t node) {
  for (uint64_t i = 0; i < h->found.count; ++i) {
    const uint32_t one = h->found.items[i];
    for (uint64_t p = h->first_pair[one]; p < h->first_pair[one + 1]; p += 2) h->implied[h->pairs.items[p]] = node + 1;
  }
  h->first_pair[node] = h->pairs.count;
  for (uint64_t i = 0; i < h->found.count; ++i) {
    const uint32_t one = h->found.items[i];
    if (h->implied[one] == node + 1) continue;
    h->has_successor[one] = true;
    if (!h->pairs.push(one) || !h->pairs.push(node)) return false;
  }
  h->first_pair[node + 1] = h->pairs.count;
  return true;
}

}  // namespace

namespace {

bool look_at(Hazards *h, uint32_t node, const Segment &segment, bool write) {
  if (!write || segment.readers == none) {
    if (!find(h, node, segment.writer)) return false;
  }
  if (write)
    for (uint32_t r = segment.readers; r != none; r = h->readers.items[r].next)
      if (!find(h, node, h->readers.items[r].node)) return false;
  return true;
}

bool mark_use(Hazards *h, uint32_t node, Segment *segment, bool write) {
  if (write) {
    segment->writer = node;
    segment->readers = none;
  } else if (segment->writer != node &&
             !(segment->readers != none && h->readers.items[segment->readers].node == node)) {
    const Reader reader = {node, segment->readers};
    if (!h->readers.push(reader)) return false;
    segment->readers = uint32_t(h->readers.count - 1);
  }
  return true;
}

// Calls use(segment) for each segment of [begin, end), which whole segments make up; false when a call returns false.
template <class Use> bool each_segment(Hazards *h, uint64_t begin, uint64_t end, Use use) {
  if (begin >= end) return true;
  for (uint64_t at = search(h, begin); at < h->segments.count && h->segments.items[at].begin < end; ++at)
    if (!use(&h->segments.items[at])) return false;
  return true;
}

}  // namespace

bool add_node(Hazards *h, uint32_t node, const Access *accesses, uint32_t count) {
  h->found.count = 0;
  // All cuts first: a later cut would split a segment that was already visited.
  for (uint32_t i = 0; i < count; ++i)
    if (accesses[i].begin() < accesses[i].end && !cover(h, accesses[i].begin(), accesses[i].end)) return false;
  for (uint32_t i = 0; i < count; ++i) {
    const bool write = accesses[i].write();
    if (!each_segment(h, accesses[i].begin(), accesses[i].end,
                      [&](Segment *segment) { return look_at(h, node, *segment, write); }))
      return false;
  }
  // A node does not wait for itself, so it is entered only after all segments were visited, reads after writes.
  for (int writes = 1; writes >= 0; --writes)
    for (uint32_t i = 0; i < count; ++i)
      if (int(accesses[i].write()) == writes &&
          !each_segment(h, accesses[i].begin(), accesses[i].end,
                        [&](Segment *segment) { return mark_use(h, node, segment, writes); }))
        return false;
  if (!h->found.count && h->fence != none && !find(h, node, h->fence)) return false;
  return keep(h, node);
}

bool add_fence(Hazards *h, uint32_t node) {
  h->found.count = 0;
  for (uint32_t other = h->first_since_fence; other < node; ++other)
    if (!h->has_successor[other] && !find(h, node, other)) return false;
  if (!h->found.count && h->fence != none && !find(h, node, h->fence)) return false;
  h->segments.count = h->readers.count = 0;
  h->fence = node;
  h->first_since_fence = node + 1;
  return keep(h, node);
}

Edges edges_of(const Hazards *h) { return {h->pairs.items, h->pairs.count / 2, uint32_t(h->segments.count)}; }

}  // namespace __ost
