// Slots in 32 bits, and the contexts that they name.
#include "small_cells.h"

#include <stdlib.h>
#include <string.h>

namespace __ost {
namespace {

constexpr uint32_t context_bits = 31 - lane_bits;
constexpr uint32_t max_contexts = 1u << context_bits;
constexpr uint32_t first_room = 1024;
// Of a word in single bytes: the place of its second write, and the bit in the first write of each byte that it wrote.
constexpr uint32_t shared_write = 12, has_second = 1u << 31;

uint32_t place_of(const Contexts &contexts, Slot context) {
  // The number of the group is in the upper bits, which a product hands only upwards.
  return uint32_t((context ^ context >> 32) * 0x9e3779b97f4a7c15u >> 40) & (2 * contexts.room - 1);
}

void grow(Contexts *contexts) {
  contexts->room = contexts->room ? 2 * contexts->room : first_room;
  contexts->known = static_cast<Slot *>(realloc(contexts->known, contexts->room * sizeof(Slot)));
  free(contexts->index);
  contexts->index = static_cast<uint32_t *>(calloc(2 * size_t(contexts->room), sizeof(uint32_t)));
  if (!contexts->known || !contexts->index) __builtin_trap();
  if (!contexts->count) contexts->known[contexts->count++] = 0;
  for (uint32_t number = 1; number < contexts->count; ++number) {
    uint32_t at = place_of(*contexts, contexts->known[number]);
    while (contexts->index[at]) at = (at + 1) & (2 * contexts->room - 1);
    contexts->index[at] = number;
  }
}

uint32_t packed(Contexts *contexts, Slot slot) {
  if (!slot) return 0;
  if (contexts->count == contexts->room) grow(contexts);
  const Slot context = slot & ~lane_mask;
  uint32_t at = place_of(*contexts, context);
  while (contexts->index[at] && contexts->known[contexts->index[at]] != context)
    at = (at + 1) & (2 * contexts->room - 1);
  if (!contexts->index[at]) {
    contexts->known[contexts->count] = context;
    contexts->index[at] = contexts->count++;
  }
  return uint32_t((slot & lane_mask) >> lane_at) << context_bits | contexts->index[at];
}

Slot unpacked(const Contexts &contexts, uint32_t small) {
  small &= ~has_second;
  return small ? contexts.known[small & (max_contexts - 1)] | Slot(small >> context_bits) << lane_at : 0;
}

// Where a slot of a cell lies.
uint32_t place(uint32_t shift, uint32_t unit, uint32_t i) {
  if (shift) return unit * slots_per_cell + i;
  return i == 0 ? unit : i == 1 ? shared_write : 4 * (i - 1) + unit;
}

}  // namespace

bool is_full(const Contexts &contexts) { return contexts.count + slots_per_cell > max_contexts; }

void forget_contexts(Contexts *contexts) {
  if (contexts->count <= 1) return;
  memset(contexts->index, 0, 2 * size_t(contexts->room) * sizeof(uint32_t));
  contexts->count = 1;
}

void drop_contexts(Contexts *contexts) {
  free(contexts->known);
  free(contexts->index);
}

void load_cell(const Contexts &contexts, const uint32_t *word, uint32_t shift, uint32_t unit, Slot *cell) {
  for (uint32_t i = 0; i < slots_per_cell; ++i) cell[i] = unpacked(contexts, word[place(shift, unit, i)]);
  if (!shift && !(word[unit] & has_second)) cell[1] = 0;
}

void store_cell(Contexts *contexts, uint32_t *word, uint32_t shift, uint32_t unit, const Slot *before,
                const Slot *cell) {
  for (uint32_t i = 0; i < slots_per_cell; ++i) {
    if (cell[i] == before[i]) continue;
    const uint32_t small = packed(contexts, cell[i]);
    uint32_t &kept = word[place(shift, unit, i)];
    if (!shift && i == 0) {
      kept = (kept & has_second) | small;
    } else if (!shift && i == 1) {
      if (kept != small && small)
        for (uint32_t other = 0; other < 4; ++other) word[other] &= ~has_second;
      if (small) kept = small, word[unit] |= has_second;
      else word[unit] &= ~has_second;
    } else {
      kept = small;
    }
  }
}

void mark_contexts(Contexts *contexts, Slot group, Slot bits) {
  for (uint32_t number = 1; number < contexts->count; ++number)
    if (contexts->known[number] >> (64 - group_bits) == group) contexts->known[number] |= bits;
}

}  // namespace __ost
