"""How the next token is chosen: the most likely one, or one that is drawn."""

from __future__ import annotations

import math

import numpy as np

from ..errors import ArgumentError

LEAST_TEMPERATURE = 1e-3
"""Below it, the most likely token is all that could be drawn."""


class Sampling:
    """The settings of `Decoder.generate`, checked, and the random numbers that follow from its seed."""

    def __init__(self, temperature: float, top_p: float, seed: int | None) -> None:
        for name, value, most in (("temperature", temperature, 100.0), ("top_p", top_p, 1.0)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
                raise ArgumentError(f"generate: {name} is a number from 0 to {most:g}, not {value!r}")
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
            raise ArgumentError(f"generate: seed is a non-negative integer, not {seed!r}")
        self.greedy = temperature < LEAST_TEMPERATURE
        self._fixed = {"temperature": float(temperature), "top_p": float(top_p)}
        self._random = np.random.default_rng(seed)

    def values(self) -> dict[str, float]:
        """The arguments of `ops.sample_top_p` for the next token."""
        # A number that float32 would round up to 1 is drawn as the largest below it.
        drawn = min(self._random.random(), math.nextafter(1.0, 0.0) - 2.0**-25)
        return {"random": drawn, **self._fixed}
