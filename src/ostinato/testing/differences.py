"""Where two arrays differ, in words that people can act on.

`mismatch` compares bit for bit, or to a tolerance where the values are floating-point numbers. NaNs are equal to each
other whatever their bits, because Metal does not define them. Structs are compared field by field, so that padding does
not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.tolerances import FLOATS, Tolerance, allowed_for, near


@dataclass(frozen=True, slots=True)
class WrongValue:
    """One value that differs."""

    index: tuple[int, ...]
    expected: str
    actual: str
    ulps: int | None
    """The number of representable steps between them; None for NaN and for dtypes that are not floating-point."""

    def __str__(self) -> str:
        steps = "" if self.ulps is None else f", {self.ulps:,} ulp{'' if self.ulps == 1 else 's'} apart"
        if self.ulps == 0:
            steps = ", zeros of different sign: equal with any tolerance above 0"
        return f"{list(self.index)}: expected {self.expected}, got {self.actual}{steps}"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """How an array differs from the expected one."""

    dtype: str
    wrong: int
    """How many values are wrong."""
    size: int
    """How many values were compared."""
    first: WrongValue
    last: tuple[int, ...]
    """Index of the last wrong value."""
    largest: WrongValue | None
    """The wrong value that is furthest from the expected one; None where all wrong values involve NaN."""
    largest_error: float
    nans: int
    """NaNs where a number was expected."""
    missing_nans: int
    """Numbers where NaN was expected."""
    allowed: float

    def __str__(self) -> str:
        rule = f"tolerance {self.allowed:g}" if self.allowed else "compared bit for bit"
        lines = [
            f"{self.wrong:,} of {self.size:,} values are wrong ({self.dtype}, {rule})",
            f"  first wrong value  {self.first}",
        ]
        if self.largest is not None and self.wrong > 1:
            lines.append(f"  largest error      {self.largest} ({self.largest_error:.3g})")
        if self.wrong > 1:
            lines.append(f"  last wrong value   {list(self.last)}")
        if self.nans or self.missing_nans:
            lines.append(f"  NaN                {self.nans:,} unexpected, {self.missing_nans:,} missing")
        return "\n".join(lines)


def mismatches(expected: np.ndarray, actual: np.ndarray, tolerance: Tolerance) -> Iterator[tuple[str, Mismatch]]:
    """The mismatch of two arrays of one dtype and shape, with the path of the field for each field of a struct."""
    for path, field_expected, field_actual in _fields(expected, actual):
        difference = _mismatch(field_expected, field_actual, tolerance)
        if difference is not None:
            yield path, difference


def _fields(expected: np.ndarray, actual: np.ndarray, path: str = "") -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    if expected.dtype.names is None:
        yield path, expected, actual
        return
    for name in expected.dtype.names:
        yield from _fields(expected[name], actual[name], f"{path}.{name}")


def _mismatch(expected: np.ndarray, actual: np.ndarray, tolerance: Tolerance) -> Mismatch | None:
    is_float, allowed = expected.dtype.name in FLOATS, allowed_for(tolerance, expected.dtype)
    flat_expected, flat_actual = np.ascontiguousarray(expected).ravel(), np.ascontiguousarray(actual).ravel()
    wrong = _bits(flat_expected) != _bits(flat_actual)
    if is_float:
        nan_expected, nan_actual = np.isnan(flat_expected), np.isnan(flat_actual)
        wrong &= ~(nan_expected & nan_actual)
        if allowed:
            wrong &= ~near(flat_expected, flat_actual, allowed)
    places = np.flatnonzero(wrong)
    if not len(places):
        return None
    errors = _errors(flat_expected[places], flat_actual[places])
    comparable = ~np.isnan(errors)
    furthest = int(np.argmax(np.where(comparable, errors, -1.0)))

    def index(place: Any) -> tuple[int, ...]:
        return tuple(int(part) for part in np.unravel_index(place, expected.shape))

    def wrong_value(place: Any) -> WrongValue:
        left, right = flat_expected[place : place + 1], flat_actual[place : place + 1]
        return WrongValue(index(place), str(left[0]), str(right[0]), _ulps(left, right) if is_float else None)

    return Mismatch(
        expected.dtype.name,
        len(places),
        expected.size,
        wrong_value(places[0]),
        index(places[-1]),
        wrong_value(places[furthest]) if comparable.any() else None,
        float(errors[furthest]),
        int(np.count_nonzero(nan_actual & ~nan_expected)) if is_float else 0,
        int(np.count_nonzero(nan_expected & ~nan_actual)) if is_float else 0,
        allowed,
    )


def _bits(values: np.ndarray) -> np.ndarray:
    return values.view(f"u{values.itemsize}")


def _errors(expected: np.ndarray, actual: np.ndarray) -> np.ndarray:
    """Absolute differences; NaN where one of the two is NaN."""
    if expected.dtype.kind in "iub":
        # Unsigned subtraction wraps, so the difference is right even where it does not fit the signed type.
        larger, smaller = (_bits(pick(expected, actual)) for pick in (np.maximum, np.minimum))
        return np.asarray((larger - smaller).astype(np.float64))
    with np.errstate(invalid="ignore"):
        return np.asarray(np.abs(expected.astype(np.float64) - actual.astype(np.float64)))


def _ulps(expected: np.ndarray, actual: np.ndarray) -> int | None:
    if np.isnan(expected[0]) or np.isnan(actual[0]):
        return None
    sign = 1 << (8 * expected.itemsize - 1)
    left, right = (int(_bits(value)[0]) for value in (expected, actual))
    # Floats are ordered by their bits without the sign, so steps are counted from zero in either direction.
    left, right = (-(bits - sign) if bits >= sign else bits for bits in (left, right))
    return abs(left - right)
