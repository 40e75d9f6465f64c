"""One test for each defect that users of mlx-native met, named after it.

Those of passes stand in test_fuse.py and, outside of this suite, in test_reorder.py; of declared ranges in
test_audited_graphs.py too; of lost errors in test_faults.py; of the clock in test_clock.py.
"""

from __future__ import annotations

import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ostinato as ost
from ostinato.ir import hazards
from ostinato.profiling.calibration import calibrate
from small_kernels import KERNELS, SLOW_STEPS


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_three_hazard_trackers_with_three_answers(dev: ost.Device, kernels: ost.Library, data: st.DataObject) -> None:
    block = dev.zeros(12, np.float32)
    spans = st.tuples(st.integers(0, 11), st.integers(1, 4)).map(lambda s: (s[0], min(12, s[0] + s[1])))
    steps = data.draw(st.lists(st.one_of(st.none(), st.tuples(spans, spans)), min_size=1, max_size=12))

    def encode(enc: ost.CommandEncoder) -> None:
        for step in steps:
            if step is None:
                enc.memory_barrier()
                continue
            (a, b), (c, d) = step
            enc.dispatch(kernels["inc_one"], block[a:b], block[c:d], threads=1)

    graph = dev.capture(encode)
    assert graph.edges.tolist() == [list(pair) for pair in hazards.edges([node.accesses for node in graph])]
    live = dev.command_encoder()
    encode(live)
    with ost.counters.scope() as committed:
        live.commit_and_wait()
    with ost.counters.scope() as replayed:
        graph.instantiate().replay().wait()
    committed.syncs = replayed.syncs = 0
    assert committed == replayed


def test_slices_widened_to_the_end_of_their_allocation(dev: ost.Device, kernels: ost.Library) -> None:
    block = dev.zeros((2, 4), np.float32)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(kernels["bump"], block[0], threads=4)
        enc.dispatch(kernels["bump"], block[1], threads=4)

    assert len(dev.capture(encode).edges) == 0


def test_touching_ranges_counted_as_overlapping_in_one_direction_only(dev: ost.Device, kernels: ost.Library) -> None:
    block = dev.zeros(8, np.float32)

    def edges(*parts: ost.Buffer) -> int:
        def encode(enc: ost.CommandEncoder) -> None:
            for part in parts:
                enc.dispatch(kernels["bump"], part, threads=4)

        return len(dev.capture(encode).edges)

    assert edges(block[:4], block[4:]) == edges(block[4:], block[:4]) == 0
    assert edges(block[3:7], block[:4]) == 1


def test_ranges_declared_by_hand_never_checked_against_the_bindings(dev: ost.Device, kernels: ost.Library) -> None:
    x, y = dev.zeros(4, np.float32), dev.zeros(4, np.float32)
    enc = dev.command_encoder()
    with pytest.raises(ost.ArgumentError, match="only reads argument 0"):
        enc.dispatch(kernels["inc_one"], x, y, threads=4, writes=[x])
    enc.commit_and_wait()


def test_tracked_and_untracked_dispatches_mixed(dev: ost.Device, kernels: ost.Library) -> None:
    x, y = dev.zeros(4, np.float32), dev.zeros(4, np.float32)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(kernels["inc_one"], x, y, threads=4)  # by its signature
        enc.dispatch(kernels["inc_one"], y, x, threads=4, reads=[y], writes=[x])  # by declaration
        enc.dispatch(kernels["bump"], y, threads=4)

    assert dev.capture(encode).edges.tolist() == [[0, 1], [1, 2]]


def test_a_view_of_a_view_lost_its_parents_offset(dev: ost.Device) -> None:
    rows = dev.array(np.arange(32, dtype=np.float32).reshape(8, 4))
    inner = rows[2:6][1:3][1]
    assert inner.numpy().tolist() == [16, 17, 18, 19]
    assert inner.byte_offset == 4 * 4 * 4


def test_a_pool_could_hand_one_buffer_to_two_owners(own_dev: ost.Device) -> None:
    pool = ost.BufferPool(own_dev)
    spin = own_dev.library(KERNELS)["spin"]
    first = pool.take(1, np.uint32)
    first.write([0])
    enc = own_dev.command_encoder()
    enc.dispatch(spin, first, SLOW_STEPS // 10, threads=1)
    enc.commit()
    pool.release(first)
    second = pool.take(1, np.uint32)
    second.write([7])
    own_dev.command_encoder().commit_and_wait()
    assert second.numpy().tolist() == [7]
    with pytest.raises(ost.BufferAccessError):
        pool.release(first)


def test_re_registering_a_kernel_left_stale_specialised_pipelines(dev: ost.Device) -> None:
    source = "constant uint N [[function_constant(0)]]; kernel void f(device uint *x) { x[0] = N + %d; }"
    registry = ost.KernelRegistry(dev)
    out = dev.zeros(1, np.uint32)
    for added in (0, 100):
        registry.register_source("f", source % added)
        enc = dev.command_encoder()
        enc.dispatch(registry.get_pipeline("f", {0: 5}), out, threads=1)
        enc.commit_and_wait()
        assert out.numpy().tolist() == [5 + added]


def test_more_than_2048_dispatches_in_a_buffer_were_dropped_without_a_word(
    dev: ost.Device, kernels: ost.Library
) -> None:
    x = dev.zeros(1, np.float32)

    def encode(enc: ost.CommandEncoder) -> None:
        for _ in range(5_000):
            enc.dispatch(kernels["bump"], x, threads=1)

    with ost.counters.scope() as counts:
        dev.capture(encode).instantiate().replay().wait()
    assert counts.dispatches == 5_000
    assert x.numpy().tolist() == [5_000]


def test_unlabelled_commits_and_replays_invisible(dev: ost.Device, kernels: ost.Library) -> None:
    x = dev.zeros(1, np.float32)
    run = dev.capture(lambda enc: enc.dispatch(kernels["bump"], x, threads=1)).instantiate()
    with ost.counters.scope() as counts:
        enc = dev.command_encoder()
        enc.dispatch(kernels["bump"], x, threads=1)
        enc.commit()
        run.replay()
    assert (counts.command_buffers, counts.dispatches) == (2, 2)


def test_commit_after_fence_returned_without_waiting(own_dev: ost.Device) -> None:
    spin = own_dev.library(KERNELS)["spin"]
    x = own_dev.zeros(1, np.uint32)
    enc = own_dev.command_encoder()
    enc.dispatch(spin, x, SLOW_STEPS // 10, threads=1)
    enc.memory_barrier()
    assert enc.commit_and_wait().done
    assert x.numpy()[0] != 0


def test_gates_read_with_is_set_so_0_switched_them_on_and_not_switchable_at_run_time(
    dev: ost.Device, kernels: ost.Library
) -> None:
    x = dev.zeros(1, np.float32)

    def twice(enc: ost.CommandEncoder) -> None:
        enc.dispatch(kernels["bump"], x, threads=1)
        enc.dispatch(kernels["bump"], x, threads=1)

    for gate, inferred in (("0", 0), ("1", 1), ("serial", 0), (None, 1)):
        with ost.settings.override(barriers=gate), ost.counters.scope() as counts:
            enc = dev.command_encoder()
            twice(enc)
            enc.commit_and_wait()
        assert counts.auto_barriers == inferred, gate


def test_process_global_tables(dev: ost.Device, kernels: ost.Library) -> None:
    x = dev.zeros(1, np.float32)
    with ost.counters.scope() as mine:
        ost.reset_counters()
        enc = dev.command_encoder()
        enc.dispatch(kernels["bump"], x, threads=1)
        enc.commit_and_wait()
        ost.reset_counters()
    assert mine.dispatches == 1


def test_elision_rates_had_wrong_denominators(dev: ost.Device, kernels: ost.Library) -> None:
    x, y = dev.zeros(1, np.float32), dev.zeros(1, np.float32)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(kernels["bump"], x, threads=1)
        enc.dispatch(kernels["bump"], y, threads=1)
        enc.dispatch(kernels["bump"], x, threads=1)
        enc.memory_barrier()
        enc.dispatch(kernels["bump"], y, threads=1)

    with ost.counters.scope() as counts:
        dev.capture(encode).instantiate().replay().wait()
    # The barrier placed by hand was not elided and not inferred: it is in neither.
    assert (counts.concurrent, counts.auto_barriers, counts.barriers) == (3, 1, 2)
    assert counts.elision == 3 / 4


def test_a_captured_buffer_that_the_program_dropped_was_read_after_free(dev: ost.Device, kernels: ost.Library) -> None:
    out = dev.zeros(4, np.float32)

    def capture() -> ost.Replayable:
        held = dev.array(np.arange(4, dtype=np.float32))
        return dev.capture(lambda enc: enc.dispatch(kernels["inc_one"], held, out, threads=4)).instantiate()

    run = capture()
    gc.collect()
    noise = [dev.array(np.full(4, 99, np.float32)) for _ in range(64)]
    run.replay()
    assert out.numpy().tolist() == [1, 2, 3, 4]
    assert len(noise) == 64


@pytest.mark.usefixtures("submission_times")
def test_dispatch_entries_without_kernel_name_buffer_ordinal_or_shape(dev: ost.Device, kernels: ost.Library) -> None:
    x = dev.zeros(100, np.float32)
    with ost.profile() as prof:
        enc = dev.command_encoder()
        enc.dispatch(kernels["bump"], x, threads=100, group_size=32)
        ordinal = enc.commit().ordinal
    found = prof.recording()
    node = found.plan_nodes(1)
    assert (node.kernel.tolist(), node.op_kind.tolist()) == (["bump"], ["Other"])
    assert (node.threads.tolist(), node.group.tolist(), node.groups.tolist()) == ([[100, 1, 1]], [[32, 1, 1]], [4])
    assert found.submissions.ordinal.tolist() == [ordinal]
    assert node.place[0].startswith("test_seed_defects.py:")


@pytest.mark.usefixtures("submission_times")
def test_calibration_regimes_async_and_alloc_only_were_the_same_code_without_fit_or_interval(dev: ost.Device) -> None:
    found = calibrate(dev, repetitions=3)
    row = found.buffer_table[0]
    intervals = (row.encode_only_ns, row.async_ns, row.sync_ns)
    assert len({one.estimate for one in intervals}) == 3  # that each is its own code, test_calibrate.py counts
    assert all(one.low <= one.estimate <= one.high for one in intervals)
    assert found.model.r_squared <= 1
