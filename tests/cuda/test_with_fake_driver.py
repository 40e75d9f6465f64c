"""The backend against a stand-in for the driver: numbers, memory, times and faults, without a device."""

from __future__ import annotations

import ctypes
import gc
import os
import struct
import sys
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from fake_driver import Driver, Fake
from ostinato.backends.cuda import api, compiling, driver, graphs, kernels, launchers, launches, rings
from ostinato.msl import parameter_layout
from ostinato.native.building import host_library

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
    # The stand-in for the clock's kernel is a thread that takes turns with the host.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield found
    sys.setswitchinterval(interval)
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
    with pytest.raises(ost.BufferAccessError, match="cannot map"):
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
    assert fake.launched.count("ost_resolve_end") >= 5  # the ceilings of the device are measured too
    assert [struct.unpack("=f", one[:4])[0] for one in fake.values[:5]] == [0, 1, 2, 3, 4]


def test_kernels_of_a_chain_are_launched_early_and_wait_when_they_begin(fake: Driver, device: ost.Device) -> None:
    graph, _ = bumps(device, 4)
    run = graph.instantiate()
    native = run._plain.parts[0].executable
    begin, *nodes, end = fake._graphs[native.executable]
    assert [node.before for node in (begin, *nodes, end)] == [[], [0], [1], [2], [3], [4]]
    assert [node.programmatic for node in (begin, *nodes, end)] == [False, True, True, True, True, True]
    # The first one lets the others start when it has waited: the values of the replay are there then.
    assert [node.arguments[0][48] for node in nodes] == [8 | 32 | 1, *[8 | 2 | 1] * 3]
    assert [node.arguments[-1][0] for node in (begin, end)] == [1, 1]


EARLY = """
#include <metal_stdlib>
#include <ostinato>
using namespace metal;
kernel void scale(device const float *weight [[buffer(0)]], device const float *x [[buffer(1)]],
                  device float *out [[buffer(2)]], uint i [[thread_position_in_grid]]) {
    const float w = weight[i];
    ostinato::wait_for_all_but(weight);
    out[i] = w * x[i];
}
"""


def flags_of(fake: Driver, run: ost.Replayable) -> list[int]:
    """The flags of the launches of the graph that was bound last."""
    variant = next(reversed(run._variants.values()), run._plain)
    _, *nodes, _ = fake._graphs[variant.parts[0].executable.executable]
    return [node.arguments[0][48] for node in nodes]


def test_a_kernel_reads_before_it_waits_what_nobody_in_the_graph_writes(fake: Driver, device: ost.Device) -> None:
    kernel = device.library(EARLY)["scale"]
    x, y, first, second = (device.zeros(64, np.float32) for _ in range(4))

    def chain(encoder: ost.CommandEncoder) -> None:
        for weight, source, target in ((first, x, y), (second, y, x), (first, x, y)):
            encoder.dispatch(kernel, weight, source, target, threads=64)

    def writing(encoder: ost.CommandEncoder) -> None:
        chain(encoder)
        encoder.fill(first, 0)

    inside, at_first = 8 | 16, 8 | 1
    assert flags_of(fake, device.capture(chain).instantiate()) == [at_first | 32, inside | 2, inside | 2]
    assert flags_of(fake, device.capture(writing).instantiate())[:3] == [at_first | 32, inside | 2, at_first | 2]


def test_a_buffer_bound_instead_that_the_graph_writes_is_waited_for(fake: Driver, either: ost.Device) -> None:
    kernel = either.library(EARLY)["scale"]
    weight, x, y, other = (either.zeros(64, np.float32) for _ in range(4))

    def chain(encoder: ost.CommandEncoder) -> None:
        for source, target in ((x, y), (y, x), (x, y)):
            encoder.dispatch(kernel, weight, source, target, threads=64)

    run = either.capture(chain).named(weight=weight).instantiate()
    last = []
    for buffer in (weight, other, y, other):
        run.replay(weight=buffer).wait()
        last.append(flags_of(fake, run)[-1])
    assert last == [26, 26, 11, 26]


def test_what_is_not_a_chain_is_not_launched_early(fake: Driver, device: ost.Device) -> None:
    kernel, buffers = device.library(SOURCE)["bump"], [device.zeros(64, np.float32) for _ in range(2)]
    large = device.zeros(1 << 16, np.float32)

    def encode(encoder: ost.CommandEncoder) -> None:
        for buffer in buffers:
            encoder.dispatch(kernel, buffer, 1.0, threads=64)
        encoder.dispatch(kernel, large, 1.0, threads=1 << 16)

    run = device.capture(encode).instantiate()
    begin, *nodes, end = fake._graphs[run._plain.parts[0].executable.executable]
    assert [node.before for node in nodes] == [[0], [0], [0]]
    assert [node.programmatic for node in nodes] == [True, True, False]
    assert [node.arguments[0][48] & 3 for node in nodes] == [1, 1, 0]
    assert (end.before, end.programmatic, end.arguments[-1][0], begin.arguments[-1][0]) == ([1, 2, 3], False, 0, 1)


def test_a_graph_of_nothing_begins_and_ends(fake: Driver, device: ost.Device) -> None:
    profile = ost.profile(level="dispatches")  # loaded by now: clocks are compared again after a while
    run = device.capture(lambda encoder: None).instantiate()
    submission = run.replay()
    assert submission.wait()
    assert _without_clock(fake.launched)[-2:] == ["ost_begin", "ost_end"]
    with profile:
        assert run.replay().wait()
        assert _without_clock(fake.launched)[-2:] == ["ost_begin", "ost_end"]


def _without_clock(launched: list[str]) -> list[str]:
    """The clocks are compared now and again, by the time that has passed."""
    return [name for name in launched if name not in ("ost_pairs", "ost_mark")]


@pytest.fixture(params=["python", "native"])
def either(request: pytest.FixtureRequest, fake: Driver, monkeypatch: pytest.MonkeyPatch) -> Iterator[ost.Device]:
    """A device with each of the launchers; what the native one launches comes to the same stand-in."""
    library = host_library("fake-libcuda", [Path(__file__).with_name("fake_libcuda.cpp")])
    state = Fake.in_dll(library, "fake")
    ctypes.memset(ctypes.addressof(state), 0, ctypes.sizeof(state))
    run = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_size_t)(lambda graph: int(fake.cuGraphLaunch(graph, 0)[0]))
    state.on_graph = ctypes.cast(run, ctypes.c_void_p)
    update = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_size_t)(
        lambda graph, node, params: int(fake.update(graph, node, params)[0])
    )
    state.on_update = ctypes.cast(update, ctypes.c_void_p)
    monkeypatch.setattr(launchers, "NativeLauncher", partial(launchers.NativeLauncher, driver=library._name))
    with ost.open_device("cuda:0", native=request.param == "native") as opened:
        assert opened.capabilities.details["launcher"] == request.param
        yield opened


def seen(fake: Driver) -> list[float]:
    return [struct.unpack("=f", one[:4])[0] for one in fake.values]


def test_more_replays_than_slots_each_see_their_own_values(
    fake: Driver, either: ost.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rings, "_MOST_SLOTS", 8)
    graph, _ = bumps(either)
    run = graph.instantiate()
    fake.held = deque()
    ended = threading.Event()

    def device_works() -> None:
        while not ended.wait(0.001):
            fake.let_go()

    works = threading.Thread(target=device_works)
    started = [run.replay(by=float(by)) for by in range(8)]
    assert seen(fake) == []
    works.start()
    try:
        started += [run.replay(by=float(by)) for by in range(8, 40)]
        started[-1].wait()
    finally:
        ended.set()
        works.join()
    assert seen(fake) == [float(by) for by in range(40)]
    times = [one.gpu_time for one in started]
    assert all(time is not None and time[0] <= time[1] for time in times)
    assert times == sorted(times)  # type: ignore[type-var]
    assert len(set(times)) == 40
    assert not run._plain.parts[0].executable.ring._saved


def test_a_graph_that_is_not_launched_leaves_the_next_replay_its_values(fake: Driver, either: ost.Device) -> None:
    graph, _ = bumps(either)
    run = graph.instantiate()
    first = run.replay(by=1.0)
    fake.fail_graphs = [2]
    with pytest.raises(ost.DeviceError, match="none of it was started"):
        run.replay(by=2.0)
    assert run.replay(by=3.0).wait()
    assert first.gpu_time is not None
    assert seen(fake)[0::2] == [1.0, 3.0]


def bound_to(fake: Driver, run: ost.Replayable, sampled: bool = False) -> list[int]:
    """The address of the first argument of each dispatch, in the graph that was bound last."""
    native = next(reversed(run._variants.values())).parts[0].executable
    _begin, *nodes, _end = fake._graphs[native.sampled() if sampled else native.executable]
    return [struct.unpack_from("=Q", node.arguments[0], 80)[0] for node in nodes]


def address(buffer: ost.Buffer) -> int:
    return buffer._allocation().backing.address + buffer.byte_offset


def test_other_buffers_are_bound_by_changing_the_nodes_that_use_them(fake: Driver, either: ost.Device) -> None:
    kernel = either.library(SOURCE)["bump"]
    x, y = either.zeros(64, np.float32), either.zeros(64, np.float32)

    def encode(encoder: ost.CommandEncoder) -> None:
        for buffer in (x, y, x[32:], y):
            encoder.dispatch(kernel, buffer, ost.param("by", np.float32), threads=buffer.size)

    run = either.capture(encode).named(x=x).instantiate()
    others = [either.zeros(64, np.float32) for _ in range(4)]
    instantiated = fake.live["graph"]
    for turn, other in enumerate(others):
        run.replay(x=other, by=float(turn)).wait()
        assert bound_to(fake, run) == [address(other), address(y), address(other) + 128, address(y)]
    assert fake.updates == 2 * 3  # only the nodes that use it, from the second binding on
    assert (run.rebind_count, run.rebuild_count, fake.live["graph"]) == (4, 1, instantiated + 1)
    assert seen(fake) == [0.0, 1.0, 2.0, 3.0]


def test_the_instrumented_graph_is_rebound_too(fake: Driver, either: ost.Device) -> None:
    graph, x = bumps(either)
    run = graph.named(x=x).instantiate()
    others = [either.zeros(64, np.float32) for _ in range(4)]
    for other in others[:2]:
        run.replay(x=other, by=1.0).wait()
    assert bound_to(fake, run, sampled=True) == [address(others[1])] * 3  # built after a change
    with ost.profile(level="dispatches") as profile:
        for other in others[2:]:
            run.replay(x=other, by=1.0).wait()
    assert bound_to(fake, run, sampled=True) == [address(others[3])] * 3
    run.replay(x=others[3], by=1.0).wait()  # the other graph catches up when it is replayed
    assert bound_to(fake, run) == [address(others[3])] * 3
    assert len(profile.recording().samples()) == 6
    assert run.rebuild_count == 1


def test_a_replay_in_flight_keeps_its_buffer(fake: Driver, either: ost.Device) -> None:
    graph, x = bumps(either, 1)
    run = graph.named(x=x).instantiate()
    others = [either.zeros(64, np.float32) for _ in range(3)]
    run.replay(x=others[0], by=0.0).wait()
    fake.held = deque()
    first, second = run.replay(x=others[1], by=1.0), run.replay(x=others[2], by=2.0)
    used = [struct.unpack_from("=Q", nodes[1].arguments[0], 80)[0] for nodes in fake.held]
    assert used == [address(others[1]), address(others[2])]
    backing = weakref.ref(others[1]._allocation())
    del others[1]
    gc.collect()
    assert backing() is not None  # it still runs
    fake.let_go()
    fake.let_go()
    assert first.wait()
    assert second.wait()
    assert others[0].numpy().shape == (64,)
    del first
    gc.collect()
    assert backing() is None


def test_where_nodes_cannot_be_changed_the_graph_is_built(
    fake: Driver, either: ost.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, x = bumps(either)
    run = graph.named(x=x).instantiate()
    monkeypatch.setattr(fake, "fail_update", 1)
    others = [either.zeros(64, np.float32) for _ in range(3)]
    for other in others:
        run.replay(x=other, by=1.0).wait()
        assert bound_to(fake, run) == [address(other)] * 3
    assert (run.rebind_count, run.rebuild_count) == (3, 3)


def test_a_graph_that_cannot_catch_up_is_not_replayed(fake: Driver, either: ost.Device) -> None:
    graph, x = bumps(either)
    run = graph.named(x=x).instantiate()
    others = [either.zeros(64, np.float32) for _ in range(3)]
    with ost.profile(level="dispatches"):
        for other in others:
            run.replay(x=other, by=1.0).wait()
    fake.fail_update = 1
    with pytest.raises(ost.DeviceError, match="none of it was started"):
        run.replay(x=others[2], by=2.0)
    fake.fail_update = 0
    assert run.replay(x=others[2], by=3.0).wait()
    assert bound_to(fake, run) == [address(others[2])] * 3
    assert seen(fake)[-1] == 3.0
    assert 2.0 not in seen(fake)


def test_a_replay_after_one_whose_failure_could_not_be_settled_settles_it_first(
    fake: Driver, either: ost.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, _ = bumps(either)
    run = graph.instantiate()
    native, realign = run._plain.parts[0].executable, graphs.NativeGraph.realign

    def interrupted(self: Any) -> None:
        monkeypatch.setattr(graphs.NativeGraph, "realign", realign)
        raise KeyboardInterrupt

    fake.fail_graphs = [2]
    monkeypatch.setattr(graphs.NativeGraph, "realign", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run.replay(by=2.0)
    assert not native.is_aligned
    assert run.replay(by=3.0).wait()
    assert native.is_aligned
    assert seen(fake) == [2.0, 3.0]  # the first node of the one that failed ran


def test_replays_have_times_after_the_device_was_lost_if_they_ran(fake: Driver, either: ost.Device) -> None:
    graph, _ = bumps(either)
    run = graph.instantiate()
    good = run.replay(by=1.0)
    fake.stuck = True
    bad, behind = run.replay(by=2.0), run.replay(by=3.0)
    fake.lost = 700
    if either.capabilities.details["launcher"] == "native":
        library = host_library("fake-libcuda", [Path(__file__).with_name("fake_libcuda.cpp")])
        Fake.in_dll(library, "fake").query = 700
    with pytest.raises(ost.KernelFault, match="token"):
        bad.wait()
    assert isinstance(behind.error, ost.DeviceLost)
    assert good.error is None
    assert good.gpu_time is not None
    assert bad.gpu_time is None


def test_a_graph_that_is_dropped_is_kept_while_it_runs(fake: Driver, device: ost.Device) -> None:
    graph, _ = bumps(device)
    run = graph.instantiate()
    before = fake.live["graph"]
    fake.held = deque()
    submission = run.replay(by=1.0)
    del graph, run
    gc.collect()
    assert fake.live["graph"] == before
    fake.let_go()
    assert submission.wait()
    gc.collect()
    assert fake.live["graph"] == before - 1


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
    with pytest.raises(ost.DeviceUnavailable, match="ZeroDivisionError"):
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
    with pytest.raises(ost.DeviceError, match=r"2 of its launches ran, and have finished"):
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
    with pytest.raises(ost.DeviceLost, match=r"wild.*torch, CuPy .* start a new process"):
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


def test_a_graph_that_dies_in_a_cycle_gives_its_memory_back_whole(device: ost.Device) -> None:
    """The collector finalises a cycle in any order; the next graph must not get memory that was freed."""
    for _ in range(20):
        graph, _ = bumps(device)
        cycle: list[object] = [graph.instantiate()]
        cycle.append(cycle)
        del graph, cycle
    gc.collect()
    for _ in range(20):
        graph, _ = bumps(device)
        run = graph.instantiate()
        assert run._plain.parts[0].executable.ring._memory.host
        assert run.replay(by=1.0).wait()


PRINTING = """
#include <metal_stdlib>
using namespace metal;
kernel void note(device float *x [[buffer(0)]]) { os_log_default.log("noted"); }
kernel void silent(device float *x [[buffer(0)]]) { x[0] = 1; }
"""


def test_each_submission_and_replay_has_what_it_printed(
    fake: Driver, device: ost.Device, capfd: pytest.CaptureFixture[str]
) -> None:
    library, x = device.library(PRINTING), device.zeros(64, np.float32)

    def encode(encoder: ost.CommandEncoder) -> None:
        encoder.dispatch(library["note"], x, threads=2, group_size=1)
        encoder.dispatch(library["silent"], x, threads=1)
        encoder.dispatch(library["note"], x, threads=3, group_size=1)

    run = device.capture(encode).instantiate()
    encoder = device.command_encoder()
    encode(encoder)
    submissions = [encoder.commit(), run.replay(), run.replay()]
    for submission in submissions:
        submission.wait()
        assert [message.group[0] for message in submission.log] == [0, 1, 0, 1, 2]
    assert capfd.readouterr().err.splitlines()[1] == "note, group 1, thread 1: noted"
    encoder = device.command_encoder()
    encoder.dispatch(library["silent"], x, threads=1)
    assert encoder.commit_and_wait().log == ()
    copies = fake.live["pinned"]
    del submissions, submission
    run.replay().wait()
    assert fake.live["pinned"] == copies  # memory of the logs is used again


def test_a_full_log_is_counted_and_emptied(fake: Driver, capfd: pytest.CaptureFixture[str]) -> None:
    with ost.settings.override(log_bytes="1024"), ost.open_device("cuda:0", native=False) as device:
        kernel, x = device.library(PRINTING)["note"], device.zeros(64, np.float32)
        for _ in range(2):
            encoder = device.command_encoder()
            encoder.dispatch(kernel, x, threads=100, group_size=1)
            submission = encoder.commit_and_wait()
            assert (len(submission.log), submission.log_dropped) == (1024 // 24, 100 - 1024 // 24)
    assert "58 more messages" in capfd.readouterr().err


def test_what_was_printed_is_lost_with_the_device_and_that_is_said(
    fake: Driver, device: ost.Device, capfd: pytest.CaptureFixture[str]
) -> None:
    kernel, x = device.library(PRINTING)["note"], device.zeros(64, np.float32)

    def commit() -> ost.Submission:
        encoder = device.command_encoder()
        encoder.dispatch(kernel, x, threads=1)
        return encoder.commit()

    good = commit()
    fake.stuck = True
    bad = commit()
    fake.lost = 700
    with pytest.raises(ost.KernelFault):
        bad.wait()
    assert len(good.log) == 1
    assert bad.log == ()
    lines = capfd.readouterr().err.splitlines()
    assert lines == [
        "note, group 0, thread 0: noted",
        "ostinato: submission 2: what its kernels printed is lost with the device",
    ]


def test_blocks_are_whole_warps_with_room_for_staged_operands(
    fake: Driver, device: ost.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "cubin", lambda *_: b"\0_ZN5__ost13staging_bytesILj9000EEE\0staging_bytesILj5000E")
    kernel, x = device.library(SOURCE)["bump"], device.zeros(64, np.float32)
    encoder = device.command_encoder()
    encoder.dispatch(kernel, x, 1.0, threads=(5, 9), group_size=(5, 9))
    record = encoder._nodes[0].lowered
    launch = launches.launch_of(record)
    assert launch is not None
    assert (launch.blocks, launch.threads, launch.shared_bytes) == (1, 64, 9000)
    encoder.commit_and_wait()


@pytest.mark.parametrize("option", ["tf32", "debug"])
def test_options_are_true_or_false(fake: Driver, option: str) -> None:
    with pytest.raises(ost.DeviceUnavailable, match=f"{option}='yes': expected True or False"):
        driver.CudaBackend(0, **{option: "yes"})  # type: ignore[arg-type]


def test_tf32_is_what_kernels_are_compiled_with(fake: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    flags: list[str] = []

    def cubin(text: str, options: list[str], *_: object) -> bytes:
        flags.extend(options)
        return b""

    monkeypatch.setattr(kernels, "cubin", cubin)
    for tf32 in (False, True):
        flags.clear()
        with ost.open_device("cuda:0", native=False, tf32=tf32) as opened:
            opened.library(SOURCE)
        assert ("--define-macro=__OST_TF32=1" in flags) is tf32
