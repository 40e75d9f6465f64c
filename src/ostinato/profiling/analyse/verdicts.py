"""Is B faster than A? A ratio of times with its interval, and the verdict that follows from it.

Times are compared by their logarithms, so that twice as fast and half as fast lie equally far from the same. A value
stands for a *unit*: a round of a live comparison, or a process. Units are what would be drawn anew if the measurement
were repeated, so intervals are computed over units, never over single runs.

The verdict is a test against a tolerance δ: SLOWER only if the whole interval lies beyond 1 + δ, FASTER only if it lies
below 1 / (1 + δ), and SAME only if it lies between them. Everything else is CANNOT TELL.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .statistics import Floats, Interval, batched, medians_by, student_quantile

LEAST_UNITS = 5
"""Units that each side needs for a verdict of its own."""
_TRIMMED = 0.1
"""The part of the values that is left out at each end, where they are many."""
_POWER = 0.9
"""How likely a comparison finds the smallest change that it names."""
_MOST_FREEDOM = 1000
_FURTHEST = 100.0
"""A logarithm beyond which a ratio says nothing, and would overflow soon."""


class Verdict(Enum):
    """What a comparison says of B, compared with A."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True, slots=True)
class Spread:
    """How much processes of one program differ: the standard deviation of the logarithm of their times."""

    deviation: float
    freedom: int
    """Degrees of freedom of that estimate."""


@dataclass(frozen=True, slots=True)
class Spreads:
    """How much processes were seen to differ on one device, in kernels of several lengths."""

    by_time: tuple[tuple[float, Spread], ...]
    """By the median time of the kernel in ns, shortest first."""
    calibrations: int = 1
    """How many calibrations were made; a single one does not show what changes over hours."""

    def at(self, time_ns: float) -> Spread | None:
        """The spread to expect of a kernel that takes this time: the largest of the next shorter kernel and all longer
        ones; None for a kernel shorter than all of them."""
        shorter = [number for number, (known_ns, _) in enumerate(self.by_time) if known_ns <= time_ns]
        if not shorter:
            return None
        return max((spread for _, spread in self.by_time[shorter[-1] :]), key=lambda spread: spread.deviation)


@dataclass(frozen=True, slots=True)
class Difference:
    """The logarithm of B's time over A's, with its standard error."""

    log: float
    error: float
    freedom: int
    resolution: float = 0.0
    """What the clock cannot tell apart, as a part of the time; it widens the interval on both sides."""

    def reach(self, confidence: float) -> float:
        """How far the interval of the logarithm reaches to either side."""
        return min(student_quantile(0.5 + confidence / 2, self.freedom) * self.error + self.resolution, _FURTHEST)

    def ratio(self, confidence: float) -> Interval:
        """B's time over A's."""
        reach = self.reach(confidence)
        return Interval(math.exp(self.log), math.exp(self.log - reach), math.exp(self.log + reach), confidence)

    def smallest_change(self, delta: float, confidence: float) -> float:
        """The change of B, as a part of A, that would have been found nine times in ten."""
        quantiles = student_quantile(0.5 + confidence / 2, self.freedom) + student_quantile(_POWER, self.freedom)
        return math.exp(min(math.log1p(delta) + quantiles * self.error + self.resolution, _FURTHEST)) - 1


def judge(ratio: Interval | None, delta: float) -> Verdict:
    """The verdict for an interval of B's time over A's; without an interval there is none."""
    if ratio is None or not all(map(math.isfinite, (ratio.low, ratio.high))):
        return Verdict.CANNOT_TELL
    low, high = 1 / (1 + delta), 1 + delta
    if ratio.low > high:
        return Verdict.SLOWER
    if ratio.high < low:
        return Verdict.FASTER
    return Verdict.SAME if low <= ratio.low and ratio.high <= high else Verdict.CANNOT_TELL


def simultaneous(confidence: float, rows: int) -> float:
    """The confidence of each of several intervals, so that all of them hold together with `confidence` (Bonferroni)."""
    return 1 - (1 - confidence) / max(rows, 1)


def combined(verdicts: Sequence[Verdict]) -> Verdict:
    """Of several rows: SLOWER if any is, then CANNOT TELL, then FASTER."""
    for verdict in (Verdict.SLOWER, Verdict.CANNOT_TELL, Verdict.FASTER):
        if verdict in verdicts:
            return verdict
    return Verdict.SAME if verdicts else Verdict.CANNOT_TELL


# --- differences ---------------------------------------------------------------------------------------------


def paired(
    a: ArrayLike, b: ArrayLike, groups: NDArray[np.int64] | None = None, turned: NDArray[np.bool_] | None = None
) -> Difference | None:
    """The difference of times that belong together in pairs, in the order in which they were measured.

    Pairs cancel what changes slowly, such as the clock of a core. Pairs of one group have something in common, and
    neighbours are alike: each group becomes one value, and without groups many neighbours do. In pairs that are
    `turned` B came first, which may cost or save something; a group counts both kinds alike. None for too few pairs.
    """
    first, second = np.asarray(a, np.float64), np.asarray(b, np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(second) - np.log(first)
    known = np.isfinite(logs)
    if groups is None:
        return _located(batched(logs[known]))
    size = int(groups.max(initial=0)) + 1
    kinds = (known,) if turned is None else (known & ~turned, known & turned)
    medians = np.stack([medians_by(groups[kind], logs[kind], size) for kind in kinds])
    both = medians.mean(axis=0)
    if np.isfinite(both).sum() < LEAST_UNITS:  # at the beginning no group has both kinds
        both = medians_by(groups[known], logs[known], size)
    return _located(both[np.isfinite(both)])


def unpaired(a: ArrayLike, b: ArrayLike) -> Difference | None:
    """The difference of times that were measured apart (Welch); None for too few of either."""
    sides = [_logs(a), _logs(b)]
    if min(side.size for side in sides) < LEAST_UNITS:
        return None
    variances = [float(side.var(ddof=1)) / side.size for side in sides]
    total = sum(variances)
    freedom = min(side.size for side in sides) - 1
    if total > 0:
        by_side = sum(each**2 / (side.size - 1) for each, side in zip(variances, sides, strict=True))
        freedom = max(int(total**2 / by_side), 1) if by_side else freedom
    log = float(sides[1].mean() - sides[0].mean())
    return Difference(log, math.sqrt(total), min(freedom, _MOST_FREEDOM))


def calibrated(a: ArrayLike, b: ArrayLike, spread: Spread) -> Difference | None:
    """The difference of a few times, by how much such times were seen to differ before; None without any."""
    sides = [_logs(a), _logs(b)]
    if not all(side.size for side in sides) or spread.freedom < 1:
        return None
    error = spread.deviation * math.sqrt(sum(1 / side.size for side in sides))
    return Difference(float(sides[1].mean() - sides[0].mean()), error, min(spread.freedom, _MOST_FREEDOM))


def _logs(values: ArrayLike) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        logs: Floats = np.log(np.asarray(values, np.float64))
    return logs[np.isfinite(logs)]


def _located(values: Floats) -> Difference | None:
    """The trimmed mean with its standard error (Yuen's, which takes trimming into account)."""
    count = values.size
    if count < LEAST_UNITS:
        return None
    ordered = np.sort(values)
    cut = int(_TRIMMED * count)
    kept = ordered[cut : count - cut]
    winsorised = np.clip(ordered, kept[0], kept[-1])
    error = math.sqrt((count - 1) * float(winsorised.var(ddof=1)) / (kept.size * (kept.size - 1)))
    return Difference(float(kept.mean()), error, kept.size - 1)
