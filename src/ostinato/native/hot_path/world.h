// What all parts of the hot path share: slots of Python objects, what tells the usual case, counts, copies of templates.
#pragma once
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
      *environment, *keys, *watchers, *module, *no_commands, *drop;
  PyObject *acquire, *release, *append, *popleft, *listeners, *exiting, *reap;
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
  if (PyContextVar_Get(variable, nullptr, &value) < 0) return PyErr_Clear(), nullptr;
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
  if (PyList_GET_SIZE(world.watchers)) return false;
  PyObject *const listeners = PyDict_GetItemWithError(world.tracing, world.listeners);
  if (!listeners || PyTuple_GET_SIZE(listeners) || now(world.only) != Py_None) return false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(world.keys); ++i)
    if (PyDict_GetItemWithError(world.environment, PyList_GET_ITEM(world.keys, i))) return false;
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

}  // namespace
