"""Tensors as stored in files: views of mapped bytes, some of them in blocks.

A quantised tensor is an array of blocks: its dtype is that of a format of `ops.formats`, and its last axis is as many
times shorter as a block has weights. `as_float32` converts any array of this package to its weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..ops.formats import FLOATS, Array, format_of
from .files import Bytes

__all__ = ["FLOATS", "Array", "StoredTensor", "as_float32", "is_quantised", "stored_shape", "weight_shape"]


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


def is_quantised(dtype: np.dtype[Any]) -> bool:
    return format_of(dtype) is not None


def stored_shape(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[int, ...]:
    """The shape of the array for weights of this shape."""
    return (*shape[:-1], shape[-1] // _together(dtype)) if shape else shape


def weight_shape(array: Array) -> tuple[int, ...]:
    """The shape in weights, which for a quantised array is not the array's own."""
    return (*array.shape[:-1], array.shape[-1] * _together(array.dtype)) if array.shape else array.shape


def _together(dtype: np.dtype[Any]) -> int:
    """Weights per element of an array."""
    form = format_of(dtype)
    return 1 if form is None else form.weights


def as_float32(array: Array) -> NDArray[np.float32]:
    """The weights of an array as float32; the array itself if it is float32 already."""
    form = format_of(array.dtype)
    return array.astype(np.float32, copy=False) if form is None else form.dequantised(array)
