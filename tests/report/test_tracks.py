"""On which lanes slices of host threads lie: the first on which they nest, however many there are."""

from __future__ import annotations

import json
from io import StringIO

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ostinato.profiling.analyse.columns import texts
from ostinato.profiling.report.trace import write_trace
from ostinato.profiling.report.tracks import HostSlices, nested
from synthetic import Synthetic

spans = st.tuples(st.integers(1, 2), st.integers(0, 40), st.integers(0, 30))


def slices_of(rows: list[tuple[int, int, int]]) -> HostSlices:
    """Slices (thread, begin, length), outer ones first."""
    thread, begin, length = np.array(rows, np.int64).reshape(-1, 3).T
    empty = texts([""] * len(rows))
    every = HostSlices(0 * thread, thread, begin, begin + length, empty, empty, 0 * thread - 1)
    return every.where(np.lexsort((-every.end_ns, every.begin_ns)))


@given(st.lists(spans, max_size=40), st.none() | st.integers(1, 4))
def test_a_slice_lies_on_the_first_lane_on_which_it_nests(rows: list[tuple[int, int, int]], most: int | None) -> None:
    slices = slices_of(rows)
    lanes: dict[tuple[int, int], list[int]] = {}
    for row, (lane, depth) in enumerate(zip(*nested(slices, most), strict=True)):
        thread, begin, end = (int(column[row]) for column in (slices.thread, slices.begin_ns, slices.end_ns))

        def around(number: int, thread: int = thread, begin: int = begin) -> list[int]:
            return [until for until in lanes.get((thread, number), []) if until > begin]

        fits = (number for number in range(len(rows)) if end <= min(around(number), default=end))
        first = next(fits)
        if most is not None and first >= most:
            assert lane == -1
        else:
            assert (lane, depth) == (first, len(around(first)))
            lanes.setdefault((thread, first), []).append(end)


def test_a_trace_of_very_many_waits_that_cross_is_written() -> None:
    made = Synthetic()
    for at in range(20_000):
        made.span("wait", at, 100_000 + at)
    text = StringIO()
    write_trace(made.columns(), text)
    drawn = [event for event in json.loads(text.getvalue())["traceEvents"] if event["ph"] == "X"]
    assert len({event["tid"] for event in drawn}) == 20_000
