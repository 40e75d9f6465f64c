"""Kernels split at their barriers: which are, which are not, and that both compute the same.

Every case is a body for 64 threads with `i` (the thread), `n` (threads a group), `g` (the group), `x` (this thread's
input) and `r` (its result), and the result expected for the inputs of a group.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest

import ostinato
from launching import launch
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


def is_split(text: str) -> bool:
    return "__OST_THREADS_BEGIN(__ost_group)" in parse(text).translate().text


@pytest.mark.parametrize("name", SPLIT)
def test_threads_run_as_loops_between_uniform_barriers(name: str) -> None:
    assert is_split(source(SPLIT[name][0]))


@pytest.mark.parametrize("name", FIBERS)
def test_threads_run_as_fibers_where_the_flow_may_differ(name: str) -> None:
    assert not is_split(source(FIBERS[name][0]))


CASES = {**SPLIT, **FIBERS, **EITHER}


def many(bodies: list[str]) -> str:
    """One source with a kernel for each body."""
    head, _, _ = source("").partition("kernel void")
    kernels = [source(body).removeprefix(head).replace("void k(", f"void k{n}(") for n, body in enumerate(bodies)]
    return head + "\n".join(kernels)


@pytest.fixture(scope="module")
def library(dev: ostinato.Device) -> ostinato.Library:
    return dev.library(many([body for body, _ in CASES.values()]))


@pytest.mark.parametrize("name", CASES)
def test_every_way_gives_the_same_answer(dev: ostinato.Device, library: ostinato.Library, name: str) -> None:
    number = list(CASES).index(name)
    values = np.random.default_rng(number).integers(-50, 50, (3, 64)).astype(np.float32)
    got = launch(dev, library[f"k{number}"], values.ravel(), np.zeros(192, np.float32), groups=3, group_size=64)
    expected = np.concatenate([np.asarray(CASES[name][1](row), np.float32) for row in values])
    np.testing.assert_array_equal(np.asarray(got).ravel(), expected)


def random_body(random: Random) -> str:
    """Statements over a few variables, with barriers where all threads come by and no races."""

    def number(shared: bool = True) -> str:
        choices = ["a", "c", "x", "float(b % 50)", "float(i)", "float(n)", "2.0f"]
        return random.choice([*choices, "t[(i + 1) % n]", "t[n - 1 - i]"] if shared else choices)

    def count() -> str:
        return random.choice(["b", "n", "i", "3u", "b * 2 + i", "n - i % 8"])

    def assignment() -> str:
        if random.random() < 0.3:
            return f"b {random.choice(['=', '+='])} {count()};"
        return f"{random.choice('ac')} {random.choice(['=', '+=', '-='])} {number()} * 0.5f + {number()};"

    def statement(depth: int, may_meet: bool) -> str:
        choice = random.randrange(12)
        if choice == 0:
            return "bump(b, i % 3);"
        if choice == 1:
            return f"{{ thread float &ref = {random.choice('ac')}; ref += {number()}; }}"
        if choice == 2 and depth < 2:
            return f"if (i % {random.randint(2, 5)} == 0) {{ {statement(depth + 1, False)} }} else {assignment()}"
        if choice == 3 and depth < 2:
            return (
                f"if (n > {random.choice([10, 100])}) {{ {statement(depth + 1, may_meet)} }} else {{ {assignment()} }}"
            )
        if choice in (4, 5) and depth < 2:
            limit = random.choice(["3", "n / 16", "b % 4 + 1", "i % 3"])
            inner = " ".join(statement(depth + 1, may_meet and limit in ("3", "n / 16")) for _ in range(2))
            return f"for (uint k{depth} = 0; k{depth} < {limit}; ++k{depth}) {{ {inner} }}"
        if choice == 6 and depth < 2:
            return f"for (uint q = i; q < n * 2; q += n) {{ {random.choice('ac')} += float(q % 7); {assignment()} }}"
        if choice > 8 and may_meet:
            return f"BARRIER t[i] = {number(shared=False)}; BARRIER"
        return assignment()

    lines = [statement(0, True) for _ in range(random.randint(4, 9))]
    start = "t[i] = x; BARRIER float a = x; uint b = n; float c = 1;"
    return f"{start} {' '.join(lines)} r = a + float(b % 1000) + c;"


@pytest.mark.parametrize("seed", range(2))
def test_splitting_never_changes_a_result(dev: ostinato.Device, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Random bodies, run split where they can be and as fibers: bit for bit the same."""
    random = Random(seed)
    bodies = [random_body(random) for _ in range(40)]
    values = np.random.default_rng(seed).integers(-50, 50, 128).astype(np.float32)

    def results(library: ostinato.Library) -> list[np.ndarray]:
        return [
            launch(dev, library[f"k{n}"], values, np.zeros(128, np.float32), groups=2, group_size=64) for n in range(40)
        ]

    split = dev.library(many(bodies))
    assert sum(is_split(source(body)) for body in bodies) >= 5
    monkeypatch.setattr("ostinato.msl.translate.split_at_barriers", lambda *_: False)
    fibers = dev.library(many(bodies) + "\n")
    for body, one, other in zip(bodies, results(split), results(fibers), strict=True):
        np.testing.assert_array_equal(one, other, err_msg=body)
