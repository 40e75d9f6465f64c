"""Are the kernels fast? One line each in the summary, compared with earlier runs by --ostinato-compare."""

from collections.abc import Callable

import numpy as np
import pytest

import ostinato as ost

WIDTH = 32


@pytest.mark.parametrize("columns", [1024, 4096])
def test_rms_norm_speed(kernels: ost.Library, ostinato_bench: Callable[..., ost.Bench], columns: int) -> None:
    x = np.random.default_rng(0).standard_normal((256, columns), np.float32)
    weight, y = np.ones(columns, np.float32), np.zeros_like(x)
    ostinato_bench(kernels["rms_norm"], x, weight, y, columns, 1e-6, threads=256 * WIDTH, group_size=WIDTH)
