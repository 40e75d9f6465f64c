"""Which elements of a buffer fit an argument of a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError
from . import structs

if TYPE_CHECKING:
    from ..msl import Argument


def matching_dtypes(first: np.dtype[Any], second: np.dtype[Any]) -> bool:
    """Whether memory of one dtype may be used as the other; bytes go with anything."""
    return first == second or first == np.uint8 or second == np.uint8


def check_dtype(where: object, argument: Argument, dtype: np.dtype[Any]) -> None:
    """Bytes bind to anything. A struct takes anything without field names; with names, they must lie as its own do."""
    if argument.layout is not None and dtype.names and not structs.same_layout(argument.layout, dtype):
        raise ArgumentError(
            f"{where}: its elements are not laid out as struct {argument.layout.name} is;"
            f" Kernel.dtype({argument.name!r}) gives the dtype that fits\n"
            + structs.side_by_side(argument.layout, dtype)
        )
    if argument.scalar is not None and dtype != np.uint8 and dtype != np.dtype(argument.scalar):
        raise ArgumentError(f"{where}: expected {argument.scalar}, got {dtype.name}")
