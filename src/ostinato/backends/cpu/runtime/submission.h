// A submission: records from the caller turned into a graph of nodes that the workers run.
//
// Records, each 16-byte aligned and a multiple of 16 long, in native byte order:
//   u32 bytes, u32 kind
//   0 dispatch  u64 entry; u32 grid[3], group_size[3], groups[3]; u32 n_args, n_shared, arena_bytes, n_accesses, 0;
//               u64 args[n_args]   an address, or 1 << 63 | offset from the start of the record for inline bytes
//               u64 accesses[2 * n_accesses]   begin (1 << 63 | begin when written) and end; n_accesses is 2^32 - 1,
//                                              with none following, when they are not known
//               u32 shared_offsets[n_shared]; inline bytes
//   1 barrier
//   2 copy      u64 source, target, bytes
//   3 fill      u64 target, bytes, pattern; u32 pattern_bytes (1, 2, 4 or 8), 0
#ifndef OSTINATO_SUBMISSION_H
#define OSTINATO_SUBMISSION_H

#include <pthread.h>

#include <atomic>

#include "abi.h"
#include "hazards.h"

namespace __ost __attribute__((visibility("hidden"))) {

enum Kind : uint32_t { kind_dispatch, kind_barrier, kind_copy, kind_fill };
enum Mode : uint32_t { mode_serial, mode_barriers, mode_edges, mode_inferred };
enum Error : uint32_t { error_none, error_fault, error_device_lost };

struct Transfer {
  unsigned char *target;
  const unsigned char *source;     // of a copy
  uint64_t bytes, pattern, block_bytes;
};

struct Node {
  union {
    Dispatch dispatch;
    Transfer transfer;
  };
  uint64_t groups;                 // units of work: threadgroups, or blocks of a transfer
  const Access *accesses;          // of a dispatch
  uint32_t n_accesses;
  Kind kind;
  uint32_t n_blockers;
  std::atomic<uint32_t> blockers;  // nodes that have to complete first, still
  uint32_t first_successor, end_successor;
  Node *next_offer;

  // Once several workers may take part.
  bool shared;
  uint64_t least_claim;
  std::atomic<uint64_t> claimed, unfinished;
};

// What inferring the order of a list came to, in the terms of a device that has barriers rather than edges.
struct Inferred {
  uint32_t barriers;               // nodes that such a device would put a barrier in front of
  uint32_t concurrent;             // nodes that need none
  uint32_t ranges;                 // tracked at the end of the list
};

struct Submission {
  Node *nodes;
  uint32_t count;
  uint32_t *successors;
  unsigned char *records;
  uint64_t *samples;               // start and end per node, or NULL
  Inferred inferred;
  Node *roots, *last_root;         // linked by next_offer
  uint32_t n_roots;
  std::atomic<uint32_t> remaining;
  std::atomic<uint32_t> references;
  Submission *next;                // in the device's queue

  pthread_mutex_t mutex;
  pthread_cond_t completed;
  std::atomic<bool> done;
  uint32_t error;
  int32_t signal;
  uint32_t fault_node;
  uint64_t fault_address;
  uint64_t start_ns, end_ns;
};

// NULL when a record or an edge makes no sense, or memory is short. The caller owns one reference.
Submission *make_submission(const void *records, uint64_t bytes, uint64_t count, uint32_t mode,
                            const uint32_t *edges, uint64_t n_edges, uint64_t *samples);
void release(Submission *);

// The edges that mode_inferred would use: pairs (before, after). False when the records make no sense.
bool infer_edges(const void *records, uint64_t bytes, uint64_t count, uint32_t *pairs, uint64_t capacity,
                 uint64_t *n_edges);

// Publishes the outcome and wakes those who wait.
void complete(Submission *);
bool wait(Submission *, int64_t timeout_ns);

// Runs units [first, end) of a node.
void run_units(const Node *, Worker *, uint64_t first, uint64_t end);

}  // namespace __ost

#endif
