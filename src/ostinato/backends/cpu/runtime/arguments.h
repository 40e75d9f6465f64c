// The arguments of a checked dispatch, placed so far from each other that an overrun of one lands in none.
//
// Views of one buffer lie side by side, and small buffers near each other. While the dispatch runs, all but the largest
// of such neighbours lie elsewhere: they are copied there before it and, where it may write them, back after it.
#ifndef OSTINATO_ARGUMENTS_H
#define OSTINATO_ARGUMENTS_H

#include "shadow_parts.h"

namespace [[gnu::visibility("hidden")]] __ost {

// Makes a region of each argument, or of arguments that overlap, and has the dispatch use their places.
void place_arguments(Shadow *, const Node *);
// Ends all regions but threadgroup memory's, and has the arguments where they were.
void return_arguments(Shadow *);

// The address that the host knows for one in a region.
inline uintptr_t at_home(const Region &region, uintptr_t address) { return address - region.begin + region.home; }

// The argument nearest to an address that is in none: its number counted from 1, and the address as if the argument lay
// where the host knows it. 0 if there are no arguments.
struct Overrun { uint64_t argument, address; };
Overrun nearest_argument(const Shadow *, uintptr_t address, uint64_t bytes);

}  // namespace __ost

#endif
