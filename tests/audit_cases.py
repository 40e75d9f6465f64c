"""Kernels that do what kernels do wrong, and how to audit them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import ostinato as ost
from ostinato.audit import Audit, Finding

KERNELS = """
#include <metal_stdlib>
using namespace metal;

kernel void inc(device const float *in [[buffer(0)]], device float *out [[buffer(1)]],
                uint id [[thread_position_in_grid]]) { out[id] = in[id] + 1.0f; }

kernel void clear(device float *out [[buffer(0)]], uint id [[thread_position_in_grid]]) { out[id] = 0.0f; }

kernel void shift(device const float *in [[buffer(0)]], device float *out [[buffer(1)]],
                  constant int &by [[buffer(2)]], uint id [[thread_position_in_grid]]) { out[id] = in[int(id) + by]; }

kernel void store(device float *out [[buffer(0)]], constant int &by [[buffer(1)]],
                  uint id [[thread_position_in_grid]]) { out[int(id) + by] = 1.0f; }

kernel void before_zero(device const float *in [[buffer(0)]], device float *out [[buffer(1)]],
                        uint id [[thread_position_in_grid]]) { out[id] = in[id - 1]; }

kernel void cast_away(device const float *in [[buffer(0)]], device float *out [[buffer(1)]],
                      uint id [[thread_position_in_grid]]) { out[id] = in[id]; ((device float *)in)[id] = -1.0f; }

kernel void lookup(constant float2 *table [[buffer(0)]], device float *out [[buffer(1)]],
                   constant uint &at [[buffer(2)]]) { out[0] = table[at].y; }

kernel void two_outputs(device const float *in [[buffer(0)]], device float *out [[buffer(1)]],
                        device float *count [[buffer(2)]], uint id [[thread_position_in_grid]]) {
    out[id] = in[id];
    count[id] = 0.0f;
}

kernel void scale(device const float *in [[buffer(0)]], device const float *factor [[buffer(1)]],
                  device float *out [[buffer(2)]], uint id [[thread_position_in_grid]]) {
    out[id] = in[id] * factor[0];
}

// The barrier makes it run in another way than the others, unless it is checked.
kernel void reversed(device const float *in [[buffer(0)]], device float *out [[buffer(1)]],
                     threadgroup float *tile [[threadgroup(0)]], uint2 id [[thread_position_in_grid]],
                     uint i [[thread_index_in_threadgroup]], uint2 size [[threads_per_threadgroup]]) {
    tile[i] = in[id.x];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[id.x + id.y] = tile[size.x - 1 - i];
}

kernel void slow_then_store(device float *out [[buffer(0)]], constant uint &steps [[buffer(1)]]) {
    uint value = uint(out[0]);
    for (uint i = 0; i < steps; ++i) { value = value * 1664525u + 1013904223u; value ^= value >> 13; }
    out[1] = value == 12345u ? 0.0f : 5.0f;
}
kernel void halve(device const float *in [[buffer(0)]], device float *out [[buffer(1)]]) { out[0] = in[1] * 0.5f; }

kernel void add_up(device atomic_uint *sum [[buffer(0)]], uint id [[thread_position_in_grid]]) {
    atomic_fetch_add_explicit(sum, id, memory_order_relaxed);
}
// Copied in one piece, by an instruction that insists on the alignment.
struct alignas(16) Quad { float a, b, c, d; };
kernel void wide(device const float *in [[buffer(0)]], device float *out [[buffer(1)]]) {
    *(device Quad *)out = *(device const Quad *)in;
}
kernel void both_sides(device const float *in [[buffer(0)]], device float *out [[buffer(1)]],
                       uint id [[thread_position_in_grid]]) { out[id] = in[int(id) - 1] + in[id + 1]; }
kernel void divide(device const int *in [[buffer(0)]], device int *out [[buffer(1)]]) { out[0] = 7 / in[0]; }
kernel void wait_for(device const uint *steps [[buffer(0)]], device uint *out [[buffer(1)]]) {
    uint value = out[0];
    for (uint i = 0; i < steps[0]; ++i) { value = value * 1664525u + 1013904223u; value ^= value >> 13; }
    out[0] = value | 1u;
}
kernel void own_stack(device float *out [[buffer(0)]], constant uint &at [[buffer(1)]]) {
    float large[20000];
    for (uint i = 0; i < 20000; ++i) large[i] = float(i + at);
    out[0] = large[at];
}
"""

N = 64

Encode = Callable[[ost.CommandEncoder], object]


def floats(dev: ost.Device, count: int = N) -> ost.Buffer:
    return dev.array(np.arange(count, dtype=np.float32))


def audited(dev: ost.Device, encode: Encode, barriers: str = "auto", **options: object) -> Audit:
    return dev.capture(encode, barriers=barriers).audit(run=True, **options)


def only(audit: Audit, kind: str) -> Finding:
    found = [finding for finding in audit.findings if finding.kind == kind]
    assert len(found) == 1, str(audit)
    return found[0]
