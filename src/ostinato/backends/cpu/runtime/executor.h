// A device's queue: submissions run one after another, the nodes of one by its graph, over a fixed set of workers.
//
// Groups of one dispatch are spread over the workers and independent nodes run at the same time. A fault in kernel
// code ends its submission: what of it has not run by then completes without running, and no worker is in it any more
// when it ends. What is queued behind it is held back until the caller has decided which of it depends on the results
// of the fault, and resumes.
#ifndef OSTINATO_EXECUTOR_H
#define OSTINATO_EXECUTOR_H

#include "submission.h"

namespace [[gnu::visibility("hidden")]] __ost {

struct Device;

constexpr uint32_t max_workers = 1024;

// NULL, with the reason in `error`, when workers cannot be had. A checked device has one worker, whose memory holds the
// history of all accesses. `checks` are bits of CheckOption.
Device *open_device(uint32_t workers, uint64_t arena_bytes, uint32_t checks, char *error, uint64_t error_bytes);
// How much the kernels of a submission may print; before the first submission.
void limit_log(Device *, uint64_t bytes);

// Runs what is queued, then ends the workers.
void close_device(Device *);

// Wakes a worker ahead of a submission that takes a while to prepare: it is awake about when the work is queued.
void expect_work(Device *);

// On a checked device, at any time: memory that nobody has written yet (or that is gone, with no bytes), and bytes that
// the host has written.
void track(Device *, uint64_t begin, uint64_t bytes, const unsigned char *unwritten);
void read_unwritten(Device *, uint64_t begin, uint64_t bytes, unsigned char *unwritten);
void note_written(Device *, uint64_t begin, uint64_t bytes);

// The queue takes a reference of its own.
void submit(Device *, Submission *);

// After a fault: goes on with what is queued. Submissions that have `skipped` set complete without running.
void resume(Device *);

}  // namespace __ost

#endif
