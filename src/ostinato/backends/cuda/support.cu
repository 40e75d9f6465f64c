// The backend's own kernels: reading times off a block of samples, and both clocks at one moment.

typedef unsigned int uint32;
typedef unsigned long long uint64;

static __device__ uint64 now() {
  uint64 ticks;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ticks));
  return ticks;
}

// One block a command: the earliest start and the latest end of its pairs, which are zero again afterwards.
static __device__ void resolve(const uint32 *starts, ulonglong2 *pairs, ulonglong2 *out) {
  __shared__ uint64 first[32], last[32];
  uint64 earliest = ~0ull, latest = 0;
  for (uint32 i = starts[blockIdx.x] + threadIdx.x; i < starts[blockIdx.x + 1]; i += blockDim.x) {
    const ulonglong2 pair = pairs[i];
    if (pair.x && pair.x < earliest) earliest = pair.x;
    if (pair.y > latest) latest = pair.y;
    pairs[i] = make_ulonglong2(0, 0);
  }
  for (int step = 16; step; step /= 2) {
    const uint64 other_first = __shfl_down_sync(~0u, earliest, step), other_last = __shfl_down_sync(~0u, latest, step);
    if (other_first < earliest) earliest = other_first;
    if (other_last > latest) latest = other_last;
  }
  if (threadIdx.x % 32 == 0) {
    first[threadIdx.x / 32] = earliest;
    last[threadIdx.x / 32] = latest;
  }
  __syncthreads();
  if (threadIdx.x) return;
  for (uint32 warp = 1; warp < blockDim.x / 32; ++warp) {
    if (first[warp] < earliest) earliest = first[warp];
    if (last[warp] > latest) latest = last[warp];
  }
  out[blockIdx.x] = earliest == ~0ull || !latest ? make_ulonglong2(0, 0) : make_ulonglong2(earliest, latest);
}

extern "C" __global__ void ost_resolve(const uint32 *starts, ulonglong2 *pairs, ulonglong2 *out) {
  resolve(starts, pairs, out);
}

// The same inside a graph, whose replays say in memory where they want the times.
extern "C" __global__ void ost_resolve_to(const uint32 *starts, ulonglong2 *pairs, ulonglong2 *const *out) {
  resolve(starts, pairs, *out);
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
