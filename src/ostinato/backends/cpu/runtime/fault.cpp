// Signal handlers, installed once per process and left in place: removing them could also remove handlers that were
// installed later. The handler finds its thread in a fixed table, because thread-local storage of a loaded library may
// allocate on first use.

// The jump goes from a fiber's stack to the thread's own, which the checking version of longjmp reports as an attack.
#undef _FORTIFY_SOURCE
#include "fault.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <ucontext.h>
#endif

#include "float_traps.h"

namespace __ost {
namespace {

constexpr uint32_t n_signals = sizeof fault_signals / sizeof *fault_signals;
constexpr uint32_t max_traps = 4096;
constexpr size_t alternate_stack_bytes = 65536;

struct Slot {
  std::atomic<FaultTrap *> trap;  // NULL when free
  std::atomic<uintptr_t> thread;
};

Slot slots[max_traps];
struct sigaction previous[n_signals];
pthread_once_t install_once = PTHREAD_ONCE_INIT;
FaultTrap *const reserved = reinterpret_cast<FaultTrap *>(1);

uintptr_t this_thread() { return (uintptr_t)pthread_self(); }

void pass_on(int signal, siginfo_t *info, void *context) {
  for (uint32_t i = 0; i < n_signals; ++i) {
    if (fault_signals[i] != signal) continue;
    const struct sigaction &before = previous[i];
    if (before.sa_flags & SA_SIGINFO) {
      before.sa_sigaction(signal, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
      before.sa_handler(signal);
    } else {
      // A fault happens again on return and then ends the process; a signal that was sent has to be sent again.
      struct sigaction standard;
      memset(&standard, 0, sizeof standard);
      standard.sa_handler = info->si_code > 0 ? SIG_DFL : before.sa_handler;
      sigaction(signal, &standard, nullptr);
      if (info->si_code <= 0) raise(signal);
    }
  }
}

#if defined(__linux__) && defined(__x86_64__)
// The address that the interrupted instruction uses, decoded from its ModRM byte, because the processor reports none
// for a general protection fault. False for an instruction without an alignment requirement, and for one that gathers or
// scatters: it has an address for each lane.
bool vector_operand(const greg_t *registers, uint64_t *address) {
  const unsigned char *at = reinterpret_cast<const unsigned char *>(registers[REG_RIP]);
  const unsigned char *const prefixes_end = at + 8;
  while (at < prefixes_end && memchr("\x66\xf2\xf3\x2e\x36\x3e\x26\x64\x65\x67", *at, 10)) ++at;
  unsigned extended = 0;  // the bits R, X, B: the high bits of the register numbers
  int near_scale = 1;     // of a displacement of one byte
  if (*at == 0xc5 || *at == 0xc4 || *at == 0x62) {
    const unsigned kind = *at;
    if (kind != 0xc5) extended = ~unsigned(at[1]) >> 5 & 7;
    if (kind == 0x62) near_scale = 16 << (at[3] >> 5 & 3);  // that of whole vectors, which may have to be aligned
    const bool second_map = kind != 0xc5 && (at[1] & 7) == 2;
    at += kind == 0xc5 ? 2 : kind == 0xc4 ? 3 : 4;
    if (second_map && ((*at & 0xfc) == 0x90 || (*at & 0xfc) == 0xa0)) return false;
  } else {
    if ((*at & 0xf0) == 0x40) extended = *at++ & 7;
    if (*at++ != 0x0f) return false;
    if (*at == 0x38 || *at == 0x3a) ++at;
  }
  ++at;  // the opcode
  constexpr int names[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                             REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  const unsigned mode = *at >> 6, low = *at & 7;
  ++at;
  unsigned base = low;
  uint64_t sum = 0;
  if (low == 4) {
    const unsigned index = (*at >> 3 & 7) | (extended & 2) << 2;
    if (index != 4) sum += uint64_t(registers[names[index]]) << (*at >> 6);
    base = *at++ & 7;
  }
  if (base != 5 || mode) sum += uint64_t(registers[names[base | (extended & 1) << 3]]);
  int32_t far = 0;
  if (mode == 1) far = near_scale * int8_t(*at);
  else if (mode == 2 || (mode == 0 && base == 5)) memcpy(&far, at, sizeof far);
  *address = sum + uint64_t(int64_t(far));
  return true;
}
#endif

// The kind of a faulting access; sets `address` where the system does not report it.
FaultAccess attempted(const siginfo_t *info, const void *context, uint64_t *address) {
  if (info->si_signo == SIGBUS && info->si_code == BUS_ADRALN) return access_misaligned;
#if defined(__linux__) && defined(__x86_64__)
  const greg_t *registers = static_cast<const ucontext_t *>(context)->uc_mcontext.gregs;
  constexpr greg_t stack_fault = 12, general_protection = 13, page_fault = 14, write_bit = 2;
  const greg_t trap = registers[REG_TRAPNO];
  if (trap == stack_fault || trap == general_protection) {
    // An address whose upper 17 bits differ is invalid. Whatever has to be aligned is so to 16 bytes at least.
    uint64_t operand;
    if (!vector_operand(registers, &operand)) return access_no_address;
    const int64_t upper = int64_t(operand) >> 47;
    const bool invalid = upper != 0 && upper != -1;
    if (invalid || operand % 16) *address = operand;
    return invalid || operand % 16 == 0 ? access_no_address : access_misaligned;
  }
  if (trap != page_fault) return access_unknown;  // other traps have no use for the bit
  return registers[REG_ERR] & write_bit ? access_write : access_read;
#elif defined(__linux__) && defined(__aarch64__)
  // A list of records, each with a magic number and its size; the one wanted holds the syndrome register.
  const auto &machine = static_cast<const ucontext_t *>(context)->uc_mcontext;
  const unsigned char *at = reinterpret_cast<const unsigned char *>(machine.__reserved);
  const unsigned char *const end = at + sizeof machine.__reserved;
  constexpr uint32_t syndrome_magic = 0x45535201;
  while (end - at >= 16) {
    uint32_t head[2];
    memcpy(head, at, sizeof head);
    if (head[0] == 0 || head[1] < 16 || head[1] > uint64_t(end - at)) break;
    if (head[0] == syndrome_magic) {
      uint64_t syndrome;
      memcpy(&syndrome, at + 8, sizeof syndrome);
      const uint64_t reason = syndrome >> 26 & 63;
      if (reason != 0x24 && reason != 0x25) return access_unknown;  // data aborts
      return syndrome >> 6 & 1 ? access_write : access_read;
    }
    at += head[1];
  }
  return access_unknown;
#else
  (void)context;
  return access_unknown;
#endif
}

void on_signal(int signal, siginfo_t *info, void *context) {
  const uintptr_t self = this_thread();
  for (Slot &slot : slots) {
    if (slot.thread.load(std::memory_order_relaxed) != self) continue;
    FaultTrap *trap = slot.trap.load(std::memory_order_relaxed);
    if (!trap || trap == reserved || !trap->armed.load(std::memory_order_relaxed)) break;
    if (trap->floats && on_float_trap(trap->floats, signal, info, context)) return;
    trap->armed.store(false, std::memory_order_relaxed);
    trap->fault = {signal, access_unknown, 0};
    // A handler that was put before this one (Python's faulthandler) raises the signal anew, without an address.
    if (info->si_code > 0) {
      trap->fault.address = uint64_t(uintptr_t(info->si_addr));
      if (signal == SIGSEGV || signal == SIGBUS) trap->fault.access = attempted(info, context, &trap->fault.address);
    }
    siglongjmp(trap->resume, 1);
  }
  pass_on(signal, info, context);
}

// The parent's workers do not exist in a forked child, but its new threads may get the same ids.
void forget_in_child() {
  for (Slot &slot : slots) {
    slot.thread.store(0);
    slot.trap.store(nullptr);
  }
}

void install() {
  pthread_atfork(nullptr, nullptr, &forget_in_child);
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = &on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (uint32_t i = 0; i < n_signals; ++i) sigaction(fault_signals[i], &action, &previous[i]);
}

}  // namespace

bool enter_trap(FaultTrap *trap) {
  pthread_once(&install_once, install);
  trap->armed.store(false, std::memory_order_relaxed);
  trap->alternate_stack = malloc(alternate_stack_bytes);
  if (!trap->alternate_stack) return false;
  for (uint32_t i = 0; i < max_traps; ++i) {
    FaultTrap *expected = nullptr;
    if (!slots[i].trap.compare_exchange_strong(expected, reserved)) continue;
    stack_t stack;
    memset(&stack, 0, sizeof stack);
    stack.ss_sp = trap->alternate_stack;
    stack.ss_size = alternate_stack_bytes;
    sigaltstack(&stack, nullptr);
    trap->slot = i;
    slots[i].thread.store(this_thread());
    slots[i].trap.store(trap);
    return true;
  }
  free(trap->alternate_stack);
  return false;
}

void leave_trap(FaultTrap *trap) {
  stack_t none;
  memset(&none, 0, sizeof none);
  none.ss_flags = SS_DISABLE;
  none.ss_size = alternate_stack_bytes;
  sigaltstack(&none, nullptr);
  slots[trap->slot].thread.store(0);
  slots[trap->slot].trap.store(nullptr);
  free(trap->alternate_stack);
}

void rearm_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : fault_signals) sigaddset(&set, signal);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

}  // namespace __ost
