// How often the statements of a source run: `__ost_ran(n)` stands before statement n, and adds to the counts of the
// kernel that runs. Included after the shim where a translation counts.
#pragma once

// What counts is not checked itself.
#define __OST_COUNTING __attribute__((noinline, unused, no_sanitize("thread", "undefined"))) static

static uint64_t *__ost_line_counts;

// A thread of the kernel with these counts begins; the first of them is that of its threads.
__OST_COUNTING void __ost_begins(uint64_t *counts) {
  __ost_line_counts = counts;
  ++counts[0];
}

// False, so that it can stand in a condition.
__OST_COUNTING bool __ost_ran(uint32_t statement) {
  ++__ost_line_counts[statement];
  return false;
}
