"""mlx-native's accumulators, and the meaning of its end-to-end test."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import ostinato as ost
from ostinato import kernel_profile
from ostinato.backends.protocol import Level
from small_kernels import KERNELS, MEET, SLOW_STEPS


@pytest.fixture(autouse=True)
def clean_tables() -> Iterator[None]:
    kernel_profile.reset()
    yield
    kernel_profile.reset()


@pytest.fixture
def gates() -> Iterator[None]:
    with ost.settings.override(profile_cb=1, profile_dispatch=1):
        yield


def buffers(dev: ost.Device, count: int) -> tuple[ost.Buffer, ost.Buffer]:
    return dev.array(np.arange(count, dtype=np.float32)), dev.empty(count, np.float32)


# --- what mlx-native's end-to-end test means ----------------------------------------------------------------------


@pytest.mark.usefixtures("submission_times", "gates")
def test_per_dispatch_sampling_records_nonzero_ns(dev: ost.Device, slack_ns: float) -> None:
    times_dispatches = dev.capabilities.sampling is Level.DISPATCHES
    registry = ost.KernelRegistry(dev)
    registry.register_source("inc_one", KERNELS)
    pipeline = registry.get_pipeline("inc_one")
    source, target = buffers(dev, 256)
    enc = dev.command_encoder()
    enc.dispatch(pipeline, source, target, groups=8, group_size=32)
    enc.memory_barrier()
    enc.dispatch(pipeline, source, target, groups=8, group_size=32)
    if times_dispatches:
        enc.commit_and_wait_labeled("test.profile.cb")
    else:
        with pytest.warns(ost.SamplingWarning, match="cannot time dispatches"):
            enc.commit_and_wait_labeled("test.profile.cb")
    per_buffer = dict(kernel_profile.dump())
    assert per_buffer["test.profile.cb"].count == 1
    if not times_dispatches:
        with pytest.warns(ost.SamplingWarning, match="dropped 2 dispatches"):
            assert kernel_profile.dump_dispatches() == []  # nothing rather than zeros
        return
    entries = dict(kernel_profile.dump_dispatches())["test.profile.cb"]
    assert len(entries) == 2
    for index, entry in enumerate(entries):
        assert entry.dispatch_index == index
        assert entry.start_gpu_ns is not None
        assert entry.end_gpu_ns is not None
        assert entry.end_gpu_ns >= entry.start_gpu_ns > 0
        assert entry.op_kind == "Other"
        assert (entry.kernel, entry.kernel_digest) == ("inc_one", pipeline.digest)
    # On one clock the dispatches lie within their command buffer, exactly.
    assert sum(entry.gpu_ns or 0 for entry in entries) <= per_buffer["test.profile.cb"].total_ns + slack_ns


@pytest.mark.usefixtures("dispatch_times", "gates")
def test_per_dispatch_dump_is_grouped_by_cb_label(dev: ost.Device, kernels: ost.Library) -> None:
    source, target = buffers(dev, 64)
    for label in ("test.cb.alpha", "test.cb.beta"):
        enc = dev.command_encoder()
        enc.dispatch(kernels["inc_one"], source, target, groups=2, group_size=32)
        enc.commit_and_wait_labeled(label)
    dumps = dict(kernel_profile.dump_dispatches())
    assert [len(dumps[label]) for label in ("test.cb.alpha", "test.cb.beta")] == [1, 1]
    assert [dumps[label][0].dispatch_index for label in ("test.cb.alpha", "test.cb.beta")] == [0, 0]


@pytest.mark.usefixtures("dispatch_times", "gates")
def test_op_kind_label_propagates_into_dispatch_entry(dev: ost.Device, kernels: ost.Library) -> None:
    source, target = buffers(dev, 64)
    enc = dev.command_encoder()
    enc.set_op_kind(ost.CapturedOpKind.Sdpa)
    enc.dispatch(kernels["inc_one"], source, target, groups=2, group_size=32)
    enc.commit_and_wait_labeled("test.opkind.cb")
    (entry,) = dict(kernel_profile.dump_dispatches())["test.opkind.cb"]
    assert entry.op_kind == "Sdpa"


# --- and what it lacked -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("dispatch_times", "gates")
def test_unlabelled_commits_and_replays_are_seen(dev: ost.Device, kernels: ost.Library) -> None:
    source, target = buffers(dev, 64)
    enc = dev.command_encoder()
    enc.dispatch(kernels["inc_one"], source, target, threads=64)
    enc.commit()
    run = dev.capture(lambda enc: enc.dispatch(kernels["inc_one"], source, target, threads=64)).instantiate()
    run.replay()
    run.replay(label="token")
    assert {label: entry.count for label, entry in kernel_profile.dump()} == {kernel_profile.UNLABELLED: 2, "token": 1}
    assert {label: len(found) for label, found in kernel_profile.dump_dispatches()} == {
        kernel_profile.UNLABELLED: 2,
        "token": 1,
    }


@pytest.mark.usefixtures("dispatch_times", "gates")
def test_more_than_2048_dispatches_are_all_there(dev: ost.Device, kernels: ost.Library) -> None:
    x = dev.zeros(1, np.float32)
    enc = dev.command_encoder()
    for _ in range(5_000):
        enc.dispatch(kernels["bump"], x, threads=1)
    enc.commit_labeled("many")
    entries = dict(kernel_profile.dump_dispatches())["many"]
    assert [entry.dispatch_index for entry in entries] == list(range(5_000))


@pytest.mark.usefixtures("dispatch_times", "gates")
def test_profiling_never_adds_a_wait(own_dev: ost.Device) -> None:
    spin = own_dev.library(KERNELS)["spin"]
    x = own_dev.zeros(1, np.uint32)
    with ost.counters.scope() as counts:
        enc = own_dev.command_encoder()
        enc.dispatch(spin, x, SLOW_STEPS, threads=1)
        submission = enc.commit_labeled("slow")
        assert not submission.done
    assert counts.syncs == 0
    assert dict(kernel_profile.dump())["slow"].count == 1  # reading waits
    assert submission.done


@pytest.mark.usefixtures("dispatch_times", "gates")
def test_profiling_never_serialises_what_runs_at_the_same_time(own_dev: ost.Device, patience: int) -> None:
    meet = own_dev.library(MEET)["meet"]
    flags, ok = own_dev.zeros(64, np.uint32), own_dev.zeros(64, np.uint32)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(meet, flags[0:1], flags[32:33], ok[0:1], patience, threads=1, reads=[])
        enc.dispatch(meet, flags[32:33], flags[0:1], ok[32:33], patience, threads=1, reads=[])

    own_dev.capture(encode).instantiate().replay(label="pair")
    first, second = dict(kernel_profile.dump_dispatches())["pair"]
    assert ok.numpy()[[0, 32]].tolist() == [1, 1]
    assert first.start_gpu_ns is not None
    assert first.end_gpu_ns is not None
    assert second.start_gpu_ns is not None
    assert second.end_gpu_ns is not None
    assert first.start_gpu_ns < second.end_gpu_ns
    assert second.start_gpu_ns < first.end_gpu_ns


@pytest.mark.usefixtures("submission_times")
def test_it_can_be_switched_in_a_running_process(dev: ost.Device, kernels: ost.Library) -> None:
    x = dev.zeros(1, np.float32)
    for on in (0, 1, 0):
        ost.settings.change("profile_cb", on)
        enc = dev.command_encoder()
        enc.dispatch(kernels["bump"], x, threads=1)
        enc.commit_labeled(f"on={on}")
    ost.settings.change("profile_cb", None)
    assert [label for label, _ in kernel_profile.dump()] == ["on=1"]
    assert kernel_profile.dump_dispatches() == []


@pytest.mark.usefixtures("dispatch_times", "gates")
def test_no_replay_is_left_out(dev: ost.Device, kernels: ost.Library) -> None:
    x = dev.zeros(1, np.float32)
    run = dev.capture(lambda enc: enc.dispatch(kernels["bump"], x, threads=1), label="token").instantiate()
    for _ in range(40):
        run.replay()
    entries = dict(kernel_profile.dump_dispatches())["token"]
    assert len(entries) == 40
    assert {entry.status for entry in entries} <= {"measured", "bounded"}
