"""Change points: dated to the right revision, and seldom where there are none."""

from __future__ import annotations

import numpy as np
import pytest

from ostinato.profiling.fleet.changes import ALARM_RATE, level, steps

RUNS = 20


def series(
    random: np.random.Generator, revisions: int, changes: dict[int, float], noise: float = 0.02, drift: float = 0.0
) -> list[np.ndarray]:
    """Logarithms of the runs of each revision, with busy runs among them."""
    made = []
    for revision in range(revisions):
        logs = 10 + random.normal(0, noise, RUNS) + drift * revision
        logs += sum(np.log1p(size) for at, size in changes.items() if revision >= at)
        made.append(np.where(random.random(RUNS) < 0.05, logs + np.log(random.uniform(1.1, 1.5, RUNS)), logs))
    return made


def found(runs: list[np.ndarray], days: np.ndarray | None = None) -> list[tuple[int, float]]:
    at = np.arange(len(runs), dtype=float) if days is None else days
    return [(step.at, step.change) for step in steps([level(each) for each in runs], at)]


@pytest.mark.parametrize("drift", [0.0, 0.0004])
def test_a_regression_of_three_per_cent_is_dated_to_its_revision(drift: float) -> None:
    random = np.random.default_rng(1)
    right = 0
    for number in range(100):
        at = 4 + number % 32
        steps_found = found(series(random, 40, {at: 0.03}, drift=drift))
        right += [place for place, _ in steps_found] == [at]
    assert right >= 95


def test_a_series_without_a_change_is_reported_as_seldom_as_promised() -> None:
    random = np.random.default_rng(2)
    alarms = sum(bool(found(series(random, 30, {}, drift=0.0005))) for _ in range(1000))
    # 1,000 series at the promised rate give 2 on average, and more than 8 once in 4,000 times.
    assert alarms <= 8
    assert ALARM_RATE == 0.002


def test_several_changes_are_found_together_with_their_sizes() -> None:
    steps_found = found(series(np.random.default_rng(3), 50, {10: 0.1, 25: -0.06, 40: 0.04}))
    assert [at for at, _ in steps_found] == [10, 25, 40]
    assert [change for _, change in steps_found] == pytest.approx([0.1, -0.06, 0.04], abs=0.012)


def test_the_interval_holds_the_true_change() -> None:
    random = np.random.default_rng(4)
    inside = 0
    for _ in range(100):
        made = steps([level(each) for each in series(random, 20, {10: 0.05})], np.arange(20.0))
        inside += any(step.at == 10 and step.low <= 0.05 <= step.high for step in made)
    assert inside >= 88


def test_a_drift_alone_is_no_change_but_a_step_beside_it_is() -> None:
    random = np.random.default_rng(5)
    assert found(series(random, 30, {}, drift=0.01)) == []
    assert [at for at, _ in found(series(random, 30, {12: 0.05}, drift=0.01))] == [12]


@pytest.mark.parametrize("revisions", [0, 1, 2, 3])
def test_short_and_constant_series_give_no_errors(revisions: int) -> None:
    assert found([np.full(5, 3.0)] * revisions) == []
    large = [np.random.default_rng(number).normal(10, 0.02, 20) for number in range(revisions)]
    assert found(large) == []


def test_two_revisions_are_enough_for_a_large_step() -> None:
    random = np.random.default_rng(6)
    assert [at for at, _ in found(series(random, 2, {1: 0.2}))] == [1]


def test_runs_far_off_do_not_move_a_level() -> None:
    logs = np.append(np.random.default_rng(7).normal(5, 0.02, 19), 5.6)
    assert level(logs).mean == pytest.approx(float(logs[:-1].mean()), abs=0.01)
    assert level(logs).runs < 20
