"""Bounds and uninitialised memory, on a device that checks its kernels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import ostinato as ost
from compilers import ZIG
from test_checked_races import HEAD, findings, run

COPY = (
    HEAD
    + "kernel void copy(device const float *x, device float *y, uint i [[thread_position_in_grid]]) { y[i] = x[i]; }"
)
THREADGROUP = (
    HEAD
    + """kernel void two(device float *x, uint i [[thread_position_in_threadgroup]]) {
  threadgroup float first[32];
  threadgroup float second[32];
  threadgroup float *moved = first + BY;
  second[i] = 1;
  moved[i] = i;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  x[i] = first[i] + second[i];
}
"""
)
ZEROS = np.zeros(64, np.float32)


@pytest.fixture(scope="module")
def dev() -> ost.Device:
    return ost.open_device("cpu", checked=True)


@pytest.mark.parametrize(("threads", "elements"), [(64, 63), (65, 64)])
def test_an_access_past_the_end_names_line_thread_and_argument(dev: ost.Device, threads: int, elements: int) -> None:
    x, y = np.zeros(elements, np.float32), np.zeros(128, np.float32)
    (finding,) = findings(dev, COPY, x, y, threads=threads, group=threads)
    assert finding.kind == "out of bounds"
    (access,) = finding.accesses
    assert (access.what, access.thread) == ("read", (threads - 1, 0, 0))
    assert access.place is not None
    assert access.place.line == 3
    assert access.place.column is not None
    assert COPY.splitlines()[2][access.place.column - 1 :].startswith(("x[i]", "[i]", "]"))
    assert f"byte {elements * 4} of argument 0 'x'" in finding.why


def test_memory_after_a_write_out_of_bounds_is_as_it_was(dev: ost.Device) -> None:
    both = dev.array(np.arange(64, dtype=np.float32))
    encoder = dev.command_encoder()
    encoder.dispatch(dev.library(COPY)["copy"], dev.array(ZEROS), both[:8], threads=9, group_size=9)
    with pytest.raises(ost.KernelCheckError):
        encoder.commit_and_wait()
    both.accept()
    assert both.numpy()[8] == 8


def test_threadgroup_arrays_lie_apart(dev: ost.Device) -> None:
    assert run(dev, THREADGROUP.replace("BY", "0"), ZEROS, threads=32, group=32).findings == ()
    (finding,) = (one for one in findings(dev, THREADGROUP.replace("BY", "1"), ZEROS, threads=32, group=32)
                  if one.kind == "out of bounds")  # fmt: skip
    assert "threadgroup memory 'first', bytes 128 to 132" in finding.why
    assert finding.accesses[0].thread == (31, 0, 0)


def test_shared_memory_ends_where_it_was_asked_to(dev: ost.Device) -> None:
    kernel = dev.library(
        HEAD + "kernel void k(device float *x, threadgroup float *a [[threadgroup(0)]], threadgroup float *b"
        " [[threadgroup(1)]], uint i [[thread_position_in_threadgroup]]) { b[i] = 1; a[i] = b[i]; x[i] = a[i]; }"
    )["k"]
    for size, error in ((128, False), (112, True)):
        encoder = dev.command_encoder()
        encoder.dispatch(kernel, dev.array(ZEROS), threads=32, group_size=32, shared={0: size, 1: 128})
        submission = encoder.commit()
        if error:
            with pytest.raises(ost.KernelCheckError, match="out of bounds"):
                submission.wait()
        else:
            submission.wait()


def test_threadgroup_memory_that_no_thread_wrote_is_uninitialised(dev: ost.Device) -> None:
    source = THREADGROUP.replace("second[i] = 1;", "if (i != 5) second[i] = 1;").replace("BY", "0")
    (finding,) = findings(dev, source, ZEROS, threads=64, group=32)
    assert (finding.kind, finding.count) == ("uninitialised", 2)  # what an earlier group wrote does not count
    assert finding.accesses[0].thread == (5, 0, 0)


def test_what_nobody_writes_is_uninitialised_whatever_else_the_line_does(dev: ost.Device) -> None:
    source = (
        HEAD
        + """kernel void k(device float *x, uint i [[thread_position_in_threadgroup]]) {
  threadgroup float s[32];
  if (i < COUNT) s[i] = i;
  x[i] = s[i ^ 1];
}
"""
    )
    every = run(dev, source.replace("COUNT", "32"), ZEROS, threads=32, group=32).findings
    assert [finding.kind for finding in every] == ["relies on lockstep"]
    some = findings(dev, source.replace("COUNT", "16"), ZEROS, threads=32, group=32)
    assert [(finding.kind, finding.is_error) for finding in some] == [
        ("uninitialised", True),
        ("relies on lockstep", False),
    ]


def fill(dev: ost.Device, x: ost.Buffer) -> None:
    encoder = dev.command_encoder()
    encoder.fill(x, 1.0)
    encoder.commit_and_wait()


def copy(dev: ost.Device, source: ost.Buffer, x: ost.Buffer) -> None:
    encoder = dev.command_encoder()
    encoder.copy(source, x)
    encoder.commit_and_wait()


@pytest.mark.parametrize(
    ("prepare", "unwritten"),
    [
        (lambda dev, x: None, 64),
        (lambda dev, x: x.write(ZEROS), 0),
        (lambda dev, x: x[:24].write(ZEROS[:24]), 40),
        (lambda dev, x: x.as_numpy(), 0),
        (fill, 0),
        (lambda dev, x: copy(dev, dev.zeros(64, np.float32), x), 0),
        (lambda dev, x: copy(dev, dev.empty(64, np.float32), x), 64),
    ],
)
def test_device_memory_that_nobody_wrote_is_uninitialised(
    dev: ost.Device, prepare: Callable[[ost.Device, ost.Buffer], None], unwritten: int
) -> None:
    x, y, z = (dev.empty(64, np.float32) for _ in range(3))
    prepare(dev, x)
    encoder = dev.command_encoder()
    kernel = dev.library(COPY)["copy"]
    encoder.dispatch(kernel, x, y, threads=64)
    encoder.dispatch(kernel, y, z, threads=64)  # a kernel has written it
    submission = encoder.commit()
    if not unwritten:
        submission.wait()
        return
    with pytest.raises(ost.KernelCheckError) as caught:
        submission.wait()
    (finding,) = caught.value.findings
    assert (finding.kind, finding.count) == ("uninitialised", unwritten)
    assert finding.argument == f"x[{64 - unwritten}]"


@pytest.mark.parametrize("command", ["", *ZIG])
def test_an_update_reads_before_it_writes(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", command) if command else None
    source = HEAD + "kernel void k(device float *x, uint i [[thread_position_in_grid]]) { x[i] += 1.0f; }"
    with ost.open_device("cpu", checked=True) as device:
        kernel = device.library(source)["k"]
        encoder = device.command_encoder()
        encoder.dispatch(kernel, device.empty(64, np.float32), threads=64)
        with pytest.raises(ost.KernelCheckError) as caught:
            encoder.commit_and_wait()
    assert [finding.kind for finding in caught.value.findings] == ["uninitialised"]


ODD = {"packed_uchar3": 3, "packed_half3": 6, "Five": 5, "packed_float3": 12, "float3": 16}


@pytest.mark.parametrize("command", ["", *ZIG])
@pytest.mark.parametrize("checked", [True, "bounds"])
def test_values_of_any_size_stay_within_their_buffers(
    command: str, checked: bool | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", command) if command else None
    source = HEAD + "struct Five { uchar parts[5]; };\n"
    for name in ODD:
        arguments = f"device const {name} *x, device {name} *y, uint i [[thread_position_in_grid]]"
        source += f"{name} same({name} v) {{ return v; }}\nkernel void k_{name}({arguments}) {{ y[i] = same(x[i]); }}\n"
    with ost.open_device("cpu", checked=checked) as device:
        library = device.library(source)
        for name, size in ODD.items():
            for short in (0, 1):
                x, y = (device.array(np.zeros(size * (4 - (short == place)), np.uint8)) for place in (0, 1))
                encoder = device.command_encoder()
                encoder.dispatch(library[f"k_{name}"], x, y, threads=4, group_size=4)
                with pytest.raises(ost.KernelCheckError) as caught:
                    encoder.commit_and_wait()
                assert [finding.kind for finding in caught.value.findings] == ["out of bounds"]
