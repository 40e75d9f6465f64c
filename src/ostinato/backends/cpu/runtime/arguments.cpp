// Regions of arguments, and their places.
#include "arguments.h"

#include <string.h>
#include <sys/mman.h>

#include "history.h"
#include "regions.h"

namespace __ost {
namespace {

// An overrun by more than this may land in another argument.
constexpr uintptr_t apart_bytes = 1 << 20;
constexpr uintptr_t page_bytes = 4096;  // places keep the alignment up to this

uint64_t bytes_of(const Region &region) { return region.end - region.begin; }

void add_argument(Shadow *shadow, uintptr_t begin, uint64_t bytes, bool writable) {
  uintptr_t end = begin + bytes;
  for (uint32_t k = 1; k < shadow->n_regions;) {  // overlapping arguments are one region
    const Region &other = shadow->regions[k];
    if (end <= other.begin || other.end <= begin) {
      ++k;
      continue;
    }
    if (other.begin < begin) begin = other.begin;
    if (other.end > end) end = other.end;
    writable |= other.writable;
    shadow->regions[k] = shadow->regions[--shadow->n_regions];
    k = 1;
  }
  if (shadow->n_regions == max_regions) __builtin_trap();
  Region &region = shadow->regions[shadow->n_regions++];
  memset(static_cast<void *>(&region), 0, sizeof region);
  region.begin = region.home = begin;
  region.end = end;
  region.shift = largest_shift;
  region.space = device_space;
  region.writable = writable;
}

// Marks all but the largest of regions that are near each other; returns the address space that their places take.
uint64_t choose_moved(const Shadow *shadow, bool *moved) {
  uint32_t order[max_regions];
  const uint32_t count = shadow->n_regions - 1;
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t at = i;
    for (; at && shadow->regions[order[at - 1]].begin > shadow->regions[i + 1].begin; --at) order[at] = order[at - 1];
    order[at] = i + 1;
  }
  uint64_t total = 0;
  for (uint32_t i = 1, kept = count ? order[0] : 0; i < count; ++i) {
    const uint32_t next = order[i];
    if (shadow->regions[next].begin - shadow->regions[kept].end >= apart_bytes) {
      kept = next;
      continue;
    }
    const bool larger = bytes_of(shadow->regions[next]) > bytes_of(shadow->regions[kept]);
    const uint32_t mover = larger ? kept : next;
    moved[mover] = true;
    total += bytes_of(shadow->regions[mover]) + 2 * page_bytes + apart_bytes;
    if (larger) kept = next;
  }
  return total;
}

// Has the arguments of the dispatch point into their regions, which lie `from` one place and are used `to` another.
void redirect(const Shadow *shadow, uintptr_t Region::*from, uintptr_t Region::*to) {
  const Node *node = shadow->node;
  void **args = const_cast<void **>(node->dispatch.args);
  for (uint32_t i = 0; i < node->n_args; ++i) {
    if (!view_bytes(node, i)) continue;
    for (uint32_t k = 1; k < shadow->n_regions; ++k) {
      const Region &region = shadow->regions[k];
      const uintptr_t offset = uintptr_t(args[i]) - region.*from;
      if (offset >= bytes_of(region)) continue;
      args[i] = reinterpret_cast<void *>(region.*to + offset);
      break;
    }
  }
}

void move_apart(Shadow *shadow) {
  bool moved[max_regions] = {};
  const uint64_t total = choose_moved(shadow, moved);
  if (!total) return;
  const size_t bytes = total + apart_bytes;
  void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return;  // an overrun of one into another is not found then
  shadow->places = memory;
  shadow->place_bytes = bytes;
  uintptr_t at = uintptr_t(memory) + apart_bytes;
  for (uint32_t i = 1; i < shadow->n_regions; ++i) {
    if (!moved[i]) continue;
    Region &region = shadow->regions[i];
    const uint64_t size = bytes_of(region);
    region.begin = (at + page_bytes - 1) / page_bytes * page_bytes + region.home % page_bytes;
    region.end = region.begin + size;
    memcpy(reinterpret_cast<void *>(region.begin), reinterpret_cast<const void *>(region.home), size);
    at = region.end + apart_bytes;
  }
  redirect(shadow, &Region::home, &Region::begin);
}

}  // namespace

void place_arguments(Shadow *shadow, const Node *node) {
  shadow->node = node;
  for (uint32_t i = 0; i < node->n_args; ++i) {
    const uint64_t bytes = view_bytes(node, i);
    if (bytes) add_argument(shadow, uintptr_t(node->dispatch.args[i]), bytes, node->views[i] & view_written);
  }
  move_apart(shadow);
  const bool bounds_only = shadow->checks & check_bounds;
  for (uint32_t i = 1; i < shadow->n_regions; ++i) {
    Region &region = shadow->regions[i];
    region.base = region.begin & ~uintptr_t(3);
    if (bounds_only) continue;
    region.state = state_at(shadow, region.home, bytes_of(region));
    if (region.writable && !make_cells(&region)) __builtin_trap();
  }
}

void return_arguments(Shadow *shadow) {
  if (!shadow->node) return;
  redirect(shadow, &Region::begin, &Region::home);
  for (uint32_t i = 1; i < shadow->n_regions; ++i) {
    Region &region = shadow->regions[i];
    if (region.writable && region.begin != region.home)
      memcpy(reinterpret_cast<void *>(region.home), reinterpret_cast<const void *>(region.begin), bytes_of(region));
    drop_cells(&region);
  }
  if (shadow->places) munmap(shadow->places, shadow->place_bytes);
  shadow->places = nullptr;
  shadow->node = nullptr;
  shadow->n_regions = 1;
}

Overrun nearest_argument(const Shadow *shadow, uintptr_t address, uint64_t bytes) {
  Overrun nearest = {0, address};
  int64_t least = INT64_MAX;
  const Node *node = shadow->node;
  for (uint32_t i = 0; i < node->n_args; ++i) {
    const uintptr_t begin = uintptr_t(node->dispatch.args[i]), size = view_bytes(node, i);
    const int64_t before = int64_t(begin - address), past = int64_t(address + bytes - begin - size);
    const int64_t gap = before > past ? before : past;
    // A value is meant only where it is near: an index that goes far is one of a buffer.
    if (!begin || gap >= least || (node->views[i] & view_value && uint64_t(gap) >= apart_bytes)) continue;
    least = gap;
    nearest = {i + 1, address};
    for (uint32_t k = 1; k < shadow->n_regions; ++k)
      if (begin - shadow->regions[k].begin < bytes_of(shadow->regions[k]))
        nearest.address = at_home(shadow->regions[k], address);
  }
  return nearest;
}

}  // namespace __ost
