"""What the operating system says of the time that workers did not get."""

from __future__ import annotations

import sys
from functools import partial

import numpy as np
import pytest

import ostinato as ost
from ostinato.base import host
from small_kernels import KERNELS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")


def test_counters_only_rise() -> None:
    before = host.counters()
    assert set(before) <= {"run_delay_ns", "involuntary_switches", "steal_ns"}
    assert all(value >= 0 for value in host.since(before).values())


def test_what_could_not_be_read_before_is_left_out() -> None:
    assert host.since({}) == {}
    assert host.since(dict.fromkeys(host.counters(), 1 << 62)) == dict.fromkeys(host.counters(), 0)


def spinning(enc: ost.CommandEncoder, spin: ost.Kernel, x: ost.Buffer) -> None:
    enc.dispatch(spin, x, 2_000_000, threads=256, group_size=1)


def test_workers_say_how_much_of_their_time_they_had() -> None:
    """Two devices have twice as many workers as there are cores: each gets about half of its time."""
    with ost.open_device("cpu") as one, ost.open_device("cpu") as other:
        runs = []
        for device in (one, other):
            x = device.zeros(256, np.uint32)
            spin = device.library(KERNELS)["spin"]
            runs.append(device.capture(partial(spinning, spin=spin, x=x)).instantiate())
        with ost.profile() as prof:
            for submission in [run.replay() for run in runs for _ in range(3)]:
                submission.wait()
    with prof.recording() as recording:
        submissions = recording.submissions
    assert (submissions.worked_ns > 0).all()
    assert (submissions.lost_ns <= submissions.worked_ns).all()
    assert submissions.lost_ns.sum() > 0.1 * submissions.worked_ns.sum()
    (machine,) = (check for check in prof.summary().checks if check.name == "machine")
    assert machine.status != "fine"


def test_work_that_is_not_timed_costs_no_readings_and_says_nothing() -> None:
    with ost.open_device("cpu") as device:
        x = device.zeros(1, np.uint32)
        with ost.profile(level="command_buffers") as prof:
            enc = device.command_encoder()
            enc.fill(x, 1)
            enc.commit_and_wait()
    with prof.recording() as recording:
        assert recording.submissions.worked_ns.tolist() == [-1]
