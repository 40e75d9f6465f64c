"""Tolerances: how far floating-point numbers may be apart and still count as equal.

A tolerance is a number, or a number per dtype, and is relative and absolute at once: |expected - actual| is at most
tolerance + tolerance · |expected|. It applies to floating-point numbers only; everything else is compared bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import ArgumentError

Tolerance = float | Mapping[str, float]

FLOATS = frozenset({"float32", "float16", "bfloat16"})
"""The dtypes that a tolerance applies to."""


def checked_tolerance(tolerance: Any, what: str) -> Tolerance:
    """The tolerance, checked: a number, or a number per dtype. `what` begins the message of an error."""
    by_dtype = tolerance if isinstance(tolerance, Mapping) else {"": tolerance}
    for name, value in by_dtype.items():
        if isinstance(tolerance, Mapping) and name not in FLOATS:
            raise ArgumentError(f"{what}: tolerance applies to {', '.join(sorted(FLOATS))}, not {name!r}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise ArgumentError(f"{what}: a tolerance is a non-negative number, not {value!r}")
    return dict(tolerance) if isinstance(tolerance, Mapping) else float(tolerance)


def allowed_for(tolerance: Tolerance, dtype: np.dtype[Any]) -> float:
    """The tolerance for numbers of this dtype; 0 where they must be equal bit for bit."""
    if dtype.name not in FLOATS:
        return 0.0
    return tolerance.get(dtype.name, 0.0) if isinstance(tolerance, Mapping) else tolerance


def near(expected: np.ndarray, actual: np.ndarray, allowed: float) -> np.ndarray:
    """For each pair of floating-point numbers, whether they are within the tolerance. NaN is near NaN only."""
    left, right = expected.astype(np.float64), actual.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        within = np.abs(left - right) <= allowed + allowed * np.abs(left)
    return np.asarray(np.isfinite(left) & within | (left == right) | (np.isnan(left) & np.isnan(right)))
