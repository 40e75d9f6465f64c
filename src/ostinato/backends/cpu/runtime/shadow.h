// The history of memory that checked kernels access: opened with a worker, told of each dispatch, asked by hooks.
#ifndef OSTINATO_SHADOW_H
#define OSTINATO_SHADOW_H

#include "findings.h"
#include "node.h"

namespace [[gnu::visibility("hidden")]] __ost {

// Gives the worker its calls, findings and shadow; false when memory is short.
bool open_shadow(Worker *, uint32_t checks);
void close_shadow(Worker *);

// Before and after a dispatch runs, or is left by a fault.
void begin_dispatch(Worker *, const Node *);
void end_dispatch(Worker *);
// Where it is asked for: the bytes of outputs that no thread of the dispatch wrote.
void report_unwritten(Worker *, const Node *);
// After a fault: the threads of the group have left their variables.
void abandon_locals(Worker *);

// Not while a dispatch begins: memory that nobody has written yet (but for the bytes that `unwritten` has a 0 for, where
// it is given), or that is gone, with no bytes; the same read back; bytes that the host has written; a copy or a fill
// that is about to run.
void track(Shadow *, uintptr_t begin, uint64_t bytes, const unsigned char *unwritten);
void read_unwritten(const Shadow *, uintptr_t begin, uint64_t bytes, unsigned char *unwritten);
void note_written(Shadow *, uintptr_t begin, uint64_t bytes);
void note_transfer(Shadow *, const Node *);

// Before the threads of a group run.
void begin_group(Worker *);

// All threads of the group that have not returned wait at its barrier, or all have returned.
void group_met(Worker *);

// Memory of a loaded library that kernels may read: its constants.
void add_image(uintptr_t begin, uintptr_t end);

}  // namespace __ost

#endif
