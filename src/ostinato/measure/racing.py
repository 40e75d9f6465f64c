"""Which candidates are faster than the first choice: successive halving, then a final that decides.

Candidates are timed in heats, in turns with the first choice, and the faster half goes on with twice the time per
candidate: one that is far behind costs little, and each is judged by its ratio to the first choice in the same turns,
so that a slow moment of the machine meets both. That picks at most four finalists. The final times those anew, as
`compare` does, and only the final decides: the best of many looks better than it is on the turns that picked it. Its
intervals hold for all finalists together, so the probability of naming a candidate that is not faster stays below the
stated error, however many were tried.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .. import counters
from ..passes.snapshot import restored
from ..profiling.analyse.comparison import Key, Row, compare_times, joined_times
from ..profiling.analyse.verdicts import LEAST_UNITS, Verdict, simultaneous
from .rounds import Rounds
from .subjects import Contender

FINALISTS = 4
_HEAT = 8
"""Candidates in turns with the first choice; more would make turns so long that the machine changes within one."""
_SCREENING = 0.5
"""The part of the time that picks the finalists."""
_VISIT_S = 0.002
"""A visit lasts about as long, or one replay."""
_MOST_REPLAYS = 25
_REPLAYS_OF_A_FINAL = 5 + 4 * LEAST_UNITS
"""What each contender of a final is replayed at least: to warm up, and for enough rounds."""
_WHOLE = Key("graph", "whole")

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """How long to measure, and when a candidate counts as faster."""

    seconds: float
    delta: float
    """It must save more than this part of the time."""
    confidence: float
    """Of all intervals together."""


def race(
    first: Contender, others: Sequence[Contender], limits: Limits, progress: Progress
) -> tuple[dict[int, float], dict[int, Row]]:
    """Time the others beside the first: the ratios that picked the finalists, and the comparison of each finalist.

    Both are by number. Where the time does not suffice for all, the last are not timed.
    """
    seconds = limits.seconds
    end = time.monotonic() + seconds
    replay_s = _seconds_of(first)
    alive = list(range(min(len(others), max(int(seconds * _SCREENING / (2 * replay_s)), 1))))
    ratios: dict[int, float] = {}
    rungs = math.ceil(math.log2(max(len(alive) / FINALISTS, 1)))
    for rung in range(rungs):
        heats = [alive[at : at + _HEAT] for at in range(0, len(alive), _HEAT)]
        heat_s = seconds * _SCREENING / rungs / len(heats)
        for heat in heats:
            progress(f"{len(alive)} candidates left, round {rung + 1} of {rungs + 1}")
            ratios.update(zip(heat, _heat(first, [others[number] for number in heat], heat_s), strict=True))
        going_on = max(math.ceil(len(alive) / 2), FINALISTS) if rung + 1 < rungs else FINALISTS
        alive = sorted(sorted(alive, key=ratios.__getitem__)[:going_on])
    left = max(end - time.monotonic(), 0.0)
    fitting = int(left / (_REPLAYS_OF_A_FINAL * replay_s)) - 1
    if ratios:
        alive = sorted(sorted(alive, key=ratios.__getitem__)[: max(fitting, 1)])
    if not alive:
        return ratios, {}
    progress(f"{len(alive)} candidates left, the final")
    rows = _final(first, [others[number] for number in alive], replace(limits, seconds=left))
    return ratios, dict(zip(alive, rows, strict=True))


def _seconds_of(contender: Contender) -> float:
    """A replay, on the host's clock."""
    with counters.uncounted(), restored(contender.run.graph):
        seconds = []
        for _ in range(2):
            began = time.perf_counter()
            contender.run.replay(**contender.values).wait()
            seconds.append(time.perf_counter() - began)
        return min(seconds)


def _heat(first: Contender, others: Sequence[Contender], seconds: float) -> list[float]:
    """The time of each of the others as a part of the first one's: the median over turns, of which one warms up."""
    contenders = (first, *others)
    turns: list[list[float]] = []
    with counters.uncounted(), restored(*(each.run.graph for each in contenders)):
        end = time.monotonic() + seconds
        while len(turns) < 2 or time.monotonic() < end:
            order = range(len(contenders)) if len(turns) % 2 else reversed(range(len(contenders)))
            times = {number: _visit(contenders[number]) for number in order}
            turns.append([times[number] for number in range(len(contenders))])
    measured = np.array(turns[1:])
    return [float(ratio) for ratio in np.median(measured[:, 1:] / measured[:, :1], axis=0)]


def _visit(contender: Contender) -> float:
    """The median of a few replays in a row, in ns."""
    times: list[float] = []
    end = time.monotonic() + _VISIT_S
    while not times or (len(times) < _MOST_REPLAYS and time.monotonic() < end):
        began_ns = time.perf_counter_ns()
        submission = contender.run.replay(**contender.values)
        submission.wait()
        spent_ns = time.perf_counter_ns() - began_ns
        ran = submission.gpu_time
        times.append(float(spent_ns if ran is None else max(ran[1] - ran[0], 1)))
    return float(np.median(times))


def _final(first: Contender, others: Sequence[Contender], limits: Limits) -> list[Row]:
    """Each of the others, compared with the first; it looks early, and ends when all are decided, as `compare` does."""
    with Rounds((first, *others), limits.seconds) as rounds:
        for error in rounds.looks(least=LEAST_UNITS):
            level = simultaneous(1 - (1 - limits.confidence) * error, len(others))
            rows = _compared(rounds, level, limits.delta)
            if all(_decided(row, limits.delta) for row in rows):
                break
    return rows


def _decided(row: Row, delta: float) -> bool:
    """Whether a candidate is surely faster by more than `delta`, or surely not."""
    return row.ratio is not None and (row.verdict is Verdict.FASTER or row.ratio.low > 1 / (1 + delta))


def _compared(rounds: Rounds, level: float, delta: float) -> list[Row]:
    """Whole replays of each contender but the first, compared with those of the first."""
    columns, of_contender, of_round = rounds.columns()
    replays = [rounds.replays(columns, of_contender, number) for number in range(len(rounds.contenders))]
    counts = rounds.counting(columns, of_contender)
    times = [{_WHOLE: joined_times(columns, each, of_round, rounds.count, counts)} for each in replays]
    groups, turned = rounds.group_of_round(), rounds.turned(np.arange(rounds.count))
    return [
        compare_times(
            times[0], side, unit="round", paired=True, groups=groups, turned=turned, delta=delta, confidence=level
        ).rows[0]
        for side in times[1:]
    ]
