// The device: a queue of command lists, and two threads of the host that run them in order.
// A thread takes the next command of the first list, unless that waits for all before it and one of them still runs.
// So commands between two that wait run at the same time, and a list starts when the one before it is done.
#include <pthread.h>
#include <stdlib.h>

#include "clock.h"   // of the CPU runtime, like
#include "worker.h"  // the memory that a compiled kernel runs in

#define EXPORT extern "C" __attribute__((visibility("default")))
using namespace __ost;

struct Run {  // `NativeRun` in backend.py, where it is owned
  const Dispatch *const *launches;
  const uint8_t *waits;  // for each, whether it waits for all before it
  uint64_t count, next, running, start_ns, end_ns, done;
  Run *after;
};

struct Device {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  Run *first, *last;
  bool closing;
  uint32_t n_threads, n_started;
  pthread_t threads[2];
  Worker *workers[2];
};

static void *thread_main(void *argument) {
  Device *device = static_cast<Device *>(argument);
  pthread_mutex_lock(&device->mutex);
  Worker *worker = device->workers[device->n_started++];
  while (device->first || !device->closing) {
    Run *run = device->first;
    const bool is_left = run && run->next < run->count;
    if (!run || (run->running && (!is_left || run->waits[run->next]))) {
      pthread_cond_wait(&device->changed, &device->mutex);
      continue;
    }
    if (!run->start_ns) run->start_ns = now_ns();
    if (is_left) {
      const Dispatch *launch = worker->dispatch = run->launches[run->next++];
      ++run->running;
      pthread_cond_broadcast(&device->changed);
      pthread_mutex_unlock(&device->mutex);
      const uint64_t groups = uint64_t(launch->groups[0]) * launch->groups[1] * launch->groups[2];
      if (groups) launch->entry(launch, worker, 0, groups);
      pthread_mutex_lock(&device->mutex);
      --run->running;
    }
    if (run->next == run->count && !run->running) {
      run->end_ns = now_ns();
      device->first = run->after;
      run->done = 1;  // whoever waits may drop it now
    }
    pthread_cond_broadcast(&device->changed);
  }
  pthread_mutex_unlock(&device->mutex);
  return nullptr;
}

EXPORT void small_close(Device *device) {
  pthread_mutex_lock(&device->mutex);
  device->closing = true;
  pthread_cond_broadcast(&device->changed);
  pthread_mutex_unlock(&device->mutex);
  for (uint32_t i = 0; i < device->n_threads; ++i) pthread_join(device->threads[i], nullptr);
  for (Worker *worker : device->workers)
    if (worker) close_worker(worker);
  free(device);
}

EXPORT Device *small_open(uint32_t threadgroup_bytes) {
  Device *device = static_cast<Device *>(calloc(1, sizeof(Device)));
  if (!device) return nullptr;
  pthread_mutex_init(&device->mutex, nullptr);
  pthread_cond_init(&device->changed, nullptr);
  for (Worker *&worker : device->workers) {
    pthread_t *thread = &device->threads[device->n_threads];
    worker = open_worker(threadgroup_bytes);
    if (worker && pthread_create(thread, nullptr, thread_main, device) == 0) ++device->n_threads;
  }
  if (device->n_threads == 2) return device;
  small_close(device);
  return nullptr;
}

EXPORT uint32_t small_submit(Device *device, Run *run) {
  pthread_mutex_lock(&device->mutex);
  (device->first ? device->last->after : device->first) = run;
  device->last = run;
  pthread_cond_broadcast(&device->changed);
  return pthread_mutex_unlock(&device->mutex) == 0;
}

EXPORT uint32_t small_wait(Device *device, const Run *run, uint64_t timeout_ns) {
  timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  timeout_ns += uint64_t(until.tv_nsec);
  until = {time_t(until.tv_sec + timeout_ns / 1000000000), long(timeout_ns % 1000000000)};
  pthread_mutex_lock(&device->mutex);
  while (!run->done && pthread_cond_timedwait(&device->changed, &device->mutex, &until) == 0) {}
  const uint32_t done = run->done != 0;
  pthread_mutex_unlock(&device->mutex);
  return done;
}
