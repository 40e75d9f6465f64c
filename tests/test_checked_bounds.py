"""Devices that look for accesses out of bounds and for nothing else, and reads that hooks pass over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from ostinato.native import toolchain

SOURCE = """#include <metal_stdlib>
using namespace metal;
kernel void copy(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
  y[i] = x[i];
}
kernel void add(device const float *, device atomic_uint *y, uint i [[thread_position_in_grid]]) {
  atomic_fetch_add_explicit(y + i, 1u, memory_order_relaxed);
}
kernel void local(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
  float a[8];
  thread float *p = a;
  for (uint k = 0; k < 8; k++) p[k] = x[k];
  y[i] = p[i];
}
kernel void before(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
  y[int(i) - 1] = x[i];
}
kernel void asked(device const float *x, device float *y, threadgroup float *a [[threadgroup(0)]],
                  uint i [[thread_position_in_grid]]) {
  a[i] = x[0];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[i & 7] = a[i];
}
kernel void large(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
  threadgroup float a[64];
  a[i] = x[0];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float sum = 0;
  for (uint k = 0; k < 64; k++) sum += a[k];
  y[i & 7] = sum;
}
kernel void small(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
  threadgroup float a[8];
  threadgroup float *p = a;
  p[i & 7] = x[0];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[i & 7] = p[i];
}
kernel void values(constant float &first, constant float &second, device float *y, uint i [[thread_position_in_grid]]) {
  y[i] = (&first)[4 * i] + second;
}
kernel void wide(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
  reinterpret_cast<device long4 *>(y)[i] = reinterpret_cast<device const long4 *>(x)[i];
}
kernel void unrolled(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
  float sum = 0;
  for (uint k = 0; k < 4; k++)
    sum += x[2 * i + k];
  y[i] = sum;
}
kernel void columns(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
  threadgroup float a[4][8], b[4][8];
  for (uint k = 0; k < 4; k++) a[k][i & 7] = b[k][i & 7] = x[0];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  threadgroup float *p = a[0] + i;
  float sum = 0;
  for (uint k = 0; k < 4; k++)
    sum += p[8 * k];
  y[i & 7] = sum;
}
kernel void pairs(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
  reinterpret_cast<device float2 *>(y)[i] *= 2;
}
kernel void of_many(device const float *x, device const float *x1, device const float *x2, device const float *x3,
                    device float *y, uint i [[thread_position_in_grid]]) {
  for (uint k = 0; k < 8; k++)
    y[i] += x[k] * x1[k] + x2[k] *
            x3[k + i];
}
kernel void wrong(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
  threadgroup float a[64], b[64];
  a[i] = x[0];
  y[0] = a[i ^ 1];
  y[1] = b[i];
}
kernel void before_null(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
  device const float *p = i ? x : nullptr;
  y[i] = p[-1] + p[-2];
}
"""


@pytest.fixture(scope="module", params=["bounds", True])
def dev(request: pytest.FixtureRequest, private_environment: None) -> Iterator[ost.Device]:
    with ost.open_device("cpu", checked=request.param) as device:
        yield device


@pytest.fixture(scope="module")
def library(dev: ost.Device) -> ost.Library:
    return dev.library(SOURCE)


def test_bounds_are_found_without_clang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "find_clang", lambda: None)
    with ost.open_device("cpu", checked="bounds") as device:
        library = device.library(SOURCE)
        launch(device, library["copy"], threads=8)
        with pytest.raises(ost.KernelCheckError, match="thread 8 of group 0 reads byte 32 of argument 0 'x'"):
            launch(device, library["copy"], threads=9, elements=16)


def launch(dev: ost.Device, kernel: ost.Kernel, threads: int, elements: int = 8, shared: int = 0) -> ost.Submission:
    encoder = dev.command_encoder()
    dtype = np.uint32 if kernel.name == "add" else np.float32
    arguments = (dev.array(np.ones(8, np.float32)), dev.array(np.zeros(elements, dtype)))
    encoder.dispatch(kernel, *arguments, threads=threads, group_size=threads, shared={0: shared} if shared else None)
    submission = encoder.commit()
    submission.wait()
    return submission


@pytest.mark.parametrize(
    ("kernel", "inside", "outside", "line", "thread"),
    [
        ("copy", {"threads": 8}, {"threads": 9, "elements": 16}, 4, 8),
        ("copy", {"threads": 7, "elements": 7}, {"threads": 8, "elements": 7}, 4, 7),
        ("add", {"threads": 8}, {"threads": 9}, 7, 8),
        ("local", {"threads": 8, "elements": 16}, {"threads": 9, "elements": 16}, 13, 8),
        ("asked", {"threads": 8, "shared": 32}, {"threads": 8, "shared": 16}, 20, 4),
        ("small", {"threads": 8}, {"threads": 9}, 37, 8),
        ("wide", {"threads": 1}, {"threads": 2}, 43, 1),
        ("unrolled", {"threads": 3}, {"threads": 4}, 48, 3),
        ("columns", {"threads": 8}, {"threads": 9}, 58, 8),
        ("pairs", {"threads": 3, "elements": 7}, {"threads": 4, "elements": 7}, 62, 3),
    ],
)
def test_an_access_out_of_bounds_is_found(
    dev: ost.Device,
    library: ost.Library,
    kernel: str,
    inside: dict[str, int],
    outside: dict[str, int],
    line: int,
    thread: int,
) -> None:
    launch(dev, library[kernel], **inside)
    with pytest.raises(ost.KernelCheckError) as caught:
        launch(dev, library[kernel], **outside)
    (finding,) = (each for each in caught.value.findings if each.kind == "out of bounds")
    (access,) = finding.accesses
    assert access.place is not None
    assert (access.place.line, access.thread) == (line, (thread, 0, 0))


@pytest.mark.parametrize("swapped", [False, True])
def test_an_access_in_a_neighbour_is_found(dev: ost.Device, library: ost.Library, swapped: bool) -> None:
    def launch_on_halves(threads: int) -> np.ndarray:
        both = dev.array(np.arange(16, dtype=np.float32))
        x, y = (both[8:], both[:8]) if swapped else (both[:8], both[8:])
        encoder = dev.command_encoder()
        encoder.dispatch(library["copy"], x, y, threads=threads, group_size=threads)
        encoder.commit_and_wait()
        return np.roll(both.numpy(), -8 if swapped else 0)

    first = 8 if swapped else 0
    assert launch_on_halves(8).tolist() == [*range(first, first + 8)] * 2
    with pytest.raises(ost.KernelCheckError) as caught:
        launch_on_halves(9)
    (finding,) = caught.value.findings
    assert "thread 8 of group 0 reads byte 32 of argument 0 'x', which has 32 bytes: right past its end" in str(finding)


@pytest.mark.parametrize(
    ("kernel", "threads", "said"),
    [
        ("unrolled", 4, "reads byte 32 of argument 0 'x', which has 32 bytes: right past its end"),
        ("columns", 9, "thread 8 of group 0 reads threadgroup memory 'a', bytes 128 to 132"),
    ],
)
def test_the_first_access_of_a_loop_that_is_out_of_bounds_is_found(
    dev: ost.Device, library: ost.Library, kernel: str, threads: int, said: str
) -> None:
    with pytest.raises(ost.KernelCheckError, match=said):
        launch(dev, library[kernel], threads=threads)


@pytest.mark.parametrize("bytes_apart", [32, 1 << 20])
def test_an_access_out_of_one_of_many_arguments_is_found(
    dev: ost.Device, library: ost.Library, bytes_apart: int
) -> None:
    memory = dev.empty(4 * (bytes_apart // 4) + 8, np.float32)
    views = [memory[i * (bytes_apart // 4) :][:8] for i in range(4)]
    for view in views:
        view.write(np.ones(8, np.float32))
    for threads in (1, 2):
        out, encoder = dev.zeros(8, np.float32), dev.command_encoder()
        encoder.dispatch(library["of_many"], *views, out, threads=threads, group_size=threads)
        if threads == 1:
            encoder.commit_and_wait()
            assert out.numpy()[0] == 16
            continue
        with pytest.raises(ost.KernelCheckError, match="thread 1 of group 0 reads byte 32 of argument 3 'x3'"):
            encoder.commit_and_wait()


def test_an_access_beside_a_value_is_found(dev: ost.Device, library: ost.Library) -> None:
    encoder = dev.command_encoder()
    values, out = np.arange(2, dtype=np.float32), dev.zeros(8, np.float32)
    encoder.dispatch(library["values"], values[0], values[1], out, threads=8, group_size=8)
    with pytest.raises(
        ost.KernelCheckError, match="thread 1 of group 0 reads 4 bytes beside argument 0 'first', a value"
    ):
        encoder.commit_and_wait()


def test_what_a_kernel_wrote_before_it_was_stopped_is_there(dev: ost.Device, library: ost.Library) -> None:
    both = dev.array(np.arange(16, dtype=np.float32))
    encoder = dev.command_encoder()
    encoder.dispatch(library["copy"], both[:8], both[8:], threads=9, group_size=9)
    submission = encoder.commit()
    with pytest.raises(ost.KernelCheckError):
        submission.wait()
    both.accept()
    assert both.numpy()[8:].tolist() == [*range(8)]


def test_an_access_before_the_first_element_is_found(dev: ost.Device, library: ost.Library) -> None:
    with pytest.raises(ost.KernelCheckError, match="out of bounds"):
        launch(dev, library["before"], threads=1)


def test_an_access_right_before_a_null_pointer_is_found(dev: ost.Device, library: ost.Library) -> None:
    with pytest.raises(ost.KernelCheckError, match=r"out of bounds.*thread 0 of group 0 reads"):
        launch(dev, library["before_null"], threads=1)


def test_what_an_earlier_kernel_read_unseen_is_seen_again(dev: ost.Device, library: ost.Library) -> None:
    launch(dev, library["large"], threads=64)
    with pytest.raises(ost.KernelCheckError, match="out of bounds"):
        launch(dev, library["small"], threads=64)


def test_bounds_alone_says_nothing_of_races_and_uninitialised_memory() -> None:
    for checked, expected in (("bounds", set()), (True, {"race", "relies on lockstep", "uninitialised"})):
        with ost.open_device("cpu", checked=checked) as device:
            kernel = device.library(SOURCE)["wrong"]
            try:
                findings = launch(device, kernel, threads=64).findings
            except ost.KernelCheckError as error:
                findings = error.findings
            assert {finding.kind for finding in findings} == expected


@pytest.mark.parametrize("options", [{"checked": "races"}, {"checked": "bounds", "nan": True}, {"checked": 1}])
def test_what_is_not_known_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ost.DeviceUnavailable, match="checked="):
        ost.open_device("cpu", **options)
