"""Dtypes and shapes that device memory can have, and which of them fit an argument of a kernel."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError
from . import structs

if TYPE_CHECKING:
    from ..msl import Argument

Shape = int | Sequence[int]
DType = np.dtype[Any]


def matching_dtypes(first: np.dtype[Any], second: np.dtype[Any]) -> bool:
    """Whether memory of one dtype may be used as the other; uint8 matches every dtype."""
    return first == second or first == np.uint8 or second == np.uint8


def check_dtype(where: object, argument: Argument, dtype: np.dtype[Any]) -> None:
    """Raise unless memory of this dtype can be bound to the argument.

    uint8 binds to anything. A struct takes any dtype without field names; named fields must have the struct's layout.
    """
    if argument.layout is not None and dtype.names and not structs.same_layout(argument.layout, dtype):
        raise ArgumentError(
            f"{where}: its elements are not laid out as struct {argument.layout.name} is;"
            f" Kernel.dtype({argument.name!r}) gives the dtype that fits\n"
            + structs.side_by_side(argument.layout, dtype)
        )
    if argument.scalar is not None and dtype != np.uint8 and dtype != np.dtype(argument.scalar):
        raise ArgumentError(f"{where}: expected {argument.scalar}, got {dtype.name}")


def checked_dtype(dtype: Any) -> DType:
    """The NumPy dtype; raises for one that device memory cannot hold."""
    try:
        checked: DType = np.dtype(dtype)
    except TypeError:
        raise ArgumentError(f"{dtype!r} is not a dtype") from None
    if checked.hasobject or not checked.itemsize:
        raise ArgumentError(f"dtype {checked.name} has no fixed layout in memory")
    _refuse_text_and_dates(checked)
    if not checked.isnative:
        raise ArgumentError(f"dtype {checked.str} is not in this machine's byte order")
    return checked


def _refuse_text_and_dates(dtype: DType) -> None:
    """Kernels have no type for them, in a struct or outside."""
    if dtype.kind in "SU":
        raise ArgumentError(
            f"dtype {dtype.name}: kernels have no text type; np.frombuffer(text.encode(), np.uint8) gives its bytes"
        )
    if dtype.kind in "mM":
        raise ArgumentError(f"dtype {dtype.name}: kernels have no date type; array.view(np.int64) gives the integers")
    for field in (dtype.fields or {}).values():
        _refuse_text_and_dates(field[0].base)


def checked_shape(shape: Shape) -> tuple[int, ...]:
    """The shape as a tuple; raises for anything but non-negative integers."""
    try:
        if isinstance(shape, Sequence):
            extent = tuple(operator.index(axis) for axis in shape)
        else:
            extent = (operator.index(shape),)
    except TypeError:
        raise ArgumentError(f"shape {shape!r} is not an integer or a tuple of integers") from None
    if any(axis < 0 for axis in extent):
        raise ArgumentError(f"shape {shape!r} has a negative axis")
    return extent
