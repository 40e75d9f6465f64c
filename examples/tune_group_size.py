"""Tune a kernel: its group size, and how many elements a thread sums, with NumPy as the oracle.

    python examples/tune_group_size.py
    ostinato tune examples/tune_group_size.py --file cpu.json

The command reads the names below: the device, what to choose from, how to encode a choice, and what must come out.
"""

import numpy as np

import ostinato as ost

SOURCE = """
#include <metal_stdlib>
using namespace metal;

constant uint EACH [[function_constant(0)]];

// The mean of every row, by EACH partial sums.
kernel void row_means(device const float *x [[buffer(0)]], device float *means [[buffer(1)]],
                      constant uint &width [[buffer(2)]], uint row [[thread_position_in_grid]]) {
    float sums[16] = {};
    for (uint at = 0; at < width; at += EACH) {
        for (uint part = 0; part < EACH; ++part) { sums[part] += x[row * width + at + part]; }
    }
    float total = 0.0f;
    for (uint part = 0; part < EACH; ++part) { total += sums[part]; }
    means[row] = total / float(width);
}
"""
ROWS, WIDTH = 512, 256

device = ost.open_device()
x = device.array(np.random.default_rng(0).random((ROWS, WIDTH), np.float32))
outputs = device.zeros(ROWS, np.float32)

space = {"each": [1, 4, 8, 16], "group": [32, 8, 128]}
tolerance = 1e-5  # the order of additions depends on `each`
seconds = 10.0


def encode(encoder: ost.CommandEncoder, each: int, group: int) -> None:
    kernel = device.library(SOURCE, constants={"EACH": each})["row_means"]
    encoder.dispatch(kernel, x, outputs, WIDTH, threads=ROWS, group_size=group)


def oracle() -> np.ndarray:
    means: np.ndarray = x.numpy().mean(axis=1)
    return means


if __name__ == "__main__":
    result = ost.tune(encode, space, oracle=oracle, outputs=outputs, tolerance=tolerance, seconds=seconds)
    print(result)
