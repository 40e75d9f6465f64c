// The states of local memory.
#include "local_memory.h"

#include <string.h>
#include <sys/mman.h>

#if !defined(MAP_NORESERVE)
#define MAP_NORESERVE 0
#endif

namespace __ost {
namespace {

constexpr uint64_t largest_element = 16;
constexpr size_t unit = 4;
constexpr size_t names_bytes = region_bytes / unit * sizeof(const char *);

size_t place_of(uintptr_t address) { return address & (region_bytes - 1); }

uint64_t within(size_t place, uint64_t bytes) {
  const uint64_t left = region_bytes - place;
  return bytes < left ? bytes : left;
}

void *reserve(size_t bytes) {
  void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

}  // namespace

bool open_locals(LocalMemory *locals) {
  locals->states = static_cast<unsigned char *>(reserve(region_bytes));
  locals->names = static_cast<const char **>(reserve(names_bytes));
  return locals->states && locals->names;
}

void close_locals(LocalMemory *locals) {
  if (locals->states) munmap(locals->states, region_bytes);
  if (locals->names) munmap(locals->names, names_bytes);
}

void forget_locals(LocalMemory *locals) {
  madvise(locals->states, region_bytes, MADV_DONTNEED);
  madvise(locals->names, names_bytes, MADV_DONTNEED);
}

void declare_local(const LocalMemory &locals, uintptr_t begin, uint64_t bytes, LocalState state, const char *name) {
  const size_t place = place_of(begin);
  memset(locals.states + place, int(state), within(place, bytes));
  if (state != local_fence) locals.names[place / unit] = name;
}

LocalFault local_access(const LocalMemory &locals, uintptr_t address, uint64_t bytes, bool write) {
  const size_t place = place_of(address);
  bytes = within(place, bytes);
  unsigned char *state = locals.states + place;
  uint64_t unwritten = 0;
  for (uint64_t i = 0; i < bytes; ++i) {
    if (state[i] == local_fence) return local_out_of_bounds;
    unwritten += state[i] == local_unwritten;
  }
  if (!unwritten) return local_fine;
  if (write) {
    memset(state, local_written, bytes);
    return local_fine;
  }
  return unwritten == bytes && bytes <= largest_element ? local_uninitialised : local_fine;
}

Memory local_at(const LocalMemory &locals, uintptr_t address, uint64_t bytes) {
  const size_t place = place_of(address);
  const auto found = [&](size_t at) {
    return Memory{address, bytes, locals.names[at], uint64_t(place) - uint64_t(at * unit), memory_thread};
  };
  // A fence that ends at a variable lies before it.
  size_t end = place;
  while (end < region_bytes && locals.states[end] == local_fence) ++end;
  if (end > place && locals.names[end / unit]) return found(end / unit);
  for (size_t at = place / unit; at > 0 && (place / unit - at) * unit < stack_stride; --at)
    if (locals.names[at]) return found(at);
  return Memory{address, bytes, nullptr, 0, memory_thread};
}

}  // namespace __ost
