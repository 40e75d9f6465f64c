// Worker threads and what they do: see executor.h for the contract.
//
// A node that can start is either taken up at once by the worker that completed its last blocker, without a lock or a
// wake-up, or put on offer to the others.
//
// A worker that takes a node runs it alone at first, in growing steps, and estimates after each how long the rest
// would take. It shares the node only if that is long enough: the rest is put on offer and all workers claim parts of
// it. So a chain of small dispatches stays on one worker, while a large dispatch soon has all of them.
//
// One mutex guards the queue and the offers. Idle workers watch the number of offers for a while, then sleep. One of
// them watches for longer, so that small lists in quick succession need no wake-up, which costs the caller more than
// all the rest of a submission. The others watch only if work was shared lately: otherwise they would only take
// processor time from the caller.
#include "executor.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "fault.h"
#include "float_traps.h"
#include "shadow.h"
#include "worker.h"

namespace __ost {
namespace {

constexpr size_t thread_stack_bytes = 8 << 20;  // plain kernels run on it
constexpr uint64_t first_spin_ns = 150000;
constexpr uint64_t spin_ns = 50000;
constexpr double share_above_ns = 4000;     // less is faster without sharing
constexpr double wake_above_ns = 20000;     // a sleeper needs about as long to arrive
constexpr double least_claim_ns = 1000;     // keeps contention for the counter low
constexpr uint64_t usage_step_ns = 100000;  // processor time is read at most once in this, per worker

struct Runner {  // a worker thread
  Device *device;
  Worker *worker;
  pthread_t thread;
  FaultTrap trap;

  // Its current work, in memory because a fault jumps out of the code that runs it.
  Submission *submission;
  Graph *graph;  // the submission's; the submission may be gone before a visitor leaves its graph
  Node *node;
  uint64_t claim;      // units of a shared node that are being run
  uint32_t finished;   // nodes completed but not yet counted
  double unhelped_ns;  // work shared since sleepers were last woken for it

  // The visit of a sampled submission that goes on, to which it holds a reference; and the last reading of both clocks.
  bool watched;
  uint64_t seen;  // number of the last one that it visited
  uint64_t visit_ns, read_ns, read_cpu_ns;
};

}  // namespace

struct Device {
  pthread_mutex_t mutex;
  pthread_cond_t work;
  Submission *current, *last;  // the queue, linked by `next`; the first is running
  uint32_t next_root;          // of the current submission's graph; this and the following roots are on offer
  Node *offers, *last_offer;   // its other nodes on offer
  std::atomic<uint32_t> n_offers;
  uint32_t sleepers, spinners;
  uint64_t started;           // submissions so far
  bool sharing, shared_last;  // whether the current submission shared work, and the one before
  bool closing;
  bool held;           // after a fault, until the caller resumes: nothing of the queue is started
  uint64_t log_bytes;  // most that the kernels of a submission may print
  uint32_t n_runners;
  Runner *runners;
};

namespace {

void lock(Device *device) {
  for (uint32_t round = 0; round < 64; ++round) {
    if (pthread_mutex_trylock(&device->mutex) == 0) return;
    pause_briefly(round);
  }
  pthread_mutex_lock(&device->mutex);
}

void unlock(Device *device) { pthread_mutex_unlock(&device->mutex); }

// With the lock held: nodes first..last, linked by next_offer, go on offer.
void offer(Device *device, Node *first, Node *last, uint32_t count) {
  last->next_offer = nullptr;
  if (device->offers) device->last_offer->next_offer = first;
  else device->offers = first;
  device->last_offer = last;
  device->n_offers.fetch_add(count, std::memory_order_relaxed);
}

// With the lock held: how many sleepers to wake for what is on offer, when `coming` workers are about to look.
uint32_t sleepers_needed(const Device *device, uint32_t coming) {
  const uint32_t awake = device->spinners + coming, offers = device->n_offers.load(std::memory_order_relaxed);
  if (offers <= awake) return 0;
  return offers - awake < device->sleepers ? offers - awake : device->sleepers;
}

bool shared(const Graph *graph, const Node *node) { return node->shared_run == graph->run; }

// With the lock held: a node to run, or NULL. A shared one stays on offer, for others to take part.
Node *take_offer(Device *device) {
  if (!device->current || device->held) return nullptr;
  const Graph *graph = device->current->graph;
  if (device->next_root < graph->n_roots) {
    device->n_offers.fetch_sub(1, std::memory_order_relaxed);
    return &graph->nodes[graph->roots[device->next_root++]];
  }
  while (Node *node = device->offers) {
    const bool is_shared = shared(graph, node);
    if (is_shared && node->claimed.load(std::memory_order_relaxed) < node->groups) return node;
    device->offers = node->next_offer;
    device->n_offers.fetch_sub(1, std::memory_order_relaxed);
    if (!is_shared) return node;
  }
  return nullptr;
}

void wake(Device *device, uint32_t count) {
  if (count > 2) pthread_cond_broadcast(&device->work);
  else
    while (count--) pthread_cond_signal(&device->work);
}

// With the lock held: puts the roots of the first submission that can run on offer, and completes those that need
// no running.
void start_current(Device *device) {
  if (device->held) return;
  while (Submission *s = device->current) {
    if (!s->skipped && s->graph->count) {
      s->sequence = ++device->started;
      begin_run(s->graph, s->values);
      device->next_root = 0;
      device->n_offers.fetch_add(s->graph->n_roots, std::memory_order_relaxed);
      return;
    }
    if (s->skipped) s->error = error_not_run;
    s->start_ns = s->end_ns = now_ns();
    device->current = s->next;
    complete(s);
    release(s);
  }
}

// How much processor time a worker got while it had work. A worker that was preempted for long enough to matter has a
// visit longer than the step, so a shorter visit needs no system call.
void read_clocks(Runner *r, uint64_t now) {
  r->read_ns = now;
  r->read_cpu_ns = thread_cpu_ns();
}

void begin_visit(Runner *r) {
  Submission *s = r->submission;
  r->visit_ns = now_ns();
  if (r->seen != s->sequence) {  // its first visit of this one
    r->seen = s->sequence;
    s->joined.fetch_add(1, std::memory_order_relaxed);
    s->late_ns.fetch_add(r->visit_ns - s->start_ns, std::memory_order_relaxed);
  }
  if (r->visit_ns - r->read_ns > usage_step_ns) read_clocks(r, r->visit_ns);
}

void end_visit(Runner *r, uint64_t now) {
  r->submission->worked_ns.fetch_add(now - r->visit_ns, std::memory_order_relaxed);
  const uint64_t wall = now - r->read_ns, cpu_before = r->read_cpu_ns;
  if (wall <= usage_step_ns) return;
  read_clocks(r, now);
  const uint64_t cpu = r->read_cpu_ns - cpu_before;
  if (cpu < wall) r->submission->lost_ns.fetch_add(wall - cpu, std::memory_order_relaxed);
}

// Of a checked device: what was found in the submission becomes its own.
void hand_over_findings(Device *device, Submission *s) {
  Findings *table = device->runners[0].worker->findings;
  if (!table || !(table->count || table->lost)) return;
  const size_t bytes = offsetof(Findings, records) + table->count * sizeof(Finding);
  s->findings = static_cast<Findings *>(malloc(bytes));
  if (s->findings) memcpy(s->findings, table, bytes);
  table->count = table->errors = 0;
  table->lost = 0;
}

void finish(Device *device, Submission *s) {
  hand_over_findings(device, s);
  s->end_ns = s->left_ns.load(std::memory_order_relaxed);
  // Completion is published before the next submission can start, so that it is seen in order. After a fault none
  // starts until `resume`, which may come as soon as the fault is known: by then this one must be out of the queue.
  const bool failed = s->failed.load(std::memory_order_relaxed);
  if (!failed) complete(s);
  lock(device);
  device->held |= failed;
  // What is still on offer are shared nodes with nothing left to claim.
  device->offers = nullptr;
  device->n_offers.store(0, std::memory_order_relaxed);
  device->current = s->next;
  device->shared_last = device->sharing;
  device->sharing = false;
  start_current(device);
  // A closing device without work left wakes all workers, so that they end.
  const uint32_t count = device->closing && !device->current ? device->sleepers : sleepers_needed(device, 1);
  unlock(device);
  if (failed) complete(s);
  wake(device, count);
  release(s);
}

void fail(Runner *r, const Fault &fault, bool thread_known, const uint32_t *thread) {
  Submission *s = r->submission;
  lock(r->device);
  if (s->error == error_none) {
    s->error = error_fault;
    s->fault = fault;
    s->fault_node = uint32_t(r->node - r->graph->nodes);
    s->thread_known = thread_known;
    memcpy(s->thread, thread, sizeof s->thread);
  }
  s->failed.store(true, std::memory_order_relaxed);
  unlock(r->device);
}

void run(Runner *r, Node *node, uint64_t first, uint64_t end) {
  if (r->submission->failed.load(std::memory_order_relaxed)) return;
  r->worker->log = &r->submission->log;
  r->worker->node = uint32_t(node - r->graph->nodes);
  Findings *findings = r->worker->findings;
  const bool checks = findings && node->kind == kind_dispatch && node->views;
  if (checks) {
    findings->node = uint32_t(node - r->graph->nodes);
    lock(r->device);
    begin_dispatch(r->worker, node);
    unlock(r->device);
  } else if (findings && first == 0) {
    lock(r->device);
    note_transfer(r->worker->shadow, node);
    unlock(r->device);
  }
  r->trap.armed.store(true, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  run_units(node, r->worker, first, end);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  r->trap.armed.store(false, std::memory_order_relaxed);
  if (checks) {
    report_unwritten(r->worker, node);
    end_dispatch(r->worker);
  }
  const uint32_t nobody[3] = {};
  if (checks && findings->errors) fail(r, Fault{}, false, nobody);
}

// Returns a node that can start now and that this worker goes on with; others that can start go on offer.
Node *complete_node(Runner *r, Node *node) {
  const Graph *graph = r->graph;
  if (r->submission->samples && !r->submission->failed.load(std::memory_order_relaxed))
    r->submission->samples[2 * (node - graph->nodes) + 1] = now_ns();
  ++r->finished;
  Node *next = nullptr, *first = nullptr, *last = nullptr;
  uint32_t count = 0;
  for (uint32_t i = node->first_successor; i < node->end_successor; ++i) {
    Node *successor = &graph->nodes[graph->successors[i]];
    if (successor->n_blockers > 1) {
      if (successor->blockers.fetch_sub(1, std::memory_order_acq_rel) != 1) continue;
      successor->blockers.store(successor->n_blockers, std::memory_order_relaxed);  // for the next run
    }
    if (!next) {
      next = successor;
      continue;
    }
    if (last) last->next_offer = successor;
    else first = successor;
    last = successor;
    ++count;
  }
  if (count) {
    lock(r->device);
    offer(r->device, first, last, count);
    count = sleepers_needed(r->device, 0);
    unlock(r->device);
    wake(r->device, count);
  }
  return next;
}

bool claim_part(Runner *r, Node *node, uint64_t *first) {
  uint64_t claimed = node->claimed.load(std::memory_order_relaxed), part;
  do {
    if (claimed >= node->groups) return false;
    const uint64_t left = node->groups - claimed;
    part = left / (4 * r->device->n_runners);
    if (part < node->least_claim) part = node->least_claim;
    if (part > left) part = left;
  } while (!node->claimed.compare_exchange_weak(claimed, claimed + part, std::memory_order_relaxed));
  *first = claimed;
  r->claim = part;
  return true;
}

bool finish_claim(Runner *r, Node *node) {
  return node->unfinished.fetch_sub(r->claim, std::memory_order_acq_rel) == r->claim;
}

Node *run_shared(Runner *r, Node *node) {
  uint64_t first;
  while (claim_part(r, node, &first)) {
    run(r, node, first, first + r->claim);
    if (finish_claim(r, node)) return complete_node(r, node);
  }
  return nullptr;
}

void share(Runner *r, Node *node, uint64_t done, double unit_ns, double rest_ns) {
  Device *device = r->device;
  node->claimed.store(done, std::memory_order_relaxed);
  node->unfinished.store(node->groups - done, std::memory_order_relaxed);
  node->least_claim = 1 + uint64_t(least_claim_ns / (unit_ns + 1));
  node->shared_run = r->graph->run;
  r->unhelped_ns += rest_ns;
  lock(device);
  offer(device, node, node, 1);
  device->sharing = true;
  // One offer serves any number of workers.
  const uint32_t count = r->unhelped_ns > wake_above_ns ? device->sleepers : 0;
  unlock(device);
  if (r->unhelped_ns > wake_above_ns) r->unhelped_ns = 0;
  wake(device, count);
}

Node *run_node(Runner *r, Node *node) {
  const uint64_t groups = node->groups;
  uint64_t start = 0;
  if (r->submission->samples || groups > 1) start = now_ns();
  if (r->submission->samples && !r->submission->failed.load(std::memory_order_relaxed))
    r->submission->samples[2 * (node - r->graph->nodes)] = start;
  for (uint64_t done = 0, step = 1; done < groups; step *= 4) {
    if (r->device->n_runners == 1) step = groups;
    const uint64_t end = groups - done < step ? groups : done + step;
    run(r, node, done, end);
    done = end;
    if (done == groups) break;
    const double unit_ns = double(now_ns() - start) / double(done), rest_ns = unit_ns * double(groups - done);
    if (rest_ns < share_above_ns) continue;
    share(r, node, done, unit_ns, rest_ns);
    return run_shared(r, node);
  }
  return complete_node(r, node);
}

void run_chain(Runner *r, Node *node) {
  while (node) {
    r->node = node;
    node = shared(r->graph, node) ? run_shared(r, node) : run_node(r, node);
  }
  Submission *s = r->submission;
  const uint32_t finished = r->finished;
  const bool watched = r->watched;
  r->finished = 0;
  // Before any system call: the system may preempt the worker there, which is not part of the work.
  const uint64_t now = now_ns();
  if (watched) end_visit(r, now);
  if (finished) {  // the last to be counted need not be the last that ran something
    uint64_t left = s->left_ns.load(std::memory_order_relaxed);
    while (left < now && !s->left_ns.compare_exchange_weak(left, now, std::memory_order_relaxed)) {}
  }
  // Nodes that have not been counted keep the submission. Without any it may be gone, and with it all but the graph.
  leave(r->graph);
  if (finished && s->remaining.fetch_sub(finished, std::memory_order_acq_rel) == finished) finish(r->device, s);
  if (watched) release(s);
}

// The next node to run, as a visitor of its graph; NULL when the device closes.
Node *take(Runner *r) {
  Device *device = r->device;
  uint64_t idle_since = 0;
  lock(device);
  for (;;) {
    if (Node *node = take_offer(device)) {
      r->submission = device->current;
      r->graph = r->submission->graph;
      visit(r->graph);
      if (!r->submission->start_ns) r->submission->start_ns = now_ns();
      r->watched = r->submission->samples != nullptr;
      if (r->watched) r->submission->references.fetch_add(1, std::memory_order_relaxed);
      unlock(device);
      if (r->watched) begin_visit(r);
      return node;
    }
    if (device->closing && !device->current) {
      unlock(device);
      return nullptr;
    }
    const uint64_t now = now_ns();
    if (!idle_since) idle_since = now;
    const bool useful = device->sharing || device->shared_last;
    const uint64_t patience_ns = !device->spinners ? first_spin_ns : useful ? spin_ns : 0;
    if (now - idle_since < patience_ns) {
      ++device->spinners;
      unlock(device);
      for (uint32_t round = 0; !device->n_offers.load(std::memory_order_relaxed); ++round) {
        pause_briefly(round);
        if (round % 32 == 31 && now_ns() - idle_since >= patience_ns) break;
      }
      lock(device);
      --device->spinners;
      continue;
    }
    ++device->sleepers;
    pthread_cond_wait(&device->work, &device->mutex);
    r->read_ns = 0;  // time asleep is not lost time: the clocks have to be read again
    --device->sleepers;
    idle_since = 0;
  }
}

// The position in the grid of the lane that runs now; false when the kernel's threads do not run as lanes.
bool thread_of_lane(const Worker *w, uint32_t *position) {
  if (!w->lane_fn || w->lane >= w->threads) return false;
  const uint32_t row = w->lane / w->size[0];
  const uint32_t local[3] = {w->lane % w->size[0], row % w->size[1], row / w->size[1]};
  for (int axis = 0; axis < 3; ++axis) position[axis] = w->group[axis] * w->dispatch->group_size[axis] + local[axis];
  return true;
}

void record_fault(Runner *r) {
  rearm_signals();
  reset_worker(r->worker);
  if (r->worker->shadow) {
    end_dispatch(r->worker);
    abandon_locals(r->worker);
  }
  uint32_t thread[3] = {};
  const bool known = thread_of_lane(r->worker, thread);
  fail(r, r->trap.fault, known, thread);
}

void *runner_main(void *argument) {
  Runner *r = static_cast<Runner *>(argument);
#if defined(__linux__)
  char name[16];
  snprintf(name, sizeof name, "ostinato-%u", uint32_t(r - r->device->runners));
  pthread_setname_np(pthread_self(), name);
#endif
  const bool trapped = enter_trap(&r->trap);
  if (sigsetjmp(r->trap.resume, 0)) {
    // The rest of the submission completes without running; this worker has to count what it held.
    record_fault(r);
    if (r->trap.floats) raise_float_traps();
    Node *node = r->node;
    run_chain(r, !shared(r->graph, node) || finish_claim(r, node) ? complete_node(r, node) : node);
  }
  if (r->trap.floats) raise_float_traps();
  while (Node *node = take(r)) run_chain(r, node);
  if (trapped) leave_trap(&r->trap);
  return nullptr;
}

// Signals sent to the process are for its own threads.
bool start_thread(Runner *r) {
  sigset_t all, before;
  sigfillset(&all);
  for (int signal : fault_signals) sigdelset(&all, signal);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, thread_stack_bytes);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const bool started = pthread_create(&r->thread, &attributes, &runner_main, r) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  return started;
}

void close(Worker *w) {
  close_shadow(w);
  close_worker(w);
}

}  // namespace

Device *open_device(uint32_t workers, uint64_t arena_bytes, uint32_t checks, char *error, uint64_t error_bytes) {
  Device *device = static_cast<Device *>(calloc(1, sizeof(Device)));
  Runner *runners = static_cast<Runner *>(calloc(workers, sizeof(Runner)));
  if (!device || !runners) {
    snprintf(error, error_bytes, "out of memory");
    free(device);
    free(runners);
    return nullptr;
  }
  device->runners = runners;
  pthread_mutex_init(&device->mutex, nullptr);
  pthread_cond_init(&device->work, nullptr);
  for (uint32_t i = 0; i < workers; ++i) {
    Runner *r = &runners[i];
    r->device = device;
    r->worker = open_worker(arena_bytes);
    if (r->worker) r->worker->log_room = &log_room;
    if (r->worker && checks && !open_shadow(r->worker, checks)) {
      close(r->worker);
      r->worker = nullptr;
    }
    if (checks & check_floats) r->trap.floats = r->worker;
    if (r->worker && start_thread(r)) {
      ++device->n_runners;
      continue;
    }
    snprintf(error, error_bytes, "worker %u of %u could not be started: %s", i + 1, workers,
             r->worker ? "the system allows no more threads" : "no memory for its stacks and threadgroup memory");
    if (r->worker) close(r->worker);
    close_device(device);
    return nullptr;
  }
  return device;
}

void close_device(Device *device) {
  resume(device);
  lock(device);
  device->closing = true;
  unlock(device);
  pthread_cond_broadcast(&device->work);
  for (uint32_t i = 0; i < device->n_runners; ++i) pthread_join(device->runners[i].thread, nullptr);
  for (uint32_t i = 0; i < device->n_runners; ++i) close(device->runners[i].worker);
  pthread_mutex_destroy(&device->mutex);
  pthread_cond_destroy(&device->work);
  free(device->runners);
  free(device);
}

void expect_work(Device *device) {
  lock(device);
  const bool asleep = !device->current && !device->spinners && device->sleepers;
  unlock(device);
  if (asleep) wake(device, 1);
}

void limit_log(Device *device, uint64_t bytes) { device->log_bytes = bytes; }

void submit(Device *device, Submission *s) {
  s->log.limit_bytes = device->log_bytes;
  s->references.fetch_add(1, std::memory_order_relaxed);  // the queue's
  uint32_t count = 0;
  lock(device);
  if (device->current) {
    device->last->next = s;
    device->last = s;
  } else {
    device->current = device->last = s;
    start_current(device);
    count = sleepers_needed(device, 0);
  }
  unlock(device);
  wake(device, count);
}

void track(Device *device, uint64_t begin, uint64_t bytes, const unsigned char *unwritten) {
  lock(device);
  track(device->runners[0].worker->shadow, begin, bytes, unwritten);
  unlock(device);
}

void read_unwritten(Device *device, uint64_t begin, uint64_t bytes, unsigned char *unwritten) {
  lock(device);
  read_unwritten(device->runners[0].worker->shadow, begin, bytes, unwritten);
  unlock(device);
}

void note_written(Device *device, uint64_t begin, uint64_t bytes) {
  lock(device);
  note_written(device->runners[0].worker->shadow, begin, bytes);
  unlock(device);
}

void resume(Device *device) {
  lock(device);
  uint32_t count = 0;
  if (device->held) {
    device->held = false;
    start_current(device);
    count = sleepers_needed(device, 0);
  }
  unlock(device);
  wake(device, count);
}

}  // namespace __ost
