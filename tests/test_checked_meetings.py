"""Barriers and simdgroup functions that not all threads reach, on a device that checks its kernels."""

from __future__ import annotations

import numpy as np
import pytest

import ostinato as ost
from test_checked_races import HEAD, findings, run

KERNEL = (
    HEAD + "kernel void k(device float *x, uint i [[thread_position_in_threadgroup]]) { float v = 1;\nBODY\nx[i] = v; }"
)
ZEROS = np.zeros(64, np.float32)
MATRIX = (
    "threadgroup float t[64]; t[i] = t[i ^ 32] = 1; threadgroup_barrier(mem_flags::mem_threadgroup);\n"
    "simdgroup_float8x8 m(1);\n#define LOAD simdgroup_load(m, t)\n#define STORE simdgroup_store(m, t)\n"
    "#define PRODUCT simdgroup_multiply_accumulate(m, m, m, m)\n"
)


@pytest.fixture(scope="module")
def dev() -> ost.Device:
    return ost.open_device("cpu", checked=True)


@pytest.mark.parametrize(
    "body",
    [
        "for (uint k = 0; k < 3; ++k) threadgroup_barrier(mem_flags::mem_none);",
        "for (uint k = 0; k < 3; ++k) simdgroup_barrier(mem_flags::mem_none);",
        "for (uint k = 16; k; k /= 2) v += simd_shuffle_down(v, k); v += simd_shuffle_up(v, 3);",
        "if (i % 2) v = simd_sum(v); else v = simd_max(v);",
        "if (i < 32) simdgroup_barrier(mem_flags::mem_device);",
        MATRIX + "if (i < 32) { LOAD; for (uint k = 0; k < 2; ++k) PRODUCT; STORE; }",
    ],
)
def test_what_metal_defines_is_no_finding(dev: ost.Device, body: str) -> None:
    assert run(dev, KERNEL.replace("BODY", body), ZEROS, threads=64, group=64).findings == ()


@pytest.mark.parametrize(
    ("body", "kind", "severity", "why"),
    [
        (
            "if (i < 3) threadgroup_barrier(mem_flags::mem_none);\nelse threadgroup_barrier(mem_flags::mem_device);",
            "divergent barrier",
            "error",
            "thread 3 of group 0 at <source>:5:",
        ),
        (
            "if (i < 3) return;\nthreadgroup_barrier(mem_flags::mem_none);",
            "divergent barrier",
            "error",
            "3 threads of its group have returned",
        ),
        (
            "if (i != 5) simdgroup_barrier(mem_flags::mem_none);",
            "divergent simdgroup function",
            "error",
            "without lanes 5",
        ),
        *(
            (f"{MATRIX}if (i != 5) {function};", "divergent simdgroup function", "error", "without lanes 5")
            for function in ("LOAD", "STORE", "PRODUCT")
        ),
        ("if (i) v = simd_shuffle(v, 0);", "inactive lane", "note", "the value of lane 0"),
    ],
)
def test_what_metal_leaves_undefined_is(dev: ost.Device, body: str, kind: str, severity: str, why: str) -> None:
    source = KERNEL.replace("BODY", body)
    if severity == "note":
        (finding,) = run(dev, source, ZEROS, threads=32, group=32).findings
    else:
        (finding,) = findings(dev, source, ZEROS, threads=32, group=32)
    assert (finding.kind, finding.severity) == (kind, severity)
    assert why in finding.why
