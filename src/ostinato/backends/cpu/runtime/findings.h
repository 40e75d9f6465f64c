// What the checks of a submission found: a bounded table of records, filled by the worker that runs its kernels.
//
// Findings of one kind at the same places of one command are one record with a count; the first of them is described.
#ifndef OSTINATO_FINDINGS_H
#define OSTINATO_FINDINGS_H

#include "checks.h"

namespace [[gnu::visibility("hidden")]] __ost {

constexpr uint32_t max_findings = 512;

// One access: where in the kernel, and by which thread.
struct Touch {
  uint64_t site;  // a return address in the library, or the address of a Location; 0 when there was no such access
  uint32_t thread[3], group[3];  // positions in the grid of threads and in the grid of groups
  uint32_t how, lane;            // lane: index in the group
};

// The memory that a finding is about.
enum MemoryKind : uint32_t { memory_none, memory_device, memory_threadgroup, memory_thread };
struct Memory {
  uint64_t address, bytes;
  const char *name;  // of a variable in a library, which is never unloaded; NULL where it has none
  uint64_t offset;   // of the address in the variable
  uint64_t kind;
};

struct Finding {
  uint32_t kind, node;  // node: of the submission's list
  Touch first, second;  // `second` is the one that was noticed
  Memory memory;
  uint64_t value, count;  // value: what the kind says; of uninitialised memory, 1 if nobody wrote it afterwards either
};

struct Findings {
  uint32_t count, node;  // node: the command that runs
  uint32_t errors;       // those that are more than notes
  uint64_t lost;         // reports that did not fit into the table; those of one finding count each
  Finding records[max_findings];
};

// Notes do not end a submission.
bool is_note(FindingKind);

// A finding about one or two accesses (`first` may be all zero). To be called by the worker that owns the table. Returns
// its record, which stays where it is until the command ends; NULL if the table is full.
Finding *report(Findings *, FindingKind, const Touch &first, const Touch &second, const Memory &, uint64_t value);

// After a command: drops what follows from other findings. Which of two racing accesses comes first is chance, and so is
// whether memory that somebody writes is written by then.
void drop_consequences(Findings *);

// The thread with this index in its group as one that accesses memory at a site.
Touch touch_of(const Worker *, uint32_t lane, uint64_t group, const void *site, uint32_t how);
// The same for the thread that runs now.
Touch touch_here(const Worker *, const void *site, uint32_t how);

}  // namespace __ost

#endif
