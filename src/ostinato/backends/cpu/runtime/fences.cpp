// Releases and acquires: lists that fences and atomic accesses hand on.
#include "fences.h"

#include <stdlib.h>
#include <string.h>

namespace __ost {
namespace {

template <class T> void append(T *&at, uint32_t &count, uint32_t &room, const T &item) {
  if (count == room) {
    room = room ? 2 * room : 8;
    at = static_cast<T *>(realloc(at, room * sizeof(T)));
    if (!at) __builtin_trap();
  }
  at[count++] = item;
}

void add(ReleasedList *list, const Released &item) {
  for (uint32_t i = 0; i < list->count; ++i) {
    Released &known = list->at[i];
    if (known.group == item.group && known.lane == item.lane && known.flags == item.flags && known.wide == item.wide) {
      known = item;
      return;
    }
  }
  append(list->at, list->count, list->room, item);
}

void join(ReleasedList *list, const ReleasedList &more) {
  for (uint32_t i = 0; i < more.count; ++i) add(list, more.at[i]);
}

Flag *find(Fences *fences, uintptr_t address, bool make) {
  if (make && 2 * (fences->n_flags + 1) > fences->flag_room) {
    const uint32_t room = fences->flag_room ? 2 * fences->flag_room : 64;
    Flag *old = fences->flags, *end = old + fences->flag_room;
    fences->flags = static_cast<Flag *>(calloc(room, sizeof(Flag)));
    if (!fences->flags) __builtin_trap();
    fences->flag_room = room;
    fences->n_flags = 0;
    for (Flag *flag = old; flag != end; ++flag)
      if (flag->address) find(fences, flag->address, true)->list = flag->list;
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

void use(Fences *fences, uint32_t lane) { fences->used[lane / 64] |= uint64_t(1) << lane % 64; }

}  // namespace

void fence(Fences *fences, const Passed *passed, Who who, uint32_t flags, uint32_t order, bool wide) {
  const Passed &counts = passed[who.lane];
  if (order & order_acquire) {
    ReleasedList &seen = fences->seen[who.lane];
    for (uint32_t i = 0; i < seen.count; ++i)
      append(fences->acquired, fences->n_acquired, fences->acquired_room,
             Acquired{seen.at[i], who.lane, {counts.group[0], counts.group[1]}, flags, wide});
    seen.count = 0;
  }
  if (order & order_release) {
    ReleasedList &released = fences->released[who.lane];
    use(fences, who.lane);
    add(&released, {who.group, who.lane, {counts.group[0], counts.group[1]}, flags, wide});
    for (uint32_t i = 0; i < fences->n_acquired; ++i) {
      const Acquired &acquired = fences->acquired[i];
      const bool visible = acquired.lane == who.lane || acquired.epoch[0] < counts.group[0];
      if (visible) add(&released, acquired.released);
    }
  }
}

void touch_flag(Fences *fences, uintptr_t address, Who who, bool writes, bool replaces) {
  const ReleasedList &released = fences->released[who.lane];
  Flag *flag = find(fences, address, writes && released.count);
  if (!flag) return;
  if (!replaces && flag->list.count) {
    use(fences, who.lane);
    join(&fences->seen[who.lane], flag->list);
  }
  if (writes) {
    if (replaces) flag->list.count = 0;
    join(&flag->list, released);
  }
}

bool fenced(const Fences *fences, Fenced memory, Who before, Who now) {
  const int space = memory == fenced_device ? 0 : 1;
  for (uint32_t i = 0; i < fences->n_acquired; ++i) {
    const Acquired &acquired = fences->acquired[i];
    const Released &released = acquired.released;
    if (released.group != before.group || !(released.flags & acquired.flags & memory)) continue;
    if (before.group != now.group && !(released.wide && acquired.wide)) continue;
    const bool was_released =
        before.epoch < released.epoch[space] || (before.lane == released.lane && before.epoch == released.epoch[space]);
    if (was_released && (acquired.lane == now.lane || now.epoch > acquired.epoch[space])) return true;
  }
  return false;
}

void forget_group(Fences *fences) {
  fences->n_acquired = 0;
  for (uint32_t word = 0; word < max_lanes / 64; ++word)
    for (uint64_t rest = fences->used[word]; rest; rest &= rest - 1) {
      const uint32_t lane = word * 64 + uint32_t(__builtin_ctzll(rest));
      fences->released[lane].count = fences->seen[lane].count = 0;
    }
  memset(fences->used, 0, sizeof fences->used);
}

void forget_flags(Fences *fences) {
  forget_group(fences);
  for (uint32_t i = 0; i < fences->flag_room; ++i) free(fences->flags[i].list.at);
  if (fences->flag_room) memset(fences->flags, 0, fences->flag_room * sizeof(Flag));
  fences->n_flags = 0;
}

void drop_fences(Fences *fences) {
  forget_flags(fences);
  for (uint32_t lane = 0; lane < max_lanes; ++lane) {
    free(fences->released[lane].at);
    free(fences->seen[lane].at);
  }
  free(fences->acquired);
  free(fences->flags);
}

}  // namespace __ost
