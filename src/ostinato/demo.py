"""A few real Metal kernels, run and checked: what `ostinato demo` shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .device import Device
from .submission import Submission

SOURCE = """
#include <metal_stdlib>
using namespace metal;

kernel void add(device const float *a   [[buffer(0)]],
                device const float *b   [[buffer(1)]],
                device float       *sum [[buffer(2)]],
                uint id [[thread_position_in_grid]]) {
    sum[id] = a[id] + b[id];
}

// One simdgroup a row: each lane adds up a part, the lanes meet in simd_sum.
kernel void row_sums(device const float *rows [[buffer(0)]],
                     device float       *sums [[buffer(1)]],
                     constant uint   &columns [[buffer(2)]],
                     uint row  [[threadgroup_position_in_grid]],
                     uint lane [[thread_index_in_simdgroup]]) {
    float part = 0.0f;
    for (uint column = lane; column < columns; column += 32) part += rows[row * columns + column];
    const float whole = simd_sum(part);
    if (lane == 0) sums[row] = whole;
}

// One group a row, through threadgroup memory and barriers.
kernel void rms_norm(device const float *in  [[buffer(0)]],
                     device float       *out [[buffer(1)]],
                     constant uint  &columns [[buffer(2)]],
                     threadgroup float *part [[threadgroup(0)]],
                     uint row     [[threadgroup_position_in_grid]],
                     uint thread_ [[thread_index_in_threadgroup]],
                     uint threads [[threads_per_threadgroup]]) {
    float squares = 0.0f;
    for (uint c = thread_; c < columns; c += threads) squares += in[row * columns + c] * in[row * columns + c];
    part[thread_] = squares;
    for (uint half_ = threads / 2; half_ > 0; half_ /= 2) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (thread_ < half_) part[thread_] += part[thread_ + half_];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const float scale = rsqrt(part[0] / float(columns) + 1e-6f);
    for (uint c = thread_; c < columns; c += threads) out[row * columns + c] = in[row * columns + c] * scale;
}
"""

_REPEATS = 5


@dataclass(frozen=True, slots=True)
class DemoRow:
    """One kernel of the demonstration."""

    kernel: str
    purpose: str
    threads: int
    nanoseconds: int
    """The median of a few runs, by the device's clock."""
    nbytes: int
    """Read and written."""
    correct: bool


def run(device: Device, rows: int = 1024, columns: int = 4096) -> list[DemoRow]:
    """Run every kernel of the demonstration."""
    library = device.library(SOURCE)
    random = np.random.default_rng(0)
    first, second = (random.standard_normal((rows, columns)).astype(np.float32) for _ in range(2))
    a, b = device.array(first), device.array(second)
    total, sums = device.empty(a.shape, a.dtype), device.empty(rows, np.float32)

    def add() -> Submission:
        encoder = device.command_encoder()
        encoder.dispatch(library["add"], a, b, total, threads=rows * columns)
        return encoder.commit_and_wait_labeled("add")

    def row_sums() -> Submission:
        encoder = device.command_encoder()
        encoder.dispatch(library["row_sums"], a, sums, columns, groups=rows, group_size=32)
        return encoder.commit_and_wait_labeled("row_sums")

    def rms_norm() -> Submission:
        encoder = device.command_encoder()
        encoder.dispatch(library["rms_norm"], a, total, columns, groups=rows, group_size=256, shared={0: 1024})
        return encoder.commit_and_wait_labeled("rms_norm")

    wide = first.astype(np.float64)
    normed = wide / np.sqrt((wide**2).mean(axis=1, keepdims=True) + 1e-6)
    return [
        DemoRow("add", "a + b", a.size, _median_ns(add), 3 * a.nbytes, np.array_equal(total.numpy(), first + second)),
        DemoRow(
            "row_sums",
            "row sums, simdgroups",
            rows * 32,
            _median_ns(row_sums),
            a.nbytes + sums.nbytes,
            np.allclose(sums.numpy(), wide.sum(axis=1), atol=1e-3),
        ),
        DemoRow(
            "rms_norm",
            "row norms, barriers",
            rows * 256,
            _median_ns(rms_norm),
            2 * a.nbytes,
            np.allclose(total.numpy(), normed, atol=1e-4),
        ),
    ]


def _median_ns(once: Callable[[], Submission]) -> int:
    once()
    spans = [submission.gpu_time for submission in (once() for _ in range(_REPEATS))]
    return int(np.median([span[1] - span[0] for span in spans if span is not None]))
