"""Reading safetensors: the length of a header, the header in JSON, and the bytes of all tensors one after the other.

Nothing is executed and only the header is read: tensors are views of the mapped file. The header is checked against the
file: each tensor has as many bytes as its shape and dtype need, and together they are the rest of the file, without
overlaps or gaps. A checkpoint in several files has an index, which can name only files in its own folder.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from ..graph.file.values import Damaged, integer, listed, shape_of, shown
from .files import MAX_JSON_BYTES, json_object, mapped, named, parse_json, read_json, reading
from .tensors import StoredTensor

DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(dtype)
    for name, dtype in {
        "BOOL": np.bool_,
        "U8": np.uint8,
        "I8": np.int8,
        "F8_E4M3": ml_dtypes.float8_e4m3fn,
        "F8_E5M2": ml_dtypes.float8_e5m2,
        "U16": np.uint16,
        "I16": np.int16,
        "F16": np.float16,
        "BF16": ml_dtypes.bfloat16,
        "U32": np.uint32,
        "I32": np.int32,
        "F32": np.float32,
        "U64": np.uint64,
        "I64": np.int64,
        "F64": np.float64,
    }.items()
}

_LENGTH_BYTES = 8
_SHARD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,250}\.safetensors", re.ASCII)


def read_safetensors(path: Path) -> dict[str, StoredTensor]:
    """The tensors of one file by name."""
    with reading(path):
        return _tensors(path)


def read_sharded(index: Path) -> dict[str, StoredTensor]:
    """The tensors of a checkpoint in several files, by its index."""
    with reading(index):
        places = json_object(json_object(read_json(index), "it").get("weight_map"), "weight_map")
        for shard in places.values():
            if type(shard) is not str or not _SHARD.fullmatch(shard):
                raise Damaged(f"weight_map: {shown(shard)} is not the name of a safetensors file in its folder")
        shards = {shard: read_safetensors(index.parent / shard) for shard in sorted(set(places.values()))}
        for name, shard in places.items():
            if name not in shards[shard]:
                raise Damaged(f"weight_map: {named(name)} is not in {shard}")
    return {name: shards[shard][name] for name, shard in places.items()}


def _tensors(path: Path) -> dict[str, StoredTensor]:
    data = mapped(path)
    if data.size < _LENGTH_BYTES:
        raise Damaged("it is not a safetensors file: it is too short for a header")
    length = int.from_bytes(data[:_LENGTH_BYTES].tobytes(), "little")
    if length > min(data.size - _LENGTH_BYTES, MAX_JSON_BYTES):
        most = min(data.size - _LENGTH_BYTES, MAX_JSON_BYTES)
        raise Damaged(f"it is not a safetensors file, or cut short: its header has {length} bytes, of at most {most}")
    body = data[_LENGTH_BYTES + length :]
    header = json_object(parse_json(data[_LENGTH_BYTES : _LENGTH_BYTES + length].tobytes()), "its header")
    header.pop("__metadata__", None)
    tensors = {}
    spans = []
    for name, entry in header.items():
        where = f"tensor {named(name)}"
        begin, end, format_, shape = _entry(json_object(entry, where), where, body.size)
        spans.append((begin, end, name))
        tensors[name] = StoredTensor(format_, shape, DTYPES[format_], body[begin:end])
    _check_spans(sorted(spans), body.size)
    return tensors


def _entry(entry: dict[str, Any], where: str, body_bytes: int) -> tuple[int, int, str, tuple[int, ...]]:
    format_ = entry.get("dtype")
    if type(format_) is not str or format_ not in DTYPES:
        raise Damaged(f"{where}: {shown(format_)} is not one of the dtypes {', '.join(DTYPES)}")
    shape = shape_of(entry.get("shape"), where, DTYPES[format_].itemsize)
    begin, end = listed(entry.get("data_offsets"), f"{where}, data_offsets", 2)
    begin = integer(begin, f"{where}, data_offsets", 0, body_bytes)
    end = integer(end, f"{where}, data_offsets", begin, body_bytes)
    needed = math.prod(shape) * DTYPES[format_].itemsize
    if needed != end - begin:
        raise Damaged(f"{where}: shape {list(shape)} in {format_} needs {needed} bytes, not {end - begin}")
    return begin, end, format_, shape


def _check_spans(spans: list[tuple[int, int, str]], body_bytes: int) -> None:
    position = 0
    for begin, end, name in spans:
        if begin != position:
            what = "overlaps the previous tensor" if begin < position else "leaves a gap before it"
            raise Damaged(f"tensor {named(name)} {what}")
        position = end
    if position != body_bytes:
        raise Damaged(f"its tensors take {position} bytes, but the file has {body_bytes}")
