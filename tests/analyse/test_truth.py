"""The checks under every table say what they should, and only that."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ostinato.profiling.analyse import timeline, validity
from ostinato.profiling.analyse.columns import Device, Drop
from ostinato.profiling.analyse.lists import warm_ups
from ostinato.profiling.analyse.validity import Status
from synthetic import Synthetic, node


def drift_of(made):
    columns = made.columns()
    return validity.drift(columns, timeline.submission_times(columns), warm_ups(columns))


def buffers(*off, interval=100_000):
    """Command buffers whose dispatches leave out this part of the interval."""
    made = Synthetic()
    plan = made.plan([node()])
    for i, part in enumerate(off):
        t = 1_000_000 * i
        made.submit(plan, [(t, t + round(interval * (1 - part)))], start_ns=t, end_ns=t + interval)
    return made


@pytest.mark.parametrize(
    ("off", "status"), [(0.0, Status.FINE), (0.05, Status.FINE), (0.07, Status.NOTED), (0.2, Status.ERROR)]
)
def test_drift_is_fine_to_five_percent_and_an_error_past_ten(off, status):
    found = drift_of(buffers(*[off] * 6))
    assert found.check.status is status
    assert found.overall == pytest.approx(off)
    assert found.judged == 5  # the first run is set aside


def test_a_few_command_buffers_are_no_ground_for_an_error():
    found = drift_of(buffers(0.2, 0.2))
    assert found.check.status is Status.NOTED
    assert "5 are needed" in found.check.sentence


def test_drift_does_not_judge_only_the_strays_among_short_command_buffers():
    made = buffers(*[0.0] * 30, interval=4_000)
    for i in range(10):
        t = 10**9 + 10**6 * i
        made.submit(0, [(t, t + 5_000)], start_ns=t, end_ns=t + 100_000)
    found = drift_of(made)
    assert (found.check.status, found.judged, found.too_short) == (Status.NOT_JUDGED, 0, 39)
    other = made.plan([node()])
    for i in range(9):
        t = 2 * 10**9 + 10**6 * i
        made.submit(other, [(t, t + 100_000)])
    found = drift_of(made)
    assert (found.check.status, found.judged) == (Status.FINE, 8)
    assert "39 others too short to judge" in found.check.sentence


def test_missing_time_is_blamed_on_what_was_not_sampled():
    assert "suspect time that no sample covers" in drift_of(buffers(0.3)).check.sentence


def test_dispatches_outside_their_command_buffer_are_blamed_on_the_clocks():
    made = Synthetic()
    plan = made.plan([node()])
    for i in range(6):
        t = 10**6 * i
        made.submit(plan, [(t + 50_000, t + 150_000)], start_ns=t, end_ns=t + 100_000)
    found = drift_of(made)
    assert found.check.status is Status.ERROR
    assert "suspect the clocks" in found.check.sentence


def test_one_stray_among_many_is_noted_and_named():
    found = drift_of(buffers(*[0.01] * 40, 0.5))
    assert (found.check.status, found.error) == (Status.NOTED, 1)
    assert "1 of them is off by more than 5 %, the worst by 50.0 %" in found.check.sentence


def test_what_the_clock_cannot_resolve_is_not_judged():
    found = drift_of(buffers(0.5, interval=4_000))  # the clock is good to 50 ns
    assert (found.check.status, found.too_short, found.overall) == (Status.NOT_JUDGED, 1, None)


def test_what_starting_and_ending_takes_is_not_taken_for_drift():
    for interval, status in ((39_000, Status.NOT_JUDGED), (41_000, Status.ERROR)):
        made = buffers(*[0.2] * 6, interval=interval)
        made.devices = [replace(made.devices[0], edges_ns=2_000.0)]
        assert drift_of(made).check.status is status


def test_without_samples_drift_is_not_judged():
    made = Synthetic()
    made.submit(made.plan([node()]), [None], start_ns=0, end_ns=10**6)
    assert drift_of(made).check.status is Status.NOT_JUDGED


def replays(slower, sampled=48, probes=12, noise=0.003, device=None):
    made = Synthetic()
    if device:
        made.devices = [device]
    plan = made.plan([node(), node()])
    generator = np.random.default_rng(1)
    for i in range(sampled + probes):
        probe = probes and i % ((sampled + probes) // probes) == 1
        length = round(1e6 * generator.normal(1, noise) * (1 if probe else slower))
        t = 10**7 * i
        times = [None, None] if probe else [(t, t + 400), (t + 500, t + length)]
        made.submit(plan, times, start_ns=t, end_ns=t + length, probe=bool(probe))
    return made


def perturbation_of(made):
    columns = made.columns()
    return validity.perturbation(columns, timeline.submission_times(columns), warm_ups(columns))


@pytest.mark.parametrize(("slower", "status"), [(1.0, Status.FINE), (1.05, Status.NOTED), (1.3, Status.ERROR)])
def test_perturbation_is_the_ratio_of_sampled_to_unsampled_replays(slower, status):
    found = perturbation_of(replays(slower))
    assert found.check.status is status
    assert found.ratio.estimate == pytest.approx(slower, abs=0.01)
    assert found.ratio.low < found.ratio.estimate < found.ratio.high
    assert found.probes == 12
    assert "47 sampled, 12 unsampled" in found.check.sentence


def test_plans_of_different_length_are_not_mixed():
    made = replays(1.0)
    plan = made.plan([node()])
    for i in range(20):  # a long plan, sampled only
        t = 10**9 + 10**8 * i
        made.submit(plan, [(t, t + 10**7)])
    assert perturbation_of(made).ratio.estimate == pytest.approx(1.0, abs=0.01)


def test_without_probes_the_cost_is_estimated_and_says_so():
    found = perturbation_of(replays(1.0, probes=0, device=Device("cpu", timestamp_cost_ns=1000.0)))
    assert found.ratio is None
    assert found.estimate == pytest.approx(2 * 1000 / 1e6, rel=0.02)
    assert "estimated from the cost of a timestamp" in found.check.sentence
    assert found.check.status is Status.NOT_JUDGED


@pytest.mark.parametrize(("cost", "least"), [(100_000.0, 0.2), (600_000.0, 5.0)])
def test_a_large_estimate_is_an_error_however_large(cost, least):
    found = perturbation_of(replays(1.0, probes=0, device=Device("cpu", timestamp_cost_ns=cost)))
    assert found.check.status is Status.ERROR
    assert found.estimate > least


def test_too_few_probes_are_said_to_be_too_few():
    found = perturbation_of(replays(1.0, sampled=30, probes=2))
    assert "2 replays ran unsampled, 4 of each list are needed" in found.check.sentence


def test_sampled_replays_that_are_faster_than_unsampled_ones_are_not_alike():
    found = perturbation_of(replays(0.9))
    assert found.check.status is Status.ERROR
    assert "not comparable" in found.check.sentence


def test_without_probes_and_calibration_nothing_is_claimed():
    found = perturbation_of(replays(1.0, probes=0))
    assert (found.check.status, found.ratio, found.estimate) == (Status.NOT_JUDGED, None, None)


def test_noise_is_admitted():
    found = perturbation_of(replays(1.0, noise=0.5))
    assert found.check.status is Status.NOTED
    assert "too noisy to tell" in found.check.sentence


def test_drops_are_counted():
    made = buffers(*[0.0] * 5)
    assert validity.drops(made.columns()).status is Status.FINE
    made.drops = [Drop("samples", 1200, 0, 1)]
    found = validity.drops(made.columns())
    assert found.status is Status.ERROR
    assert "1,200 dropped (1,200 samples)" in found.sentence


def test_a_recording_that_was_cut_off_says_so():
    assert validity.drops(replace(buffers(0.0).columns(), closed=False)).status is Status.NOTED


def test_dispatches_shorter_than_the_clock_resolves_are_noted():
    made = Synthetic()
    made.submit(made.plan([node(), node()]), [(0, 20), (20, 60)], quality=1)
    assert validity.clock(made.columns()).status is Status.NOTED
    assert validity.clock(buffers(0.0).columns()).status is Status.FINE


def test_repetitions_and_warm_up():
    once = buffers(0.0).columns()
    assert validity.repetitions(once).status is Status.NOTED
    columns = buffers(*[0.0] * 8).columns()
    assert validity.repetitions(columns).status is Status.FINE
    times = timeline.submission_times(columns)
    found = validity.warm_up(columns, times, warm_ups(columns))
    assert found.status is Status.FINE
    assert "1 first run excluded" in found.sentence
    assert "no first run was excluded" in validity.warm_up(once, times, warm_ups(once)).sentence


def test_what_has_no_time_is_counted_with_the_reason():
    made = buffers(0.0)
    made.submit(0, [None], status="unavailable", reason="the device samples only whole command buffers")
    made.submit(0, [None], error="KernelFault: top_k crashed")
    columns = made.columns()
    found = validity.measured(columns, timeline.submission_times(columns))
    assert found.status is Status.NOTED
    assert "1 command buffer without all times: the device samples only" in found.sentence
    assert "1 command buffer failed: KernelFault" in found.sentence


def test_a_command_buffer_that_failed_is_counted_once():
    made = buffers(0.0)
    made.submit(0, [None], status="unavailable", reason="it did not run", executed=False, error="crashed", sampled=True)
    made.submit(0, [None], start_ns=5, end_ns=9, reason="cannot time dispatches", sampled=True)
    columns = made.columns()
    found = validity.measured(columns, timeline.submission_times(columns))
    assert found.sentence == (
        "1 command buffer without all times: cannot time dispatches; 1 command buffer failed: crashed"
    )


def test_of_nothing_nothing_is_judged():
    columns = Synthetic().columns()
    times = timeline.submission_times(columns)
    assert validity.measured(columns, times) == validity.Check("measured", Status.NOT_JUDGED, "nothing was recorded")
    assert validity.clock(columns).status is Status.NOT_JUDGED
    assert validity.warm_up(columns, times, warm_ups(columns)).status is Status.NOT_JUDGED
