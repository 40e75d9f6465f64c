"""gpt-oss: the kernels of its Metal reference."""

from __future__ import annotations

import ml_dtypes
import numpy as np

import ostinato as ost
from checkouts import Checkouts
from launching import launch

FOLDER = "gpt_oss/metal/source"
NOT_ABORTED = np.zeros(1, np.uint32)
"""The control block that every kernel looks at."""


def kernel(checkouts: Checkouts, file: str, name: str) -> ost.Kernel:
    return checkouts.library("gpt-oss", f"{FOLDER}/{file}.metal", include=(f"{FOLDER}/include",))[name]


def test_rmsnorm(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    norm = kernel(checkouts, "rmsnorm", "gptoss_f32_bf16w_rmsnorm")
    x = numbers.standard_normal((3, 2880)).astype(np.float32)
    weights = numbers.standard_normal(2880).astype(ml_dtypes.bfloat16)
    arguments = {"num_vecs": 720, "num_channels": 2880.0, "epsilon": 1e-5}
    got = launch(dev, norm, arguments, x, weights, np.zeros_like(x), NOT_ABORTED, groups=3, group_size=1024)
    expected = x / np.sqrt(np.mean(x.astype(np.float64) ** 2, axis=1, keepdims=True) + 1e-5) * weights.astype(float)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
