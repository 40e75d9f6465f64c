"""Runs that other programs disturbed are seen, counted, and left out of what is concluded."""

from __future__ import annotations

from collections.abc import Set

import numpy as np
import pytest

from ostinato.profiling.analyse import machine, timeline
from ostinato.profiling.analyse.columns import Device
from ostinato.profiling.analyse.lists import warm_ups
from ostinato.profiling.analyse.summary import look_first, summarise
from ostinato.profiling.analyse.validity import Check, Status
from ostinato.profiling.report import as_dict
from synthetic import Synthetic, node

CPU = Device(
    "cpu", "cpu", clock_uncertainty_ns=50.0, workers=2, first_come=True, copy_bytes_per_s=20e9, flops_per_s=100e9
)
SMALL = {"groups": 64, "bytes_read": 1000, "declared": True}


def chain(
    runs: int, disturbed: Set[int] = frozenset(), stretched: str = "", seen: bool = True, **lengths: int
) -> Synthetic:
    """Kernels one after another; in disturbed runs one of them takes ten times as long, which the workers may see."""
    made = Synthetic(devices=[CPU])
    plan = made.plan([node(kernel, **SMALL) for kernel in lengths])
    for run in range(runs):
        t, times = 100_000_000 * run, []
        for kernel, length in lengths.items():
            took = 10 * length if run in disturbed and kernel == stretched else length
            times.append((t, t + took))
            t += took
        worked = 2 * (times[-1][1] - times[0][0])
        lost = 9 * lengths[stretched] if run in disturbed and seen else worked // 1000
        made.submit(plan, times, worked_ns=worked, lost_ns=lost)
    return made


def disturbance(made: Synthetic) -> machine.Disturbance:
    columns = made.columns()
    return machine.disturbance(columns, timeline.submission_times(columns), warm_ups(columns))


def check(made: Synthetic) -> Check:
    return machine.check(made.columns(), disturbance(made))


def test_a_quiet_machine_is_fine() -> None:
    found = check(chain(20, a=300_000, b=200_000))
    assert found.status is Status.FINE
    assert "other programs took 0.1 % of the workers' time" in found.sentence


def test_runs_that_lost_time_to_other_programs_are_set_aside_and_counted() -> None:
    made = chain(20, {3, 7, 11}, "b", a=300_000, b=200_000)
    assert np.flatnonzero(disturbance(made).preempted).tolist() == [3, 7, 11]
    found = check(made)
    assert found.status is Status.NOTED
    assert "excluded of 20 runs: 3 disturbed" in found.sentence


def test_runs_that_stand_out_for_no_reason_that_a_clock_shows_are_set_aside_too() -> None:
    made = chain(40, {3, 7}, "b", seen=False, a=300_000, b=200_000)
    found = disturbance(made)
    assert not found.preempted.any()
    assert np.flatnonzero(found.outlier).tolist() == [3, 7]
    assert "excluded of 40 runs: 2 unusually long" in check(made).sentence


def test_a_list_that_takes_longer_and_longer_has_no_strays() -> None:
    made = Synthetic(devices=[CPU])
    plan = made.plan([node("attend", **SMALL)])
    for run in range(50):
        t = 100_000_000 * run
        made.submit(plan, [(t, t + 100_000 + 10_000 * run)], worked_ns=200_000 + 20_000 * run, lost_ns=0)
    found = disturbance(made)
    assert np.flatnonzero(found.aside).tolist() == [0]
    assert found.unsteady == pytest.approx(0.03, abs=0.01)


def test_runs_that_differ_though_nothing_was_seen_are_noted() -> None:
    made = Synthetic(devices=[CPU])
    plan = made.plan([node("k", **SMALL)])
    for run in range(40):
        t = 100_000_000 * run
        took = 100_000 if run % 2 else 140_000
        made.submit(plan, [(t, t + took)], worked_ns=2 * took, lost_ns=0)
    found = check(made)
    assert found.status is Status.NOTED
    assert "consecutive runs of a list still differ by" in found.sentence


def test_without_the_time_of_workers_it_is_not_judged() -> None:
    made = Synthetic(devices=[Device("cuda:0", "cuda", workers=132)])
    plan = made.plan([node("k", **SMALL)])
    for run in range(10):
        made.submit(plan, [(1_000_000 * run, 1_000_000 * run + 500_000)])
    found = check(made)
    assert found.status is Status.NOT_JUDGED
    assert "not recorded" in found.sentence


def test_mostly_disturbed_recordings_are_an_error() -> None:
    assert check(chain(20, set(range(15)), "b", a=300_000, b=200_000)).status is Status.ERROR


def test_disturbed_runs_do_not_change_who_is_first() -> None:
    """In two runs of five, another program ran in the middle of `b`."""
    disturbed = {run for run in range(40) if run % 5 in (1, 3)}
    made = chain(40, disturbed, "b", a=300_000, b=200_000)
    summary = summarise(made.columns())
    assert look_first(summary).startswith("Look first at a: ")
    first = summary.suspects[0].ranked[0]
    assert first.saving_share == pytest.approx(0.6, abs=0.01)
    assert sum(group.total_ns for group in summary.kernels if group.name == "b") > 40 * 300_000


@pytest.mark.parametrize("left", [0, 7])
def test_with_too_few_undisturbed_runs_nothing_is_certain(left: int) -> None:
    made = chain(40, set(range(1, 40 - left)), "b", a=300_000, b=200_000)
    summary = summarise(made.columns())
    assert summary.verdict is not None
    assert not summary.verdict.sure
    assert summary.verdict.runs == left
    assert f"{left} undisturbed runs of the longest command list, at least 8 needed" in look_first(summary)


def test_runs_for_which_a_worker_did_not_come_are_set_aside_where_there_are_others() -> None:
    made = Synthetic(devices=[CPU])
    plan = made.plan([node("a", **SMALL), node("b", **SMALL)])
    for run in range(40):
        t, alone = 100_000_000 * run, run % 3 > 0
        a, b = (600_000, 900_000) if alone else (400_000, 300_000)  # another order, where each runs on one worker
        hands = 1 if alone else 2
        came = {"worked_ns": (a + b) * hands, "lost_ns": 0, "late_ns": 0, "joined": hands}
        made.submit(plan, [(t, t + a), (t + a, t + a + b)], **came)
    found = disturbance(made)
    assert np.flatnonzero(~found.short_handed).tolist() == [run for run in range(40) if run == 0 or run % 3 == 0]
    assert "excluded of 40 runs: 26 with late or missing workers" in check(made).sentence
    assert look_first(summarise(made.columns())).startswith("Look first at a: ")


@pytest.mark.parametrize("whole", [3, 12])
def test_where_cores_are_short_only_runs_with_one_number_of_workers_throughout_are_alike(whole: int) -> None:
    """In most runs a second worker helped with `a` and then lost its core, so that `b` took twice as long."""
    made = Synthetic(devices=[CPU])
    plan = made.plan([node("a", **SMALL), node("b", **SMALL)])
    for run in range(60):
        t = 100_000_000 * run
        a, b, hands = (300_000, 250_000, 2) if run < whole else (300_000, 500_000, 0)
        if run >= 40:
            a, b, hands = 600_000, 500_000, 1
        worked = (a + b) * hands if hands else 2 * a + b
        came = {"worked_ns": worked, "lost_ns": 0, "late_ns": 0, "joined": hands or 2}
        made.submit(plan, [(t, t + a), (t + a, t + a + b)], **came)
    kept = np.flatnonzero(~disturbance(made).short_handed).tolist()
    assert kept == ([*range(whole)] if whole == 12 else [0, *range(40, 60)])
    assert look_first(summarise(made.columns())).startswith("Look first at a: ")


def test_a_worker_that_wakes_up_late_is_not_charged_to_the_first_kernel() -> None:
    """Two alike, one after the other; for the first 60 µs of each run there is one worker only."""
    made = Synthetic(devices=[CPU])
    plan = made.plan([node("first", **SMALL), node("second", **SMALL)])
    for run in range(40):
        t = 100_000_000 * run
        times = [(t, t + 330_000), (t + 330_000, t + 630_000)]
        made.submit(plan, times, worked_ns=2 * 630_000 - 60_000, lost_ns=0, late_ns=60_000, joined=2)
    summary = summarise(made.columns())
    assert summary.verdict is not None
    assert {suspect.kernel for suspect in summary.verdict.named} == {"first", "second"}
    savings = [suspect.saving_ns for suspect in summary.suspects[0].ranked]
    assert savings[0] == pytest.approx(savings[1], rel=0.01)


def test_long_runs_that_hold_much_of_the_time_are_the_programs_own() -> None:
    """Ten runs of 220 spend most of the time in `b`: a loop that depends on data, say."""
    made = Synthetic(devices=[CPU])
    plan = made.plan([node("a", **SMALL), node("b", **SMALL)])
    for run in range(220):
        t, b = 100_000_000 * run, 30_000_000 if run % 22 == 21 else 100_000
        worked = {"worked_ns": 2 * (300_000 + b), "lost_ns": 0, "late_ns": 0, "joined": 2}
        made.submit(plan, [(t, t + 300_000), (t + 300_000, t + 300_000 + b)], **worked)
    assert not disturbance(made).outlier.any()
    assert look_first(summarise(made.columns())).startswith("Look first at b")


def test_a_list_of_no_length_has_a_report() -> None:
    made = Synthetic(devices=[CPU])
    plan = made.plan([node("a", **SMALL)])
    for run in range(12):
        made.submit(plan, [(run, run)])
    assert summarise(made.columns()).submissions == 12


def test_the_report_has_the_figures_of_the_check() -> None:
    made = chain(40, {3, 4, 5}, "b", a=300_000, b=200_000)
    summary = summarise(made.columns())
    reported = as_dict(summary)["machine"]
    check = next(check for check in summary.checks if check.name == "machine")
    assert (reported["name"], reported["status"], reported["sentence"]) == ("machine", check.status, check.sentence)
    assert (reported["runs"], reported["disturbed"], reported["late"], reported["outliers"]) == (40, 3, 0, 0)
    lost, worked = (sum(run[name] for run in made.submissions) for name in ("lost_ns", "worked_ns"))
    assert reported["lost_part"] == pytest.approx(lost / worked)
    assert reported["unsteady"] == 0.0


@pytest.mark.parametrize(("runs", "counted"), [(1, 1), (2, 2), (10, 9)])
def test_a_critical_path_says_how_many_runs_its_medians_are_of(runs: int, counted: int) -> None:
    """The first run warms up, and is left out where there are several others."""
    summary = summarise(chain(runs, set(), "b", a=300_000, b=200_000).columns())
    assert [path.runs for path in summary.critical_paths] == [counted]
    assert [path["runs"] for path in as_dict(summary)["critical_paths"]] == [counted]
