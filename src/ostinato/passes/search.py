"""Searching for the number of dispatches a submission should have, by measuring whole replays of this graph here.

The best number is not monotone and differs from graph to graph and from device to device, so it is not computed. Every
replay begins with the same memory. Candidates take turns, in one direction and then in the other, so that a machine
that gets warmer or busier does so for all of them; the first round is thrown away. Half of the rounds choose a
candidate, the other half decide whether it really is faster than one submission: the best of many looks better than it
is on the rounds that it was chosen by.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .. import counters
from ..errors import ArgumentError
from ..graph.graph import Graph
from ..graph.replay import Replayable
from .report import Note, Report
from .snapshot import contents, pieces, put_back, restored, with_buffers
from .splitting import LEAST_FIRST, starts_of
from .touched import written

_LEAST_GAIN = 0.005
_STANDARD_ERRORS = 3.0


@dataclass(frozen=True, slots=True)
class _Candidate:
    name: str
    splits: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name} ({len(self.splits) + 1} submission{'s' if self.splits else ''})"


def search_split(
    graph: Graph,
    *,
    params: Mapping[str, Any] | None = None,
    candidates: Sequence[int] | None = None,
    rounds: int = 21,
) -> tuple[Graph, Report]:
    """Measure replays of the graph in submissions of so many dispatches, and keep the best if it beats one submission.

    `params` are the values (and buffers) of one replay. What the graph writes is put back. Without `candidates`, the
    graph is halved again and again, and the rule of `split_by_rule` is tried too.
    """
    started_ns = time.perf_counter_ns()
    if not isinstance(graph, Graph):
        raise ArgumentError(f"search_split: expected a Graph, got {graph!r}")
    if not isinstance(rounds, int) or rounds < 5:
        raise ArgumentError(f"search_split: rounds is a number, at least 5, not {rounds!r}")
    tried = _candidates(graph, candidates)
    times = _measured(*with_buffers(graph, params or {}), tried, rounds)
    best = chosen(times)
    medians = [statistics.median(one) / 1e3 for one in times]
    spreads = [_spread(one) / 1e3 for one in times]
    rows = [
        Note(one.splits, str(one), f"median {median:.1f} µs, spread {spread:.1f} µs")
        for one, median, spread in zip(tried, medians, spreads, strict=True)
    ]
    found = replace(graph, splits=tried[best].splits)
    if best:
        summary = f"{tried[best]} beats one submission: {medians[best]:.1f} µs instead of {medians[0]:.1f} µs a replay"
    else:
        summary = f"one submission is as good as any: {medians[0]:.1f} µs a replay"
    report = Report(
        "search_split",
        len(graph),
        len(graph),
        summary,
        (rows[best],) if found.splits != graph.splits else (),
        tuple(row for at, row in enumerate(rows) if at != best),
        {f"{one.name}, µs": median for one, median in zip(tried, medians, strict=True)},
        time.perf_counter_ns() - started_ns,
    )
    return found, report


def chosen(times: Sequence[Sequence[float]]) -> int:
    """Which candidate to take, from their times round by round; the first is one submission, and wins unless beaten."""
    choosing = [list(one[0::2]) for one in times]
    deciding = [list(one[1::2]) for one in times]
    best = min(range(len(times)), key=lambda at: statistics.median(choosing[at]))
    if best == 0:
        return 0
    gains = [one - other for one, other in zip(deciding[0], deciding[best], strict=True)]
    gain = statistics.median(gains)
    # Of a median: 1.2533 times that of a mean, which a normal spread gives from the median deviation.
    error = 1.2533 * _spread(gains) / math.sqrt(len(gains))
    real = gain > _STANDARD_ERRORS * error and gain > _LEAST_GAIN * statistics.median(deciding[0])
    return best if real else 0


def _spread(values: Sequence[float]) -> float:
    """The standard deviation, from the median deviation, which a few disturbed rounds do not change."""
    middle = statistics.median(values)
    return 1.4826 * statistics.median(abs(one - middle) for one in values)


def _candidates(graph: Graph, given: Sequence[int] | None) -> list[_Candidate]:
    total = graph.dispatches
    if given is None:
        sizes = [total >> halved for halved in range(1, 6) if total >> halved >= LEAST_FIRST // 8]
    else:
        for one in given:
            if isinstance(one, bool) or not isinstance(one, int) or one < 1:
                raise ArgumentError(f"search_split: a candidate is a number of dispatches, at least 1, not {one!r}")
        sizes = list(given)
    found: dict[tuple[int, ...], str] = {(): "all at once"}
    for one in sizes:
        found.setdefault(starts_of(graph, range(one, total, one)), f"every {one} dispatches")
    if given is None:
        first = max(LEAST_FIRST, -(-total // 10))
        found.setdefault(starts_of(graph, [first]), f"{first} dispatches, then the rest")
    return [_Candidate(name, splits) for splits, name in found.items()]


def _measured(graph: Graph, params: Mapping[str, Any], tried: Sequence[_Candidate], rounds: int) -> list[list[float]]:
    """Nanoseconds from the start of a replay to its end, by candidate and round."""
    runs = [Replayable(replace(graph, splits=one.splits)) for one in tried]
    times: list[list[float]] = [[] for _ in tried]
    with counters.uncounted(), restored(graph):
        windows = pieces(graph, written(graph))
        saved = contents(windows)
        for turn in range(rounds + 1):
            places = range(len(runs)) if turn % 2 else reversed(range(len(runs)))
            for at in places:
                put_back(windows, saved)
                started_ns = time.perf_counter_ns()
                runs[at].replay(label="search_split", **params).wait()
                spent_ns = time.perf_counter_ns() - started_ns
                if turn:
                    times[at].append(spent_ns)
    return times
