// The times of a dispatch, taken inside it. Contract: made by every thread of a group when the dispatch may begin, end()
// called by every thread when it leaves the kernel's body.
//
// Every warp takes down when it began and when it left: one 16-byte store, no barrier, no wait, and nothing shared with
// other warps, so threads may leave whenever they like. Threads of a warp that leave apart store apart, and the last
// one stays. A dispatch with more warps than it has pairs has them share: the latest end wins, and the first to own
// each pair say when they began; blocks start in order, so the earliest is among them.
//
// The address of the pairs stands in the parameters themselves: to read it from memory costs an empty kernel a fifth.
#pragma once

#ifndef __OST_SAMPLED
#define __OST_SAMPLED 0
#endif

namespace __ost {

#if __OST_SAMPLED

OST_FN uint64_t device_time() {
  uint64_t ticks;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ticks));
  return ticks;
}

struct Sampled {
  const Head &head;
  uint64_t begin;

  OST_FN explicit Sampled(const Head &h) : head(h), begin(device_time()) {}

  OST_FN void wait() {
    if (!(head.flags & waits_in_body)) return;
    wait_for_last();
    begin = device_time();
  }

  OST_FN void end() {
    uint32_t lane;
    asm("mov.u32 %0, %laneid;" : "=r"(lane));
    if (lane != uint32_t(__ffs(int(__activemask())) - 1)) return;
    const uint64_t warp = uint64_t(blockIdx.x) * ((blockDim.x + 31) >> 5) + (threadIdx.x >> 5);
    ulonglong2 *const pair = head.samples + (uint32_t(warp) & head.sample_mask);
    const uint64_t now = device_time();
    if (head.flags & own_pairs) {
      *pair = ::make_ulonglong2(begin, now);
      return;
    }
    if (warp <= head.sample_mask) pair->x = begin;
    atomicMax(&pair->y, (unsigned long long)now);
  }
};

#else

struct Sampled {
  const Head &head;

  OST_FN explicit Sampled(const Head &h) : head(h) {}
  OST_FN void wait() {
    if (head.flags & waits_in_body) wait_for_last();
  }
  OST_FN void end() {}
};

#endif

}  // namespace __ost
