// The memory that the kernels of a dispatch may access, and which of its bytes were written.
#ifndef OSTINATO_REGIONS_H
#define OSTINATO_REGIONS_H

#include <string.h>

#include "shadow_parts.h"

namespace [[gnu::visibility("hidden")]] __ost {

// What lies at an access, for a finding about it.
Memory memory_at(const Shadow *, const Region &, const KernelAccess &);

// Ends the submission before the access is made, by a fault.
[[noreturn]] void stop(Worker *, const Region *, const KernelAccess &);

// The bytes whose writes are known, from the first one on; NULL where that is not so.
unsigned char *state_at(const Shadow *, uintptr_t begin, uint64_t bytes);

// Whether it is memory of the runtime that kernels may read.
bool is_own(const Shadow *, uintptr_t begin, uint64_t bytes);

void add_variable(Shadow *, uintptr_t begin, uint64_t bytes, const char *name);
// Where only bounds are looked at: lets hooks know a variable.
void open_variable(Shadow *, const Variable &);

// Lets hooks know that an argument was accessed, and has them forget all.
inline void show_argument(Shadow *shadow, const Region &region, uintptr_t address) {
  shadow->glance.spans[span_place(address)] = {region.begin, region.end};
  shadow->glance.span_states[span_place(address)] = region.state;
}
inline void hide_arguments(Shadow *shadow) { memset(shadow->glance.spans, 0, sizeof shadow->glance.spans); }

// An access of memory of which not all bytes are written.
void check_written(Worker *, const Region &, const KernelAccess &);
// At the end of a group, and of a dispatch: reads of memory that nobody has written since are what no race explains.
void settle_missed(Shadow *, bool of_dispatch);

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

inline void initialised(Worker *w, const Region &region, const KernelAccess &access) {
  if (!all_written(region.state + (access.address - region.begin), access.bytes)) check_written(w, region, access);
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

// The region that an access is within; NULL for memory of the runtime that kernels may read.
inline Region *within(Worker *w, const KernelAccess &access) {
  Shadow *shadow = w->shadow;
  Region *region = region_at(shadow, access.address);
  if (!region) {
    if (!(access.how & how_write) && is_own(shadow, access.address, access.bytes)) return nullptr;
    stop(w, nullptr, access);
  }
  if (access.bytes > region->end - access.address) stop(w, region, access);
  return region;
}

}  // namespace __ost

#endif
