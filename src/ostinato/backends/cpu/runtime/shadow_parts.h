// What a worker's shadow consists of: the memory that a dispatch may access, and what is known of it.
//
// regions.cpp knows which memory that is, history.cpp what was done to it, shadow.cpp opens and closes both, and
// check_calls.cpp is what hooks call.
#ifndef OSTINATO_SHADOW_PARTS_H
#define OSTINATO_SHADOW_PARTS_H

#include "cells.h"
#include "fences.h"
#include "findings.h"
#include "local_memory.h"
#include "shadow.h"
#include "small_cells.h"

namespace __ost {

constexpr uint32_t max_regions = 96;
constexpr uint32_t max_sites = 1 << site_bits;
constexpr uint32_t largest_shift = 2;
constexpr uint32_t max_variables = 256;
constexpr uint32_t largest_compared = 64;
constexpr uint32_t max_missed = 1024;

struct Region {
  uintptr_t begin, end, base;  // base: where cells begin, at a multiple of 4
  uintptr_t home;              // where the host knows it: arguments.h
  Slot *cells;                 // NULL where nothing writes; smaller ones are stored as small_cells.h says
  size_t mapped_bytes;
  unsigned char *state;  // a Byte for each byte; NULL where all are written
  uint32_t shift;        // of a cell's size
  Space space;
  bool writable;   // whether the kernel may write it
  bool used;       // whether a cell is other than zero
  bool forgotten;  // whether a cell is zero although its memory was accessed
};

struct KernelAccess {
  uintptr_t address;
  uint64_t bytes;
  uint32_t how;
  const void *site;
};

struct Deferred {  // a write whose value is compared once it has happened
  const unsigned char *address;
  uint32_t bytes;
  FindingKind kind;
  Touch first, second;
  Memory memory;
  unsigned char before[largest_compared];
};

struct Missed {  // a read of memory that nobody had written
  unsigned char *state;
  uint64_t bytes;
  Finding *finding;
};

struct Tracked {  // memory of which the device knows what was written
  uintptr_t begin, end;
  unsigned char *state;
};

struct Variable {  // in threadgroup memory
  uintptr_t begin;
  uint64_t bytes;
  const char *name;
};

struct Shadow {
  Glance glance;                // first, where hooks look for it
  Region regions[max_regions];  // the first is threadgroup memory
  const Node *node;             // the dispatch that runs; NULL when none does
  void *places;                 // where arguments were moved to; NULL when none was
  size_t place_bytes;
  uint32_t n_regions, recent;
  uint64_t group;                                // linear position of the one that runs; ~0 before the first
  uintptr_t internal_begin[3], internal_end[3];  // of the runtime's own, which kernels read

  Passed passed[max_lanes];
  Stamp stamps[max_lanes];
  Slot *needed;  // for each 4 bytes of threadgroup memory: the permit of a thread whose read adds nothing; NULL while
                 // its cells are small
  uint32_t swept[2];  // how often each counter of device memory wrapped, in this group

  Variable variables[max_variables];
  uint32_t n_variables;
  uint32_t *arena_ends;  // as hooks see them; NULL unless only bounds are looked at

  bool has_deferred;
  Deferred deferred;

  Missed missed[max_missed];  // in this dispatch; of threadgroup memory in this group
  uint32_t n_missed;

  uint32_t n_sites;
  const void *sites[max_sites];
  uint16_t site_index[4 * max_sites];

  // Threads that wait at the group's barrier.
  uint32_t waiting, barrier_id;
  uint32_t barrier_lane;
  const void *barrier_site;

  Tracked *tracked;
  uint32_t n_tracked, tracked_room;
  Fences fences;
  Contexts contexts[2];  // for each Space
  LocalMemory locals;
  uint32_t checks;
};

}  // namespace __ost

#endif
