// The history of each cell of memory, and what it proves.
//
// A cell is 4, 2 or 1 bytes: a region starts with the largest and is divided when a smaller access comes (small_cells.h
// says how small ones are stored). A cell keeps
// four accesses: the last write, another one that is as far from it as possible, and the same for reads. Far means: of
// another group, else of another simdgroup, else of another lane. Two are enough: if any earlier access is that far from
// a new one, one of the two is. So a race is found in whichever order threads run. That holds for barriers. Fences order
// single threads: where the two that are kept are ordered by fences and a third is not, the race with it is missed.
//
// What orders two accesses is counted, not observed. Each thread counts the barriers it passed, of its group and of its
// simdgroup, for device and for threadgroup memory: only those whose flags cover the memory. Two accesses of a group
// are ordered if their counts differ. Groups of a dispatch are not ordered, except by fences (fences.h).
//
// The hook comes before the access, so the value of a write is not known yet. Writes of two threads that may be equal
// are compared when the next hook runs on this worker; equal ones are no finding.
#include "shadow.h"

#include <sys/mman.h>

#include <stdlib.h>
#include <string.h>

#include "cells.h"
#include "fences.h"
#include "local_memory.h"
#include "small_cells.h"

namespace __ost {
namespace {

constexpr uint32_t max_regions = 96;
constexpr uint32_t max_sites = 1 << site_bits;
constexpr uint32_t largest_shift = 2;
constexpr uint32_t max_variables = 256;
constexpr uint32_t max_images = 4096;
constexpr uint32_t largest_compared = 64;

struct Region {
  uintptr_t begin, end, base;  // base: where cells begin, at a multiple of 4
  Slot *cells;                 // NULL where nothing writes; smaller ones are stored as small_cells.h says
  size_t mapped_bytes;
  unsigned char *state;  // a Byte for each byte; NULL where all are written
  uint32_t shift;        // of a cell's size
  Space space;
  bool used;       // whether a cell is other than zero
  bool forgotten;  // whether a cell is zero although its memory was accessed
};

struct Deferred {  // a write whose value is compared once it has happened
  const unsigned char *address;
  uint32_t bytes;
  FindingKind kind;
  Touch first, second;
  Memory memory;
  unsigned char before[largest_compared];
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

struct Image { uintptr_t begin, end; };
Image images[max_images];
std::atomic<uint32_t> n_images;

}  // namespace

struct Shadow {
  Glance glance;                // first, where hooks look for it
  Region regions[max_regions];  // the first is threadgroup memory
  uint32_t n_regions, recent;
  uint64_t group;                                // linear position of the one that runs; ~0 before the first
  uintptr_t internal_begin[3], internal_end[3];  // of the runtime's own, which kernels read

  Passed passed[max_lanes];
  Stamp stamps[max_lanes];
  Slot *needed;       // for each 4 bytes of threadgroup memory: the pass that a read needs to add nothing
  uint32_t swept[2];  // how often each counter of device memory wrapped, in this group

  Variable variables[max_variables];
  uint32_t n_variables;

  bool has_deferred;
  Deferred deferred;

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

namespace {

// A counter in its bits of a slot. That of device memory leaves out the last value, which is older than all others.
uint32_t counted(uint32_t count, Space space, uint32_t bits) {
  return space == device_space ? count % ((1u << bits) - 1) : count & ((1u << bits) - 1);
}

// Passes end with a barrier of the group, those of a simdgroup also with one of the simdgroup. None is zero.
Slot group_pass(Slot stamp) { return (stamp & epoch_mask<threadgroup_space>) | 1; }
Slot simdgroup_pass(Slot stamp) {
  return (stamp & (epoch_mask<threadgroup_space> | simd_mask<threadgroup_space> | simdgroup_mask)) | 2;
}

void stamp(Shadow *shadow, uint32_t lane, Space space) {
  const Layout layout = layouts[space];
  const Passed &passed = shadow->passed[lane];
  Slot slot = Slot(lane) << lane_at;
  slot |= Slot(counted(passed.simdgroup[space], space, layout.simd_bits)) << simd_at;
  slot |= Slot(counted(passed.group[space], space, layout.epoch_bits)) << (simd_at + layout.simd_bits);
  if (space == device_space) slot |= Slot(shadow->group) << (64 - group_bits);
  Stamp &known = shadow->stamps[lane];
  known.slots[space] = slot;
  if (space == device_space) return;
  known.group_pass = group_pass(slot);
  known.simdgroup_pass = simdgroup_pass(slot);
}

struct Parts { uint32_t site, lane, epoch, group; };

Parts parts(Slot slot, Space space) {
  const Layout layout = layouts[space];
  return {uint32_t(slot & (max_sites - 1)), uint32_t(slot >> lane_at & (max_lanes - 1)),
          uint32_t(slot >> (simd_at + layout.simd_bits) & ((1u << layout.epoch_bits) - 1)),
          space == device_space ? uint32_t(slot >> (64 - group_bits)) : 0};
}

// How far apart two accesses are, if nothing orders them.
enum Distance : int { ordered, same_simdgroup, same_group, other_group };

bool fences_order(const Shadow *shadow, Space space, Slot before, Slot now) {
  const Parts p = parts(before, space), c = parts(now, space);
  const Fenced memory = space == device_space ? fenced_device : fenced_threadgroup;
  return fenced(&shadow->fences, memory, {p.group, p.lane, p.epoch}, {c.group, c.lane, c.epoch});
}

template <Space space> inline Distance distance(const Shadow *shadow, Slot before, Slot now) {
  const Slot differ = before ^ now;
  Distance apart = other_group;
  if (space == threadgroup_space || !(differ >> (64 - group_bits))) {
    if (!(differ & lane_mask) || differ & epoch_mask<space>) return ordered;
    apart = same_group;
    if (!(differ & simdgroup_mask)) {
      if (differ & simd_mask<space>) return ordered;
      apart = same_simdgroup;
    }
  }
  return shadow->fences.n_acquired && fences_order(shadow, space, before, now) ? ordered : apart;
}

inline uint32_t site_number(Shadow *shadow, const void *site) {
  uint32_t at = uint32_t(uintptr_t(site) * 0x9e3779b97f4a7c15u >> 40) % (4 * max_sites);
  for (;; at = (at + 1) % (4 * max_sites)) {
    const uint32_t known = shadow->site_index[at];
    if (!known) break;
    if (shadow->sites[known] == site) return known;
  }
  if (shadow->n_sites + 1 == max_sites) return max_sites - 1;
  shadow->sites[++shadow->n_sites] = site;
  shadow->site_index[at] = uint16_t(shadow->n_sites);
  return shadow->n_sites;
}

Touch touch_of_slot(const Worker *w, Space space, Slot slot, uint32_t how) {
  const Shadow *shadow = w->shadow;
  const Parts p = parts(slot, space);
  // The upper bits of a group's number are not kept; it is one that has run.
  uint64_t group =
      space == device_space ? (shadow->group & ~uint64_t((1u << group_bits) - 1)) | p.group : shadow->group;
  if (group > shadow->group) group -= uint64_t(1) << group_bits;
  return touch_of(w, p.lane, group, shadow->sites[p.site], how | (slot & atomic_bit ? uint32_t(how_atomic) : 0));
}

void compare_deferred(Worker *w) {
  Shadow *shadow = w->shadow;
  shadow->has_deferred = false;
  const Deferred &d = shadow->deferred;
  if (memcmp(d.address, d.before, d.bytes) == 0) return;
  report(w->findings, d.kind, d.first, d.second, d.memory, 0);
}

inline void settle(Worker *w) {
  if (__builtin_expect(w->shadow->has_deferred, 0)) compare_deferred(w);
}

// Which of two earlier accesses to keep beside a new one.
template <Space space> inline Slot farther(const Shadow *shadow, Slot a, Slot b, Slot now) {
  Slot best = 0;
  int best_rank = -1;
  const Slot both[2] = {a, b};
  for (Slot slot : both) {
    if (!slot) continue;
    const bool plain = !(slot & atomic_bit);
    const Distance apart = distance<space>(shadow, slot, now);
    // A plain access before an atomic one of the same thread still races with atomic accesses of others.
    if (apart == ordered && !(now & atomic_bit && plain)) continue;
    const int rank = 2 * apart + plain;
    if (rank > best_rank) best = slot, best_rank = rank;
  }
  return best;
}

struct Access {
  uintptr_t address;
  uint64_t bytes;
  uint32_t how;
  const void *site;
};

Memory memory_at(const Shadow *shadow, const Region &region, const Access &access) {
  Memory memory = {access.address, access.bytes, nullptr, 0, memory_device};
  if (region.space == device_space) return memory;
  memory.kind = memory_threadgroup;
  memory.offset = access.address - region.begin;
  // The variable that it lies in, or that ends before it.
  for (uint32_t i = 0; i < shadow->n_variables; ++i) {
    const Variable &variable = shadow->variables[i];
    const uint64_t offset = access.address - variable.begin;
    if (variable.begin <= access.address && (!memory.name || offset < memory.offset))
      memory.name = variable.name, memory.offset = offset;
  }
  return memory;
}

[[gnu::noinline, gnu::cold]] void conflict(Worker *w, const Region &region, const Access &access, Slot before,
                                           bool wrote, Distance apart, Slot now) {
  const FindingKind kind = apart == same_simdgroup ? found_lockstep : found_race;
  const Touch first = touch_of_slot(w, region.space, before, wrote ? how_write : how_read);
  const Touch second = touch_of_slot(w, region.space, now, access.how & how_write);
  const bool both_write = wrote && (access.how & how_write) && !((before | now) & atomic_bit);
  // Lanes that step together write at once where they write by the same instruction: lockstep orders nothing then.
  const FindingKind level = both_write && first.site == second.site ? found_race : kind;
  if (both_write && access.bytes <= largest_compared) {
    Shadow *shadow = w->shadow;
    if (shadow->has_deferred) return;  // one of this access is enough
    shadow->has_deferred = true;
    Deferred &d = shadow->deferred;
    d = {reinterpret_cast<const unsigned char *>(access.address),
         uint32_t(access.bytes),
         level,
         first,
         second,
         memory_at(shadow, region, access),
         {}};
    memcpy(d.before, d.address, d.bytes);
    return;
  }
  report(w->findings, level, first, second, memory_at(w->shadow, region, access), 0);
}

// Whether a read adds nothing to two others that no barrier separates from it: they are of two simdgroups, or all three
// of one. Any write that conflicts with it conflicts as much with one of them, unless fences order it after both.
template <Space space> inline bool is_covered(Slot a, Slot b, Slot now) {
  constexpr Slot phase = epoch_mask<space> | atomic_bit | (space == device_space ? ~Slot(0) << (64 - group_bits) : 0);
  const Slot differ = (a ^ now) | (b ^ now);
  if (!a || !b || differ & phase) return false;
  return (a ^ b) & simdgroup_mask || !(differ & (simdgroup_mask | simd_mask<space>));
}

// Whether a barrier of the group separates an access of threadgroup memory from one before, if there was one.
inline bool is_past(Slot before, Slot now) { return !before || (before ^ now) & epoch_mask<threadgroup_space>; }

Slot &needed_at(const Shadow *shadow, const Slot *cell) {
  return shadow->needed[(cell - shadow->regions[0].cells) / slots_per_cell];
}

// Lets hooks pass over reads of a cell that add nothing to its last two.
inline void admit(const Shadow *shadow, const Slot *cell, Slot now) {
  if (!(now & atomic_bit) && cell[0] && is_past(cell[0], now) && is_past(cell[1], now))
    needed_at(shadow, cell) = (cell[2] ^ cell[3]) & simdgroup_mask ? group_pass(now) : simdgroup_pass(now);
}

// One cell; true when a conflict was reported, so that the others of the access need not be.
template <Space space>
inline bool touch_cell(Worker *w, const Region &region, Slot *cell, const Access &access, Slot now, bool report_it) {
  const Shadow *shadow = w->shadow;
  const bool writes = access.how & how_write;
  const bool has_pass = space == threadgroup_space && region.shift == largest_shift;
  Slot *mine = cell + (writes ? 0 : 2);
  if (has_pass && writes) needed_at(shadow, cell) = 0;
  if (mine[0] == now && (!writes || !(cell[2] | cell[3]))) return false;
  bool reported = false;
  if (space == device_space || !is_past(cell[0], now) || !is_past(cell[1], now) ||
      (writes && !(is_past(cell[2], now) && is_past(cell[3], now))))
    for (uint32_t i = 0; i < (writes ? slots_per_cell : 2); ++i) {
      const Slot before = cell[i];
      if (!before || before & now & atomic_bit) continue;
      const Distance apart = distance<space>(shadow, before, now);
      if (__builtin_expect(apart == ordered, 1) || !report_it || reported) continue;
      conflict(w, region, access, before, i < 2, apart, now);
      reported = true;
    }
  if (!writes && is_covered<space>(mine[0], mine[1], now)) {
    if (has_pass) admit(shadow, cell, now);
    return reported;
  }
  if (space == threadgroup_space && is_past(mine[0], now) && is_past(mine[1], now)) mine[1] = 0;
  else if (mine[0] | mine[1]) mine[1] = farther<space>(shadow, mine[0], mine[1], now);
  mine[0] = now;
  if (writes && !(now & atomic_bit)) cell[2] = cell[3] = 0;
  if (has_pass && !writes && is_covered<space>(mine[0], mine[1], now)) admit(shadow, cell, now);
  return reported;
}

// In place of the pages at an address, if there is one: not every system has an madvise that makes zeros of them.
void *map_zeros(size_t bytes, void *at = nullptr) {
  const int flags = MAP_PRIVATE | MAP_ANON | MAP_NORESERVE | (at ? MAP_FIXED : 0);
  void *memory = mmap(at, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

bool make_cells(Region *region) {
  region->used = false;
  region->mapped_bytes = (region->end - region->base + 3) / 4 * word_bytes(region->shift);
  region->cells = region->mapped_bytes ? static_cast<Slot *>(map_zeros(region->mapped_bytes)) : nullptr;
  return region->cells || !region->mapped_bytes;
}

void drop_cells(Region *region) {
  if (region->cells) munmap(region->cells, region->mapped_bytes);
  region->cells = nullptr;
}

uint32_t *small_word(const Region &region, uint64_t offset) {
  return reinterpret_cast<uint32_t *>(region.cells) + offset / 4 * word_bytes(region.shift) / sizeof(uint32_t);
}

uint32_t small_unit(const Region &region, uint64_t offset) { return offset % 4 >> region.shift; }

// The cell of a byte, also a small one.
void load(const Shadow *shadow, const Region &region, uint64_t offset, Slot *cell) {
  if (region.shift == largest_shift)
    memcpy(cell, region.cells + offset / 4 * slots_per_cell, slots_per_cell * sizeof(Slot));
  else
    load_cell(shadow->contexts[region.space], small_word(region, offset), region.shift, small_unit(region, offset),
              cell);
}

// When the numbers of contexts are used up, what is known of small cells is forgotten.
void make_room(Shadow *shadow, Space space) {
  for (uint32_t i = 0; i < shadow->n_regions; ++i) {
    Region &region = shadow->regions[i];
    if (region.space != space || region.shift == largest_shift || !region.cells) continue;
    if (!map_zeros(region.mapped_bytes, region.cells)) __builtin_trap();
    region.forgotten = true;
  }
  forget_contexts(&shadow->contexts[space]);
}

// Divides the cells of a region.
void divide(Shadow *shadow, Region *region, uint32_t shift) {
  Region finer = *region;
  finer.shift = shift;
  if (!make_cells(&finer)) __builtin_trap();
  Contexts *contexts = &shadow->contexts[region->space];
  const Slot none[slots_per_cell] = {};
  for (uint64_t offset = 0; region->used && offset < region->end - region->base; offset += uint64_t(1) << shift) {
    if (is_full(*contexts)) {
      finer.forgotten = true;
      break;
    }
    Slot cell[slots_per_cell];
    load(shadow, *region, offset, cell);
    if (cell[0] | cell[2])
      store_cell(contexts, small_word(finer, offset), shift, small_unit(finer, offset), none, cell);
  }
  drop_cells(region);
  *region = finer;
}

// Shows hooks the cells of threadgroup memory.
void show_arena(Shadow *shadow) {
  const Region &arena = shadow->regions[0];
  Glance &glance = shadow->glance;
  glance.arena = arena.begin;
  glance.arena_bytes = arena.shift == largest_shift ? arena.end - arena.begin - 16 : 0;
  glance.needed = shadow->needed;
  glance.stamps = shadow->stamps;
  glance.arena_states = arena.state;
}

// An access by the running thread. What one lane does for all that met counts as the first lane's.
template <Space space> inline Slot slot_of(Worker *w, const Access &access) {
  const uint32_t lane = w->elected ? w->lane & ~(simd_width - 1) : w->lane;
  const Slot slot = w->shadow->stamps[lane].slots[space] | site_number(w->shadow, access.site);
  return access.how & how_atomic ? slot | atomic_bit : slot;
}

template <Space space> inline void history(Worker *w, Region *region, const Access &access) {
  Shadow *shadow = w->shadow;
  if (!region->cells) {
    if (!(access.how & how_write)) {
      shadow->glance.constants = region->begin;
      shadow->glance.constant_bytes = region->end - region->begin;
      shadow->glance.constant_states = region->state;
      return;
    }
    shadow->glance.constant_bytes = 0;
    if (!make_cells(region)) __builtin_trap();
  }
  const uint64_t offset = access.address - region->base;
  const uint64_t unaligned = offset | access.bytes;
  if (unaligned & ((1u << region->shift) - 1)) {
    divide(shadow, region, unaligned & 1 ? 0 : 1);
    show_arena(shadow);
  }
  region->used = true;
  const Slot now = slot_of<space>(w, access);
  bool reported = false;
  const uint64_t end = offset + access.bytes;
  if (region->shift == largest_shift) {
    for (uint64_t cell = offset / 4; cell < end / 4; ++cell)
      reported |= touch_cell<space>(w, *region, region->cells + cell * slots_per_cell, access, now, !reported);
    return;
  }
  Contexts *contexts = &shadow->contexts[space];
  for (uint64_t at = offset; at < end; at += uint64_t(1) << region->shift) {
    if (is_full(*contexts)) make_room(shadow, space);
    Slot before[slots_per_cell], cell[slots_per_cell];
    load(shadow, *region, at, before);
    memcpy(cell, before, sizeof cell);
    reported |= touch_cell<space>(w, *region, cell, access, now, !reported);
    store_cell(contexts, small_word(*region, at), region->shift, small_unit(*region, at), before, cell);
  }
}

// Ends the submission before the access is made, by a fault.
[[noreturn]] void stop(Worker *w, const Region *region, const Access &access) {
  const Memory memory =
      region ? memory_at(w->shadow, *region, access) : Memory{access.address, access.bytes, nullptr, 0, memory_none};
  report(w->findings, found_out_of_bounds, Touch{}, touch_here(w, access.site, access.how), memory, 0);
  __builtin_trap();
}

// Whether all bytes are written; the common sizes without a loop.
inline bool all_written(const unsigned char *state, uint64_t bytes) {
  constexpr uint64_t each = 0x0101010101010101u * byte_written;
  uint64_t some = each;
  if (bytes == 4) memcpy(&some, state, 4);
  else if (bytes == 8) memcpy(&some, state, 8);
  else
    for (uint64_t i = 0; i < bytes; ++i)
      if (state[i] != byte_written) return false;
  return some == each;
}

inline void set_written(unsigned char *state, uint64_t bytes) {
  if (bytes == 4) memset(state, byte_written, 4);
  else memset(state, byte_written, bytes);
}

void initialised(Worker *w, const Region &region, const Access &access) {
  unsigned char *state = region.state + (access.address - region.begin);
  if (all_written(state, access.bytes)) return;
  if (memchr(state, byte_outside, access.bytes)) stop(w, &region, access);
  // What reads and writes reads first. A copy of an object contains its padding, so one written byte is enough.
  const bool reads = !(access.how & how_write) || (access.how & how_atomic && !(access.how & how_replaces));
  const bool none_written = !memchr(state, byte_written, access.bytes);
  if (reads && none_written)
    report(w->findings, found_uninitialised, Touch{}, touch_here(w, access.site, access.how),
           memory_at(w->shadow, region, access), 0);
  if (none_written || access.how & how_write) set_written(state, access.bytes);  // reported once for each byte
}

inline Region *region_at(Shadow *shadow, uintptr_t address) {
  const Region &last = shadow->regions[shadow->recent];
  if (address - last.begin < last.end - last.begin) return &shadow->regions[shadow->recent];
  for (uint32_t i = 0; i < shadow->n_regions; ++i)
    if (address - shadow->regions[i].begin < shadow->regions[i].end - shadow->regions[i].begin) {
      shadow->recent = i;
      return &shadow->regions[i];
    }
  return nullptr;
}

unsigned char *state_at(const Shadow *shadow, uintptr_t begin, uint64_t bytes) {
  for (uint32_t i = 0; i < shadow->n_tracked; ++i) {
    const Tracked &known = shadow->tracked[i];
    if (known.begin <= begin && begin + bytes <= known.end) return known.state + (begin - known.begin);
  }
  return nullptr;
}

bool is_own(const Shadow *shadow, uintptr_t begin, uint64_t bytes) {
  for (int i = 0; i < 3; ++i)
    if (begin - shadow->internal_begin[i] < shadow->internal_end[i] - shadow->internal_begin[i]) return true;
  for (uint32_t i = n_images.load(std::memory_order_acquire); i-- > 0;)
    if (begin - images[i].begin < images[i].end - images[i].begin && bytes <= images[i].end - begin) return true;
  return false;
}

// The region that an access is within; NULL for memory of the runtime that kernels may read.
inline Region *within(Worker *w, const Access &access) {
  Shadow *shadow = w->shadow;
  Region *region = region_at(shadow, access.address);
  if (!region) {
    if (!(access.how & how_write) && is_own(shadow, access.address, access.bytes)) return nullptr;
    stop(w, nullptr, access);
  }
  if (access.bytes > region->end - access.address) stop(w, region, access);
  return region;
}

inline void look(Worker *w, const Access &access) {
  Region *region = within(w, access);
  if (!region) return;
  if (region->state) initialised(w, *region, access);
  if (region->space == threadgroup_space) history<threadgroup_space>(w, region, access);
  else history<device_space>(w, region, access);
}

// As `look`, for what kernels access most: a word of threadgroup memory.
inline void look_at_word(Worker *w, const Access &access) {
  Region &arena = w->shadow->regions[0];
  const uint64_t offset = access.address - arena.begin;
  if (!all_bytes<4>(arena.state + offset, byte_written)) initialised(w, arena, access);
  arena.used = true;
  Slot *cell = arena.cells + offset / 4 * slots_per_cell;
  touch_cell<threadgroup_space>(w, arena, cell, access, slot_of<threadgroup_space>(w, access), true);
}

void look_at_local(Worker *w, const Access &access) {
  const LocalMemory &locals = w->shadow->locals;
  const LocalFault fault = local_access(locals, access.address, access.bytes, access.how & how_write);
  if (fault == local_fine) return;
  report(w->findings, fault == local_out_of_bounds ? found_out_of_bounds : found_uninitialised, Touch{},
         touch_here(w, access.site, access.how), local_at(locals, access.address, access.bytes), 0);
  if (fault == local_out_of_bounds) __builtin_trap();
}

void on_access(Worker *w, const void *address, uint64_t bytes, uint32_t how, const void *site) {
  settle(w);
  const uintptr_t at = uintptr_t(address);
  const Glance &glance = w->shadow->glance;
  if (bytes == 4 && at % 4 == 0 && at - glance.arena < glance.arena_bytes)
    return look_at_word(w, {at, bytes, how, site});
  if (!bytes) return;
  // The worker's own, and local variables.
  if (at - uintptr_t(w) < region_bytes) return look_at_local(w, {at, bytes, how, site});
  look(w, {at, bytes, how, site});
}

void on_atomic(Worker *w, const void *address, uint64_t bytes, uint32_t how, uint32_t order, const void *site) {
  on_access(w, address, bytes, how, site);
  Shadow *shadow = w->shadow;
  const Who who = {uint32_t(shadow->group), w->lane, 0};
  if (order & order_release)
    fence(&shadow->fences, shadow->passed, who, fenced_device | fenced_threadgroup, order_release, true);
  touch_flag(&shadow->fences, uintptr_t(address), who, how & how_write, how & how_replaces);
  if (order & order_acquire)
    fence(&shadow->fences, shadow->passed, who, fenced_device | fenced_threadgroup, order_acquire, true);
}

void on_fence(Worker *w, uint32_t flags, uint32_t order, uint32_t scope) {
  settle(w);
  Shadow *shadow = w->shadow;
  fence(&shadow->fences, shadow->passed, {uint32_t(shadow->group), w->lane, 0}, flags, order, scope == scope_device);
}

// Device counters are few bits: when one wraps, what this group did before is marked as older than anything.
void sweep(Shadow *shadow, uint32_t shift, uint32_t bits) {
  const Slot group = shadow->group & ((1u << group_bits) - 1), oldest = ((Slot(1) << bits) - 1) << shift;
  mark_contexts(&shadow->contexts[device_space], group, oldest);
  for (uint32_t i = 1; i < shadow->n_regions; ++i) {
    const Region &region = shadow->regions[i];
    if (region.shift != largest_shift) continue;
    for (size_t at = 0; region.cells && at < region.mapped_bytes / sizeof(Slot); ++at)
      if (region.cells[at] && region.cells[at] >> (64 - group_bits) == group) region.cells[at] |= oldest;
  }
}

void pass(Worker *w, uint32_t fenced, bool simdgroup) {
  Shadow *shadow = w->shadow;
  uint32_t *counts = simdgroup ? shadow->passed[w->lane].simdgroup : shadow->passed[w->lane].group;
  if (fenced & fenced_threadgroup) {
    ++counts[threadgroup_space];
    stamp(shadow, w->lane, threadgroup_space);
  }
  if (!(fenced & fenced_device)) return;
  const Layout layout = layouts[device_space];
  const uint32_t bits = simdgroup ? layout.simd_bits : layout.epoch_bits;
  const uint32_t laps = ++counts[device_space] / ((1u << bits) - 1);
  stamp(shadow, w->lane, device_space);
  if (laps <= shadow->swept[simdgroup]) return;
  shadow->swept[simdgroup] = laps;
  sweep(shadow, simdgroup ? simd_at : simd_at + layout.simd_bits, bits);
}

Touch first_at_barrier(const Worker *w) {
  const Shadow *shadow = w->shadow;
  return touch_of(w, shadow->barrier_lane, shadow->group, shadow->barrier_site, how_no_access);
}

void on_group_barrier(Worker *w, uint32_t flags, uint32_t id, const void *site) {
  settle(w);
  Shadow *shadow = w->shadow;
  if (!shadow->waiting++) {
    shadow->barrier_id = id;
    shadow->barrier_lane = w->lane;
    shadow->barrier_site = site;
  } else if (shadow->barrier_id != id) {
    report(w->findings, found_divergent_barrier, first_at_barrier(w), touch_here(w, site, how_no_access), Memory{}, 0);
  }
  pass(w, flags, false);
}

void on_simdgroup_barrier(Worker *w, uint32_t flags) {
  settle(w);
  pass(w, flags, true);
}

uint32_t existing_lanes(const Worker *w) {
  const uint32_t first = w->lane & ~(simd_width - 1), left = w->threads - first;
  return left >= simd_width ? ~0u : (1u << left) - 1;
}

void on_all_met(Worker *w, const void *site) {
  const uint32_t missing = existing_lanes(w) & ~w->met;
  if (missing && w->lane % simd_width == uint32_t(__builtin_ctz(w->met)))
    report(w->findings, found_divergent_simdgroup, Touch{}, touch_here(w, site, how_no_access), Memory{}, missing);
}

void on_lane_read(Worker *w, uint32_t lane, const void *site) {
  if (w->met >> lane & 1) return;
  report(w->findings, found_inactive_lane, Touch{}, touch_here(w, site, how_no_access), Memory{}, lane);
}

void on_report(Worker *w, FindingKind kind, const void *site, uint32_t how, const void *address, uint64_t bytes,
               uint64_t value) {
  report(w->findings, kind, Touch{}, touch_here(w, site, how),
         Memory{uint64_t(uintptr_t(address)), bytes, nullptr, 0, memory_none}, value);
}

// A variable as it is when a group begins.
void forget(const Shadow *shadow, const Variable &variable) {
  const Region &arena = shadow->regions[0];
  const uint64_t offset = variable.begin - arena.begin;
  memset(arena.state + offset, byte_unwritten, variable.bytes);
  const uint64_t first = offset / 4, words = (variable.bytes + offset % 4 + 3) / 4;
  unsigned char *cells = reinterpret_cast<unsigned char *>(arena.cells);
  memset(cells + first * word_bytes(arena.shift), 0, words * word_bytes(arena.shift));
  memset(shadow->needed + first, 0, words * sizeof(Slot));
}

void add_variable(Shadow *shadow, uintptr_t begin, uint64_t bytes, const char *name) {
  if (shadow->n_variables == max_variables) __builtin_trap();
  shadow->variables[shadow->n_variables++] = {begin, bytes, name};
}

void on_stored(Worker *w, const void *address, uint64_t bytes, const char *name) {
  Shadow *shadow = w->shadow;
  const Region &arena = shadow->regions[0];
  if (arena.state[uintptr_t(address) - arena.begin] != byte_outside) return;
  add_variable(shadow, uintptr_t(address), bytes, name);
  forget(shadow, shadow->variables[shadow->n_variables - 1]);
}

void on_local(Worker *w, const void *address, uint64_t bytes, LocalState state, const char *name) {
  declare_local(w->shadow->locals, uintptr_t(address), bytes, state, name);
}

constexpr CheckCalls calls = {on_access,  on_atomic,    on_fence,  on_group_barrier, on_simdgroup_barrier,
                              on_all_met, on_lane_read, on_report, on_stored,        on_local};

// Where only bounds are looked at: no memory has cells, and all that is within bounds counts as written.
void bounds_access(Worker *w, const void *address, uint64_t bytes, uint32_t how, const void *site) {
  const Access access = {uintptr_t(address), bytes, how, site};
  if (!bytes) return;
  if (access.address - uintptr_t(w) < region_bytes) return look_at_local(w, access);
  Shadow *shadow = w->shadow;
  const Region *region = within(w, access);
  if (!region) return;
  if (region->space == threadgroup_space) return initialised(w, *region, access);
  shadow->glance.recent[1] = shadow->glance.recent[0];
  shadow->glance.recent[0] = {region->begin, region->end - region->begin};
}
void bounds_atomic(Worker *w, const void *address, uint64_t bytes, uint32_t how, uint32_t, const void *site) {
  bounds_access(w, address, bytes, how, site);
}
void bounds_stored(Worker *w, const void *address, uint64_t bytes, const char *name) {
  unsigned char *state = w->shadow->regions[0].state + (uintptr_t(address) - w->shadow->regions[0].begin);
  if (*state != byte_outside) return;
  add_variable(w->shadow, uintptr_t(address), bytes, name);
  memset(state, byte_written, bytes);
}
void bounds_local(Worker *w, const void *address, uint64_t bytes, LocalState state, const char *name) {
  on_local(w, address, bytes, state == local_unwritten ? local_written : state, name);
}

constexpr CheckCalls bounds_calls = {
    bounds_access,
    bounds_atomic,
    [](Worker *, uint32_t, uint32_t, uint32_t) {},
    [](Worker *, uint32_t, uint32_t, const void *) {},
    [](Worker *, uint32_t) {},
    [](Worker *, const void *) {},
    [](Worker *, uint32_t, const void *) {},
    on_report,
    bounds_stored,
    bounds_local,
};

}  // namespace

bool open_shadow(Worker *w, uint32_t checks) {
  Shadow *shadow = static_cast<Shadow *>(aligned_alloc(alignof(Shadow), sizeof(Shadow)));
  Findings *findings = static_cast<Findings *>(calloc(1, sizeof(Findings)));
  w->shadow = shadow;
  w->findings = findings;
  w->checks = checks & check_bounds ? &bounds_calls : &calls;
  w->begin_group = &begin_group;
  w->group_met = &group_met;
  if (shadow) memset(static_cast<void *>(shadow), 0, sizeof *shadow);
  if (!shadow || !findings) return false;
  shadow->checks = checks;
  Region &arena = shadow->regions[0];
  arena = {uintptr_t(w->arena),
           uintptr_t(w->arena) + w->arena_bytes,
           uintptr_t(w->arena),
           nullptr,
           0,
           nullptr,
           largest_shift,
           threadgroup_space,
           false,
           false};
  arena.state = static_cast<unsigned char *>(calloc(w->arena_bytes, 1));
  shadow->needed = static_cast<Slot *>(calloc(w->arena_bytes / 4 + 1, sizeof(Slot)));
  if (!shadow->needed || !arena.state || !open_locals(&shadow->locals) || !make_cells(&arena)) return false;
  shadow->glance.local_states = shadow->locals.states;
  show_arena(shadow);
  return true;
}

void close_shadow(Worker *w) {
  if (w->shadow) {
    for (uint32_t i = 0; i < w->shadow->n_regions; ++i) drop_cells(&w->shadow->regions[i]);
    free(w->shadow->regions[0].state);
    free(w->shadow->needed);
    for (uint32_t i = 0; i < w->shadow->n_tracked; ++i) free(w->shadow->tracked[i].state);
    free(w->shadow->tracked);
    drop_fences(&w->shadow->fences);
    for (Contexts &contexts : w->shadow->contexts) drop_contexts(&contexts);
    close_locals(&w->shadow->locals);
  }
  free(w->shadow);
  free(w->findings);
}

void begin_dispatch(Worker *w, const Node *node) {
  Shadow *shadow = w->shadow;
  Region &arena = shadow->regions[0];
  for (uint32_t i = 0; i < shadow->n_variables; ++i) forget(shadow, shadow->variables[i]);
  if (arena.shift != largest_shift) {
    drop_cells(&arena);
    arena.shift = largest_shift;
    if (!make_cells(&arena)) __builtin_trap();
  }
  for (Contexts &contexts : shadow->contexts) forget_contexts(&contexts);
  show_arena(shadow);
  shadow->glance.constant_bytes = shadow->glance.recent[0].bytes = shadow->glance.recent[1].bytes = 0;
  shadow->n_regions = 1;
  shadow->recent = 0;
  shadow->n_sites = shadow->n_variables = 0;
  shadow->has_deferred = false;
  memset(shadow->site_index, 0, sizeof shadow->site_index);
  forget_flags(&shadow->fences);
  memset(arena.state, byte_outside, arena.end - arena.begin);
  const Dispatch &d = node->dispatch;
  const auto own = [shadow](int i, const void *begin, uint64_t bytes) {
    shadow->internal_begin[i] = uintptr_t(begin);
    shadow->internal_end[i] = uintptr_t(begin) + bytes;
  };
  own(0, &d, sizeof d);
  own(1, d.args, node->n_args * sizeof *d.args);
  own(2, d.shared_offsets, node->n_shared * sizeof *d.shared_offsets);
  for (uint32_t i = 0; i < node->n_shared; ++i)
    add_variable(shadow, arena.begin + d.shared_offsets[i], node->views[node->n_args + i], nullptr);
  if (shadow->checks & check_bounds)
    for (uint32_t i = 0; i < shadow->n_variables; ++i)
      memset(arena.state + (shadow->variables[i].begin - arena.begin), byte_written, shadow->variables[i].bytes);
  for (uint32_t i = 0; i < node->n_args; ++i) {
    const uint64_t bytes = node->views[i] & ~view_written;
    if (!bytes) continue;
    const uintptr_t begin = uintptr_t(d.args[i]), end = begin + bytes;
    // Overlapping arguments are one region.
    Region merged = {begin, end, begin, nullptr, 0, nullptr, largest_shift, device_space, false, false};
    bool writes = node->views[i] & view_written;
    for (uint32_t k = 1; k < shadow->n_regions;) {
      Region &other = shadow->regions[k];
      if (merged.end <= other.begin || other.end <= merged.begin) {
        ++k;
        continue;
      }
      if (other.begin < merged.begin) merged.begin = other.begin;
      if (other.end > merged.end) merged.end = other.end;
      writes |= other.cells != nullptr;
      drop_cells(&other);
      other = shadow->regions[--shadow->n_regions];
      k = 1;
    }
    merged.base = merged.begin & ~uintptr_t(3);
    const bool bounds_only = shadow->checks & check_bounds;
    merged.state = bounds_only ? nullptr : state_at(shadow, merged.begin, merged.end - merged.begin);
    if (writes && !bounds_only && !make_cells(&merged)) __builtin_trap();
    if (shadow->n_regions == max_regions) __builtin_trap();
    shadow->regions[shadow->n_regions++] = merged;
  }
}

void track(Shadow *shadow, uintptr_t begin, uint64_t bytes, const unsigned char *unwritten) {
  for (uint32_t i = 0; i < shadow->n_tracked; ++i)
    if (shadow->tracked[i].begin == begin) {
      free(shadow->tracked[i].state);
      shadow->tracked[i--] = shadow->tracked[--shadow->n_tracked];
    }
  if (!bytes) return;
  if (shadow->n_tracked == shadow->tracked_room) {
    const uint32_t room = shadow->tracked_room ? 2 * shadow->tracked_room : 64;
    Tracked *grown = static_cast<Tracked *>(realloc(shadow->tracked, room * sizeof(Tracked)));
    if (!grown) return;  // not tracked counts as written
    shadow->tracked = grown;
    shadow->tracked_room = room;
  }
  unsigned char *state = static_cast<unsigned char *>(malloc(bytes));
  if (!state) return;
  memset(state, byte_unwritten, bytes);
  for (uint64_t i = 0; unwritten && i < bytes; ++i) state[i] = unwritten[i] ? byte_unwritten : byte_written;
  shadow->tracked[shadow->n_tracked++] = {begin, begin + bytes, state};
}

void read_unwritten(const Shadow *shadow, uintptr_t begin, uint64_t bytes, unsigned char *unwritten) {
  const unsigned char *state = state_at(shadow, begin, bytes);
  for (uint64_t i = 0; i < bytes; ++i) unwritten[i] = state && state[i] == byte_unwritten;
}

void note_written(Shadow *shadow, uintptr_t begin, uint64_t bytes) {
  if (unsigned char *state = state_at(shadow, begin, bytes)) memset(state, byte_written, bytes);
}

void note_transfer(Shadow *shadow, const Node *node) {
  if (node->kind != kind_copy && node->kind != kind_fill) return;
  const Transfer &t = node->transfer;
  unsigned char *target = state_at(shadow, uintptr_t(t.target), t.bytes);
  const unsigned char *source = node->kind == kind_copy ? state_at(shadow, uintptr_t(t.source), t.bytes) : nullptr;
  if (target && source) memmove(target, source, t.bytes);  // a copy is as unwritten as what it copies
  else if (target) memset(target, byte_written, t.bytes);
}

void end_dispatch(Worker *w) {
  settle(w);
  drop_consequences(w->findings);
  Shadow *shadow = w->shadow;
  for (uint32_t i = 1; i < shadow->n_regions; ++i) drop_cells(&shadow->regions[i]);
  shadow->n_regions = 1;
}

void begin_group(Worker *w) {
  Shadow *shadow = w->shadow;
  if (shadow->checks & check_bounds) return;
  const Dispatch *d = w->dispatch;
  shadow->group = (uint64_t(w->group[2]) * d->groups[1] + w->group[1]) * d->groups[0] + w->group[0];
  memset(shadow->passed, 0, w->threads * sizeof(Passed));
  for (uint32_t lane = 0; lane < w->threads; ++lane) {
    stamp(shadow, lane, device_space);
    stamp(shadow, lane, threadgroup_space);
  }
  shadow->swept[0] = shadow->swept[1] = 0;
  shadow->waiting = 0;
  forget_group(&shadow->fences);
  for (uint32_t i = 0; i < shadow->n_variables; ++i) forget(shadow, shadow->variables[i]);
}

void group_met(Worker *w) {
  Shadow *shadow = w->shadow;
  if (!shadow->waiting) return;
  if (shadow->waiting < w->threads)
    report(w->findings, found_divergent_barrier, Touch{}, first_at_barrier(w), Memory{}, w->threads - shadow->waiting);
  shadow->waiting = 0;
}

void report_unwritten(Worker *w, const Node *node) {
  Shadow *shadow = w->shadow;
  if (!(shadow->checks & check_unwritten)) return;
  for (uint32_t i = 0; i < node->n_args; ++i) {
    const uint64_t bytes = node->views[i] & ~view_written;
    if (!bytes || !(node->views[i] & view_written)) continue;
    const uintptr_t begin = uintptr_t(node->dispatch.args[i]);
    const Region *region = region_at(shadow, begin);
    if (!region || region->forgotten) continue;
    uint64_t missing = 0, first = 0;
    for (uint64_t at = 0; at < bytes; ++at) {
      Slot cell[slots_per_cell] = {};
      if (region->cells) load(shadow, *region, begin + at - region->base, cell);
      if (cell[0]) continue;
      if (!missing++) first = at;
    }
    if (missing)
      report(w->findings, found_not_written, Touch{}, Touch{}, Memory{begin + first, 1, nullptr, i, memory_device},
             missing);
  }
}

void abandon_locals(Worker *w) { forget_locals(&w->shadow->locals); }

void add_image(uintptr_t begin, uintptr_t end) {
  static std::atomic<uint32_t> taken;
  const uint32_t at = taken.fetch_add(1);
  if (at >= max_images) return;
  images[at] = {begin, end};
  n_images.store(at + 1, std::memory_order_release);
}

}  // namespace __ost
