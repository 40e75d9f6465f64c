"""Device time in host time.

Command buffers tell when they ran in seconds of the host's own clock. Counter samples are ticks of the device's: the
device is asked for both clocks several times, between two readings of ours, and a line through the pairs maps them.
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
        """Take another pair if the last is old: never so that the line would be used far beyond its pairs."""
        if time.monotonic_ns() - self._latest_ns >= min(_RENEW_NS, self._latest_ns - self._first_ns):
            self._take()

    def _take(self) -> None:
        best: ClockPair | None = None
        for _ in range(_TRIES):
            before_ns = time.monotonic_ns()
            host, ticks = self._device.sampleTimestamps_gpuTimestamp_(None, None)
            after_ns = time.monotonic_ns()
            half_ns = max((after_ns - before_ns) / 2, 1.0)
            # What Metal calls host time is believed only where it lies between our own readings.
            host_ns = host if before_ns <= host <= after_ns else round(before_ns + half_ns)
            if best is None or half_ns < best.uncertainty_ns:
                best = ClockPair(host_ns, ticks, half_ns)
        assert best is not None
        self.line.add(best)
        self._latest_ns = time.monotonic_ns()

    def step_ns(self) -> float:
        """The shortest time that the device's clock can tell."""
        readings = [self._device.sampleTimestamps_gpuTimestamp_(None, None)[1] for _ in range(32)]
        return step_of([after - before for before, after in pairwise(readings)]) * self.line.fit.ns_per_tick

    @property
    def uncertainty_ns(self) -> float:
        """How well a sample is known in host time."""
        return self.line.fit.uncertainty_ns


def step_of(differences: Sequence[int]) -> float:
    """What differences between readings are multiples of, in ticks.

    Apple's own devices count at 24 MHz and tell it in whole nanoseconds, so that a step shows only up to rounding.
    """
    for step in _ROUNDED_STEPS:
        if any(differences) and all(abs(one - round(one / step) * step) <= 1 for one in differences):
            return step
    return float(max(math.gcd(*differences), 1))


def host_ns(seconds: float) -> int:
    """A time of a command buffer: seconds of the clock that Python calls monotonic on a Mac."""
    return round(seconds * 1e9)
