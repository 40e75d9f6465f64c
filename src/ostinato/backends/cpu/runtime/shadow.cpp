// Opening and closing a worker's shadow, and the begin and end of dispatches and groups.
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "check_calls.h"
#include "history.h"
#include "regions.h"

namespace __ost {

namespace {

// Cells of 4 bytes for threadgroup memory; false when memory is short.
bool make_arena_cells(Shadow *shadow) {
  Region &arena = shadow->regions[0];
  arena.shift = largest_shift;
  shadow->needed = static_cast<Slot *>(calloc((arena.end - arena.begin) / 4 + 1, sizeof(Slot)));
  return shadow->needed && make_cells(&arena);
}

}  // namespace

bool open_shadow(Worker *w, uint32_t checks) {
  Shadow *shadow = static_cast<Shadow *>(aligned_alloc(alignof(Shadow), sizeof(Shadow)));
  Findings *findings = static_cast<Findings *>(calloc(1, sizeof(Findings)));
  w->shadow = shadow;
  w->findings = findings;
  w->checks = calls_for(checks);
  w->begin_group = &begin_group;
  w->group_met = &group_met;
  if (shadow) memset(static_cast<void *>(shadow), 0, sizeof *shadow);
  if (!shadow || !findings) return false;
  shadow->checks = checks;
  Region &arena = shadow->regions[0];
  arena.begin = arena.base = arena.home = uintptr_t(w->arena);
  arena.end = arena.begin + w->arena_bytes;
  arena.space = threadgroup_space;
  arena.state = static_cast<unsigned char *>(calloc(w->arena_bytes, 1));
  if (!arena.state || !open_locals(&shadow->locals) || !make_arena_cells(shadow)) return false;
  if (checks & check_bounds) {
    shadow->arena_ends = static_cast<uint32_t *>(calloc(w->arena_bytes / arena_unit_bytes + 1, sizeof(uint32_t)));
    if (!shadow->arena_ends) return false;
    shadow->glance.arena_ends = shadow->arena_ends;
  }
  shadow->glance.local_states = shadow->locals.states;
  show_arena(shadow);
  return true;
}

void close_shadow(Worker *w) {
  if (w->shadow) {
    for (uint32_t i = 0; i < w->shadow->n_regions; ++i) drop_cells(&w->shadow->regions[i]);
    free(w->shadow->regions[0].state);
    free(w->shadow->needed);
    free(w->shadow->arena_ends);
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
    if (!make_arena_cells(shadow)) __builtin_trap();
  }
  for (Contexts &contexts : shadow->contexts) forget_contexts(&contexts);
  show_arena(shadow);
  hide_arguments(shadow);
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
  if (shadow->checks & check_bounds) {
    memset(shadow->arena_ends, 0, (arena.end - arena.begin) / arena_unit_bytes * sizeof(uint32_t));
    for (uint32_t i = 0; i < shadow->n_variables; ++i) open_variable(shadow, shadow->variables[i]);
  }
  place_arguments(shadow, node);
}

void end_dispatch(Worker *w) {
  settle(w);
  settle_missed(w->shadow, true);
  drop_consequences(w->findings);
  return_arguments(w->shadow);
}

void begin_group(Worker *w) {
  Shadow *shadow = w->shadow;
  if (shadow->checks & check_bounds) return;
  const Dispatch *d = w->dispatch;
  shadow->group = (uint64_t(w->group[2]) * d->groups[1] + w->group[1]) * d->groups[0] + w->group[0];
  begin_counts(w);
  shadow->waiting = 0;
  forget_group(&shadow->fences);
  settle_missed(shadow, false);
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
    const uint64_t bytes = view_bytes(node, i);
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
      report(w->findings, found_not_written, Touch{}, Touch{},
             Memory{at_home(*region, begin + first), 1, nullptr, i, memory_device}, missing);
  }
}

void abandon_locals(Worker *w) { forget_locals(&w->shadow->locals); }

}  // namespace __ost
