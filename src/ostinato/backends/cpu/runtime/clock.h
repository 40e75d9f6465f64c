// The clock of all timestamps, and how to poll without holding up other threads.
#ifndef OSTINATO_CLOCK_H
#define OSTINATO_CLOCK_H

#include <sched.h>
#include <stdint.h>
#include <time.h>

namespace __ost {

inline uint64_t now_ns() {
  timespec time;
#if defined(__APPLE__)
  clock_gettime(CLOCK_UPTIME_RAW, &time);  // what Python's monotonic clock is there; CLOCK_MONOTONIC has only µs
#else
  clock_gettime(CLOCK_MONOTONIC, &time);
#endif
  return uint64_t(time.tv_sec) * 1000000000u + uint64_t(time.tv_nsec);
}

// The processor time of the calling thread. A system call of up to a microsecond, so not for every dispatch.
inline uint64_t thread_cpu_ns() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return uint64_t(time.tv_sec) * 1000000000u + uint64_t(time.tv_nsec);
}

// Called over and over while polling, with a running count. Soon, and then now and again, it lets another thread have
// the core, in case the one that is waited for is queued behind the poll itself.
inline void pause_briefly(uint32_t round) {
  if (round % 64 == 15) {
    sched_yield();
    return;
  }
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  asm volatile("yield");
#endif
}

}  // namespace __ost

#endif
