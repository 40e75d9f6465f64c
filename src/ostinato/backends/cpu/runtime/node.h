// A node: one command of a list, read from its record, and the units of work it consists of.
//
// Records, each 16-byte aligned and a multiple of 16 long, in native byte order:
//   u32 bytes, u32 kind
//   0 dispatch  u64 entry; u32 grid[3], group_size[3], groups[3]; u32 n_args, n_shared, arena_bytes, n_accesses, views_at;
//               u64 args[n_args]   an address, or 1 << 63 | offset from the start of the record for inline bytes
//               u64 accesses[2 * n_accesses]   begin (1 << 63 | begin when written) and end; n_accesses is 2^32 - 1,
//                                              with none following, when they are not known
//               u32 shared_offsets[n_shared]
//               u64 views[n_args + n_shared]   where views_at, from the start of the record, is not 0: the size of what
//                                              each argument is bound to, 1 << 63 | size when the kernel may write,
//                                              1 << 62 | size for a value
//               inline bytes
//   1 barrier
//   2 copy      u64 source, target, bytes
//   3 fill      u64 target, bytes, pattern; u32 pattern_bytes (1, 2, 4 or 8), 0
#ifndef OSTINATO_NODE_H
#define OSTINATO_NODE_H

#include <atomic>

#include "abi.h"
#include "hazards.h"

namespace [[gnu::visibility("hidden")]] __ost {

enum Kind : uint32_t { kind_dispatch, kind_barrier, kind_copy, kind_fill };

constexpr uint32_t unknown_accesses = UINT32_MAX;
constexpr uint64_t view_written = uint64_t(1) << 63, view_value = uint64_t(1) << 62;

struct Transfer {
  unsigned char *target;
  const unsigned char *source;  // of a copy
  uint64_t bytes, pattern, block_bytes;
};

struct Node {
  union {
    Dispatch dispatch;
    Transfer transfer;
  };
  uint64_t groups;         // units of work: threadgroups, or blocks of a transfer
  const Access *accesses;  // of a dispatch
  uint32_t n_accesses;
  uint32_t n_args, n_shared;
  const uint64_t *views;  // NULL unless the device checks kernels
  Kind kind;

  // Its place in the graph.
  uint32_t n_blockers;
  std::atomic<uint32_t> blockers;  // nodes that must complete first and have not
  uint32_t first_successor, end_successor;

  // While it waits on offer, and once several workers may take part; graph.h says what becomes of it in the next run.
  Node *next_offer;
  uint64_t shared_run;
  uint64_t least_claim;
  std::atomic<uint64_t> claimed, unfinished;
};

// The size of what an argument is bound to.
inline uint64_t view_bytes(const Node *node, uint32_t argument) {
  return node->views[argument] & ~(view_written | view_value);
}

// Reads `count` records, which fill `bytes` exactly, into zeroed nodes. Nodes refer to the records, whose inline
// arguments become addresses. False when a record makes no sense.
bool read_records(unsigned char *records, uint64_t bytes, Node *nodes, uint32_t count);

// Points an inline argument of a dispatch to another address; false when the argument is not inline.
bool redirect_argument(Node *, uint32_t argument, const void *to);

// Tells the hazard engine what a node touches. False when memory is short.
bool add_to(Hazards *, const Node *, uint32_t index);

// Runs units [first, end) of a node.
void run_units(const Node *, Worker *, uint64_t first, uint64_t end);

}  // namespace __ost

#endif
