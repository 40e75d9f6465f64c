"""Columns of numbers inside JSON: little-endian bytes, deflated, in base64. `unpack` in assets/core.js reads them."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

_NAMES = {"i1": "i8", "u1": "u8", "i2": "i16", "u2": "u16", "i4": "i32", "u4": "u32", "f4": "f32", "f8": "f64"}
_INTEGERS = (np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32)


def packed(values: npt.NDArray[Any], *, rising: bool = False) -> dict[str, Any]:
    """One column. Integers take the smallest type that holds them, or float64, which is exact up to 2**53.

    `rising` numbers (times in order) are kept as differences, which takes much less room.
    """
    values = np.ascontiguousarray(values).reshape(-1)
    if rising:
        values = np.diff(values, prepend=values.dtype.type(0))
    if values.dtype.kind in "biu":
        values = values.astype(_smallest(values))
    little = values.astype(values.dtype.newbyteorder("<"), copy=False)
    kind = _NAMES[little.dtype.str[1:]]
    data = base64.b64encode(zlib.compress(little.data, 6)).decode("ascii")
    return {"$": kind, "n": int(values.size), "d": data, **({"rising": True} if rising else {})}


def numbered(texts: Iterable[str]) -> tuple[list[str], npt.NDArray[np.int64]]:
    """The different texts in the order in which they come, and for each text its number among them."""
    numbers: dict[str, int] = {}
    of_each = [numbers.setdefault(text, len(numbers)) for text in texts]
    return list(numbers), np.array(of_each, np.int64)


def _smallest(values: npt.NDArray[Any]) -> Any:
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    for kind in _INTEGERS:
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return kind
    return np.float64
