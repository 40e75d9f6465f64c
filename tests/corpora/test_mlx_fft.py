"""MLX: Fourier transforms, whose steps are function constants: of mixed radices, of primes, in four steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ostinato as ost
from checkouts import Checkouts
from launching import launch
from mlx_kernels import kernel

Array = np.ndarray[Any, Any]

RADICES = (13, 11, 8, 7, 6, 5, 4, 3, 2)
"""In the order of the function constants with the numbers of their steps."""


def plan(each: int, steps: dict[int, int], prime: dict[int, int] | None = None, **more: Any) -> dict[int | str, Any]:
    """Function constants: how many elements a thread has, how often each radix is used, within Rader's method too."""
    constants: dict[int | str, Any] = {"inv_": False, "is_power_of_2_": False, "elems_per_thread_": each, "rader_m_": 1}
    for first, used in ((4, steps), (13, prime or {})):
        constants |= {first + place: used.get(radix, 0) for place, radix in enumerate(RADICES)}
    return constants | {"use_bluestein_twiddle_table_": False} | more


def spectra(numbers: np.random.Generator, *shape: int) -> Array:
    return (numbers.standard_normal(shape) + 1j * numbers.standard_normal(shape)).astype(np.complex64)


def parts(x: Array) -> Array:
    """Complex numbers as pairs of floats."""
    return x.astype(np.complex64).view(np.float32)


def check(got: Array, expected: Array) -> None:
    np.testing.assert_allclose(got.ravel().view(expected.dtype), expected.ravel(), atol=2e-6 * np.abs(expected).max())


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize(
    ("n", "memory", "together", "each", "steps"),
    [
        (1024, 1024, 1, 8, {8: 3, 2: 1}),
        (64, 256, 4, 4, {4: 3}),
        (30, 256, 8, 6, {6: 1, 5: 1}),
        (385, 512, 1, 7, {11: 1, 7: 1, 5: 1}),
        (1872, 2048, 1, 6, {13: 1, 8: 1, 6: 1, 3: 1}),
    ],
    ids=lambda value: str(value) if isinstance(value, int) and value > 13 else "",
)
def test_transform(
    dev: ost.Device,
    checkouts: Checkouts,
    numbers: np.random.Generator,
    n: int,
    memory: int,
    together: int,
    each: int,
    steps: dict[int, int],
    inverse: bool,
) -> None:
    x = spectra(numbers, 11, n)
    constants = plan(each, steps, inv_=inverse, is_power_of_2_=n & (n - 1) == 0)
    transform = kernel(checkouts, "fft", f"fft_mem_{memory}_float2_float2", constants=constants)
    got = launch(
        dev, transform, parts(x), np.ones_like(parts(x)), n, 11,
        groups=-(-11 // together), group_size=(1, together, -(-n // each)),
    )  # fmt: skip
    check(got, (np.fft.ifft if inverse else np.fft.fft)(x).astype(np.complex64))


@pytest.mark.parametrize("inverse", [False, True])
def test_transform_of_real_numbers(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, inverse: bool
) -> None:
    x = numbers.standard_normal((7, 60)).astype(np.float32)
    y = np.fft.rfft(x).astype(np.complex64)
    types, source, result = ("float2_float", parts(y), x) if inverse else ("float_float2", x, parts(y))
    constants = plan(6, {6: 1, 5: 1, 2: 1}, inv_=inverse)
    transform = kernel(checkouts, "fft", f"fft_mem_256_{types}", constants=constants)
    got = launch(dev, transform, source, np.ones_like(result), 60, 7, groups=1, group_size=(1, 4, 10))
    check(got, x if inverse else y)


def test_transform_by_raders_method(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    x = spectra(numbers, 5, 102)
    powers = np.array([pow(3, k, 17) for k in range(16)], np.int16)  # 3 generates all numbers modulo 17
    inverses = np.array([pow(3, -k, 17) for k in range(16)], np.int16)
    factors = parts(np.fft.fft(np.exp(-2j * np.pi * inverses / 17)))
    constants = plan(6, {6: 1}, {4: 2}, rader_m_=6)
    transform = kernel(checkouts, "fft", "rader_fft_mem_256_float2_float2", constants=constants)
    tables = (factors, powers, inverses)
    got = launch(dev, transform, parts(x), np.ones_like(parts(x)), *tables, 102, 5, 17, groups=3, group_size=(1, 2, 17))
    check(got, np.fft.fft(x).astype(np.complex64))


@pytest.mark.parametrize(
    ("n", "padded", "memory", "together", "each", "steps"),
    [(47, 128, 256, 2, 4, {4: 3, 2: 1}), (1999, 4096, 4096, 1, 8, {8: 4})],
    ids=["47", "1999"],
)
def test_transform_by_bluesteins_method(
    dev: ost.Device,
    checkouts: Checkouts,
    numbers: np.random.Generator,
    n: int,
    padded: int,
    memory: int,
    together: int,
    each: int,
    steps: dict[int, int],
) -> None:
    x = spectra(numbers, 5, n)
    squares = np.arange(1 - n, n, dtype=np.float64) ** 2
    chirp = np.exp(1j * np.pi * squares / n)
    filters = parts(np.fft.fft(chirp, padded)), parts(chirp[n - 1 :].conj())
    constants = plan(each, steps, is_power_of_2_=True)
    transform = kernel(checkouts, "fft", f"bluestein_fft_mem_{memory}_float2_float2", constants=constants)
    geometry: Any = {"groups": -(-5 // together), "group_size": (1, together, padded // each)}
    got = launch(dev, transform, parts(x), np.ones_like(parts(x)), *filters, n, padded, 5, **geometry)
    check(got, np.fft.fft(x).astype(np.complex64))


@pytest.mark.parametrize("inverse", [False, True])
def test_transform_in_four_steps(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, inverse: bool
) -> None:
    x = spectra(numbers, 3, 8192)
    columns = plan(4, {4: 3, 2: 1}, inv_=inverse, is_power_of_2_=True)
    rows = plan(4, {4: 3}, inv_=inverse, is_power_of_2_=True)
    first = kernel(checkouts, "fft", "four_step_mem_512_float2_float2_0_false", constants=columns)
    second = kernel(checkouts, "fft", "four_step_mem_256_float2_float2_1_false", constants=rows)
    empty = np.ones_like(parts(x))
    half = launch(dev, first, parts(x), empty, 128, 64, 192, groups=48, group_size=(1, 4, 32))
    got = launch(dev, second, half, empty, 128, 64, 384, groups=96, group_size=(1, 4, 16))
    check(got, (np.fft.ifft if inverse else np.fft.fft)(x).astype(np.complex64))
