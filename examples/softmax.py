"""Softmax over the rows of a matrix: one threadgroup per row, reductions by simdgroup functions."""

import numpy as np

import ostinato as ost

SOURCE = """
#include <metal_stdlib>
using namespace metal;

kernel void softmax(device const float *x   [[buffer(0)]],
                    device float       *out [[buffer(1)]],
                    constant uint      &columns [[buffer(2)]],
                    uint row        [[threadgroup_position_in_grid]],
                    uint thread_id  [[thread_position_in_threadgroup]],
                    uint threads    [[threads_per_threadgroup]],
                    uint lane       [[thread_index_in_simdgroup]],
                    uint simdgroup  [[simdgroup_index_in_threadgroup]],
                    uint simdgroups [[simdgroups_per_threadgroup]]) {
    threadgroup float partial[32];
    x += row * columns;
    out += row * columns;

    float largest = -INFINITY;
    for (uint i = thread_id; i < columns; i += threads) largest = max(largest, x[i]);
    largest = simd_max(largest);
    if (lane == 0) partial[simdgroup] = largest;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    largest = simd_max(lane < simdgroups ? partial[lane] : -INFINITY);
    threadgroup_barrier(mem_flags::mem_threadgroup);

    float sum = 0.0f;
    for (uint i = thread_id; i < columns; i += threads) sum += exp(x[i] - largest);
    sum = simd_sum(sum);
    if (lane == 0) partial[simdgroup] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    sum = simd_sum(lane < simdgroups ? partial[lane] : 0.0f);

    for (uint i = thread_id; i < columns; i += threads) out[i] = exp(x[i] - largest) / sum;
}
"""


def main() -> None:
    rows, columns = 64, 1000
    values = np.random.default_rng(0).normal(size=(rows, columns)).astype(np.float32)

    dev = ost.open_device()
    softmax = dev.library(SOURCE)["softmax"]
    x, out = dev.array(values), dev.empty((rows, columns), np.float32)

    enc = dev.command_encoder()
    enc.dispatch(softmax, x, out, columns, groups=rows, group_size=256)
    enc.commit_and_wait_labeled("softmax")

    shifted = np.exp(values - values.max(axis=1, keepdims=True))
    np.testing.assert_allclose(out.numpy(), shifted / shifted.sum(axis=1, keepdims=True), rtol=1e-5)
    print(f"softmax of {rows} rows of {columns} on {dev.name!r}: same as NumPy")


if __name__ == "__main__":
    main()
