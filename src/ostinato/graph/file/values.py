"""The values in the document of a graph file, checked one by one: type, range, length.

Each function takes a value and its place in the document, and returns the checked value or raises `Damaged`.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from typing import Any, TypeVar

import ml_dtypes  # noqa: F401  (teaches NumPy the name "bfloat16")
import numpy as np

from ...base.source_lines import Place
from ...errors import ArgumentError
from ...ir.commands import Size3
from ...ir.params import check_name
from .document import MAX_TEXT, SCALARS

MAX_VALUE_BYTES = 1 << 16
MAX_ADDRESS = 1 << 62
MAX_COUNT = (1 << 63) - 1
_MAX_AXIS = (1 << 32) - 1

_STRUCT = frozenset({"nbytes", "aligned", "fields"})
_FIELD = frozenset({"name", "dtype", "shape", "offset"})
_T = TypeVar("_T")


class Damaged(ValueError):
    """An invalid document; the text says what is wrong and where."""


def record(value: Any, where: str, keys: frozenset[str]) -> dict[str, Any]:
    if type(value) is not dict:
        raise Damaged(f"{where}: expected an object, not {shown(value)}")
    if value.keys() != keys:
        missing, unknown = sorted(keys - value.keys()), sorted(value.keys() - keys)
        what = f"no {missing[0]!r}" if missing else f"{shown(unknown[0])} is unknown"
        raise Damaged(f"{where}: {what}")
    return value


def listed(value: Any, where: str, length: int | None = None) -> list[Any]:
    if type(value) is not list or (length is not None and len(value) != length):
        count = "" if length is None else f" of {length}"
        raise Damaged(f"{where}: expected a list{count}, not {shown(value)}")
    return value


def integer(value: Any, where: str, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise Damaged(f"{where}: expected an integer from {least} to {most}, not {shown(value)}")
    return value


def optional_count(value: Any, where: str) -> int | None:
    return None if value is None else integer(value, where, 0, MAX_COUNT)


def boolean(value: Any, where: str) -> bool:
    if type(value) is not bool:
        raise Damaged(f"{where}: expected true or false, not {shown(value)}")
    return value


def text(value: Any, where: str, empty: bool = False) -> str:
    if type(value) is not str or len(value) > MAX_TEXT or not (value or empty):
        raise Damaged(f"{where}: expected a string of at most {MAX_TEXT} characters, not {shown(value)}")
    return value


def optional_label(value: Any, where: str) -> str | None:
    return None if value is None else text(value, where)


def hexadecimal(value: Any, where: str) -> bytes:
    if type(value) is str and len(value) <= 2 * MAX_VALUE_BYTES and value.isascii() and value.isalnum():
        try:
            return bytes.fromhex(value)
        except ValueError:
            pass
    elif value == "":
        return b""
    raise Damaged(f"{where}: {shown(value)} is not a hexadecimal string of bytes")


def choice(value: Any, where: str, choices: Mapping[str, _T]) -> _T:
    if type(value) is not str or value not in choices:
        raise Damaged(f"{where}: expected one of {', '.join(choices)}, not {shown(value)}")
    return choices[value]


def shown(value: Any) -> str:
    try:
        return reprlib.repr(value)
    except ValueError:  # an integer too long to print
        return "a very long integer"


def size3(value: Any, where: str) -> Size3:
    x, y, z = (integer(extent, where, 1, _MAX_AXIS) for extent in listed(value, where, 3))
    return x, y, z


def constants_of(value: Any, where: str) -> dict[int | str, bool | int | float]:
    constants: dict[int | str, bool | int | float] = {}
    for entry in listed(value, f"{where}, constants"):
        key, kind, given = listed(entry, f"{where}, constants", 3)
        inside = f"{where}, constant {shown(key)}"
        key = integer(key, inside, 0, 0xFFFF) if type(key) is int else text(key, inside)
        if key in constants:
            raise Damaged(f"{inside}: it occurs twice")
        if kind == "bool":
            constants[key] = boolean(given, inside)
        elif kind == "int":
            constants[key] = integer(given, inside, -(1 << 63), (1 << 64) - 1)
        elif kind == "float":
            try:
                constants[key] = float.fromhex(text(given, inside))
            except (ValueError, OverflowError):
                raise Damaged(f"{inside}: {shown(given)} is not a hexadecimal float") from None
        else:
            raise Damaged(f"{inside}: {shown(kind)} is not a type of constants")
    return constants


def dtype_of(value: Any, where: str, depth: int = 0) -> np.dtype[Any]:
    if type(value) is str:
        if value not in SCALARS:
            raise Damaged(f"{where}: {shown(value)} is not a dtype")
        return np.dtype(value)
    struct = record(value, f"{where}, dtype", _STRUCT)
    nbytes = integer(struct["nbytes"], f"{where}, dtype", 1, MAX_VALUE_BYTES)
    aligned = boolean(struct["aligned"], f"{where}, dtype")
    names, formats, offsets = [], [], []
    if depth > 8:
        raise Damaged(f"{where}: its dtype is nested too deeply")
    for entry in listed(struct["fields"], f"{where}, dtype"):
        field = record(entry, f"{where}, field", _FIELD)
        inner = dtype_of(field["dtype"], where, depth + 1)
        shape = shape_of(field["shape"], where, inner.itemsize)
        taken = math.prod(shape) * inner.itemsize
        offsets.append(integer(field["offset"], f"{where}, field", 0, max(nbytes - taken, -1)))
        names.append(text(field["name"], f"{where}, field"))
        formats.append((inner, shape) if shape else inner)
    layout = {"names": names, "formats": formats, "offsets": offsets, "itemsize": nbytes}
    try:
        return np.dtype(layout, align=aligned)  # type: ignore[call-overload, no-any-return]
    except (TypeError, ValueError) as error:
        raise Damaged(f"{where}: not a dtype: {error}") from None


def shape_of(value: Any, where: str, itemsize: int) -> tuple[int, ...]:
    shape = tuple(integer(extent, f"{where}, shape", 0, MAX_ADDRESS) for extent in listed(value, f"{where}, shape"))
    if len(shape) > 32 or math.prod(max(extent, 1) for extent in shape) * itemsize > MAX_ADDRESS:
        raise Damaged(f"{where}: {shown(value)} is not a shape")
    return shape


def place_of(value: Any, where: str) -> Place | None:
    if value is None:
        return None
    file, line = listed(value, where, 2)
    name = text(file, where)
    if not name.isprintable() or "/" in name or "\\" in name:
        raise Damaged(f"{where}: {shown(name)} is not the base name of a file")
    return Place(name, integer(line, where, 0, MAX_COUNT))


def identifier(value: Any, where: str) -> str:
    try:
        check_name(value, where)
    except ArgumentError as error:
        raise Damaged(str(error)) from error
    return text(value, where)
