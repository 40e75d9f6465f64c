"""The order of the suspects is resampled over runs: who would not be first again is not named alone."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ostinato.profiling.analyse import formatting, ranking
from ostinato.profiling.analyse.columns import Device
from ostinato.profiling.analyse.schedules import PlanSavings
from ostinato.profiling.analyse.summary import Verdict, look_first, summarise
from ostinato.profiling.report import as_dict, tables
from synthetic import Synthetic, node, wandering

CPU = Device(
    "cpu", "cpu", clock_uncertainty_ns=50.0, workers=2, first_come=True, copy_bytes_per_s=20e9, flops_per_s=100e9
)
SMALL = {"groups": 64, "bytes_read": 1000, "declared": True}


def recorded(runs: int, noise: float, seed: int = 0, **lengths: int) -> Synthetic:
    """Kernels one after another, each with noise of its own from run to run."""
    generator = np.random.default_rng(seed)
    made = Synthetic(devices=[CPU])
    plan = made.plan([node(kernel, **SMALL) for kernel in lengths])
    for run in range(runs):
        t, times = 100_000_000 * run, []
        for length in lengths.values():
            took = int(length * (1 + noise * abs(generator.standard_normal())))
            times.append((t, t + took))
            t += took
        made.submit(plan, times, worked_ns=2 * (times[-1][1] - times[0][0]), lost_ns=0)
    return made


def test_the_one_that_leads_is_named_with_an_interval() -> None:
    summary = summarise(recorded(60, 0.02, a=300_000, b=250_000).columns())
    assert summary.verdict is not None
    assert summary.verdict.sure
    assert summary.verdict.confidence == 1.0
    (first,) = summary.verdict.named
    assert first.kernel == "a"
    assert first.saving_low is not None
    assert first.saving_high is not None
    assert first.saving_share is not None
    assert 0 < first.saving_low <= first.saving_share <= first.saving_high <= 1
    assert look_first(summary).startswith("Look first at a: ")


@pytest.mark.parametrize("seed", range(20))
def test_two_of_equal_cost_are_both_named(seed: int) -> None:
    summary = summarise(recorded(60, 0.05, seed, a=300_000, b=300_000).columns())
    assert summary.verdict is not None
    assert {suspect.kernel for suspect in summary.verdict.named} == {"a", "b"}
    line = look_first(summary)
    assert line.startswith(("Look first at a or b: ", "Look first at b or a: "))
    assert "this recording cannot tell them apart; record longer, or on an idle machine" in line


def test_noise_larger_than_the_difference_is_no_ground_for_a_name() -> None:
    named = [summarise(recorded(12, 1.0, seed, a=300_000, b=280_000).columns()).verdict for seed in range(10)]
    assert sum(one is not None and one.sure for one in named) <= 1


def test_a_single_kernel_needs_no_ranking_but_says_that_it_ran_once() -> None:
    line = look_first(summarise(recorded(1, 0.0, only=300_000).columns()))
    assert line.startswith("Look first at only: ")
    assert "not certain: 1 undisturbed run of the longest command list, at least 8 needed" in line


def test_the_same_recording_gives_the_same_verdict() -> None:
    columns = recorded(40, 0.2, a=300_000, b=290_000).columns()
    assert look_first(summarise(columns)) == look_first(summarise(columns))


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=40), st.integers(1, 1000))
def test_no_saving_is_larger_than_the_wall(parts: list[tuple[float, float]], submissions: int) -> None:
    plan = PlanSavings(submissions, len(parts), np.array(parts) * 1000.0, np.full(len(parts), 1000.0))
    (drawn,) = ranking.draws([plan])
    saved, wall = drawn.means(plan.saved_ns), drawn.means(plan.wall_ns[:, None])[:, 0]
    assert (ranking.total([plan]) <= ranking.total_wall([plan]) * (1 + 1e-9)).all()
    for number in range(2):
        estimate = float(ranking.total([plan])[number] / ranking.total_wall([plan]))
        low, high = ranking.interval(saved[:, number], wall, estimate)
        assert 0 <= low <= estimate <= high <= 1 + 1e-9


def test_leading_asks_for_more_than_a_few_percent() -> None:
    drawn = np.array([[100.0, 99.0, 1.0], [100.0, 85.0, 1.0], [50.0, 80.0, 1.0], [0.0, 0.0, 0.0]])
    assert ranking.leading(drawn).tolist() == [0.25, 0.25, 0.0]


def test_times_of_lists_that_ran_once_are_off_by_a_factor_that_is_one_in_the_mean() -> None:
    factors = ranking.unsure_factors(5)
    assert factors.mean(axis=0) == pytest.approx(np.ones(5))
    assert 0.4 < factors.min() < 0.55
    assert 1.8 < factors.max() < 2.2


def test_a_minority_of_runs_counts_as_much_as_it_is() -> None:
    """In one run of six `b` takes long; it then saves a sixth of that in the mean, with an interval that says so."""
    made = Synthetic(devices=[CPU])
    plan = made.plan([node("a", **SMALL), node("b", **SMALL)])
    for run in range(61):
        t, b = 100_000_000 * run, 100_000 if run % 6 == 1 else 30_000
        worked = {"worked_ns": 2 * (300_000 + b), "lost_ns": 0, "late_ns": 0, "joined": 2}
        made.submit(plan, [(t, t + 300_000), (t + 300_000, t + 300_000 + b)], **worked)
    (suspect,) = (s for s in summarise(made.columns()).suspects[0].ranked if s.kernel == "b")
    assert suspect.saving_low is not None
    assert suspect.saving_share is not None
    assert suspect.saving_high is not None
    assert suspect.saving_low < suspect.saving_share < suspect.saving_high


def test_kernels_that_are_only_bounded_are_not_ranked_by_their_bounds() -> None:
    summary = summarise(wandering().columns())
    assert summary.verdict is not None
    assert len(summary.verdict.named) > 1


def test_lists_without_end_take_no_memory_each() -> None:
    """Two thousand lists of three dispatches: what is drawn is not kept for each of them."""
    made = Synthetic(devices=[CPU])
    for number in range(2000):
        plan = made.plan([node(f"k{number % 100}", **SMALL)] * 3)
        t = 1_000_000 * number
        made.submit(plan, [(t + 1000 * n, t + 1000 * n + 900) for n in range(3)])
    tracemalloc.start()
    summarise(made.columns())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200 << 20


def test_a_list_that_ran_once_may_be_off_by_a_factor_of_two() -> None:
    def verdict(**lengths: int) -> Verdict:
        verdict = summarise(recorded(1, 0.0, **lengths).columns()).verdict
        assert verdict is not None
        return verdict

    close, clear = verdict(a=400_000, b=150_000), verdict(a=900_000, b=100_000)
    assert [suspect.kernel for suspect in close.named] == ["a", "b"]
    assert [suspect.kernel for suspect in clear.named] == ["a"]
    assert not clear.sure


@given(
    st.lists(
        st.tuples(st.integers(1, 12), st.lists(st.integers(1_000, 900_000), min_size=3, max_size=3)),
        min_size=1,
        max_size=3,
    ),
    st.integers(0, 400_000),
)
@settings(max_examples=40, deadline=None)
def test_no_interval_exceeds_what_a_kernel_takes(lists: list[tuple[int, list[int]]], gap: int) -> None:
    """Kernels one after another, each of them off by a factor of two at most, whatever the number of runs.

    A kernel that takes a part p of the wall then takes at most 4 p / (4 p + 1 - p) of it, and saves half of that if it
    is twice as fast.
    """
    made = Synthetic(devices=[CPU])
    plans = [made.plan([node(kernel, **SMALL) for kernel in "abc"]) for _ in lists]
    t, spent, wall = 0, dict.fromkeys("abc", 0.0), 0.0
    for plan, (runs, lengths) in zip(plans, lists, strict=True):
        for _ in range(runs):
            begin, times = t, []
            for kernel, length in zip("abc", lengths, strict=True):
                times.append((t, t + length))
                spent[kernel] += length
                t += length + gap
            made.submit(plan, times, worked_ns=2 * (t - begin), lost_ns=0)
            wall += t - gap - begin
            t += 10_000_000
    summary = summarise(made.columns())
    assert {what_if.kernel for what_if in summary.what_ifs} == set("abc")
    for what_if in summary.what_ifs:
        part = spent[what_if.kernel] / wall
        most = 4 * part / (1 + 3 * part) + 1e-9
        assert what_if.saved_low is not None
        assert what_if.saved_share is not None
        assert what_if.saved_high is not None
        assert 0 <= what_if.saved_low <= what_if.saved_share <= what_if.saved_high <= most / 2
    for suspect in summary.suspects[0].ranked:
        part = spent[suspect.kernel] / wall
        most = 4 * part / (1 + 3 * part) + 1e-9
        assert suspect.saving_low is not None
        assert suspect.saving_share is not None
        assert suspect.saving_high is not None
        assert suspect.twice_as_fast_share is not None
        assert 0 <= suspect.saving_low <= suspect.saving_share <= suspect.saving_high <= most
        assert suspect.twice_as_fast_share <= part / 2 + 1e-9


@pytest.mark.parametrize("runs", [1, 3, 9])
def test_two_kernels_side_by_side_save_no_more_than_the_wall(runs: int) -> None:
    """They compete for one worker each: dispatch times add up to more than the wall."""
    made = Synthetic(devices=[CPU])
    plan = made.plan([node("a", **SMALL), node("b", **SMALL), node("c", **SMALL)])
    for run in range(runs):
        t = 100_000_000 * run
        made.submit(plan, [(t, t + 900_000), (t, t + 800_000), (t + 900_000, t + 950_000)], worked_ns=1_900_000)
    summary = summarise(made.columns())
    for what_if in summary.what_ifs:
        if what_if.saved_share is not None:
            assert what_if.saved_low is not None
            assert what_if.saved_high is not None
            assert 0 <= what_if.saved_low <= what_if.saved_share <= what_if.saved_high <= 0.5


def test_savings_are_parts_of_typical_runs_and_the_line_says_how_much() -> None:
    """Ten runs of 400 µs and one of 4 ms that another program disturbed: eleven times 400 µs."""
    made = Synthetic(devices=[CPU])
    plan = made.plan([node("a", **SMALL)])
    for run in range(11):
        t, took = 100_000_000 * run, 4_000_000 if run == 5 else 400_000
        made.submit(plan, [(t, t + took)], worked_ns=2 * took, lost_ns=took if run == 5 else 0, label="decode")
    summary = summarise(made.columns())
    assert summary.what_if_total_ns == pytest.approx(11 * 400_000)
    (what_if,) = summary.what_ifs
    assert what_if.saved_ns == pytest.approx(0.5 * summary.what_if_total_ns)
    (first,) = summary.suspects[0].ranked
    assert first.saving_share is not None
    share, amount = formatting.percent(first.saving_share), formatting.time(first.saving_ns)
    assert f"could save about {share} ({amount}) of typical command-buffer time" in look_first(summary)
    assert as_dict(summary)["what_if_total_ns"] == summary.what_if_total_ns
    for table in (tables.suspects(summary), tables.critical_path(summary)):
        assert any("4.40 ms, a typical undisturbed run of each command list" in note for note in table.notes)


def test_what_has_too_few_runs_is_named() -> None:
    """`decode` takes most of the time and has enough runs, all others together take more and have not."""
    made = recorded(9, 0.0, a=300_000, b=20_000)
    for number in range(12):
        plan, t = made.plan([node("a", **SMALL)]), 1_000_000_000 + 10_000_000 * number
        made.submit(plan, [(t, t + 250_000 + number)], label=f"prefill {number}")
    summary = summarise(made.columns())
    assert "not certain: 1 undisturbed run of 'prefill 11', at least 8 needed" in look_first(summary)
    verdict = as_dict(summary)["verdict"]
    assert verdict["command_list"] == "prefill 11"
    assert verdict["enough_runs"] is False
    assert verdict["sure"] is False
    assert verdict["undisturbed_runs"] < verdict["needed_runs"] == 8
