"""The statistics agree with NumPy and SciPy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ostinato.profiling.analyse import statistics as s

values = st.lists(st.integers(0, 10**12), min_size=1, max_size=60)


@given(values, st.lists(st.floats(0, 100), min_size=1, max_size=5))
def test_percentiles_are_those_of_numpy(sample: list[float], wanted: list[float]) -> None:
    assert s.percentiles(np.array(sample), wanted) == pytest.approx(list(np.percentile(sample, wanted)), rel=1e-12)


def test_percentiles_of_nothing_are_not_numbers() -> None:
    assert all(math.isnan(p) for p in s.percentiles(np.array([], np.int64), (50, 99)))


@pytest.mark.parametrize("freedom", [1, 2, 3, 10, 100, 5000])
@pytest.mark.parametrize("probability", [0.5, 0.75, 0.975, 0.9995])
def test_students_quantiles_are_those_of_scipy(freedom: int, probability: float) -> None:
    assert s.student_quantile(probability, freedom) == pytest.approx(
        stats.t.ppf(probability, freedom), rel=1e-8, abs=1e-9
    )


@pytest.mark.parametrize("count", [5, 6, 31, 32])
def test_bootstrapped_medians_are_distributed_as_if_drawn_one_by_one(count: int) -> None:
    sample = np.sort(np.random.default_rng(count).lognormal(size=count))
    quick = s.bootstrap_medians(sample, np.random.default_rng(1), 40_000)
    slow = np.median(np.random.default_rng(2).choice(sample, (40_000, count)), axis=1)
    wanted = (2.5, 25, 50, 75, 97.5)
    assert np.percentile(quick, wanted) == pytest.approx(np.percentile(slow, wanted), rel=0.03)


def interval(sample: np.ndarray) -> s.Interval:
    made = s.median_interval(sample)
    assert made is not None
    return made


def test_the_interval_of_a_median_covers_it_as_often_as_promised() -> None:
    generator = np.random.default_rng(3)
    covered = sum(1.0 in interval(generator.lognormal(size=41)) for _ in range(400))
    assert 0.90 <= covered / 400 <= 0.99


def test_the_interval_of_a_median_agrees_with_scipys_bootstrap() -> None:
    sample = np.random.default_rng(4).gamma(3.0, size=101)
    reference = stats.bootstrap((sample,), np.median, method="percentile", n_resamples=5000, rng=1).confidence_interval
    found = interval(sample)
    assert (found.low, found.high) == pytest.approx((reference.low, reference.high), rel=0.03)


def test_the_same_sample_always_gets_the_same_interval() -> None:
    assert s.median_interval([3, 1, 4, 1, 5]) == s.median_interval([3, 1, 4, 1, 5])


def test_too_few_values_have_no_interval() -> None:
    assert s.median_interval([1.0]) is None


def line(x: Sequence[float] | np.ndarray) -> np.ndarray:
    return np.column_stack([np.ones(len(x)), x])


def test_a_line_is_fitted_as_scipy_does() -> None:
    generator = np.random.default_rng(6)
    x = np.arange(30.0)
    y = 3.0 + 0.7 * x + generator.normal(0, 0.4, 30)
    (intercept, slope), reference = s.least_squares(line(x), y), stats.linregress(x, y)
    assert (intercept.estimate, slope.estimate) == pytest.approx((reference.intercept, reference.slope))
    reach = stats.t.ppf(0.975, 28)
    assert slope.high - slope.estimate == pytest.approx(reach * reference.stderr)
    assert intercept.high - intercept.estimate == pytest.approx(reach * reference.intercept_stderr)


def test_several_costs_are_told_apart() -> None:
    generator = np.random.default_rng(7)
    design = np.column_stack([np.ones(60), generator.integers(1, 50, 60), generator.integers(0, 9, 60)])
    truth = np.array([12.0, 0.8, 2.5])
    fit = s.least_squares(design, design @ truth + generator.normal(0, 0.1, 60), confidence=0.999)
    assert all(value in interval for value, interval in zip(truth, fit, strict=True))


def test_a_fit_without_spare_points_has_no_interval() -> None:
    assert math.isnan(s.least_squares(line([0, 1]), [1, 3])[1].low)


def test_columns_that_depend_on_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot tell 2 coefficients apart"):
        s.least_squares(line([4, 4, 4]), [1, 2, 3])
