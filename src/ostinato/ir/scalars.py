"""Python numbers as the bytes of a kernel's scalar types."""

from __future__ import annotations

import math
import operator
import struct
from typing import Any

import ml_dtypes  # noqa: F401  (teaches NumPy the name "bfloat16")
import numpy as np

_FLOATS = ("float16", "bfloat16", "float32", "float64")
_PLAIN_FLOATS = {"float32": struct.Struct("=f"), "float64": struct.Struct("=d")}
_INTEGERS = {
    f"{sign}int{8 * size}": (
        struct.Struct("=" + code),
        0 if sign else -(1 << (8 * size - 1)),
        (1 << (8 * size - (0 if sign else 1))) - 1,
    )
    for sign, codes in (("", "bhiq"), ("u", "BHIQ"))
    for size, code in zip((1, 2, 4, 8), codes, strict=True)
}


def number_bytes(value: bool | int | float, scalar: str) -> bytes:
    """A Python number as the bytes of a scalar type; raises a ValueError when it does not fit."""
    integer = _INTEGERS.get(scalar)
    if integer is not None:
        layout, lowest, highest = integer
        if isinstance(value, float):
            if not value.is_integer():
                raise ValueError(f"not an integer, and the type is {scalar}")
            value = int(value)
        if not lowest <= value <= highest:
            raise ValueError(f"out of the range of {scalar}, {lowest} to {highest}")
        return layout.pack(value)
    if scalar == "bool":
        if value not in (0, 1):
            raise ValueError("neither False nor True")
        return bytes([bool(value)])
    if scalar in _FLOATS:
        try:
            wide = float(value)
        except OverflowError:
            raise ValueError(f"out of the range of {scalar}") from None
        if scalar in _PLAIN_FLOATS:  # the usual values of a replay; NumPy takes ten times as long
            try:
                return _PLAIN_FLOATS[scalar].pack(wide)
            except OverflowError:
                raise ValueError(f"out of the range of {scalar}") from None
        with np.errstate(over="ignore"):
            narrow = np.asarray(wide).astype(scalar)
        if math.isfinite(wide) and not math.isfinite(float(narrow)):
            raise ValueError(f"out of the range of {scalar}")
        return narrow.tobytes()
    raise ValueError(f"a number, and {scalar} is not a numeric type")


def plain_number(value: Any) -> int | float | None:
    """The int or float that an object converts to (a NumPy scalar, say); None when it is not a number."""
    try:
        return operator.index(value)
    except TypeError:
        pass
    if hasattr(value, "__float__") and not isinstance(value, str):
        try:
            return float(value)
        except (TypeError, ValueError, RuntimeError):  # an array of many numbers, say
            return None
    return None
