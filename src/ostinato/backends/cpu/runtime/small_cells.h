// Cells of 2 bytes and of 1 byte: the four slots of a cell in 32 bits each, so that memory which is accessed in small
// units takes no more than 13 bytes for each byte, and 16 to 32 for each context.
//
// What a slot says beside its lane is a context: line, group, barriers. Threads share contexts, so a slot keeps the lane
// and the number of its context. The bytes of a word share their second write, which matters only where threads write
// the same value without order: the last one is kept, with a bit for each byte that it wrote.
#ifndef OSTINATO_SMALL_CELLS_H
#define OSTINATO_SMALL_CELLS_H

#include "cells.h"

namespace [[gnu::visibility("hidden")]] __ost {

struct Contexts {   // of the cells of one Space
  Slot *known;      // by number; the first is none
  uint32_t *index;  // a hash table of numbers, twice as large
  uint32_t count, room;
};

// Numbers are used up: forget all contexts, and the cells that were stored with them.
bool is_full(const Contexts &);
void forget_contexts(Contexts *);
void drop_contexts(Contexts *);

// Bytes that the cells of a word take, in units of 1 << shift bytes.
constexpr size_t word_bytes(uint32_t shift) { return shift ? 32 : 52; }

// One of the cells of a word.
void load_cell(const Contexts &, const uint32_t *word, uint32_t shift, uint32_t unit, Slot cell[slots_per_cell]);
void store_cell(Contexts *, uint32_t *word, uint32_t shift, uint32_t unit, const Slot before[slots_per_cell],
                const Slot cell[slots_per_cell]);
// When a counter of device memory wraps: adds bits to the contexts of a group.
void mark_contexts(Contexts *, Slot group, Slot bits);

}  // namespace __ost

#endif
