"""Counters: exact, scoped to a thread or task, resettable."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import ostinato as ost


def bumps(dev: ost.Device, kernels: ost.Library, count: int, mode: str = "auto") -> ost.CommandEncoder:
    x = dev.zeros(4, np.float32)
    encoder = dev.command_encoder(barriers=mode)
    for _ in range(count):
        encoder.dispatch(kernels["bump"], x, threads=4)
    return encoder


def test_work_is_counted_when_it_is_committed(dev: ost.Device, kernels: ost.Library) -> None:
    with ost.counters.scope() as counts:
        encoder = bumps(dev, kernels, 3)
        assert counts == ost.Counts()
        encoder.commit()
        assert (counts.dispatches, counts.command_buffers, counts.syncs) == (3, 1, 0)


def test_every_host_wait_is_one_sync(dev: ost.Device, kernels: ost.Library) -> None:
    x = dev.zeros(4, np.float32)
    with ost.counters.scope() as counts:
        dev.array(np.zeros(3, np.float32))
        dev.zeros(3, np.float32)
        if dev.capabilities.shared_memory:
            x.as_numpy()
        assert counts.syncs == 0
        bumps(dev, kernels, 1).commit_and_wait()
        assert counts.syncs == 1
        x.numpy()
        assert counts.syncs == 2
        x.write(np.ones(4, np.float32))
        assert counts.syncs == 3
        submission = bumps(dev, kernels, 1).commit()
        submission.wait()
        assert counts.syncs == 4
        assert submission.done
        assert submission.error is None
        assert counts.syncs == 4, "asking is not waiting"


@pytest.mark.parametrize(("mode", "barriers"), [("manual", 2), ("serial", 2), ("auto", 3)])
def test_barriers_are_counted_exactly(dev: ost.Device, kernels: ost.Library, mode: str, barriers: int) -> None:
    x = dev.zeros(4, np.float32)
    with ost.counters.scope() as counts:
        encoder = dev.command_encoder(barriers=mode)
        encoder.memory_barrier()
        encoder.memory_barrier()
        for fenced in (True, False, False):
            encoder.dispatch(kernels["bump"], x, threads=4)
            if fenced:
                encoder.memory_barrier()
        encoder.memory_barrier()
        encoder.commit_and_wait()
    assert counts.barriers == barriers
    assert counts.auto_barriers == (1 if mode == "auto" else 0)


def test_barrier_time_is_counted_only_when_asked_for(
    dev: ost.Device, kernels: ost.Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    for gate, timed in (("0", False), ("1", True)):
        monkeypatch.setenv("MLX_PROFILE_BARRIERS", gate)
        with ost.counters.scope() as counts:
            encoder = bumps(dev, kernels, 1)
            encoder.memory_barrier()
            encoder.commit_and_wait()
        assert (counts.barrier_ns > 0) is timed


@pytest.mark.parametrize("mode", ["auto", "manual"])
def test_the_time_of_barriers_is_of_those_that_are_counted_as_timed(
    dev: ost.Device, kernels: ost.Library, mode: str
) -> None:
    """Inferred, replayed and captured barriers are not encoded one by one, so no time can be of them."""
    x = dev.zeros(4, np.float32)

    def chain(encoder: ost.CommandEncoder) -> None:
        for _ in range(10):
            encoder.dispatch(kernels["bump"], x, threads=4)
        encoder.memory_barrier()

    inferred = 9 if mode == "auto" else 0
    for gate, timed in ((1, 1), (0, 0)):
        ost.reset_counters()
        with ost.settings.override(profile_barriers=gate), ost.counters.scope() as counts:
            encoder = dev.command_encoder(barriers=mode)
            chain(encoder)
            encoder.commit_and_wait()
            assert (counts.barriers, counts.auto_barriers) == (inferred + 1, inferred)
            assert (counts.timed_barriers, counts.barrier_ns > 0) == (timed, bool(timed))
            assert counts.ns_per_barrier == (counts.barrier_ns if timed else None)
            before = counts.barrier_ns
            dev.capture(chain, barriers=mode).instantiate().replay().wait()
            assert (counts.barriers, counts.timed_barriers) == (2 * (inferred + 1), timed)
            assert counts.barrier_ns == before
        assert (ost.timed_barrier_count(), ost.barrier_total_ns()) == (timed, before)


def test_totals_and_reset(dev: ost.Device, kernels: ost.Library) -> None:
    ost.reset_counters()
    with ost.counters.scope() as counts:
        bumps(dev, kernels, 5).commit_and_wait()
        assert (ost.dispatch_count(), ost.cmd_buf_count(), ost.sync_count()) == (5, 1, 1)
        assert (ost.barrier_count(), ost.auto_barrier_count(), ost.barrier_total_ns()) == (4, 4, 0)
        ost.reset_counters()
        assert ost.counters.totals() == ost.Counts()
        assert counts.dispatches == 5, "a reset must not reach into a scope"


def test_a_dropped_encoder_counts_nothing(dev: ost.Device, kernels: ost.Library) -> None:
    with ost.counters.scope() as counts:
        encoder = bumps(dev, kernels, 2)
        with pytest.warns(ost.UncommittedWork):
            del encoder
    assert counts == ost.Counts()


def test_scopes_nest_and_see_only_their_own_thread(dev: ost.Device, kernels: ost.Library) -> None:
    inner_of_threads: list[int] = []

    def work(count: int) -> None:
        with ost.counters.scope() as mine:
            for _ in range(20):
                bumps(dev, kernels, count).commit()
        inner_of_threads.append(mine.dispatches)

    ost.reset_counters()
    with ost.counters.scope() as outer:
        threads = [threading.Thread(target=work, args=(count,)) for count in (1, 2, 3, 4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with ost.counters.scope() as inner:
            bumps(dev, kernels, 7).commit()
        bumps(dev, kernels, 1).commit()
    bumps(dev, kernels, 1).commit()
    assert sorted(inner_of_threads) == [20, 40, 60, 80]
    assert (inner.dispatches, outer.dispatches) == (7, 8)
    assert ost.dispatch_count() == 200 + 9
