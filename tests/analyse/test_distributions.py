"""Histograms and series that are small enough to draw, against a plain loop over all values."""

from __future__ import annotations

from statistics import median

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ostinato.profiling.analyse.distributions import BINS, histograms, series

Values = list[tuple[int, int, int, bool]]
"""Kind, moment, value, and whether it is set aside."""


def values() -> st.SearchStrategy[Values]:
    durations = st.one_of(st.integers(0, 100), st.integers(0, 10**12))
    return st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50), durations, st.booleans()), max_size=60)


def arrays(given: Values) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    table = np.array([row[:3] for row in given], np.int64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2], np.array([row[3] for row in given], bool)


@given(values())
def test_every_value_is_in_the_bin_whose_edges_hold_it(given: Values) -> None:
    code, _, duration, _ = arrays(given)
    bins = histograms(code, duration, 4)
    for kind in range(4):
        mine = np.maximum(duration[code == kind], 1)
        assert bins.counts[kind].sum() == mine.size
        if not mine.size:
            assert np.isnan(bins.low_ns[kind])
            continue
        low, high = bins.low_ns[kind], bins.high_ns[kind]
        assert low == mine.min()
        assert high >= mine.max()
        for bin_, reached in enumerate(np.cumsum(bins.counts[kind]), 1):
            edge = low * (high / low) ** (bin_ / BINS)
            assert (mine < edge * (1 - 1e-9)).sum() <= reached <= (mine <= edge * (1 + 1e-9)).sum()


@given(values(), st.integers(1, 8))
def test_a_series_has_least_median_and_largest_of_neighbours(given: Values, most: int) -> None:
    made, largest = series(*arrays(given), size=4, most=most)
    for kind in range(4):
        rows = [row for row, value in enumerate(given) if value[0] == kind]
        assert largest[kind] == max(rows, key=lambda row: (given[row][2], -given[row][1], -row), default=-1)
        rows.sort(key=lambda row: given[row][1])
        groups: dict[int, list[int]] = {}
        for number, row in enumerate(rows):
            groups.setdefault(number * min(len(rows), most) // len(rows), []).append(row)
        points = range(made.first[kind], made.first[kind + 1])
        assert len(points) == len(groups) <= most
        for point, group in zip(points, groups.values(), strict=True):
            durations = [given[row][2] for row in group]
            assert made.at_ns[point] == given[group[0]][1]
            assert made.low_ns[point] == min(durations)
            assert made.median_ns[point] == int(median(durations))
            assert made.high_ns[point] == max(durations)
            aside = [given[row][3] for row in group]
            assert made.aside[point] == (2 if all(aside) else 1 if any(aside) else 0)


def test_the_medians_of_more_groups_than_a_page_has_are_right() -> None:
    size = 300_000
    code = np.arange(size)
    values = np.where(code % 2, 1_000_000_007, 3)
    of_each, _ = series(code, np.zeros(size, np.int64), values, np.zeros(size, bool), size)
    assert np.array_equal(of_each.median_ns, values)
