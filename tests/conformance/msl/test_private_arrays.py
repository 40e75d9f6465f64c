"""Arrays of a thread, and vectors that are indexed: each thread has its own."""

from __future__ import annotations

import numpy as np
import pytest

import ostinato as ost

SOURCE = """#include <metal_stdlib>
using namespace metal;
#define ARGUMENTS device const uint *x, device uint *out, uint i [[thread_position_in_grid]]
kernel void filled(ARGUMENTS) { uint a[4]; for (uint k = 0; k < 4; ++k) a[k] = x[i + k]; out[i] = a[i % 3]; }
kernel void vectors(ARGUMENTS) { uint4 v = uint4(x[i], x[i + 1], x[i + 2], x[i + 3]); v[i & 1] += 7; out[i] = v[i % 3]; }
kernel void masked(ARGUMENTS) { out[i * 4 + 3] = 0; out[i * 4] = x[i & 3]; }
kernel void rows(ARGUMENTS) { uint a[2][3] = {}; a[i & 1][i % 3] = x[i]; out[i] = a[0][i % 3] + 2 * a[1][i % 3]; }
kernel void split(ARGUMENTS, uint t [[thread_index_in_threadgroup]]) {
    threadgroup uint s[256];
    uint a[4];
    for (uint k = 0; k < 4; ++k) a[k] = x[i + k];
    s[t] = a[t % 3];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[i] = s[t ^ 1];
}
"""


@pytest.mark.parametrize("halves", ["", "kernel void halves(device half *h) { h[0] = 1.0h; }"])
@pytest.mark.parametrize("threads", [8, 32, 40, 256])
def test_each_thread_has_arrays_of_its_own(dev: ost.Device, halves: str, threads: int) -> None:
    library = dev.library(SOURCE + halves)
    x, i = np.arange(100, 400, dtype=np.uint32), np.arange(threads)
    four = np.stack([x[i + k] + 7 * ((i & 1) == k) for k in range(4)])
    expected = {
        "filled": x[i + i % 3],
        "vectors": four[i % 3, i],
        "masked": x[i & 3],
        "rows": np.where(i & 1, 2 * x[i], x[i]),
        "split": x[(i ^ 1) + (i ^ 1) % 3],
    }
    for name, values in expected.items():
        out = dev.zeros(4 * threads, np.uint32)
        encoder = dev.command_encoder()
        encoder.dispatch(library[name], dev.array(x), out, threads=threads, group_size=threads)
        encoder.commit_and_wait()
        got = out.numpy()[:: 4 if name == "masked" else 1][:threads]
        np.testing.assert_array_equal(got, values, err_msg=name)
