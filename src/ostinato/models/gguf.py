"""Reading GGUF, versions 2 and 3: metadata, a table of tensors, and their bytes.

Nothing is executed, and every count and length is checked against the rest of the file before it is used. Tensors are
views of the mapped file; those in an unsupported format are listed, but have no array.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from ..graph.file.values import Damaged, shown
from ..ops.formats import FORMATS
from .files import Bytes, mapped, named, reading
from .tensors import Array, StoredTensor

MAX_NAME_BYTES = 65_535
MAX_DIMENSIONS = 4
DEFAULT_ALIGNMENT = 32

Value = bool | int | float | str | Array | list[str]


@dataclass(frozen=True, slots=True)
class GgufFile:
    """The contents of a file. In the metadata, arrays of numbers are NumPy arrays and arrays of strings are lists."""

    path: Path
    version: int
    metadata: Mapping[str, Value]
    tensors: Mapping[str, StoredTensor]

    def __repr__(self) -> str:
        return f"GgufFile({str(self.path)!r}, {len(self.metadata)} values, {len(self.tensors)} tensors)"


@dataclass(frozen=True, slots=True)
class _Format:
    name: str
    weights: int
    """In a block."""
    nbytes: int
    """Of a block."""
    dtype: np.dtype[Any] | None = None


_FORMATS = {
    0: _Format("F32", 1, 4, np.dtype(np.float32)),
    1: _Format("F16", 1, 2, np.dtype(np.float16)),
    **{each.kind or 0: _Format(each.name, each.weights, each.nbytes, each.dtype) for each in FORMATS.values()},
    30: _Format("BF16", 1, 2, np.dtype(ml_dtypes.bfloat16)),
    # Formats that are listed, but not read.
    9: _Format("Q8_1", 32, 36),
    15: _Format("Q8_K", 256, 292),
    16: _Format("IQ2_XXS", 256, 66),
    17: _Format("IQ2_XS", 256, 74),
    18: _Format("IQ3_XXS", 256, 98),
    19: _Format("IQ1_S", 256, 50),
    21: _Format("IQ3_S", 256, 110),
    22: _Format("IQ2_S", 256, 82),
    23: _Format("IQ4_XS", 256, 136),
    24: _Format("I8", 1, 1),
    25: _Format("I16", 1, 2),
    26: _Format("I32", 1, 4),
    27: _Format("I64", 1, 8),
    28: _Format("F64", 1, 8),
    29: _Format("IQ1_M", 256, 56),
    34: _Format("TQ1_0", 256, 54),
    35: _Format("TQ2_0", 256, 66),
    39: _Format("MXFP4", 32, 17),
}
READ_FORMATS = tuple(format_.name for format_ in _FORMATS.values() if format_.dtype is not None)

_MAGIC = b"GGUF"
_BOOL, _STRING, _ARRAY = 7, 8, 9
_NUMBERS = {0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 10: "<u8", 11: "<i8", 12: "<f8"}
_LEAST_VALUE_BYTES = 8 + 4 + 1
_LEAST_TENSOR_BYTES = 8 + 4 + 4 + 8


def read_gguf(path: Path) -> GgufFile:
    """The metadata and tensors of one file."""
    with reading(path):
        return _read(path)


def _read(path: Path) -> GgufFile:
    cursor = _Cursor(mapped(path))
    if cursor.left < len(_MAGIC) or cursor.take(len(_MAGIC), "its first letters").tobytes() != _MAGIC:
        raise Damaged("it is not a GGUF file (a GGUF file begins with the letters GGUF)")
    version = cursor.uint32("its version")
    if version not in (2, 3):
        hint = ", or written by a big-endian machine" if version >= 1 << 16 else ""
        raise Damaged(f"it is of version {version}; versions 2 and 3 are read{hint}")
    tensor_count = cursor.count("tensors", _LEAST_TENSOR_BYTES)
    value_count = cursor.count("values", _LEAST_VALUE_BYTES)
    metadata: dict[str, Value] = {}
    for _ in range(value_count):
        key = cursor.name("a key")
        if key in metadata:
            raise Damaged(f"it gives {named(key)} twice")
        metadata[key] = _value(cursor, f"value {named(key)}")
    entries: dict[str, tuple[_Format, tuple[int, ...], int]] = {}
    for _ in range(tensor_count):
        name = cursor.name("the name of a tensor")
        if name in entries:
            raise Damaged(f"it has two tensors {named(name)}")
        entries[name] = _tensor_entry(cursor, f"tensor {named(name)}")
    return GgufFile(path, version, metadata, _tensors(cursor, entries, _alignment(metadata)))


def _value(cursor: _Cursor, where: str) -> Value:
    kind = cursor.uint32(where)
    if kind in _NUMBERS:
        number: int | float = cursor.numbers(_NUMBERS[kind], 1, where)[0].item()
        return number
    if kind == _BOOL:
        return bool(_booleans(cursor, 1, where)[0])
    if kind == _STRING:
        return cursor.string(where)
    if kind != _ARRAY:
        raise Damaged(f"{where}: {kind} is not a type of values")
    kind = cursor.uint32(where)
    if kind in _NUMBERS:
        return cursor.numbers(_NUMBERS[kind], cursor.count(where, np.dtype(_NUMBERS[kind]).itemsize), where)
    if kind == _BOOL:
        return _booleans(cursor, cursor.count(where, 1), where)
    if kind == _STRING:
        return [cursor.string(where) for _ in range(cursor.count(where, 8))]
    raise Damaged(f"{where}: arrays of type {kind} are not read")


def _booleans(cursor: _Cursor, count: int, where: str) -> Array:
    flags = cursor.take(count, where)
    if flags.size and flags.max() > 1:
        raise Damaged(f"{where}: neither true nor false")
    return flags.view(np.bool_)


def _tensor_entry(cursor: _Cursor, where: str) -> tuple[_Format, tuple[int, ...], int]:
    dimensions = cursor.uint32(where)
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise Damaged(f"{where}: it has {dimensions} dimensions, not 1 to {MAX_DIMENSIONS}")
    # The file counts from the innermost axis, NumPy from the outermost.
    shape = tuple(int(size) for size in cursor.numbers("<u8", dimensions, where)[::-1])
    kind = cursor.uint32(where)
    format_ = _FORMATS.get(kind)
    if format_ is None:
        raise Damaged(f"{where}: {kind} is not a known format")
    if shape[-1] % format_.weights:
        raise Damaged(f"{where}: rows of {shape[-1]} weights are not whole blocks of {format_.name}")
    return format_, shape, cursor.uint64(where)


def _alignment(metadata: Mapping[str, Value]) -> int:
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if type(alignment) is not int or not 1 <= alignment <= 1 << 20 or alignment & (alignment - 1):
        raise Damaged(f"general.alignment is {shown(alignment)}, not a power of two")
    return alignment


def _tensors(
    cursor: _Cursor, entries: Mapping[str, tuple[_Format, tuple[int, ...], int]], alignment: int
) -> dict[str, StoredTensor]:
    cursor.skip(-cursor.position % alignment)
    body = cursor.rest()
    tensors = {}
    position = 0
    for name, (format_, shape, begin) in sorted(entries.items(), key=lambda entry: entry[1][2]):
        where = f"tensor {named(name)}"
        nbytes = math.prod(shape) // format_.weights * format_.nbytes
        if begin % alignment:
            raise Damaged(f"{where}: it begins at {begin}, which is not a multiple of {alignment}")
        if begin < position:
            raise Damaged(f"{where}: it overlaps the previous tensor")
        if nbytes == 0 or begin + nbytes > body.size:
            raise Damaged(f"{where}: it takes bytes {begin} to {begin + nbytes} of {body.size}; is the file cut short?")
        position = begin + nbytes
        tensors[name] = StoredTensor(format_.name, shape, format_.dtype, body[begin:position])
    return tensors


class _Cursor:
    """A reading position in the bytes of a file, which never passes their end."""

    def __init__(self, data: Bytes) -> None:
        self._data = data
        self.position = 0

    @property
    def left(self) -> int:
        return self._data.size - self.position

    def take(self, nbytes: int, where: str) -> Bytes:
        if nbytes > self.left:
            raise Damaged(f"{where}: it needs {nbytes} bytes, but only {self.left} are left; is the file cut short?")
        begin = self.position
        self.position += nbytes
        return self._data[begin : self.position]

    def skip(self, nbytes: int) -> None:
        self.position = min(self.position + nbytes, self._data.size)

    def rest(self) -> Bytes:
        return self._data[self.position :]

    def uint32(self, where: str) -> int:
        (value,) = struct.unpack("<I", self.take(4, where).tobytes())
        return int(value)

    def uint64(self, where: str) -> int:
        (value,) = struct.unpack("<Q", self.take(8, where).tobytes())
        return int(value)

    def count(self, where: str, least_bytes: int) -> int:
        """Read a count, and check that the rest of the file has room for that many."""
        number = self.uint64(where)
        if number > self.left // least_bytes:
            raise Damaged(f"{where}: {number} of them do not fit into the {self.left} bytes that are left")
        return number

    def numbers(self, dtype: str, count: int, where: str) -> Array:
        return self.take(count * np.dtype(dtype).itemsize, where).view(dtype)

    def string(self, where: str) -> str:
        # Tokens of a vocabulary may be incomplete characters.
        return self.take(self.count(where, 1), where).tobytes().decode(errors="surrogateescape")

    def name(self, where: str) -> str:
        nbytes = self.count(where, 1)
        if not 0 < nbytes <= MAX_NAME_BYTES:
            raise Damaged(f"{where}: it has {nbytes} bytes, not 1 to {MAX_NAME_BYTES}")
        try:
            return self.take(nbytes, where).tobytes().decode()
        except UnicodeDecodeError:
            raise Damaged(f"{where}: it is not Unicode text") from None
