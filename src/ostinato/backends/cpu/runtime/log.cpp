// Room for records: one addition, and an allocation for the first.
#include "log.h"

#include <stdlib.h>

namespace __ost {
namespace {

unsigned char *records_of(Log *log) {
  unsigned char *records = log->records.load(std::memory_order_acquire);
  if (records) return records;
  unsigned char *fresh = static_cast<unsigned char *>(calloc(1, log->limit_bytes));
  if (!fresh) return nullptr;
  if (log->records.compare_exchange_strong(records, fresh, std::memory_order_acq_rel)) return fresh;
  free(fresh);
  return records;
}

}  // namespace

void *log_room(Worker *w, uint32_t bytes) {
  Log *const log = w->log;
  const uint64_t at = log->used.fetch_add(bytes, std::memory_order_relaxed);
  unsigned char *const records = at + bytes <= log->limit_bytes ? records_of(log) : nullptr;
  if (records) return records + at;
  log->dropped.fetch_add(1, std::memory_order_relaxed);
  return nullptr;
}

}  // namespace __ost
