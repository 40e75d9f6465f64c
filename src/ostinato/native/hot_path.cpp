// The hot path of a replay, as an extension of CPython: starting one, waiting for it, and ending those that are done.
//
// Contract: each function does what the Python code beside it does (runtime/hot_path.py says where), in the usual case
// and only then. In any other case it changes nothing and returns None or False, and the Python code goes on. The
// usual case is a replay that nobody watches, counts in a scope, profiles or prints from, on a device without faults.
//
// State stays in the slots of the Python objects, which are read and written at the offsets of their descriptors. New
// objects are copies of a template that Python made, so the defaults of their fields stand in Python alone. No step of
// the interpreter runs between the start of a replay and the moment at which its submission knows it, so Ctrl-C cannot
// come in between. What may run other code (allocating, dropping references, a wait) is done before or after.
//
// Backends come in by functions of one signature each:
//   int start(void *const *fixed, const void *values, uint64_t *out)       0 when started; `out` has key and turn
//   int wait(void *context, uint64_t key, int64_t timeout_ns)              1 done, 0 timeout, else for Python to judge
//   int finish(void *context, uint64_t key, uint64_t ring, uint64_t turn, uint64_t *times)
//                                                     1 ended well, 0 not done, else for Python to judge; once per run
//   void release(uint64_t key)                                             may be NULL
//   int read(void *context, uint64_t address, void *to, uint64_t bytes)    0 when read; nothing runs that writes there
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#if PY_VERSION_HEX < 0x030c0000
#include <structmember.h>
#endif

namespace {

constexpr int most_fields = 32, most_params = 16, most_fixed = 3;
constexpr int64_t slice_ns = 50000000;  // between two looks for Ctrl-C; as WAIT_SLICE_NS of runtime/submission.py

typedef int (*Start)(void *const *, const void *, uint64_t *);
typedef int (*Wait)(void *, uint64_t, int64_t);
typedef int (*Finish)(void *, uint64_t, uint64_t, uint64_t, uint64_t *);
typedef void (*Release)(uint64_t);
typedef int (*Read)(void *, uint64_t, void *, uint64_t);

PyObject *&at(PyObject *object, Py_ssize_t offset) {
  return *reinterpret_cast<PyObject **>(reinterpret_cast<char *>(object) + offset);
}

void put(PyObject *object, Py_ssize_t offset, PyObject *value) {
  PyObject *const before = at(object, offset);
  at(object, offset) = Py_NewRef(value);
  Py_XDECREF(before);
}

bool is_none(PyObject *object, Py_ssize_t offset) { return at(object, offset) == Py_None; }

// The offset of a slot; -1, with an exception, when the class has no such slot.
Py_ssize_t offset_of(PyObject *type, const char *name) {
  PyObject *descriptor = PyObject_GetAttrString(type, name);
  if (!descriptor) return -1;
  Py_ssize_t offset = -1;
  if (Py_IS_TYPE(descriptor, &PyMemberDescr_Type))
    offset = reinterpret_cast<PyMemberDescrObject *>(descriptor)->d_member->offset;
  else PyErr_Format(PyExc_TypeError, "%s is not a slot", name);
  Py_DECREF(descriptor);
  return offset;
}

// What the process has once: the classes, and what tells whether a case is the usual one.
struct World {
  PyObject *submission_class, *backing_class, *totals, *counting, *scopes, *counters_lock, *only, *tracing,
      *environment, *keys, *watchers, *gates, *module, *no_commands, *drop;
  PyObject *acquire, *release, *append, *popleft, *listeners, *exiting, *reap;
  Py_ssize_t n_gates;
  struct {
    Py_ssize_t status, finishing, run, commands, kept, blocked_by, trace, earlier, error, abandoned, queue, ordinal;
  } submission;
  struct { Py_ssize_t usable, submitted, in_flight, lock, marks, residency, prints, forked, quick; } queue;
  struct { Py_ssize_t committed, finished; } marks;
  struct { Py_ssize_t staged, suspended; } residency;
  struct { Py_ssize_t address, last_use, shared_uses; } backing;
  Py_ssize_t ranges, last_use;
  Py_ssize_t counts[6];  // dispatches, barriers, auto_barriers, concurrent, command_buffers, syncs
  bool ready;
} world;

struct Lock {
  PyObject *lock, *held;
  explicit Lock(PyObject *l) : lock(l), held(PyObject_CallMethodNoArgs(l, world.acquire)) {}
  ~Lock() {
    if (!held) return;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    Py_XDECREF(PyObject_CallMethodNoArgs(lock, world.release));
    PyErr_Restore(type, value, trace);
    Py_DECREF(held);
  }
};

// The value of a context variable, borrowed: its context or the variable keeps it.
PyObject *now(PyObject *variable) {
  PyObject *value = nullptr;
  if (PyContextVar_Get(variable, nullptr, &value) < 0) return nullptr;
  Py_XDECREF(value);
  return value;
}

// Whether this thread's work is counted in the totals of the process and nowhere else.
bool counted_in_totals() {
  if (now(world.counting) != Py_True) return false;
  PyObject *const scopes = now(world.scopes);
  return scopes && PyTuple_CheckExact(scopes) && !PyTuple_GET_SIZE(scopes);
}

bool bump(Py_ssize_t offset, PyObject *by) {
  PyObject *const sum = PyNumber_Add(at(world.totals, offset), by);
  if (!sum) return false;
  PyObject *const before = at(world.totals, offset);
  at(world.totals, offset) = sum;
  Py_DECREF(before);
  return true;
}

// Whether no setting that a replay has to look at is set, and nobody listens.
bool is_quiet() {
  if (PyList_GET_SIZE(world.watchers) || PyList_GET_SIZE(world.gates) != world.n_gates) return false;
  PyObject *const listeners = PyDict_GetItemWithError(world.tracing, world.listeners);
  if (!listeners || PyTuple_GET_SIZE(listeners) || now(world.only) != Py_None) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(world.keys); ++i)
    if (PyDict_GetItemWithError(world.environment, PyTuple_GET_ITEM(world.keys, i))) return false;
  return !PyErr_Occurred();
}

bool has_marks(PyObject *queue) {
  PyObject *const marks = at(queue, world.queue.marks);
  return PyDict_GET_SIZE(at(at(marks, world.marks.committed), world.ranges)) ||
         PyDict_GET_SIZE(at(at(marks, world.marks.finished), world.ranges));
}

// Copies of an object of a class with slots.
struct Template {
  PyObject *object;
  Py_ssize_t offsets[most_fields];
  int count;

  bool take(PyObject *from) {
    PyObject *slots = PyObject_GetAttrString(reinterpret_cast<PyObject *>(Py_TYPE(from)), "__slots__");
    PyObject *names = slots ? PySequence_Fast(slots, "slots") : nullptr;
    Py_XDECREF(slots);
    if (!names) return false;
    count = 0;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(names) && count >= 0; ++i) {
      const char *name = PyUnicode_AsUTF8(PySequence_Fast_GET_ITEM(names, i));
      if (name && !strcmp(name, "__weakref__")) continue;
      const Py_ssize_t offset = name ? offset_of(reinterpret_cast<PyObject *>(Py_TYPE(from)), name) : -1;
      if (offset < 0 || count == most_fields) count = -1;
      else offsets[count++] = offset;
    }
    Py_DECREF(names);
    if (count < 0) {
      if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "too many slots");
      return false;
    }
    object = Py_NewRef(from);
    return true;
  }

  PyObject *copy() const {
    PyObject *const made = Py_TYPE(object)->tp_alloc(Py_TYPE(object), 0);
    if (made)
      for (int i = 0; i < count; ++i) at(made, offsets[i]) = Py_XNewRef(at(object, offsets[i]));
    return made;
  }
};

// --- a device ----------------------------------------------------------------------------------------------------

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
    if (!PyObject_Size(in_flight)) return 1;
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

// What a weak reference, or None, refers to, borrowed; NULL when it is gone.
PyObject *referent(PyObject *reference) {
  if (!reference || reference == Py_None) return nullptr;
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

// --- a plan: everything that one replay after the other has in common ------------------------------------------------

struct Param {
  PyObject *name;
  char kind;  // 'u', 'i' or 'f'
  uint32_t bytes, offset;
};

struct Plan {
  PyObject ob_base;
  Device *device;
  Template submission, run;
  PyObject *make_run, *use, *uses, *failed;
  PyObject *counts[4];
  Param params[most_params];
  int n_params, n_fixed;
  uint32_t value_bytes;
  void *fixed[most_fixed];
  Start start;
};

// The bytes of a Python int or float; false where it does not fit, or where only Python knows what it means.
bool encode(const Param &param, PyObject *value, unsigned char *to) {
  if (param.kind == 'f') {
    if (!PyFloat_CheckExact(value)) return false;
    const double wide = PyFloat_AS_DOUBLE(value);
    if (param.bytes == 8) return memcpy(to, &wide, 8), true;
    const float narrow = float(wide);
    if (narrow - narrow != 0) return false;  // infinite or not a number
    return memcpy(to, &narrow, 4), true;
  }
  if (!PyLong_CheckExact(value)) return false;
  int overflow;
  const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (overflow) return false;
  const uint32_t bits = 8 * param.bytes;
  if (param.kind == 'u') {
    if (number < 0 || (bits < 64 && uint64_t(number) >> bits)) return false;
  } else if (bits < 64 && (number >= (1ll << (bits - 1)) || number < -(1ll << (bits - 1)))) {
    return false;
  }
  memcpy(to, &number, param.bytes);  // little endian, as every device here
  return true;
}

// One replay with values that were encoded: the submission, or NULL, with an exception or to say that Python has to do
// it. The queue's lock is held, and reaping is done.
PyObject *started(Plan *p, const unsigned char *values) {
  Device *const d = p->device;
  PyObject *const queue = d->queue, *const residency = at(queue, world.queue.residency),
                  *const in_flight = at(queue, world.queue.in_flight);
  // Everything that may allocate comes first: collecting garbage may run code that uses this queue.
  PyObject *const made = p->submission.copy(), *run = nullptr, *reference = nullptr, *ordinal = nullptr, *one = nullptr;
  if (made) reference = PyWeakref_NewRef(made, nullptr);
  if (reference && !p->make_run) run = p->run.copy();
  if (reference && (run || p->make_run)) one = PyLong_FromLong(1);
  if (one) ordinal = PyNumber_Add(at(queue, world.queue.submitted), one);
  Py_XDECREF(one);
  bool usual = ordinal && at(queue, world.queue.usable) == Py_True &&
               !PyObject_Size(at(residency, world.residency.staged)) &&
               at(residency, world.residency.suspended) == Py_False && !has_marks(queue) && is_quiet();
  PyObject *appended = usual ? PyObject_CallMethodOneArg(in_flight, world.append, made) : nullptr;
  bool running = false;
  if (appended) {
    Py_DECREF(appended);
    uint64_t out[2] = {};
    int status;
    put(made, world.submission.ordinal, ordinal);
    put(p->use, world.last_use, reference);
    Py_BEGIN_ALLOW_THREADS;  // the driver may wait for room in its own queue
    status = p->start(p->fixed, values, out);
    Py_END_ALLOW_THREADS;
    running = status == 0;
    if (running) {
      put(queue, world.queue.submitted, ordinal);
      PyObject *const number = PyLong_FromUnsignedLongLong(out[0]);
      if (p->make_run) {
        run = number ? PyObject_CallOneArg(p->make_run, number) : nullptr;
      } else {
        PyObject *const turn = PyLong_FromUnsignedLongLong(out[1]);
        if (number && turn) {
          put(run, d->run.number, number);
          put(run, d->run.turn, turn);
        }
        Py_XDECREF(turn);
      }
      Py_XDECREF(number);
      if (!run) Py_FatalError("ostinato: no memory for a number");  // the device would use memory that nothing keeps
      put(made, world.submission.run, run);
    } else {
      PyObject *const withdrawn = PyObject_CallMethod(queue, "_withdraw", "OO", made, p->uses);
      Py_XDECREF(withdrawn);
      if (withdrawn && status != -2 && p->failed != Py_None) Py_XDECREF(PyObject_CallFunction(p->failed, "i", status));
    }
  }
  Py_XDECREF(reference);
  Py_XDECREF(ordinal);
  Py_XDECREF(run);
  if (running) return made;
  Py_XDECREF(made);
  return nullptr;
}

// Counts replays that were started, as counters.add_command_buffer.
bool count(const Plan *p, long long replays) {
  const Lock lock(world.counters_lock);
  PyObject *const number = lock.held ? PyLong_FromLongLong(replays) : nullptr;
  bool good = number && bump(world.counts[4], number);
  for (int i = 0; i < 4 && good; ++i) {
    PyObject *const by = replays == 1 ? Py_NewRef(p->counts[i]) : PyNumber_Multiply(p->counts[i], number);
    good = by && bump(world.counts[i], by);
    Py_XDECREF(by);
  }
  Py_XDECREF(number);
  return good;
}

// Started with the values of a dict: the submission, or None when Python has to do it.
PyObject *plan_call(PyObject *self, PyObject *values) {
  Plan *const p = reinterpret_cast<Plan *>(self);
  alignas(16) unsigned char block[16 * most_params + 256];
  if (!PyDict_CheckExact(values) || PyDict_GET_SIZE(values) != p->n_params) Py_RETURN_NONE;
  for (int i = 0; i < p->n_params; ++i) {
    PyObject *const value = PyDict_GetItemWithError(values, p->params[i].name);
    if (!value || !encode(p->params[i], value, block + p->params[i].offset)) {
      if (PyErr_Occurred()) return nullptr;
      Py_RETURN_NONE;
    }
  }
  if (!counted_in_totals()) Py_RETURN_NONE;
  PyObject *made;
  {
    const Lock lock(at(p->device->queue, world.queue.lock));
    if (!lock.held) return nullptr;
    if (!reaped(p->device)) return nullptr;
    made = started(p, block);
  }
  if (!made) {
    if (PyErr_Occurred()) return nullptr;
    Py_RETURN_NONE;
  }
  if (count(p, 1)) return made;
  Py_DECREF(made);
  return nullptr;
}

// start_many(values, first): replays with the values at `first` and after it of each list in a dict, as many as can be
// started: a list of their submissions. None when a value is not of the usual kind; then none has started.
PyObject *plan_start_many(PyObject *self, PyObject *arguments) {
  Plan *const p = reinterpret_cast<Plan *>(self);
  PyObject *values;
  Py_ssize_t first, count_ = -1;
  if (!PyArg_ParseTuple(arguments, "O!n", &PyDict_Type, &values, &first)) return nullptr;
  if (!p->n_params || PyDict_GET_SIZE(values) != p->n_params || !counted_in_totals()) Py_RETURN_NONE;
  PyObject *lists[most_params];
  for (int i = 0; i < p->n_params; ++i) {
    lists[i] = PyDict_GetItemWithError(values, p->params[i].name);
    if (!lists[i] || !PyList_CheckExact(lists[i])) Py_RETURN_NONE;
    const Py_ssize_t left = PyList_GET_SIZE(lists[i]) - first;
    if (left < 0 || (i && left != count_)) Py_RETURN_NONE;
    count_ = left;
  }
  unsigned char *const blocks = static_cast<unsigned char *>(PyMem_Calloc(size_t(count_) + 1, p->value_bytes));
  PyObject *const made = blocks ? PyList_New(0) : PyErr_NoMemory();
  bool usual = made;
  for (Py_ssize_t n = 0; n < count_ && usual; ++n)
    for (int i = 0; i < p->n_params && usual; ++i)
      usual =
          encode(p->params[i], PyList_GET_ITEM(lists[i], first + n), blocks + n * p->value_bytes + p->params[i].offset);
  Py_ssize_t n = 0;
  if (usual) {
    const Lock lock(at(p->device->queue, world.queue.lock));
    for (; lock.held && n < count_ && reaped(p->device); ++n) {
      PyObject *const one = started(p, blocks + n * p->value_bytes);
      if (!one || PyList_Append(made, one) < 0) {
        n += one != nullptr;
        Py_XDECREF(one);
        break;
      }
      Py_DECREF(one);
    }
  }
  PyMem_Free(blocks);
  if (n && !PyErr_Occurred()) count(p, n);
  if (made && usual && !PyErr_Occurred()) return made;
  Py_XDECREF(made);
  if (PyErr_Occurred()) return nullptr;
  Py_RETURN_NONE;
}

int plan_init(PyObject *self, PyObject *arguments, PyObject *) {
  Plan *const p = reinterpret_cast<Plan *>(self);
  PyObject *device, *submission, *run, *make_run, *uses, *params, *fixed, *counts, *failed;
  unsigned long long start;
  unsigned int value_bytes;
  if (!PyArg_ParseTuple(arguments, "OOOOO!O!O!O!IKO", &device, &submission, &run, &make_run, &PyTuple_Type, &uses,
                        &PyTuple_Type, &counts, &PyTuple_Type, &params, &PyTuple_Type, &fixed, &value_bytes, &start,
                        &failed))
    return -1;
  p->n_params = int(PyTuple_GET_SIZE(params));
  p->n_fixed = int(PyTuple_GET_SIZE(fixed));
  p->value_bytes = value_bytes;
  if (p->n_params > most_params || p->n_fixed > most_fixed || PyTuple_GET_SIZE(uses) != 1 ||
      PyTuple_GET_SIZE(counts) != 4 || value_bytes > 16 * most_params + 256)
    return PyErr_SetString(PyExc_ValueError, "more than a plan has room for"), -1;
  p->device = reinterpret_cast<Device *>(Py_NewRef(device));
  if (!p->submission.take(submission)) return -1;
  if (make_run == Py_None) {
    if (!p->run.take(run)) return -1;
  } else {
    p->make_run = Py_NewRef(make_run);
  }
  p->uses = Py_NewRef(uses);
  p->use = PyTuple_GET_ITEM(uses, 0);
  p->failed = Py_NewRef(failed);
  p->start = reinterpret_cast<Start>(uintptr_t(start));
  for (int i = 0; i < 4; ++i) p->counts[i] = Py_NewRef(PyTuple_GET_ITEM(counts, i));
  for (int i = 0; i < p->n_fixed; ++i)
    p->fixed[i] = reinterpret_cast<void *>(uintptr_t(PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(fixed, i))));
  for (int i = 0; i < p->n_params; ++i) {
    Param &param = p->params[i];
    const char *kind;
    PyObject *name;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(params, i), "UsII", &name, &kind, &param.bytes, &param.offset)) return -1;
    param.kind = kind[0];
    param.name = Py_NewRef(name);
    if (param.bytes > 8 || param.offset + param.bytes > value_bytes)
      return PyErr_SetString(PyExc_ValueError, "a parameter outside of its block"), -1;
  }
  return PyErr_Occurred() ? -1 : 0;
}

void plan_free(PyObject *self) {
  Plan *const p = reinterpret_cast<Plan *>(self);
  PyTypeObject *const type = Py_TYPE(self);
  for (Param &param : p->params) Py_XDECREF(param.name);
  for (PyObject *count : p->counts) Py_XDECREF(count);
  Py_XDECREF(p->submission.object);
  Py_XDECREF(p->run.object);
  Py_XDECREF(p->make_run);
  Py_XDECREF(p->uses);
  Py_XDECREF(p->failed);
  Py_XDECREF(reinterpret_cast<PyObject *>(p->device));
  type->tp_free(self);
  Py_DECREF(type);
}

// --- the end of a submission ----------------------------------------------------------------------------------------

// Submission.__del__.
PyObject *finalise(PyObject *submission, PyObject *) {
  PyObject *const queue = at(submission, world.submission.queue);
  PyObject *const quick = queue ? at(queue, world.queue.quick) : nullptr;
  PyObject *const run = at(submission, world.submission.run);
  uint64_t key, turn, ring;
  if (!quick || quick == Py_None || !run || !at(submission, world.submission.error) ||
      !is_none(submission, world.submission.error) || at(queue, world.queue.forked) != Py_False ||
      PyDict_GetItemWithError(world.module, world.exiting) != Py_False ||
      !key_of(reinterpret_cast<Device *>(quick), run, &key, &turn, &ring))
    return PyObject_CallOneArg(world.drop, submission);
  const Release release = reinterpret_cast<Device *>(quick)->release;
  if (release && !is_none(submission, world.submission.status)) release(key);
  Py_RETURN_NONE;
}
PyMethodDef finaliser_definition = {"__del__", finalise, METH_NOARGS,
                                    "Report an error that nobody saw, release the run."};

PyObject *finaliser(PyObject *, PyObject *type) {
  return PyDescr_NewMethod(reinterpret_cast<PyTypeObject *>(type), &finaliser_definition);
}

// --- the module ------------------------------------------------------------------------------------------------------

// configure(objects, offsets): see runtime/hot_path.py, which has the same order.
PyObject *configure(PyObject *, PyObject *arguments) {
  World w = {};
  PyObject *queue, *marks, *inner, *residency, *counts, *shared_use;
  if (!PyArg_ParseTuple(arguments, "OOOOOOO!OO!O!O!O!O!OOOOOOO", &w.submission_class, &w.totals, &w.counting, &w.scopes,
                        &w.counters_lock, &w.only, &PyDict_Type, &w.tracing, &w.no_commands, &PyDict_Type,
                        &w.environment, &PyTuple_Type, &w.keys, &PyList_Type, &w.watchers, &PyList_Type, &w.gates,
                        &PyDict_Type, &w.module, &queue, &marks, &inner, &residency, &counts, &shared_use,
                        &w.backing_class))
    return nullptr;
  const struct {
    PyObject *type;
    const char *name;
    Py_ssize_t *to;
  } slots[] = {
      {w.submission_class, "_status", &w.submission.status},
      {w.submission_class, "_finishing", &w.submission.finishing},
      {w.submission_class, "_run", &w.submission.run},
      {w.submission_class, "_commands", &w.submission.commands},
      {w.submission_class, "_kept", &w.submission.kept},
      {w.submission_class, "_blocked_by", &w.submission.blocked_by},
      {w.submission_class, "_trace", &w.submission.trace},
      {w.submission_class, "_earlier", &w.submission.earlier},
      {w.submission_class, "_error", &w.submission.error},
      {w.submission_class, "_abandoned", &w.submission.abandoned},
      {w.submission_class, "_queue", &w.submission.queue},
      {w.submission_class, "ordinal", &w.submission.ordinal},
      {queue, "usable", &w.queue.usable},
      {queue, "submitted", &w.queue.submitted},
      {queue, "_in_flight", &w.queue.in_flight},
      {queue, "_lock", &w.queue.lock},
      {queue, "marks", &w.queue.marks},
      {queue, "residency", &w.queue.residency},
      {queue, "prints", &w.queue.prints},
      {queue, "_forked", &w.queue.forked},
      {queue, "quick", &w.queue.quick},
      {marks, "_committed", &w.marks.committed},
      {marks, "_finished", &w.marks.finished},
      {inner, "_ranges", &w.ranges},
      {residency, "_staged", &w.residency.staged},
      {residency, "_suspended", &w.residency.suspended},
      {shared_use, "last_use", &w.last_use},
      {w.backing_class, "address", &w.backing.address},
      {w.backing_class, "last_use", &w.backing.last_use},
      {w.backing_class, "_shared_uses", &w.backing.shared_uses},
      {counts, "dispatches", &w.counts[0]},
      {counts, "barriers", &w.counts[1]},
      {counts, "auto_barriers", &w.counts[2]},
      {counts, "concurrent", &w.counts[3]},
      {counts, "command_buffers", &w.counts[4]},
      {counts, "syncs", &w.counts[5]},
  };
  for (const auto &slot : slots)
    if ((*slot.to = offset_of(slot.type, slot.name)) < 0) return nullptr;
  const struct {
    const char *text;
    PyObject **to;
  } names[] = {{"acquire", &w.acquire},     {"release", &w.release}, {"append", &w.append},
               {"popleft", &w.popleft},     {"exiting", &w.exiting}, {"_listeners", &w.listeners},
               {"_reap_by_python", &w.reap}};
  for (const auto &name : names)
    if (!(*name.to = PyUnicode_InternFromString(name.text))) return nullptr;
  PyObject *const kept[] = {
      w.backing_class, w.submission_class, w.totals,      w.counting, w.scopes,   w.counters_lock, w.only,
      w.tracing,       w.no_commands,      w.environment, w.keys,     w.watchers, w.module,        w.gates};
  for (PyObject *object : kept) Py_INCREF(object);  // for the life of the process
  w.n_gates = PyList_GET_SIZE(w.gates);
  w.drop = PyObject_GetAttrString(w.submission_class, "__del__");
  if (!w.drop) return nullptr;
  w.ready = true;
  world = w;
  Py_RETURN_NONE;
}

PyMethodDef device_methods[] = {
    {"reap", device_reap, METH_NOARGS, "End submissions that are done; False: Python goes on."},
    {"wait", device_wait, METH_O, "Wait for a submission; False: Python goes on."},
    {"read", device_read, METH_VARARGS, "Wait for memory and read it; None: Python does it."},
    {}};
PyMethodDef plan_methods[] = {
    {"start", plan_call, METH_O, "Start a replay; None: Python has to do it."},
    {"start_many", plan_start_many, METH_VARARGS, "Start replays; None: Python has to do it."},
    {}};

PyType_Slot device_slots[] = {{Py_tp_new, reinterpret_cast<void *>(PyType_GenericNew)},
                              {Py_tp_init, reinterpret_cast<void *>(device_init)},
                              {Py_tp_dealloc, reinterpret_cast<void *>(device_free)},
                              {Py_tp_methods, device_methods},
                              {}};
PyType_Slot plan_slots[] = {{Py_tp_new, reinterpret_cast<void *>(PyType_GenericNew)},
                            {Py_tp_init, reinterpret_cast<void *>(plan_init)},
                            {Py_tp_dealloc, reinterpret_cast<void *>(plan_free)},
                            {Py_tp_methods, plan_methods},
                            {}};
// Neither is known to the garbage collector: what they refer to never refers back to them.
PyType_Spec device_spec = {"_ostinato_hot_path.Device", sizeof(Device), 0, Py_TPFLAGS_DEFAULT, device_slots};
PyType_Spec plan_spec = {"_ostinato_hot_path.Plan", sizeof(Plan), 0, Py_TPFLAGS_DEFAULT, plan_slots};

int fill(PyObject *module) {
  PyObject *const device = PyType_FromSpec(&device_spec), *const plan = device ? PyType_FromSpec(&plan_spec) : nullptr;
  if (!plan || PyModule_AddObjectRef(module, "Device", device) || PyModule_AddObjectRef(module, "Plan", plan))
    return -1;
  Py_DECREF(device);
  Py_DECREF(plan);
  return 0;
}

PyMethodDef functions[] = {{"configure", configure, METH_VARARGS, "Learn the classes and what tells the usual case."},
                           {"finaliser", finaliser, METH_O, "The `__del__` of the class of submissions."},
                           {}};
PyModuleDef_Slot module_slots[] = {{Py_mod_exec, reinterpret_cast<void *>(fill)}, {}};
PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_ostinato_hot_path", nullptr, 0, functions, module_slots};

}  // namespace

PyMODINIT_FUNC PyInit__ostinato_hot_path(void) { return PyModuleDef_Init(&definition); }
