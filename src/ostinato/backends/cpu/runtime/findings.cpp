// The table of findings: folding, and the positions of threads.
#include "findings.h"

namespace __ost {

bool is_note(FindingKind kind) {
  return kind == found_lockstep || kind == found_inactive_lane || kind == found_shift || kind == found_not_written;
}

Finding *report(Findings *table, FindingKind kind, const Touch &first, const Touch &second, const Memory &memory,
                uint64_t value) {
  for (uint32_t i = 0; i < table->count; ++i) {
    Finding &known = table->records[i];
    if (known.kind == kind && known.node == table->node && known.first.site == first.site &&
        known.second.site == second.site) {
      ++known.count;
      return &known;
    }
  }
  if (!is_note(kind)) ++table->errors;
  const Finding finding = {kind, table->node, first, second, memory, value, 1};
  if (table->count < max_findings) {
    table->records[table->count] = finding;
    return &table->records[table->count++];
  }
  ++table->lost;
  if (is_note(kind)) return nullptr;
  for (Finding &known : table->records) {  // an error takes a note's place
    if (!is_note(FindingKind(known.kind))) continue;
    known = finding;
    return &known;
  }
  return nullptr;
}

void drop_consequences(Findings *table) {
  const auto races_at = [table](uint64_t site) {
    for (uint32_t i = 0; i < table->count; ++i) {
      const Finding &finding = table->records[i];
      if (finding.kind <= found_lockstep && finding.node == table->node &&
          (finding.first.site == site || finding.second.site == site))
        return true;
    }
    return false;
  };
  uint32_t kept = 0;
  for (uint32_t i = 0; i < table->count; ++i) {
    const Finding &finding = table->records[i];
    if (finding.kind == found_uninitialised && finding.node == table->node && !finding.value &&
        races_at(finding.second.site))
      --table->errors;
    else table->records[kept++] = finding;
  }
  table->count = kept;
}

Touch touch_of(const Worker *w, uint32_t lane, uint64_t group, const void *site, uint32_t how) {
  const Dispatch *d = w->dispatch;
  Touch touch = {uint64_t(uintptr_t(site)), {}, {}, how, lane};
  touch.group[0] = uint32_t(group % d->groups[0]);
  touch.group[1] = uint32_t(group / d->groups[0] % d->groups[1]);
  touch.group[2] = uint32_t(group / d->groups[0] / d->groups[1]);
  uint32_t size[3];  // as the grid clips this group
  for (int axis = 0; axis < 3; ++axis) {
    const uint32_t start = touch.group[axis] * d->group_size[axis], left = d->grid[axis] - start;
    size[axis] = left < d->group_size[axis] ? left : d->group_size[axis];
  }
  const uint32_t local[3] = {lane % size[0], lane / size[0] % size[1], lane / size[0] / size[1]};
  for (int axis = 0; axis < 3; ++axis) touch.thread[axis] = touch.group[axis] * d->group_size[axis] + local[axis];
  return touch;
}

Touch touch_here(const Worker *w, const void *site, uint32_t how) {
  const Dispatch *d = w->dispatch;
  const uint64_t group = (uint64_t(w->group[2]) * d->groups[1] + w->group[1]) * d->groups[0] + w->group[0];
  return touch_of(w, w->lane, group, site, how);
}

}  // namespace __ost
