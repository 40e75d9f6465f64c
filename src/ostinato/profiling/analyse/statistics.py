"""Statistics of measured times: percentiles, intervals, and linear fits.

Only NumPy. Percentiles follow NumPy's linear definition. Intervals are two-sided; whatever draws random numbers takes a
seed, so the same recording always prints the same report. A figure that the sample is too small for is None or NaN,
never a guess. The tests hold all of it to SciPy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and the range that holds the true value with probability `confidence`."""

    estimate: float
    low: float
    high: float
    confidence: float = 0.95

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


# --- order ---------------------------------------------------------------------------------------------------


def percentiles(values: NDArray[Any], wanted: Sequence[float]) -> list[float]:
    """The wanted percentiles (0 to 100), interpolated linearly between neighbours; NaN of an empty sample."""
    count = values.size
    if count == 0:
        return [math.nan] * len(wanted)
    places = [(count - 1) * q / 100.0 for q in wanted]
    below = [math.floor(place) for place in places]
    # One partition places all neighbours; a full sort of millions of samples would cost several times as much.
    kept = np.partition(values, sorted({i for b in below for i in (b, min(b + 1, count - 1))}))
    found = []
    for place, b in zip(places, below, strict=True):
        low, high = float(kept[b]), float(kept[min(b + 1, count - 1)])
        found.append(low + (high - low) * (place - b))
    return found


def median(values: NDArray[Any]) -> float:
    """The middle value; NaN of an empty sample."""
    return percentiles(values, (50.0,))[0]


# --- intervals -----------------------------------------------------------------------------------------------


def bootstrap_medians(ordered: Floats, generator: np.random.Generator, resamples: int = _RESAMPLES) -> Floats:
    """The medians of `resamples` samples drawn with replacement from `ordered`, which is sorted.

    The order statistics of a resample are those of uniform numbers looked up in the sample, and those follow Beta
    distributions: a draw costs the same however long the sample is, and its distribution is the bootstrap's exactly.
    """
    count = ordered.size
    lower = (count + 1) // 2
    uniform = generator.beta(lower, count - lower + 1, resamples)
    first = ordered[np.minimum((uniform * count).astype(np.int64), count - 1)]
    if count % 2:
        return first
    # The next one up, given the lower middle one: the smallest of the uniforms that are left above it.
    rest = 1.0 - (1.0 - uniform) * generator.random(resamples) ** (1.0 / (count - lower))
    middle: Floats = (first + ordered[np.minimum((rest * count).astype(np.int64), count - 1)]) / 2
    return middle


def median_interval(values: ArrayLike, confidence: float = 0.95, seed: int = 0) -> Interval | None:
    """The median with its bootstrap interval; None for fewer than two values."""
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    if ordered.size < 2:
        return None
    drawn = bootstrap_medians(ordered, np.random.default_rng(seed))
    return _between(median(ordered), drawn, confidence)


def _between(estimate: float, drawn: Floats, confidence: float) -> Interval:
    tail = 50.0 * (1.0 - confidence)
    low, high = percentiles(drawn, (tail, 100.0 - tail))
    return Interval(estimate, low, high, confidence)


# --- fits ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fit:
    """A least-squares fit: one coefficient with its interval per column of the design, and what it leaves over."""

    coefficients: tuple[Interval, ...]
    standard_errors: tuple[float, ...]
    residual_deviation: float
    """Standard deviation of what the fit does not explain; NaN when there is nothing left to judge it by."""
    r_squared: float

    def predict(self, *columns: float) -> float:
        """What the fit expects for one row of the design."""
        return sum(one.estimate * value for one, value in zip(self.coefficients, columns, strict=True))


def least_squares(design: ArrayLike, observed: ArrayLike, confidence: float = 0.95) -> Fit:
    """Fits observed ≈ design @ coefficients. A constant term is a column of ones, if one is wanted.

    The intervals assume independent errors of one size. With no more rows than columns they are NaN: the line goes
    through every point and says nothing of its error. Columns that depend on each other are refused.
    """
    x = np.asarray(design, dtype=np.float64)
    y = np.asarray(observed, dtype=np.float64)
    if x.ndim != 2 or y.shape != (x.shape[0],):
        raise ValueError(f"a design of shape {x.shape} does not go with {y.shape} observations")
    rows, columns = x.shape
    if rows < columns or np.linalg.matrix_rank(x) < columns:
        raise ValueError(f"{rows} observations cannot tell {columns} coefficients apart")
    q, r = np.linalg.qr(x)
    coefficients = np.linalg.solve(r, q.T @ y)
    residuals = y - x @ coefficients
    freedom = rows - columns
    deviation = math.sqrt(float(residuals @ residuals) / freedom) if freedom else math.nan
    inverse = np.linalg.inv(r)
    errors = deviation * np.sqrt((inverse * inverse).sum(axis=1))
    reach = student_quantile(0.5 + confidence / 2, freedom) if freedom else math.nan
    spread = y - y.mean()
    total = float(spread @ spread)
    return Fit(
        tuple(
            Interval(float(c), float(c - reach * e), float(c + reach * e), confidence)
            for c, e in zip(coefficients, errors, strict=True)
        ),
        tuple(float(e) for e in errors),
        deviation,
        1.0 - float(residuals @ residuals) / total if total > 0 else math.nan,
    )


# --- Student's distribution ----------------------------------------------------------------------------------


def student_cdf(t: float, freedom: float) -> float:
    """The probability that Student's t with so many degrees of freedom is at most `t`."""
    tail = 0.5 * _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))
    return 1.0 - tail if t > 0 else tail


def student_quantile(probability: float, freedom: float) -> float:
    """The t below which Student's distribution holds this probability (0.5 to 1), by bisection."""
    if not 0.5 <= probability < 1.0 or freedom <= 0:
        raise ValueError(f"no quantile for probability {probability} and {freedom} degrees of freedom")
    low, high = 0.0, 1.0
    while student_cdf(high, freedom) < probability:
        high *= 2
    while high - low > 1e-12 * max(1.0, high):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if student_cdf(middle, freedom) < probability else (low, middle)
    return (low + high) / 2


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b)."""
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    if x > (a + 1) / (a + b + 2):  # the continued fraction converges quickly on the other side only
        return 1.0 - _incomplete_beta(b, a, 1.0 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    # Lentz's evaluation of the continued fraction.
    tiny = 1e-300
    c, d = 1.0, 1.0 / _away_from_zero(1.0 - (a + b) * x / (a + 1), tiny)
    fraction = d
    for m in range(1, 500):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / _away_from_zero(1.0 + numerator * d, tiny)
            c = _away_from_zero(1.0 + numerator / c, tiny)
            fraction *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return front * fraction


def _away_from_zero(value: float, tiny: float) -> float:
    return value if abs(value) > tiny else tiny
