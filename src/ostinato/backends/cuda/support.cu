// The backend's own kernels: reading times off a block of samples, and both clocks at one moment.

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
  __device__ void add(uint64 start, uint64 end) {
    if (start && start < first) first = start;
    if (end > last) last = end;
  }
};

// Every `step`th pair from `at` on, several of them under way at once; they are zero again afterwards.
static __device__ Span gathered(ulonglong2 *pairs, uint32 at, uint32 end, uint32 step) {
  Span span = {~0ull, 0};
  ulonglong2 found[8];
  for (; at < end; at += 8 * step) {
#pragma unroll
    for (uint32 i = 0; i < 8; ++i) found[i] = at + i * step < end ? pairs[at + i * step] : make_ulonglong2(0, 0);
#pragma unroll
    for (uint32 i = 0; i < 8; ++i) {
      if (at + i * step < end) pairs[at + i * step] = make_ulonglong2(0, 0);
      span.add(found[i].x, found[i].y);
    }
  }
  return span;
}

// Of all lanes, in lane 0.
static __device__ Span of_warp(Span span) {
#pragma unroll
  for (int step = 16; step; step /= 2)
    span.add(__shfl_down_sync(~0u, span.first, step), __shfl_down_sync(~0u, span.last, step));
  return span;
}

static __device__ void write(ulonglong2 *out, Span span) {
  *out = span.first != ~0ull && span.last ? make_ulonglong2(span.first, span.last) : make_ulonglong2(0, 0);
}

// The times of a block's share of the commands, at most one a warp: a warp reads a small one off, all of the block's
// warps together a large one.
static __device__ void resolve(const uint32 *starts, ulonglong2 *pairs, ulonglong2 *out, uint32 count) {
  constexpr uint32 warps = 8, small = 256;
  __shared__ uint32 bounds[warps + 1];
  __shared__ Span spans[warps];
  const uint32 each = (count + gridDim.x - 1) / gridDim.x, first = blockIdx.x * each;
  const uint32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x <= each) bounds[threadIdx.x] = starts[min(first + threadIdx.x, count)];
  __syncthreads();
  if (warp < each && first + warp < count && bounds[warp + 1] - bounds[warp] <= small) {
    const Span span = of_warp(gathered(pairs, bounds[warp] + lane, bounds[warp + 1], 32));
    if (lane == 0) write(out + first + warp, span);
  }
  for (uint32 i = 0; i < each; ++i) {
    if (bounds[i + 1] - bounds[i] <= small) continue;
    const Span span = of_warp(gathered(pairs, bounds[i] + threadIdx.x, bounds[i + 1], 32 * warps));
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
  resolve(starts, pairs, out, count);
}

// The same inside a graph, whose replays say in memory where they want the times.
extern "C" __global__ void ost_resolve_to(const uint32 *starts, ulonglong2 *pairs, ulonglong2 *const *out, uint32 count) {
  resolve(starts, pairs, *out, count);
}

// Answers the host: when it writes the number of the next round, the device writes its time. The first reply says that
// the kernel runs, the last when it left. A host that does not come back is waited for a tenth of a second.
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

// When it ran.
extern "C" __global__ void ost_mark(volatile uint64 *out) { *out = now(); }

// The step of the device's time: the least that two readings differ by, if they differ.
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
