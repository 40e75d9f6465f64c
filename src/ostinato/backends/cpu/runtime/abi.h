// What a compiled kernel library and the CPU runtime agree on: the dispatch record a kernel reads, the table it
// exports, and the Worker it runs on.
//
// A library never links against the runtime. All it needs is in the Worker it is handed: the head holds what
// generated code reads, the rest belongs to the fibers (fiber.h in the library, fiber.cpp in the runtime). Both
// sides must be compiled from the same version of this file, which abi_version names.
#ifndef OSTINATO_ABI_H
#define OSTINATO_ABI_H

#include <stddef.h>
#include <stdint.h>

namespace __ost {

constexpr uint32_t abi_version = 4;
constexpr uint32_t max_lanes = 1024;  // threads of a group
constexpr uint32_t simd_width = 32;
constexpr uint32_t max_simdgroups = max_lanes / simd_width;
// Fibers are numbered: those of threads from 0, those of whole simdgroups from max_lanes, then the scheduler's own.
constexpr uint32_t scheduler_fiber = max_lanes + max_simdgroups;
constexpr uint32_t max_exchange_bytes = 128;            // of one lane, in or out
constexpr uintptr_t region_bytes = uintptr_t(1) << 28;  // alignment of a Worker; all its stacks lie within

// From one lane's stack to the next. An odd number of cache lines, or the hot ends of all stacks would compete for
// the same few cache sets. Holds 32 KiB of stack, a guard page and its alignment, with pages of up to 64 KiB on arm.
#if defined(__aarch64__)
constexpr size_t stack_stride = 49 * 4096 + 320;
#else
constexpr size_t stack_stride = 17 * 4096 + 320;
#endif
constexpr size_t simdgroup_stack_stride = (size_t(5) << 18) + 320;

struct Worker;
struct Dispatch;
struct CheckCalls;  // checks.h
struct Findings;
struct Shadow;

typedef void (*Entry)(const Dispatch *, Worker *, uint64_t first_group, uint64_t end_group);
typedef void (*LaneFn)(Worker *);

struct Dispatch {
  Entry entry;
  uint32_t grid[3];        // real threads in the grid
  uint32_t group_size[3];  // nominal; groups at the edge are clipped by the grid
  uint32_t groups[3];
  void *const *args;               // one address per buffer argument, ascending buffer index
  const uint32_t *shared_offsets;  // arena offset per [[threadgroup(n)]] argument, ascending n
};

struct KernelInfo {
  const char *name;
  Entry entry;
  uint32_t threadgroup_bytes;  // declared in the kernel's body
  uint32_t arena_bytes;        // the same with what lies between variables in a checked build
  uint32_t max_threads;        // 1024 or [[max_total_threads_per_threadgroup]]
  uint32_t fibers;             // 1 when threads run as fibers
  uint32_t n_args;
  const uint32_t *arg_sizes;  // of the pointee, per buffer argument; 0 for void
  const uint32_t *arg_aligns;
};

// A call of a convergent function, or a loop around one; ids ascend in source order.
struct Site { uint32_t id; };

// One step of a lane's path: a call site, or a loop site with its iteration. The steps of a lane form a list that
// lives in the lane's own stack frames, so a path may be as deep as the stack allows.
struct Step {
  const Step *outer;
  uint64_t key;  // site << 32 | iteration
};

// A lane that is not running. A hop saves two registers by itself, because inline assembly cannot name them as
// destroyed; the compiler saves those of the others that it needs.
struct Context {
  void *stack;
  void *resume;
  void *frame;  // rbp, x29
  void *base;   // rbx, x19
};

struct alignas(64) Worker {
  const Dispatch *dispatch;
  unsigned char *arena;  // threadgroup memory, 64-byte aligned
  uint64_t arena_bytes;
  uint32_t group[3];  // position of the current group in the grid of groups
  uint32_t size[3];   // its real (clipped) size
  uint32_t threads;   // size[0] * size[1] * size[2]
  uint32_t lane;      // linear index in the group of the thread that runs
  void (*run_group)(Worker *, LaneFn, const Dispatch *, uint64_t group);       // a fiber for each thread
  void (*run_simdgroups)(Worker *, LaneFn, const Dispatch *, uint64_t group);  // a fiber for each simdgroup
  void *(*log_room)(Worker *, uint32_t bytes);  // for a record of what a thread prints; NULL when there is none left
  struct Log *log;                              // of the submission that runs
  uint32_t node;                                // of its graph, that runs

  // The simdgroup that runs now. A lane of it is either ready, parked, returned, or else at the group's barrier.
  uint32_t ready;            // lanes that can run
  uint32_t parked;           // lanes that wait at an exchange
  uint32_t elected;          // lanes the one being resumed has to combine; zero otherwise
  uint32_t met;              // lanes that met last; only checked libraries write it
  uint32_t first_simdgroup;  // those of the current group that are scheduled
  uint32_t end_simdgroup;
  uint32_t (*schedule)(Worker *);  // the lane to resume when none is ready
  LaneFn lane_fn;
  // Of a device that checks its kernels; NULL otherwise.
  const CheckCalls *checks;
  Findings *findings;
  Shadow *shadow;
  void (*begin_group)(Worker *);          // before the threads of a group run
  void (*group_met)(Worker *);            // all threads of the group that have not returned wait at its barrier
  alignas(64) uint32_t site[simd_width];  // where each parked lane waits
  // Lanes that have not returned, per simdgroup, and ready lanes of the simdgroups that have not had their turn. In the
  // last entry the simdgroups of a group stand for lanes.
  uint32_t live[max_simdgroups + 1], pending[max_simdgroups + 1];

  alignas(64) uint64_t where[max_lanes];    // running hash of each lane's path
  alignas(64) const Step *path[max_lanes];  // innermost step of each lane's path
  alignas(64) Context context[scheduler_fiber + 1];

  alignas(64) unsigned char in[2 * 32 * max_exchange_bytes];  // see slot_offset in fiber.h
  alignas(64) unsigned char out[32 * max_exchange_bytes];
};

}  // namespace __ost

#endif
