"""Products of float simdgroup matrices on a device with tf32=True, whose elements lanes read at places of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ostinato as ost
from launching import HEAD, launch
from nvrtc import Nvrtc
from ostinato.backends.cuda.ptx import joining
from ostinato.msl import parse

SOURCE = f"""{HEAD}
#include <metal_simdgroup_matrix>
template <typename T, bool turned>
kernel void places(device const T *a, device const T *b, device float *c, ushort i [[thread_index_in_threadgroup]],
                   ushort lane [[thread_index_in_simdgroup]], ushort simdgroup [[simdgroup_index_in_threadgroup]]) {{
  constexpr uint PITCH = 24;
  threadgroup T left[16 * PITCH], right[16 * PITCH];
  for (uint at = i; at < 256; at += 64) {{
    left[at / 16 * PITCH + at % 16] = a[at];
    right[at / 16 * PITCH + at % 16] = b[at];
  }}
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint row = (lane >> 2 & 4) | (lane >> 1 & 3), column = (lane >> 1 & 4) | (lane & 1) << 1;
  simdgroup_matrix<float, 8, 8> sums(0.0f), x, y;
  #pragma unroll
  for (uint k = 0; k < 16; k += 8) {{
    for (uint j = 0; j < 2; ++j) {{
      x.thread_elements()[j] = float(left[row * PITCH + k + column + j]);
      const uint down = k + row, across = simdgroup * 8 + column + j;
      y.thread_elements()[j] = float(right[turned ? across * PITCH + down : down * PITCH + across]);
    }}
    simdgroup_multiply_accumulate(sums, x, y, sums);
  }}
  simdgroup_store(sums, c + simdgroup * 8, 16);
}}
#define PLACES(t, l) template [[host_name("places_" #t "_" #l)]] \\
  kernel void places<t, l>(device const t *, device const t *, device float *, ushort, ushort, ushort);
PLACES(bfloat, false) PLACES(bfloat, true) PLACES(half, false) PLACES(half, true) PLACES(float, true)
"""
TYPES: dict[str, Any] = {"bfloat": ml_dtypes.bfloat16, "half": np.float16, "float": np.float32}


CASES = [("bfloat", False), ("bfloat", True), ("half", False), ("half", True), ("float", True)]


@pytest.fixture(scope="module")
def rounding(dev: ost.Device) -> Iterator[tuple[ost.Device, ost.Library]]:
    with ost.open_device("cuda", tf32=True) as opened:
        yield opened, opened.library(SOURCE)


@pytest.mark.needs_device
@pytest.mark.parametrize(("name", "turned"), CASES)
def test_sums_of_what_lanes_read(rounding: tuple[ost.Device, ost.Library], name: str, turned: bool) -> None:
    opened, library = rounding
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-4, 5, (16, 16)).astype(TYPES[name]) for _ in range(2))
    kernel = library[f"places_{name}_{str(turned).lower()}"]
    got = launch(opened, kernel, a, b, np.zeros((16, 16), np.float32), threads=64, group_size=64)
    expected = a.astype(np.float64) @ (b.T if turned else b).astype(np.float64)
    np.testing.assert_array_equal(got[:8], expected[:8])


@pytest.mark.parametrize(("name", "fetched"), [("bfloat", True), ("half", True), ("float", False)])
def test_what_lanes_read_of_16_bits_is_fetched_by_rows(name: str, fetched: bool) -> None:
    kept = SOURCE[: SOURCE.rindex("PLACES(bfloat, false)")] + f"PLACES({name}, true)"
    compiled = Nvrtc().compile_text("#define __OST_TF32 1\n" + parse(kept).translate("cuda").text)
    result = joining.joined(compiled.ptx)
    assert ("ldmatrix.sync.aligned.m8n8.x1.shared" in result) is fetched, compiled.log
    assert ("tf32.tf32" in result) is not fetched
