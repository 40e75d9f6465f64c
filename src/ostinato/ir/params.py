"""Values that change with every replay: named, typed, and passed by keyword to `Replayable.replay`."""

from __future__ import annotations

import keyword
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..errors import ArgumentError
from .costs import MOST, Amount, Term
from .dtypes import Shape, checked_dtype, checked_shape
from .scalars import number_bytes, plain_number

_RESERVED = frozenset({"label", "rebuild", "self"})


@dataclass(frozen=True, slots=True)
class Param:
    """A value that each replay passes. Used while capturing, in place of a number or an array."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of one value."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def encode(self, value: Any) -> bytes:
        """A value as the bytes that kernels read; raises an `ArgumentError` when it does not fit."""
        is_plain = type(value) in (int, float, bool)
        if not is_plain and isinstance(value, np.ndarray | np.generic):
            if value.dtype != self.dtype or value.shape != self.shape:
                raise ArgumentError(f"{self}: got {value.dtype.name} of shape {value.shape}")
            return value.tobytes()
        number = value if is_plain else plain_number(value)
        if number is not None and not self.shape:
            try:
                return number_bytes(number, _name_of(self.dtype))
            except ValueError as reason:
                raise ArgumentError(f"{self}: {value!r} is {reason}") from None
        raise ArgumentError(f"{self}: expected a number or a NumPy value of that type, got {value!r}")

    def __str__(self) -> str:
        return f"parameter {self.name!r} ({self.dtype.name}{list(self.shape) if self.shape else ''})"


@lru_cache(maxsize=64)
def _name_of(dtype: np.dtype[Any]) -> str:
    return dtype.name  # NumPy builds the string at every access


def param(name: str, dtype: Any, shape: Shape = ()) -> Param:
    """A named value of a captured graph, passed to every replay.

    It takes the place of an inline argument: `enc.dispatch(append, key, cache, ost.param("pos", np.uint32), ...)`, and
    later `run.replay(pos=7)`.
    """
    check_name(name, "param")
    named = Param(name, checked_dtype(dtype), checked_shape(shape))
    if not named.nbytes:
        raise ArgumentError(f"param {name!r}: shape {named.shape} holds no value")
    return named


def per(param: Param, factor: int, *, plus: int = 0, upto: int | None = None) -> Amount:
    """Bytes or flops that grow with a parameter: factor · min(max(value + plus, 0), upto). For `dispatch`.

    The parameter is a single integer and an argument of the dispatch. Integers and other amounts can be added:
    `bytes_read=queries.nbytes + ost.per(position, row_bytes, plus=1, upto=window)`.
    """
    if type(param) is not Param or not is_counter(param):
        raise ArgumentError(f"per: expected a parameter that is a single integer, not {param!s:.100}")
    for name, number, least in (("factor", factor, 0), ("plus", plus, -MOST), ("upto", upto, 0)):
        if (number is not None or name != "upto") and (type(number) is not int or not least <= number <= MOST):
            raise ArgumentError(f"per: {name} is an integer from {least} to {MOST}, not {number!r}")
    return Amount(0, (Term(param.name, factor, plus, upto),))


def is_counter(param: Param) -> bool:
    """Whether its value is a single integer, so that amounts may depend on it."""
    return not param.shape and param.dtype.kind in "iu"


def check_name(name: Any, what: str) -> None:
    """Raise unless the name can be a keyword argument of `replay`."""
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise ArgumentError(f"{what}: {name!r} is not a Python identifier; replay takes the name as a keyword argument")
    if name in _RESERVED:
        raise ArgumentError(f"{what}: replay has an argument named {name!r} of its own; choose another name")
