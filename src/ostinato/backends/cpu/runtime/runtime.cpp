// The C functions through which the driver uses the runtime.
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "executor.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

using namespace __ost;

typedef Device ost_device;
typedef Submission ost_submission;

constexpr uint64_t worth_expecting = 128;   // commands; preparing them takes as long as a worker needs to wake

struct ost_status_t {              // all zero until done
  uint32_t done, error;
  int32_t signal;
  uint32_t node;
  uint64_t address, start_ns, end_ns;
};

EXPORT uint32_t ost_abi_version(void) { return abi_version; }

EXPORT uint64_t ost_now_ns(void) { return now_ns(); }

EXPORT ost_device *ost_open(uint32_t workers, uint64_t arena_bytes, char *error, uint64_t error_bytes) {
  if (workers >= 1 && workers <= max_workers) return open_device(workers, arena_bytes, error, error_bytes);
  snprintf(error, error_bytes, "%u workers asked for; 1 to %u are possible", workers, max_workers);
  return nullptr;
}

EXPORT void ost_close(ost_device *device) { close_device(device); }

// NULL when the records or edges are malformed (an edge has to lead to a later node) or memory is short.
EXPORT ost_submission *ost_submit(ost_device *device, const void *records, uint64_t bytes, uint64_t count,
                                  uint32_t mode, const uint32_t *edges, uint64_t n_edges, uint64_t *samples) {
  if (count >= worth_expecting) expect_work(device);
  Submission *s = make_submission(records, bytes, count, mode, edges, n_edges, samples);
  if (s) submit(device, s);
  return s;
}

// What inferring the order of a submission came to: three numbers, see Inferred.
EXPORT void ost_inferred(const ost_submission *s, uint32_t *out) {
  out[0] = s->inferred.barriers;
  out[1] = s->inferred.concurrent;
  out[2] = s->inferred.ranges;
}

// The edges that mode 3 infers, as pairs; their number even when it is over capacity. UINT64_MAX on malformed records.
EXPORT uint64_t ost_edges(const void *records, uint64_t bytes, uint64_t count, uint32_t *pairs, uint64_t capacity) {
  uint64_t n_edges = 0;
  return infer_edges(records, bytes, count, pairs, capacity, &n_edges) ? n_edges : UINT64_MAX;
}

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
  out->signal = s->signal;
  out->node = s->fault_node;
  out->address = s->fault_address;
  out->start_ns = s->start_ns;
  out->end_ns = s->end_ns;
}

EXPORT void ost_release(ost_submission *s) { release(s); }
