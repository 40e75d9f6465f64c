// In-kernel timestamps of a dispatch. Contract: constructed by every thread of a group before the kernel's body runs,
// end() called by every thread when it leaves it.
#pragma once

namespace __ost {

struct Sampled {
  OST_FN Sampled(const Head &, uint32_t) {}
  OST_FN void end() {}
};

}  // namespace __ost
