// The backend's own kernels: the first and the last node of a graph, the collection of times from a block of samples,
// and the exchange that pairs the clocks of device and host.

typedef unsigned int uint32;
typedef unsigned long long uint64;

static __device__ uint64 now() {
  uint64 ticks;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ticks));
  return ticks;
}

// The earliest start and the latest end of some pairs.
struct Span {
  uint64 first, last;
  __device__ void add(uint64 start, uint64 end, uint64 since) {
    if (start >= since && start < first) first = start;
    if (end >= since && end > last) last = end;
  }
};

// Every `step`th pair from `at` on, with several loads in flight. Times before `since` are those of another use of the
// pairs, and count as none. Without such a time (0) the pairs are cleared instead, which costs as much as to read them.
static __device__ Span gathered(ulonglong2 *pairs, uint32 at, uint32 end, uint32 step, uint64 since) {
  Span span = {~0ull, 0};
  const uint64 least = since ? since : 1;
  ulonglong2 found[8];
  for (; at < end; at += 8 * step) {
#pragma unroll
    for (uint32 i = 0; i < 8; ++i) found[i] = at + i * step < end ? pairs[at + i * step] : make_ulonglong2(0, 0);
#pragma unroll
    for (uint32 i = 0; i < 8; ++i) {
      if (!since && at + i * step < end) pairs[at + i * step] = make_ulonglong2(0, 0);
      span.add(found[i].x, found[i].y, least);
    }
  }
  return span;
}

// Reduces over all lanes; the result is in lane 0.
static __device__ Span of_warp(Span span) {
#pragma unroll
  for (int step = 16; step; step /= 2)
    span.add(__shfl_down_sync(~0u, span.first, step), __shfl_down_sync(~0u, span.last, step), 1);
  return span;
}

static __device__ void write(ulonglong2 *out, Span span) {
  *out = span.first != ~0ull && span.last ? make_ulonglong2(span.first, span.last) : make_ulonglong2(0, 0);
}

// Collects the times of a block's share of the commands, at most one per warp. One warp collects a command with few
// pairs, all warps of the block together one with many.
static __device__ void resolve(const uint32 *starts, ulonglong2 *pairs, ulonglong2 *out, uint32 count, uint64 since) {
  constexpr uint32 warps = 8, small = 256;
  __shared__ uint32 bounds[warps + 1];
  __shared__ Span spans[warps];
  const uint32 each = (count + gridDim.x - 1) / gridDim.x, first = blockIdx.x * each;
  const uint32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x <= each) bounds[threadIdx.x] = starts[min(first + threadIdx.x, count)];
  __syncthreads();
  if (warp < each && first + warp < count && bounds[warp + 1] - bounds[warp] <= small) {
    const Span span = of_warp(gathered(pairs, bounds[warp] + lane, bounds[warp + 1], 32, since));
    if (lane == 0) write(out + first + warp, span);
  }
  for (uint32 i = 0; i < each; ++i) {
    if (bounds[i + 1] - bounds[i] <= small) continue;
    const Span span = of_warp(gathered(pairs, bounds[i] + threadIdx.x, bounds[i + 1], 32 * warps, since));
    if (lane == 0) spans[warp] = span;
    __syncthreads();
    if (warp == 0) {
      const Span all = of_warp(lane < warps ? spans[lane] : Span{~0ull, 0});
      if (lane == 0) write(out + first + i, all);
    }
    __syncthreads();
  }
}

extern "C" __global__ void ost_resolve(const uint32 *starts, ulonglong2 *pairs, ulonglong2 *out, uint32 count) {
  resolve(starts, pairs, out, count, 0);
}

// One replay's slot in a graph's ring, in host memory: the host fills it in before the launch, except for the times.
// The values of the graph's parameters follow. (`Slot` of rings.py and launcher.cpp)
struct alignas(16) Slot {
  uint32 turn, number;  // how many replays of this graph came before it; what the queue knows it by
  uint64 result;        // where the times of its dispatches go
  uint64 begin, end;    // when it ran
};

// A graph's state in device memory; the values that its kernels read follow. (`ARENA_BYTES` of rings.py)
struct alignas(64) Arena {
  uint32 turn, number, finished, zero;
  Slot *slot;
  uint64 result, begin, end;
};
static_assert(sizeof(Slot) == 32 && sizeof(Arena) == 64, "both are part of the contract with the host");

// For dependent launches: allows the next node to be launched while this one runs, and waits for the previous one.
static __device__ void release_next() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
static __device__ void wait_for_last() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The first node of a graph, one block: copies the replay's values from its slot. Host and device both count the
// replays to find the slot; if they ever disagree, the replay must not run with another replay's values.
extern "C" __global__ void ost_begin(Arena *arena, unsigned char *ring, uint32 mask, uint32 stride, uint32 words,
                                     uint32 releases) {
  if (releases) release_next();
  const uint32 turn = arena->turn;
  uint4 *const slot = reinterpret_cast<uint4 *>(ring + uint64(turn & mask) * stride);
  uint4 *const values = reinterpret_cast<uint4 *>(arena + 1);
  const uint4 head = __ldcv(slot);
  for (uint32 i = threadIdx.x; i < words; i += blockDim.x) values[i] = __ldcv(slot + sizeof(Slot) / sizeof(uint4) + i);
  if (head.x != turn) __trap();
  __syncthreads();  // all have read the turn
  if (threadIdx.x == 0) {
    arena->turn = turn + 1;
    arena->number = head.y;
    arena->slot = reinterpret_cast<Slot *>(slot);
    arena->result = uint64(head.w) << 32 | head.z;
    arena->begin = now();  // from here on its dispatches run, until the last node begins
  }
}

// Tells the host that a replay is done, after all of its results are visible.
static __device__ void finish(const Arena *arena, uint64 end, volatile uint32 *done) {
  const uint32 number = arena->number;
  *reinterpret_cast<ulonglong2 *>(&arena->slot->begin) = make_ulonglong2(arena->begin, end);
  __threadfence_system();
  *done = number;
}

// The last node of a graph.
extern "C" __global__ void ost_end(const Arena *arena, volatile uint32 *done, uint32 dependent) {
  if (dependent) wait_for_last();
  finish(arena, now(), done);
}

// The last node of an instrumented graph: collects the times; the block that finishes last ends the replay.
extern "C" __global__ void ost_resolve_end(const uint32 *starts, ulonglong2 *pairs, uint32 count, Arena *arena,
                                           volatile uint32 *done, uint32 dependent) {
  if (dependent) wait_for_last();
  if (blockIdx.x == 0 && threadIdx.x == 0) arena->end = now();
  resolve(starts, pairs, reinterpret_cast<ulonglong2 *>(arena->result), count, arena->begin);
  __syncthreads();
  if (threadIdx.x) return;
  // Blocks order their results among each other; the last one's fence for the whole system covers them all.
  __threadfence();
  if (atomicAdd(&arena->finished, 1u) != gridDim.x - 1) return;
  arena->finished = 0;
  __threadfence();
  finish(arena, *static_cast<volatile uint64 *>(&arena->end), done);
}

// Exchanges readings with the host: when the host writes the number of the next round, the device writes its time. The
// first reply says that the kernel runs, the last when it ended. It waits a tenth of a second for the host at most.
extern "C" __global__ void ost_pairs(const volatile uint32 *round, volatile uint64 *replies, uint32 rounds) {
  const uint64 begin = now();
  replies[0] = begin;
  for (uint32 i = 1; i <= rounds; ++i) {
    while (*round < i)
      if (now() - begin > 100000000ull) return;
    replies[i] = now();
    __threadfence_system();
  }
  replies[rounds + 1] = now();
}

// Writes the time at which it runs.
extern "C" __global__ void ost_mark(volatile uint64 *out) { *out = now(); }

// The resolution of the device's clock: the smallest difference between two readings that differ.
extern "C" __global__ void ost_step(volatile uint64 *out) {
  uint64 least = ~0ull, before = now();
  for (int changes = 0; changes < 64;) {
    const uint64 after = now();
    if (after == before) continue;
    if (after - before < least) least = after - before;
    before = after;
    ++changes;
  }
  *out = least;
}
