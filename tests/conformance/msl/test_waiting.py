"""ostinato::wait_for_all_but: a kernel that reads weights before it waits gives the same result, in a graph and outside."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import ostinato as ost

SOURCE = """
#include <metal_stdlib>
#include <ostinato>
using namespace metal;

kernel void scale(device const uint *weight [[buffer(0)]], device const uint *x [[buffer(1)]],
                  device uint *out [[buffer(2)]], constant uint &by [[buffer(3)]],
                  uint id [[thread_position_in_grid]], uint size [[threads_per_grid]]) {
    const uint w = weight[id];
    ostinato::wait_for_all_but(weight);
    out[id] = (w + x[(id + 1) % size]) * by;
}
"""
THREADS, TURNS, BY = 1 << 16, 12, 3


def chain(dev: ost.Device, weight: ost.Buffer, a: ost.Buffer, b: ost.Buffer) -> Callable[[ost.CommandEncoder], None]:
    kernel = dev.library(SOURCE)["scale"]

    def encode(encoder: ost.CommandEncoder) -> None:
        for turn in range(TURNS):
            encoder.dispatch(
                kernel, weight, *((a, b) if turn % 2 == 0 else (b, a)), BY, threads=THREADS, group_size=256
            )

    return encode


def expected(weights: list[np.ndarray], x: np.ndarray) -> list[int]:
    for weight in weights:
        x = (weight + np.roll(x, -1)) * np.uint32(BY)
    return list(x.tolist())


def test_each_kernel_sees_what_the_one_before_has_written(dev: ost.Device) -> None:
    start = np.arange(THREADS, dtype=np.uint32)
    weight, a, b = dev.zeros(THREADS, np.uint32), dev.array(start), dev.zeros(THREADS, np.uint32)
    encode = chain(dev, weight, a, b)
    run = dev.capture(encode).instantiate()
    x = start
    for factor in (1, 7, 11):  # the host writes between replays what kernels read early
        values = np.arange(THREADS, dtype=np.uint32) * np.uint32(factor)
        weight.write(values)
        run.replay()
        x = np.array(expected([values] * TURNS, x), np.uint32)
    assert a.numpy().tolist() == x.tolist()
    encoder = dev.command_encoder()
    encode(encoder)
    encoder.commit_and_wait()
    assert a.numpy().tolist() == expected([values] * TURNS, x)


def test_weights_that_the_graph_writes_are_waited_for(dev: ost.Device) -> None:
    start = np.arange(THREADS, dtype=np.uint32)
    weight, a, b = dev.array(start), dev.array(start), dev.zeros(THREADS, np.uint32)
    kernel = dev.library(SOURCE)["scale"]

    def encode(encoder: ost.CommandEncoder) -> None:
        encoder.dispatch(kernel, a, a, weight, BY, threads=THREADS, group_size=256)
        encoder.dispatch(kernel, weight, a, b, BY, threads=THREADS, group_size=256)

    run = dev.capture(encode).instantiate()
    for _ in range(3):
        run.replay()
    written = np.array(expected([start], start), np.uint32)
    assert b.numpy().tolist() == expected([written], start)
