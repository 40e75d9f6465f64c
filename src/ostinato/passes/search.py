"""Searching for the number of dispatches that a submission should have, by measuring replays of the graph.

The time is not monotone in that number and depends on the graph and the device, so it is measured. Every replay starts
from the same memory. Candidates take turns, forwards and then backwards, so that a machine that gets warmer or busier
affects all of them alike; the first round is a warm-up. Half of the rounds choose the fastest candidate. The other half
decide whether it is really faster than one submission, since the best of many looks better than it is on the rounds
that chose it.
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
    """Measure replays of the graph in submissions of different sizes, and keep the best if it beats one submission.

    `candidates` are numbers of dispatches per submission. By default the graph is halved repeatedly, and the rule of
    `split_by_rule` is tried too. `params` are the values (and buffers) of one replay. Memory that the graph writes is
    restored afterwards.
    """
    started_ns = time.perf_counter_ns()
    if not isinstance(graph, Graph):
        raise ArgumentError(f"search_split: expected a Graph, got {graph!r}")
    if not isinstance(rounds, int) or rounds < 5:
        raise ArgumentError(f"search_split: rounds is a number, at least 5, not {rounds!r}")
    tried = _candidates(graph, candidates)
    times = _measured(*with_buffers(graph, params or {}), tried, rounds)
    best = chosen(times)
    medians = [statistics.median(samples) / 1e3 for samples in times]
    spreads = [_spread(samples) / 1e3 for samples in times]
    rows = [
        Note(candidate.splits, str(candidate), f"median {median:.1f} µs, spread {spread:.1f} µs")
        for candidate, median, spread in zip(tried, medians, spreads, strict=True)
    ]
    result = replace(graph, splits=tried[best].splits)
    if best:
        gain = f"{medians[best]:.1f} µs instead of {medians[0]:.1f} µs per replay"
        summary = f"{tried[best]} beats one submission: {gain}"
    else:
        summary = f"no split beats one submission: {medians[0]:.1f} µs per replay"
    report = Report(
        "search_split",
        len(graph),
        len(graph),
        summary,
        (rows[best],) if result.splits != graph.splits else (),
        tuple(row for at, row in enumerate(rows) if at != best),
        {f"{candidate.name}, µs": median for candidate, median in zip(tried, medians, strict=True)},
        time.perf_counter_ns() - started_ns,
    )
    return result, report


def chosen(times: Sequence[Sequence[float]]) -> int:
    """The index of the best candidate, from the times of each by round; 0, one submission, unless another beats it."""
    choosing = [list(samples[0::2]) for samples in times]
    deciding = [list(samples[1::2]) for samples in times]
    best = min(range(len(times)), key=lambda at: statistics.median(choosing[at]))
    if best == 0:
        return 0
    gains = [whole - split for whole, split in zip(deciding[0], deciding[best], strict=True)]
    gain = statistics.median(gains)
    # The standard error of a median is 1.2533 times that of a mean, for normally distributed times.
    error = 1.2533 * _spread(gains) / math.sqrt(len(gains))
    real = gain > _STANDARD_ERRORS * error and gain > _LEAST_GAIN * statistics.median(deciding[0])
    return best if real else 0


def _spread(values: Sequence[float]) -> float:
    """The standard deviation, estimated from the median deviation, which is robust against a few disturbed rounds."""
    middle = statistics.median(values)
    return 1.4826 * statistics.median(abs(value - middle) for value in values)


def _candidates(graph: Graph, given: Sequence[int] | None) -> list[_Candidate]:
    total = graph.dispatches
    if given is None:
        sizes = [total >> halved for halved in range(1, 6) if total >> halved >= LEAST_FIRST // 8]
    else:
        for size in given:
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise ArgumentError(f"search_split: a candidate is a number of dispatches, at least 1, not {size!r}")
        sizes = list(given)
    names: dict[tuple[int, ...], str] = {(): "all at once"}
    for size in sizes:
        names.setdefault(starts_of(graph, range(size, total, size)), f"every {size} dispatches")
    if given is None:
        first = max(LEAST_FIRST, -(-total // 10))
        names.setdefault(starts_of(graph, [first]), f"{first} dispatches, then the rest")
    return [_Candidate(name, splits) for splits, name in names.items()]


def _measured(graph: Graph, params: Mapping[str, Any], tried: Sequence[_Candidate], rounds: int) -> list[list[float]]:
    """Nanoseconds from the start of a replay to its end, by candidate and round."""
    runs = [Replayable(replace(graph, splits=candidate.splits)) for candidate in tried]
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
