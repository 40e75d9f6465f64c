// Releases and acquires: sets that fences and atomic accesses hand on.
#include "fences.h"

#include <stdlib.h>
#include <string.h>

namespace __ost {
namespace {

Flag *find(Fences *fences, uintptr_t address, bool make) {
  if (make && 2 * (fences->n_flags + 1) > fences->flag_room) {
    const uint32_t room = fences->flag_room ? 2 * fences->flag_room : 64;
    Flag *old = fences->flags, *end = old + fences->flag_room;
    fences->flags = static_cast<Flag *>(calloc(room, sizeof(Flag)));
    if (!fences->flags) __builtin_trap();
    fences->flag_room = room;
    fences->n_flags = 0;
    for (Flag *flag = old; flag != end; ++flag)
      if (flag->address) find(fences, flag->address, true)->releases = flag->releases;
    free(old);
  }
  if (!fences->flag_room) return nullptr;
  for (uint64_t at = address * 0x9e3779b97f4a7c15u >> 20;; ++at) {
    Flag *flag = &fences->flags[at % fences->flag_room];
    if (flag->address == address) return flag;
    if (flag->address) continue;
    if (!make) return nullptr;
    flag->address = address;
    ++fences->n_flags;
    return flag;
  }
}

template <class Function> void for_each(Lanes *lanes, Function function) {
  for (uint32_t word = 0; word < max_lanes / 64; ++word)
    for (; lanes->bits[word]; lanes->bits[word] &= lanes->bits[word] - 1)
      function(word * 64 + uint32_t(__builtin_ctzll(lanes->bits[word])));
}

void mark(Lanes *lanes, uint32_t lane) { lanes->bits[lane / 64] |= uint64_t(1) << lane % 64; }

// When the group has passed a barrier for this memory, what its threads acquired before holds for all of them.
void share(Fences *fences, int space, uint32_t barriers) {
  GroupFences &group = fences->group[space];
  if (barriers <= group.barriers) return;
  group.barriers = barriers;
  for_each(&group.unshared, [fences, &group](uint32_t lane) {
    for (uint32_t kind = 0; kind < acquire_kinds; ++kind)
      join(&group.acquired[kind], fences->lanes[lane].acquired[kind]);
  });
}

}  // namespace

void fence(Fences *fences, const Passed *passed, Who who, uint32_t flags, uint32_t order, bool wide) {
  const uint32_t *barriers = passed[who.lane].group;
  LaneFences &lane = fences->lanes[who.lane];
  for (int space = 0; space < 2; ++space) share(fences, space, barriers[space]);
  if (order & order_acquire && lane.seen) {
    const uint32_t memory = flags & (fenced_device | fenced_threadgroup);
    join(&lane.acquired[memory | (wide ? wide_acquire : 0)], lane.seen);
    clear(&lane.seen);
    for (GroupFences &group : fences->group) mark(&group.unshared, who.lane);
    fences->has_acquired = true;
  }
  if (order & order_release) {
    const uint32_t device = flags & fenced_device ? barriers[0] + 1 : 0;
    const uint32_t threadgroup = flags & fenced_threadgroup ? barriers[1] + 1 : 0;
    const uint32_t counts[reaches] = {wide ? device : 0, device, threadgroup};
    const Releases *own = release_of(who.group, who.lane, counts);
    mark(&fences->used, who.lane);
    join(&lane.released, own);
    clear(&own);
    for (uint32_t kind = 0; kind < acquire_kinds; ++kind) {
      join(&lane.released, lane.acquired[kind]);
      join(&lane.released, fences->group[0].acquired[kind]);
    }
  }
}

void touch_flag(Fences *fences, uintptr_t address, Who who, bool writes, bool replaces) {
  LaneFences &lane = fences->lanes[who.lane];
  Flag *flag = find(fences, address, writes && lane.released);
  if (!flag) return;
  if (!replaces && flag->releases) {
    mark(&fences->used, who.lane);
    join(&lane.seen, flag->releases);
  }
  if (writes) {
    if (replaces) clear(&flag->releases);
    join(&flag->releases, lane.released);
  }
}

bool fenced(Fences *fences, Fenced memory, Who before, Who now) {
  const int space = memory == fenced_device ? 0 : 1;
  const bool is_own = before.group == now.group;
  const Reach reach = space ? threadgroup_to_group : is_own ? device_to_group : device_to_all;
  share(fences, space, now.barriers);
  for (uint32_t kind = 0; kind < acquire_kinds; ++kind) {
    if (!(kind & memory) || !(is_own || kind & wide_acquire)) continue;
    const Releases *acquired[] = {fences->lanes[now.lane].acquired[kind], fences->group[space].acquired[kind]};
    for (const Releases *set : acquired)
      if (covers(set, reach, before.group, before.lane, before.barriers)) return true;
  }
  return false;
}

void forget_group(Fences *fences) {
  fences->has_acquired = false;
  for_each(&fences->used, [fences](uint32_t lane) {
    LaneFences &of_lane = fences->lanes[lane];
    clear(&of_lane.released);
    clear(&of_lane.seen);
    for (const Releases *&acquired : of_lane.acquired) clear(&acquired);
  });
  for (GroupFences &group : fences->group) {
    for (const Releases *&acquired : group.acquired) clear(&acquired);
    group = {};
  }
}

void forget_flags(Fences *fences) {
  forget_group(fences);
  for (uint32_t i = 0; i < fences->flag_room; ++i) clear(&fences->flags[i].releases);
  if (fences->flag_room) memset(fences->flags, 0, fences->flag_room * sizeof(Flag));
  fences->n_flags = 0;
}

void drop_fences(Fences *fences) {
  forget_flags(fences);
  free(fences->flags);
}

}  // namespace __ost
