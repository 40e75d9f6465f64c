"""Device time in host time: a straight line through pairs of readings, with its uncertainty.

A pair is one reading of both clocks, accurate to within the time the reading took. Two pairs give rate and offset; more
give a fit, whose residuals are part of the uncertainty. Two points always lie on a line, so a line through two pairs
has a known error only if both pairs state their own. One pair gives an offset only: the rate is then taken to be one
nanosecond per tick, and the uncertainty is unknown. Beyond the pairs the uncertainty grows with the distance. Readings
are large integers, so all arithmetic is relative to the first pair.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

# Older pairs say little about the current rate: clocks drift with temperature.
_KEPT_PAIRS = 64


@dataclass(frozen=True, slots=True)
class ClockPair:
    """Both clocks at one moment."""

    host_ns: int
    ticks: int
    uncertainty_ns: float = 0.0
    """How far apart in time the two readings may be."""


@dataclass(frozen=True, slots=True)
class ClockFit:
    """host_ns = origin_host_ns + (ticks - origin_ticks) * ns_per_tick, to within `uncertainty_at(ticks)`."""

    origin_host_ns: int
    origin_ticks: int
    ns_per_tick: float
    uncertainty_ns: float
    """Between the first and the last pair. NaN when it is unknown: with fewer than two pairs, or with two of which one
    does not state its own."""
    pairs: int
    first_ticks: int = 0
    last_ticks: int = 0
    """The range of the pairs, with `first_ticks`."""

    def uncertainty_at(self, ticks: int) -> float:
        """The uncertainty at a device time: `uncertainty_ns` between the pairs, growing with the distance from them."""
        beyond = max(self.first_ticks - ticks, ticks - self.last_ticks, 0)
        span = self.last_ticks - self.first_ticks
        if not beyond or not span:
            return self.uncertainty_ns
        # If both ends may be off by the uncertainty, the slope may be off by twice that over the length.
        return self.uncertainty_ns * (1 + 2 * beyond / span)

    def host_ns(self, ticks: int) -> int:
        """The host time of a device time."""
        return self.origin_host_ns + round((ticks - self.origin_ticks) * self.ns_per_tick)

    def host_ns_of(self, ticks: np.ndarray) -> np.ndarray:
        """The host times of an array of device times."""
        elapsed = (ticks.astype(np.int64) - self.origin_ticks).astype(np.float64)
        return self.origin_host_ns + np.rint(elapsed * self.ns_per_tick).astype(np.int64)


SAME_CLOCK = ClockFit(0, 0, 1.0, 0.0, 0)
"""For a device that reads the host's own clock."""


def fit(pairs: Iterable[ClockPair]) -> ClockFit:
    """The line through pairs of readings."""
    known = list(pairs)
    if not known:
        return ClockFit(0, 0, 1.0, math.nan, 0)
    first = known[0]
    if len({pair.ticks for pair in known}) < 2:
        return ClockFit(first.host_ns, first.ticks, 1.0, math.nan, len(known))
    ticks = np.array([pair.ticks - first.ticks for pair in known], np.float64)
    host = np.array([pair.host_ns - first.host_ns for pair in known], np.float64)
    centred = ticks - ticks.mean()
    rate = float((centred * (host - host.mean())).sum() / (centred**2).sum())
    offset = float(host.mean() - rate * ticks.mean())
    residual = float(np.abs(host - (offset + rate * ticks)).max())
    uncertainty = max(residual, max(pair.uncertainty_ns for pair in known))
    distinct = len({(pair.host_ns, pair.ticks) for pair in known})
    if distinct <= 2 and not all(pair.uncertainty_ns > 0 for pair in known):
        uncertainty = math.nan
    first_ticks, last_ticks = min(pair.ticks for pair in known), max(pair.ticks for pair in known)
    origin = first.host_ns + round(offset)
    return ClockFit(origin, first.ticks, rate, uncertainty, len(known), first_ticks, last_ticks)


class Clock:
    """The pairs of one device, and the line through the latest of them."""

    __slots__ = ("_fit", "_pairs")

    def __init__(self) -> None:
        self._pairs: deque[ClockPair] = deque(maxlen=_KEPT_PAIRS)
        self._fit: ClockFit | None = None

    def add(self, pair: ClockPair) -> None:
        """Add a pair of readings."""
        self._pairs.append(pair)
        self._fit = None

    @property
    def fit(self) -> ClockFit:
        """The line through the pairs so far."""
        line = self._fit
        if line is None:
            line = self._fit = fit(self._pairs)
        return line

    def clear(self) -> None:
        """Forget all pairs."""
        self._pairs.clear()
        self._fit = None

    def __len__(self) -> int:
        return len(self._pairs)

    def __repr__(self) -> str:
        return f"Clock({len(self)} pairs, {self.fit.ns_per_tick:g} ns per tick, ± {self.fit.uncertainty_ns:g} ns)"
