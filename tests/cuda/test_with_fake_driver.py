"""The backend against a stand-in for the driver: numbers, memory, times and faults, without a device."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fake_driver import Driver

import ostinato as ost
from ostinato.backends.cuda import api, compiling, driver, kernels
from ostinato.msl import parameter_layout

SOURCE = """
#include <metal_stdlib>
using namespace metal;
kernel void bump(device float *x [[buffer(0)]], constant float &by [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    x[i] += by;
}
kernel void wild(device float *x [[buffer(0)]]) { x[1 << 30] = 1; }
"""
SIZES = {"float": 4, "uint": 4, "ulong": 8, "uint4": 16, "uchar": 1, "ushort": 2, "float4": 16}


@pytest.fixture
def fake(private_environment: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """Kernels are not compiled: what a compiler would say of them is said here."""
    found = Driver()
    monkeypatch.setattr(api, "_initialised", lambda: (found, os.getpid()))
    monkeypatch.setattr(driver, "cubin", lambda *_: b"")
    monkeypatch.setattr(kernels, "cubin", lambda *_: b"")
    monkeypatch.setattr(driver, "_check_compiler", lambda: None)
    monkeypatch.setattr(driver, "version", lambda: (13, 0))
    original = kernels.Module.function

    def numbers(module: kernels.Module, number: int) -> list[int]:
        sizes = [SIZES[one.type] for one in list(module._translation.kernels.values())[number].arguments]
        return [0, 0, len(sizes), 0, *(part for size in sizes for part in (size, size))]

    def function(module: kernels.Module, number: int, *more: Any) -> Any:
        signature = list(module._translation.kernels.values())[number]
        sizes = [SIZES[one.type] for one in signature.arguments]
        found.parameters[f"__ost_kernel_{number}"] = parameter_layout(signature, sizes).total_bytes
        return original(module, number, *more)

    monkeypatch.setattr(kernels.Module, "numbers", numbers)
    monkeypatch.setattr(kernels.Module, "function", function)
    yield found
    compiling.nvrtc.cache_clear()


@pytest.fixture
def device(fake: Driver) -> Iterator[ost.Device]:
    with ost.open_device("cuda:0", native=False) as opened:
        yield opened


def bumps(device: ost.Device, count: int = 3) -> tuple[ost.Graph, ost.Buffer]:
    kernel, x = device.library(SOURCE)["bump"], device.zeros(64, np.float32)

    def encode(encoder: ost.CommandEncoder) -> None:
        for _ in range(count):
            encoder.dispatch(kernel, x, ost.param("by", np.float32), threads=64)

    return device.capture(encode, label="token"), x


def test_buffers_are_written_read_cleared_and_given_back(fake: Driver, device: ost.Device) -> None:
    before = fake.live["memory"]
    values = np.arange(100, dtype=np.float32)
    buffer = device.array(values)
    assert np.array_equal(buffer.numpy(), values)
    buffer.write(values * 2)
    assert np.array_equal(buffer[10:20].numpy(), values[10:20] * 2)
    assert not device.zeros(10, np.uint8).numpy().any()
    with pytest.raises(ost.BufferAccessError, match="window"):
        buffer.as_numpy()
    del buffer
    assert fake.live["memory"] == before


def test_live_work_and_replays_have_numbers_times_and_samples(fake: Driver, device: ost.Device) -> None:
    graph, x = bumps(device)
    run = graph.instantiate()
    with ost.profile(level="dispatches") as profile:
        for by in range(5):
            encoder = device.command_encoder()
            encoder.dispatch(device.library(SOURCE)["bump"], x, float(by), threads=64)
            encoder.commit()
            run.replay(by=float(by))
    recording = profile.recording()
    assert len(recording.submissions.id) == 10
    samples = recording.samples()
    assert len(samples) == 5 + 5 * 3
    assert (samples.end_ns >= samples.start_ns).all()
    assert (samples.start_ns > 0).all()
    assert fake.launched.count("ost_resolve") == 5
    assert fake.launched.count("ost_resolve_to") >= 5  # the ceilings of the device are measured too


def test_a_chain_is_launched_early_and_waits_inside(fake: Driver, device: ost.Device) -> None:
    graph, _ = bumps(device, 4)
    run = graph.instantiate()
    native = run._plain.parts[0].native
    nodes = fake._graphs[native.executable]
    assert [node.before for node in nodes] == [[], [0], [1], [2]]
    assert [node.programmatic for node in nodes] == [False, True, True, True]
    flags = [node.arguments[0][48] for node in nodes]
    assert flags == [8 | 2, 8 | 2 | 1, 8 | 2 | 1, 8 | 1]


def test_what_submissions_borrow_comes_back(fake: Driver, device: ost.Device) -> None:
    graph, _ = bumps(device)
    run = graph.instantiate()
    for _ in range(3):
        run.replay(by=1.0).wait()
    gc.collect()
    before = dict(fake.live)
    for _ in range(50):
        run.replay(by=1.0).wait()
    gc.collect()
    assert dict(fake.live) == before


def test_closing_gives_everything_back(fake: Driver) -> None:
    device = ost.open_device("cuda:0", native=False)
    graph, x = bumps(device)
    run = graph.instantiate()
    with ost.profile():
        run.replay(by=1.0)
    assert x.numpy().shape == (64,)
    del graph, run, x
    device.close()
    del device
    gc.collect()
    assert {kind: count for kind, count in fake.live.items() if count and kind != "memory"} == {}


def test_an_opening_that_fails_keeps_nothing(fake: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_details", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        ost.open_device("cuda:0", native=False)
    gc.collect()
    assert {kind: count for kind, count in fake.live.items() if count and kind != "memory"} == {}


def test_a_launch_that_is_refused_says_how_many_ran(fake: Driver, device: ost.Device) -> None:
    kernel, x = device.library(SOURCE)["bump"], device.zeros(64, np.float32)
    encoder = device.command_encoder()
    for _ in range(4):
        encoder.dispatch(kernel, x, 1.0, threads=64)
    turn = next(fake._launches) + 1
    fake.fail[turn + 2] = 1
    with pytest.raises(ost.DeviceError, match=r"2 of its launches ran, and were waited for"):
        encoder.commit()
    encoder.discard()
    fake.fail.clear()
    after = device.command_encoder()
    after.dispatch(kernel, x, 1.0, threads=64)
    after.commit_and_wait()


def test_more_groups_than_a_grid_holds_are_refused(device: ost.Device) -> None:
    kernel, x = device.library(SOURCE)["bump"], device.zeros(64, np.float32)
    encoder = device.command_encoder()
    with pytest.raises(ost.GeometryError, match="4295032832 groups"):
        encoder.dispatch(kernel, x, 1.0, groups=(65537, 65536), group_size=1)
    encoder.discard()


def test_a_fault_names_the_first_that_did_not_finish(fake: Driver) -> None:
    device = ost.open_device("cuda:0", native=False)
    library, x = device.library(SOURCE), device.zeros(64, np.float32)

    def commit(name: str, *more: object) -> ost.Submission:
        encoder = device.command_encoder()
        encoder.dispatch(library[name], x, *more, threads=1)
        return encoder.commit_labeled(name)

    good = commit("bump", 1.0)
    fake.stuck = True
    bad, behind = commit("wild"), commit("bump", 1.0)
    fake.lost = 700
    with pytest.raises(ost.KernelFault, match=r"'wild': something went wrong .* in flight were wild"):
        bad.wait()
    assert good.error is None
    assert isinstance(behind.error, ost.DeviceLost)
    with pytest.raises(ost.DeviceLost, match="wild"):
        device.zeros(1, np.float32)


def test_an_error_that_passes_does_not_lose_the_device(fake: Driver, device: ost.Device) -> None:
    graph, _ = bumps(device)
    run = graph.instantiate()
    submission = run.replay(by=1.0)
    backend: Any = device._queue.backend
    word = backend._done.array(np.uint32)
    word[0] -= 1  # as if it still ran
    fake.lost = 900
    assert not submission.wait(0.01)
    fake.lost = 0
    word[0] += 1
    assert submission.wait()


def test_memory_of_others_is_taken_by_its_interface(fake: Driver, device: ost.Device) -> None:
    lent = device.array(np.arange(6, dtype=np.float32).reshape(2, 3))

    class Array:
        __cuda_array_interface__ = lent.__cuda_array_interface__

    taken = device.from_dlpack(Array())
    assert np.array_equal(taken.numpy(), lent.numpy())
    Array.__cuda_array_interface__ = lent.__cuda_array_interface__ | {"strides": (4, 8)}
    with pytest.raises(ost.ArgumentError, match="contiguous"):
        device.from_dlpack(Array())
    Array.__cuda_array_interface__ = lent.__cuda_array_interface__ | {"data": (1, True)}
    with pytest.raises(ost.ArgumentError, match="read-only"):
        device.from_dlpack(Array())


def test_memory_goes_out_and_comes_back_by_dlpack(fake: Driver, device: ost.Device) -> None:
    lent = device.array(np.arange(6, dtype=np.float32))
    again = device.from_dlpack(lent)
    assert again.__dlpack_device__() == (2, 0)
    assert np.array_equal(again.numpy(), lent.numpy())
    before = fake.live["memory"]
    del lent
    gc.collect()
    assert np.array_equal(again.numpy(), np.arange(6, dtype=np.float32))
    assert fake.live["memory"] == before
    del again
    gc.collect()
    assert fake.live["memory"] == before - 1
