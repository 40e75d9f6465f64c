// A plan: everything that one replay of a graph after the other has in common, and starting them.
#pragma once
#include "device.h"

namespace {

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
      PyObject *const turn = PyLong_FromUnsignedLongLong(out[1]);
      if (number && p->make_run) run = PyObject_CallOneArg(p->make_run, number);
      // The device would use memory that nothing keeps.
      if (!run || !number || !turn) Py_FatalError("ostinato: no memory for a number");
      if (!p->make_run) {
        put(run, d->run.number, number);
        put(run, d->run.turn, turn);
      }
      Py_DECREF(number);
      Py_DECREF(turn);
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

}  // namespace
