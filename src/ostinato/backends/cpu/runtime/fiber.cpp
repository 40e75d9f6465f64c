// Lane stacks and the slow half of the lane scheduler: what happens when no lane of a simdgroup can run on.
//
// A worker's region starts with its Worker; the stacks follow, one stride apart, with a guard page at each low end.
#include "worker.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

#include <stdio.h>
#include <string.h>

#include "fiber.h"
#include "log.h"
#include "shadow.h"

#if !defined(MAP_NORESERVE)
#define MAP_NORESERVE 0
#endif

namespace __ost {
namespace {

struct Region {
  Worker worker;
  size_t page_bytes;
  void *arena_mapping;
  size_t arena_mapping_bytes;
  uint32_t prepared;             // lanes whose stacks have been set up
  uint32_t prepared_simdgroups;  // the same for simdgroups that run as one fiber
  int64_t guard_mappings;        // taken from spare_mappings
  unsigned char *stacks;
};

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

Region *region_of(Worker *w) { return reinterpret_cast<Region *>(w); }

// Where the kernel cannot mark guard pages inside a mapping, each one costs two mappings of the number a process
// may have. Half of them are left to the rest of the process; lanes beyond go without a guard.
std::atomic<int64_t> &spare_mappings() {
  static std::atomic<int64_t> spare{[] {
    long long limit = 65530;
#if defined(__linux__)
    if (FILE *file = fopen("/proc/sys/vm/max_map_count", "re")) {
      if (fscanf(file, "%lld", &limit) != 1) limit = 65530;
      fclose(file);
    }
#endif
    return int64_t(limit / 2);
  }()};
  return spare;
}

// Where the stack of a fiber begins, at its low end, and where it ends.
unsigned char *stack_of(Region *region, uint32_t fiber) {
  if (fiber <= max_lanes) return region->stacks + fiber * stack_stride;
  return region->stacks + max_lanes * stack_stride + (fiber - max_lanes) * simdgroup_stack_stride;
}

void guard(Region *region, uint32_t fiber) {
  void *page = reinterpret_cast<void *>(round_up(uintptr_t(stack_of(region, fiber)), region->page_bytes));
#if defined(__linux__)
  constexpr int guard_install = 102;  // MADV_GUARD_INSTALL, newer than many system headers
  if (madvise(page, region->page_bytes, guard_install) == 0) return;
#endif
  if (spare_mappings().fetch_sub(2) >= 2 && mprotect(page, region->page_bytes, PROT_NONE) == 0)
    region->guard_mappings += 2;
  else spare_mappings().fetch_add(2);
}

// A lane lives in this loop: a group's lanes are its suspended rounds, and the next group resumes them here.
[[noreturn]] void lane_main(Worker *w) {
  for (;;) {
    w->lane_fn(w);
    w = worker();
    uint32_t lane = w->lane;
    w->live[lane / simd_width] &= ~(1u << lane % simd_width);
    hop(w, lane, w->ready ? take_ready(w, lane) : w->schedule(w));
  }
}

void start_context(Region *region, uint32_t fiber) {
  uintptr_t stack = uintptr_t(stack_of(region, fiber + 1));
#if defined(__x86_64__)
  stack -= 72;  // as a call leaves it: past a multiple of 16 by the return address, of which there is none
  *reinterpret_cast<void **>(stack) = nullptr;
#endif
  Context &context = region->worker.context[fiber];
  context.stack = reinterpret_cast<void *>(stack);
  context.resume = reinterpret_cast<void *>(&lane_main);
  context.frame = nullptr;
  context.base = nullptr;
}

__attribute__((noinline)) void prepare(Region *region, uint32_t first, uint32_t &prepared, uint32_t fibers) {
  for (; prepared < fibers; ++prepared) {
    guard(region, first + prepared);
    start_context(region, first + prepared);
  }
}

struct Place {
  const Step *path;
  uint64_t site_key;
};

uint32_t depth(const Step *step) {
  uint32_t count = 0;
  for (; step; step = step->outer) ++count;
  return count;
}

// Lexicographic order of two paths, outermost step first, the exchange itself last. The lists run from the inside
// out, so the difference that counts is the last one found.
int compare(Place a, Place b) {
  const Step a_site{a.path, a.site_key}, b_site{b.path, b.site_key};
  const Step *x = &a_site, *y = &b_site;
  const uint32_t x_depth = depth(x), y_depth = depth(y);
  for (uint32_t i = y_depth; i < x_depth; ++i) x = x->outer;
  for (uint32_t i = x_depth; i < y_depth; ++i) y = y->outer;
  int order = x_depth == y_depth ? 0 : x_depth < y_depth ? -1 : 1;
  for (; x; x = x->outer, y = y->outer)
    if (x->key != y->key) order = x->key < y->key ? -1 : 1;
  return order;
}

// Of the lanes parked at different places, those at the smallest meet. The one that runs now leads if it is among
// them, which spares a hop.
uint32_t elect_smallest(Worker *w) {
  const uint32_t base = w->lane & ~(simd_width - 1), current = w->lane % simd_width;
  uint32_t best = uint32_t(__builtin_ctz(w->parked));
  uint32_t met = 0;
  for (uint32_t rest = w->parked; rest; rest &= rest - 1) {
    const uint32_t slot = uint32_t(__builtin_ctz(rest));
    int order = 0;
    if (w->where[base + slot] != w->where[base + best] || w->site[slot] != w->site[best])
      order = compare({w->path[base + slot], uint64_t(w->site[slot]) << 32},
                      {w->path[base + best], uint64_t(w->site[best]) << 32});
    if (order > 0) continue;
    if (order < 0) best = slot, met = 0;
    met |= 1u << slot;
  }
  w->elected = met;
  return base + (met >> current & 1 ? current : best);
}

constexpr uint32_t nobody = ~0u;

uint32_t begin_simdgroup(Worker *w, uint32_t first) {
  for (uint32_t s = first; s < w->end_simdgroup; ++s)
    if (const uint32_t lanes = w->pending[s]) {
      w->pending[s] = 0;
      w->ready = lanes & (lanes - 1);
      return s * simd_width + uint32_t(__builtin_ctz(lanes));
    }
  return nobody;
}

uint32_t schedule(Worker *w) {
  if (w->parked) return elect_smallest(w);
  uint32_t next = begin_simdgroup(w, w->lane / simd_width + 1);
  if (next != nobody) return next;
  if (w->shadow) group_met(w);
  for (uint32_t s = w->first_simdgroup; s < w->end_simdgroup; ++s) w->pending[s] = w->live[s];
  next = begin_simdgroup(w, w->first_simdgroup);
  return next != nobody ? next : scheduler_fiber;
}

// Makes a group the worker's own; false if no thread of it lies in the grid.
bool enter_group(Worker *w, LaneFn lane_fn, const Dispatch *d, uint64_t group) {
  const uint64_t row = group / d->groups[0];
  w->group[0] = uint32_t(group % d->groups[0]);
  w->group[1] = uint32_t(row % d->groups[1]);
  w->group[2] = uint32_t(row / d->groups[1]);
  uint32_t threads = 1;
  for (int axis = 0; axis < 3; ++axis) {
    const uint64_t start = uint64_t(w->group[axis]) * d->group_size[axis];
    const uint64_t left = start < d->grid[axis] ? d->grid[axis] - start : 0;
    w->size[axis] = left < d->group_size[axis] ? uint32_t(left) : d->group_size[axis];
    threads *= w->size[axis];
  }
  if (threads == 0) return false;
  if (threads > max_lanes) __builtin_trap();  // becomes the submission's error
  w->threads = threads;
  w->dispatch = d;
  w->lane_fn = lane_fn;
  return true;
}

// Runs the `fibers` first ones of the simdgroups from `first` on, until all have returned.
void run_fibers(Worker *w, uint32_t first, uint32_t fibers) {
  w->first_simdgroup = first;
  w->end_simdgroup = first + (fibers + simd_width - 1) / simd_width;
  for (uint32_t s = first; s < w->end_simdgroup; ++s) w->live[s] = w->pending[s] = ~0u;
  if (fibers % simd_width) {
    const uint32_t last = w->end_simdgroup - 1;
    w->live[last] = w->pending[last] = (1u << fibers % simd_width) - 1;
  }
  uint32_t lane = scheduler_fiber;
  hop(w, lane, begin_simdgroup(w, first));
}

void run_group(Worker *w, LaneFn lane_fn, const Dispatch *d, uint64_t group) {
  if (!enter_group(w, lane_fn, d, group)) return;
  Region *region = region_of(w);
  if (w->threads > region->prepared) prepare(region, 0, region->prepared, w->threads);
  if (w->shadow) begin_group(w);
  run_fibers(w, 0, w->threads);
}

void run_simdgroups(Worker *w, LaneFn lane_fn, const Dispatch *d, uint64_t group) {
  if (!enter_group(w, lane_fn, d, group)) return;
  Region *region = region_of(w);
  const uint32_t simdgroups = (w->threads + simd_width - 1) / simd_width;
  if (simdgroups > region->prepared_simdgroups) prepare(region, max_lanes, region->prepared_simdgroups, simdgroups);
  run_fibers(w, max_simdgroups, simdgroups);
}

}  // namespace

Worker *open_worker(uint64_t arena_bytes, uint32_t checks) {
  const size_t page = size_t(sysconf(_SC_PAGESIZE));
  const size_t head = round_up(sizeof(Region), page);
  const size_t total = round_up(head + max_lanes * stack_stride + max_simdgroups * simdgroup_stack_stride, page);
  if (total > region_bytes || arena_bytes > (uint64_t(1) << 40)) return nullptr;

  const int flags = MAP_PRIVATE | MAP_ANON | MAP_NORESERVE;
  // All of the aligned region is kept: an address in it is the worker's, and no other memory may lie there.
  void *reserved = mmap(nullptr, 2 * region_bytes, PROT_NONE, flags, -1, 0);
  if (reserved == MAP_FAILED) return nullptr;
  const uintptr_t start = uintptr_t(reserved), base = round_up(start, region_bytes);
  if (base > start) munmap(reserved, base - start);
  munmap(reinterpret_cast<void *>(base + region_bytes), start + region_bytes - base);

  const size_t arena_mapping_bytes = round_up(arena_bytes ? arena_bytes : 1, page) + 2 * page;
  void *arena = mmap(nullptr, arena_mapping_bytes, PROT_NONE, flags, -1, 0);
  Region *region = reinterpret_cast<Region *>(base);
  if (arena == MAP_FAILED || mprotect(region, total, PROT_READ | PROT_WRITE) != 0 ||
      mprotect(static_cast<unsigned char *>(arena) + page, arena_mapping_bytes - 2 * page, PROT_READ | PROT_WRITE)) {
    munmap(region, region_bytes);
    if (arena != MAP_FAILED) munmap(arena, arena_mapping_bytes);
    return nullptr;
  }
  region->page_bytes = page;
  region->arena_mapping = arena;
  region->arena_mapping_bytes = arena_mapping_bytes;
  region->stacks = reinterpret_cast<unsigned char *>(base) + head;
  region->worker.arena = static_cast<unsigned char *>(arena) + page;
  region->worker.arena_bytes = arena_bytes;
  region->worker.run_group = &run_group;
  region->worker.run_simdgroups = &run_simdgroups;
  region->worker.log_room = &log_room;
  region->worker.schedule = &schedule;
  if (!checks || open_shadow(&region->worker, checks)) return &region->worker;
  close_worker(&region->worker);
  return nullptr;
}

void close_worker(Worker *w) {
  close_shadow(w);
  Region *region = region_of(w);
  spare_mappings().fetch_add(region->guard_mappings);
  munmap(region->arena_mapping, region->arena_mapping_bytes);
  munmap(region, region_bytes);
}

void reset_worker(Worker *w) {
  w->ready = w->parked = w->elected = 0;
  memset(w->where, 0, sizeof w->where);
  memset(w->path, 0, sizeof w->path);
  Region *region = region_of(w);
  for (uint32_t lane = 0; lane < region->prepared; ++lane) start_context(region, lane);
  for (uint32_t s = 0; s < region->prepared_simdgroups; ++s) start_context(region, max_lanes + s);
}

}  // namespace __ost
