// An operation that was reported runs again with its signal masked, as a single step, after which the next one is
// raised again.
#include "float_traps.h"

#if defined(__linux__) && defined(__x86_64__)

#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <ucontext.h>
#include <xmmintrin.h>

#include "findings.h"

namespace __ost {
namespace {

constexpr uint32_t masks = 0x1f80, raised = 0x3f;
constexpr uint32_t unmasked = masks & ~0x0680u;  // but not invalid, division by zero, overflow
constexpr greg_t single_step = 0x100;

struct Text { uintptr_t inside, begin, end; };

int find_text(struct dl_phdr_info *info, size_t, void *wanted) {
  Text *text = static_cast<Text *>(wanted);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto &segment = info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + segment.p_vaddr, end = begin + segment.p_memsz;
    if (segment.p_type != PT_LOAD || text->inside < begin || text->inside >= end) continue;
    text->begin = begin;
    text->end = end;
    return 1;
  }
  return 0;
}

// An address in the kernel's library: the operation itself, or the first call on the stack above a mathematical
// function. As a return address, so one past the operation's first byte.
uintptr_t site_of(const Worker *w, const greg_t *registers) {
  Text text = {uintptr_t(w->dispatch->entry), 0, 0};
  dl_iterate_phdr(&find_text, &text);
  const uintptr_t here = uintptr_t(registers[REG_RIP]);
  if (here >= text.begin && here < text.end) return here + 1;
  const uintptr_t *stack = reinterpret_cast<const uintptr_t *>(registers[REG_RSP]);
  const uintptr_t region_end = (uintptr_t(w) & ~(region_bytes - 1)) + region_bytes;
  for (int i = 0; i < 256 && uintptr_t(stack + i + 1) <= region_end; ++i)
    if (stack[i] >= text.begin && stack[i] < text.end) return stack[i];
  return here + 1;
}

// Whether an instruction has a number as its result that may be a NaN because of it. Comparisons, minima and conversions
// to integers are invalid for operands that are NaNs, or too large, already.
bool makes_number(const unsigned char *at) {
  while (memchr("\x66\xf2\xf3\x2e\x36\x3e\x26\x64\x65", *at, 9)) ++at;
  unsigned map = 1;
  bool evex = false;
  if (*at == 0xc5) {
    at += 2;
  } else if (*at == 0xc4) {
    map = at[1] & 31;
    at += 3;
  } else if (*at == 0x62) {
    evex = true;
    map = at[1] & 7;
    at += 4;
  } else {
    if ((*at & 0xf0) == 0x40) ++at;
    if (*at != 0x0f) return true;
    ++at;
  }
  if (map != 1) return true;
  if (evex && *at >= 0x78 && *at <= 0x7b) return false;
  return !memchr("\x2c\x2d\x2e\x2f\xc2\x5b\xe6\x5d\x5f", *at, 9);
}

}  // namespace

void raise_float_traps() { _mm_setcsr((_mm_getcsr() & ~(masks | raised)) | unmasked); }

bool on_float_trap(Worker *w, int signal, siginfo_t *info, void *context) {
  auto &machine = static_cast<ucontext_t *>(context)->uc_mcontext;
  greg_t *registers = machine.gregs;
  uint32_t &control = machine.fpregs->mxcsr;
  if (signal == SIGTRAP && info->si_code == TRAP_TRACE) {
    registers[REG_EFL] &= ~single_step;
    control = (control & ~(masks | raised)) | unmasked;
    return true;
  }
  if (signal != SIGFPE) return false;
  FloatEvent event;
  if (info->si_code == FPE_FLTINV) event = float_invalid;
  else if (info->si_code == FPE_FLTDIV) event = float_divided_by_zero;
  else if (info->si_code == FPE_FLTOVF) event = float_overflow;
  else return false;
  if (w->findings && makes_number(reinterpret_cast<const unsigned char *>(registers[REG_RIP]))) {
    const void *site = reinterpret_cast<const void *>(site_of(w, registers));
    report(w->findings, found_not_a_number, Touch{}, touch_here(w, site, how_no_access), Memory{}, event);
  }
  control |= masks;
  registers[REG_EFL] |= single_step;
  return true;
}

}  // namespace __ost

#else

namespace __ost {

void raise_float_traps() {}
bool on_float_trap(Worker *, int, siginfo_t *, void *) { return false; }

}  // namespace __ost

#endif
