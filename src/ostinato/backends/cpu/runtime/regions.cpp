// Regions, variables of threadgroup memory, and tracked memory of the device.
#include "regions.h"

#include <stdlib.h>

#include "arguments.h"

namespace __ost {
namespace {

constexpr uint32_t max_images = 4096;

struct Image { uintptr_t begin, end; };
Image images[max_images];
std::atomic<uint32_t> n_images;

inline void set_written(unsigned char *state, uint64_t bytes) {
  if (bytes == 4) memset(state, byte_written, 4);
  else memset(state, byte_written, bytes);
}

void miss(Shadow *shadow, unsigned char *state, uint64_t bytes, Finding *finding) {
  if (shadow->n_missed == max_missed) return set_written(state, bytes);
  memset(state, byte_missed, bytes);
  shadow->missed[shadow->n_missed++] = {state, bytes, finding};
}

}  // namespace

Memory memory_at(const Shadow *shadow, const Region &region, const KernelAccess &access) {
  Memory memory = {at_home(region, access.address), access.bytes, nullptr, 0, memory_device};
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

void stop(Worker *w, const Region *region, const KernelAccess &access) {
  Overrun overrun = {};
  Memory memory;
  if (region && region->space == threadgroup_space) {
    memory = memory_at(w->shadow, *region, access);
  } else {
    overrun = nearest_argument(w->shadow, access.address, access.bytes);
    memory = {overrun.address, access.bytes, nullptr, 0, memory_none};
  }
  report(w->findings, found_out_of_bounds, Touch{}, touch_here(w, access.site, access.how), memory, overrun.argument);
  __builtin_trap();
}

void check_written(Worker *w, const Region &region, const KernelAccess &access) {
  unsigned char *state = region.state + (access.address - region.begin);
  if (memchr(state, byte_outside, access.bytes)) stop(w, &region, access);
  // What reads and writes reads first. A copy of an object contains its padding, so one written byte is enough.
  const bool reads = !(access.how & how_write) || (access.how & how_atomic && !(access.how & how_replaces));
  const bool none_known = !memchr(state, byte_written, access.bytes) && !memchr(state, byte_missed, access.bytes);
  if (reads && none_known) {
    Finding *finding = report(w->findings, found_uninitialised, Touch{}, touch_here(w, access.site, access.how),
                              memory_at(w->shadow, region, access), 0);
    miss(w->shadow, state, access.bytes, finding);
  }
  if (access.how & how_write) set_written(state, access.bytes);
}

void settle_missed(Shadow *shadow, bool of_dispatch) {
  const Region &arena = shadow->regions[0];
  uint32_t kept = 0;
  for (uint32_t i = 0; i < shadow->n_missed; ++i) {
    const Missed &missed = shadow->missed[i];
    if (!of_dispatch && !(missed.state - arena.state >= 0 && missed.state - arena.state < arena.end - arena.begin)) {
      shadow->missed[kept++] = missed;
      continue;
    }
    if (missed.finding && memchr(missed.state, byte_missed, missed.bytes)) missed.finding->value = 1;
    set_written(missed.state, missed.bytes);  // reported once for each byte
  }
  shadow->n_missed = kept;
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

void add_variable(Shadow *shadow, uintptr_t begin, uint64_t bytes, const char *name) {
  if (shadow->n_variables == max_variables) __builtin_trap();
  shadow->variables[shadow->n_variables++] = {begin, bytes, name};
}

void open_variable(Shadow *shadow, const Variable &variable) {
  const Region &arena = shadow->regions[0];
  const uint64_t first = variable.begin - arena.begin, end = first + variable.bytes;
  memset(arena.state + first, byte_written, variable.bytes);
  for (uint64_t unit = (first + arena_unit_bytes - 1) / arena_unit_bytes; unit * arena_unit_bytes < end; ++unit)
    shadow->arena_ends[unit] = uint32_t(end);
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

void add_image(uintptr_t begin, uintptr_t end) {
  static std::atomic<uint32_t> taken;
  const uint32_t at = taken.fetch_add(1);
  if (at >= max_images) return;
  images[at] = {begin, end};
  n_images.store(at + 1, std::memory_order_release);
}

}  // namespace __ost
