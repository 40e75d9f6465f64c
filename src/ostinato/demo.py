"""A few real Metal kernels, run, checked and profiled: what `ostinato demo` shows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .analyse import Summary
from .device import Device
from .encoder import CommandEncoder
from .profile import profile
from .tracing import region

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

_STEPS = 100


@dataclass(frozen=True, slots=True)
class DemoRow:
    """One kernel of the demonstration."""

    kernel: str
    purpose: str
    correct: bool


def run(device: Device, path: Path, rows: int = 256, columns: int = 4096) -> tuple[list[DemoRow], Summary]:
    """Run the kernels as one graph, again and again, recorded in a file; then compare what they wrote with NumPy."""
    library = device.library(SOURCE)
    random = np.random.default_rng(0)
    first, second = (random.standard_normal((rows, columns)).astype(np.float32) for _ in range(2))
    a, b = device.array(first), device.array(second)
    total, normed = device.empty(a.shape, a.dtype), device.empty(a.shape, a.dtype)
    sums = device.empty(rows, np.float32)

    def step(enc: CommandEncoder) -> None:
        with enc.scope("step"):
            enc.dispatch(
                library["add"],
                a,
                b,
                total,
                threads=a.size,
                bytes_read=2 * a.nbytes,
                bytes_written=a.nbytes,
                flops=a.size,
            )
            enc.dispatch(
                library["row_sums"],
                a,
                sums,
                columns,
                groups=rows,
                group_size=32,
                bytes_read=a.nbytes,
                bytes_written=sums.nbytes,
                flops=a.size,
            )
            enc.dispatch(
                library["rms_norm"],
                a,
                normed,
                columns,
                groups=rows,
                group_size=256,
                shared={0: 1024},
                bytes_read=2 * a.nbytes,
                bytes_written=a.nbytes,
                flops=3 * a.size,
            )

    replayable = device.capture(step, label="step").instantiate()
    with profile(path=path) as recorded:
        for _ in range(_STEPS):
            with region("step"):
                replayable.replay().wait()
    wide = first.astype(np.float64)
    expected = wide / np.sqrt((wide**2).mean(axis=1, keepdims=True) + 1e-6)
    checked = [
        DemoRow("add", "a + b", np.array_equal(total.numpy(), first + second)),
        DemoRow("row_sums", "row sums, simdgroups", np.allclose(sums.numpy(), wide.sum(axis=1), atol=1e-3)),
        DemoRow("rms_norm", "row norms, barriers", np.allclose(normed.numpy(), expected, atol=1e-4)),
    ]
    return checked, recorded.summary()
