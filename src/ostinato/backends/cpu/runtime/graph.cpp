// Building graphs, and what has to happen between two runs of one.
#include "graph.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"

namespace __ost {

struct Block { uint64_t bytes; };

namespace {

constexpr uint64_t cache_line = 64;
constexpr uint64_t one_owner = uint64_t(1) << 32;

// The memory of the last graph that was destroyed, for the next: fresh memory costs a page fault every 4 KiB, which
// takes longer than all else in submitting a long list.
constexpr uint64_t largest_spare = 4 << 20;
std::atomic<Block *> spare;

unsigned char *aligned_bytes(uint64_t bytes) {
  void *memory = nullptr;
  if (posix_memalign(&memory, cache_line, bytes ? bytes : 1) != 0) return nullptr;
  return static_cast<unsigned char *>(memory);
}

uint64_t whole_lines(uint64_t bytes) { return (bytes + cache_line - 1) / cache_line * cache_line; }
uint64_t room_for(const Param &param) { return whole_lines(param.bytes); }

// At least so many bytes behind the block's own cache line; NULL when memory is short.
Block *take_block(uint64_t bytes) {
  Block *block = spare.exchange(nullptr, std::memory_order_acquire);
  if (block && block->bytes >= bytes) return block;
  free(block);
  block = reinterpret_cast<Block *>(aligned_bytes(cache_line + bytes));
  if (block) block->bytes = bytes;
  return block;
}

void give_back(Block *block) {
  if (block && block->bytes <= largest_spare) block = spare.exchange(block, std::memory_order_acq_rel);
  free(block);
}

// The dependency edges that the nodes' accesses ask for; NULL when memory is short.
Hazards *infer(Graph *g) {
  Hazards *hazards = make_hazards(g->count);
  if (!hazards) return nullptr;
  for (uint32_t i = 0; i < g->count; ++i)
    if (!add_to(hazards, &g->nodes[i], i)) {
      free_hazards(hazards);
      return nullptr;
    }
  g->inferred = inferred_of(edges_of(hazards), g->count, [&](uint32_t i) { return g->nodes[i].kind == kind_barrier; });
  return hazards;
}

// Calls edge(before, after) for each edge of a mode, in an order that has `before` ascending within each `after`.
template <class Edge>
void each_edge(const Graph *g, uint32_t mode, const uint32_t *edges, uint64_t n_edges, Edge edge) {
  if (mode == mode_serial) {
    for (uint32_t i = 1; i < g->count; ++i) edge(i - 1, i);
  } else if (mode == mode_barriers) {
    // A barrier is a node: it waits for all since the last one, and all until the next wait for it.
    uint32_t first = 0;  // of those since the last barrier; that barrier is the node before it
    for (uint32_t i = 0; i < g->count; ++i) {
      if (g->nodes[i].kind != kind_barrier) {
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

bool connect(Graph *g, uint32_t mode, const uint32_t *edges, uint64_t n_edges) {
  if (mode == mode_inferred) {
    Hazards *hazards = infer(g);
    if (!hazards) return false;
    const Edges found = edges_of(hazards);
    const bool connected = connect(g, mode_edges, found.pairs, found.count);
    free_hazards(hazards);
    return connected;
  }
  refusal = refused_malformed;
  if (mode > mode_edges) return false;
  if (mode == mode_edges)
    for (uint64_t i = 0; i < n_edges; ++i)
      if (edges[2 * i] >= edges[2 * i + 1] || edges[2 * i + 1] >= g->count) return false;  // so it has no cycle
  refusal = refused_memory;

  uint64_t total = 0;
  g->n_roots = g->count;
  each_edge(g, mode, edges, n_edges, [&](uint32_t before, uint32_t after) {
    ++g->nodes[before].end_successor;
    if (g->nodes[after].n_blockers++ == 0) --g->n_roots;
    ++total;
  });
  if (total > UINT32_MAX) {
    refusal = refused_too_many_edges;
    return false;
  }
  g->successors = static_cast<uint32_t *>(malloc((total + g->n_roots + 1) * sizeof(uint32_t)));
  if (!g->successors) return false;
  g->roots = g->successors + total;

  uint32_t at = 0, root = 0;
  for (uint32_t i = 0; i < g->count; ++i) {
    Node &node = g->nodes[i];
    const uint32_t n = node.end_successor;
    node.first_successor = node.end_successor = at;
    at += n;
    node.blockers.store(node.n_blockers, std::memory_order_relaxed);
    if (!node.n_blockers) g->roots[root++] = i;
  }
  each_edge(g, mode, edges, n_edges,
            [&](uint32_t before, uint32_t after) { g->successors[g->nodes[before].end_successor++] = after; });
  return true;
}

void destroy(Graph *g) {
  give_back(g->block);
  free(g->successors);
  free(g->params);
  free(g->values);
  free(g);
}

}  // namespace

__thread Refusal refusal;

Graph *make_graph(const void *records, uint64_t bytes, uint64_t count, uint32_t mode, const uint32_t *edges,
                  uint64_t n_edges) {
  refusal = refused_malformed;
  if (count > bytes / 16 || count >= UINT32_MAX) return nullptr;
  refusal = refused_memory;
  Graph *g = static_cast<Graph *>(calloc(1, sizeof(Graph)));
  if (!g) return nullptr;
  g->count = uint32_t(count);
  g->holders.store(one_owner, std::memory_order_relaxed);
  const uint64_t node_bytes = whole_lines(count * sizeof(Node));
  g->block = take_block(node_bytes + bytes);
  if (g->block) {
    unsigned char *at = reinterpret_cast<unsigned char *>(g->block) + cache_line;
    g->nodes = static_cast<Node *>(memset(at, 0, node_bytes));
    g->records = at + node_bytes;
    if (bytes) memcpy(g->records, records, bytes);
    if (!read_records(g->records, bytes, g->nodes, g->count)) refusal = refused_malformed;
    else if (connect(g, mode, edges, n_edges)) return g;
  }
  destroy(g);
  return nullptr;
}

bool add_params(Graph *g, const Param *params, uint64_t n_params, const Use *uses, uint64_t n_uses,
                uint64_t value_bytes) {
  refusal = refused_malformed;
  if (n_params >= UINT32_MAX) return false;
  uint64_t total = 0;
  for (uint64_t i = 0; i < n_params; ++i) {
    if (uint64_t(params[i].from) + params[i].bytes > value_bytes) return false;
    total += room_for(params[i]);
  }
  g->n_params = uint32_t(n_params);
  g->value_bytes = value_bytes;
  g->params = static_cast<Param *>(malloc((n_params + 1) * sizeof(Param)));
  g->values = aligned_bytes(total);
  unsigned char **places = static_cast<unsigned char **>(malloc((n_params + 1) * sizeof(unsigned char *)));
  bool good = g->params && g->values && places;
  if (!good) refusal = refused_memory;
  if (good) {
    unsigned char *at = g->values;
    for (uint64_t i = 0; i < n_params; ++i) {
      g->params[i] = params[i];
      places[i] = at;
      at += room_for(params[i]);
    }
    memset(g->values, 0, total);
    for (uint64_t i = 0; i < n_uses && good; ++i)
      good = uses[i].node < g->count && uses[i].param < n_params &&
             redirect_argument(&g->nodes[uses[i].node], uses[i].argument, places[uses[i].param]);
  }
  free(places);
  return good;
}

bool move_arguments(Graph *g, const int64_t *nodes, const int64_t *positions, const uint64_t *addresses,
                    uint64_t count) {
  if (g->coming.load(std::memory_order_acquire)) return false;
  for (uint64_t i = 0; i < count; ++i) {
    if (uint64_t(nodes[i]) >= g->count) return false;
    const Node &node = g->nodes[nodes[i]];
    if (node.kind != kind_dispatch || uint64_t(positions[i]) >= node.n_args) return false;
  }
  for (uint64_t i = 0; i < count; ++i)
    const_cast<void **>(g->nodes[nodes[i]].dispatch.args)[positions[i]] = reinterpret_cast<void *>(addresses[i]);
  return true;
}

void own(Graph *g) { g->holders.fetch_add(one_owner, std::memory_order_relaxed); }

void disown(Graph *g) {
  if (g->holders.fetch_sub(one_owner, std::memory_order_acq_rel) == one_owner) destroy(g);
}

void visit(Graph *g) { g->holders.fetch_add(1, std::memory_order_relaxed); }

void leave(Graph *g) {
  if (g->holders.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy(g);
}

void begin_run(Graph *g, const unsigned char *values) {
  for (uint32_t round = 0; uint32_t(g->holders.load(std::memory_order_acquire)); ++round) pause_briefly(round);
  ++g->run;
  unsigned char *at = g->values;
  for (uint32_t i = 0; i < g->n_params; ++i) {
    memcpy(at, values + g->params[i].from, g->params[i].bytes);
    at += room_for(g->params[i]);
  }
}

}  // namespace __ost
