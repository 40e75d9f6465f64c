// What the translator's generated entry points are made of: the group and thread positions of a dispatch, and the
// small constexpr helpers of generated code. Included after the shim; not for users' sources.
#ifndef OSTINATO_ENTRY_CPU_H
#define OSTINATO_ENTRY_CPU_H

#include "abi.h"
#include "fiber.h"
#include "positions.h"

// clang takes its word for it also in local arrays, of which all threads of a loop have the same.
#if defined(__clang__)
#define __OST_INDEPENDENT _Pragma("clang loop vectorize(enable)")
#else
#define __OST_INDEPENDENT _Pragma("GCC ivdep")
#endif

#define __OST_EXPORT extern "C" __attribute__((visibility("default")))
// An entry point does not run on a fiber, where hooks of checked builds find their worker; and what a fiber reads before
// it calls its kernel is the runtime's.
#define __OST_UNCHECKED __attribute__((no_sanitize("thread")))
#define __OST_INTERNAL extern "C" __attribute__((visibility("hidden")))

namespace __ost {

// What an argument refers to when its function constant leaves it out and the kernel takes it by reference.
alignas(64) static const unsigned char absent[4096] = {};

// Where a group lies in the grid, clipped at the grid's edge.
struct Group {
  uint32_t position[3], origin[3], size[3];
  inline __attribute__((always_inline)) Group(const Dispatch *d, uint64_t group) {
    position[0] = uint32_t(group % d->groups[0]);
    const uint64_t rest = group / d->groups[0];
    position[1] = uint32_t(rest % d->groups[1]);
    position[2] = uint32_t(rest / d->groups[1]);
    for (int axis = 0; axis < 3; ++axis) {
      origin[axis] = position[axis] * d->group_size[axis];
      const uint32_t left = d->grid[axis] - origin[axis];
      size[axis] = left < d->group_size[axis] ? left : d->group_size[axis];
    }
  }
  // The group that a worker has entered.
  inline __attribute__((always_inline)) explicit Group(const Worker *w) {
    for (int axis = 0; axis < 3; ++axis) {
      position[axis] = w->group[axis];
      size[axis] = w->size[axis];
      origin[axis] = position[axis] * w->dispatch->group_size[axis];
    }
  }
};

// How many groups of the same row follow from this one on, at most `left`; and where the row's threads end then.
inline uint64_t groups_in_row(const Dispatch *d, const Group &group, uint64_t left) {
  const uint64_t in_row = d->groups[0] - group.position[0];
  return left < in_row ? left : in_row;
}
inline uint32_t row_end(const Dispatch *d, const Group &group, uint64_t run) {
  const uint64_t end = group.origin[0] + run * d->group_size[0];
  return end < d->grid[0] ? uint32_t(end) : d->grid[0];
}

// Makes a group the worker's own without starting fibers.
inline void enter_group(Worker *w, const Dispatch *d, uint64_t index) {
  const Group group(d, index);
  for (int axis = 0; axis < 3; ++axis) {
    w->group[axis] = group.position[axis];
    w->size[axis] = group.size[axis];
  }
  w->dispatch = d;
  w->threads = group.size[0] * group.size[1] * group.size[2];
  w->lane = 0;
}

inline __attribute__((always_inline)) Thread thread_at(const Group &group, uint32_t x, uint32_t y, uint32_t z,
                                                       uint32_t index) {
  return {nullptr,   group.position, group.size, {group.origin[0] + x, group.origin[1] + y, group.origin[2] + z},
          {x, y, z}, index};
}

// A stretch of a kernel between two barriers, for all threads of a group.
#define __OST_THREADS_BEGIN(group)                                                                          \
  for (uint32_t __ost_z = 0; __ost_z < group.size[2]; ++__ost_z)                                            \
    for (uint32_t __ost_y = 0; __ost_y < group.size[1]; ++__ost_y) {                                        \
      const uint32_t __ost_row = (__ost_z * group.size[1] + __ost_y) * group.size[0];                       \
      __OST_INDEPENDENT                                                                                     \
      for (uint32_t __ost_x = 0; __ost_x < group.size[0]; ++__ost_x) {                                      \
        const __ost::Thread __ost_t = __ost::thread_at(group, __ost_x, __ost_y, __ost_z, __ost_row + __ost_x); \
        (void)__ost_t;
#define __OST_THREADS_END \
      }                   \
    }

// The thread that a fiber runs.
inline __attribute__((always_inline)) Thread running_thread(const Worker *w) {
  Thread t;
  t.d = w->dispatch;
  t.group_position = w->group;
  t.group_size = w->size;
  t.index = w->lane;
  if (w->size[1] * w->size[2] == 1) {
    t.local[0] = w->lane;
    t.local[1] = t.local[2] = 0;
  } else {
    t.local[0] = w->lane % w->size[0];
    t.local[1] = w->lane / w->size[0] % w->size[1];
    t.local[2] = w->lane / w->size[0] / w->size[1];
  }
  for (int axis = 0; axis < 3; ++axis) t.grid[axis] = w->group[axis] * t.d->group_size[axis] + t.local[axis];
  return t;
}

#ifdef __OST_DEBUG
}  // namespace __ost

// The thread that runs, for a debugger: in every function of the source, by Metal's names. A debug device has one worker.
static uint3 thread_position_in_grid, thread_position_in_threadgroup, threadgroup_position_in_grid;
static uint thread_index_in_simdgroup, simdgroup_index_in_threadgroup;

namespace __ost {

static void show_position(const Worker *w) {
  const Thread t = running_thread(w);
  thread_position_in_grid = t.thread_position_in_grid<uint3>();
  thread_position_in_threadgroup = t.thread_position_in_threadgroup<uint3>();
  threadgroup_position_in_grid = t.threadgroup_position_in_grid<uint3>();
  thread_index_in_simdgroup = t.thread_index_in_simdgroup<uint>();
  simdgroup_index_in_threadgroup = t.simdgroup_index_in_threadgroup<uint>();
}
#endif

#ifdef __OST_VECTOR
// Lane `__ost_lane()` of a simdgroup whose threads are neighbours along x: the first has this index and position.
inline __attribute__((always_inline)) Thread thread_of_row(const Worker *w, uint32_t first, uint32_t x, uint32_t y,
                                                           uint32_t z) {
  Thread t;
  t.d = w->dispatch;
  t.group_position = w->group;
  t.group_size = w->size;
  t.index = first + __ost_lane();
  t.local[0] = x + __ost_lane();
  t.local[1] = y;
  t.local[2] = z;
  for (int axis = 0; axis < 3; ++axis) t.grid[axis] = w->group[axis] * t.d->group_size[axis] + t.local[axis];
  return t;
}
// The same in a group of this width, where several rows of a plane are a simdgroup.
template <uint32_t width>
inline __attribute__((always_inline)) Thread thread_of_tile(const Worker *w, uint32_t first, uint32_t y, uint32_t z) {
  Thread t = thread_of_row(w, first, 0, y, z);
  t.local[0] = __ost_lane() % width;
  t.local[1] = y + __ost_lane() / width;
  for (int axis = 0; axis < 2; ++axis) t.grid[axis] = w->group[axis] * t.d->group_size[axis] + t.local[axis];
  return t;
}
// The same for threads that lie anywhere.
inline __attribute__((always_inline)) Thread thread_anywhere(const Worker *w, uint32_t first) {
  Thread t = thread_of_row(w, first, 0, 0, 0);
  t.local[0] = t.index % w->size[0];
  t.local[1] = t.index / w->size[0] % w->size[1];
  t.local[2] = t.index / w->size[0] / w->size[1];
  for (int axis = 0; axis < 3; ++axis) t.grid[axis] = w->group[axis] * t.d->group_size[axis] + t.local[axis];
  return t;
}

// What the lane pass makes of a thread: for a whole simdgroup in a row, in several rows, and for any lanes of one.
typedef void RowFn(Worker *, uint32_t active, uint32_t first, uint32_t x, uint32_t y, uint32_t z);
typedef void TileFn(Worker *, uint32_t active, uint32_t first, uint32_t y, uint32_t z);
typedef void AnyFn(Worker *, uint32_t active, uint32_t first);

// On a fiber of its own.
inline void run_simdgroup(Worker *w, RowFn *row, AnyFn *any, TileFn *of_sixteen, TileFn *of_eight) {
  const uint32_t first = (w->lane - max_lanes) * simd_width, left = w->threads - first, width = w->size[0];
  const uint32_t line = first / width, y = line % w->size[1], z = line / w->size[1];
  TileFn *const tile = width == 16 ? of_sixteen : width == 8 ? of_eight : nullptr;
  if (left < simd_width) {
    any(w, (1u << left) - 1, first);
  } else if (w->size[1] * w->size[2] == 1) {
    row(w, ~0u, first, first, 0, 0);
  } else if (width % simd_width == 0) {
    row(w, ~0u, first, first % width, y, z);
  } else if (tile && w->size[1] % (simd_width / width) == 0) {
    tile(w, ~0u, first, y, z);
  } else {
    any(w, ~0u, first);
  }
}
#endif

// Tells constructors apart that differ only in address space.
template <int...> struct InPlace {};

// Which kind of memory an address lies in, for overloads that differ only in address space:
// 1 threadgroup memory, 2 the stack of a thread, 0 anything else. Only inside a fiber, or in a constant.
constexpr int place_of(const void *address) {
  if (__builtin_is_constant_evaluated()) return 2;
  const Worker *w = worker();
  const unsigned char *at = (const unsigned char *)address;
  if (at >= w->arena && at < w->arena + w->arena_bytes) return 1;
  return (uintptr_t(at) & ~(region_bytes - 1)) == uintptr_t(w) ? 2 : 0;
}

}  // namespace __ost

#endif
