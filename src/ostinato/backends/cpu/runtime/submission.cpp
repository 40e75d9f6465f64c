// The life of a submission, and waiting for it.
#include "submission.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"

namespace __ost {
namespace {

constexpr uint64_t spin_before_sleep_ns = 20000;

void destroy(Submission *s) {
  pthread_mutex_destroy(&s->mutex);
  pthread_cond_destroy(&s->completed);
  disown(s->graph);
  free(s->samples);
  free(s->log.records.load(std::memory_order_relaxed));
  free(s->findings);
  free(s);
}

}  // namespace

Submission *make_submission(Graph *graph, const void *values, bool sample) {
  refusal = refused_memory;  // there is no other reason
  Submission *s = static_cast<Submission *>(calloc(1, sizeof(Submission) + graph->value_bytes));
  if (!s) return nullptr;
  if (sample) {
    s->samples = static_cast<uint64_t *>(calloc(graph->count ? graph->count : 1, 2 * sizeof(uint64_t)));
    if (!s->samples) {
      free(s);
      return nullptr;
    }
  }
  pthread_mutex_init(&s->mutex, nullptr);
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
#if !defined(__APPLE__)
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
#endif
  pthread_cond_init(&s->completed, &attributes);
  pthread_condattr_destroy(&attributes);

  own(graph);
  graph->coming.fetch_add(1, std::memory_order_relaxed);
  s->graph = graph;
  s->values = reinterpret_cast<unsigned char *>(s + 1);
  if (graph->value_bytes) memcpy(s->values, values, graph->value_bytes);
  s->remaining.store(graph->count, std::memory_order_relaxed);
  s->references.store(1, std::memory_order_relaxed);
  return s;
}

void release(Submission *s) {
  if (s->references.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy(s);
}

void complete(Submission *s) {
  s->graph->coming.fetch_sub(1, std::memory_order_release);
  pthread_mutex_lock(&s->mutex);
  s->done.store(true, std::memory_order_release);
  pthread_cond_broadcast(&s->completed);
  pthread_mutex_unlock(&s->mutex);
}

bool wait(Submission *s, int64_t timeout_ns) {
  if (s->done.load(std::memory_order_acquire)) return true;
  if (timeout_ns == 0) return false;
  // Most waits are for work that is about to end; sleeping and waking would take longer.
  const uint64_t start = now_ns();
  const uint64_t deadline = timeout_ns < 0 ? UINT64_MAX : start + uint64_t(timeout_ns);
  uint64_t now = start;
  for (uint32_t round = 0; now < start + spin_before_sleep_ns && now < deadline; ++round) {
    pause_briefly(round);
    if (s->done.load(std::memory_order_acquire)) return true;
    if (round % 8 == 7) now = now_ns();
  }
  pthread_mutex_lock(&s->mutex);
  while (!s->done.load(std::memory_order_acquire)) {
    if (timeout_ns < 0) {
      pthread_cond_wait(&s->completed, &s->mutex);
      continue;
    }
    now = now_ns();
    if (now >= deadline) break;
    timespec time;
#if defined(__APPLE__)
    time.tv_sec = time_t((deadline - now) / 1000000000u);
    time.tv_nsec = long((deadline - now) % 1000000000u);
    pthread_cond_timedwait_relative_np(&s->completed, &s->mutex, &time);
#else
    time.tv_sec = time_t(deadline / 1000000000u);
    time.tv_nsec = long(deadline % 1000000000u);
    pthread_cond_timedwait(&s->completed, &s->mutex, &time);
#endif
  }
  const bool done = s->done.load(std::memory_order_acquire);
  pthread_mutex_unlock(&s->mutex);
  return done;
}

}  // namespace __ost
