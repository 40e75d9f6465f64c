// What the kernels of one submission print: records (logging.h of the shim) in the order in which threads asked for room,
// up to a limit. What does not fit is counted. Memory is taken with the first record.
#ifndef OSTINATO_LOG_H
#define OSTINATO_LOG_H

#include <atomic>

#include "abi.h"

namespace [[gnu::visibility("hidden")]] __ost {

struct Log {
  uint64_t limit_bytes;
  std::atomic<unsigned char *> records;
  std::atomic<uint64_t> used;  // may exceed the limit
  std::atomic<uint64_t> dropped;
};

// `Worker::log_room`. A record is a multiple of 8 bytes and begins with its size; a size of 0 stands after the last.
void *log_room(Worker *, uint32_t bytes);

}  // namespace __ost

#endif
