"""A profile that names the kernel to look at first: one of two kernels keeps a single thread busy."""

import numpy as np

import ostinato as ost

SOURCE = """
#include <metal_stdlib>
using namespace metal;

kernel void square(device const float *x [[buffer(0)]], device float *out [[buffer(1)]],
                   uint id [[thread_position_in_grid]]) {
    out[id] = x[id] * x[id];
}

kernel void serial_sum(device const float *x [[buffer(0)]], device float *out [[buffer(1)]],
                       constant uint &size [[buffer(2)]]) {
    float sum = 0.0f;
    for (uint i = 0; i < size; ++i) sum += x[i];
    out[0] = sum;
}
"""


def main() -> None:
    size = 50_000
    values = np.random.default_rng(0).normal(size=size).astype(np.float32)

    dev = ost.open_device()
    kernels = dev.library(SOURCE)
    x, squares, total = dev.array(values), dev.empty(size, np.float32), dev.empty(1, np.float32)

    def norm(enc: ost.CommandEncoder) -> None:
        with enc.scope("norm"):
            enc.dispatch(kernels["square"], x, squares, threads=size, flops=size)
            enc.dispatch(kernels["serial_sum"], squares, total, size, threads=1, flops=size)

    run = dev.capture(norm).instantiate()
    with ost.profile() as prof:
        for _ in range(50):
            with ost.region("step"):
                run.replay()

    np.testing.assert_allclose(total.numpy()[0], np.sum(values * values), rtol=1e-3)
    costliest = prof.summary().kernels[0]
    print(f"{costliest.name}: {costliest.count} dispatches, {costliest.total_ns / 1e6:.1f} ms on {dev.name!r}")
    print(prof.look_first())


if __name__ == "__main__":
    main()
