"""Small kernels that tests of every kind launch, and how many steps of `spin` are slow."""

from __future__ import annotations

KERNELS = """
#include <metal_stdlib>
using namespace metal;

kernel void inc_one(device const float *in  [[buffer(0)]],
                    device float       *out [[buffer(1)]],
                    uint id [[thread_position_in_grid]]) { out[id] = in[id] + 1.0f; }

kernel void bump(device float *x [[buffer(0)]], uint id [[thread_position_in_grid]]) { x[id] += 1.0f; }

kernel void scale(device const float *in [[buffer(0)]], device float *out [[buffer(1)]],
                  constant float &factor [[buffer(2)]], uint id [[thread_position_in_grid]]) {
    out[id] = in[id] * factor;
}

// Sparse indices, so that positions and indices differ.
kernel void subtract(device const float *a [[buffer(1)]], device const float *b [[buffer(4)]],
                     device float *out [[buffer(7)]], uint id [[thread_position_in_grid]]) { out[id] = a[id] - b[id]; }

kernel void store_uint(device uint *out [[buffer(0)]], constant uint &value [[buffer(1)]]) { out[0] = value; }
kernel void store_char(device char *out [[buffer(0)]], constant char &value [[buffer(1)]]) { out[0] = value; }
kernel void store_half(device half *out [[buffer(0)]], constant half &value [[buffer(1)]]) { out[0] = value; }
kernel void store_float(device float *out [[buffer(0)]], constant float &value [[buffer(1)]]) { out[0] = value; }

struct Params { uint count; float factor; };
kernel void use_params(device float *out [[buffer(0)]], constant Params &p [[buffer(1)]],
                       uint id [[thread_position_in_grid]]) { if (id < p.count) out[id] = p.factor; }

kernel void sum_table(device float *out [[buffer(0)]], constant float4 *table [[buffer(1)]]) {
    out[0] = table[0].x + table[0].y + table[0].z + table[0].w;
}

kernel void copy_bytes(device const uchar *in [[buffer(0)]], device uchar *out [[buffer(1)]],
                       uint id [[thread_position_in_grid]]) { out[id] = in[id]; }

kernel void bfloat_inc(device bfloat *x [[buffer(0)]], uint id [[thread_position_in_grid]]) {
    x[id] = x[id] + bfloat(1.0f);
}

// About a nanosecond a step, and no way around taking them.
kernel void spin(device uint *x [[buffer(0)]], constant uint &steps [[buffer(1)]]) {
    uint value = x[0];
    for (uint i = 0; i < steps; ++i) {
        value = value * 1664525u + 1013904223u;
        value ^= value >> 13;  // no compiler can foresee several steps
    }
    x[0] = value | 1u;
}

kernel void divide(device const int *a [[buffer(0)]], device const int *b [[buffer(1)]], device int *out [[buffer(2)]],
                   uint id [[thread_position_in_grid]]) { out[id] = a[id] / b[id]; }

kernel void wild(device float *x [[buffer(0)]], constant ulong &where [[buffer(1)]]) { x[where] = 1.0f; }

kernel void where_am_i(device uint *grid [[buffer(0)]], device uint *group [[buffer(1)]],
                       device uint *size [[buffer(2)]],
                       uint3 at [[thread_position_in_grid]], uint3 in [[threadgroup_position_in_grid]],
                       uint3 of [[threads_per_threadgroup]], uint3 all [[threads_per_grid]]) {
    const uint flat = (at.z * all.y + at.y) * all.x + at.x;
    grid[flat] += 1;
    group[flat] = (in.z * 1000u + in.y) * 1000u + in.x;
    size[flat] = of.x * of.y * of.z;
}

kernel void reverse_group(device float *x [[buffer(0)]], threadgroup float *tile [[threadgroup(0)]],
                          threadgroup float *other [[threadgroup(1)]],
                          uint i [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
    tile[i] = x[i];
    other[i] = -1.0f;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    x[i] = tile[n - 1 - i];
}

[[max_total_threads_per_threadgroup(64)]]
kernel void small_groups(device float *x [[buffer(0)]], uint id [[thread_position_in_grid]]) { x[id] = 1.0f; }
"""

# Two of these, each told of the other, succeed only if they run at the same time.
MEET = """
#include <metal_stdlib>
using namespace metal;
kernel void meet(device atomic_uint *mine, device const uint *other, device uint *ok, constant uint &patience) {
    atomic_store_explicit(mine, 1u, memory_order_relaxed);
    const device volatile uint *there = other;
    for (uint k = 0; k < patience; ++k) if (*there) { ok[0] = 1; return; }
}
"""

# A tenth of a second or more on any device, and seconds on none.
SLOW_STEPS = 150_000_000
