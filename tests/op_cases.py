"""What the tests of our own kernels share: the types, values to feed them, and how near the results must be."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import ostinato as ost

DTYPES = [np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
TOLERANCE = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 2e-2}
"""Of elements: relative, and absolute beside values of about one."""


def values(shape: tuple[int, ...], dtype: np.dtype[Any], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-2, 2, shape).astype(dtype)


def run(dev: ost.Device, launch: Any, *arguments: Any, **options: Any) -> None:
    encoder = dev.command_encoder()
    launch(encoder, *arguments, **options)
    encoder.commit_and_wait()


def near(found: ost.Buffer, expected: np.ndarray, scale: float = 1.0) -> None:
    """Within the tolerance of the type; `scale` is the size of what was summed, beside which errors are measured."""
    tolerance = TOLERANCE[found.dtype.name]
    np.testing.assert_allclose(
        found.numpy().astype(np.float64).reshape(expected.shape), expected, rtol=tolerance, atol=tolerance * scale
    )
