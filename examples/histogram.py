"""A histogram: atomics in threadgroup memory first, then one atomic addition per bin and threadgroup."""

import numpy as np

import ostinato as ost

BINS = 64

SOURCE = """
#include <metal_stdlib>
using namespace metal;

kernel void histogram(device const uchar *values [[buffer(0)]],
                      device atomic_uint *counts [[buffer(1)]],
                      constant uint      &size   [[buffer(2)]],
                      uint first     [[thread_position_in_grid]],
                      uint stride    [[threads_per_grid]],
                      uint thread_id [[thread_position_in_threadgroup]],
                      uint threads   [[threads_per_threadgroup]]) {
    threadgroup atomic_uint local[BINS];
    for (uint bin = thread_id; bin < BINS; bin += threads)
        atomic_store_explicit(&local[bin], 0u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);

    for (uint i = first; i < size; i += stride)
        atomic_fetch_add_explicit(&local[values[i]], 1u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);

    for (uint bin = thread_id; bin < BINS; bin += threads)
        atomic_fetch_add_explicit(&counts[bin], atomic_load_explicit(&local[bin], memory_order_relaxed),
                                  memory_order_relaxed);
}
"""


def main() -> None:
    values = np.random.default_rng(0).binomial(BINS - 1, 0.4, size=1_000_000).astype(np.uint8)

    dev = ost.open_device()
    histogram = dev.library(SOURCE, defines={"BINS": BINS})["histogram"]
    counts = dev.empty(BINS, np.uint32)

    enc = dev.command_encoder()
    enc.fill(counts, 0)
    enc.dispatch(histogram, dev.array(values), counts, values.size, groups=16, group_size=256)  # waits for the fill
    enc.commit_and_wait_labeled("histogram")

    np.testing.assert_array_equal(counts.numpy(), np.bincount(values, minlength=BINS))
    fullest = int(counts.numpy().argmax())
    print(f"{values.size:,} values on {dev.name!r}: same as NumPy; the fullest bin is {fullest}")


if __name__ == "__main__":
    main()
