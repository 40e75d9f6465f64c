"""Races inside a threadgroup, on a device that checks its kernels."""

from __future__ import annotations

import numpy as np
import pytest

import ostinato as ost

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"

REVERSE = (
    HEAD
    + """kernel void reverse(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
    uint i [[thread_position_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
  threadgroup float tile[256];
  tile[i] = x[i];
  BARRIER
  y[i] = tile[n - 1 - i];
}
"""
)


@pytest.fixture(scope="module")
def dev() -> ost.Device:
    return ost.open_device("cpu", checked=True)


def run(dev: ost.Device, source: str, *arrays: np.ndarray, threads: int, group: int) -> ost.Submission:
    library = dev.library(source)
    (kernel,) = (library[name] for name in library)
    encoder = dev.command_encoder()
    encoder.dispatch(kernel, *(dev.array(array) for array in arrays), threads=threads, group_size=group)
    submission = encoder.commit()
    submission.wait()
    return submission


def findings(dev: ost.Device, source: str, *arrays: np.ndarray, threads: int, group: int) -> tuple[ost.Finding, ...]:
    with pytest.raises(ost.KernelCheckError) as caught:
        run(dev, source, *arrays, threads=threads, group=group)
    return caught.value.findings


def reverse(barrier: str) -> str:
    return REVERSE.replace("BARRIER", barrier)


X = np.arange(256, dtype=np.float32)


@pytest.mark.parametrize("flags", ["mem_threadgroup", "mem_device | mem_flags::mem_threadgroup"])
@pytest.mark.parametrize("group", [1, 32, 33, 100, 256])
def test_a_barrier_orders_the_accesses_of_a_group(dev: ost.Device, flags: str, group: int) -> None:
    submission = run(dev, reverse(f"threadgroup_barrier(mem_flags::{flags});"), X, X, threads=group, group=group)
    assert submission.findings == ()


@pytest.mark.parametrize(
    "barrier",
    [
        "",
        "threadgroup_barrier(mem_flags::mem_none);",
        "threadgroup_barrier(mem_flags::mem_device);",
        "simdgroup_barrier(mem_flags::mem_threadgroup);",
    ],
)
def test_a_race_names_both_places(dev: ost.Device, barrier: str) -> None:
    (race,) = findings(dev, reverse(barrier), X, X, threads=256, group=256)
    assert (race.kind, race.severity) == ("race", "error")
    places = {(access.what, access.place.line, access.place.column) for access in race.accesses if access.place}
    assert places == {("write", 6, 11), ("read", 8, 24)}
    first, second = race.accesses
    assert first.thread[0] + second.thread[0] == 255
    assert race.count == 256
