// The few functions of the driver that launcher.cpp calls, remembering what they were told.
#include <stdint.h>
#include <stddef.h>
#include <string.h>

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT struct {
  uint32_t launches, fail_at, synchronized, query, fail_graph, graphs, pushed, popped;
  uint64_t blocks[16], threads[16], functions[16];
  unsigned char params[16][256];
  int (*on_graph)(void *);                         // who runs it, if somebody does
  int (*on_update)(void *, void *, const void *);  // who changes a node, if somebody does
  uint32_t updates, fail_update;
} fake = {};

EXPORT int cuLaunchKernel(void *function, uint32_t x, uint32_t, uint32_t, uint32_t threads, uint32_t, uint32_t,
                          uint32_t, void *, void **params, void **) {
  if (fake.fail_at && fake.launches + 1 == fake.fail_at) return 1;
  const uint32_t at = fake.launches++ % 16;
  fake.blocks[at] = x;
  fake.threads[at] = threads;
  fake.functions[at] = uint64_t(uintptr_t(function));
  memcpy(fake.params[at], params[0], x == 77 ? 8 : 112);
  return 0;
}
EXPORT int cuGraphLaunch(void *graph, void *) {
  if (fake.fail_graph) return int(fake.fail_graph);
  ++fake.graphs;
  return fake.on_graph ? fake.on_graph(graph) : 0;
}
EXPORT int cuGraphExecKernelNodeSetParams_v2(void *graph, void *node, const void *params) {
  if (++fake.updates == fake.fail_update) return 1;
  return fake.on_update ? fake.on_update(graph, node, params) : 0;
}
EXPORT int cuEventRecord(void *, void *) { return 0; }
EXPORT int cuStreamWriteValue32_v2(void *, uint64_t to, uint32_t value, uint32_t) {
  memcpy(reinterpret_cast<void *>(uintptr_t(to)), &value, 4);
  return 0;
}
EXPORT int cuCtxPushCurrent_v2(void *) { return ++fake.pushed, 0; }
EXPORT int cuCtxPopCurrent_v2(void **) { return ++fake.popped, 0; }
EXPORT int cuStreamQuery(void *) { return int(fake.query); }
EXPORT int cuStreamSynchronize(void *) { return ++fake.synchronized, 0; }
EXPORT int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *) {
  memcpy(to, reinterpret_cast<void *>(uintptr_t(from)), bytes);
  return int(fake.query == 600 ? 0 : fake.query);
}
