"""Vectors that are read and written through casts, at addresses that are multiples of their components only."""

from __future__ import annotations

import numpy as np
import pytest

import ostinato as ost
from launching import HEAD, launch

pytestmark = pytest.mark.needs_device

SOURCE = f"""{HEAD}
kernel void read(device const float *x, device float4 *out, uint i [[thread_position_in_grid]]) {{
  out[2 * i] = *(device const float4 *)(x + i) + ((device const float4 *)(x + i))[1];
  out[2 * i + 1] = float4((*(device const float3 *)(x + i)).zyx, ((device const float2 *)(x + i))[1].y);
}}
kernel void written(device float *floats, uint i [[thread_position_in_grid]]) {{
  *(device float4 *)(floats + 5 * i) = float4(i, 1, 2, 3); *((device float2 *)(floats + 5 * i + 3)) *= 2;
}}
"""
COUNT = 8


def test_vectors_are_read_from_any_component(dev: ost.Device) -> None:
    x = np.arange(32, dtype=np.float32) ** 2
    got = launch(dev, dev.library(SOURCE)["read"], x, np.zeros((2 * COUNT, 4), np.float32), threads=COUNT)
    for i in range(COUNT):
        assert got[2 * i].tolist() == (x[i : i + 4] + x[i + 4 : i + 8]).tolist()
        assert got[2 * i + 1].tolist() == [x[i + 2], x[i + 1], x[i], x[i + 3]]


def test_vectors_are_written_at_any_component(dev: ost.Device) -> None:
    floats = launch(dev, dev.library(SOURCE)["written"], np.ones(5 * COUNT, np.float32), threads=COUNT)
    assert floats.tolist() == [number for i in range(COUNT) for number in (i, 1, 2, 6, 2)]
