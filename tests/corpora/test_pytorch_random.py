"""PyTorch: distributions and dropout, by the counter-based generator that its kernels share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

import ostinato as ost
from checkouts import Checkouts
from launching import launch
from mps_kernels import DTYPES, NO_ERRORS, TOLERANCE, kernel

SEED, OFFSET = 0x1234_5678_9ABC, 0xFFFF_FFFE
"""The counter goes past 32 bits within the first threads."""
FROM = np.array([SEED, OFFSET], np.int64)
N = 4003
GRID = {"threads": -(-N // 4), "group_size": 64}
Array = NDArray[Any]


def philox(threads: int) -> NDArray[np.uint64]:
    """Four words for each thread: nine rounds of Philox-4x32 on its counter."""
    index: Any = OFFSET + np.arange(threads, dtype=np.uint64)
    low = np.uint64(0xFFFF_FFFF)
    x, y, z, w = 0 * index, 0 * index, index >> 32, index & low
    key = [SEED >> 32, SEED & 0xFFFF_FFFF]
    for _ in range(9):
        first, second = x * np.uint64(0xD2511F53), z * np.uint64(0xCD9E8D57)
        x, y, z, w = (
            second >> 32 ^ y ^ np.uint64(key[0]), second & low, first >> 32 ^ w ^ np.uint64(key[1]), first & low,
        )  # fmt: skip
        key = [(key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32]
    return np.stack([x, y, z, w], 1)


def uniform() -> Array:
    """Four numbers from 0 to 1 for each thread, of the lower 31 bits."""
    words = (philox(GRID["threads"]) & np.uint64(0x7FFF_FFFF)).reshape(-1)
    return (words.astype(np.float32) * np.float32(4.6566127342e-10)).astype(float)


def normal() -> Array:
    """By Box and Muller: a pair of uniform numbers becomes two normal ones."""
    pairs = uniform().reshape(-1, 2)
    radius, angle = np.sqrt(-2 * np.log(np.maximum(pairs[:, 0], 2.0**-23))), 2 * np.pi * pairs[:, 1]
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).reshape(-1)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("name", "parameters", "oracle"),
    [
        ("uniform_dist", (-2, 5), lambda: 7 * uniform() - 2),
        ("normal", (1.5, 0.5), lambda: 1.5 + 0.5 * normal()),
        ("log_normal", (0.5, 0.25), lambda: np.exp(0.5 + 0.25 * normal())),
        ("exponential", (0.5, 0), lambda: -np.log1p(-np.minimum(uniform(), 1 - 2.0**-23)) / 0.5),
    ],
)
def test_distribution(
    dev: ost.Device,
    checkouts: Checkouts,
    name: str,
    parameters: tuple[float, float],
    oracle: Callable[[], Array],
    dtype: str,
) -> None:
    sample = kernel(checkouts, "Distributions", f"{name}_{dtype}")
    got = launch(dev, sample, np.zeros(N, DTYPES[dtype]), np.array(parameters, np.float32), FROM, N, **GRID)
    assert_allclose(got.astype(float), oracle()[:N], rtol=TOLERANCE[dtype], atol=max(1e-5, TOLERANCE[dtype] / 2))


@pytest.mark.parametrize("dtype", ["float", "uchar", "long"])
def test_geometric(dev: ost.Device, checkouts: Checkouts, dtype: str) -> None:
    sample = kernel(checkouts, "Distributions", f"geometric_{dtype}")
    parameters = np.array([np.log(0.75), 0], np.float32)
    got = launch(dev, sample, np.zeros(N, DTYPES[dtype]), parameters, FROM, N, **GRID)
    trials = np.log(uniform()[:N]) / np.log(0.75)
    settled = abs(trials - np.round(trials)) > 1e-4
    assert_array_equal(got[settled], np.ceil(trials)[settled])


@pytest.mark.parametrize("spread", [0, 100])
@pytest.mark.parametrize("dtype", ["char", "short", "int", "long"])
def test_random_integers(dev: ost.Device, checkouts: Checkouts, dtype: str, spread: int) -> None:
    """A spread of 0 stands for all integers of the type."""
    sample = kernel(checkouts, "Distributions", f"random_int_{dtype}")
    each = 2 if dtype == "long" else 4
    threads = -(-N // each)
    base = -50 if spread else 0
    grid = {"threads": threads, "group_size": 64}
    got = launch(dev, sample, np.zeros(N, DTYPES[dtype]), np.array([base, spread], np.int64), FROM, N, **grid)
    words = philox(threads)
    bits = (words[:, ::2] << 32 | words[:, 1::2] if each == 2 else words).reshape(-1)[:N]
    expected = (bits % np.uint64(spread)).astype(np.int64) + base if spread else bits
    assert_array_equal(got, expected.astype(DTYPES[dtype]))


@pytest.mark.parametrize("dtype", ["bool", "half", "long"])
def test_bernoulli(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, dtype: str) -> None:
    sample = kernel(checkouts, "Distributions", f"bernoulli_tensor_{dtype}")
    chances = numbers.random(N).astype(np.float32)
    got = launch(dev, sample, np.zeros(N, DTYPES[dtype]), chances, FROM, N, NO_ERRORS, **GRID)[0]
    assert_array_equal(got, uniform()[:N] < chances)


@pytest.mark.parametrize("alpha", [0.5, 4])
def test_gamma(dev: ost.Device, checkouts: Checkouts, alpha: float) -> None:
    """How often a sample is rejected depends on rounding, so the distribution is tested and not the numbers."""
    sample = kernel(checkouts, "Distributions", "standard_gamma_float")
    got = launch(dev, sample, np.zeros(N, np.float32), np.full(N, alpha, np.float32), FROM, threads=N, group_size=64)
    assert scipy.stats.kstest(got, scipy.stats.gamma(alpha).cdf).pvalue > 1e-3


@pytest.mark.parametrize("dtype", ["bfloat", "float2"])
def test_dropout_and_its_gradient(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, dtype: str
) -> None:
    forward, backward = (kernel(checkouts, "Dropout", f"dropout_{part}_{dtype}") for part in ("fwd", "bwd"))
    x = numbers.standard_normal((N, 2) if dtype == "float2" else N).astype(DTYPES.get(dtype, np.float32))
    parameters = np.array([0.75, 4 / 3], np.float32)
    out, mask = launch(dev, forward, np.zeros_like(x), np.zeros(N, np.bool_), x, parameters, FROM, N, **GRID)
    assert_array_equal(mask, uniform()[:N] < 0.75)
    kept = mask[:, None] if x.ndim == 2 else mask
    close = TOLERANCE.get(dtype, 2e-5)
    assert_allclose(out.astype(float), np.where(kept, x.astype(float) * 4 / 3, 0), rtol=close)
    got = launch(dev, backward, np.zeros_like(x), out, mask, np.float32(4 / 3), threads=N, group_size=64)
    assert_allclose(got.astype(float), np.where(kept, out.astype(float) * 4 / 3, 0), rtol=close)
