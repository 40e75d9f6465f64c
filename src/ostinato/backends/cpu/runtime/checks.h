// What a checked kernel library and the runtime agree on beyond abi.h: the calls that hooks make, and kinds of findings.
//
// A checked library is compiled with the compiler's instrumentation, which calls a hook before each access. Hooks are
// part of the library (../hooks/hooks.cpp). They run on the fiber of the thread that accesses memory, find their Worker
// by its stack, and call the runtime by this table.
#ifndef OSTINATO_CHECKS_H
#define OSTINATO_CHECKS_H

#include "abi.h"

namespace __ost {

// The names are in backends/cpu/findings.py, in this order.
enum FindingKind : uint32_t {
  found_race,
  found_lockstep,
  found_uninitialised,
  found_out_of_bounds,
  found_misaligned,
  found_divergent_barrier,
  found_divergent_simdgroup,
  found_not_a_number,
  found_division_by_zero,
  found_shift,
  found_signed_overflow,
  found_conversion,
  found_not_written,
  found_inactive_lane,
};

// How memory is accessed; bits.
enum How : uint32_t {
  how_read = 0,
  how_write = 1,
  how_atomic = 2,
  how_located = 4,    // the site is the address of a Location, not a return address
  how_no_access = 8,  // no memory is concerned
  how_replaces = 16,  // an atomic write that does not read
};

// A place in the translated text, as the compiler's own checks pass it.
struct Location {
  const char *file;
  uint32_t line, column;
};

enum Order : uint32_t { order_none, order_acquire = 1, order_release = 2 };  // bits
enum Scope : uint32_t { scope_thread, scope_simdgroup, scope_threadgroup, scope_device };
enum Fenced : uint32_t { fenced_device = 1, fenced_threadgroup = 2 };  // bits, as in Metal's mem_flags

// What a device looks for; bits, `check_memory` always among them. With `check_bounds` nothing but bounds.
enum CheckOption : uint32_t { check_memory = 1, check_floats = 2, check_unwritten = 4, check_bounds = 8 };

// Bytes of local memory that a kernel declares.
enum LocalState : uint32_t { local_written, local_unwritten, local_fence };

struct CheckCalls {
  // Before an access by the running thread; `site` is where in the library it is made.
  void (*access)(Worker *, const void *address, uint64_t bytes, uint32_t how, const void *site);
  // Before an atomic access, with its orders.
  void (*atomic)(Worker *, const void *address, uint64_t bytes, uint32_t how, uint32_t order, const void *site);
  void (*fence)(Worker *, uint32_t fenced, uint32_t order, uint32_t scope);
  // Before the running thread waits at a barrier of its group, which `id` names, or of its simdgroup.
  void (*group_barrier)(Worker *, uint32_t fenced, uint32_t id, const void *site);
  void (*simdgroup_barrier)(Worker *, uint32_t fenced);
  // After a simdgroup function that all lanes must reach, and after one by which the running thread reads a lane's value.
  void (*all_met)(Worker *, const void *site);
  void (*lane_read)(Worker *, uint32_t lane, const void *site);
  // Something that the running thread did at `site`; `how` says what kind of site it is. Two numbers for the message.
  void (*report)(Worker *, FindingKind, const void *site, uint32_t how, const void *address, uint64_t bytes,
                 uint64_t value, uint64_t other);
  // The kernel has a variable in threadgroup memory here.
  void (*stored)(Worker *, const void *address, uint64_t bytes, const char *name);
  // The running thread declares a local variable, or a fence beside one; or a variable's life ends (then without a name).
  void (*local)(Worker *, const void *address, uint64_t bytes, LocalState, const char *name);
};

}  // namespace __ost

#endif
