// An access in 64 bits, and the accesses that a hook need not pass on: those that add nothing to what is known.
//
// Most reads of a kernel repeat others: of constants that were written before the dispatch, and of threadgroup memory
// that several threads have read since the last barrier. A hook recognises them without a call of the runtime.
#ifndef OSTINATO_CELLS_H
#define OSTINATO_CELLS_H

#include "abi.h"

// Part of the access that is looked at, wherever it is inlined: without hooks and lines of its own.
#ifdef __clang__
#define __OST_GLANCE inline __attribute__((always_inline, nodebug, no_sanitize("thread")))
#else
#define __OST_GLANCE inline
#endif

namespace __ost {

typedef uint64_t Slot;  // zero: none

enum Space : uint32_t { device_space, threadgroup_space };
// Missed: read before anything was written there, and not written since.
enum Byte : unsigned char { byte_outside, byte_unwritten, byte_written, byte_missed };

// Those of threadgroup memory need no group and count barriers without wrapping.
struct Layout { uint32_t epoch_bits, simd_bits; };
constexpr uint32_t site_bits = 14, lane_bits = 10, group_bits = 20;
constexpr uint32_t lane_at = site_bits, atomic_at = lane_at + lane_bits, simd_at = atomic_at + 1;
constexpr Layout layouts[2] = {{11, 8}, {20, 19}};  // device, threadgroup

constexpr Slot lane_mask = Slot(max_lanes - 1) << lane_at;
constexpr Slot simdgroup_mask = Slot(max_lanes - simd_width) << lane_at;
constexpr Slot atomic_bit = Slot(1) << atomic_at;
template <Space space> constexpr Slot simd_mask = ((Slot(1) << layouts[space].simd_bits) - 1) << simd_at;
template <Space space>
constexpr Slot epoch_mask = ((Slot(1) << layouts[space].epoch_bits) - 1) << (simd_at + layouts[space].simd_bits);

// Of each cell: the last write, another, the last read, another.
constexpr uint32_t slots_per_cell = 4;

struct Span { uintptr_t begin, end; };
constexpr uint32_t spans_kept = 4096;

// What the accesses of a thread have in common until it passes a barrier, together because they are read together.
struct alignas(32) Stamp {
  Slot group_permit, simdgroup_permit;  // compared with Glance::needed
  Slot slots[2];                        // its accesses, without their lines, for each Space
};

// What hooks read of a worker's shadow, which begins with it.
struct Glance {
  // Threadgroup memory, without its last 16 bytes, so that an access that begins in it ends in it. No bytes while its
  // cells are smaller than 4 bytes.
  uintptr_t arena;
  uint64_t arena_bytes;
  const Slot *needed;                 // for each of its cells: a thread with this permit need not report a read
  const Stamp *stamps;                // for each thread of the group
  const unsigned char *local_states;  // a LocalState for each byte of the worker's stacks
  // Of a device that looks for bounds alone: a Byte for each byte of threadgroup memory; and for each unit of it the
  // offset at which the variable ends that the unit begins in, or 0 if it begins in none.
  const unsigned char *arena_states;
  const uint32_t *arena_ends;
  // For each span_place: the argument that was last accessed there. With all checks only one that this dispatch has not
  // written. span_states has a Byte for each byte of the argument, or NULL if all were written before.
  Span spans[spans_kept];
  const unsigned char *span_states[spans_kept];
};
constexpr uint32_t arena_unit_bytes = 16;  // variables begin at a multiple of it

template <uint32_t bytes> __OST_GLANCE bool all_bytes(const unsigned char *states, unsigned char value) {
  if constexpr (bytes > 8) {
    return all_bytes<8>(states, value) && all_bytes<bytes - 8>(states + 8, value);
  } else {
    uint64_t some = 0;
    __builtin_memcpy(&some, states, bytes);
    return some == (0x0101010101010101u >> (64 - 8 * bytes)) * value;
  }
}

// The place of an address in Glance::spans: one for each block of 1 MiB. Arguments lie at least 1 MiB apart, so no block
// holds parts of two. Blocks that are 4 GiB apart share a place: a kernel that uses them in turns calls the runtime each
// time. A hash of all bits would avoid that, and cost each access more.
__OST_GLANCE uintptr_t span_place(uintptr_t address) { return address >> 20 & (spans_kept - 1); }

// Whether an access is known to be within an argument. Signed, so that addresses right before a null pointer are below all
// arguments, and no sum wraps.
__OST_GLANCE bool is_argument(const Glance *glance, uintptr_t address, uint64_t bytes) {
  const Span &span = glance->spans[span_place(address)];
  return int64_t(span.begin) <= int64_t(address) && int64_t(bytes) <= int64_t(span.end - address);
}

// Whether the runtime need not know of an access that the running thread is about to make.
template <uint32_t bytes> __OST_GLANCE bool adds_nothing(const Worker *w, const void *address, bool writes) {
  const Glance *glance = reinterpret_cast<const Glance *>(w->shadow);
  const uintptr_t at = uintptr_t(address);
  if constexpr (bytes % 4 == 0) {
    const uintptr_t offset = at - glance->arena;
    if (offset < glance->arena_bytes) {
      if (writes || offset % 4 || w->elected) return false;
      const Stamp &stamp = glance->stamps[w->lane];
      for (uint32_t i = 0; i < bytes / 4; ++i) {
        const Slot needed = glance->needed[offset / 4 + i];
        if (needed != stamp.group_permit && needed != stamp.simdgroup_permit) return false;
      }
      return true;
    }
  }
  if (at - uintptr_t(w) < region_bytes - bytes) return all_bytes<bytes>(glance->local_states + (at - uintptr_t(w)), 0);
  if (writes || !is_argument(glance, at, bytes)) return false;
  const unsigned char *states = glance->span_states[span_place(at)];
  return !states || all_bytes<bytes>(states + (at - glance->spans[span_place(at)].begin), byte_written);
}

// Whether an access is within local memory of which there is nothing to say.
template <uint32_t bytes> __OST_GLANCE bool is_local(const Glance *glance, uintptr_t region, uintptr_t address) {
  const uintptr_t offset = address - region;
  return offset < region_bytes - bytes && all_bytes<bytes>(glance->local_states + offset, 0);
}

// Where only bounds are looked at: whether an access is known to be within them.
template <uint32_t bytes> __OST_GLANCE bool is_inside(const Worker *w, const void *address) {
  const Glance *glance = reinterpret_cast<const Glance *>(w->shadow);
  const uintptr_t offset = uintptr_t(address) - glance->arena;
  if (offset < glance->arena_bytes) return all_bytes<bytes>(glance->arena_states + offset, byte_written);
  return is_argument(glance, uintptr_t(address), bytes) || is_local<bytes>(glance, uintptr_t(w), uintptr_t(address));
}

}  // namespace __ost

#endif
