// Local memory of checked kernels: for each byte of a worker's stacks, whether it belongs to a variable that is not
// written yet, or to a fence beside an array; and where variables begin. What was never declared counts as written.
//
// Only elements are reported: a read whose bytes are all unwritten, of at most 16 bytes. Copies of whole objects may
// contain padding and unwritten parts, and what they are copied to counts as written.
#ifndef OSTINATO_LOCAL_MEMORY_H
#define OSTINATO_LOCAL_MEMORY_H

#include "findings.h"

namespace [[gnu::visibility("hidden")]] __ost {

// By distance from the start of the worker's region. Pages that are never touched take no memory.
struct LocalMemory {
  unsigned char *states;  // a LocalState for each byte
  const char **names;     // for each 4 bytes, of the variable that begins there
};

// False when there is no address space.
bool open_locals(LocalMemory *);
void close_locals(LocalMemory *);
// After a fault, when variables were abandoned.
void forget_locals(LocalMemory *);

void declare_local(const LocalMemory &, uintptr_t begin, uint64_t bytes, LocalState, const char *name);

// What is wrong with an access of an address in the worker's region.
enum LocalFault : uint32_t { local_fine, local_uninitialised, local_out_of_bounds };
LocalFault local_access(const LocalMemory &, uintptr_t address, uint64_t bytes, bool write);

// The variable at an address, or beside whose fence it lies. An offset before its start is negative.
Memory local_at(const LocalMemory &, uintptr_t address, uint64_t bytes);

}  // namespace __ost

#endif
