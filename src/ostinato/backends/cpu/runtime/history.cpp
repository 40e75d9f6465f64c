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
#include "history.h"

#include <sys/mman.h>

#include <stdlib.h>
#include <string.h>

#include "regions.h"

namespace __ost {
namespace {

// A counter in its bits of a slot. That of device memory leaves out the last value, which is older than all others.
uint32_t counted(uint32_t count, Space space, uint32_t bits) {
  return space == device_space ? count % ((1u << bits) - 1) : count & ((1u << bits) - 1);
}

// Permits end with a barrier of the group, those of a simdgroup also with one of the simdgroup. None is zero.
Slot group_permit(Slot stamp) { return (stamp & epoch_mask<threadgroup_space>) | 1; }
Slot simdgroup_permit(Slot stamp) {
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
  known.group_permit = group_permit(slot);
  known.simdgroup_permit = simdgroup_permit(slot);
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

// The upper bits of a group's number are not kept; it is one that has run.
uint64_t group_of(const Shadow *shadow, Space space, const Parts &p) {
  if (space == threadgroup_space) return shadow->group;
  const uint64_t lap = uint64_t(1) << group_bits, group = (shadow->group & ~(lap - 1)) | p.group;
  return group > shadow->group ? group - lap : group;
}

bool fences_order(Shadow *shadow, Space space, Slot before, Slot now) {
  const Parts p = parts(before, space);
  const uint32_t lane = parts(now, space).lane;
  const Fenced memory = space == device_space ? fenced_device : fenced_threadgroup;
  return fenced(&shadow->fences, memory, {group_of(shadow, space, p), p.lane, p.epoch},
                {shadow->group, lane, shadow->passed[lane].group[space]});
}

template <Space space> inline Distance distance(Shadow *shadow, Slot before, Slot now) {
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
  return shadow->fences.has_acquired && fences_order(shadow, space, before, now) ? ordered : apart;
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
  const uint32_t atomic = slot & atomic_bit ? how_atomic : 0;
  return touch_of(w, p.lane, group_of(shadow, space, p), shadow->sites[p.site], how | atomic);
}

// Which of two earlier accesses to keep beside a new one.
template <Space space> inline Slot farther(Shadow *shadow, Slot a, Slot b, Slot now) {
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

[[gnu::noinline, gnu::cold]] void conflict(Worker *w, const Region &region, const KernelAccess &access, Slot before,
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
    needed_at(shadow, cell) = (cell[2] ^ cell[3]) & simdgroup_mask ? group_permit(now) : simdgroup_permit(now);
}

// One cell; true when a conflict was reported, so that the others of the access need not be.
template <Space space>
inline bool touch_cell(Worker *w, const Region &region, Slot *cell, const KernelAccess &access, Slot now,
                       bool report_it) {
  Shadow *shadow = w->shadow;
  const bool writes = access.how & how_write;
  const bool has_permit = space == threadgroup_space && region.shift == largest_shift;
  Slot *mine = cell + (writes ? 0 : 2);
  if (has_permit && writes) needed_at(shadow, cell) = 0;
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
    if (has_permit) admit(shadow, cell, now);
    return reported;
  }
  if (space == threadgroup_space && is_past(mine[0], now) && is_past(mine[1], now)) mine[1] = 0;
  else if (mine[0] | mine[1]) mine[1] = farther<space>(shadow, mine[0], mine[1], now);
  mine[0] = now;
  if (writes && !(now & atomic_bit)) cell[2] = cell[3] = 0;
  if (has_permit && !writes && is_covered<space>(mine[0], mine[1], now)) admit(shadow, cell, now);
  return reported;
}

// Larger histories have small pages: of memory that large a kernel may write a little here and there, and each write
// would take a large page.
constexpr size_t most_in_large_pages = 64 << 20;

// In place of the pages at an address, if there is one: not every system has an madvise that makes zeros of them.
void *map_zeros(size_t bytes, void *at = nullptr) {
  const int flags = MAP_PRIVATE | MAP_ANON | MAP_NORESERVE | (at ? MAP_FIXED : 0);
  void *memory = mmap(at, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
#if defined(MADV_HUGEPAGE)
  // Small memory is written from one end to the other, mostly.
  madvise(memory, bytes, bytes <= most_in_large_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
#endif
  return memory;
}

uint32_t *small_word(const Region &region, uint64_t offset) {
  return reinterpret_cast<uint32_t *>(region.cells) + offset / 4 * word_bytes(region.shift) / sizeof(uint32_t);
}

uint32_t small_unit(const Region &region, uint64_t offset) { return offset % 4 >> region.shift; }

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
  if (region->space == device_space) return;
  free(shadow->needed);  // hooks no longer ask for it
  shadow->needed = nullptr;
}

// An access by the running thread. What one lane does for all that met counts as the first lane's.
template <Space space> inline Slot slot_of(Worker *w, const KernelAccess &access) {
  const uint32_t lane = w->elected ? w->lane & ~(simd_width - 1) : w->lane;
  const Slot slot = w->shadow->stamps[lane].slots[space] | site_number(w->shadow, access.site);
  return access.how & how_atomic ? slot | atomic_bit : slot;
}

template <Space space> inline void history(Worker *w, Region *region, const KernelAccess &access) {
  Shadow *shadow = w->shadow;
  if (!region->cells) {
    if (!(access.how & how_write)) {
      show_argument(shadow, *region, access.address);
      return;
    }
    hide_arguments(shadow);
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

inline void look(Worker *w, const KernelAccess &access) {
  Region *region = within(w, access);
  if (!region) return;
  if (region->state) initialised(w, *region, access);
  if (region->space == threadgroup_space) history<threadgroup_space>(w, region, access);
  else history<device_space>(w, region, access);
}

// As `look`, for what kernels access most: a word of threadgroup memory.
inline void look_at_word(Worker *w, const KernelAccess &access) {
  Region &arena = w->shadow->regions[0];
  const uint64_t offset = access.address - arena.begin;
  if (!all_bytes<4>(arena.state + offset, byte_written)) initialised(w, arena, access);
  arena.used = true;
  Slot *cell = arena.cells + offset / 4 * slots_per_cell;
  touch_cell<threadgroup_space>(w, arena, cell, access, slot_of<threadgroup_space>(w, access), true);
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

}  // namespace

void compare_deferred(Worker *w) {
  Shadow *shadow = w->shadow;
  shadow->has_deferred = false;
  const Deferred &d = shadow->deferred;
  if (memcmp(d.address, d.before, d.bytes) == 0) return;
  report(w->findings, d.kind, d.first, d.second, d.memory, 0);
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

void load(const Shadow *shadow, const Region &region, uint64_t offset, Slot *cell) {
  if (region.shift == largest_shift)
    memcpy(cell, region.cells + offset / 4 * slots_per_cell, slots_per_cell * sizeof(Slot));
  else
    load_cell(shadow->contexts[region.space], small_word(region, offset), region.shift, small_unit(region, offset),
              cell);
}

void show_arena(Shadow *shadow) {
  const Region &arena = shadow->regions[0];
  Glance &glance = shadow->glance;
  glance.arena = arena.begin;
  glance.arena_bytes = arena.shift == largest_shift ? arena.end - arena.begin - 16 : 0;
  glance.needed = shadow->needed;
  glance.stamps = shadow->stamps;
  glance.arena_states = arena.state;
}

void look_at_local(Worker *w, const KernelAccess &access) {
  const LocalMemory &locals = w->shadow->locals;
  const LocalFault fault = local_access(locals, access.address, access.bytes, access.how & how_write);
  if (fault == local_fine) return;
  report(w->findings, fault == local_out_of_bounds ? found_out_of_bounds : found_uninitialised, Touch{},
         touch_here(w, access.site, access.how), local_at(locals, access.address, access.bytes), 0);
  if (fault == local_out_of_bounds) __builtin_trap();
}

void check_access(Worker *w, const void *address, uint64_t bytes, uint32_t how, const void *site) {
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

void count_barrier(Worker *w, uint32_t fenced, bool simdgroup) {
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

void begin_counts(Worker *w) {
  Shadow *shadow = w->shadow;
  memset(shadow->passed, 0, w->threads * sizeof(Passed));
  for (uint32_t lane = 0; lane < w->threads; ++lane) {
    stamp(shadow, lane, device_space);
    stamp(shadow, lane, threadgroup_space);
  }
  shadow->swept[0] = shadow->swept[1] = 0;
}

void forget(const Shadow *shadow, const Variable &variable) {
  const Region &arena = shadow->regions[0];
  const uint64_t offset = variable.begin - arena.begin;
  memset(arena.state + offset, byte_unwritten, variable.bytes);
  const uint64_t first = offset / 4, words = (variable.bytes + offset % 4 + 3) / 4;
  unsigned char *cells = reinterpret_cast<unsigned char *>(arena.cells);
  memset(cells + first * word_bytes(arena.shift), 0, words * word_bytes(arena.shift));
  if (shadow->needed) memset(shadow->needed + first, 0, words * sizeof(Slot));
}

}  // namespace __ost
