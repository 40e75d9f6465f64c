// Where the compiler's checks of numbers, array bounds and alignment end in a checked kernel library. The records that
// compilers pass are those of their own runtime library; g++ and clang agree on them.
//
// A finding is placed where the record says, if that is in the translated text; a check in a header of ours is placed by
// the address that it was called from. The kernel goes on, except where it would divide by zero or
// leave an array.
#include "checks.h"
#include "fiber.h"
#include "ostinato/division_cpu.h"

using namespace __ost;

namespace {

struct Type {
  uint16_t kind,
      info;  // 0: an integer, its signedness in the lowest bit and the logarithm of its width above; 1: a float
  char name[1];
};
struct Operation {
  Location place;
  const Type *type, *other;
};
struct Pointer {
  Location place;
  const Type *type;
  unsigned char log_alignment, use;
};

bool in_translation(const Location &place) { return place.file && place.file[0] == '<'; }

// `address` is that of the type, whose name the message shows, unless memory is concerned; `other` a second number.
void found(FindingKind kind, const Location *place, const void *return_address, const void *address, uint64_t bytes,
           uint64_t value, uint64_t other = 0) {
  Worker *w = worker();
  const bool located = place && in_translation(*place);
  w->checks->report(w, kind, located ? place : return_address, how_no_access | (located ? how_located : 0), address,
                    bytes, value, other);
}

// A whole number that fits a register is passed in it, another by its address.
uint64_t integer(const Type *type, uintptr_t passed) {
  const uint32_t width = 1u << (type->info >> 1);
  if (type->kind != 0 || width > 64) return 0;
  const uint64_t raw = uint64_t(passed) << (64 - width);
  return type->info & 1 ? uint64_t(int64_t(raw) >> (64 - width)) : raw >> (64 - width);
}

// The bits of a double.
uint64_t floating(const Type *type, uintptr_t passed) {
  double number = 0;
  if (type->info == 64) {
    __builtin_memcpy(&number, &passed, sizeof number);
  } else if (type->info == 32) {
    float narrow;
    __builtin_memcpy(&narrow, &passed, sizeof narrow);
    number = narrow;
  } else if (type->info == 16) {
    _Float16 narrow;
    __builtin_memcpy(&narrow, &passed, sizeof narrow);
    number = double(narrow);
  }
  uint64_t bits;
  __builtin_memcpy(&bits, &number, sizeof bits);
  return bits;
}

}  // namespace

// Of two equal hooks g++ would have one call the other, whose return address then is in a hook.
#ifdef __clang__
#define HOOK extern "C" __attribute__((visibility("hidden"), used)) void
#else
#define HOOK extern "C" __attribute__((visibility("hidden"), used, no_icf)) void
#endif
#define HERE __builtin_return_address(0)

HOOK __ost_shift_failed(int64_t amount, uint64_t width) {
  found(found_shift, nullptr, HERE, nullptr, width, uint64_t(amount));
}
HOOK __ubsan_handle_shift_out_of_bounds(const Operation *data, uintptr_t, uintptr_t amount) {
  const uint64_t width = uint64_t(1) << (data->type->info >> 1);
  found(found_shift, &data->place, HERE, nullptr, width, integer(data->other, amount));
}
HOOK __ubsan_handle_out_of_bounds(const Operation *data, uintptr_t index) {
  found(found_out_of_bounds, &data->place, HERE, data->type->name, 0, integer(data->other, index));
  __builtin_trap();  // the fault ends the submission before the access is made
}
// Where the compiler was told that it does not return.
HOOK __ubsan_handle_out_of_bounds_abort(const Operation *data, uintptr_t index) {
  found(found_out_of_bounds, &data->place, HERE, data->type->name, 0, integer(data->other, index));
  __builtin_trap();
}
HOOK __ubsan_handle_type_mismatch_v1(const Pointer *data, uintptr_t address) {
  found(found_misaligned, &data->place, HERE, data->type->name, uint64_t(1) << data->log_alignment, address);
}
HOOK __ost_misaligned(const void *address, uint64_t alignment) {
  found(found_misaligned, nullptr, HERE, nullptr, alignment, uint64_t(uintptr_t(address)));
}
HOOK __ubsan_handle_float_cast_overflow(const Operation *data, uintptr_t value) {
  found(found_conversion, &data->place, HERE, data->other->name, 0, floating(data->type, value));
}
#define OVERFLOWS(operation, symbol) \
  HOOK __ubsan_handle_##operation##_overflow(const Operation *data, uintptr_t left, uintptr_t right) { \
    found(found_signed_overflow, &data->place, HERE, data->type->name, symbol, integer(data->type, left), \
          integer(data->type, right)); \
  }
OVERFLOWS(add, '+')
OVERFLOWS(sub, '-')
OVERFLOWS(mul, '*')
HOOK __ubsan_handle_negate_overflow(const Operation *data, uintptr_t value) {
  found(found_signed_overflow, &data->place, HERE, data->type->name, '-', 0, integer(data->type, value));
}
// Compilers call the first where overflow is looked for as well. Neither goes on: the machine would stop at the division.
#define STOPS(how) \
  HOOK __ubsan_handle_divrem_overflow##how(const Operation *data, uintptr_t left, uintptr_t right) { \
    const uint64_t dividend = integer(data->type, left), divisor = integer(data->type, right); \
    if (divisor) found(found_signed_overflow, &data->place, HERE, data->type->name, '/', dividend, divisor); \
    else found(found_division_by_zero, &data->place, HERE, data->type->name, 0, dividend); \
    stop_division(); \
  }
STOPS()
STOPS(_abort)
