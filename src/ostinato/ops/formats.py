"""Formats of quantised weights: the one table that readers, operations and error texts derive from.

A quantised matrix is an array of blocks along its rows. Each block holds a fixed number of weights as small numbers,
with scales: a weight is `scale × number`, or `scale × number + offset`. `Format.dtype` is the NumPy dtype of a block as
it is stored, `Format.parts` takes an array of blocks apart. The kernels (`kernels/formats.h`) do the same on a device,
16 weights at a time; there a format goes by its name in lower case.

GGUF's formats are in `FORMATS`, MLX's are made by `affine_format`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Parts = tuple[Array, Array, Array | None]
"""Numbers [..., parts, weights of a part]; a scale for each part, as float32; offsets, if the format has them."""

FLOATS: tuple[np.dtype[Any], ...] = tuple(map(np.dtype, (np.float32, np.float16, ml_dtypes.bfloat16)))
AFFINE_BITS, AFFINE_GROUPS = (2, 3, 4, 5, 6, 8), (32, 64, 128)
STEP = 16
"""Weights that kernels decode at a time; every block is a multiple of it."""


@dataclass(frozen=True, slots=True)
class Format:
    """How weights are stored in blocks."""

    name: str
    weights: int
    """In a block."""
    dtype: np.dtype[Any]
    """Of a block."""
    parts: Callable[[Array], Parts]
    kind: int | None = None
    """Its number in GGUF files."""
    bits: int = 0
    """Of a number in MLX's formats."""

    @property
    def nbytes(self) -> int:
        """Of a block."""
        return self.dtype.itemsize

    @property
    def kernel(self) -> str:
        """The format's name in the names of kernels."""
        return self.name.lower().partition(" ")[0] if self.kind is not None else f"affine_{_TYPE_NAMES[self._kind]}"

    @property
    def constants(self) -> dict[int | str, int]:
        """Function constants of its kernels."""
        return {} if self.kind is not None else {"AFFINE_BITS": self.bits, "AFFINE_GROUP": self.weights}

    @property
    def _kind(self) -> str:
        fields = self.dtype.fields
        assert fields is not None
        return str(fields["scale"][0].name)

    def dequantised(self, blocks: Array) -> NDArray[np.float32]:
        """The weights of an array of blocks, as float32."""
        numbers, scale, offset = self.parts(blocks)
        weights: NDArray[np.float32] = scale[..., None] * numbers.astype(np.float32)
        if offset is not None:
            weights += offset[..., None]
        return weights.reshape(*blocks.shape[:-1], blocks.shape[-1] * self.weights)

    def row_bytes(self, width: int) -> int:
        """Of a row of so many weights."""
        return width // self.weights * self.nbytes


_TYPE_NAMES = {"float32": "float", "float16": "half", "bfloat16": "bfloat"}


# --- how blocks are taken apart -------------------------------------------------------------------------------------


def _wide(blocks: Array, field: str) -> Array:
    return blocks[field].astype(np.float32)


def _shifted(packed: Array, bits: int) -> Array:
    """Numbers of so many bits: first the lowest bits of all bytes, then the next ones; with an axis for the shifts."""
    return packed[..., None, :] >> np.arange(0, 8, bits, dtype=np.uint8)[:, None] & np.uint8((1 << bits) - 1)


def _flat(numbers: Array, blocks: Array, each: int) -> Array:
    """Numbers as [..., parts, `each`]."""
    return numbers.reshape(*blocks.shape, -1, each)


def _signed(numbers: Array, zero: int) -> Array:
    return numbers.astype(np.int8) - np.int8(zero)


def _nibbles(blocks: Array, field: str = "quants") -> Array:
    """Of 16 bytes: the low four bits of each, then the high ones."""
    return _flat(_shifted(blocks[field], 4), blocks, 32)


def _fifth_bits(blocks: Array) -> Array:
    ones = blocks["high"][..., None].astype(np.uint32) >> np.arange(32, dtype=np.uint32) & np.uint32(1)
    five: Array = _nibbles(blocks) | (ones.astype(np.uint8) << np.uint8(4))[..., None, :]
    return five


def _q4_0(blocks: Array) -> Parts:
    return _signed(_nibbles(blocks), 8), _wide(blocks, "scale")[..., None], None


def _q4_1(blocks: Array) -> Parts:
    return _nibbles(blocks), _wide(blocks, "scale")[..., None], _wide(blocks, "offset")[..., None]


def _q5_0(blocks: Array) -> Parts:
    return _signed(_fifth_bits(blocks), 16), _wide(blocks, "scale")[..., None], None


def _q5_1(blocks: Array) -> Parts:
    return _fifth_bits(blocks), _wide(blocks, "scale")[..., None], _wide(blocks, "offset")[..., None]


def _q8_0(blocks: Array) -> Parts:
    return blocks["quants"][..., None, :], _wide(blocks, "scale")[..., None], None


CURVE = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""What the 16 numbers of IQ4_NL stand for."""


def _iq4_nl(blocks: Array) -> Parts:
    return np.array(CURVE, np.int8)[_nibbles(blocks, "places")], _wide(blocks, "scale")[..., None], None


def _six_bits(scales: Array) -> tuple[Array, Array]:
    """Eight scales and eight minima in 12 bytes."""
    low, middle, high = scales[..., :4], scales[..., 4:8], scales[..., 8:]
    first = np.concatenate([low & 63, (high & 15) | (low >> 2 & 48)], axis=-1)
    second = np.concatenate([middle & 63, (high >> 4) | (middle >> 2 & 48)], axis=-1)
    return first, second


def _with_minima(blocks: Array, numbers: Array, scales: Array, minima: Array) -> Parts:
    scale = _wide(blocks, "scale")[..., None] * scales.astype(np.float32)
    return numbers, scale, -(_wide(blocks, "minimum")[..., None] * minima.astype(np.float32))


def _q4_k(blocks: Array) -> Parts:
    numbers = _shifted(blocks["quants"].reshape(*blocks.shape, 4, 32), 4)
    return _with_minima(blocks, _flat(numbers, blocks, 32), *_six_bits(blocks["scales"]))


def _q5_k(blocks: Array) -> Parts:
    numbers = _flat(_shifted(blocks["quants"].reshape(*blocks.shape, 4, 32), 4), blocks, 32)
    fifth = _shifted(blocks["high"], 1) << np.uint8(4)
    return _with_minima(blocks, numbers | fifth, *_six_bits(blocks["scales"]))


def _q2_k(blocks: Array) -> Parts:
    numbers = _flat(_shifted(blocks["quants"].reshape(*blocks.shape, 2, 32), 2), blocks, 16)
    return _with_minima(blocks, numbers, blocks["scales"] & 15, blocks["scales"] >> 4)


def _q3_k(blocks: Array) -> Parts:
    low = _flat(_shifted(blocks["scales"][..., :8], 4), blocks, 16)[..., 0, :]
    high = _flat(_shifted(blocks["scales"][..., 8:], 2), blocks, 16)[..., 0, :]
    scale = _wide(blocks, "scale")[..., None] * _signed(low | high << np.uint8(4), 32).astype(np.float32)
    numbers = _flat(_shifted(blocks["quants"].reshape(*blocks.shape, 2, 32), 2), blocks, 32)
    third = _shifted(blocks["high"], 1) << np.uint8(2)
    return _flat(_signed(numbers | third, 4), blocks, 16), scale, None


def _q6_k(blocks: Array) -> Parts:
    low = _flat(_shifted(blocks["quants"].reshape(*blocks.shape, 2, 64), 4), blocks, 32)
    high = _flat(_shifted(blocks["high"].reshape(*blocks.shape, 2, 32), 2), blocks, 32)
    scale = _wide(blocks, "scale")[..., None] * blocks["scales"].astype(np.float32)
    return _flat(_signed(low | high << np.uint8(4), 32), blocks, 16), scale, None


def _affine(bits: int, blocks: Array) -> Parts:
    """Numbers follow each other as bits, the first in the lowest."""
    ones = np.unpackbits(np.ascontiguousarray(blocks[f"bits{bits}"]).view(np.uint8), axis=-1, bitorder="little")
    numbers = ones.reshape(*blocks.shape, -1, bits) << np.arange(bits, dtype=np.uint8)
    return (
        numbers.sum(axis=-1, dtype=np.uint8)[..., None, :],
        _wide(blocks, "scale")[..., None],
        _wide(blocks, "bias")[..., None],
    )


# --- the table ------------------------------------------------------------------------------------------------------


def _gguf(kind: int, name: str, weights: int, parts: Callable[[Array], Parts], *fields: tuple[Any, ...]) -> Format:
    return Format(name, weights, np.dtype(list(fields)), parts, kind)


_SCALE = ("scale", "<f2")
_MINIMA = (_SCALE, ("minimum", "<f2"))

FORMATS: dict[str, Format] = {
    each.name: each
    for each in (
        _gguf(2, "Q4_0", 32, _q4_0, _SCALE, ("quants", "u1", 16)),
        _gguf(3, "Q4_1", 32, _q4_1, _SCALE, ("offset", "<f2"), ("quants", "u1", 16)),
        _gguf(6, "Q5_0", 32, _q5_0, _SCALE, ("high", "<u4"), ("quants", "u1", 16)),
        _gguf(7, "Q5_1", 32, _q5_1, _SCALE, ("offset", "<f2"), ("high", "<u4"), ("quants", "u1", 16)),
        _gguf(8, "Q8_0", 32, _q8_0, _SCALE, ("quants", "i1", 32)),
        _gguf(10, "Q2_K", 256, _q2_k, ("scales", "u1", 16), ("quants", "u1", 64), *_MINIMA),
        _gguf(11, "Q3_K", 256, _q3_k, ("high", "u1", 32), ("quants", "u1", 64), ("scales", "u1", 12), _SCALE),
        _gguf(12, "Q4_K", 256, _q4_k, *_MINIMA, ("scales", "u1", 12), ("quants", "u1", 128)),
        _gguf(13, "Q5_K", 256, _q5_k, *_MINIMA, ("scales", "u1", 12), ("high", "u1", 32), ("quants", "u1", 128)),
        _gguf(14, "Q6_K", 256, _q6_k, ("quants", "u1", 128), ("high", "u1", 64), ("scales", "i1", 16), _SCALE),
        _gguf(20, "IQ4_NL", 32, _iq4_nl, _SCALE, ("places", "u1", 16)),
    )
}
"""GGUF's formats by name."""


@cache
def affine_format(bits: int, group: int, scales: Any) -> Format:
    """MLX's format for numbers of so many bits in groups, with scales and biases of this dtype."""
    kind = np.dtype(scales)
    if bits not in AFFINE_BITS or group not in AFFINE_GROUPS or kind not in FLOATS:
        raise ValueError(f"no affine format of {bits} bits in groups of {group} with scales in {kind}")
    dtype = np.dtype([(f"bits{bits}", "<u4", group * bits // 32), ("scale", kind), ("bias", kind)])

    def parts(blocks: Array) -> Parts:
        return _affine(bits, blocks)

    return Format(f"affine {bits} bits in groups of {group}", group, dtype, parts, bits=bits)


@cache
def _by_dtype() -> dict[np.dtype[Any], Format]:
    """Every format by its dtype. No two are equal, since fields are named by what they hold."""
    made = {each.dtype: each for each in FORMATS.values()}
    for bits in AFFINE_BITS:
        for group in AFFINE_GROUPS:
            made.update({affine_format(bits, group, kind).dtype: affine_format(bits, group, kind) for kind in FLOATS})
    return made


def format_of(dtype: np.dtype[Any]) -> Format | None:
    """The format whose blocks have this dtype; None for other dtypes."""
    return _by_dtype().get(dtype) if dtype.fields is not None else None
