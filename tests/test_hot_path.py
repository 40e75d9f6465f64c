"""The native hot path of replays beside the Python code that is its reference: whatever it does, nobody can tell."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from ostinato import counters, settings
from ostinato.graph import starting
from ostinato.runtime import tracing
from scripting import Script

SOURCE = """
#include <metal_stdlib>
using namespace metal;
kernel void add(device uint *x [[buffer(0)]], constant uint &by [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    x[i] += by;
}
kernel void store(device uchar *out [[buffer(0)]], constant uchar &u8 [[buffer(1)]], constant short &i16 [[buffer(2)]],
                  constant long &i64 [[buffer(3)]], constant ulong &u64 [[buffer(4)]],
                  constant float &f32 [[buffer(5)]]) {
    *(device uchar *)(out + 0) = u8;
    *(device short *)(out + 2) = i16;
    *(device float *)(out + 4) = f32;
    *(device long *)(out + 8) = i64;
    *(device ulong *)(out + 16) = u64;
}
kernel void spin(device uint *x [[buffer(0)]], constant uint &steps [[buffer(1)]]) {
    uint value = x[0];
    for (uint i = 0; i < steps; ++i) { value = value * 1664525u + 1013904223u; value ^= value >> 13; }
    x[0] = value;
}
"""


@pytest.fixture(params=["native", "python"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ost.Device]:
    """A device whose replays are started by native code, and one without."""
    if request.param == "python":
        monkeypatch.setattr(starting, "_module", lambda: None)
    elif starting._module() is None:
        pytest.skip("the headers of the interpreter are missing")
    with ost.open_device("cpu", workers=2) as opened:
        yield opened


def adder(device: ost.Device, count: int = 3) -> tuple[ost.Replayable, ost.Buffer]:
    x = device.zeros(4, np.uint32)
    kernel = device.library(SOURCE)["add"]

    def encode(encoder: ost.CommandEncoder) -> None:
        for _ in range(count):
            encoder.dispatch(kernel, x, ost.param("by", np.uint32), threads=4)

    return device.capture(encode, label="adder").instantiate(), x


def test_a_usual_replay_is_started_and_ended_natively(monkeypatch: pytest.MonkeyPatch) -> None:
    if starting._module() is None:
        pytest.skip("the headers of the interpreter are missing")
    with ost.open_device("cpu") as device:
        run, x = adder(device)
        queue: Any = device._queue
        run.replay(by=0)  # makes the new memory resident
        monkeypatch.setattr(type(queue.backend), "replay", lambda *_: pytest.fail("Python started it"))
        monkeypatch.setattr(type(queue), "submit", lambda *_, **__: pytest.fail("Python submitted it"))
        assert run.replay(by=2).wait()
        assert [one.wait() for one in run.replay_many(by=range(3))] == [True] * 3
        assert x.numpy().tolist() == [15] * 4


def test_replays_have_numbers_labels_times_and_are_counted(device: ost.Device) -> None:
    run, x = adder(device)
    before = counters.totals()
    submissions = [run.replay(by=by) for by in range(1, 6)]
    assert all(one.wait() for one in submissions)
    after = counters.totals()
    assert x.numpy().tolist() == [3 * 15] * 4
    assert [one.ordinal for one in submissions] == list(range(1, 6))
    assert {one.label for one in submissions} == {"adder"}
    assert all(one.done and one.error is None and one.gpu_time for one in submissions)
    assert "done in" in repr(submissions[0])
    assert after.dispatches - before.dispatches == 15
    assert after.command_buffers - before.command_buffers == 5
    assert after.syncs - before.syncs == 5
    assert after.auto_barriers - before.auto_barriers == 10
    assert device._queue.submitted == 5
    assert device._queue.in_flight_count == 0


def test_scopes_and_uncounted_blocks_count_as_ever(device: ost.Device) -> None:
    run, _ = adder(device)
    before = counters.totals()
    with counters.scope() as counts:
        run.replay(by=1).wait()
        run.replay_many(by=[1, 2])[-1].wait()
    assert (counts.dispatches, counts.command_buffers, counts.syncs) == (9, 3, 2)
    with counters.uncounted():
        run.replay(by=1).wait()
    assert counters.totals().command_buffers - before.command_buffers == 3


def test_every_kind_of_number_arrives_as_numpy_has_it(device: ost.Device) -> None:
    out = device.zeros(24, np.uint8)
    kinds: dict[str, Any] = {"u8": np.uint8, "i16": np.int16, "i64": np.int64, "u64": np.uint64, "f32": np.float32}
    params = [ost.param(name, kind) for name, kind in kinds.items()]
    run = device.capture(
        lambda enc: enc.dispatch(device.library(SOURCE)["store"], out, *params, threads=1)
    ).instantiate()
    places = {"u8": 0, "i16": 2, "f32": 4, "i64": 8, "u64": 16}
    cases: tuple[dict[str, Any], ...] = (
        {"u8": 255, "i16": -32768, "i64": -(2**63), "u64": 2**64 - 1, "f32": 0.1},
        {"u8": 0, "i16": 32767, "i64": 2**63 - 1, "u64": 2**63, "f32": float("inf")},
        {"u8": True, "i16": np.int16(-5), "i64": 3.0, "u64": 7, "f32": -1},
    )
    for values in cases:
        run.replay(**values).wait()
        for name, kind in kinds.items():
            got = out.numpy()[places[name] : places[name] + np.dtype(kind).itemsize].view(kind)[0]
            assert got == kind(values[name]), name
    fine: dict[str, Any] = {"u8": 1, "i16": 1, "i64": 1, "u64": 1, "f32": 1.0}
    for name, wrong in (("u8", 256), ("u8", -1), ("i16", 32768), ("i16", -32769), ("i64", 2**63), ("u64", 2**64)):
        with pytest.raises(ost.ArgumentError, match="out of the range"):
            run.replay(**fine | {name: wrong})
        many: dict[str, Any] = {key: [value, value] for key, value in fine.items()} | {name: [1, wrong]}
        with pytest.raises(ost.ArgumentError, match="out of the range"):
            run.replay_many(**many)
    with pytest.raises(ost.ArgumentError, match="out of the range of float32"):
        run.replay(**fine | {"f32": 1e300})
    assert device._queue.submitted == 3


def test_small_reads_wait_count_and_are_copies(device: ost.Device) -> None:
    run, x = adder(device)
    run.replay(by=1).wait()
    before = counters.totals().syncs
    run.replay(by=1)
    first = x.numpy()
    assert first.tolist() == [6] * 4
    first[0] = 99  # a copy of its own
    assert x[1:3].numpy().tolist() == [6, 6]
    assert x[0].numpy().shape == ()
    assert counters.totals().syncs - before == 3
    with counters.scope() as counts:
        assert x.numpy()[0] == 6
    assert counts.syncs == 1
    halves = device.array(np.arange(6).astype("bfloat16").reshape(2, 3))
    assert halves.numpy().dtype == halves.dtype
    assert halves.numpy().astype(np.float32).tolist() == [[0, 1, 2], [3, 4, 5]]
    large = device.array(np.arange(5000, dtype=np.uint32))
    assert large.numpy().sum() == large[:1000].numpy().sum() + large[1000:].numpy().sum()
    x.free()
    with pytest.raises(ost.FreedBuffer):
        x.numpy()


def test_a_watched_profiled_or_serial_replay_is_seen(device: ost.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    run, x = adder(device)
    run.replay(by=1)
    with ost.profile(level="dispatches") as profile:
        run.replay(by=1)
        run.replay_many(by=[1, 1])
    run.replay(by=1)
    monkeypatch.setenv("OSTINATO_BARRIERS", "serial")
    run.replay(by=1)
    monkeypatch.delenv("OSTINATO_BARRIERS")
    seen = []

    def gate() -> None:
        seen.append(run)

    monkeypatch.setattr(tracing, "gates", [*tracing.gates, gate])
    tracing.watched_keys.extend(settings.watched("exit_wait"))  # as `add_gate` does, at any time
    try:
        monkeypatch.setenv("OSTINATO_EXIT_WAIT", "60")
        run.replay(by=0)
    finally:
        del tracing.watched_keys[-1]
    assert seen == [run]
    assert len(profile.recording().submissions.id) == 3
    assert x.numpy().tolist() == [18] * 4


def test_memory_is_given_back_when_the_replays_that_use_it_are_done(device: ost.Device) -> None:
    run, x = adder(device)
    backing = weakref.ref(x._allocation())
    run.replay(by=0).wait()
    queue = sys.getrefcount(device._queue)
    submissions = run.replay_many(by=range(50))
    submissions[-1].wait()
    del submissions
    left = sys.getrefcount(device._queue)
    assert left == queue
    run.replay(by=1)
    del run, x
    device.zeros(1, np.uint8)
    device._queue._drain()
    gc.collect()
    assert backing() is None


def test_threads_share_a_graph(device: ost.Device) -> None:
    run, x = adder(device, 1)

    def work(_: int) -> set[int]:
        submissions = [run.replay(by=1) for _ in range(100)] + run.replay_many(by=[1] * 100)
        submissions[-1].wait()
        return {one.ordinal for one in submissions}

    before = counters.totals()
    with ThreadPoolExecutor(4) as pool:
        ordinals = list(pool.map(work, range(4)))
    assert set().union(*ordinals) == set(range(1, 801))
    assert x.numpy().tolist() == [800] * 4
    assert counters.totals().command_buffers - before.command_buffers == 800


def test_a_finaliser_may_use_the_device_whenever_the_collector_runs_it(device: ost.Device) -> None:
    run, x = adder(device, 1)
    done = []

    class Cycle:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            run.replay(by=1)
            done.append(device._queue.in_flight_count)

    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(200):
            Cycle()
            run.replay(by=1)
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert len(done) == 200
    assert x.numpy().tolist() == [400] * 4


def test_a_wait_in_one_thread_does_not_stop_the_others(device: ost.Device) -> None:
    x = device.zeros(1, np.uint32)
    spin = device.library(SOURCE)["spin"]
    run = device.capture(lambda enc: enc.dispatch(spin, x, ost.param("steps", np.uint32), threads=1)).instantiate()
    submission = run.replay(steps=100_000_000)
    waiting = threading.Thread(target=submission.wait)
    waiting.start()
    looked = 0
    while not submission.done:
        looked += 1
    waiting.join()
    assert looked > 0


def test_a_buffer_that_is_bound_no_more_is_read_without_waiting_for_later_replays(device: ost.Device) -> None:
    library, x = device.library(SOURCE), device.zeros(1, np.uint32)
    run = device.capture(lambda enc: enc.dispatch(library["add"], x, 1, threads=1)).named(x=x).instantiate()
    buffers = [device.zeros(1, np.uint32) for _ in range(3)]
    submissions = [run.replay(x=buffer) for buffer in buffers]
    submissions[-1].wait()
    encoder = device.command_encoder()
    encoder.dispatch(library["spin"], device.zeros(1, np.uint32), 100_000_000, threads=1)
    running = encoder.commit()
    after = run.replay(x=buffers[2])
    assert buffers[0].numpy().tolist() == [1]
    waited = running.done
    after.wait()
    assert not waited
    assert buffers[2].numpy().tolist() == [2]


def test_a_fault_blocks_what_depends_on_it_until_it_is_overwritten(device: ost.Device) -> None:
    x = device.zeros(4, np.uint32)
    library = device.library(
        "kernel void divide(device int *x [[buffer(0)]], constant int &by [[buffer(1)]]) { x[0] = 7 / by; }"
    )
    view = x.view(np.int32)
    run = device.capture(
        lambda enc: enc.dispatch(library["divide"], view, ost.param("by", np.int32), threads=1)
    ).instantiate()
    run.replay(by=1).wait()
    faulted = run.replay(by=0)
    with pytest.raises(ost.KernelFault):
        faulted.wait()
    with pytest.raises(ost.DependencyFailed):
        run.replay(by=1).wait()
    x.write(np.zeros(4, np.uint32))
    run.replay(by=7).wait()
    assert view.numpy()[0] == 1


INTERRUPTED = """
import os, signal, threading, time
import numpy as np
import ostinato as ost
from ostinato.graph import starting
from ostinato.runtime import tracing
device = ost.open_device("cpu")
library = device.library({source!r})
x = device.zeros(1, np.uint32)
steps = ost.param("steps", np.uint32)
run = device.capture(lambda enc: enc.dispatch(library["spin"], x, steps, threads=1)).instantiate()
signal.signal(signal.SIGINT, signal.default_int_handler)
submission = run.replay(steps=4_000_000_000)
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
begin = time.monotonic()
try:
    submission.wait()
except KeyboardInterrupt:
    print("interrupted", starting._module() is not None, time.monotonic() - begin < 2, submission.done)
assert submission.wait(0.01) is False
run.replay(steps=1)
print("usable", device._queue.in_flight_count)
"""


def test_ctrl_c_ends_a_native_wait_and_the_device_goes_on(script: Script) -> None:
    result = script(INTERRUPTED.format(source=SOURCE))
    native = starting._module() is not None
    assert result.stdout.splitlines() == [f"interrupted {native} True False", "usable 2"], result.stderr
