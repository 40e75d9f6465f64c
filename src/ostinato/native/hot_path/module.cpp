// The hot path of a replay, as an extension of CPython: starting one, waiting for it, and ending those that are done.
//
// Contract: each function does what the Python code beside it does (graph/starting.py says where), in the usual case
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
#include "device.h"
#include "plan.h"
#include "world.h"

namespace {

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

// configure(...): the arguments are those of graph/starting.py, in the same order.
PyObject *configure(PyObject *, PyObject *arguments) {
  World w = {};
  PyObject *queue, *marks, *inner, *residency, *counts, *shared_use;
  if (!PyArg_ParseTuple(arguments, "OOOOOOO!OO!O!O!O!OOOOOOO", &w.submission_class, &w.totals, &w.counting, &w.scopes,
                        &w.counters_lock, &w.only, &PyDict_Type, &w.tracing, &w.no_commands, &PyDict_Type,
                        &w.environment, &PyList_Type, &w.keys, &PyList_Type, &w.watchers, &PyDict_Type, &w.module,
                        &queue, &marks, &inner, &residency, &counts, &shared_use, &w.backing_class))
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
      w.tracing,       w.no_commands,      w.environment, w.keys,     w.watchers, w.module};
  for (PyObject *object : kept) Py_INCREF(object);  // for the life of the process
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