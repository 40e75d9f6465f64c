"""At which revision a kernel became slower or faster, with a stated rate of false alarms.

The series of a kernel on a device has a value per revision: the mean over its runs of the logarithm of their medians,
without those that lie far off (a busy machine), and the error of that mean. The model is a level, a slow linear drift,
and steps. Steps are added one by one: the revision at which a step explains most, measured in standard errors and with
everything else fitted anew, is taken if that exceeds what chance reaches at any revision of the series with probability
`ALARM_RATE` (Bonferroni over the revisions, so the rate is an upper bound). The error is the larger one of two: what
the runs of a revision say, and how much successive revisions differ.

Libraries for change points (ruptures and its like) minimise a cost with a penalty. They know neither a drift beside the
steps nor errors of the values, and a penalty is not a rate of false alarms; so this is done here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from ..analyse.statistics import student_quantile

Floats = NDArray[np.float64]

ALARM_RATE = 0.002
"""The probability that a kernel without any change is reported."""
LEAST_RUNS = 3
"""Of a revision; one with fewer has no error, and is left out."""
SMALLEST = 0.005
"""Steps below this are not worth a line, however certain."""
_CAUTION = 4
"""The threshold is that of a rate so many times lower: leaving out runs far off makes the error of few runs a little
too small, and simulated series of 16 runs a revision gave up to 2.4 times the alarms of an exact error."""
_FAR_OFF = 2.75
_MOST_STEPS = 8
_WITH_DRIFT = 8
"""Revisions that a series needs before a drift can be told from a step."""
_MAD = 1.4826


@dataclass(frozen=True, slots=True)
class Level:
    """The runs of one revision."""

    mean: float
    """Of the logarithm of nanoseconds."""
    variance: float
    """Of one run."""
    runs: int
    """Those that count."""


@dataclass(frozen=True, slots=True)
class Step:
    """A change: at which place of the series it begins, by how much, and how certain that is."""

    at: int
    change: float
    """As a part: 0.03 is three per cent slower."""
    low: float
    """The 95 % interval."""
    high: float
    errors: float
    """How many standard errors the step is from none."""


def level(logs: Floats) -> Level:
    """The runs of a revision, without those far off."""
    near = logs
    for _ in range(2):  # the first look is itself widened by what lies far off
        middle = float(np.median(near))
        spread = _MAD * float(np.median(np.abs(near - middle)))
        near = near[np.abs(near - middle) <= _FAR_OFF * spread] if spread > 0 else near
    variance = float(near.var(ddof=1)) if near.size > 1 else 0.0
    return Level(float(near.mean()), variance, int(near.size))


def steps(levels: Sequence[Level], days: Floats, rate: float = ALARM_RATE) -> list[Step]:
    """The changes in a series; `days` says when each revision was first seen."""
    count = len(levels)
    if count < 2:
        return []
    values = np.array([each.mean for each in levels])
    runs = np.array([each.runs for each in levels], np.float64)
    deviation, freedom = _deviation(levels, values, np.sqrt(runs))
    if deviation <= 0:
        return []
    # A revision whose runs differ more than usual counts less.
    own = np.sqrt([each.variance for each in levels])
    weights = np.sqrt(runs) * np.minimum(1.0, deviation / np.maximum(own, 1e-12))
    threshold = _threshold(rate / _CAUTION / (count - 1), freedom)
    base = [np.ones(count)]
    if count >= _WITH_DRIFT and np.ptp(days) > 0:
        base.append((days - days.mean()) / np.ptp(days))
    candidates = (np.arange(count)[:, None] >= np.arange(1, count)[None, :]).astype(np.float64)
    found: list[int] = []
    while len(found) < min(_MOST_STEPS, count - 1):
        certain = _certainty(values, weights, [*base, *(candidates[:, at] for at in found)], candidates, deviation)
        certain[found] = 0.0
        best = int(np.argmax(np.abs(certain)))
        if abs(certain[best]) < threshold:
            break
        found.append(best)
        found = _settled(values, weights, base, candidates, found, deviation)
    return _described(values, weights, base, candidates, sorted(found), deviation, threshold)


def _threshold(probability: float, freedom: int) -> float:
    """How many errors a step must be from none; few runs are judged by Student's distribution."""
    if freedom > 200:
        return NormalDist().inv_cdf(1 - probability / 2)
    return student_quantile(1 - probability / 2, max(freedom, 1))


def _deviation(levels: Sequence[Level], values: Floats, weights: Floats) -> tuple[float, int]:
    """The deviation of one run, and on how many runs it rests."""
    freedom = sum(each.runs - 1 for each in levels)
    within = math.sqrt(sum(each.variance * (each.runs - 1) for each in levels) / max(freedom, 1))
    # Successive revisions: robust, so that the steps which are looked for do not count.
    apart = np.abs(np.diff(values)) / np.sqrt(1 / weights[1:] ** 2 + 1 / weights[:-1] ** 2)
    between = _MAD * float(np.median(apart)) if apart.size >= _WITH_DRIFT else 0.0
    return max(within, between), freedom


def _certainty(values: Floats, weights: Floats, fitted: list[Floats], tried: Floats, deviation: float) -> Floats:
    """Of each candidate, how many standard errors its step would be from none beside all that is fitted."""
    design = np.stack(fitted, axis=1) * weights[:, None]
    q, _ = np.linalg.qr(design)
    left = values * weights
    left = left - q @ (q.T @ left)
    rest = tried * weights[:, None]
    rest = rest - q @ (q.T @ rest)
    size = np.sqrt((rest * rest).sum(axis=0))
    certain: Floats = np.where(size > 1e-9, (rest * left[:, None]).sum(axis=0) / np.maximum(size, 1e-9), 0.0)
    return certain / deviation


def _settled(
    values: Floats, weights: Floats, base: list[Floats], candidates: Floats, found: list[int], deviation: float
) -> list[int]:
    """Each step moved to where it explains most beside the others."""
    for _ in range(3):
        before = list(found)
        for number in range(len(found)):
            others = [candidates[:, at] for at in (*found[:number], *found[number + 1 :])]
            certain = np.abs(_certainty(values, weights, [*base, *others], candidates, deviation))
            certain[[at for place, at in enumerate(found) if place != number]] = 0.0
            found[number] = int(np.argmax(certain))
        if found == before:
            break
    return found


def _described(
    values: Floats, weights: Floats, base: list[Floats], candidates: Floats, found: list[int], deviation: float,
    threshold: float,
) -> list[Step]:  # fmt: skip
    """The steps with their sizes, from one fit; those that are no longer certain beside the others are left out."""
    while found:
        design = np.stack([*base, *(candidates[:, at] for at in found)], axis=1) * weights[:, None]
        q, r = np.linalg.qr(design)
        inverse = np.linalg.inv(r)
        sizes = (inverse @ (q.T @ (values * weights)))[len(base) :]
        errors = deviation * np.sqrt((inverse * inverse).sum(axis=1))[len(base) :]
        certain = np.abs(sizes) / errors
        weakest = int(np.argmin(certain))
        if certain[weakest] >= threshold:
            return [
                Step(at + 1, math.expm1(size), math.expm1(size - reach), math.expm1(size + reach), float(sure))
                for at, size, reach, sure in zip(found, sizes, 1.96 * errors, certain, strict=True)
                if abs(size) >= SMALLEST
            ]
        del found[weakest]
    return []
