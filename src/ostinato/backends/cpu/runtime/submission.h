// A submission: one run of a graph, from the call that queues it until its outcome has been read.
#ifndef OSTINATO_SUBMISSION_H
#define OSTINATO_SUBMISSION_H

#include <pthread.h>

#include "fault.h"
#include "graph.h"
#include "log.h"

namespace [[gnu::visibility("hidden")]] __ost {

enum Error : uint32_t { error_none, error_fault, error_not_run };

struct Submission {
  Graph *graph;
  unsigned char *values;            // of the graph's parameters
  uint64_t *samples;                // start and end per node, zero for what did not run; or NULL
  std::atomic<uint32_t> remaining;  // nodes
  std::atomic<uint32_t> references;
  Submission *next;    // in the device's queue
  Findings *findings;  // of a checked device, once it is done; NULL when there are none
  Log log;

  pthread_mutex_t mutex;
  pthread_cond_t completed;
  std::atomic<bool> done;
  std::atomic<bool> failed;   // a kernel of it faulted: its other nodes complete without running
  std::atomic<bool> skipped;  // it is not to be run
  uint32_t error;
  Fault fault;
  uint32_t fault_node;
  bool thread_known;
  uint32_t thread[3];  // position in the grid of the one that faulted
  uint64_t start_ns, end_ns;
  std::atomic<uint64_t> left_ns;    // when the last of the workers so far was done with its nodes
  std::atomic<uint64_t> worked_ns;  // time in which workers had work of it, added up; zero without samples
  std::atomic<uint64_t> lost_ns;    // the part of that in which the system ran something else on their cores
  uint64_t sequence;                // from 1, in the order in which they start
  std::atomic<uint32_t> joined;     // workers that took part; these and the next are zero without samples
  std::atomic<uint64_t> late_ns;    // sum of how long after its start they joined
};

// NULL when memory is short. The submission becomes an owner of the graph, the caller owns one reference to the
// submission. `values` are as many bytes as the graph's parameters ask for.
Submission *make_submission(Graph *, const void *values, bool sample);
void release(Submission *);

// Publishes the outcome and wakes those who wait.
void complete(Submission *);
bool wait(Submission *, int64_t timeout_ns);

}  // namespace __ost

#endif
