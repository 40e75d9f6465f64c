"""Device time in host time."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ostinato import kernel_profile
from ostinato.backends.clock import SAME_CLOCK, Clock, ClockPair, fit


@given(
    rate=st.floats(0.01, 1000),
    host=st.integers(0, 2**62),
    ticks=st.integers(0, 2**62),
    later=st.lists(st.integers(1, 10**12), min_size=1, max_size=10, unique=True),
    asked=st.integers(0, 10**12),
)
@example(rate=1.0, host=36_028_797_018_963_972, ticks=0, later=[1], asked=1)
def test_a_straight_clock_is_found_whatever_its_epoch_and_rate(
    rate: float, host: int, ticks: int, later: list[int], asked: int
) -> None:
    pairs = [ClockPair(host, ticks), *(ClockPair(host + round(step * rate), ticks + step) for step in later)]
    found = fit(pairs)
    # Rounding of a pair to whole nanoseconds tilts the line, more so the shorter it is.
    slack = 3 + Fraction(5, 2) * asked / max(later) + Fraction(rate) * asked / 10**9
    # Relative to the epoch, and exact: a float cannot hold the whole.
    assert abs(found.host_ns(ticks + asked) - host - Fraction(rate) * asked) <= slack
    assert found.uncertainty_ns <= 2 if len(later) > 1 else math.isnan(found.uncertainty_ns)


def test_one_absolute_clock_pair_used_as_a_ratio() -> None:
    kernel_profile.reset()
    kernel_profile.record_clock_pair(cpu_ns=5_000_000_000, gpu_ticks=1_000_000_000)
    begin, end = (kernel_profile.convert_gpu_ticks_to_ns(1_000_000_000 + ticks) for ticks in (0, 50_000))
    assert end - begin == 50_000  # and not 250,000
    assert math.isnan(kernel_profile.clock_fit().uncertainty_ns)
    kernel_profile.record_clock_pair(cpu_ns=5_001_000_000, gpu_ticks=1_000_024_000)  # 24 MHz, as on Apple silicon
    begin, end = (kernel_profile.convert_gpu_ticks_to_ns(1_000_000_000 + ticks) for ticks in (0, 24_000))
    assert (begin, end) == (5_000_000_000, 5_001_000_000)
    assert math.isnan(kernel_profile.clock_fit().uncertainty_ns)  # two points always lie on a line
    kernel_profile.record_clock_pair(cpu_ns=5_002_000_100, gpu_ticks=1_000_048_000)
    assert 0 < kernel_profile.clock_fit().uncertainty_ns < 100
    kernel_profile.reset()


def test_without_any_pair_a_tick_is_a_nanosecond() -> None:
    kernel_profile.reset()
    assert kernel_profile.convert_gpu_ticks_to_ns(12_345) == 12_345


def test_the_uncertainty_is_what_the_pairs_say() -> None:
    jitter = [0, 40, -30, 20, -10]
    pairs = [ClockPair(1000 * n + off, 1000 * n, uncertainty_ns=5) for n, off in enumerate(jitter)]
    found = fit(pairs)
    assert 20 < found.uncertainty_ns < 60
    assert fit([ClockPair(0, 0, 70.0), ClockPair(10**9, 10**9, 80.0)]).uncertainty_ns == 80


@pytest.mark.parametrize(
    ("stated", "known"), [((0.0, 0.0), False), ((70.0, 0.0), False), ((0.0, 70.0), False), ((70.0, 1.0), True)]
)
def test_two_pairs_are_as_good_as_both_say(stated: tuple[float, float], known: bool) -> None:
    pairs = [ClockPair(0, 0, stated[0]), ClockPair(10**9, 10**6, stated[1])]
    for given_twice in (pairs, [*pairs, pairs[0]]):
        found = fit(given_twice)
        assert math.isnan(found.uncertainty_ns) is not known
        assert math.isnan(found.uncertainty_at(5)) is not known


def test_the_uncertainty_grows_beyond_the_pairs() -> None:
    found = fit([ClockPair(10**9, 2**60 + 10**6, 10.0), ClockPair(0, 2**60, 10.0)])
    assert [found.uncertainty_at(2**60 + step) for step in (0, 5, 10**6)] == [found.uncertainty_ns] * 3 == [10.0] * 3
    assert found.uncertainty_at(2**60 + 2 * 10**6) == found.uncertainty_at(2**60 - 10**6) == 30.0
    farther = [found.uncertainty_at(2**60 + 10**6 + step) for step in (1, 10**3, 10**6, 10**12)]
    assert farther == sorted(set(farther))
    assert math.isnan(fit([ClockPair(0, 0)]).uncertainty_at(10**9))
    assert SAME_CLOCK.uncertainty_at(2**62) == 0


def test_old_pairs_are_forgotten() -> None:
    clock = Clock()
    for n in range(1_000):
        clock.add(ClockPair(n * 10, n))
    assert len(clock) == 64
    assert clock.fit.ns_per_tick == pytest.approx(10)
    assert clock.fit.host_ns_of(np.array([1000, 2000])).tolist() == [10_000, 20_000]
