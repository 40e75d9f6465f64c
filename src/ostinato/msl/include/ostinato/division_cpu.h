// Integer division by zero is a fault on the CPU, also where the compiler could fold the division away or take it for
// something that never happens: compiled with a check before every division, kernels call this when it fails. On
// processors whose division instruction does not fault the check traps by itself, and this is not called.
// Checked kernels have a hook of this name that reports the division first.
#pragma once

namespace __ost {

// Faults as the division would.
[[noreturn]] inline void stop_division() {
#if defined(__x86_64__)
  asm volatile("xorl %%eax, %%eax\n\txorl %%edx, %%edx\n\tdivl %%eax" : : : "eax", "edx", "cc");
#endif
  __builtin_trap();
}

}  // namespace __ost

#ifndef __OST_CHECKED
extern "C" __attribute__((visibility("hidden"), noreturn, noinline, cold,
                          used)) void __ubsan_handle_divrem_overflow_abort(void *, void *, void *) {
  __ost::stop_division();
}
#endif
