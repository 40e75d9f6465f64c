// Reading records, and running a node's units.
#include "node.h"

#include <string.h>

namespace __ost {
namespace {

constexpr uint64_t block_bytes = 256 * 1024;
constexpr uint64_t inline_argument = uint64_t(1) << 63;
constexpr uint64_t written = uint64_t(1) << 63;

struct DispatchRecord {
  uint32_t bytes, kind;
  uint64_t entry;
  uint32_t grid[3], group_size[3], groups[3], n_args, n_shared, arena_bytes, n_accesses, views_at;
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
  node->n_args = record->n_args;
  node->n_shared = record->n_shared;
  if (record->views_at) {
    if (record->views_at % 8 || record->views_at + 8 * (uint64_t(record->n_args) + record->n_shared) > bytes)
      return false;
    node->views = reinterpret_cast<const uint64_t *>(at + record->views_at);
  }
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

}  // namespace

bool read_records(unsigned char *records, uint64_t bytes, Node *nodes, uint32_t count) {
  unsigned char *at = records, *const end = at + bytes;
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t head[2];
    if (end - at < 16) return false;
    memcpy(head, at, sizeof head);
    if (head[0] < 16 || head[0] % 16 || head[0] > uint64_t(end - at)) return false;
    Node *node = &nodes[i];
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

bool redirect_argument(Node *node, uint32_t argument, const void *to) {
  if (node->kind != kind_dispatch) return false;
  unsigned char *args = reinterpret_cast<unsigned char *>(const_cast<void **>(node->dispatch.args));
  const unsigned char *start = args - sizeof(DispatchRecord);
  const DispatchRecord *record = reinterpret_cast<const DispatchRecord *>(start);
  if (argument >= record->n_args) return false;
  uint64_t *slot = reinterpret_cast<uint64_t *>(args) + argument;
  const uint64_t inline_begin = uint64_t(uintptr_t(start)), inline_end = inline_begin + record->bytes;
  if (*slot < inline_begin || *slot > inline_end) return false;
  *slot = uint64_t(uintptr_t(to));
  return true;
}

bool add_to(Hazards *hazards, const Node *node, uint32_t index) {
  if (node->kind == kind_barrier || (node->kind == kind_dispatch && node->n_accesses == unknown_accesses))
    return add_fence(hazards, index);
  if (node->kind == kind_dispatch) return add_node(hazards, index, node->accesses, node->n_accesses);
  const Transfer &t = node->transfer;
  const uint64_t source = uint64_t(uintptr_t(t.source)), target = uint64_t(uintptr_t(t.target));
  const Access accesses[] = {{target | written, target + t.bytes}, {source, source + t.bytes}};
  return add_node(hazards, index, accesses, node->kind == kind_copy ? 2 : 1);
}

void run_units(const Node *node, Worker *worker, uint64_t first, uint64_t end) {
  if (node->kind == kind_dispatch) {
    worker->dispatch = &node->dispatch;
    worker->lane_fn = nullptr;  // still so after a fault: no lanes ran
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
    uint64_t at = from;  // a multiple of 8, so every block starts the pattern anew
    for (; at + 8 <= to; at += 8) memcpy(t.target + at, &t.pattern, 8);
    memcpy(t.target + at, &t.pattern, to - at);
  }
}

}  // namespace __ost
