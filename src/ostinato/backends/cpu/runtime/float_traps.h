// Operations that make a NaN or an infinity of other numbers, for devices that look for them: a worker's processor
// raises a signal there (SIGFPE), the operation is reported with its place and thread, and then done with the result
// that it has without the signal. x86-64 only; few other processors can.
#ifndef OSTINATO_FLOAT_TRAPS_H
#define OSTINATO_FLOAT_TRAPS_H

#include <signal.h>

#include "abi.h"

namespace [[gnu::visibility("hidden")]] __ost {

#if defined(__linux__) && defined(__x86_64__)
constexpr bool has_float_traps = true;
#else
constexpr bool has_float_traps = false;
#endif

// What a report's value says.
enum FloatEvent : uint32_t { float_invalid = 1, float_divided_by_zero, float_overflow };

// From now on, for the calling thread. A jump out of a signal handler ends it.
void raise_float_traps();

// For the handler of signals: whether this was one of these signals, which is then handled.
bool on_float_trap(Worker *, int signal, siginfo_t *, void *context);

}  // namespace __ost

#endif
