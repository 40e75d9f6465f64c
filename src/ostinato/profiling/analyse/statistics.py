"""Statistics of measured times: percentiles, intervals, and linear fits.

Percentiles follow NumPy's linear definition. Intervals are two-sided. Random numbers are drawn from a fixed seed, so
the same recording always prints the same report. A figure that the sample is too small for is None or NaN.
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
_BATCHES = 30


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
    ranked = []
    for place, b in zip(places, below, strict=True):
        low, high = float(kept[b]), float(kept[min(b + 1, count - 1)])
        ranked.append(low + (high - low) * (place - b))
    return ranked


def median(values: NDArray[Any]) -> float:
    """The middle value; NaN of an empty sample."""
    return percentiles(values, (50.0,))[0]


def order_of(code: NDArray[Any], size: int) -> NDArray[np.int64]:
    """The stable order of codes below `size`. Sixteen bits are sorted by radix, in a fraction of the time."""
    return np.argsort(code.astype(np.uint16) if size <= 1 << 16 else code, kind="stable")


def split_by(code: NDArray[Any], values: NDArray[Any], size: int) -> list[NDArray[Any]]:
    """The values of each code from 0 to `size` - 1, in the order in which they stand."""
    ends = np.cumsum(np.bincount(code, minlength=size))
    return np.split(values[order_of(code, size)], ends[:-1]) if size else []


def medians_by(code: NDArray[Any], values: NDArray[Any], size: int) -> Floats:
    """The median of the values of each code from 0 to `size` - 1; NaN for a code without any."""
    order = np.lexsort((values, code))
    counts = np.bincount(code, minlength=size)
    first, ordered = np.cumsum(counts) - counts, np.asarray(values, np.float64)[order]
    medians: Floats = np.full(size, np.nan)
    some = counts > 0
    low, high = first[some] + (counts[some] - 1) // 2, first[some] + counts[some] // 2
    medians[some] = (ordered[low] + ordered[high]) / 2
    return medians


def batched(values: Floats, batches: int = _BATCHES) -> Floats:
    """Medians of neighbours where there are many values, else the values.

    Measurements that follow each other are alike, and an interval over single ones would be too narrow.
    """
    if values.size < 2 * batches:
        return values
    return np.array([np.median(batch) for batch in np.array_split(values, batches)])


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
    tail = 50.0 * (1.0 - confidence)
    low, high = percentiles(bootstrap_medians(ordered, np.random.default_rng(seed)), (tail, 100.0 - tail))
    return Interval(median(ordered), low, high, confidence)


# --- fits ----------------------------------------------------------------------------------------------------


def least_squares(design: ArrayLike, observed: ArrayLike, confidence: float = 0.95) -> tuple[Interval, ...]:
    """The least-squares fit of observed ≈ design @ coefficients: one coefficient per column, each with its interval.

    For a constant term, pass a column of ones. The intervals assume independent errors of equal variance. With no more
    rows than columns they are NaN. Raises `ValueError` for linearly dependent columns.
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
    return tuple(
        Interval(float(c), float(c - reach * e), float(c + reach * e), confidence)
        for c, e in zip(coefficients, errors, strict=True)
    )


def student_quantile(probability: float, freedom: int) -> float:
    """The t below which Student's distribution holds `probability` (0.5 to 1), by bisection over atan(t / √freedom)."""
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < 2 * probability - 1 else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def _within(angle: float, freedom: int) -> float:
    """The probability of |t| < √freedom · tan(angle): a finite sum (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    odd = freedom % 2
    total, term = 0.0, math.cos(angle) ** odd
    for power in range(odd, freedom - 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (power + 1) / (power + 2)
    return (angle + math.sin(angle) * total) * 2 / math.pi if odd else math.sin(angle) * total
