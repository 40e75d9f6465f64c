"""Are the kernels right? Compared with NumPy, over sizes that are not multiples of a simdgroup."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ostinato as ost
from ostinato.testing import assert_kernel

WIDTH = 32


@pytest.mark.parametrize("columns", [1, 31, 32, 33, 1000])
@pytest.mark.parametrize("rows", [1, 7])
def test_rms_norm(kernels: ost.Library, rows: int, columns: int) -> None:
    random = np.random.default_rng(rows * columns)
    x = random.standard_normal((rows, columns), np.float32)
    weight = random.standard_normal(columns, np.float32)
    exact = x.astype(np.float64)
    expected = exact / np.sqrt((exact**2).mean(axis=1, keepdims=True) + 1e-6) * weight
    arguments = [x, weight, np.zeros_like(x), columns, 1e-6]
    assert_kernel(kernels["rms_norm"], arguments, rows * WIDTH, expected, tolerance=1e-5, group_size=WIDTH)


@settings(deadline=None)
@given(values=st.lists(st.floats(-1000, 1000, width=32), min_size=1, max_size=100))
def test_quantise_bit_for_bit(kernels: ost.Library, values: list[float]) -> None:
    x = np.array(values, np.float32)
    expected = np.clip(np.rint(x * np.float32(0.5)), -128, 127).astype(np.int8)
    assert_kernel(kernels["quantise"], {"x": x, "q": np.zeros(len(x), np.int8), "scale": 0.5}, len(x), expected)
