// A graph: a list of commands as nodes, with the order between them. Built once, run once or any number of times.
//
// A graph belongs to one device, and a device runs one submission after another, so runs of a graph never overlap and
// all of them use the same nodes. Nothing is reset between runs; whatever a run changes is either put back by the
// worker that changed it, or means nothing in the next run:
//   blockers      The worker that takes the last one away puts all of them back. Nobody looks at them after that.
//   shared_run    The run in which the node was shared last; it is not shared in any other.
//   next_offer, least_claim, claimed, unfinished
//                 Written in every run before they are read.
//   roots         An array that nobody writes to; a device counts how many of them it has given out.
// A worker counts what it completed only once it is done with the nodes, so when a run ends, a worker may
// still be reading a node: one that was offered a part of a shared node and finds nothing left to claim. If the next
// run began meanwhile, it would claim a part of that run. So such workers are counted as visitors, and begin_run waits
// until there are none. The wait is short: a visitor has a few instructions to go, and takes no lock.
//
// The values of parameters come with each replay. They are kept with its submission until it starts, and then copied
// to where the arguments of all dispatches that use them point; so one copy serves any number of nodes, and replays
// that are queued do not see each other's values.
#ifndef OSTINATO_GRAPH_H
#define OSTINATO_GRAPH_H

#include "node.h"

namespace [[gnu::visibility("hidden")]] __ost {

struct Device;
struct Block;

enum Mode : uint32_t { mode_serial, mode_barriers, mode_edges, mode_inferred };

// Where a parameter stands in the values of a replay.
struct Param { uint32_t from, bytes; };

// An inline argument (by position) of a dispatch that is to be a parameter (by position).
struct Use { uint32_t node, argument, param; };

// Why a graph or a submission could not be made.
enum Refusal : uint32_t { refused_memory, refused_malformed, refused_too_many_edges };
extern __thread Refusal refusal;  // of the thread's last one; a C++ thread_local would need an initialiser call

struct Graph {
  Block *block;  // the memory of nodes and records
  Node *nodes;
  uint32_t count, n_roots;
  uint32_t *successors, *roots;
  unsigned char *records;
  Inferred inferred;

  const Device *device;  // the one that may replay it; NULL when it runs just once
  uint32_t n_params;
  Param *params;
  uint64_t value_bytes;   // of a replay
  unsigned char *values;  // of the run: each parameter's start on a cache line

  uint64_t run;                   // number of the current run, or of the last one
  std::atomic<uint64_t> holders;  // owners << 32 | visitors
  std::atomic<uint32_t> coming;   // submissions of it that have not completed
};

// NULL, with the reason in `refusal`, when a record or an edge makes no sense, or memory is short. The caller is an
// owner.
Graph *make_graph(const void *records, uint64_t bytes, uint64_t count, uint32_t mode, const uint32_t *edges,
                  uint64_t n_edges);

// Once, before the first run. False when a parameter or a use makes no sense, or memory is short.
bool add_params(Graph *, const Param *, uint64_t n_params, const Use *, uint64_t n_uses, uint64_t value_bytes);

// Another address for an argument (by position) of a dispatch, for each of `count` places. False, and nothing is changed,
// while a submission of the graph has not completed, or when a place makes no sense. Nothing is submitted meanwhile.
bool move_arguments(Graph *, const int64_t *nodes, const int64_t *positions, const uint64_t *addresses, uint64_t count);

// A graph lasts until it has neither owners nor visitors.
void own(Graph *);
void disown(Graph *);
void visit(Graph *);  // by a worker that is offered a node, with the device's lock held
void leave(Graph *);

// With the lock held of the device that is going to run it.
void begin_run(Graph *, const unsigned char *values);

}  // namespace __ost

#endif
