"""Values of a kernel's structs, from dicts, tuples and NumPy's records.

Fields are matched by name where both sides have names (dicts, records), by position otherwise (tuples, lists), and laid
out as the kernel's struct is, with its padding. Python numbers are converted to the field's type; NumPy values must
have it already. A value that does not match raises a `Mismatch` that shows both sides.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import ml_dtypes  # noqa: F401  (teaches NumPy the name "bfloat16")
import numpy as np

from .scalars import number_bytes, plain_number

if TYPE_CHECKING:
    from ..msl import Field, StructLayout

_DEEPEST = 64
_SHOWN = 40


class Mismatch(ValueError):
    """A value that does not fit a struct; the text says where and why, and shows both layouts."""


def struct_dtype(layout: StructLayout) -> np.dtype[Any]:
    """The NumPy dtype with the struct's fields at the struct's offsets."""
    return np.dtype(
        {
            "names": [field.name for field in layout.fields],
            "formats": [_field_dtype(field) for field in layout.fields],
            "offsets": [field.offset for field in layout.fields],
            "itemsize": layout.nbytes,
        }
    )


def same_layout(layout: StructLayout, dtype: np.dtype[Any]) -> bool:
    """Whether memory of this dtype is memory of this struct, byte for byte; other fields may lie in the padding."""
    return dtype.itemsize == layout.nbytes and all(_lies_alike(field, dtype) for field in layout.fields)


def struct_bytes(layout: StructLayout, value: Any) -> bytes:
    """The bytes of one struct, or of as many as a structured array or a list of structs has."""
    if isinstance(value, np.ndarray | np.generic) and value.dtype.names and same_layout(layout, value.dtype):
        return value.tobytes()
    many = value.reshape(-1) if isinstance(value, np.ndarray) and value.shape else [value]
    if isinstance(value, list) and value and all(isinstance(item, Mapping | tuple | np.void) for item in value):
        many = value
    into = bytearray(layout.nbytes * len(many))
    for position, item in enumerate(many):
        try:
            _put_struct(into, position * layout.nbytes, layout, item, "")
        except _Unfit as reason:
            raise Mismatch(f"{reason}\n{side_by_side(layout, item)}") from None
    return bytes(into)


def value_key(value: Any, depth: int = 0) -> Hashable:
    """A key that is equal only for values with the same bytes. The key of a value that no struct can hold is unique."""
    if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        return value.dtype, value.shape, value.tobytes()
    if depth > _DEEPEST:
        return object()
    if isinstance(value, Mapping):
        return dict, tuple((name, value_key(item, depth + 1)) for name, item in value.items())
    if isinstance(value, tuple | list):
        return type(value), tuple(value_key(item, depth + 1) for item in value)
    try:
        number = _plain(value)
    except TypeError:
        return object()
    return type(number), number.hex() if isinstance(number, float) else number


def side_by_side(layout: StructLayout, given: Any) -> str:
    """A table: the kernel's struct on the left, the value or dtype that was passed on the right."""
    left = [f"{offset:>4}  {name}: {kind}" for offset, name, kind in _rows(layout)]
    if isinstance(given, np.dtype) or (isinstance(given, np.ndarray | np.generic) and given.dtype.names):
        dtype = given if isinstance(given, np.dtype) else given.dtype
        title = f"given, {dtype.itemsize} bytes"
        right = [f"{offset:>4}  {name}: {kind}" for offset, name, kind in _dtype_rows(dtype)]
    elif isinstance(given, Mapping):
        title = "given, by name"
        right = [f"      {name}: {_kind(item)}" for name, item in given.items()]
    elif isinstance(given, tuple | list):
        title = "given, by position"
        right = [f"      {_kind(item)}" for item in given]
    else:
        title, right = "given", [f"      {_kind(given)}"]
    own = f"struct {layout.name}, {layout.nbytes} bytes"
    width = max(len(line) for line in (own, *left)) + 4
    lines = [f"  {own:<{width}}{title}"]
    lines += [f"  {mine:<{width}}{theirs}".rstrip() for mine, theirs in zip_longest(left, right, fillvalue="")]
    return "\n".join(lines[: _SHOWN + 1] + (["  …"] if len(lines) > _SHOWN + 1 else []))


# --- values ---------------------------------------------------------------------------------------------------------


class _Unfit(Exception):
    """The reason why a value does not fit; `struct_bytes` adds the two layouts."""


def _put_struct(into: bytearray, at: int, layout: StructLayout, value: Any, path: str) -> None:
    inside = f"{path}." if path else ""
    if isinstance(value, np.ndarray) and not value.shape and value.dtype.names:
        value = value[()]
    names = [field.name for field in layout.fields]
    if isinstance(value, Mapping) or (isinstance(value, np.void) and value.dtype.names):
        given = list(value) if isinstance(value, Mapping) else _field_names(value.dtype)
        missing = [name for name in names if name not in given]
        extra = [str(name) for name in given if name not in names]
        if missing or extra:
            reasons = [f"no field {', '.join(inside + name for name in missing)} is given"] if missing else []
            reasons += [
                f"there is no field {', '.join(inside + name for name in extra)} in struct {layout.name}"
            ] * bool(extra)
            raise _Unfit("; ".join(reasons))
        items = [value[name] for name in names]
    elif isinstance(value, tuple | list):
        if len(value) != len(names):
            raise _Unfit(f"{path or 'a struct ' + layout.name} has {len(names)} fields, {len(value)} values are given")
        items = list(value)
    else:
        raise _Unfit(f"{path or 'a struct ' + layout.name} takes a dict, a tuple or a NumPy record")
    for field, item in zip(layout.fields, items, strict=True):
        _put(into, at + field.offset, field, field.shape, item, inside + field.name)


def _put(into: bytearray, at: int, field: Field, shape: tuple[int, ...], value: Any, path: str) -> None:
    if shape:
        step = field.stride * math.prod(shape[1:])
        for position, item in enumerate(_items(value, shape[0], path)):
            _put(into, at + position * step, field, shape[1:], item, f"{path}[{position}]")
    elif field.struct is not None:
        _put_struct(into, at, field.struct, value, path)
    elif field.lanes > 1:
        assert field.scalar is not None
        size = np.dtype(field.scalar).itemsize
        stored = field.stride // size  # a vector of three takes the room of four
        count = stored if isinstance(value, np.ndarray) and value.shape == (stored,) else field.lanes
        for position, item in enumerate(_items(value, count, path)):
            begin = at + position * size
            into[begin : begin + size] = _number(item, field.scalar, f"{path}[{position}]")
    else:
        assert field.scalar is not None
        into[at : at + field.nbytes // math.prod(field.shape)] = _number(value, field.scalar, path)


def _items(value: Any, count: int, path: str) -> Sequence[Any]:
    if not (isinstance(value, tuple | list) or (isinstance(value, np.ndarray) and value.ndim)):
        raise _Unfit(f"{path} takes {count} values, not one {_kind(value)}")
    if len(value) != count:
        raise _Unfit(f"{path} takes {count} values, {len(value)} are given")
    return value  # type: ignore[return-value]


def _number(value: Any, scalar: str, path: str) -> bytes:
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype != np.dtype(scalar) or value.shape:
            raise _Unfit(f"{path}: expected {scalar}, got {_kind(value)}")
        return value.tobytes()
    try:
        number = _plain(value)
    except TypeError:
        raise _Unfit(f"{path}: expected {scalar}, got {_kind(value)}") from None
    try:
        return number_bytes(number, scalar)
    except ValueError as reason:
        raise _Unfit(f"{path}: {value!r} is {reason}") from None


def _plain(value: Any) -> int | float:
    if isinstance(value, bool | int | float):
        return value
    number = plain_number(value)
    if number is None:
        raise TypeError(f"{value!r} is not a number")
    return number


# --- layouts --------------------------------------------------------------------------------------------------------


def _field_dtype(field: Field) -> np.dtype[Any]:
    base = np.dtype(field.scalar) if field.struct is None else struct_dtype(field.struct)
    return np.dtype((base, _shapes(field, base)[-1]))


def _shapes(field: Field, base: np.dtype[Any]) -> list[tuple[int, ...]]:
    """The shapes of a NumPy field with the same bytes as this one; the last is the simplest."""
    stored = field.stride // base.itemsize
    if field.lanes == 1:
        return [field.shape]
    alike = [(*field.shape, stored)]
    if stored == field.lanes or not field.shape:
        alike.append((*field.shape, field.lanes))
    return alike


def _lies_alike(field: Field, dtype: np.dtype[Any]) -> bool:
    if field.name not in (dtype.names or ()):
        return False
    entry = _fields(dtype)[field.name]
    if entry[1] != field.offset:
        return False
    base, shape = entry[0].subdtype or (entry[0], ())
    if field.struct is not None:
        return shape == field.shape and same_layout(field.struct, base)
    return base == np.dtype(field.scalar) and shape in _shapes(field, base)


def _fields(dtype: np.dtype[Any]) -> Mapping[str, Any]:
    return dtype.fields or {}


def _field_names(dtype: np.dtype[Any]) -> list[str]:
    """The fields of a record, without unnamed bytes that only pad it."""
    bases = {name: _fields(dtype)[name][0].base for name in dtype.names or ()}
    return [name for name, base in bases.items() if base.names or base.type is not np.void]


def _rows(layout: StructLayout, at: int = 0, prefix: str = "") -> Iterator[tuple[int, str, str]]:
    for field in layout.fields:
        name = prefix + field.name
        if field.struct is None:
            yield at + field.offset, name, field.type
        else:
            extents = "".join(f"[{extent}]" for extent in field.shape)
            yield from _rows(field.struct, at + field.offset, f"{name}{extents}.")


def _dtype_rows(dtype: np.dtype[Any], at: int = 0, prefix: str = "") -> Iterator[tuple[int, str, str]]:
    for name in dtype.names or ():
        inner, offset = _fields(dtype)[name][:2]
        base, shape = inner.subdtype or (inner, ())
        extents = "".join(f"[{extent}]" for extent in shape)
        if base.names:
            yield from _dtype_rows(base, at + offset, f"{prefix}{name}{extents}.")
        else:
            yield at + offset, prefix + name, base.name + extents


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype.name}{''.join(f'[{extent}]' for extent in value.shape)}"
    if isinstance(value, np.generic):
        return str(value.dtype.name)
    if isinstance(value, tuple | list | Mapping):
        return f"{type(value).__name__} of {len(value)}"
    return type(value).__name__
