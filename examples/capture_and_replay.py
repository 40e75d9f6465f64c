"""A command list captured once and replayed many times, with a value and a buffer that change per replay."""

import numpy as np

import ostinato as ost

SOURCE = """
#include <metal_stdlib>
using namespace metal;

kernel void scale(device const float *row [[buffer(0)]], device float *out [[buffer(1)]],
                  constant float &factor [[buffer(2)]], uint id [[thread_position_in_grid]]) {
    out[id] = row[id] * factor;
}

kernel void append(device const float *row [[buffer(0)]], device float *cache [[buffer(1)]],
                   constant uint &pos [[buffer(2)]], uint id [[thread_position_in_grid]],
                   uint width [[threads_per_grid]]) {
    cache[pos * width + id] = row[id];
}
"""


def main() -> None:
    width, steps = 256, 100
    inputs = np.random.default_rng(0).normal(size=(2, width)).astype(np.float32)

    dev = ost.open_device()
    kernels = dev.library(SOURCE)
    even, odd = dev.array(inputs[0]), dev.array(inputs[1])
    scaled = dev.empty(width, np.float32)
    cache = dev.zeros((steps, width), np.float32)

    def step(enc: ost.CommandEncoder) -> None:
        enc.dispatch(kernels["scale"], even, scaled, ost.param("factor", np.float32), threads=width)
        enc.dispatch(kernels["append"], scaled, cache, ost.param("pos", np.uint32), threads=width)

    graph = dev.capture(step, label="step").named(row=even)
    run = graph.instantiate()
    for pos in range(steps):  # replays are asynchronous, and run in order
        run.replay(pos=pos, factor=0.5 * pos, row=odd if pos % 2 else even)

    factors = 0.5 * np.arange(steps, dtype=np.float32)
    expected = inputs[np.arange(steps) % 2] * factors[:, None]
    np.testing.assert_array_equal(cache.numpy(), expected)  # reading waits for the replays
    print(f"{len(graph)} dispatches replayed {steps} times on {dev.name!r}: same as NumPy")


if __name__ == "__main__":
    main()
