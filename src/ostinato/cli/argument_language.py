"""The values that `ostinato bench` takes: a number, an array to fill, or an array in a file.

    3.0                         a number; also true and false
    float32[1048576]:random     an array, filled with random numbers; also zeros, ones, arange, or the seed of others
    half[64,128]                random, too; element types have the names of NumPy or of Metal
    weights.npy                 an array in a file of NumPy

`parsed` reads a text and nothing else, so that a wrong one is refused before anything is compiled or allocated. The
same text gives the same array in every run.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from ..errors import ArgumentError
from ..msl.reflect import SCALARS
from .options import number

FILLS = ("random", "zeros", "ones", "arange")
DTYPES = tuple(sorted(set(SCALARS.values())))
SUFFIX = ".npy"

_RANDOM_INTEGERS = 100
"""Random integers are smaller than this: large ones would be indices out of bounds in many kernels."""
_ARRAY = re.compile(r"([^\[\]:]*)\[([^\[\]]*)\](?::(.*))?")
_WHOLE = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Number:
    """One number, whose type is the kernel's."""

    value: bool | int | float


@dataclass(frozen=True, slots=True)
class Filled:
    """An array that is made."""

    dtype: str
    shape: tuple[int, ...]
    fill: str = "random"
    """One of `FILLS`."""
    seed: int = 0
    """Of random numbers."""

    @property
    def nbytes(self) -> int:
        """The size of the array."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def __str__(self) -> str:
        fill = str(self.seed) if self.fill == "random" and self.seed else self.fill
        return f"{self.dtype}[{','.join(map(str, self.shape))}]:{fill}"


@dataclass(frozen=True, slots=True)
class Stored:
    """An array in a file."""

    path: Path


Value = Number | Filled | Stored


def assignment(text: str) -> tuple[str, Value]:
    """Name and value of NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise ArgumentError(f"{text!r} is not NAME=VALUE, such as 0=float32[1024] or 2=3.0")
    try:
        return name, parsed(value)
    except ArgumentError as error:
        raise ArgumentError(f"{text!r}: {error}") from None


def parsed(text: str) -> Value:
    """The value that a text describes; raises an `ArgumentError` that says what is wrong with it."""
    if match := _ARRAY.fullmatch(text):
        return _filled(*match.groups())
    if text.endswith(SUFFIX):
        return Stored(Path(text))
    value = number(text)
    if value is not None:
        return Number(value)
    dtype, _, fill = text.partition(":")
    if dtype in SCALARS or dtype in DTYPES:
        raise ArgumentError(f"the size is missing; write {dtype}[1024]{':' if fill else ''}{fill}")
    if text in FILLS:
        raise ArgumentError(f"the type and the size are missing; write float32[1024]:{text}")
    raise ArgumentError("expected a number, an array such as float32[1024]:random, or a file that ends in .npy")


def _filled(dtype: str, axes: str, fill: str | None) -> Filled:
    scalar = dtype if dtype in DTYPES else SCALARS.get(dtype)
    if scalar is None:
        raise ArgumentError(f"there is no element type {dtype!r}; known are {', '.join(DTYPES)}")
    shape = [axis.strip() for axis in axes.split(",")]
    for axis in shape:
        if not _WHOLE.fullmatch(axis) or not int(axis):
            raise ArgumentError(f"{axis!r} is not a size; write whole numbers from 1, such as {dtype}[1024] or [64,64]")
    sizes = tuple(map(int, shape))
    if fill is None or fill in FILLS:
        return _checked(Filled(scalar, sizes, fill or "random"))
    if _WHOLE.fullmatch(fill):
        return Filled(scalar, sizes, "random", int(fill))
    if fill.endswith(SUFFIX):
        raise ArgumentError(f"a file knows its own type and size; write only {fill}")
    raise ArgumentError(f"{fill!r} is no way to fill an array; use {', '.join(FILLS)}, or a number as seed of random")


def _checked(array: Filled) -> Filled:
    last = math.prod(array.shape) - 1
    if array.fill == "arange" and last > _largest(array.dtype):
        raise ArgumentError(f"arange reaches {last}, which {array.dtype} cannot hold")
    return array


def _largest(dtype: str) -> float:
    if dtype == "bool":
        return 1
    return int(np.iinfo(dtype).max) if "int" in dtype else float(ml_dtypes.finfo(dtype).max)


def made(value: Filled | Stored, stream: int = 0) -> np.ndarray:
    """The array. Arrays of one seed and different `stream`s hold different random numbers."""
    return _read(value.path) if isinstance(value, Stored) else _make(value, stream)


def _make(array: Filled, stream: int) -> np.ndarray:
    dtype: np.dtype[Any] = np.dtype(array.dtype)
    if array.fill == "zeros":
        return np.zeros(array.shape, dtype)
    if array.fill == "ones":
        return np.ones(array.shape, dtype)
    if array.fill == "arange":
        return np.arange(math.prod(array.shape)).astype(dtype).reshape(array.shape)
    random = np.random.default_rng([array.seed, stream])
    if dtype.kind in "iu":
        return random.integers(0, _RANDOM_INTEGERS, array.shape, dtype)
    if dtype.kind == "b":
        return random.integers(0, 2, array.shape, np.uint8).astype(bool)
    numbers = random.random(array.shape, np.float32)
    numbers *= 2
    numbers -= 1
    return numbers.astype(dtype, copy=False)


def _read(path: Path) -> np.ndarray:
    try:
        array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ArgumentError(f"{str(path)!r} cannot be read as an array: {error}") from None
    return array
