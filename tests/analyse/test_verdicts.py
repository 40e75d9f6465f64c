"""Verdicts: the decision rule, the coverage of the intervals, and medians of many groups at once."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.profiling.analyse import verdicts
from ostinato.profiling.analyse.statistics import Interval, medians_by
from ostinato.profiling.analyse.verdicts import Spread, Verdict

_ratios = st.floats(0.2, 5.0)


@given(_ratios, _ratios, _ratios, st.floats(0.0, 0.5))
def test_a_verdict_follows_from_where_the_interval_lies(x: float, y: float, z: float, delta: float) -> None:
    low, estimate, high = sorted((x, y, z))
    verdict = verdicts.judge(Interval(estimate, low, high), delta)
    inside = [value for value in (low, high) if 1 / (1 + delta) <= value <= 1 + delta]
    if verdict is Verdict.SLOWER:
        assert low > 1 + delta
    elif verdict is Verdict.FASTER:
        assert high < 1 / (1 + delta)
    elif verdict is Verdict.SAME:
        assert len(inside) == 2
    else:
        assert low <= 1 + delta
        assert high >= 1 / (1 + delta)
        assert len(inside) < 2


@given(_ratios, _ratios, st.floats(0.0, 0.5))
def test_swapping_the_programs_swaps_the_verdict(x: float, y: float, delta: float) -> None:
    low, high = sorted((x, y))
    opposite = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}
    verdict = verdicts.judge(Interval(low, low, high), delta)
    swapped = verdicts.judge(Interval(1 / low, 1 / high, 1 / low), delta)
    near = any(math.isclose(edge, end, rel_tol=1e-9) for edge in (1 + delta, 1 / (1 + delta)) for end in (low, high))
    assert near or swapped is opposite.get(verdict, verdict)


@pytest.mark.parametrize("interval", [None, Interval(1.0, math.nan, math.nan), Interval(1.0, 0.0, math.inf)])
def test_without_an_interval_nobody_can_tell(interval: Interval | None) -> None:
    assert verdicts.judge(interval, 0.02) is Verdict.CANNOT_TELL


def test_several_verdicts_make_one() -> None:
    assert verdicts.combined([Verdict.SAME, Verdict.FASTER]) is Verdict.FASTER
    assert verdicts.combined([Verdict.SAME, Verdict.CANNOT_TELL, Verdict.FASTER]) is Verdict.CANNOT_TELL
    assert verdicts.combined([Verdict.CANNOT_TELL, Verdict.SLOWER]) is Verdict.SLOWER
    assert verdicts.combined([Verdict.SAME]) is Verdict.SAME
    assert verdicts.combined([]) is Verdict.CANNOT_TELL


def _drifting(generator: np.random.Generator, count: int, ratio: float) -> tuple[np.ndarray, np.ndarray]:
    """Times of two programs on a machine whose clock jumps, with neighbours that are alike and now and then a stray."""
    clock = np.where(np.cumsum(generator.random(count) < 0.02) % 2, 1.7, 1.0)
    slow = np.convolve(generator.normal(0, 0.02, count + 9), np.ones(10) / 10, "valid")
    stray = np.where(generator.random((2, count)) < 0.03, generator.exponential(0.5, (2, count)), 0.0)
    noise = generator.normal(0, 0.01, (2, count)) + stray
    base = 100.0 * clock * np.exp(slow)
    return base * np.exp(noise[0]), base * ratio * np.exp(noise[1])


@pytest.mark.parametrize("count", [8, 40, 600])
def test_intervals_of_pairs_hold_the_truth_as_often_as_they_claim(count: int) -> None:
    generator = np.random.default_rng(3)
    held = 0
    for _ in range(400):
        difference = verdicts.paired(*_drifting(generator, count, 1.03))
        assert difference is not None
        held += 1.03 in difference.ratio(0.95)
    assert held >= 0.92 * 400


def test_intervals_of_processes_hold_the_truth_as_often_as_they_claim() -> None:
    generator = np.random.default_rng(5)
    apart, known = 0, 0
    for _ in range(400):
        a, b = np.exp(generator.normal(0, 0.03, 6)), 1.1 * np.exp(generator.normal(0, 0.01, 5))
        welch = verdicts.unpaired(a, b)
        single = verdicts.calibrated(a[:1], b[:1], Spread(0.03, 30))
        assert welch is not None
        assert single is not None
        apart += 1.1 in welch.ratio(0.95)
        known += 1.1 in single.ratio(0.95)
    assert apart >= 0.92 * 400
    assert known >= 0.92 * 400


def test_too_few_units_give_no_difference() -> None:
    four, five = np.arange(1.0, 5.0), np.arange(1.0, 6.0)
    assert verdicts.paired(four, four) is None
    assert verdicts.unpaired(four, five) is None
    assert verdicts.paired([*four, math.nan], five) is None
    assert verdicts.calibrated([], five, Spread(0.1, 5)) is None


def test_the_smallest_change_is_found_about_nine_times_in_ten() -> None:
    generator = np.random.default_rng(7)

    def measured(ratio: float) -> verdicts.Difference:
        noise = generator.normal(0, 0.02, (2, 30))
        difference = verdicts.paired(100 * np.exp(noise[0]), 100 * ratio * np.exp(noise[1]))
        assert difference is not None
        return difference

    slower = 0
    for _ in range(400):
        change = measured(1.0).smallest_change(0.02, 0.95)
        slower += verdicts.judge(measured(1 + change).ratio(0.95), 0.02) is Verdict.SLOWER
    assert 0.82 * 400 <= slower <= 0.96 * 400


def test_a_coarse_clock_widens_the_interval() -> None:
    exact = verdicts.Difference(0.05, 0.0, 20)
    coarse = verdicts.Difference(0.05, 0.0, 20, resolution=0.1)
    assert verdicts.judge(exact.ratio(0.95), 0.02) is Verdict.SLOWER
    assert verdicts.judge(coarse.ratio(0.95), 0.02) is Verdict.CANNOT_TELL
    assert coarse.smallest_change(0.02, 0.95) > exact.smallest_change(0.02, 0.95)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 1000)), max_size=60))
def test_medians_of_groups(pairs: list[tuple[int, int]]) -> None:
    code, values = np.array([c for c, _ in pairs], np.int64), np.array([v for _, v in pairs], np.int64)
    expected = [np.median(values[code == c]) if (code == c).any() else math.nan for c in range(7)]
    np.testing.assert_array_equal(medians_by(code, values, 7), expected)


def test_a_difference_beyond_all_bounds_is_no_error() -> None:
    difference = verdicts.Difference(0.0, 1e6, 4, resolution=1e9)
    assert verdicts.judge(difference.ratio(0.95), 0.02) is Verdict.CANNOT_TELL
    assert difference.smallest_change(0.02, 0.95) > 1e6
