"""Functions inside Apple's library that shaders declare by their names there, and the matrices they multiply."""

from __future__ import annotations

import numpy as np
import pytest

import ostinato as ost
from launching import HEAD, launch

SOURCE = (
    f"{HEAD}#ifndef ELEMENT\n#define ELEMENT float\n#endif\n"
    + """
struct _simdgroup_event_t;
thread _simdgroup_event_t *__metal_simdgroup_async_copy_1d(ulong, ulong, threadgroup void *, const device void *, ulong)
  __asm("air.simdgroup_async_copy_1d.p3i8.p1i8");
thread _simdgroup_event_t *__metal_simdgroup_async_copy_2d(
  ulong, ulong, threadgroup void *, ulong, ulong, ulong2, const device void *, ulong, ulong, ulong2, long2, int)
  __asm("air.simdgroup_async_copy_2d.p3i8.p1i8");
thread _simdgroup_event_t *__metal_simdgroup_async_copy_2d(
  ulong, ulong, device void *, ulong, ulong, ulong2, const threadgroup void *, ulong, ulong, ulong2, long2, int)
  __asm("air.simdgroup_async_copy_2d.p1i8.p3i8");
void __metal_wait_simdgroup_events(int, thread _simdgroup_event_t **) __asm("air.wait_simdgroup_events");

template <typename T> struct matrix_storage {
  vec<T, 64> t;
  METAL_FUNC thread vec<T, 2> *elements() thread { return reinterpret_cast<thread vec<T, 2> *>(&t); }
  template <typename U> METAL_FUNC void load(const device U *source, uint row, ushort2 at) {
    for (ushort i = 0; i < 2; i++) (*elements())[i] = T(source[uint(at.y) * row + at.x + i]);
  }
  template <typename U> METAL_FUNC void load(const threadgroup U *source, ushort row, ushort2 at) {
    for (ushort i = 0; i < 2; i++) (*elements())[i] = T(source[at.y * row + at.x + i]) + T(1);
  }
};

static_assert(__is_valid_simdgroup_type<half4>::value && !__is_valid_simdgroup_type<long>::value, "reductions");
kernel void product(device const float *a, device const half *b, device float *c, ushort lane [[thread_index_in_simdgroup]]) {
  const ushort2 at(((lane >> 2) & 2) * 2 + (lane & 1) * 2, ((lane >> 2) & 4) + ((lane >> 1) & 3));
  threadgroup half tile[64];
  thread _simdgroup_event_t *copied = __metal_simdgroup_async_copy_1d(2, 2, tile, b, 64);
  __metal_wait_simdgroup_events(1, &copied);
  matrix_storage<float> left, sum;
  matrix_storage<half> right;
  left.load(a, 8, at);
  right.load(tile, 8, at);
  *sum.elements() = float2(100);
  sum.t = __metal_simdgroup_matrix_8x8_multiply_accumulate(left.t, right.t, sum.t, sum.t);
  for (ushort i = 0; i < 2; i++) c[at.y * 8 + at.x + i] = (*sum.elements())[i];
}

template <int Clamp> kernel void tile(device const ELEMENT *in, device ELEMENT *out, constant ushort4 &shape) {
  threadgroup ELEMENT block[40 * 40];
  const ulong2 source(shape.xy), target(shape.zw);
  thread _simdgroup_event_t *copied[1];
  copied[0] = __metal_simdgroup_async_copy_2d(sizeof(ELEMENT), alignof(ELEMENT), block, 40, 1, target, in, 50, 1, source, long2(0), Clamp);
  __metal_wait_simdgroup_events(1, copied);
  __metal_simdgroup_async_copy_2d(sizeof(ELEMENT), alignof(ELEMENT), out, 60, 1, target, block, 40, 1, target, long2(0), 0);
}
template [[host_name("zeros")]] kernel void tile<0>(device const ELEMENT *, device ELEMENT *, constant ushort4 &);
template [[host_name("edge")]] kernel void tile<1>(device const ELEMENT *, device ELEMENT *, constant ushort4 &);
"""
)


@pytest.fixture(scope="module", params=["uchar", "half", "float", "ulong", "float4"])
def library(request: pytest.FixtureRequest, dev: ost.Device) -> ost.Library:
    if dev.capabilities.backend == "metal":
        pytest.skip("not every version of Metal's own compiler accepts names inside its library")
    return dev.library(SOURCE, defines={"ELEMENT": request.param})


def test_matrices_of_64_elements_are_multiplied(dev: ost.Device, library: ost.Library) -> None:
    a, b = np.arange(64, dtype=np.float32).reshape(8, 8), np.arange(64, dtype=np.float16).reshape(8, 8) % 7
    got = launch(dev, library["product"], a, b, np.zeros((8, 8), np.float32), threads=32, group_size=32)
    np.testing.assert_array_equal(got, a @ (b.astype(np.float32) + 1) + 100)


@pytest.mark.parametrize("extended", ["zeros", "edge"])
@pytest.mark.parametrize("shape", [(7, 3, 12, 5), (40, 33, 40, 40), (33, 1, 33, 1)])
def test_a_copied_tile_is_extended(
    dev: ost.Device, library: ost.Library, extended: str, shape: tuple[int, int, int, int]
) -> None:
    kernel = library[extended]
    width, height, to_width, to_height = shape
    dtype = kernel.dtype("in")
    random = np.random.default_rng(1).integers(1, 100, (40, 50, *dtype.shape))
    given = random.astype(dtype.base)
    got = launch(
        dev,
        kernel,
        given,
        np.zeros((40, 60, *dtype.shape), dtype.base),
        np.array(shape, np.uint16),
        threads=32,
        group_size=32,
    )
    padding = [(0, to_height - height), (0, to_width - width)] + [(0, 0)] * len(dtype.shape)
    padded = np.pad(given[:height, :width], padding, mode="constant" if extended == "zeros" else "edge")
    np.testing.assert_array_equal(got[:to_height, :to_width], padded)
    assert not got[to_height:].any()
    assert not got[:, to_width:].any()
