// What the translator's generated entry points are made of on CUDA: the head of a kernel's parameters, the group and
// thread positions of a block, and how arguments are read. Included after the shim; not for users' sources.
#pragma once

// Buffers that are only read may travel with the parameters in a build that makes room for them.
#ifndef __OST_INLINE_BYTES
#define __OST_INLINE_BYTES 0
#endif
#if __OST_INLINE_BYTES
#define __OST_INLINE_AT(a) , (a).inline_bytes
#else
#define __OST_INLINE_AT(a)
#endif

namespace __ost_program {

// Threadgroup memory of a block: what the kernel's body declares, then what the dispatch asks for.
extern __shared__ __align__(128) unsigned char __ost_arena[];

namespace __ost {

struct alignas(8) Head {
  uint32_t grid[3];        // threads in the grid
  uint32_t group_size[3];  // nominal; groups at the edge are clipped by the grid
  uint32_t groups[3];
  uint32_t node;  // its number in the list or graph, for kernels that print
  uint32_t zero[2];
  // What every kernel reads lies together with the first arguments: parameters come from memory by 64 bytes at a time,
  // counted from 48 on, and each costs a small kernel a tenth of its time.
  uint32_t flags;        // see below
  uint32_t row_threads;  // grid[0] and group_size[0] once more
  uint32_t row_group;
  uint32_t sample_mask;   // where warps share pairs: how many there are, a power of two, less one; else all ones
  ulonglong2 *samples;    // where the dispatch records its times: a pair of start and end per warp
  struct DeviceLog *log;  // for kernels that print
};
constexpr uint32_t waits = 1, releases = 2, own_pairs = 4, one_row = 8, waits_in_body = 16, releases_late = 32;
static_assert(sizeof(Head) == 80, "the head is part of the contract with the driver");
typedef Head Dispatch;

// For dependent launches: allows the next kernel to be launched while this one runs, and waits for the previous one.
OST_FN void release_next() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
OST_FN void wait_for_last() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace __ost

#include "positions.h"
#include "sampling_cuda.h"

namespace __ost {

// With a dependent launch a kernel starts while the one before it still runs, and waits here. To wait costs a block half a
// microsecond even when nothing is left to wait for, so only those do that were launched so.
OST_FN void wait_for_predecessors(const Head &head) {
  if (head.flags & releases) release_next();
  if (head.flags & waits) wait_for_last();
  if (head.flags & releases_late) release_next();
}

// Where a block's group lies in the grid, clipped at the grid's edge. Blocks are numbered in one row, x fastest.
struct Group {
  uint32_t position[3], size[3], count;
  OST_FN explicit Group(const Head &head) {
    position[0] = blockIdx.x;
    position[1] = position[2] = 0;
    if (head.flags & one_row) {
      const uint32_t left = head.row_threads - blockIdx.x * head.row_group;
      size[0] = count = left < head.row_group ? left : head.row_group;
      size[1] = size[2] = 1;
      return;
    }
    if (head.groups[1] * head.groups[2] != 1) {
      const uint32_t rest = blockIdx.x / head.groups[0];
      position[0] = blockIdx.x - rest * head.groups[0];
      position[2] = rest / head.groups[1];
      position[1] = rest - position[2] * head.groups[1];
    }
    count = 1;
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) {
      const uint32_t left = head.grid[axis] - position[axis] * head.group_size[axis];
      size[axis] = left < head.group_size[axis] ? left : head.group_size[axis];
      count *= size[axis];
    }
  }
  // The lanes of this thread's warp that exist.
  OST_FN Site lanes() const {
    const uint32_t left = count - (threadIdx.x & ~31u);
    return Site{left >= 32 ? 0xffffffffu : hardware_mask((1u << left) - 1u)};
  }
};

OST_FN Thread running_thread(const Head &head, const Group &group) {
  Thread t;
  t.d = &head;
  t.group_position = group.position;
  t.group_size = group.size;
  t.index = group_thread();
  t.local[0] = t.index;
  t.local[1] = t.local[2] = 0;
  if (head.flags & one_row) {
    t.grid[0] = blockIdx.x * head.row_group + t.index;
    t.grid[1] = t.grid[2] = 0;
    return t;
  }
  if (group.size[1] * group.size[2] != 1) {
    const uint32_t rest = t.index / group.size[0];
    t.local[0] = t.index - rest * group.size[0];
    t.local[2] = rest / group.size[1];
    t.local[1] = rest - t.local[2] * group.size[1];
  }
#pragma unroll
  for (int axis = 0; axis < 3; ++axis) t.grid[axis] = group.position[axis] * head.group_size[axis] + t.local[axis];
  return t;
}

// The room of a value in a kernel's parameters.
template <class T> constexpr uint32_t value_bytes = (uint32_t(sizeof(T)) + 15u) / 16u * 16u;

// A value stands in its slot unless it has an address. A copy: no store of the kernel can change it. The slot is read
// whether or not it is needed: a choice between two places would be a load from an address of unknown kind.
template <class T> OST_FN metal::remove_cv_t<T> slot_value(const unsigned char *slot) {
  if constexpr (alignof(T) <= 16) {
    return *reinterpret_cast<const T *>(slot);
  } else {
    metal::remove_cv_t<T> value;
    ::memcpy(&value, slot, sizeof(T));  // slots are aligned to 16 bytes only
    return value;
  }
}
template <class T> OST_FN metal::remove_cv_t<T> value_of(uint64_t address, const unsigned char *slot) {
  metal::remove_cv_t<T> value = slot_value<T>(slot);
  if (address) return *reinterpret_cast<const T *>(address);
  return value;
}

// A buffer: where it lies in device memory. A plain cast: the compiler knows by itself that kernels are given addresses
// of global memory, and telling it with a conversion makes the optimiser of NVRTC 13.0 hang.
template <class T> OST_FN T *pointer_to(uint64_t address) { return reinterpret_cast<T *>(address); }
// A buffer that is only read may also be bytes that travel with the parameters: the top bit says so.
template <class T> OST_FN T *pointer_to(uint64_t address, const unsigned char *inline_bytes) {
  return address >> 63
             ? reinterpret_cast<T *>(const_cast<unsigned char *>(inline_bytes + (address & 0x7fffffffffffffffu)))
             : pointer_to<T>(address);
}

// Arguments of a kernel in CUDA source: they convert to the types that it declares.
struct NativePointer {
  uint64_t address;
  template <class T> OST_FN operator T *() const { return reinterpret_cast<T *>(address); }
};
struct NativeValue {
  uint64_t address;
  const unsigned char *slot;
  template <class T> OST_FN operator T() const { return value_of<T>(address, slot); }
};

// What an argument refers to when its function constant leaves it out and the kernel takes it by reference.
alignas(64) static __device__ const unsigned char absent[4096] = {};

// Where kernels print to (backends/cuda/logs.py). Records follow; the one that did not fit first has a size of 0.
struct DeviceLog { unsigned long long limit_bytes, used, dropped, zero; };

// What a record needs and only the parameters of the kernel tell. All threads of a block write the same, each before it
// calls anything that reads it.
struct LogPlace {
  DeviceLog *log;
  uint32_t node;
};
OST_FN LogPlace &log_place() {
  static __shared__ LogPlace place;
  return place;
}
OST_FN void may_print(const Head &head) {
  log_place().log = head.log;
  log_place().node = head.node;
}

OST_LOG_FN LogRecord *log_record(uint32_t bytes) {
  DeviceLog *const log = log_place().log;
  const uint64_t at = atomicAdd(&log->used, (unsigned long long)bytes);
  LogRecord *const record = reinterpret_cast<LogRecord *>(reinterpret_cast<unsigned char *>(log + 1) + at);
  if (at + bytes > log->limit_bytes) {
    if (at < log->limit_bytes) record->bytes = 0;
    atomicAdd(&log->dropped, 1ull);
    return nullptr;
  }
  *record = {bytes, log_place().node, 0, group_thread(), blockIdx.x};
  return record;
}

// Ends a thread immediately. A plain return may lead it to the end of the kernel first, where it would wait for the
// rest of its warp, which waits for it at a barrier.
OST_FN void end_thread() {
  asm volatile("exit;" ::: "memory");
  __builtin_unreachable();
}
// A thread that returns from a kernel while others of its warp go on to barriers.
OST_FN void leave(Sampled &sample) {
  sample.end();
  end_thread();
}

// Tells constructors apart that differ only in address space.
template <int...> struct InPlace {};

// Which kind of memory an address lies in, for overloads that differ only in address space: 1 threadgroup memory,
// 2 a thread's own, 0 anything else.
OST_FN constexpr int place_of(const void *address) {
  if (__builtin_is_constant_evaluated()) return 2;
  return ::__isShared(address) ? 1 : ::__isLocal(address) ? 2 : 0;
}

}  // namespace __ost

}  // namespace __ost_program
