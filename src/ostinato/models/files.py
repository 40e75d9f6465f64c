"""Reading untrusted files: only regular files are opened, they are mapped rather than read, and JSON is strict.

A defect is a `Damaged` inside this package; `reading` turns it into a `ModelError` that names the file. A mapped file
must not be truncated while it is in use: the system kills a process that reads past its end.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..base.printable import printable
from ..errors import ModelError
from ..graph.file.values import Damaged, shown

MAX_JSON_BYTES = 64 << 20

Bytes = NDArray[np.uint8]


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns errors in the block into a `ModelError` that names the file."""
    try:
        yield
        return
    except Damaged as error:
        reason = str(error)
    except MemoryError:
        reason = "it does not fit into memory"
    except OSError as error:
        reason = f"it cannot be read: {error.strerror or error}"
    raise ModelError(f"{str(path)!r}: {printable(reason, 1000)}")


def mapped(path: Path) -> Bytes:
    """The bytes of a file, mapped read-only; the file stays mapped as long as a view of it exists."""
    with _opened(path) as (descriptor, size):
        if size == 0:
            return np.frombuffer(b"", np.uint8)
        return np.frombuffer(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ), np.uint8)


def read_file(path: Path, most: int) -> bytes:
    """The contents of a file of at most `most` bytes."""
    with _opened(path) as (descriptor, size):
        if size > most:
            raise Damaged(f"it has {size} bytes; at most {most} are read")
        with os.fdopen(os.dup(descriptor), "rb") as file:
            return file.read(most)


def read_json(path: Path) -> Any:
    return parse_json(read_file(path, MAX_JSON_BYTES))


def parse_json(data: bytes) -> Any:
    """A JSON document; infinities, endless numbers and duplicate names are refused."""

    def refuse(text: str) -> NoReturn:
        raise Damaged(f"{printable(text, 40)} is not a usable number")

    def whole(text: str) -> int:
        return int(text) if len(text) <= 40 else refuse(text)

    def real(text: str) -> float:
        value = float(text)
        return value if math.isfinite(value) else refuse(text)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) != len(pairs):
            raise Damaged("its JSON has a duplicate name in an object")
        return members

    try:
        return json.loads(
            data.decode(), parse_float=real, parse_int=whole, parse_constant=refuse, object_pairs_hook=unique
        )
    except Damaged:
        raise
    except UnicodeDecodeError:
        raise Damaged("its JSON is not Unicode text") from None
    except RecursionError:
        raise Damaged("its JSON is nested too deeply") from None
    except ValueError as error:
        raise Damaged(f"its JSON cannot be read: {error}") from None


def named(name: str) -> str:
    """A name from a file, shortened but long enough to find it there."""
    return repr(printable(name, 200))


def json_object(value: Any, where: str) -> dict[str, Any]:
    if type(value) is not dict:
        raise Damaged(f"{where}: expected an object, not {shown(value)}")
    return value


@contextmanager
def _opened(path: Path) -> Iterator[tuple[int, int]]:
    # Opening a pipe would wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise Damaged("it is not a regular file")
        yield descriptor, status.st_size
    finally:
        os.close(descriptor)
