"""An audit that finds two bugs before they cost a day: a missing barrier, and a write out of bounds."""

import numpy as np

import ostinato as ost

SOURCE = """
#include <metal_stdlib>
using namespace metal;

kernel void twice(device const float *x [[buffer(0)]], device float *out [[buffer(1)]],
                  uint id [[thread_position_in_grid]]) {
    out[id] = 2.0f * x[id];
}

kernel void shifted(device const float *x [[buffer(0)]], device float *out [[buffer(1)]],
                    uint id [[thread_position_in_grid]]) {
    out[id + 1] = x[id];
}
"""


def main() -> None:
    dev = ost.open_device()
    kernels = dev.library(SOURCE)
    x, y, z = (dev.array(np.arange(256, dtype=np.float32)) for _ in range(3))

    def forgets_a_barrier(enc: ost.CommandEncoder) -> None:
        enc.dispatch(kernels["twice"], x, y, threads=256)
        enc.dispatch(kernels["twice"], y, z, threads=256)  # reads y, which may not be there yet

    audit = dev.capture(forgets_a_barrier, barriers="manual").audit()  # compiles and runs nothing
    assert [finding.kind for finding in audit.errors] == ["missing barrier"], audit
    print(audit.errors[0])

    def writes_out_of_bounds(enc: ost.CommandEncoder) -> None:
        enc.dispatch(kernels["shifted"], x, y, threads=256)  # the last thread writes y[256]

    audit = dev.capture(writes_out_of_bounds).audit(run=True)  # on a copy of the memory, between guard pages
    assert "out of bounds" in {finding.kind for finding in audit.errors}, audit
    print(audit.errors[0])

    run = dev.capture(forgets_a_barrier).instantiate()  # with barriers="auto", the default, the order is inferred
    run.replay().wait()
    np.testing.assert_array_equal(z.numpy(), 4 * np.arange(256))
    print("with inferred barriers: same as NumPy")


if __name__ == "__main__":
    main()
