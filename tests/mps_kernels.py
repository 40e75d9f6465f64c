"""PyTorch's Metal kernels in a folder of checkouts, and how its host programs describe tensors to them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import ostinato as ost
from checkouts import Checkouts

FOLDER = "aten/src/ATen/native/mps/kernels"
DTYPES: dict[str, Any] = {
    "float": np.float32,
    "half": np.float16,
    "bfloat": ml_dtypes.bfloat16,
    "bool": np.bool_,
    "uchar": np.uint8,
    "char": np.int8,
    "short": np.int16,
    "int": np.int32,
    "long": np.int64,
}
"""What the names of types in host names stand for."""
SCALAR_TYPES = {"uchar": 0, "char": 1, "short": 2, "int": 3, "long": 4, "half": 5, "float": 6, "bool": 11, "bfloat": 15}
"""What torch calls them in casts."""
TOLERANCE = {"float": 2e-5, "half": 1e-3, "bfloat": 8e-3}
"""Relative, of a result that was rounded to the type once; divisions and `exp` are as exact as Metal asks."""
NO_ERRORS = np.zeros(1 << 15, np.uint8)
"""Where kernels report arguments that they refuse: a count, then messages."""


def kernel(checkouts: Checkouts, file: str, name: str, **options: Any) -> ost.Kernel:
    return checkouts.library("pytorch", f"{FOLDER}/{file}.metal", include=("", "aten/src"), **options)[name]


def sizes(array: NDArray[Any]) -> NDArray[np.int64]:
    """As a tensor iterator has them: the dimension that changes fastest comes first."""
    return np.array(array.shape[::-1], np.int64)


def strides(array: NDArray[Any]) -> NDArray[np.int64]:
    """In bytes, in the order of `sizes`."""
    return np.array(array.strides[::-1], np.int64)


def element_strides(array: NDArray[Any]) -> NDArray[np.int64]:
    """In elements, the dimension that changes slowest first, as a tensor has them."""
    return np.array(array.strides, np.int64) // array.itemsize


def address(buffer: ost.Buffer) -> int:
    """For kernels that find memory by pointers in a buffer."""
    memory = buffer.view(np.uint8)  # The CUDA array interface has no bfloat16.
    on_cuda = getattr(memory, "__cuda_array_interface__", None)
    return int(on_cuda["data"][0]) if on_cuda else memory.as_numpy().ctypes.data
