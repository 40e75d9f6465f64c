"""Profiles on devices that can time less than dispatches, and what is measured of a device for a profile."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import ostinato as ost
from ostinato import kernel_profile
from ostinato.backends.cpu.driver import CpuRun
from ostinato.profiling import ceilings
from ostinato.profiling.session import sampling_found
from small_graphs import bumps
from small_kernels import KERNELS


@pytest.mark.parametrize("sampling", ["command_buffers", "off"])
def test_a_device_that_cannot_time_dispatches_says_so_once_and_shows_no_zeros(sampling: str) -> None:
    device = ost.open_device("cpu", sampling=sampling)
    kernels = device.library(KERNELS)
    run = bumps(device, kernels).instantiate()
    with ost.profile() as prof:
        with pytest.warns(ost.SamplingWarning, match="cannot time"):
            run.replay()
        run.replay()
    found = prof.recording()
    assert len(found.samples()) == 0
    assert found.devices[0].sampling == sampling
    assert "cannot time" in str(prof)
    if sampling == "off":
        assert (found.submissions.start_ns < 0).all()  # not given


def test_a_profile_starts_nothing_until_it_is_entered() -> None:
    before = threading.active_count()
    profiles = [ost.profile() for _ in range(5)]
    assert threading.active_count() == before
    with pytest.raises(ost.ArgumentError, match="entered with `with`"):
        profiles[0].summary()


def test_a_warning_turned_error_loses_no_work() -> None:
    device = ost.open_device("cpu", sampling="off")
    x = device.zeros(1, np.float32)
    enc = device.command_encoder()
    enc.dispatch(device.library(KERNELS)["bump"], x, threads=1)
    with ost.profile():
        with pytest.raises(ost.SamplingWarning):  # an error here, as the tests make every warning one
            enc.commit()
        enc.commit()
    assert x.numpy().tolist() == [1]


@pytest.mark.parametrize(
    ("claimed", "sentence"),
    [
        ("dispatches", "times dispatches, to about"),
        ("command_buffers", "times command buffers, not dispatches"),
        ("off", "times nothing"),
    ],
)
def test_what_a_device_can_time_is_found_by_taking_a_sample(claimed: str, sentence: str) -> None:
    device = ost.open_device("cpu", sampling=claimed)
    with ost.counters.scope() as counts:
        level, said = sampling_found(device)
    assert level.name.lower() == claimed
    assert said.startswith(sentence)
    assert counts == ost.Counts()


def test_a_device_whose_samples_are_zero_is_found_out(own_dev: ost.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CpuRun, "samples", lambda run: np.zeros((1, 2), np.uint64))
    level, said = sampling_found(own_dev)
    assert level.name == "COMMAND_BUFFERS"
    assert "a sample has no time" in said


def test_a_device_of_unknown_ceilings_is_measured_once_and_a_known_one_never(
    dev: ost.Device, kernels: ost.Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = ceilings.Ceilings(2e10, 0.0, 1e11, 0.0, 50.0)
    asked: list[object] = []

    def measure(queue: object, anew: bool = False) -> ceilings.Ceilings:
        asked.append(queue)
        return measured

    monkeypatch.setattr(ceilings, "of", measure)
    run = bumps(dev, kernels).instantiate()
    for remembered, expected in ((None, 1), (measured, 0)):
        asked.clear()
        monkeypatch.setattr(ceilings, "known", lambda queue, remembered=remembered: remembered)
        with ost.profile() as prof:
            run.replay().wait()
            prof.summary()
        assert len(asked) == expected
        assert prof.recording().devices[0].copy_bytes_per_s == 2e10


def test_the_seeds_tables_have_command_buffers_where_dispatches_cannot_be_timed() -> None:
    device = ost.open_device("cpu", sampling="command_buffers")
    x = device.zeros(1, np.float32)
    kernel_profile.reset()
    with ost.settings.override(profile_cb=1, profile_dispatch=1):
        enc = device.command_encoder()
        enc.dispatch(device.library(KERNELS)["bump"], x, threads=1)
        with pytest.warns(ost.SamplingWarning, match="cannot time dispatches"):
            enc.commit_and_wait_labeled("test.profile.cb")
    assert dict(kernel_profile.dump())["test.profile.cb"].count == 1
    with pytest.warns(ost.SamplingWarning, match=r"dropped 1 dispatches: device 'cpu' cannot time dispatches"):
        assert kernel_profile.dump_dispatches() == []  # nothing rather than zeros
    assert kernel_profile.dropped_dispatches() == 1
    kernel_profile.reset()
