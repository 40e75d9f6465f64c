"""The key under which an encoder memoises a checked dispatch.

Everything in a key is hashable and strict: 1, 1.0 and True are equal to Python, but bind differently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..ir.commands import UNKNOWN
from ..ir.costs import Amount
from ..runtime.allocation import Allocation
from ..runtime.buffer import Buffer
from ..runtime.library import Kernel
from .geometry import Extent


def extent_key(extent: Extent | None) -> Extent | None:
    """The extent in a form that is equal only to equivalent extents."""
    if extent is None or type(extent) is int:
        return extent
    if type(extent) is tuple:
        for axis in extent:
            if type(axis) is not int:
                break
        else:
            return extent
    if isinstance(extent, np.integer):
        return int(extent)
    if isinstance(extent, Sequence | np.ndarray) and all(isinstance(axis, int | np.integer) for axis in extent):
        return tuple(axis if isinstance(axis, bool) else int(axis) for axis in extent)
    return _Unfit(extent)


class _Unfit(tuple[Any, ...]):
    """An invalid extent: equal to nothing, so that it is never memoised and always checked and refused."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __new__(cls, extent: Any) -> _Unfit:
        return super().__new__(cls, (extent,))

    def __eq__(self, other: object) -> bool:
        return self is other


def shared_key(kernel: Kernel, shared: Mapping[int, int] | None) -> tuple[Any, ...] | None:
    """The key of `shared=`, the sizes of the threadgroup arguments."""
    if shared is None:
        return None
    if not isinstance(shared, Mapping):
        raise ArgumentError(f"kernel {kernel.name!r}: shared is {{index: bytes}}, not {shared!r}")
    return tuple((index, size, type(size)) for index, size in shared.items())


def declared_key(buffers: Any, used: list[Allocation]) -> Any:
    """The key of `reads=` or `writes=`; the memory they name is added to `used`."""
    if buffers is None or buffers is UNKNOWN:
        return buffers
    if not isinstance(buffers, Sequence) or not all(type(buffer) is Buffer for buffer in buffers):
        raise ArgumentError(f"reads and writes are lists of Buffers, or UNKNOWN, not {buffers!r}")
    used.extend(buffer._allocation() for buffer in buffers)
    return tuple(buffer._serial for buffer in buffers)


def checked_amount(kernel: Kernel, name: str, amount: Any) -> int | Amount | None:
    """A number of bytes or operations as an int or an `Amount`; raises for anything else."""
    if amount is None or (type(amount) is int and amount >= 0) or type(amount) is Amount:
        return amount
    if isinstance(amount, np.integer) and amount >= 0:
        return int(amount)
    raise ArgumentError(f"kernel {kernel.name!r}: {name} is a non-negative integer or a per(…), not {amount!r}")


def note_use(argument: Any, used: list[Allocation]) -> bool:
    """Add the memory of an argument to `used`; True when it has been freed."""
    buffer = argument[0] if type(argument) is tuple and argument else argument
    if type(buffer) is not Buffer:
        return False
    if buffer._lease.allocation is None:
        return True
    used.append(buffer._lease.allocation)
    return False
