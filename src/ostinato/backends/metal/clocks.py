"""Device time in host time.

Command buffers report when they ran in seconds of the host's clock. Counter samples are ticks of the device's clock.
The device returns both clocks at once; this is done several times, between two readings of the host's clock, and a line
through the pairs maps ticks to host time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ..clock import Clock, ClockPair

_TRIES = 8
_RENEW_NS = 200_000_000
_ROUNDED_STEPS = (1000 / 24,)


class DeviceClock:
    """The line between the clocks of one device and the host."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self.line = Clock()
        self._first_ns = self._latest_ns = 0
        self._take()
        self._first_ns = self._latest_ns
        time.sleep(0.002)
        self._take()

    def renew(self) -> None:
        """Take another pair if the last is old, so that the line is not extrapolated far beyond its pairs."""
        if time.monotonic_ns() - self._latest_ns >= min(_RENEW_NS, self._latest_ns - self._first_ns):
            self._take()

    def _take(self) -> None:
        best: ClockPair | None = None
        for _ in range(_TRIES):
            before_ns = time.monotonic_ns()
            host, ticks = self._device.sampleTimestamps_gpuTimestamp_(None, None)
            after_ns = time.monotonic_ns()
            half_ns = max((after_ns - before_ns) / 2, 1.0)
            # Metal's host time is used only if it lies between our own readings.
            host_ns = host if before_ns <= host <= after_ns else round(before_ns + half_ns)
            if best is None or half_ns < best.uncertainty_ns:
                best = ClockPair(host_ns, ticks, half_ns)
        assert best is not None
        self.line.add(best)
        self._latest_ns = time.monotonic_ns()

    def step_ns(self) -> float:
        """The resolution of the device's clock."""
        readings = [self._device.sampleTimestamps_gpuTimestamp_(None, None)[1] for _ in range(32)]
        return step_of([after - before for before, after in pairwise(readings)]) * self.line.fit.ns_per_tick

    @property
    def uncertainty_ns(self) -> float:
        """The uncertainty of a sample in host time."""
        return self.line.fit.uncertainty_ns


def step_of(differences: Sequence[int]) -> float:
    """The step, in ticks, that differences between readings are multiples of.

    Apple's devices count at 24 MHz and report whole nanoseconds, so multiples of that step are rounded.
    """
    for step in _ROUNDED_STEPS:
        if any(differences) and all(
            abs(difference - round(difference / step) * step) <= 1 for difference in differences
        ):
            return step
    return float(max(math.gcd(*differences), 1))


def host_ns(seconds: float) -> int:
    """A command buffer's time in ns: Metal reports seconds of the clock that is Python's monotonic clock on a Mac."""
    return round(seconds * 1e9)
