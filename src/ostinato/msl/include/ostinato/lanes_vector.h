// A thread as one lane of a simdgroup, for kernels whose simdgroups run as vectors. A kernel is compiled for one thread;
// the lane pass (backends/cpu/simt) then makes code for 32 of them, and what is only declared here becomes operations on
// all lanes. Contract: each of these is called by every active lane of a simdgroup at once.
#pragma once

#include "abi.h"

#define __OST_TOGETHER extern "C" __attribute__((convergent, nothrow, visibility("hidden")))

__OST_TOGETHER __attribute__((const)) __ost::Worker *__ost_worker();
__OST_TOGETHER __attribute__((const)) uint32_t __ost_lane();
// Waits for all simdgroups of the group.
__OST_TOGETHER void __ost_meet();
// Orders memory between the lanes of a simdgroup, which run in lockstep anyway.
__OST_TOGETHER void __ost_settle();
// The end of an iteration, to which also lanes come that leave the loop.
__OST_TOGETHER void __ost_turn();
// The value of the lane `from`, below 32; one's own if that lane is not active.
__OST_TOGETHER uint32_t __ost_shuffle32(uint32_t value, uint32_t from);
__OST_TOGETHER uint64_t __ost_shuffle64(uint64_t value, uint32_t from);
// The value of an active lane, the same one for all.
__OST_TOGETHER uint32_t __ost_pick32(uint32_t value, uint32_t from);
__OST_TOGETHER uint64_t __ost_pick64(uint64_t value, uint32_t from);
// One's own value; lanes that are not active count as having the value `absent` in the exchanges that follow.
__OST_TOGETHER uint32_t __ost_fill32(uint32_t value, uint32_t absent);
__OST_TOGETHER uint64_t __ost_fill64(uint64_t value, uint64_t absent);
// The value of the lane `from`, active or not.
__OST_TOGETHER uint32_t __ost_filled32(uint32_t value, uint32_t from);
__OST_TOGETHER uint64_t __ost_filled64(uint64_t value, uint32_t from);
// The active lanes for which it is true.
__OST_TOGETHER uint32_t __ost_ballot(bool value);

namespace __ost {

// What a function returns, until behind the loop that it returns from; `T` need not have a value by default.
template <class T> union Kept {
  T value;
  Kept() {}
  ~Kept() {}
};

inline __attribute__((always_inline)) Worker *worker() { return __ost_worker(); }
inline __attribute__((always_inline)) uint32_t lane_id() { return __ost_lane(); }
template <class S> inline __attribute__((always_inline)) void group_barrier(S) { __ost_meet(); }
inline __attribute__((always_inline)) void simd_barrier(Site) { __ost_settle(); }

}  // namespace __ost
