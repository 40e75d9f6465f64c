"""Checks of the numbers that a measurement is asked for."""

from __future__ import annotations

import math

from ..errors import ArgumentError


def check_share(name: str, value: float) -> None:
    """Raises for anything but a part between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise ArgumentError(f"{name}={value!r} is not a part between 0 and 1, such as 0.02 for 2 %")


def check_seconds(value: float, name: str = "seconds") -> None:
    """Raises for anything but a positive time."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ArgumentError(f"{name}={value!r} is not a positive time")
