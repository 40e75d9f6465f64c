"""Replay: the same work again and again, with other values and other buffers."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ostinato as ost
from scripting import Script
from small_kernels import KERNELS, MEET, SLOW_STEPS


def floats(dev: ost.Device, *values: float) -> ost.Buffer:
    return dev.array(np.array(values, np.float32))


def store_at(dev: ost.Device) -> ost.Kernel:
    return dev.library(
        "kernel void store_at(device uint *out [[buffer(0)]], constant uint &at [[buffer(1)]],"
        " constant uint &value [[buffer(2)]]) { out[at] = value; }"
    )["store_at"]


def test_a_replay_does_what_the_encoder_would_have_done(dev: ost.Device, kernels: ost.Library) -> None:
    x, y = floats(dev, 1, 2, 3), floats(dev, 0, 0, 0)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(kernels["inc_one"], x, y, threads=3)
        enc.dispatch(kernels["inc_one"], y, x, threads=3)
        enc.copy(x, y)

    run = dev.capture(encode).instantiate()
    for _ in range(5):
        run.replay()
    assert x.numpy().tolist() == [11, 12, 13]
    assert y.numpy().tolist() == [11, 12, 13]


def test_parameters_of_replays_in_flight_do_not_mix(dev: ost.Device) -> None:
    out = dev.zeros(200, np.uint32)
    position = ost.param("pos", np.uint32)
    run = dev.capture(
        lambda enc: enc.dispatch(store_at(dev), out, position, ost.param("value", np.uint32), threads=1)
    ).instantiate()
    for pos in range(200):
        run.replay(pos=pos, value=1000 + pos)
    assert out.numpy().tolist() == list(range(1000, 1200))


@pytest.mark.parametrize(
    ("dtype", "value", "message"),
    [
        (np.uint32, -1, "out of the range of uint32"),
        (np.uint32, 1.5, "not an integer"),
        (np.uint32, "7", "expected a number"),
        (np.uint32, np.float32(1), "got float32"),
        (np.uint32, np.zeros(2, np.uint32), "of shape"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_and_nothing_runs(
    dev: ost.Device, dtype: type, value: object, message: str
) -> None:
    out = dev.zeros(4, np.uint32)
    run = dev.capture(
        lambda enc: enc.dispatch(store_at(dev), out, 0, ost.param("value", dtype), threads=1)
    ).instantiate()
    with ost.counters.scope() as counts, pytest.raises(ost.ArgumentError, match=message):
        run.replay(value=value)
    assert counts.command_buffers == 0


def test_unknown_and_missing_parameters_are_named(dev: ost.Device) -> None:
    out = dev.zeros(4, np.uint32)
    run = dev.capture(
        lambda enc: enc.dispatch(store_at(dev), out, ost.param("pos", np.uint32), 5, threads=1)
    ).instantiate()
    with pytest.raises(ost.GraphError, match=r"no value for parameter 'pos' \(uint32\)"):
        run.replay()
    with pytest.raises(ost.GraphError, match=r"named 'position'; it has parameter 'pos'"):
        run.replay(position=1)
    assert not out.numpy().any()


def test_one_name_is_one_parameter(dev: ost.Device, kernels: ost.Library) -> None:
    out = dev.zeros(4, np.uint32)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(store_at(dev), out, ost.param("n", np.uint32), 5, threads=1)
        with pytest.raises(ost.ArgumentError, match="another parameter of that name"):
            enc.dispatch(kernels["scale"], floats(dev, 1), floats(dev, 1), ost.param("n", np.float32), threads=1)
        with pytest.raises(ost.ArgumentError, match="another parameter of that name"):
            enc.dispatch(store_at(dev), out, ost.param("m", np.uint32), ost.param("m", np.int32), threads=1)
        enc.dispatch(store_at(dev), out, ost.param("n", np.uint32), ost.param("n", np.uint32), threads=1)

    graph = dev.capture(encode)
    graph.instantiate().replay(n=2)
    assert out.numpy().tolist() == [0, 0, 2, 0]


def test_a_parameter_outside_a_capture_is_an_error(dev: ost.Device) -> None:
    out = dev.zeros(4, np.uint32)
    enc = dev.command_encoder()
    with pytest.raises(ost.ArgumentError, match="only while capturing"):
        enc.dispatch(store_at(dev), out, ost.param("pos", np.uint32), 1, threads=1)
    enc.commit_and_wait()


def test_a_parameter_is_checked_like_an_argument(dev: ost.Device, kernels: ost.Library) -> None:
    x, y = floats(dev, 1), floats(dev, 1)

    def encode(enc: ost.CommandEncoder) -> None:
        with pytest.raises(ost.ArgumentError, match="expected float32, got uint32"):
            enc.dispatch(kernels["scale"], x, y, ost.param("factor", np.uint32), threads=1)
        with pytest.raises(ost.ArgumentError, match="must be a Buffer"):
            enc.dispatch(kernels["scale"], x, ost.param("y", np.float32), 1.0, threads=1)

    dev.capture(encode)


def test_a_struct_can_be_a_parameter(dev: ost.Device, kernels: ost.Library) -> None:
    layout = np.dtype([("count", np.uint32), ("factor", np.float32)])
    out = dev.zeros(4, np.float32)
    run = dev.capture(
        lambda enc: enc.dispatch(kernels["use_params"], out, ost.param("p", layout), threads=4)
    ).instantiate()
    run.replay(p=np.array((2, 1.5), layout))
    assert out.numpy().tolist() == [1.5, 1.5, 0, 0]


def test_each_replay_counts_its_dispatches(dev: ost.Device, kernels: ost.Library) -> None:
    x, y, z = floats(dev, 1), floats(dev, 0), floats(dev, 0)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(kernels["inc_one"], x, y, threads=1)
        enc.dispatch(kernels["inc_one"], x, z, threads=1)
        enc.memory_barrier()
        enc.dispatch(kernels["inc_one"], y, x, threads=1)
        enc.dispatch(kernels["inc_one"], x, y, threads=1)

    run = dev.capture(encode).instantiate()
    with ost.counters.scope() as counts:
        for _ in range(3):
            run.replay()
    assert (counts.command_buffers, counts.dispatches) == (3, 12)
    assert (counts.barriers, counts.auto_barriers, counts.concurrent) == (6, 3, 9)
    assert counts.elision == 9 / 12
    assert counts.syncs == 0


def test_reading_a_buffer_waits_for_the_replay(own_dev: ost.Device) -> None:
    spin = own_dev.library(KERNELS)["spin"]
    x = own_dev.zeros(1, np.uint32)
    run = own_dev.capture(lambda enc: enc.dispatch(spin, x, SLOW_STEPS // 10, threads=1)).instantiate()
    submission = run.replay()
    del run
    gc.collect()
    assert x.numpy()[0] != 0
    assert submission.done


def meeting(device: ost.Device, patience: int) -> tuple[ost.Graph, ost.Buffer]:
    """Two kernels that wait for each other: both succeed only if they run at the same time."""
    meet = device.library(MEET)["meet"]
    flags, ok = device.zeros(64, np.uint32), device.zeros(64, np.uint32)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(meet, flags[0:1], flags[32:33], ok[0:1], patience, threads=1, reads=[])
        enc.dispatch(meet, flags[32:33], flags[0:1], ok[32:33], patience, threads=1, reads=[])

    return device.capture(encode), ok


def test_independent_nodes_of_a_replay_really_overlap(own_dev: ost.Device, patience: int) -> None:
    graph, ok = meeting(own_dev, patience)
    assert graph.instantiate().replay().wait(timeout=60)
    assert ok.numpy()[[0, 32]].tolist() == [1, 1]


def test_serial_is_a_probe_for_replays_too(own_dev: ost.Device, patience: int) -> None:
    graph, ok = meeting(own_dev, patience // 100)
    run = graph.instantiate()
    with ost.settings.override(barriers="serial"):
        submission = run.replay()
    assert submission.wait(timeout=60)
    assert ok.numpy()[[0, 32]].tolist() == [0, 1]  # the first ended before the second began
    assert submission.rebind_ns == 0


# --- binding other buffers ---------------------------------------------------------------------------------------


def test_a_named_buffer_can_be_another_one_at_each_replay(dev: ost.Device, kernels: ost.Library) -> None:
    x, y = floats(dev, 1, 2), floats(dev, 0, 0)
    graph = dev.capture(lambda enc: enc.dispatch(kernels["inc_one"], x, y, threads=2)).named(x=x, y=y)
    run = graph.instantiate()
    inputs = [floats(dev, 10 * n, 20 * n) for n in range(3)]
    outputs = [floats(dev, 0, 0) for _ in range(3)]
    bound = []
    for _ in range(3):
        for one, other in zip(inputs, outputs, strict=True):
            run.replay(x=one, y=other)
        bound.append(run.rebind_count)
    assert [one.numpy().tolist() for one in outputs] == [[1, 1], [11, 21], [21, 41]]
    assert y.numpy().tolist() == [0, 0]
    assert bound[0] == 3
    assert bound[2] == bound[1]  # what comes again and again is known
    run.replay().wait()
    assert y.numpy().tolist() == [2, 3]


def test_ever_new_buffers_are_bound_without_building_the_graph_each_time(dev: ost.Device, kernels: ost.Library) -> None:
    x, y = floats(dev, 1, 2), floats(dev, 0, 0)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(kernels["inc_one"], x, y, threads=2)
        enc.dispatch(kernels["inc_one"], y, x, threads=2)

    run = dev.capture(encode).named(x=x).instantiate()
    buffers = [floats(dev, n, n) for n in range(20)]
    started = [run.replay(x=buffer) for buffer in buffers]
    assert [buffer.numpy().tolist() for buffer in buffers] == [[n + 2, n + 2] for n in range(20)]
    assert x.numpy().tolist() == [1, 2]
    assert run.rebind_count == 20
    first = weakref.ref(buffers[0]._allocation())
    del buffers[0]
    if hasattr(dev._queue.backend, "moved"):
        assert run.rebuild_count == 1
        assert all(one.wait() for one in started)
        gc.collect()
        assert first() is None  # nothing refers to what is bound no more


def test_many_replays_are_one_call(dev: ost.Device) -> None:
    out = dev.zeros(300, np.uint32)
    run = dev.capture(
        lambda enc: enc.dispatch(
            store_at(dev), out, ost.param("pos", np.uint32), ost.param("value", np.uint32), threads=1
        )
    ).instantiate()
    submissions = run.replay_many(pos=range(300), value=(1000 + at for at in range(300)))
    assert submissions[-1].wait()
    assert all(one.done for one in submissions)
    assert [one.ordinal for one in submissions] == list(range(submissions[0].ordinal, submissions[0].ordinal + 300))
    assert out.numpy().tolist() == list(range(1000, 1300))
    assert run.replay_many(pos=[], value=[]) == []
    (labelled,) = run.replay_many(pos=np.array([7], np.uint32), value=[1], label="one")
    assert labelled.label == "one"
    assert out.numpy()[7] == 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"pos": [1, 2], "value": [1]}, "pos 2, value 1"),
        ({"pos": 3, "value": [1]}, "'pos' is an iterable of values, not 3"),
        ({"pos": [1]}, "no value for"),
        ({"pos": [1], "other": [1]}, "no parameter named 'other'"),
        ({"pos": [1, 2], "value": [1, -1]}, "out of the range of uint32"),
        ({"pos": [1, 2], "value": [1, "a"]}, "expected a number"),
        ({}, "at least one parameter"),
    ],
)
def test_many_replays_with_a_value_that_does_not_fit_start_none(
    dev: ost.Device, values: dict[str, Any], message: str
) -> None:
    out = dev.zeros(3, np.uint32)
    run = dev.capture(
        lambda enc: enc.dispatch(
            store_at(dev), out, ost.param("pos", np.uint32), ost.param("value", np.uint32), threads=1
        )
    ).instantiate()
    with pytest.raises((ost.ArgumentError, ost.GraphError), match=message):
        run.replay_many(**values)
    assert out.numpy().tolist() == [0, 0, 0]


def test_the_cost_of_binding_is_reported_apart(dev: ost.Device, kernels: ost.Library) -> None:
    x = floats(dev, 1)
    run = dev.capture(lambda enc: enc.dispatch(kernels["bump"], x, threads=1)).named(x=x).instantiate()
    other = floats(dev, 5)
    assert run.replay().rebind_ns == 0
    assert run.replay(x=other).rebind_ns == run.rebind_ns > 0
    assert run.replay(x=other).rebind_ns == 0


def test_views_into_a_named_buffer_move_with_it(dev: ost.Device, kernels: ost.Library) -> None:
    cache, other = dev.zeros((4, 2), np.float32), dev.zeros((4, 2), np.float32)

    def encode(enc: ost.CommandEncoder) -> None:
        for row in range(4):
            enc.dispatch(kernels["bump"], cache[row], threads=2)
        enc.dispatch(kernels["bump"], (cache, 8), threads=2)
        enc.fill(cache[3], 9.0)

    run = dev.capture(encode).named(cache=cache).instantiate()
    run.replay(cache=other)
    assert other.numpy().tolist() == [[1, 1], [2, 2], [1, 1], [9, 9]]
    assert not cache.numpy().any()


@pytest.mark.parametrize("what", ["too small", "other type", "other device", "freed", "no buffer", "misaligned"])
def test_a_buffer_that_does_not_fit_is_refused_and_nothing_runs(
    dev: ost.Device, own_dev: ost.Device, kernels: ost.Library, what: str
) -> None:
    x = floats(dev, 1, 2, 3, 4)
    run = dev.capture(lambda enc: enc.dispatch(kernels["bump"], x, threads=4)).named(x=x).instantiate()
    freed = floats(dev, 1, 2, 3, 4)
    freed.free()
    given, error, message = {
        "too small": (floats(dev, 1), ost.ArgumentError, "too small; the graph uses 16 bytes"),
        "other type": (dev.zeros(4, np.int32), ost.ArgumentError, "expected float32, got int32"),
        "other device": (floats(own_dev, 1, 2, 3, 4), ost.WrongDevice, "another device"),
        "freed": (freed, ost.FreedBuffer, "any more"),
        "no buffer": (np.zeros(4, np.float32), ost.ArgumentError, "expected a Buffer"),
        "misaligned": (dev.zeros(32, np.uint8).view(byte_offset=1), ost.ArgumentError, "not aligned to 4"),
    }[what]
    with ost.counters.scope() as counts, pytest.raises(error, match=message):
        run.replay(x=given)
    assert counts.command_buffers == 0


def test_buffers_that_change_who_waits_for_whom_need_rebuild(dev: ost.Device, kernels: ost.Library) -> None:
    a, b, c, d = (floats(dev, n, n) for n in range(4))

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(kernels["inc_one"], a, b, threads=2)
        enc.dispatch(kernels["inc_one"], c, d, threads=2)

    run = dev.capture(encode).named(a=a, b=b, c=c, d=d).instantiate()
    with pytest.raises(ost.GraphChanged, match="rebuild=True"):
        run.replay(c=b)
    run.replay(c=b, rebuild=True)
    assert d.numpy().tolist() == [2, 2]
    with pytest.raises(ost.GraphChanged):
        run.replay(c=b)


def test_a_copy_onto_itself_cannot_come_about_by_binding(dev: ost.Device) -> None:
    a, b = dev.zeros(4, np.float32), dev.zeros(4, np.float32)
    run = dev.capture(lambda enc: enc.copy(a, b)).named(a=a, b=b).instantiate()
    with pytest.raises(ost.ArgumentError, match="onto itself"):
        run.replay(a=b)


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_any_rebinding_equals_encoding_with_those_buffers(
    dev: ost.Device, kernels: ost.Library, data: st.DataObject
) -> None:
    rows = st.integers(0, 3)
    steps = data.draw(st.lists(st.tuples(rows, rows).filter(lambda pair: pair[0] != pair[1]), min_size=1, max_size=8))
    captured = [floats(dev, 1, 2) for _ in range(4)]
    picked = data.draw(st.lists(st.integers(0, 5), min_size=4, max_size=4))
    pool = [floats(dev, 10 * n, n) for n in range(6)]
    twin = [floats(dev, 10 * n, n) for n in range(6)]

    def encode(enc: ost.CommandEncoder, buffers: list[ost.Buffer]) -> None:
        for source, target in steps:
            enc.dispatch(kernels["scale"], buffers[source], buffers[target], float(source + 2), threads=2)

    used = {index for pair in steps for index in pair}
    graph = dev.capture(lambda enc: encode(enc, captured)).named(**{f"b{n}": captured[n] for n in used})
    others: dict[str, Any] = {f"b{n}": pool[picked[n]] for n in used}
    graph.instantiate().replay(rebuild=True, **others)
    enc = dev.command_encoder()
    encode(enc, [twin[pick] for pick in picked])
    enc.commit_and_wait()
    assert [one.numpy().tolist() for one in pool] == [one.numpy().tolist() for one in twin]


def test_rebinding_checks_each_argument_as_at_capture(dev: ost.Device, kernels: ost.Library) -> None:
    x, y = floats(dev, 1, 2), floats(dev, 0, 0)
    graph = dev.capture(lambda enc: enc.dispatch(kernels["inc_one"], x, y, threads=2))
    run = graph.named(x=x.view(np.uint8)).instantiate()
    with pytest.raises(ost.ArgumentError, match="expected float32, got float16"):
        run.replay(x=dev.zeros(4, np.float16))
    run.replay(x=floats(dev, 7, 8))
    assert y.numpy().tolist() == [8, 9]


def test_hand_placed_barriers_cannot_be_rebuilt(dev: ost.Device, kernels: ost.Library) -> None:
    a, b, c, d = (floats(dev, n, n) for n in range(4))

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(kernels["inc_one"], a, b, threads=2)
        enc.dispatch(kernels["inc_one"], c, d, threads=2)

    run = dev.capture(encode, barriers="manual").named(b=b, c=c).instantiate()
    with pytest.raises(ost.GraphChanged, match="its barriers were placed for the captured ones"):
        run.replay(c=b, rebuild=True)


def test_one_graph_can_be_rebound_by_several_threads(dev: ost.Device, kernels: ost.Library) -> None:
    x = floats(dev, 0)
    run = dev.capture(lambda enc: enc.dispatch(kernels["bump"], x, threads=1)).named(x=x).instantiate()
    buffers = [floats(dev, 0) for _ in range(12)]

    def work() -> None:
        for _ in range(20):
            for buffer in buffers:
                run.replay(x=buffer)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work) for _ in range(4)]:
            done.result()
    assert [buffer.numpy().tolist() for buffer in buffers] == [[80]] * 12


@pytest.mark.parametrize("options", [{"label": ""}, {"label": 5}, {"rebuild": "no"}])
def test_options_of_a_replay_are_checked(dev: ost.Device, kernels: ost.Library, options: dict[str, Any]) -> None:
    x = floats(dev, 0)
    run = dev.capture(lambda enc: enc.dispatch(kernels["bump"], x, threads=1)).instantiate()
    with pytest.raises(ost.OstinatoError):
        run.replay(**options)


# --- faults and ends -----------------------------------------------------------------------------------------------


def test_a_closed_device_refuses_to_instantiate_and_to_replay(own_dev: ost.Device) -> None:
    library = own_dev.library(KERNELS)
    x = floats(own_dev, 1)
    graph = own_dev.capture(lambda enc: enc.dispatch(library["bump"], x, threads=1))
    run = graph.instantiate()
    own_dev.close()
    for attempt in (graph.instantiate, run.replay):
        with pytest.raises(ost.DeviceClosed):
            attempt()


def test_an_empty_graph_replays(dev: ost.Device) -> None:
    run = dev.capture(lambda enc: None).instantiate()
    run.replay(label="nothing").wait()


@pytest.mark.usefixtures("submission_times")
def test_a_split_graph_is_several_submissions_with_one_time(dev: ost.Device, kernels: ost.Library) -> None:
    x = floats(dev, 0)

    def encode(enc: ost.CommandEncoder) -> None:
        for _ in range(6):
            enc.dispatch(kernels["bump"], x, threads=1)

    graph = dev.capture(encode)
    run = graph.with_nodes(graph.nodes, splits=(2, 3)).instantiate()
    with ost.counters.scope() as counts:
        submission = run.replay()
    submission.wait()
    assert x.numpy().tolist() == [6]
    assert (counts.command_buffers, counts.dispatches, counts.auto_barriers) == (3, 6, 3)
    assert submission.gpu_time is not None
    assert submission.gpu_time[0] < submission.gpu_time[1]


def test_parts_of_a_split_replay_stay_together_among_threads(dev: ost.Device, kernels: ost.Library) -> None:
    between = floats(dev, 0)
    ends = [(floats(dev, n), floats(dev, 0)) for n in range(4)]

    def split(source: ost.Buffer, target: ost.Buffer) -> ost.Replayable:
        def encode(enc: ost.CommandEncoder) -> None:
            enc.dispatch(kernels["inc_one"], source, between, threads=1)
            enc.dispatch(kernels["inc_one"], between, target, threads=1)

        graph = dev.capture(encode)
        return graph.with_nodes(graph.nodes, splits=(1,)).instantiate()

    def work(source: ost.Buffer, target: ost.Buffer) -> int:
        run = split(source, target)
        expected = source.numpy()[0] + 2
        wrong = 0
        for _ in range(500):
            run.replay()
            wrong += target.numpy()[0] != expected
        return wrong

    with ThreadPoolExecutor(4) as pool:
        assert [done.result() for done in [pool.submit(work, *pair) for pair in ends]] == [0] * 4


def test_a_forked_child_cannot_replay_its_parents_graph(script: Script) -> None:
    result = script(
        """
        import os
        dev = ost.open_device(DEVICE)
        x = dev.zeros(1, np.float32)
        bump = dev.library(KERNELS)["bump"]
        run = dev.capture(lambda enc: enc.dispatch(bump, x, threads=1)).instantiate()
        run.replay().wait()
        child = os.fork()
        if not child:
            try:
                run.replay()
            except ost.ForkedDevice:
                os._exit(7)
            os._exit(1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        run.replay().wait()
        print(x.numpy().tolist())
        """
    )
    assert result.stdout.split() == ["7", "[2.0]"], result.stderr


def test_a_replay_can_be_awaited_and_labelled(dev: ost.Device, kernels: ost.Library) -> None:
    import asyncio

    x = floats(dev, 0)
    run = dev.capture(lambda enc: enc.dispatch(kernels["bump"], x, threads=1), label="token").instantiate()

    async def twice() -> tuple[str | None, str | None]:
        return (await run.replay()).label, (await run.replay(label="last")).label

    assert asyncio.run(twice()) == ("token", "last")


def test_after_passes_only_buffers_that_meet_nothing_else_can_be_bound(dev: ost.Device) -> None:
    x, weight, gain = (dev.array(np.ones((1, 8), np.float32)) for _ in range(3))
    normed, out = dev.zeros((1, 8), np.float32), dev.zeros((1, 8), np.float32)

    def encode(enc: ost.CommandEncoder) -> None:
        ost.ops.rms_norm(enc, x, weight, normed)
        ost.ops.mul(enc, normed, gain, out)

    graph = dev.capture(encode).named(x=x).with_outputs(out)
    faster = graph.optimise()
    assert len(faster) == 1
    run = faster.instantiate()
    apart = dev.array(np.full((1, 8), 3, np.float32))
    run.replay(x=apart)
    assert np.allclose(out.numpy(), 1)
    for meeting in (out, normed):  # an output, and memory that is no longer written
        with pytest.raises(ost.GraphChanged, match=r"bind it before optimise\(\)"):
            run.replay(x=meeting, rebuild=True)
    with pytest.raises(ost.GraphError, match="removed the writes"):
        faster.named(normed=normed)
    with pytest.raises(ost.GraphError, match="removed the writes"):
        faster.with_outputs(normed)
