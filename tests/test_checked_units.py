"""Races and unwritten elements are found alike in memory that is accessed in words, halves of words and bytes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import ostinato as ost

DTYPES = {"uint": np.uint32, "ushort": np.uint16, "uchar": np.uint8}
BODIES = {
    "neighbours": "y[i] = T(i);",
    "stencil": "y[i] = T(i); BARRIER T right = y[g * 64 + (t + 1) % 64], left = y[g * 64 + (t + 63) % 64]; BARRIER "
    "y[i] = left + right;",
    "tile": "threadgroup T a[64]; a[t] = T(i); BARRIER T sum = a[t ^ 1] + a[63 - t]; BARRIER a[t] = sum; BARRIER "
    "y[i] = a[t ^ 33];",
    "agree": "y[g * 64 + t / 2] = T(g);",
    "differ": "y[g * 64 + t / 2] = T(t);",
    "too early": "y[i] = T(i); BARRIER T left = y[g * 64 + (t + 63) % 64]; y[i] = left;",
    "across": "y[i] = T(i); if (i >= 64) y[i - 64] = T(7);",
    "agree, then read": "y[g * 64] = T(1); if (y[g * 64 + t / 64] > 1) y[i] = T(2);",
    "parts": "device uchar *bytes = (device uchar *)y; bytes[i] = uchar(i); BARRIER if (t < 16) y[256 + g * 64 + t] = "
    "T(((device uint *)bytes)[i / 4]);",
    "whole": "((device uint *)y)[i] = i; if (t == 31) ((device uchar *)y)[4 * i + 4] = 9;",
}
RACES = {"differ", "too early", "across", "agree, then read", "whole"}
BARRIER = "threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);"
SOURCE = "#include <metal_stdlib>\nusing namespace metal;\n" + "\n".join(
    f"kernel void {dtype}_{number}(device {dtype} *y, uint i [[thread_position_in_grid]], "
    f"uint t [[thread_index_in_threadgroup]], uint g [[threadgroup_position_in_grid]]) {{ "
    f"typedef {dtype} T; {body} }}".replace("BARRIER", BARRIER)
    for dtype in DTYPES
    for number, body in enumerate(BODIES.values())
)
SOURCE += """
// Simdgroup barriers of device memory, more of them than their counter holds, do not order threadgroup memory.
kernel void wrapped(device uchar *y, uint t [[thread_index_in_threadgroup]]) {
  threadgroup uchar a[4];
  if (t == 0) a[0] = 7;
  for (int k = 0; k < 300; ++k) simdgroup_barrier(mem_flags::mem_device);
  if (t == 1) y[0] = a[0];
}
// Every write has its own line, group or number of barriers.
kernel void contexts(device uchar *y, uint g [[threadgroup_position_in_grid]]) {
  for (uint k = 0; k < 250; ++k) {
    device uchar *row = y + 16 * (g * 250 + k);
    row[0] = 1; row[1] = 1; row[2] = 1; row[3] = 1; row[4] = 1; row[5] = 1; row[6] = 1; row[7] = 1;
    row[8] = 1; row[9] = 1; row[10] = 1; row[11] = 1; row[12] = 1; row[13] = 1; row[14] = 1; row[15] = 1;
    simdgroup_barrier(mem_flags::mem_device);
  }
}
"""


@pytest.fixture(scope="module")
def dev(private_environment: None) -> Iterator[ost.Device]:
    with ost.open_device("cpu", checked=True, unwritten=True) as device:
        yield device


@pytest.fixture(scope="module")
def library(dev: ost.Device) -> ost.Library:
    return dev.library(SOURCE)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", BODIES)
def test_races_do_not_depend_on_the_size_of_elements(
    dev: ost.Device, library: ost.Library, dtype: str, case: str
) -> None:
    encoder = dev.command_encoder()
    y = dev.zeros(2048, DTYPES[dtype])
    encoder.dispatch(library[f"{dtype}_{[*BODIES].index(case)}"], y, threads=256, group_size=64)
    submission = encoder.commit()
    try:
        submission.wait()
        findings = submission.findings
    except ost.KernelCheckError as error:
        findings = error.findings
    kinds = {finding.kind for finding in findings} - {"not written", "relies on lockstep"}
    assert kinds == ({"race"} if case in RACES else set())


@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_that_no_thread_wrote_are_noted(dev: ost.Device, library: ost.Library, dtype: str) -> None:
    encoder = dev.command_encoder()
    y = dev.zeros(257, DTYPES[dtype])
    encoder.dispatch(library[f"{dtype}_0"], y, threads=255, group_size=64)
    submission = encoder.commit()
    submission.wait()
    (finding,) = submission.findings
    assert finding.kind == "not written"
    assert f"no thread writes y[255]; {2 * y.dtype.itemsize} bytes" in finding.why


def test_barriers_of_device_memory_leave_threadgroup_memory_alone(dev: ost.Device, library: ost.Library) -> None:
    encoder = dev.command_encoder()
    encoder.dispatch(library["wrapped"], dev.zeros(1, np.uint8), threads=32, group_size=32)
    submission = encoder.commit()
    submission.wait()
    assert [finding.kind for finding in submission.findings] == ["relies on lockstep"]


def test_writes_that_were_forgotten_are_not_called_missing(dev: ost.Device, library: ost.Library) -> None:
    groups = 550  # of 4,000 contexts each; 2,097,152 are kept
    encoder = dev.command_encoder()
    encoder.dispatch(library["contexts"], dev.zeros(4000 * groups, np.uint8), threads=groups, group_size=1)
    submission = encoder.commit()
    submission.wait()
    assert not submission.findings
