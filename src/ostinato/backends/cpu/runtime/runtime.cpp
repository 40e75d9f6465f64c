// The C functions through which the driver uses the runtime.
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "executor.h"
#include "float_traps.h"
#include "shadow.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

using namespace __ost;

typedef Device ost_device;
typedef Graph ost_graph;
typedef Submission ost_submission;

constexpr uint64_t worth_expecting = 128;  // commands; preparing them takes as long as a worker needs to wake

struct ost_status_t {  // all zero until done
  uint32_t done, error;
  int32_t signal;
  uint32_t node;
  uint64_t address, start_ns, end_ns;
  uint32_t access;  // see FaultAccess
  uint32_t thread_known, thread[3], zero;
  uint64_t worked_ns, lost_ns, late_ns, joined;  // of the workers; zero without samples
};

EXPORT uint32_t ost_abi_version(void) { return abi_version; }

EXPORT uint64_t ost_now_ns(void) { return now_ns(); }

EXPORT ost_device *ost_open(uint32_t workers, uint64_t arena_bytes, uint32_t checks, char *error,
                            uint64_t error_bytes) {
  if (checks & check_floats && !has_float_traps) {
    snprintf(error, error_bytes, "nan=True needs an x86-64 processor and Linux");
    return nullptr;
  }
  if (workers >= 1 && workers <= max_workers) return open_device(workers, arena_bytes, checks, error, error_bytes);
  snprintf(error, error_bytes, "%u workers asked for; 1 to %u are possible", workers, max_workers);
  return nullptr;
}

// On a checked device: memory of which nobody has written the bytes that `unwritten` has a 1 for, or any byte where it
// is NULL; with no bytes, memory that is gone.
EXPORT void ost_track(ost_device *device, uint64_t begin, uint64_t bytes, const unsigned char *unwritten) {
  track(device, begin, bytes, unwritten);
}
// The same for such memory as it is now.
EXPORT void ost_unwritten(ost_device *device, uint64_t begin, uint64_t bytes, unsigned char *unwritten) {
  read_unwritten(device, begin, bytes, unwritten);
}
EXPORT void ost_written(ost_device *device, uint64_t begin, uint64_t bytes) { note_written(device, begin, bytes); }

EXPORT void ost_limit_log(ost_device *device, uint64_t bytes) { limit_log(device, bytes); }
// A checked library of kernels, whose constants its kernels may read.
EXPORT void ost_add_image(uint64_t begin, uint64_t end) { add_image(uintptr_t(begin), uintptr_t(end)); }

EXPORT void ost_close(ost_device *device) { close_device(device); }

// Why the calling thread's last list or graph was refused; see Refusal.
EXPORT uint32_t ost_refusal(void) { return refusal; }

// NULL when the records or edges are malformed (an edge has to lead to a later node) or memory is short.
EXPORT ost_submission *ost_submit(ost_device *device, const void *records, uint64_t bytes, uint64_t count,
                                  uint32_t mode, const uint32_t *edges, uint64_t n_edges, uint32_t sample) {
  if (count >= worth_expecting) expect_work(device);
  Graph *graph = make_graph(records, bytes, count, mode, edges, n_edges);
  if (!graph) return nullptr;
  Submission *s = make_submission(graph, nullptr, sample != 0);
  disown(graph);
  if (s) submit(device, s);
  return s;
}

// A graph that the device can replay. NULL when records, edges, parameters or uses are malformed, or memory is short.
EXPORT ost_graph *ost_graph_make(ost_device *device, const void *records, uint64_t bytes, uint64_t count, uint32_t mode,
                                 const uint32_t *edges, uint64_t n_edges, const Param *params, uint64_t n_params,
                                 const Use *uses, uint64_t n_uses, uint64_t value_bytes) {
  Graph *graph = make_graph(records, bytes, count, mode, edges, n_edges);
  if (!graph) return nullptr;
  if (add_params(graph, params, n_params, uses, n_uses, value_bytes)) {
    graph->device = device;
    return graph;
  }
  disown(graph);
  return nullptr;
}

// At any time; submissions of the graph, running or not, are not disturbed.
EXPORT void ost_graph_release(ost_graph *graph) { disown(graph); }

// 1 when addresses were changed in the graph itself, 0 when a run of it is under way, or it is malformed.
EXPORT int ost_graph_move(ost_graph *graph, const int64_t *nodes, const int64_t *positions, const uint64_t *addresses,
                          uint64_t count) {
  return move_arguments(graph, nodes, positions, addresses, count);
}

// One run of a graph, with the values of its parameters. NULL when memory is short, or it is another device's graph.
EXPORT ost_submission *ost_replay(ost_device *device, ost_graph *graph, const void *values, uint32_t sample) {
  if (graph->device != device) return nullptr;
  Submission *s = make_submission(graph, values, sample != 0);
  if (s) submit(device, s);
  return s;
}

// The inferred order of a list, in numbers.
EXPORT void ost_inferred(const ost_submission *s, Inferred *out) { *out = s->graph->inferred; }

EXPORT int ost_wait(ost_submission *s, int64_t timeout_ns) {
  s->references.fetch_add(1, std::memory_order_relaxed);  // another thread may release it meanwhile
  const bool done = wait(s, timeout_ns);
  release(s);
  return done;
}

EXPORT void ost_status(ost_submission *s, ost_status_t *out) {
  memset(out, 0, sizeof *out);
  if (!s->done.load(std::memory_order_acquire)) return;
  out->done = 1;
  out->error = s->error;
  out->signal = s->fault.signal;
  out->node = s->fault_node;
  out->address = s->fault.address;
  out->start_ns = s->start_ns;
  out->end_ns = s->end_ns;
  out->access = s->fault.access;
  out->thread_known = s->thread_known;
  out->worked_ns = s->worked_ns.load(std::memory_order_relaxed);
  out->lost_ns = s->lost_ns.load(std::memory_order_relaxed);
  out->late_ns = s->late_ns.load(std::memory_order_relaxed);
  out->joined = s->joined.load(std::memory_order_relaxed);
  memcpy(out->thread, s->thread, sizeof out->thread);
}

// Start and end of each node, and their number; NULL until done, and without sampling. Valid until the release.
EXPORT const uint64_t *ost_samples(const ost_submission *s, uint64_t *count) {
  *count = s->graph->count;
  return s->done.load(std::memory_order_acquire) ? s->samples : nullptr;
}

// What its kernels printed, how many bytes that may be, and how many records did not fit; NULL when they printed nothing.
EXPORT const unsigned char *ost_log(const ost_submission *s, uint64_t *bytes, uint64_t *dropped) {
  const uint64_t used = s->log.used.load(std::memory_order_relaxed);
  *bytes = used < s->log.limit_bytes ? used : s->log.limit_bytes;
  *dropped = s->log.dropped.load(std::memory_order_relaxed);
  return s->done.load(std::memory_order_acquire) ? s->log.records.load(std::memory_order_acquire) : nullptr;
}

// What the checks of a submission found: records, their number, and how many more there were than fit. Of a checked
// device, once it is done. Valid until the release.
EXPORT const Finding *ost_findings(const ost_submission *s, uint64_t *count, uint64_t *lost) {
  *count = *lost = 0;
  if (!s->done.load(std::memory_order_acquire) || !s->findings) return nullptr;
  *count = s->findings->count;
  *lost = s->findings->lost;
  return s->findings->records;
}

// After a fault: the submission, which is queued behind it, completes without running.
EXPORT void ost_skip(ost_submission *s) { s->skipped.store(true, std::memory_order_relaxed); }

// After a fault: the device goes on with what is queued behind it.
EXPORT void ost_resume(ost_device *device) { resume(device); }

EXPORT void ost_release(ost_submission *s) { release(s); }

// The same for native/hot_path/, which states the contract of these five.

EXPORT int ost_quick_start(void *const *fixed, const void *values, uint64_t *out) {
  ost_submission *s = ost_replay(static_cast<ost_device *>(fixed[0]), static_cast<ost_graph *>(fixed[1]), values, 0);
  out[0] = uint64_t(uintptr_t(s));
  return s == nullptr;
}
EXPORT int ost_quick_wait(void *, uint64_t key, int64_t timeout_ns) {
  return ost_wait(reinterpret_cast<ost_submission *>(uintptr_t(key)), timeout_ns);
}
EXPORT int ost_quick_finish(void *, uint64_t key, uint64_t, uint64_t, uint64_t *) {
  const ost_submission *s = reinterpret_cast<ost_submission *>(uintptr_t(key));
  if (!s->done.load(std::memory_order_acquire)) return 0;
  return s->error == error_none && !s->findings ? 1 : -1;
}
EXPORT void ost_quick_release(uint64_t key) { release(reinterpret_cast<ost_submission *>(uintptr_t(key))); }
EXPORT int ost_quick_read(void *, uint64_t address, void *to, uint64_t bytes) {
  memcpy(to, reinterpret_cast<void *>(uintptr_t(address)), bytes);
  return 0;
}
