"""Kernels split at their barriers: which are, which are not, and that both compute the same.

Every case is a body for 64 threads with `i` (the thread), `n` (threads a group), `g` (the group), `x` (this thread's
input) and `r` (its result), and the result expected for the inputs of a group.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from launching import launch

import ostinato
from ostinato.msl import parse

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
        lambda v: sum(np.roll(v, -a) + b for a in range(2) for b in range(3)),
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


def source(body: str) -> str:
    return (
        f"{HEAD}constant uint SIZE = 64;\n"
        "kernel void k(device const float *in, device float *out, uint i [[thread_index_in_threadgroup]], "
        "uint n [[threads_per_threadgroup]], uint g [[threadgroup_position_in_grid]]) {\n"
        f"threadgroup float t[64]; float x = in[g * n + i]; float r = -1; out[g * n + i] = -1;\n{body}\nout[g * n + i] = r; }}"
    )


def returning(body: str) -> str:
    """With `return` in the body nothing may follow, so the result is stored in place."""
    return source(body.replace("r = ", "out[g * n + i] = ") if "return" in body else body)


def is_split(text: str) -> bool:
    return "__OST_THREADS_BEGIN(__ost_group)" in parse(text).translate().text


@pytest.mark.parametrize("name", SPLIT)
def test_threads_run_as_loops_between_uniform_barriers(name: str) -> None:
    assert is_split(source(SPLIT[name][0]))


@pytest.mark.parametrize("name", FIBERS)
def test_threads_run_as_fibers_where_the_flow_may_differ(name: str) -> None:
    assert not is_split(source(FIBERS[name][0]))


@pytest.fixture(scope="module")
def library(dev: ostinato.Device) -> ostinato.Library:
    cases = {**SPLIT, **FIBERS}
    bodies = [
        source(body)
        .removeprefix(HEAD)
        .removeprefix("constant uint SIZE = 64;\n")
        .replace("void k(", f"void k{number}(")
        for number, (body, _) in enumerate(cases.values())
    ]
    return dev.library(HEAD + "constant uint SIZE = 64;\n" + "\n".join(bodies))


@pytest.mark.parametrize("name", [*SPLIT, *FIBERS])
def test_every_way_gives_the_same_answer(dev: ostinato.Device, library: ostinato.Library, name: str) -> None:
    cases = {**SPLIT, **FIBERS}
    number = list(cases).index(name)
    values = np.random.default_rng(number).integers(-50, 50, (3, 64)).astype(np.float32)
    got = launch(dev, library[f"k{number}"], values.ravel(), np.zeros(192, np.float32), groups=3, group_size=64)
    expected = np.concatenate([np.asarray(cases[name][1](row), np.float32) for row in values])
    if "return" in cases[name][0] and name == "a thread that returns":
        expected = np.where(np.arange(192) % 64 == 0, -1, expected)
    np.testing.assert_array_equal(np.asarray(got).ravel(), expected)
