"""Numbers as `torch.mps.compile_shader` passes them to a kernel: as bytes.

An int (and a bool) is 8 bytes of int64, a float 4 bytes of float32, a tuple or list as many of them; `arg_casts` names
another type. A kernel reads its own type from these bytes. Where that is surely another number than the caller wrote
(an int for a `float &`, three int64 for a `uint3 &`), torch passes it all the same; here it is an error that names the
cast. A list of tensors is passed as the addresses of their memory.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..runtime.dlpack import BFLOAT16
from ..runtime.library import Kernel
from .torch_errors import CallError

if TYPE_CHECKING:
    from ..msl import Argument

Casts = Mapping[int, str] | str | None
"""The values of `arg_casts`: a cast for all numbers, or one for each position."""

_INT, _FLOAT = np.dtype(np.int64), np.dtype(np.float32)
CASTS: dict[str, np.dtype[Any]] = {
    "fp16": np.dtype(np.float16),
    "bf16": BFLOAT16,
    "int32": np.dtype(np.int32),
    "int16": np.dtype(np.int16),
    "int8": np.dtype(np.int8),
    "uint8": np.dtype(np.uint8),
}
"""The names that torch takes in `arg_casts`."""

_float_bytes = struct.Struct("=f").pack
_POINTER_BYTES = 8


def cast_of(casts: Any, position: int) -> str | None:
    """The cast of the argument at a position; raises for what torch does not take as `arg_casts`."""
    if casts is None:
        return None
    cast = casts.get(position) if isinstance(casts, Mapping) else casts
    if cast is not None and (not isinstance(cast, str) or cast not in CASTS):
        raise CallError(
            f"arg_casts={casts!r}: expected one of {', '.join(CASTS)}, or a dict with one of them for each position"
        )
    return cast


def plain_kind(argument: Argument) -> type | None:
    """The kind of number whose bytes the argument reads as they are: int, float, or None if neither is."""
    if argument.access != "read" or argument.scalar is None or argument.layout is not None or argument.lanes != 1:
        return None
    dtype = np.dtype(argument.scalar)
    return int if dtype.kind in "iub" else float if dtype == _FLOAT else None


def plain_bytes(value: Any) -> bytes | None:
    """The bytes of a number of an argument's plain kind; None if it does not fit."""
    try:
        return _float_bytes(value) if type(value) is float else value.to_bytes(8, "little", signed=True)
    except OverflowError:
        return None


def number_bytes(where: object, argument: Argument, kernel: Kernel, value: Any, cast: str | None) -> bytes:
    """The bytes that torch passes for a number, or a tuple or list of numbers; raises if the kernel misreads them."""
    values = _values(where, value)
    if cast is not None:
        with np.errstate(all="ignore"):
            values = values.astype(CASTS[cast])
    _check_reading(where, argument, value, values)
    data = values.tobytes()
    # A vector of three is as large as one of four.
    if argument.lanes == 3 and values.size == 3:
        data = data.ljust(kernel.dtype(argument.index).itemsize, b"\0")
    return data


def address_bytes(addresses: list[int]) -> bytes:
    """Addresses as a kernel reads an array of pointers."""
    return b"".join(address.to_bytes(_POINTER_BYTES, "little") for address in addresses)


def _values(where: object, value: Any) -> np.ndarray:
    numbers = value if isinstance(value, tuple | list) else (value,)
    if not numbers:
        raise CallError(f"{where}: an empty {type(value).__name__} cannot be an argument of a kernel")
    first = numbers[0]
    if not isinstance(first, int | float):
        of = f" of {type(first).__name__}" if numbers is value else ""
        raise CallError(
            f"{where}: expected a tensor, an int, a float, or a tuple or list of them, got {type(value).__name__}{of}"
        )
    # The first decides, as in torch: a tuple that begins with an int holds ints only.
    if isinstance(first, int) and not all(isinstance(number, int) for number in numbers):
        raise CallError(f"{where}: {value!r} begins with an int, so all of it must be ints")
    if not all(isinstance(number, int | float) for number in numbers):
        raise CallError(f"{where}: {value!r} holds more than numbers")
    try:
        with np.errstate(over="ignore"):
            return np.array(numbers, np.float64 if isinstance(first, float) else _INT).astype(
                _FLOAT if isinstance(first, float) else _INT
            )
    except OverflowError:
        raise CallError(f"{where}: {value!r} does not fit an int64, which torch passes ints as") from None


def _check_reading(where: object, argument: Argument, value: Any, values: np.ndarray) -> None:
    """Raise if the kernel reads other numbers from these bytes than the caller wrote."""
    if argument.scalar is None or argument.layout is not None:
        return
    wanted, given = np.dtype(argument.scalar), values.dtype
    if wanted == given or not values.any():  # zero is zero in every type
        return
    if wanted.kind in "iub" and given.kind in "iu":
        # The low bytes of an integer are the same integer, if it fits.
        alone = values.size == 1 and argument.lanes == 1
        if wanted.itemsize == given.itemsize or (alone and wanted.itemsize < given.itemsize):
            return
    cast = next((name for name, dtype in CASTS.items() if dtype == wanted or _signed(wanted) == dtype), None)
    way_out = "pass floats" if wanted == _FLOAT else "pass ints" if wanted.itemsize == _INT.itemsize else ""
    way_out = f'arg_casts={{{argument.index}: "{cast}"}}' if cast else way_out
    raise CallError(
        f"{where}: torch passes {value!r} as {given.name}, and the kernel reads {wanted.name} from it, another number"
        + (f"; {way_out}" if way_out else "")
    )


def _signed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"i{dtype.itemsize}") if dtype.kind == "u" else dtype
