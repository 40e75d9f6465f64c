"""Bodies of kernels with barriers in every place, for 64 threads.

Each has `i` (the thread), `n` (threads a group), `g` (the group), `x` (this thread's input) and `r` (its result), and
comes with the result expected for the inputs of a group.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n#define BARRIER threadgroup_barrier(mem_flags::mem_threadgroup);\n"

Expected = Callable[[np.ndarray], np.ndarray]


def tree(v: np.ndarray) -> np.ndarray:
    return np.full_like(v, v.sum())


SPLIT: dict[str, tuple[str, Expected]] = {
    "a value across a barrier": ("t[i] = x; BARRIER r = t[63 - i];", lambda v: v[::-1]),
    "a variable carried across barriers": (
        "float a = x * 2; t[i] = a; BARRIER float b = t[63 - i]; BARRIER r = a + b;",
        lambda v: 2 * v + 2 * v[::-1],
    ),
    "a name that an inner block had before": (
        "if (i == 0) { float a = x; t[0] = a; } BARRIER float a = t[0]; BARRIER r = a;",
        lambda v: np.full_like(v, v[0]),
    ),
    "a name that an inner block has afterwards": (
        "for (uint s = 0; s < 2; ++s) { float a = x; BARRIER t[i] = a; BARRIER } if (i < n) { float a = t[63 - i]; r = a; }",
        lambda v: v[::-1],
    ),
    "a tree reduction": (
        "t[i] = x; BARRIER for (uint s = n / 2; s > 0; s /= 2) { if (i < s) t[i] += t[i + s]; BARRIER } r = t[0];",
        tree,
    ),
    "a tree reduction by shifts": (
        "t[i] = x; BARRIER for (uint s = n >> 1; s > 0; s >>= 1) { if (i < s) { t[i] += t[i + s]; } BARRIER } r = t[0];",
        tree,
    ),
    "a scan with two barriers a step": (
        "t[i] = x; BARRIER for (uint s = 1; s < n; s <<= 1) { float a = i >= s ? t[i - s] : 0; BARRIER t[i] += a; BARRIER } r = t[i];",
        np.cumsum,
    ),
    "nested uniform loops": (
        "r = 0; for (uint a = 0; a < 2; ++a) { for (uint b = 0; b < 3; b++) { t[i] = x + b; BARRIER r += t[(i + a) % n]; BARRIER } }",
        lambda v: np.sum([np.roll(v, -a) + b for a in range(2) for b in range(3)], axis=0),
    ),
    "a uniform condition": (
        "t[i] = x; if (g < 100) { BARRIER r = t[63 - i]; } else { BARRIER r = t[i]; }",
        lambda v: v[::-1],
    ),
    "an early return of the whole group": ("if (g > 100) return; t[i] = x; BARRIER r = t[63 - i];", lambda v: v[::-1]),
    "uniform variables": (
        "const uint half_ = n / 2; constexpr uint one = 1, two = one + 1; t[i] = x; BARRIER r = t[(i + half_) % n] * two;",
        lambda v: 2 * np.roll(v, 32),
    ),
    "an inner loop with break": (
        "t[i] = x; BARRIER r = 0; for (uint k = 0; k < n; ++k) { if (k > i) break; r += t[k]; }",
        np.cumsum,
    ),
    "a strided loop": (
        "float a = 0; for (uint k = i; k < 200; k += n) a += in[g * n + k % n] + k; t[i] = a; BARRIER r = t[i];",
        lambda v: np.array([sum(v[k % 64] + k for k in range(i, 200, 64)) for i in range(64)]),
    ),
    "a strided loop with continue": (
        "float a = 0; for (uint k = i + 1; k < n * 3; k += n) { if (k % 2) continue; a += k; } t[i] = a; BARRIER r = t[i] + x;",
        lambda v: v + np.array([sum(k for k in range(i + 1, 192, 64) if k % 2 == 0) for i in range(64)]),
    ),
    "a loop of each thread's own between barriers": (
        "float a = 0; for (uint k = 0; k < i; ++k) a += k; t[i] = a; BARRIER r = t[63 - i];",
        lambda v: np.array([i * (i - 1) / 2 for i in range(64)])[::-1],
    ),
    "a block": ("{ t[i] = x; BARRIER r = t[63 - i]; }", lambda v: v[::-1]),
    "pointers": (
        "threadgroup float *p = t + 0; p[i] = x; BARRIER threadgroup float *q = t + i; BARRIER r = *q + p[0];",
        lambda v: v + v[0],
    ),
    "vectors carried": (
        "float4 a = float4(x, 1, 2, 3); t[i] = x; BARRIER a.y = t[63 - i]; BARRIER r = a.x + a.y;",
        lambda v: v + v[::-1],
    ),
    "nothing before or after": ("BARRIER r = x; BARRIER BARRIER", lambda v: v),
    "constants": (
        "t[i] = x; BARRIER for (uint s = SIZE / 2; s > 0; s = s / 2) { if (i < s) t[i] += t[i + s]; BARRIER } r = t[0];",
        tree,
    ),
}

FIBERS: dict[str, tuple[str, Expected]] = {
    "a loop of each thread's own": (
        "t[i] = x; uint turns = min(i, 1u); for (uint k = turns; k < 2; ++k) { BARRIER } BARRIER r = t[63 - i];",
        lambda v: v[::-1],
    ),
    "a thread that returns": (
        "t[i] = x; if (i == 0) return; BARRIER r = t[i];",
        lambda v: np.where(np.arange(64) == 0, -1, v),
    ),
    "a barrier in a lane's condition": ("t[i] = x; if (x > -1000) { BARRIER } r = t[63 - i];", lambda v: v[::-1]),
    "a barrier in a while loop": (
        "uint k = 0; while (k < 2) { t[i] = x; BARRIER ++k; } r = t[63 - i];",
        lambda v: v[::-1],
    ),
    "an array carried": ("float a[2] = {x, 1}; t[i] = x; BARRIER r = a[0] + t[63 - i];", lambda v: v + v[::-1]),
    "auto carried": ("auto a = x * 2; t[i] = x; BARRIER r = a + t[63 - i];", lambda v: 2 * v + v[::-1]),
    "a break out of the uniform loop": (
        "for (uint k = 0; k < 3; ++k) { t[i] = x; BARRIER if (k == 1) break; } r = t[63 - i];",
        lambda v: v[::-1],
    ),
    "a thread's position changed": ("t[i] = x; BARRIER i = 63 - i; BARRIER r = t[i]; i = 63 - i;", lambda v: v[::-1]),
    "simdgroup functions too": ("t[i] = simd_sum(x); BARRIER r = t[0] + t[32];", tree),
}

UNDEFINED = {"a loop of each thread's own"}
"""Threads come by barriers unequally often. Metal leaves open what happens; a GPU may wait for ever."""

EITHER: dict[str, tuple[str, Expected]] = {
    "a pointer moved by each thread": (
        "device const float *p = in; p += g * n + i; t[i] = *p; BARRIER r = t[63 - i];",
        lambda v: v[::-1],
    ),
    "a size changed by each thread": (
        "uint m = n; m += i; t[i] = m; BARRIER r = t[63 - i];",
        lambda v: 64 + np.arange(64)[::-1],
    ),
    "a variable changed by a helper": (
        "uint m = n; bump(m, i); t[i] = x; BARRIER r = t[63 - i] + m;",
        lambda v: v[::-1] + 64 + np.arange(64),
    ),
    "a variable changed through a reference": (
        "uint m = n; thread uint &q = m; q += i; t[i] = x; BARRIER r = t[63 - i] + m;",
        lambda v: v[::-1] + 64 + np.arange(64),
    ),
    "a variable changed through a member": (
        "uint2 m = uint2(n); m.x += i; t[i] = x; BARRIER r = t[63 - i] + m.x;",
        lambda v: v[::-1] + 64 + np.arange(64),
    ),
    "a variable assigned after else": (
        "uint m = n; if (i < 32) t[i] = x; else m = i; BARRIER r = m;",
        lambda v: np.where(np.arange(64) < 32, 64, np.arange(64)),
    ),
    "a member named like the thread": ("uint m = i; t[i] = x; BARRIER if (m < 64) r = t[63 - i];", lambda v: v[::-1]),
    "a private array with alignas": (
        "alignas(16) float q[4]; q[0] = x; t[i] = x; BARRIER r = t[63 - i];",
        lambda v: v[::-1],
    ),
    "two declarators": ("float a = x, b = x * 2; t[i] = a; BARRIER r = t[63 - i] + b;", lambda v: v[::-1] + 2 * v),
    "decltype": ("decltype(x) b = x; t[i] = x; BARRIER r = t[63 - i] + b;", lambda v: v[::-1] + v),
    "a local enumeration": ("enum { THREE = 3 }; t[i] = x; BARRIER r = t[63 - i] * THREE;", lambda v: 3 * v[::-1]),
    "a stride that starts below zero": (
        "float a = 0; for (int k = int(i) - 4; k < 64; k += 64) a += k; t[i] = a; BARRIER r = t[i];",
        lambda v: np.array([sum(range(i - 4, 64, 64)) for i in range(64)]),
    ),
    "a switch that continues a uniform loop": (
        "r = 0; for (uint k = 0; k < 2; ++k) { t[i] = x; BARRIER switch (k) { case 1: continue; default: r += 1; } r += t[63 - i]; }",
        lambda v: 1 + v[::-1],
    ),
    "large structs carried": ("Large a; a.v[3] = x; t[i] = x; BARRIER r = t[63 - i] + a.v[3];", lambda v: v[::-1] + v),
    "two loops of one name": (
        "t[i] = x; BARRIER for (uint s = 32; s > 0; s /= 2) { if (i < s) t[i] += t[i + s]; BARRIER } float a = t[0]; BARRIER "
        "t[i] = x * x; BARRIER for (uint s = 32; s > 0; s /= 2) { if (i < s) t[i] += t[i + s]; BARRIER } r = a + t[0];",
        lambda v: np.full(64, v.sum() + (v * v).sum()),
    ),
    "an overload told apart by address, through a helper": (
        "t[i] = x; BARRIER r = t[63 - i] + through(&t[0]) + through(in);",
        lambda v: v[::-1] + 12,
    ),
}

HELPERS = (
    "struct Q { uint i; uint n; };\nstruct Large { float v[512]; };\nvoid bump(thread uint &m, uint by) { m += by; }\n"
    "float where(threadgroup const float *p) { return 2; }\nfloat where(device const float *p) { return 10; }\n"
    "float through(threadgroup const float *p) { return where(p); }\nfloat through(device const float *p) { return where(p) + 0; }\n"
)


def source(body: str) -> str:
    return (
        f"{HEAD}constant uint SIZE = 64;\n{HELPERS}"
        "kernel void k(device const float *in, device float *out, uint i [[thread_index_in_threadgroup]], "
        "uint n [[threads_per_threadgroup]], uint g [[threadgroup_position_in_grid]]) {\n"
        f"threadgroup float t[64]; float x = in[g * n + i]; float r = -1; out[g * n + i] = -1;\n{body}\nout[g * n + i] = r; }}"
    )


CASES = {**SPLIT, **FIBERS, **EITHER}


def many(bodies: list[str]) -> str:
    """One source with a kernel for each body."""
    head, _, _ = source("").partition("kernel void")
    kernels = [source(body).removeprefix(head).replace("void k(", f"void k{n}(") for n, body in enumerate(bodies)]
    return head + "\n".join(kernels)
