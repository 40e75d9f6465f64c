// Reading records, building the graph, running one node's units, and waiting for a submission.
#include "submission.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"

namespace __ost {
namespace {

constexpr uint64_t block_bytes = 256 * 1024;
constexpr uint64_t spin_before_sleep_ns = 20000;
constexpr uint64_t inline_argument = uint64_t(1) << 63;
constexpr uint64_t written = uint64_t(1) << 63;
constexpr uint32_t unknown_accesses = UINT32_MAX;

struct DispatchRecord {
  uint32_t bytes, kind;
  uint64_t entry;
  uint32_t grid[3], group_size[3], groups[3], n_args, n_shared, arena_bytes, n_accesses, zero;
};
struct CopyRecord {
  uint32_t bytes, kind;
  uint64_t source, target, length;
};
struct FillRecord {
  uint32_t bytes, kind;
  uint64_t target, length, pattern;
  uint32_t pattern_bytes, zero;
};
static_assert(sizeof(DispatchRecord) == 72 && sizeof(CopyRecord) == 32 && sizeof(FillRecord) == 40, "layout");

bool read_dispatch(unsigned char *at, uint32_t bytes, Node *node) {
  if (bytes < sizeof(DispatchRecord)) return false;
  const DispatchRecord *record = reinterpret_cast<const DispatchRecord *>(at);
  const uint64_t accesses_at = sizeof(DispatchRecord) + uint64_t(record->n_args) * 8;
  const uint64_t n_accesses = record->n_accesses == unknown_accesses ? 0 : record->n_accesses;
  const uint64_t shared_at = accesses_at + n_accesses * sizeof(Access);
  if (!record->entry || shared_at + uint64_t(record->n_shared) * 4 > bytes) return false;

  uint64_t *args = reinterpret_cast<uint64_t *>(at + sizeof(DispatchRecord));
  for (uint32_t i = 0; i < record->n_args; ++i) {
    if (!(args[i] & inline_argument)) continue;
    const uint64_t offset = args[i] & ~inline_argument;
    if (offset > bytes) return false;
    args[i] = uint64_t(uintptr_t(at + offset));
  }
  Dispatch &d = node->dispatch;
  d.entry = reinterpret_cast<Entry>(uintptr_t(record->entry));
  uint64_t groups = 1;
  for (int axis = 0; axis < 3; ++axis) {
    d.grid[axis] = record->grid[axis];
    d.group_size[axis] = record->group_size[axis];
    d.groups[axis] = record->groups[axis];
    if (__builtin_mul_overflow(groups, record->groups[axis], &groups)) return false;
  }
  d.args = reinterpret_cast<void *const *>(args);
  d.shared_offsets = reinterpret_cast<const uint32_t *>(at + shared_at);
  node->groups = groups;
  node->accesses = reinterpret_cast<const Access *>(at + accesses_at);
  node->n_accesses = record->n_accesses;
  return true;
}

uint64_t blocks(uint64_t bytes) { return bytes / block_bytes + (bytes % block_bytes != 0); }

bool read_copy(const unsigned char *at, uint32_t bytes, Node *node) {
  if (bytes < sizeof(CopyRecord)) return false;
  const CopyRecord *record = reinterpret_cast<const CopyRecord *>(at);
  Transfer &t = node->transfer;
  t.source = reinterpret_cast<const unsigned char *>(uintptr_t(record->source));
  t.target = reinterpret_cast<unsigned char *>(uintptr_t(record->target));
  t.bytes = record->length;
  // Blocks of a copy onto itself would read what others have overwritten.
  const bool overlap = t.source < t.target + t.bytes && t.target < t.source + t.bytes;
  t.block_bytes = overlap ? t.bytes : block_bytes;
  node->groups = overlap ? t.bytes != 0 : blocks(t.bytes);
  return true;
}

bool read_fill(const unsigned char *at, uint32_t bytes, Node *node) {
  if (bytes < sizeof(FillRecord)) return false;
  const FillRecord *record = reinterpret_cast<const FillRecord *>(at);
  const uint32_t width = record->pattern_bytes;
  if (width != 1 && width != 2 && width != 4 && width != 8) return false;
  Transfer &t = node->transfer;
  t.source = nullptr;
  t.target = reinterpret_cast<unsigned char *>(uintptr_t(record->target));
  t.bytes = record->length;
  t.block_bytes = block_bytes;
  t.pattern = record->pattern;
  for (uint32_t bits = width * 8; bits < 64; bits *= 2)
    t.pattern = (t.pattern & ((uint64_t(1) << bits) - 1)) | t.pattern << bits;
  node->groups = blocks(t.bytes);
  return true;
}

bool read_records(Submission *s, uint64_t bytes) {
  unsigned char *at = s->records, *const end = at + bytes;
  for (uint32_t i = 0; i < s->count; ++i) {
    uint32_t head[2];
    if (end - at < 16) return false;
    memcpy(head, at, sizeof head);
    if (head[0] < 16 || head[0] % 16 || head[0] > uint64_t(end - at)) return false;
    Node *node = &s->nodes[i];
    node->kind = Kind(head[1]);
    bool good = true;
    if (node->kind == kind_dispatch) good = read_dispatch(at, head[0], node);
    else if (node->kind == kind_copy) good = read_copy(at, head[0], node);
    else if (node->kind == kind_fill) good = read_fill(at, head[0], node);
    else good = node->kind == kind_barrier;
    if (!good) return false;
    at += head[0];
  }
  return at == end;
}

bool add_to(Hazards *hazards, const Submission *s, uint32_t index) {
  const Node &node = s->nodes[index];
  if (node.kind == kind_barrier || (node.kind == kind_dispatch && node.n_accesses == unknown_accesses))
    return add_fence(hazards, index);
  if (node.kind == kind_dispatch) return add_node(hazards, index, node.accesses, node.n_accesses);
  const Transfer &t = node.transfer;
  const uint64_t source = uint64_t(uintptr_t(t.source)), target = uint64_t(uintptr_t(t.target));
  const Access accesses[] = {{target | written, target + t.bytes}, {source, source + t.bytes}};
  return add_node(hazards, index, accesses, node.kind == kind_copy ? 2 : 1);
}

// The dependency edges that the nodes' accesses ask for; NULL when memory is short.
Hazards *infer(Submission *s) {
  Hazards *hazards = make_hazards(s->count);
  if (!hazards) return nullptr;
  for (uint32_t i = 0; i < s->count; ++i)
    if (!add_to(hazards, s, i)) {
      free_hazards(hazards);
      return nullptr;
    }
  const Edges edges = edges_of(hazards);
  s->inferred.ranges = edges.ranges;
  // A device with barriers runs a group of nodes at once until one depends on another of the same group.
  uint32_t first = 0;
  uint64_t edge = 0;
  for (uint32_t i = 0; i < s->count; ++i) {
    bool waits = false;
    for (; edge < edges.count && edges.pairs[2 * edge + 1] == i; ++edge) waits |= edges.pairs[2 * edge] >= first;
    if (s->nodes[i].kind == kind_barrier) {
      first = i + 1;
    } else if (waits) {
      ++s->inferred.barriers;
      first = i;
    } else {
      ++s->inferred.concurrent;
    }
  }
  return hazards;
}

// Calls edge(before, after) for each edge of a mode, in an order that has `before` ascending within each `after`.
template <class Edge>
void each_edge(const Submission *s, uint32_t mode, const uint32_t *edges, uint64_t n_edges, Edge edge) {
  if (mode == mode_serial) {
    for (uint32_t i = 1; i < s->count; ++i) edge(i - 1, i);
  } else if (mode == mode_barriers) {
    // A barrier is a node: it waits for all since the last one, and all until the next wait for it.
    uint32_t first = 0;            // of those since the last barrier; that barrier is the node before it
    for (uint32_t i = 0; i < s->count; ++i) {
      if (s->nodes[i].kind != kind_barrier) {
        if (first) edge(first - 1, i);
        continue;
      }
      if (first == i && first) edge(first - 1, i);
      for (uint32_t j = first; j < i; ++j) edge(j, i);
      first = i + 1;
    }
  } else {
    for (uint64_t i = 0; i < n_edges; ++i) edge(edges[2 * i], edges[2 * i + 1]);
  }
}

bool build_graph(Submission *s, uint32_t mode, const uint32_t *edges, uint64_t n_edges) {
  if (mode == mode_inferred) {
    Hazards *hazards = infer(s);
    if (!hazards) return false;
    const Edges found = edges_of(hazards);
    const bool built = build_graph(s, mode_edges, found.pairs, found.count);
    free_hazards(hazards);
    return built;
  }
  if (mode > mode_edges) return false;
  if (mode == mode_edges)
    for (uint64_t i = 0; i < n_edges; ++i)
      if (edges[2 * i] >= edges[2 * i + 1] || edges[2 * i + 1] >= s->count) return false;  // so it has no cycle

  uint64_t total = 0;
  each_edge(s, mode, edges, n_edges, [&](uint32_t before, uint32_t after) {
    ++s->nodes[before].end_successor;
    ++s->nodes[after].n_blockers;
    ++total;
  });
  if (total > UINT32_MAX) return false;
  s->successors = static_cast<uint32_t *>(malloc((total + 1) * sizeof(uint32_t)));
  if (!s->successors) return false;

  uint32_t at = 0;
  for (uint32_t i = 0; i < s->count; ++i) {
    Node &node = s->nodes[i];
    const uint32_t n = node.end_successor;
    node.first_successor = node.end_successor = at;
    at += n;
    node.blockers.store(node.n_blockers, std::memory_order_relaxed);
    if (node.n_blockers) continue;
    if (s->last_root) s->last_root->next_offer = &node;
    else s->roots = &node;
    s->last_root = &node;
    ++s->n_roots;
  }
  each_edge(s, mode, edges, n_edges, [&](uint32_t before, uint32_t after) {
    s->successors[s->nodes[before].end_successor++] = after;
  });
  return true;
}

void destroy(Submission *s) {
  pthread_mutex_destroy(&s->mutex);
  pthread_cond_destroy(&s->completed);
  free(s->nodes);
  free(s->successors);
  free(s->records);
  free(s);
}

}  // namespace

Submission *make_submission(const void *records, uint64_t bytes, uint64_t count, uint32_t mode,
                            const uint32_t *edges, uint64_t n_edges, uint64_t *samples) {
  if (count > bytes / 16 || count >= UINT32_MAX) return nullptr;
  Submission *s = static_cast<Submission *>(calloc(1, sizeof(Submission)));
  if (!s) return nullptr;
  pthread_mutex_init(&s->mutex, nullptr);
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
#if !defined(__APPLE__)
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
#endif
  pthread_cond_init(&s->completed, &attributes);
  pthread_condattr_destroy(&attributes);

  s->count = uint32_t(count);
  s->samples = samples;
  s->remaining.store(s->count, std::memory_order_relaxed);
  s->references.store(1, std::memory_order_relaxed);
  s->nodes = static_cast<Node *>(calloc(count ? count : 1, sizeof(Node)));
  void *copy = nullptr;
  if (posix_memalign(&copy, 64, bytes ? bytes : 64) != 0) copy = nullptr;
  s->records = static_cast<unsigned char *>(copy);
  if (s->nodes && copy) {
    if (bytes) memcpy(copy, records, bytes);
    if (read_records(s, bytes) && build_graph(s, mode, edges, n_edges)) return s;
  }
  destroy(s);
  return nullptr;
}

bool infer_edges(const void *records, uint64_t bytes, uint64_t count, uint32_t *pairs, uint64_t capacity,
                 uint64_t *n_edges) {
  Submission *s = make_submission(records, bytes, count, mode_serial, nullptr, 0, nullptr);
  Hazards *hazards = s ? infer(s) : nullptr;
  if (hazards) {
    const Edges found = edges_of(hazards);
    *n_edges = found.count;
    if (found.count && found.count <= capacity) memcpy(pairs, found.pairs, found.count * 2 * sizeof(uint32_t));
  }
  const bool good = hazards != nullptr;
  free_hazards(hazards);
  if (s) release(s);
  return good;
}

void release(Submission *s) {
  if (s->references.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy(s);
}

void complete(Submission *s) {
  pthread_mutex_lock(&s->mutex);
  s->done.store(true, std::memory_order_release);
  pthread_cond_broadcast(&s->completed);
  pthread_mutex_unlock(&s->mutex);
}

bool wait(Submission *s, int64_t timeout_ns) {
  if (s->done.load(std::memory_order_acquire)) return true;
  if (timeout_ns == 0) return false;
  // Most waits are for work that is about to end; sleeping and waking would take longer.
  const uint64_t start = now_ns();
  const uint64_t deadline = timeout_ns < 0 ? UINT64_MAX : start + uint64_t(timeout_ns);
  uint64_t now = start;
  for (uint32_t round = 0; now < start + spin_before_sleep_ns && now < deadline; ++round) {
    pause_briefly(round);
    if (s->done.load(std::memory_order_acquire)) return true;
    if (round % 8 == 7) now = now_ns();
  }
  pthread_mutex_lock(&s->mutex);
  while (!s->done.load(std::memory_order_acquire)) {
    if (timeout_ns < 0) {
      pthread_cond_wait(&s->completed, &s->mutex);
      continue;
    }
    now = now_ns();
    if (now >= deadline) break;
    timespec time;
#if defined(__APPLE__)
    time.tv_sec = time_t((deadline - now) / 1000000000u);
    time.tv_nsec = long((deadline - now) % 1000000000u);
    pthread_cond_timedwait_relative_np(&s->completed, &s->mutex, &time);
#else
    time.tv_sec = time_t(deadline / 1000000000u);
    time.tv_nsec = long(deadline % 1000000000u);
    pthread_cond_timedwait(&s->completed, &s->mutex, &time);
#endif
  }
  const bool done = s->done.load(std::memory_order_acquire);
  pthread_mutex_unlock(&s->mutex);
  return done;
}

void run_units(const Node *node, Worker *worker, uint64_t first, uint64_t end) {
  if (node->kind == kind_dispatch) {
    worker->dispatch = &node->dispatch;
    node->dispatch.entry(&node->dispatch, worker, first, end);
    return;
  }
  if (node->kind == kind_barrier) return;
  const Transfer &t = node->transfer;
  const uint64_t from = first * t.block_bytes;
  const uint64_t to = end * t.block_bytes < t.bytes ? end * t.block_bytes : t.bytes;
  if (node->kind == kind_copy) {
    memmove(t.target + from, t.source + from, to - from);
  } else if (t.pattern == (t.pattern & 0xff) * 0x0101010101010101u) {
    memset(t.target + from, int(t.pattern & 0xff), to - from);
  } else {
    uint64_t at = from;            // a multiple of 8, so every block starts the pattern anew
    for (; at + 8 <= to; at += 8) memcpy(t.target + at, &t.pattern, 8);
    memcpy(t.target + at, &t.pattern, to - at);
  }
}

}  // namespace __ost
