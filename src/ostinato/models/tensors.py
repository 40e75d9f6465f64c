"""Tensors as stored in files: views of mapped bytes, some of them in blocks.

A quantised tensor is an array of blocks: its dtype is `Q4_0` or `Q8_0` (32 weights) or one of `AFFINE4` (64 weights),
and its last axis is that many times shorter. `as_float32` converts any array of this package to its weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from .files import Bytes

BLOCK = 32
"""Weights in a block."""
Q4_0: np.dtype[Any] = np.dtype([("scale", "<f2"), ("quants", "u1", BLOCK // 2)])
"""Weight `i` is `scale × (nibble − 8)`, with the low nibble of byte `i` or the high one of byte `i − 16`."""
Q8_0: np.dtype[Any] = np.dtype([("scale", "<f2"), ("quants", "i1", BLOCK)])
"""Weight `i` is `scale × quants[i]`."""
FLOATS: tuple[np.dtype[Any], ...] = tuple(map(np.dtype, (np.float32, np.float16, ml_dtypes.bfloat16)))
GROUP = 64
"""Weights in a group of `AFFINE4`."""
AFFINE4: dict[np.dtype[Any], np.dtype[Any]] = {
    kind: np.dtype([("numbers", "<u4", GROUP // 8), ("scale", kind), ("bias", kind)]) for kind in FLOATS
}
"""By the dtype of scale and bias. Weight `i` is `scale × number + bias`; its number is four bits of word `i // 8`, from
bit `4 × (i % 8)` on."""

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a file: its format as the file names it, its shape in weights, its bytes.

    `dtype` is None for an unsupported format; reading such a tensor raises.
    """

    format: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any] | None
    data: Bytes

    def array(self) -> Array:
        """A read-only view of the file, which need not be aligned."""
        if self.dtype is None:
            raise TypeError(f"the format {self.format} is not supported")
        return self.data.view(self.dtype).reshape(stored_shape(self.shape, self.dtype))


def is_affine4(dtype: np.dtype[Any]) -> bool:
    return dtype in AFFINE4.values()


def is_quantised(dtype: np.dtype[Any]) -> bool:
    return dtype in (Q4_0, Q8_0) or is_affine4(dtype)


def stored_shape(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[int, ...]:
    """The shape of the array for weights of this shape."""
    return (*shape[:-1], shape[-1] // _together(dtype)) if shape else shape


def weight_shape(array: Array) -> tuple[int, ...]:
    """The shape in weights, which for a quantised array is not the array's own."""
    return (*array.shape[:-1], array.shape[-1] * _together(array.dtype)) if array.shape else array.shape


def _together(dtype: np.dtype[Any]) -> int:
    """Weights per element of an array."""
    return GROUP if is_affine4(dtype) else BLOCK if is_quantised(dtype) else 1


def as_float32(array: Array) -> NDArray[np.float32]:
    """The weights of an array as float32; the array itself if it is float32 already."""
    if not is_quantised(array.dtype):
        return array.astype(np.float32, copy=False)
    if is_affine4(array.dtype):
        numbers = (array["numbers"][..., None] >> np.arange(0, 32, 4, dtype=np.uint32)) & 15
        numbers = numbers.reshape(*array.shape, GROUP).astype(np.float32)
        scale, bias = (array[part].astype(np.float32)[..., None] for part in ("scale", "bias"))
        affine: NDArray[np.float32] = scale * numbers + bias
        return affine.reshape(weight_shape(array))
    quants = array["quants"]
    if array.dtype == Q4_0:
        quants = np.concatenate([quants & 15, quants >> 4], axis=-1).astype(np.int8) - np.int8(8)
    weights: NDArray[np.float32] = array["scale"].astype(np.float32)[..., None] * quants
    return weights.reshape(weight_shape(array))
