"""The times of dispatches are those of the device, by a kernel that takes a known time; native source; launchers."""

from __future__ import annotations

import numpy as np
import pytest

import ostinato as ost

pytestmark = pytest.mark.needs_device

SOURCE = """
#include <metal_stdlib>
using namespace metal;
kernel void spin(device uint *x [[buffer(0)]], constant uint &cycles [[buffer(1)]]) { x[0] = cycles; }
kernel void increment(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] += 1.0f; }
kernel void add_value(device float *x [[buffer(0)]], constant float &by [[buffer(1)]],
                      uint i [[thread_position_in_grid]]) { x[i] += by; }
"""
CUDA = """
extern "C" __global__ void __launch_bounds__(256) spin(unsigned *x, unsigned cycles) {
  const long long begin = clock64();
  while (clock64() - begin < cycles) {}
  if (threadIdx.x == 0 && blockIdx.x == 0) x[0] = cycles + 1;
}
"""


@pytest.fixture(scope="module")
def library(dev: ost.Device) -> ost.Library:
    return dev.library(SOURCE, cuda=CUDA)


def test_cuda_source_runs_instead_of_the_metal_kernel_of_its_name(dev: ost.Device, library: ost.Library) -> None:
    word = dev.zeros(1, np.uint32)
    encoder = dev.command_encoder()
    encoder.dispatch(library["spin"], word, 41, threads=32)
    encoder.commit_and_wait()
    assert word.numpy()[0] == 42


def test_longer_spins_take_longer_in_the_order_of_their_cycles(dev: ost.Device, library: ost.Library) -> None:
    word = dev.zeros(1, np.uint32)
    cycles = (20_000, 40_000, 80_000)

    def encode(encoder: ost.CommandEncoder) -> None:
        for count in cycles:
            encoder.dispatch(library["spin"], word, count, groups=4, group_size=64)

    run = dev.capture(encode).instantiate()
    with ost.profile(level="dispatches") as profile:
        for _ in range(5):
            run.replay()
    samples = profile.recording().samples()
    took = np.median((samples.end_ns - samples.start_ns).reshape(-1, 3), axis=0)
    assert took[0] < took[1] < took[2]


@pytest.mark.parametrize("native", [True, False])
def test_both_launchers_do_the_same(native: bool) -> None:
    with ost.open_device("cuda:0", native=native) as device:
        library = device.library(SOURCE)
        x = device.zeros(300, np.float32)

        def encode(encoder: ost.CommandEncoder) -> None:
            encoder.dispatch(library["increment"], x, threads=300)
            encoder.dispatch(library["add_value"], x, ost.param("by", np.float32), threads=300)

        with ost.profile(level="dispatches") as profile:
            encoder = device.command_encoder()
            encoder.dispatch(library["increment"], x, threads=300)
            encoder.commit()
            run = device.capture(encode).instantiate()
            for by in (1.0, 10.0, 100.0):
                run.replay(by=by)
        assert np.array_equal(x.numpy(), np.full(300, 115, np.float32))
        assert len(profile.recording().samples()) == 7
        assert device.capabilities.details["launcher"] == ("native" if native else "python")


def test_threadgroup_memory_beyond_48_kib(dev: ost.Device) -> None:
    library = dev.library("""
        #include <metal_stdlib>
        using namespace metal;
        kernel void through(device uint *x [[buffer(0)]], threadgroup uint *t [[threadgroup(0)]],
                            uint i [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
            for (uint at = i; at < 50000; at += n) t[at] = at;
            threadgroup_barrier(mem_flags::mem_threadgroup);
            for (uint at = i; at < 50000; at += n) x[at] = t[49999 - at];
        }
    """)
    x = dev.zeros(50_000, np.uint32)
    encoder = dev.command_encoder()
    encoder.dispatch(library["through"], x, groups=1, group_size=512, shared={0: 200_000})
    encoder.commit_and_wait()
    assert np.array_equal(x.numpy(), np.arange(50_000, dtype=np.uint32)[::-1])


def test_out_of_memory_says_how_much_was_asked_and_free(dev: ost.Device) -> None:
    with pytest.raises(ost.OutOfMemory, match=r"no memory for \d+ bytes; \d+ of \d+ bytes are free"):
        dev.empty(1 << 40, np.uint8)
