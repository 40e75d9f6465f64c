// The backend's own kernels: reading times off a block of samples, and both clocks at one moment.

typedef unsigned int uint32;
typedef unsigned long long uint64;

static __device__ uint64 now() {
  uint64 ticks;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ticks));
  return ticks;
}

// One warp a command: the earliest start and the latest end of its pairs, which are zero again afterwards.
static __device__ void resolve(const uint32 *starts, ulonglong2 *pairs, ulonglong2 *out, uint32 count) {
  const uint32 command = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (command >= count) return;
  uint64 earliest = ~0ull, latest = 0;
  for (uint32 i = starts[command] + lane; i < starts[command + 1]; i += 32) {
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
  const bool known = earliest != ~0ull && latest;
  if (lane == 0) out[command] = known ? make_ulonglong2(earliest, latest) : make_ulonglong2(0, 0);
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
