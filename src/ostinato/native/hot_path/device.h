// A device: ending submissions that are done, waiting for one, reading small memory.
#pragma once
#include "world.h"

namespace {

struct Device {
  PyObject ob_base;
  PyObject *queue;  // borrowed: the queue owns this, and submissions and graphs keep the queue
  PyObject *run_class, *done;
  void *context;
  Wait wait;
  Finish finish;
  Release release;
  Read read;
  bool by_number;  // a run is a number, its key; otherwise it has slots
  struct { Py_ssize_t number, turn, ring, status, graph, interval; } run;
};

// The native identity of a run that a plan started; false for any other.
bool key_of(const Device *d, PyObject *run, uint64_t *key, uint64_t *turn, uint64_t *ring) {
  if (!Py_IS_TYPE(run, reinterpret_cast<PyTypeObject *>(d->run_class))) return false;
  *turn = *ring = 0;
  if (d->by_number) {
    *key = PyLong_AsUnsignedLongLong(run);
    return true;
  }
  if (is_none(run, d->run.number)) return false;
  *key = PyLong_AsUnsignedLongLong(at(run, d->run.number));
  *turn = PyLong_AsUnsignedLongLong(at(run, d->run.turn));
  *ring = PyLong_AsUnsignedLongLong(at(run, d->run.ring));
  return true;
}

// Ends submissions that are done, from the first in flight on, as Queue.reap. 1 when the first that is left still runs
// or none is left, 0 when Python has to go on, -1 after an exception. The queue's lock is held.
int reap(Device *d) {
  PyObject *const queue = d->queue, *const in_flight = at(queue, world.queue.in_flight);
  for (;;) {
    if (!PyObject_Size(in_flight) || at(queue, world.queue.forked) != Py_False) return 1;
    if (at(queue, world.queue.prints) != Py_False || has_marks(queue)) return 0;
    PyObject *const first = PySequence_GetItem(in_flight, 0);
    if (!first) return -1;
    PyObject *const run = at(first, world.submission.run);
    uint64_t key, turn, ring, times[2] = {};
    const bool usual = run && run != Py_None && is_none(first, world.submission.trace) &&
                       is_none(first, world.submission.blocked_by) && is_none(first, world.submission.status) &&
                       at(first, world.submission.finishing) == Py_False && key_of(d, run, &key, &turn, &ring);
    // Nothing below allocates what the garbage collector looks after until the end is recorded.
    const int ended = usual ? d->finish(d->context, key, ring, turn, times) : -1;
    if (ended != 1) {
      Py_DECREF(first);
      return ended == 0;
    }
    PyObject *graph = nullptr;
    if (!d->by_number) {
      PyObject *const interval = PyBytes_FromStringAndSize(reinterpret_cast<char *>(times), sizeof times);
      if (interval) {
        Py_XDECREF(at(run, d->run.interval));
        at(run, d->run.interval) = interval;
      } else {
        PyErr_Clear();
      }
      put(run, d->run.status, d->done);
      graph = at(run, d->run.graph);
      at(run, d->run.graph) = Py_NewRef(Py_None);
    }
    PyObject *const commands = at(first, world.submission.commands), *const kept = at(first, world.submission.kept);
    at(first, world.submission.commands) = Py_NewRef(world.no_commands);
    at(first, world.submission.kept) = Py_NewRef(Py_None);
    put(first, world.submission.status, d->done);
    PyObject *const popped = PyObject_CallMethodNoArgs(in_flight, world.popleft);
    // From here on other code may run.
    Py_XDECREF(popped);
    Py_DECREF(first);
    Py_XDECREF(graph);
    Py_DECREF(commands);
    Py_DECREF(kept);
    if (!popped) return -1;
  }
}

// The same with the help of Python where it is needed; false after an exception.
bool reaped(Device *d) {
  const int done = reap(d);
  if (done) return done > 0;
  PyObject *const rest = PyObject_CallMethodNoArgs(d->queue, world.reap);
  Py_XDECREF(rest);
  return rest;
}

PyObject *device_reap(PyObject *self, PyObject *) {
  Device *const d = reinterpret_cast<Device *>(self);
  const Lock lock(at(d->queue, world.queue.lock));
  if (!lock.held) return nullptr;
  const int reaped = reap(d);
  return reaped < 0 ? nullptr : PyBool_FromLong(reaped);
}

// Waits without limit: 1 when the submission ended well, 0 when Python has to go on, -1 after an exception.
int settle(Device *d, PyObject *submission) {
  if (!is_none(submission, world.submission.trace) || PyTuple_GET_SIZE(at(submission, world.submission.earlier)))
    return 0;
  if (is_none(submission, world.submission.status)) {
    uint64_t key, turn, ring;
    PyObject *const run = at(submission, world.submission.run);
    if (!run || !key_of(d, run, &key, &turn, &ring)) return 0;
    Py_INCREF(run);  // another thread may drop it meanwhile
    int done;
    Py_BEGIN_ALLOW_THREADS;
    done = d->wait(d->context, key, slice_ns);
    Py_END_ALLOW_THREADS;
    Py_DECREF(run);
    if (PyErr_CheckSignals()) {
      if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) put(submission, world.submission.abandoned, Py_True);
      return -1;
    }
    if (done != 1) return 0;  // Python looks after the queue between two slices
    const Lock lock(at(d->queue, world.queue.lock));
    if (!lock.held || reap(d) < 0) return -1;
  }
  return !is_none(submission, world.submission.status) && is_none(submission, world.submission.error);
}

// Counts one wait of the host, as counters.add_sync.
bool count_sync() {
  const Lock counting(world.counters_lock);
  PyObject *const one = counting.held ? PyLong_FromLong(1) : nullptr;
  const bool counted = one && bump(world.counts[5], one);
  Py_XDECREF(one);
  return counted;
}

// Submission.wait without a limit: True when it ended well. Otherwise False, and the wait has not been counted.
PyObject *device_wait(PyObject *self, PyObject *submission) {
  Device *const d = reinterpret_cast<Device *>(self);
  if (!Py_IS_TYPE(submission, reinterpret_cast<PyTypeObject *>(world.submission_class)) || !counted_in_totals() ||
      at(d->queue, world.queue.forked) != Py_False)
    Py_RETURN_FALSE;
  const int settled = settle(d, submission);
  if (settled < 0 || (settled && !count_sync())) return nullptr;
  return PyBool_FromLong(settled);
}

// What a weak reference, or None, refers to; NULL when it is gone. Borrowed: nothing drops it while no other code runs.
PyObject *referent(PyObject *reference) {
  if (!reference || reference == Py_None) return nullptr;
#if PY_VERSION_HEX >= 0x030d0000
  PyObject *strong = nullptr;
  PyWeakref_GetRef(reference, &strong);
  Py_XDECREF(strong);
  return strong;
#endif
  PyObject *const object = PyWeakref_GetObject(reference);
  return object == Py_None ? nullptr : object;
}

// The last submission that used a block of memory, as Backing.latest_use: borrowed, NULL if there is none.
PyObject *latest_use(PyObject *backing) {
  PyObject *latest = referent(at(backing, world.backing.last_use));
  PyObject *const shared = at(backing, world.backing.shared_uses);
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(shared); ++i) {
    PyObject *const use = referent(PyList_GET_ITEM(shared, i));
    PyObject *const submission = use ? referent(at(use, world.last_use)) : nullptr;
    if (submission && (!latest || PyLong_AsUnsignedLongLong(at(submission, world.submission.ordinal)) >
                                      PyLong_AsUnsignedLongLong(at(latest, world.submission.ordinal))))
      latest = submission;
  }
  return latest;
}

// read(backing, offset, nbytes): the bytes, after the last submission that used them, as Buffer.numpy; a bytearray, or
// None when Python has to do it.
PyObject *device_read(PyObject *self, PyObject *arguments) {
  Device *const d = reinterpret_cast<Device *>(self);
  PyObject *backing;
  unsigned long long offset, bytes;
  if (!PyArg_ParseTuple(arguments, "O!KK", world.backing_class, &backing, &offset, &bytes)) return nullptr;
  if (!d->read || !counted_in_totals() || at(d->queue, world.queue.forked) != Py_False ||
      at(d->queue, world.queue.usable) != Py_True || has_marks(d->queue))
    Py_RETURN_NONE;
  PyObject *const submission = Py_XNewRef(latest_use(backing));
  if (submission) {
    const int settled = settle(d, submission);
    Py_DECREF(submission);
    if (settled < 0) return nullptr;
    if (!settled) Py_RETURN_NONE;
  }
  const uint64_t address = PyLong_AsUnsignedLongLong(at(backing, world.backing.address)) + offset;
  PyObject *const contents = PyByteArray_FromStringAndSize(nullptr, Py_ssize_t(bytes));
  if (!contents) return nullptr;
  int status;
  Py_BEGIN_ALLOW_THREADS;
  status = d->read(d->context, address, PyByteArray_AS_STRING(contents), bytes);
  Py_END_ALLOW_THREADS;
  if (!status && count_sync()) return contents;
  Py_DECREF(contents);
  if (PyErr_Occurred()) return nullptr;
  Py_RETURN_NONE;
}

int device_init(PyObject *self, PyObject *arguments, PyObject *) {
  Device *const d = reinterpret_cast<Device *>(self);
  unsigned long long context, wait, finish, release, read;
  int by_number;
  if (!world.ready) return PyErr_SetString(PyExc_RuntimeError, "configure() comes first"), -1;
  if (!PyArg_ParseTuple(arguments, "OOOpKKKKK", &d->queue, &d->run_class, &d->done, &by_number, &context, &wait,
                        &finish, &release, &read))
    return -1;
  Py_INCREF(d->run_class);
  Py_INCREF(d->done);
  d->by_number = by_number;
  d->context = reinterpret_cast<void *>(uintptr_t(context));
  d->wait = reinterpret_cast<Wait>(uintptr_t(wait));
  d->finish = reinterpret_cast<Finish>(uintptr_t(finish));
  d->release = reinterpret_cast<Release>(uintptr_t(release));
  d->read = reinterpret_cast<Read>(uintptr_t(read));
  if (by_number) return 0;
  const struct {
    const char *name;
    Py_ssize_t *to;
  } wanted[] = {{"quick_number", &d->run.number}, {"quick_turn", &d->run.turn}, {"quick_ring", &d->run.ring},
                {"_status", &d->run.status},      {"graph", &d->run.graph},     {"interval", &d->run.interval}};
  for (const auto &one : wanted)
    if ((*one.to = offset_of(d->run_class, one.name)) < 0) return -1;
  return 0;
}

void device_free(PyObject *self) {
  Device *const d = reinterpret_cast<Device *>(self);
  PyTypeObject *const type = Py_TYPE(self);
  Py_XDECREF(d->run_class);
  Py_XDECREF(d->done);
  type->tp_free(self);
  Py_DECREF(type);
}

}  // namespace
