// What hooks call: all checks, or bounds alone.
#include "check_calls.h"

#include <string.h>

#include "arguments.h"
#include "history.h"
#include "regions.h"

namespace __ost {
namespace {

void on_atomic(Worker *w, const void *address, uint64_t bytes, uint32_t how, uint32_t order, const void *site) {
  check_access(w, address, bytes, how, site);
  Shadow *shadow = w->shadow;
  const Who who = {shadow->group, w->lane, 0};
  if (order & order_release)
    fence(&shadow->fences, shadow->passed, who, fenced_device | fenced_threadgroup, order_release, true);
  touch_flag(&shadow->fences, uintptr_t(address), who, how & how_write, how & how_replaces);
  if (order & order_acquire)
    fence(&shadow->fences, shadow->passed, who, fenced_device | fenced_threadgroup, order_acquire, true);
}

void on_fence(Worker *w, uint32_t flags, uint32_t order, uint32_t scope) {
  settle(w);
  Shadow *shadow = w->shadow;
  fence(&shadow->fences, shadow->passed, {shadow->group, w->lane, 0}, flags, order, scope == scope_device);
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
  count_barrier(w, flags, false);
}

void on_simdgroup_barrier(Worker *w, uint32_t flags) {
  settle(w);
  count_barrier(w, flags, true);
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
               uint64_t value, uint64_t other) {
  const Region *region = kind == found_misaligned ? region_at(w->shadow, value) : nullptr;
  if (region && region->space == device_space) value = at_home(*region, value);
  report(w->findings, kind, Touch{}, touch_here(w, site, how),
         Memory{uint64_t(uintptr_t(address)), bytes, nullptr, other, memory_none}, value);
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

constexpr CheckCalls all_calls = {check_access, on_atomic,    on_fence,  on_group_barrier, on_simdgroup_barrier,
                                  on_all_met,   on_lane_read, on_report, on_stored,        on_local};

// Where only bounds are looked at: no memory has cells, and all that is within bounds counts as written.
void bounds_access(Worker *w, const void *address, uint64_t bytes, uint32_t how, const void *site) {
  const KernelAccess access = {uintptr_t(address), bytes, how, site};
  if (!bytes) return;
  if (access.address - uintptr_t(w) < region_bytes) return look_at_local(w, access);
  Shadow *shadow = w->shadow;
  const Region *region = within(w, access);
  if (!region) return;
  if (region->space == threadgroup_space) return initialised(w, *region, access);
  show_argument(shadow, *region, access.address);
}
void bounds_atomic(Worker *w, const void *address, uint64_t bytes, uint32_t how, uint32_t, const void *site) {
  bounds_access(w, address, bytes, how, site);
}
void bounds_stored(Worker *w, const void *address, uint64_t bytes, const char *name) {
  Shadow *shadow = w->shadow;
  const Region &arena = shadow->regions[0];
  if (arena.state[uintptr_t(address) - arena.begin] != byte_outside) return;
  add_variable(shadow, uintptr_t(address), bytes, name);
  open_variable(shadow, shadow->variables[shadow->n_variables - 1]);
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

Touch first_at_barrier(const Worker *w) {
  const Shadow *shadow = w->shadow;
  return touch_of(w, shadow->barrier_lane, shadow->group, shadow->barrier_site, how_no_access);
}

const CheckCalls *calls_for(uint32_t checks) { return checks & check_bounds ? &bounds_calls : &all_calls; }

}  // namespace __ost
