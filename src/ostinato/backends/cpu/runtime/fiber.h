// Threads of a group as fibers: the part that is compiled into kernel libraries.
//
// Lanes of a simdgroup run one after the other, in order, each until it waits. A lane that waits hops straight to
// the next ready lane; only when none is left does anyone look further:
//   - lanes parked at exchanges: those with the smallest path meet, one of them combines, and they run on;
//   - else the simdgroup stands at the barrier (or has returned) and the next one runs; once all stand there, all
//     go on. Lanes that returned are never waited for.
// A path is the list of call sites and loop iterations (Frame, Loop) that led to an exchange. Lanes meet when
// their paths are equal, which is first compared by hash: in uniform flow nothing else is ever looked at.
//
// A hop is inline assembly that names every register as destroyed, so the compiler saves just those that are live,
// and it leaves by an indirect jump: a `ret` to another lane's stack would be mispredicted every time. Where the next
// lane stands at the same depth, which is nearly always, its stack lies one stride further; the hop guesses that and
// checks, because a guess that only needs checking lets the processor begin with the next lanes before it has loaded
// where their stacks are.
#ifndef OSTINATO_FIBER_H
#define OSTINATO_FIBER_H

#include "abi.h"

#ifdef __OST_DEBUG
#define __OST_INLINE inline  // a hop inside a call: whoever steps over it comes back to the same lane
#else
#define __OST_INLINE inline __attribute__((always_inline))
#endif
#if defined(__OST_BOUNDS) && defined(__clang__)
// As below, but inlined once hooks are in place: a `ret` after a hop is mispredicted.
#define __OST_UNSEEN inline __attribute__((no_sanitize("thread", "undefined")))
#elif defined(__OST_CHECKED)
// No hook is called for what fibers do to their Worker.
#define __OST_UNSEEN inline __attribute__((noinline, no_sanitize("thread", "undefined")))
#else
#define __OST_UNSEEN __OST_INLINE
#endif
#define __OST_NOINLINE __attribute__((noinline))
#define __OST_LIKELY(x) __builtin_expect(!!(x), 1)

namespace __ost {

#ifndef __OST_VECTOR
// Only inside a fiber. All stacks of a worker lie in the aligned region whose base it occupies. Volatile, so
// that it is computed again after a hop: loading a saved copy from the new stack would be slower.
__OST_INLINE Worker *worker() {
  uintptr_t sp;
#if defined(__x86_64__)
  asm volatile("movq %%rsp, %0" : "=r"(sp));
#elif defined(__aarch64__)
  asm volatile("mov %0, sp" : "=r"(sp));
#else
#error "fibers know x86-64 and aarch64 only"
#endif
  return reinterpret_cast<Worker *>(sp & ~(region_bytes - 1));
}

__OST_INLINE uint32_t lane_id() { return worker()->lane % simd_width; }
#endif

#ifdef __OST_DEBUG
// Makes the lane that runs known to a debugger.
static void show_position(const Worker *w);
#endif

// Suspends `lane` and resumes `next`; returns when another lane hops back to `lane`. Worker and lane are unchanged
// then, and are passed in registers by the lane that hops, which has both. The registers are those of a first and
// second argument, so that a new lane can start as a plain function.
__OST_INLINE void hop(Worker *&w, uint32_t &lane, uint32_t next) {
  Context *from = &w->context[lane], *to = &w->context[next];
  w->lane = next;
#if defined(__x86_64__)
  // clang-format off
  asm volatile(
      "leaq %c[stride](%%rsp), %%r8\n\t"
      "leaq 1f(%%rip), %%rax\n\t"
      "movq %%rsp, (%[from])\n\t"
      "movq %%rax, 8(%[from])\n\t"
      "movq %%rbp, 16(%[from])\n\t"
      "movq %%rbx, 24(%[from])\n\t"
      "movq 16(%[to]), %%rbp\n\t"
      "movq 24(%[to]), %%rbx\n\t"
      "cmpq (%[to]), %%r8\n\t"
      "jne 2f\n\t"
      "movq %%r8, %%rsp\n\t"
      "jmpq *8(%[to])\n"
      "2:\n\t"
      "movq (%[to]), %%rsp\n\t"
      "jmpq *8(%[to])\n"
      "1:"
      : "+D"(w), "+S"(next), [from] "+c"(from), [to] "+d"(to)
      : [stride] "i"(stack_stride)
      : "rax", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "cc", "memory",
        "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
        "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"
#if defined(__AVX512F__)
        , "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23",
        "xmm24", "xmm25", "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", "xmm31",
        "k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7"
#endif
  );
  // clang-format on
  lane = next;
#elif defined(__aarch64__)
  register Worker *first asm("x0") = w;
  register uint64_t second asm("x1") = next;
  register Context *save asm("x2") = from;
  register Context *load asm("x3") = to;
  // clang-format off
  asm volatile(
      "adr x4, 1f\n\t"
      "mov x5, sp\n\t"
      "stp x5, x4, [x2]\n\t"
      "stp x29, x19, [x2, #16]\n\t"
      "add x6, x5, %[pages], lsl #12\n\t"
      "add x6, x6, %[rest]\n\t"
      "ldp x5, x4, [x3]\n\t"
      "ldp x29, x19, [x3, #16]\n\t"
      "cmp x6, x5\n\t"
      "b.ne 2f\n\t"
      "mov sp, x6\n\t"
      "br x4\n"
      "2:\n\t"
      "mov sp, x5\n\t"
      "br x4\n"
      "1:\n\t"
      "hint #36"  // bti j, a no-op where branch targets are not checked
      : "+r"(first), "+r"(second), "+r"(save), "+r"(load)
      : [pages] "i"(stack_stride >> 12), [rest] "i"(stack_stride & 4095)
      : "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16", "x17",
#if !defined(__APPLE__)
        "x18",
#endif
        "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x30", "cc", "memory",
        "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15",
        "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29",
        "v30", "v31"
#if defined(__ARM_FEATURE_SVE)
        , "p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8", "p9", "p10", "p11", "p12", "p13", "p14", "p15"
#endif
  );
  // clang-format on
  w = first;
  lane = uint32_t(second);
#endif
#ifdef __OST_DEBUG
  show_position(w);
#endif
}

// The first of the ready lanes, which must exist, leaves the set.
__OST_INLINE uint32_t take_ready(Worker *w, uint32_t lane) {
  uint32_t ready = w->ready;
  w->ready = ready & (ready - 1);
  return (lane & ~(simd_width - 1)) + uint32_t(__builtin_ctz(ready));
}

#ifdef __OST_VECTOR
// threadgroup_barrier where a fiber runs a whole simdgroup.
extern "C" __attribute__((noinline, visibility("hidden"), used)) inline void __ost_meet_simdgroups(Worker *w) {
  uint32_t lane = w->lane;
  hop(w, lane, __OST_LIKELY(w->ready) ? take_ready(w, lane) : w->schedule(w));
}
#else
// threadgroup_barrier: waits for every lane of the group that has not returned. A lane that has
// not returned and is neither ready nor parked is at the barrier.
__OST_UNSEEN void group_barrier(Site) {
  Worker *w = worker();
  uint32_t lane = w->lane;
  hop(w, lane, __OST_LIKELY(w->ready) ? take_ready(w, lane) : w->schedule(w));
}

// Called by the last lane to park: who has to combine. That is `lane` itself when all parked lanes stand at the
// same place.
static __OST_NOINLINE __attribute__((unused)) uint32_t elect(Worker *w, uint32_t lane) {
  const uint64_t *where = w->where + (lane & ~(simd_width - 1));
  const uint64_t here = where[lane % simd_width];
  const uint32_t site = w->site[lane % simd_width], parked = w->parked;
  uint64_t differ = 0;
  for (uint32_t i = 0; i < simd_width; ++i)
    differ |= ((where[i] ^ here) | (w->site[i] ^ site)) & -uint64_t(parked >> i & 1);
  if (!__OST_LIKELY(differ == 0)) return w->schedule(w);
  w->elected = parked;
  return lane;
}

// Waits at an exchange; true for the lane that has to combine and then call `release`.
__OST_INLINE bool park(Worker *&w, uint32_t &lane, Site site) {
  const uint32_t slot = lane % simd_width;
  w->site[slot] = site.id;
  w->parked |= 1u << slot;
  if (__OST_LIKELY(w->ready)) {
    hop(w, lane, take_ready(w, lane));
  } else {
    const uint32_t next = elect(w, lane);
    if (next != lane) hop(w, lane, next);
  }
  return w->elected != 0;
}

// Makes the lanes that met ready and yields to the first of them.
__OST_INLINE void release(Worker *&w, uint32_t &lane) {
  const uint32_t met = w->elected;
#ifdef __OST_CHECKED
  w->met = met;
#endif
  w->elected = 0;
  w->parked &= ~met;
  w->ready = met;
  hop(w, lane, take_ready(w, lane));
}

// Lanes parked at different places hold their values at the same time, and values differ in size; so each size
// class (a power of two) has its own array of 32 slots, and no lane writes into another's.
constexpr size_t slot_bytes(size_t bytes) {
  size_t slot = 1;
  while (slot < bytes) slot *= 2;
  return slot;
}
constexpr size_t slot_offset(size_t slot) { return 2 * 32 * (max_exchange_bytes - slot); }

template <class In, class Out, class Combine>
__OST_NOINLINE void combine_slots(Worker *w, Combine &combine) {
  constexpr size_t slot = slot_bytes(sizeof(In));
  const unsigned char *slots = w->in + slot_offset(slot);
  Out *out = reinterpret_cast<Out *>(w->out);
  if constexpr (slot == sizeof(In)) {
    combine(reinterpret_cast<const In *>(slots), out, w->elected);
  } else {
    alignas(In) unsigned char packed[simd_width * sizeof(In)];
    for (uint32_t i = 0; i < simd_width; ++i) __builtin_memcpy(packed + i * sizeof(In), slots + i * slot, sizeof(In));
    combine(reinterpret_cast<const In *>(packed), out, w->elected);
  }
}

// Lanes of this simdgroup that come here by the same path meet; combine(const In *in, Out *out, uint32_t active)
// runs once for them, `in` and `out` indexed by lane 0..31, only the lanes in `active` being valid. What `combine`
// captures is that of whichever lane runs it: a value that differs between lanes belongs in `value`.
template <class In, class Out, class Combine>
__OST_INLINE Out exchange(Site site, const In &value, Combine combine) {
  static_assert(sizeof(In) <= max_exchange_bytes && sizeof(Out) <= max_exchange_bytes, "exchanged value too large");
  static_assert(alignof(In) <= 64 && alignof(Out) <= 64, "exchanged value too strictly aligned");
  static_assert(__is_trivially_copyable(In) && __is_trivially_copyable(Out), "exchanged values are copied as bytes");
  constexpr size_t slot = slot_bytes(sizeof(In));
  Worker *w = worker();
  uint32_t lane = w->lane;
  __builtin_memcpy(w->in + slot_offset(slot) + lane % simd_width * slot, &value, sizeof(In));
  if (park(w, lane, site)) {
    combine_slots<In, Out>(w, combine);
    release(w, lane);
  }
  Out result;
  __builtin_memcpy(&result, w->out + lane % simd_width * sizeof(Out), sizeof(Out));
  return result;
}

// simdgroup_barrier: all lanes of a worker see the same memory, so to meet is enough.
__OST_UNSEEN void simd_barrier(Site site) {
  Worker *w = worker();
  uint32_t lane = w->lane;
  if (park(w, lane, site)) release(w, lane);
}

__OST_INLINE uint64_t hash_step(uint64_t outer, uint64_t key) {
  const uint64_t product = (outer ^ key) * 0x9e3779b97f4a7c15u;
  return product ^ product >> 32;
}

// Lives as long as a call of a user-defined convergent function.
struct Frame : Step {
  uint64_t outer_hash;

  __OST_UNSEEN explicit Frame(Site site) {
    Worker *w = worker();
    const uint32_t lane = w->lane;
    outer = w->path[lane];
    key = uint64_t(site.id) << 32;
    outer_hash = w->where[lane];
    w->path[lane] = this;
    w->where[lane] = hash_step(outer_hash, key);
  }
  __OST_UNSEEN ~Frame() {
    Worker *w = worker();
    const uint32_t lane = w->lane;
    w->path[lane] = outer;
    w->where[lane] = outer_hash;
  }
  Frame(const Frame &) = delete;
  Frame &operator=(const Frame &) = delete;
};

// Lives around a loop: `for (Loop l({18}); l.once();) while (l.next() && (condition)) ...`
struct Loop : Frame {
  bool entered = false;

  __OST_INLINE explicit Loop(Site site) : Frame(site) {}
  __OST_INLINE bool once() {
    const bool first = !entered;
    entered = true;
    return first;
  }
  // A new iteration begins.
  __OST_UNSEEN bool next() {
    Worker *w = worker();
    ++key;
    w->where[w->lane] = hash_step(outer_hash, key);
    return true;
  }
};
#endif

}  // namespace __ost

#if defined(__OST_BOUNDS) && defined(__clang__) && !defined(__OST_HOOKS)
#include "inline_hooks.h"
#endif

#endif
