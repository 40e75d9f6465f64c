"""Memory shared with torch and CuPy, without copies and in order."""

from __future__ import annotations

import gc

import ml_dtypes
import numpy as np
import pytest

import ostinato as ost

pytestmark = pytest.mark.needs_device

SOURCE = """
#include <metal_stdlib>
using namespace metal;
kernel void twice(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] *= 2.0f; }
kernel void slow_one(device float *x [[buffer(0)]], constant uint &steps [[buffer(1)]]) {
    float value = 0;
    for (uint i = 0; i < steps; ++i) value = fma(value, 0.5f, 1.0f);
    x[0] = value > 3.0f ? 0.0f : 7.0f;
}
"""


@pytest.fixture(scope="module")
def library(dev: ost.Device) -> ost.Library:
    return dev.library(SOURCE)


def run(dev: ost.Device, kernel: ost.Kernel, *arguments: object, threads: int) -> ost.Submission:
    encoder = dev.command_encoder()
    encoder.dispatch(kernel, *arguments, threads=threads)
    return encoder.commit()


def test_a_torch_tensor_is_used_where_it_lies(dev: ost.Device, library: ost.Library) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(1000, dtype=torch.float32, device="cuda")
    buffer = dev.from_dlpack(tensor)
    run(dev, library["twice"], buffer, threads=1000).wait()
    assert torch.equal(tensor, 2 * torch.arange(1000, dtype=torch.float32, device="cuda"))


def test_a_buffer_is_a_tensor_without_a_copy(dev: ost.Device, library: ost.Library) -> None:
    torch = pytest.importorskip("torch")
    buffer = dev.array(np.ones(64, np.float32))
    tensor = torch.from_dlpack(buffer)
    run(dev, library["twice"], buffer, threads=64)
    tensor += 1  # on torch's default stream, which waits for ours
    torch.cuda.synchronize()
    assert np.array_equal(buffer.numpy(), np.full(64, 3, np.float32))


def test_work_of_torch_on_its_default_stream_comes_before_ours_and_after(dev: ost.Device, library: ost.Library) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(1, device="cuda")
    buffer = dev.from_dlpack(tensor)
    for _ in range(20):
        run(dev, library["slow_one"], buffer, 200_000, threads=1)
        tensor.add_(1)  # must see 7
        run(dev, library["twice"], buffer, threads=1)  # must see 8
        tensor.sub_(16)
        assert float(tensor) == 0.0


def test_a_stream_of_torch_waits_when_it_asks(dev: ost.Device, library: ost.Library) -> None:
    torch = pytest.importorskip("torch")
    buffer = dev.zeros(1, np.float32)
    side = torch.cuda.Stream()
    run(dev, library["slow_one"], buffer, 2_000_000, threads=1)
    with torch.cuda.stream(side):
        seen = torch.from_dlpack(buffer) + 1
    side.synchronize()
    assert float(seen) == 8.0


def test_cupy_arrays_go_both_ways(dev: ost.Device, library: ost.Library) -> None:
    cupy = pytest.importorskip("cupy")
    array = cupy.arange(100, dtype=cupy.float32)
    buffer = dev.from_dlpack(array)
    run(dev, library["twice"], buffer, threads=100).wait()
    assert cupy.array_equal(array, 2 * cupy.arange(100, dtype=cupy.float32))
    assert cupy.array_equal(cupy.asarray(buffer), array)  # by __cuda_array_interface__


def test_bfloat16_crosses_as_itself(dev: ost.Device) -> None:
    torch = pytest.importorskip("torch")
    buffer = dev.from_dlpack(torch.arange(8, device="cuda", dtype=torch.bfloat16))
    assert buffer.dtype == np.dtype(ml_dtypes.bfloat16)
    assert torch.from_dlpack(buffer).dtype == torch.bfloat16


def test_memory_lives_as_long_as_anybody_holds_it(dev: ost.Device) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.from_dlpack(dev.array(np.arange(1 << 20, dtype=np.float32)))
    gc.collect()
    others = [dev.zeros(1 << 20, np.float32) for _ in range(4)]
    assert float(tensor[-1]) == (1 << 20) - 1
    del others


def test_what_is_not_contiguous_is_refused(dev: ost.Device) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(ost.ArgumentError, match="contiguous"):
        dev.from_dlpack(torch.zeros(4, 4, device="cuda").T[1:])
