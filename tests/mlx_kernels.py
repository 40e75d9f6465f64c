"""What the tests of MLX's kernels share: where kernels are, and how MLX names types."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import ostinato as ost
from checkouts import Checkouts

FOLDER = "mlx/backend/metal/kernels"

DTYPES = {np.dtype(name).name: np.dtype(name) for name in ("int8", "int16", "int32", "int64", "float16", "float32")}
DTYPES |= {np.dtype(name).name: np.dtype(name) for name in ("uint8", "uint16", "uint32", "uint64", ml_dtypes.bfloat16)}
DTYPES["bool_"] = np.dtype(bool)
"""NumPy's types by the names that MLX's kernels have in theirs."""

ROUNDING = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}
"""Relative error that a test allows a result of a type: two roundings of it, or those of a sum in float32."""


def kernel(checkouts: Checkouts, file: str, name: str, **options: Any) -> ost.Kernel:
    return checkouts.library("mlx", f"{FOLDER}/{file}.metal", include=(".",), **options)[name]


def instance(checkouts: Checkouts, headers: tuple[str, ...], function: str, *arguments: str | int) -> ost.Kernel:
    """A kernel that MLX's host program makes of a template when it runs; `headers` are what it puts together."""
    call = f"{function}<{', '.join(map(str, arguments))}>"
    *before, last = (f"{FOLDER}/{header}.h" for header in headers)
    after = f'template [[host_name("instance")]] [[kernel]] decltype({call}) {call};'
    return checkouts.library("mlx", last, before=tuple(before), after=after, include=(".",))["instance"]


def close(got: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], scale: float = 1) -> None:
    """That results are what they should be, but for rounding, of numbers that are of the order of `scale`."""
    tolerance = ROUNDING[got.dtype.name] * scale
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=tolerance, atol=tolerance)


def strides_of(x: np.ndarray[Any, Any], *axes: int) -> np.ndarray[Any, Any]:
    """Strides in elements, as kernels take them."""
    return np.array([x.strides[axis] // x.itemsize for axis in axes or range(x.ndim)], np.int64)


def shape_of(x: np.ndarray[Any, Any], *axes: int) -> np.ndarray[Any, Any]:
    return np.array([x.shape[axis] for axis in axes or range(x.ndim)], np.int32)
