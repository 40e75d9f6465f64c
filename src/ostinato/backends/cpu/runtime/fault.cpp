// Signal handlers, installed once per process and left in place: taking them out again could cut off whoever was
// installed after them. The handler finds its thread in a fixed table, because thread-local storage of a loaded
// library may allocate on first use.

// The jump leaves a fiber's stack for the thread's own, which the checking version of longjmp takes for an attack.
#undef _FORTIFY_SOURCE
#include "fault.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <ucontext.h>
#endif

namespace __ost {
namespace {

constexpr uint32_t n_signals = sizeof fault_signals / sizeof *fault_signals;
constexpr uint32_t max_traps = 4096;
constexpr size_t alternate_stack_bytes = 65536;

struct Slot {
  std::atomic<FaultTrap *> trap;   // NULL when free
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

FaultAccess attempted(const void *context) {
#if defined(__linux__) && defined(__x86_64__)
  const greg_t *registers = static_cast<const ucontext_t *>(context)->uc_mcontext.gregs;
  constexpr greg_t page_fault = 14, write_bit = 2;  // other traps have no use for the bit
  if (registers[REG_TRAPNO] != page_fault) return access_unknown;
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
    trap->armed.store(false, std::memory_order_relaxed);
    trap->fault = {signal, access_unknown, 0};
    // A handler that was put before this one (Python's faulthandler) raises the signal anew, without an address.
    if (info->si_code > 0) {
      trap->fault.address = uint64_t(uintptr_t(info->si_addr));
      if (signal == SIGSEGV || signal == SIGBUS) trap->fault.access = attempted(context);
    }
    siglongjmp(trap->resume, 1);
  }
  pass_on(signal, info, context);
}

// The parent's workers do not exist in a forked child, but its new threads may get their names.
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
