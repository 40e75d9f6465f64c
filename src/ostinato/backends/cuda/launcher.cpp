// Starting work on a CUDA stream: a list of launches, or a graph, in one call from Python.
//
// Records are those of cpu/runtime/node.h; each dispatch has one inline argument, the block of parameters that the
// kernel takes (launches.py). The driver is opened at run time and found by name, so nothing of CUDA is needed to
// build this. launchers.py has the same in Python, for machines without a compiler.
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

typedef int Result;        // CUresult
typedef void *Handle;      // contexts, streams, events, functions, graphs
typedef uint64_t Address;  // of device memory

constexpr Result success = 0, invalid = 1, not_ready = 600, full = -2;
constexpr uint64_t inline_argument = uint64_t(1) << 63;
constexpr uint32_t flags_at = 48, mask_at = 60, samples_at = 64, own_slots = 4, no_mask = UINT32_MAX;
constexpr uint64_t most_slots = 4096, fewest_slots = 32, most_pairs = 1 << 21;  // as in launches.py
constexpr uint32_t largest_params = 32768;
constexpr uint64_t most_blocks = INT32_MAX;

struct Functions { Handle plain, sampled; };

struct Record {
  uint32_t bytes, kind;
  const Functions *entry;
  uint32_t grid[3], group_size[3], groups[3], n_args, n_shared, shared_bytes, n_accesses, zero;
  uint64_t params;  // 1 << 63 | offset from the start of the record

  uint64_t blocks() const { return uint64_t(groups[0]) * groups[1] * groups[2]; }
  uint64_t threads() const { return uint64_t(group_size[0]) * group_size[1] * group_size[2]; }
  uint64_t warps() const { return (threads() + 31) / 32 * blocks(); }
};

}  // namespace

struct KernelNode;

// What every call needs; filled in by launchers.py and `ost_cuda_open`.
struct Launcher {
  Handle context, stream;
  const volatile uint32_t *done;  // the number of the last submission that finished
  Address done_address;           // the same, as the device sees it
  Result (*launch)(Handle, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, Handle, void **,
                   void **);
  Result (*launch_graph)(Handle, Handle);
  Result (*record)(Handle, Handle);
  Result (*write)(Handle, Address, uint32_t, uint32_t);
  Result (*push)(Handle);
  Result (*pop)(Handle *);
  Result (*query)(Handle);
  Result (*synchronize)(Handle);
  Result (*set_params)(Handle, Handle, const KernelNode *);
  Result (*read)(void *, Address, size_t, Handle);
  Handle read_stream;     // of reads by the host
  unsigned char *staged;  // pinned memory for them, `n_staged` pieces
  int64_t looked_ns;      // when the driver was last asked whether the device is lost
  uint32_t number;        // of the last submission that started
  uint32_t taken;         // a bit for each piece of `staged` that is in use
  uint32_t lost;          // whether a wait ended with an error: then only Python knows what is done
};
constexpr uint32_t n_staged = 8, staged_bytes = 4096;  // as in launchers.py

// Where the times of a list go, and the kernel that reduces them to one pair per command.
struct Reading {
  Handle kernel;
  Address table, pairs, result;
  uint32_t blocks, threads, count, zero;
};

// A node of a graph, and what it launches. (`NodeSpec` of updates.py)
struct NodeSpec {
  Handle node, function;
  void *params;
  uint32_t blocks, threads, shared_bytes, zero;
};

// CUDA_KERNEL_NODE_PARAMS_v2 of the driver.
struct KernelNode {
  Handle function;
  uint32_t grid[3], block[3], shared_bytes;
  void **params, **extra;
  Handle kernel, context;
};

// One replay's part of a graph's ring; the values of its parameters follow (support.cu, rings.py).
struct Slot {
  uint32_t turn, number;
  Address result;
  uint64_t begin, end;
};
static_assert(sizeof(Slot) == 32, "part of the contract with the device");

// The ring of a graph.
struct Ring {
  unsigned char *slots;
  uint32_t mask, stride, bytes;  // slots less one, bytes from slot to slot, bytes of values
  uint32_t turn, settled;        // replays started, and those whose slots are free again
  uint32_t uneven;               // whether host and device may disagree on the count of replays
};

// The result of a call: the submission's number, the number of launches, and which replay of its graph it is.
struct Started { uint32_t number, launched, turn, zero; };

namespace {

struct Current {
  const Launcher *launcher;
  Result status;
  explicit Current(const Launcher *l) : launcher(l), status(l->push(l->context)) {}
  ~Current() {
    Handle before;
    if (status == success) launcher->pop(&before);
  }
};

// Numbers are assigned here, so that no two submissions share one, whatever Python does in between.
Result finish(Launcher *l, Handle end, Started *out) {
  const Result recorded = l->record(end, l->stream);
  if (recorded) return recorded;
  out->number = ++l->number;
  return l->write(l->stream, l->done_address, out->number, 0);
}

// If a submission fails after a part of it has started, wait for that part: nothing would keep its memory alive.
Result settle(const Launcher *l, Result status, const Started *out) {
  if (status && out->launched) l->synchronize(l->stream);
  return status;
}

int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t(t.tv_sec) * 1000000000 + t.tv_nsec;
}

// The last submission that finished. Everything that the device wrote before is then visible.
uint32_t finished(const Launcher *l) { return __atomic_load_n(l->done, __ATOMIC_ACQUIRE); }

}  // namespace

// Looks up the functions of the driver, which the process has loaded already. Zero when all were found.
EXPORT int ost_cuda_open(Launcher *l, const char *library) {
  void *driver = dlopen(library, RTLD_NOW);
  if (!driver) return 1;
  const struct {
    const char *name;
    void *to;
  } wanted[] = {{"cuLaunchKernel", &l->launch},
                {"cuGraphLaunch", &l->launch_graph},
                {"cuEventRecord", &l->record},
                {"cuStreamWriteValue32_v2", &l->write},
                {"cuCtxPushCurrent_v2", &l->push},
                {"cuCtxPopCurrent_v2", &l->pop},
                {"cuStreamQuery", &l->query},
                {"cuStreamSynchronize", &l->synchronize},
                {"cuGraphExecKernelNodeSetParams_v2", &l->set_params},
                {"cuMemcpyDtoHAsync_v2", &l->read}};
  for (const auto &one : wanted) {
    void *found = dlsym(driver, one.name);
    if (!found) return 1;
    memcpy(one.to, &found, sizeof found);
  }
  return 0;
}

// The first pair of each command in a block of samples, and the number of pairs: count + 1 numbers. Each command has
// one pair per warp, up to a bound that is halved until the total is at most most_pairs. Returns the entry of the
// first kernel that has no instrumented variant yet, or 0.
EXPORT uint64_t ost_cuda_slots(const unsigned char *records, uint64_t count, uint32_t *starts) {
  for (uint64_t most = most_slots;; most /= 2) {
    const unsigned char *next = records;
    uint64_t at = 0;
    for (uint64_t i = 0; i < count; ++i) {
      const Record *record = reinterpret_cast<const Record *>(next);
      starts[i] = uint32_t(at);
      if (record->kind == 0) {
        if (!record->entry->sampled) return uint64_t(uintptr_t(record->entry));
        at += record->warps() < most ? record->warps() : most;
      }
      next += record->bytes;
    }
    starts[count] = uint32_t(at);
    if (at <= most_pairs || most <= fewest_slots) return 0;
  }
}

// Launches a list, one launch after the other; with `reading`, every launch is timed, into the pairs from `starts` on.
EXPORT Result ost_cuda_submit(Launcher *l, const unsigned char *records, uint64_t count, const Reading *reading,
                              const uint32_t *starts, Handle start, Handle end, Started *out) {
  const Current current(l);
  if (current.status) return current.status;
  Result status = l->record(start, l->stream);
  alignas(16) unsigned char own[largest_params];
  for (uint64_t i = 0; i < count && !status; ++i) {
    const Record *record = reinterpret_cast<const Record *>(records);
    if (record->kind == 0) {
      if (record->blocks() > most_blocks) {
        status = invalid;
        break;
      }
      const uint32_t offset = uint32_t(record->params & ~inline_argument);
      unsigned char *params = const_cast<unsigned char *>(records) + offset;
      Handle function = record->entry->plain;
      if (reading) {
        const uint32_t bytes = record->bytes - offset;
        if (bytes > largest_params) {
          status = invalid;
          break;
        }
        memcpy(own, params, bytes);
        const uint32_t pairs = starts[i + 1] - starts[i];
        uint32_t flags, mask = pairs - 1;
        memcpy(&flags, own + flags_at, 4);
        if (record->warps() <= pairs) {
          flags |= own_slots;
          mask = no_mask;
        }
        const Address to = reading->pairs + uint64_t(starts[i]) * 16;
        memcpy(own + flags_at, &flags, 4);
        memcpy(own + samples_at, &to, 8);
        memcpy(own + mask_at, &mask, 4);
        params = own;
        function = record->entry->sampled;
      }
      void *list[] = {params};
      status = l->launch(function, uint32_t(record->blocks()), 1, 1, uint32_t(record->threads()), 1, 1,
                         record->shared_bytes, l->stream, list, nullptr);
      if (!status) ++out->launched;
    }
    records += record->bytes;
  }
  if (reading && !status) {
    Reading read = *reading;
    void *list[] = {&read.table, &read.pairs, &read.result, &read.count};
    status = l->launch(read.kernel, read.blocks, 1, 1, read.threads, 1, 1, 0, l->stream, list, nullptr);
  }
  return settle(l, status ? status : finish(l, end, out), out);
}

// Launches a graph, whose first node reads the values of its parameters from the next slot of its ring. Returns `full`
// when that slot is not free yet. After a failed launch nothing runs, and neither count has changed.
EXPORT Result ost_cuda_replay(Launcher *l, Ring *ring, Handle graph, const void *values, Address result, Started *out) {
  if (ring->turn - ring->settled > ring->mask) return full;
  unsigned char *const at = ring->slots + uint64_t(ring->turn & ring->mask) * ring->stride;
  const Slot slot = {ring->turn, l->number + 1, result, 0, 0};
  memcpy(at, &slot, sizeof slot);
  memcpy(at + sizeof slot, values, ring->bytes);
  const Current current(l);
  if (current.status) return current.status;
  const Result status = l->launch_graph(graph, l->stream);
  if (status) {
    l->synchronize(l->stream);
    return status;
  }
  out->number = ++l->number;
  out->turn = ring->turn++;
  out->launched = 1;
  return success;
}

// Gives nodes of an executable graph the parameters that their specs have now, for launches from now on.
EXPORT Result ost_cuda_update(Launcher *l, Handle executable, const NodeSpec *specs, const uint32_t *rows,
                              uint64_t count) {
  const Current current(l);
  Result status = current.status;
  for (uint64_t i = 0; i < count && !status; ++i) {
    const NodeSpec &spec = specs[rows[i]];
    void *list[] = {spec.params};
    const KernelNode node = {
        spec.function, {spec.blocks, 1, 1}, {spec.threads, 1, 1}, spec.shared_bytes, list, nullptr, nullptr, nullptr};
    status = l->set_params(executable, spec.node, &node);
  }
  return status;
}

// 1 when a submission is done, 0 on timeout, or minus an error of the driver, which may mean that the device is lost.
EXPORT int ost_cuda_wait(Launcher *l, uint32_t number, int64_t timeout_ns) {
  if (int32_t(finished(l) - number) >= 0) return 1;
  const int64_t begin = now_ns();
  for (;;) {
    for (int i = 0; i < 64 && timeout_ns; ++i)
      if (int32_t(finished(l) - number) >= 0) return 1;
    const int64_t now = now_ns();
    if (now - l->looked_ns > 1000000) {  // a lost device never updates the word
      l->looked_ns = now;
      const Current current(l);
      const Result status = current.status ? current.status : l->query(l->stream);
      if (status != success && status != not_ready) {
        l->lost = 1;
        return -status;
      }
    }
    if (now - begin >= timeout_ns) return int32_t(finished(l) - number) >= 0;
    if (now - begin > 200000) {
      const timespec pause = {0, 20000};
      nanosleep(&pause, nullptr);
    }
  }
}

// The same for native/hot_path/, which states the contract of these four. A run's key is its number.

EXPORT int ost_quick_start(void *const *fixed, const void *values, uint64_t *out) {
  Ring *const ring = static_cast<Ring *>(fixed[1]);
  if (ring->uneven) return full;
  Started started = {};
  const Result status = ost_cuda_replay(static_cast<Launcher *>(fixed[0]), ring, fixed[2], values, 0, &started);
  out[0] = started.number;
  out[1] = started.turn;
  return status;
}
EXPORT int ost_quick_wait(void *launcher, uint64_t key, int64_t timeout_ns) {
  return ost_cuda_wait(static_cast<Launcher *>(launcher), uint32_t(key), timeout_ns);
}
EXPORT int ost_quick_finish(void *launcher, uint64_t key, uint64_t at, uint64_t turn, uint64_t *times) {
  const Launcher *const l = static_cast<Launcher *>(launcher);
  if (l->lost) return -1;
  if (int32_t(finished(l) - uint32_t(key)) < 0) return 0;
  Ring *const ring = reinterpret_cast<Ring *>(uintptr_t(at));
  if (ring->settled != uint32_t(turn)) return -1;  // its slot was needed, and its times are kept elsewhere
  const unsigned char *const slot = ring->slots + uint64_t(ring->settled++ & ring->mask) * ring->stride;
  memcpy(times, slot + offsetof(Slot, begin), 16);
  return 1;
}
EXPORT int ost_quick_read(void *at, uint64_t address, void *to, uint64_t bytes) {
  Launcher *const l = static_cast<Launcher *>(at);
  if (bytes > staged_bytes) return invalid;
  for (uint32_t i = 0; i < n_staged; ++i) {
    if (__atomic_fetch_or(&l->taken, 1u << i, __ATOMIC_ACQUIRE) >> i & 1) continue;
    unsigned char *const piece = l->staged + i * staged_bytes;
    const Current current(l);
    // With nothing in flight the stream of submissions answers sooner than one that was idle; otherwise the read would
    // wait for what is in flight.
    const Handle stream = finished(l) == l->number ? l->stream : l->read_stream;
    Result status = current.status ? current.status : l->read(piece, address, bytes, stream);
    if (!status)
      while ((status = l->query(stream)) == not_ready) {}
    if (!status) memcpy(to, piece, bytes);
    __atomic_fetch_and(&l->taken, ~(1u << i), __ATOMIC_RELEASE);
    return status;
  }
  return invalid;  // all pieces are in use
}
