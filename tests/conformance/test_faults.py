"""Faults: errors that name their work and are never lost, and devices that are.

What a device that is not lost does after a fault is in test_after_a_fault.py.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ostinato as ost
from ostinato import kernel_profile
from ostinato.profiling import recording
from scripting import Script
from small_graphs import bumps
from small_kernels import KERNELS, SLOW_STEPS

pytestmark = pytest.mark.faults

# So far outside of any buffer, in floats, that no device can take it for memory of its own.
NOWHERE = 1 << 45


def slow(dev: ost.Device, kernels: ost.Library, steps: int = SLOW_STEPS) -> ost.Submission:
    encoder = dev.command_encoder()
    encoder.dispatch(kernels["spin"], dev.zeros(1, np.uint32), steps, threads=1)
    return encoder.commit_labeled("slow")


def faulty(dev: ost.Device, label: str = "bad work") -> ost.Submission:
    library = dev.library(KERNELS)
    encoder = dev.command_encoder()
    encoder.dispatch(library["bump"], dev.zeros(4, np.float32), threads=4)
    with encoder.scope("second half"):
        encoder.dispatch(library["wild"], dev.zeros(4, np.float32), NOWHERE, threads=1)
    return encoder.commit_labeled(label)


def bump(dev: ost.Device, kernels: ost.Library, x: ost.Buffer, n: int = 1) -> ost.Submission:
    encoder = dev.command_encoder()
    for _ in range(n):
        encoder.dispatch(kernels["bump"], x, threads=x.size)
    return encoder.commit()


def test_a_wild_access_is_an_error_that_names_the_kernel_and_the_label(own_dev: ost.Device) -> None:
    submission = faulty(own_dev, "token 7")
    with pytest.raises(ost.KernelFault, match="wild") as caught:
        submission.wait()
    assert "token 7" in str(caught.value)
    assert submission.error is caught.value


@pytest.mark.usefixtures("fatal_faults")
def test_a_lost_device_says_why_at_every_later_use_and_what_to_do(own_dev: ost.Device) -> None:
    x, library = own_dev.zeros(4, np.float32), own_dev.library(KERNELS)
    open_encoder = own_dev.command_encoder()
    with pytest.raises(ost.KernelFault, match=r"torch, CuPy .*start a new process"):
        faulty(own_dev).wait()
    uses: list[Callable[[], object]] = [
        own_dev.command_encoder,
        lambda: own_dev.zeros(4, np.float32),
        lambda: own_dev.library(KERNELS),
        lambda: x.write(np.ones(4, np.float32)),
        lambda: open_encoder.dispatch(library["bump"], x, threads=4),
        open_encoder.commit,
    ]
    for use in uses:
        with pytest.raises(ost.DeviceLost, match=r"(?s)wild.*start a new process") as caught:
            use()
        assert isinstance(caught.value.cause, ost.KernelFault)


@pytest.mark.usefixtures("fatal_faults")
def test_work_behind_a_fault_is_not_run_on_a_lost_device_and_says_so(own_dev: ost.Device) -> None:
    library = own_dev.library(KERNELS)
    x = own_dev.zeros(4, np.float32)
    slow(own_dev, library)
    bad = faulty(own_dev)
    behind = bump(own_dev, library, x)
    with pytest.raises(ost.DeviceLost, match="wild"):
        behind.wait()
    assert behind.gpu_time is None
    assert isinstance(bad.error, ost.KernelFault)


def test_an_error_nobody_looked_at_is_reported_when_the_submission_goes(own_dev: ost.Device) -> None:
    submission = faulty(own_dev, "forgotten")
    while not submission.done:
        time.sleep(0.001)
    with pytest.warns(ost.UnobservedError, match=r"(?s)wild.*forgotten|forgotten.*wild"):
        del submission


def test_an_error_is_raised_by_reading_what_the_work_wrote(own_dev: ost.Device) -> None:
    library = own_dev.library(KERNELS)
    out = own_dev.zeros(4, np.float32)
    encoder = own_dev.command_encoder()
    encoder.dispatch(library["wild"], out, NOWHERE, threads=1)
    submission = encoder.commit()
    with pytest.raises(ost.KernelFault, match="wild"):
        out.numpy()
    assert submission.error is not None


def test_an_error_of_work_nobody_waited_for_is_reported_at_exit(script: Script) -> None:
    result = script(
        """
        dev = ost.open_device(DEVICE)
        lib = dev.library(KERNELS)
        enc = dev.command_encoder()
        enc.dispatch(lib["wild"], dev.zeros(4, np.float32), 1 << 45, threads=1)
        enc.commit_labeled("last words")
        """
    )
    assert result.returncode == 0
    assert "wild" in result.stderr
    assert "last words" in result.stderr


def test_a_fault_in_a_replay_names_the_kernel_and_the_label(own_dev: ost.Device) -> None:
    library = own_dev.library(KERNELS)
    out = own_dev.zeros(4, np.float32)

    def encode(enc: ost.CommandEncoder) -> None:
        with enc.scope("broken"):
            enc.dispatch(library["wild"], out, NOWHERE, threads=1)

    run = own_dev.capture(encode, label="token").instantiate()
    with pytest.raises(ost.KernelFault, match="wild") as caught:
        run.replay().wait()
    assert "token" in str(caught.value)


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_fault_in_any_part_of_a_split_replay_is_the_callers(own_dev: ost.Device, at: int) -> None:
    library = own_dev.library(KERNELS)
    out = own_dev.zeros(4, np.float32)

    def encode(enc: ost.CommandEncoder) -> None:
        for part in range(3):
            enc.dispatch(library["wild"], out, NOWHERE if part == at else 0, threads=1)

    graph = own_dev.capture(encode)
    run = graph.with_nodes(graph.nodes, splits=(1, 2)).instantiate()
    # The first part may fail before the others are started: then starting them says so.
    with pytest.raises((ost.KernelFault, ost.DeviceLost, ost.DependencyFailed), match="wild") as caught:
        run.replay().wait()
    assert isinstance(caught.value, ost.KernelFault) or isinstance(caught.value.__cause__, ost.KernelFault)
    del run, graph, caught
    gc.collect()  # and nobody is told that nobody looked


def test_an_error_is_found_through_a_buffer_when_the_replayable_is_gone(own_dev: ost.Device) -> None:
    library = own_dev.library(KERNELS)
    out = own_dev.zeros(4, np.float32)
    graph = own_dev.capture(lambda enc: enc.dispatch(library["wild"], out, NOWHERE, threads=1))
    submission = graph.instantiate().replay()
    del graph
    while not submission.done:
        time.sleep(0.001)
    gc.collect()
    with pytest.raises(ost.KernelFault):
        out.numpy()


@pytest.mark.usefixtures("dispatch_times")
def test_what_did_not_run_has_no_time(own_dev: ost.Device) -> None:
    library = own_dev.library(KERNELS)
    out = own_dev.zeros(4, np.float32)
    kernel_profile.reset()
    with ost.settings.override(profile_cb=1, profile_dispatch=1):
        enc = own_dev.command_encoder()
        enc.dispatch(library["wild"], out, NOWHERE, threads=1)
        enc.dispatch(library["wild"], out, NOWHERE, threads=1)
        submission = enc.commit_labeled("broken")
        with pytest.raises(ost.KernelFault):
            submission.wait()
    ((label, entries),) = kernel_profile.dump_dispatches()
    assert label == "broken"
    assert [entry.gpu_ns for entry in entries] == [None, None]  # neither of the two came to its end
    assert {entry.status for entry in entries} == {"unavailable"}
    kernel_profile.reset()


def test_a_fault_is_in_the_recording_with_what_came_before(own_dev: ost.Device, tmp_path: Path) -> None:
    library = own_dev.library(KERNELS)
    run = bumps(own_dev, library).instantiate()
    out = own_dev.zeros(4, np.float32)
    path = tmp_path / "fault.ostinato"
    with ost.profile(path=path):
        run.replay()
        enc = own_dev.command_encoder()
        enc.dispatch(library["wild"], out, NOWHERE, threads=1)
        submission = enc.commit_labeled("broken")
        with pytest.raises(ost.KernelFault):
            submission.wait()
    with recording.open_recording(path) as found:
        assert found.submissions.label.tolist() == ["token", "broken"]
        errors = found.submissions.error
        assert errors[0] == ""
        assert "wild" in errors[1]
        samples = found.samples()
        broken = samples.status[samples.submission == 1]
        assert set(broken.tolist()) <= {recording.UNAVAILABLE}


def test_async_errors_lost_and_the_drivers_text_thrown_away(own_dev: ost.Device) -> None:
    library = own_dev.library(KERNELS)
    out = own_dev.zeros(4, np.float32)
    run = own_dev.capture(lambda enc: enc.dispatch(library["wild"], out, NOWHERE, threads=1)).instantiate()
    run.replay()
    with pytest.raises(ost.KernelFault, match=r"(?i)access|address"):
        out.numpy()
