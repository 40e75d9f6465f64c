// Faults of kernel code (wild accesses, division by zero, illegal instructions, stack overflow) end the kernel, not
// the process. A worker thread enters a FaultTrap, arms it around kernel code, and is taken back to its sigsetjmp
// point when the code faults. Any other signal goes to whoever handled it before.
#ifndef OSTINATO_FAULT_H
#define OSTINATO_FAULT_H

#include <setjmp.h>
#include <signal.h>
#include <stdint.h>

#include <atomic>

namespace [[gnu::visibility("hidden")]] __ost {

constexpr int fault_signals[] = {
    SIGSEGV, SIGBUS, SIGFPE, SIGILL,
    SIGTRAP,  // what a compiler's trap instruction raises on arm, and a single step (float_traps.h) elsewhere
};

// What was wrong with an access, where the processor says so; `access_no_address`: no memory can have that address.
enum FaultAccess : uint32_t { access_unknown, access_read, access_write, access_misaligned, access_no_address };

struct Fault {
  int32_t signal;
  FaultAccess access;
  uint64_t address;
};

struct Worker;

struct FaultTrap {
  Worker *floats;  // of a device that looks for NaNs; NULL otherwise
  std::atomic<bool> armed;
  sigjmp_buf resume;  // made by sigsetjmp(resume, 0) in the thread that entered
  Fault fault;        // what happened, once resumed
  void *alternate_stack;
  uint32_t slot;
};

// For the calling thread; false when too many threads have one.
bool enter_trap(FaultTrap *);
void leave_trap(FaultTrap *);

// After the jump: lets the same signal arrive again.
void rearm_signals();

}  // namespace __ost

#endif
