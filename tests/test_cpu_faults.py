"""What the CPU knows of a fault: the signal, the kernel, the scope, what was wrong."""

from __future__ import annotations

import platform
import signal

import numpy as np
import pytest

import ostinato as ost
from ostinato import kernel_profile
from ostinato.backends.protocol import Run
from ostinato.ir.command_list import CapturedNode, CommandList
from ostinato.ir.commands import Barrier, Ordering
from small_kernels import KERNELS


def faulty(dev: ost.Device, label: str = "bad work") -> ost.Submission:
    library = dev.library(KERNELS)
    ones, zeros = dev.array(np.ones(4, np.int32)), dev.zeros(4, np.int32)
    encoder = dev.command_encoder()
    encoder.dispatch(library["divide"], ones, ones, dev.zeros(4, np.int32), threads=4)
    with encoder.scope("second half"):
        encoder.dispatch(library["divide"], ones, zeros, dev.zeros(4, np.int32), threads=4)
    return encoder.commit_labeled(label)


def test_a_division_by_zero_is_an_error_that_names_the_kernel(own_dev: ost.Device) -> None:
    submission = faulty(own_dev, "token 7")
    with pytest.raises(ost.KernelFault, match="divide") as caught:
        submission.wait()
    fault = caught.value
    assert (fault.kernel, fault.label, fault.signal) == ("divide", "token 7", int(signal.SIGFPE))
    assert "token 7" in str(fault)
    assert "second half" in str(fault)
    assert "integer division by zero or overflow (SIGFPE)" in str(fault)
    assert submission.error is fault


def test_a_wild_access_is_an_error_and_the_process_lives(own_dev: ost.Device) -> None:
    library = own_dev.library(KERNELS)
    encoder = own_dev.command_encoder()
    encoder.dispatch(library["wild"], own_dev.zeros(4, np.float32), 1 << 45, threads=1)
    with pytest.raises(ost.KernelFault, match=r"wild.*outside its buffers .*too large.*`ostinato check`"):
        encoder.commit_and_wait()


DIVISIONS = """
#include <metal_stdlib>
using namespace metal;
kernel void one(device int *o [[buffer(0)]], constant int &x [[buffer(1)]]) { o[0] = 1 / x; }
kernel void minus_one(device int *o [[buffer(0)]], constant int &x [[buffer(1)]]) { o[0] = -1 / x; }
kernel void hundred(device int *o [[buffer(0)]], constant int &x [[buffer(1)]]) { o[0] = 100 / x; }
kernel void itself(device int *o [[buffer(0)]], constant int &x [[buffer(1)]]) { o[0] = x / x; }
kernel void rest(device int *o [[buffer(0)]], constant int &x [[buffer(1)]]) { o[0] = 7 % x; }
kernel void rest_of_zero(device int *o [[buffer(0)]], constant int &x [[buffer(1)]]) { o[0] = 0 % x; }
kernel void plain(device int *o [[buffer(0)]], constant uint &x [[buffer(1)]]) { o[0] = 1u / x; }
kernel void narrow(device int *o [[buffer(0)]], constant int &x [[buffer(1)]]) { o[0] = uchar(5) / uchar(x); }
kernel void wide(device int *o [[buffer(0)]], constant int &x [[buffer(1)]]) { o[0] = 1l / long(x); }
kernel void unused(device int *o [[buffer(0)]], constant int &x [[buffer(1)]]) { int y = 3; y /= x; o[0] = 4; }
kernel void proved(device int *o [[buffer(0)]], constant int &x [[buffer(1)]]) { int i = o[0]; o[0] = 10 / (i - i); }
kernel void vectors(device int *o [[buffer(0)]], constant int &x [[buffer(1)]]) {
    int4 q = int4(1, 1, 1, 1) / int4(1, x, 1, 1); o[0] = q.x + q.y;
}
kernel void vector_rest(device int *o [[buffer(0)]], constant int &x [[buffer(1)]]) {
    uint2 q = uint2(1, 7) % uint(x); o[0] = int(q.x + q.y);
}
kernel void meets(device int *o [[buffer(0)]], constant int &x [[buffer(1)]]) { o[0] = simd_sum(1 / x); }
kernel void overflows(device int *o [[buffer(0)]], constant int &x [[buffer(1)]]) { o[0] = (INT_MIN + x) / (x - 1); }
"""


@pytest.mark.parametrize("checked", [False, True])
def test_every_integer_division_by_zero_is_a_fault(checked: bool) -> None:
    with ost.open_device("cpu", workers=1, checked=checked) as dev:
        library, out = dev.library(DIVISIONS), dev.zeros(1, np.int32)
        for kernel in library:
            if kernel == "overflows" and platform.machine() not in ("x86_64", "AMD64"):
                continue  # the quotient wraps around there
            encoder = dev.command_encoder()
            encoder.dispatch(library[kernel], out, 0, threads=1)
            with pytest.raises(ost.KernelFault, match="division by zero") as caught:
                encoder.commit_and_wait()
            assert caught.value.kernel == kernel
            out.accept()


def test_divisions_that_are_none_by_zero_are_right(dev: ost.Device) -> None:
    library, out = dev.library(DIVISIONS), dev.zeros(1, np.int32)
    expected = {"one": 0, "hundred": 33, "itself": 1, "rest": 1, "rest_of_zero": 0, "plain": 0, "narrow": 1, "wide": 0}
    for kernel, value in expected.items():
        encoder = dev.command_encoder()
        encoder.dispatch(library[kernel], out, 3, threads=1)
        encoder.commit_and_wait()
        assert out.numpy()[0] == value


ADDRESSES = """
#include <metal_stdlib>
using namespace metal;
kernel void store_vector(device float *x [[buffer(0)]], constant ulong &at [[buffer(1)]]) {
    *(device float4 *)(x + at) = float4(1.0f);
}
kernel void store(device uint *x [[buffer(0)]], constant ulong &at [[buffer(1)]]) { x[at] = 1u; }
"""


@pytest.mark.parametrize("kernel", ["store_vector", "store"])
@pytest.mark.parametrize("at", [1 << 45, 1 << 60])
def test_what_is_no_address_is_not_called_misaligned_or_zero(own_dev: ost.Device, kernel: str, at: int) -> None:
    library, x = own_dev.library(ADDRESSES), own_dev.zeros(16, np.uint8)
    encoder = own_dev.command_encoder()
    encoder.dispatch(library[kernel], x, at, threads=1)
    with pytest.raises(ost.KernelFault, match="outside its buffers") as caught:
        encoder.commit_and_wait()
    assert "misaligned" not in str(caught.value)
    assert "to 0x0" not in str(caught.value)


GATHERED = """
#include <metal_stdlib>
using namespace metal;
kernel void gathered(device const float *x [[buffer(0)]], device const ulong *at [[buffer(1)]],
                     device float *out [[buffer(2)]], uint i [[thread_position_in_grid]]) {
    out[i] = simd_sum(x[at[i]]);
}
kernel void scattered(device float *x [[buffer(0)]], device const ulong *at [[buffer(1)]],
                      device float *out [[buffer(2)]], uint i [[thread_position_in_grid]]) {
    x[at[i]] = simd_sum(out[i]);
}
"""


@pytest.mark.parametrize("kernel", ["gathered", "scattered"])
def test_lanes_with_addresses_of_their_own_are_not_called_misaligned(own_dev: ost.Device, kernel: str) -> None:
    at = (np.arange(32, dtype=np.uint64) * 9) | np.uint64(1 << 60)
    encoder = own_dev.command_encoder()
    x, out = own_dev.zeros(64, np.float32), own_dev.zeros(32, np.float32)
    encoder.dispatch(own_dev.library(GATHERED)[kernel], x, own_dev.array(at), out, threads=32, group_size=32)
    with pytest.raises(ost.KernelFault, match="outside its buffers") as caught:
        encoder.commit_and_wait()
    assert "misaligned" not in str(caught.value)


def test_a_checked_device_names_the_thread() -> None:
    with ost.open_device("cpu", workers=1, checked=True) as dev:
        zeros = np.ones(8, np.int32)
        zeros[5] = 0
        ones, out = dev.array(np.ones(8, np.int32)), dev.zeros(8, np.int32)
        encoder = dev.command_encoder()
        encoder.dispatch(dev.library(KERNELS)["divide"], ones, dev.array(zeros), out, threads=8)
        with pytest.raises(ost.KernelFault, match="thread 5 of group 0") as caught:
            encoder.commit_and_wait()
        assert caught.value.thread == (5, 0, 0)


def test_a_grid_that_no_device_can_count_is_refused_at_the_call(dev: ost.Device, kernels: ost.Library) -> None:
    encoder = dev.command_encoder()
    with pytest.raises(ost.GeometryError, match=r"groups of .*at most"):
        encoder.dispatch(kernels["spin"], dev.zeros(1, np.uint32), 1, threads=(2**32 - 1,) * 3)
    with pytest.raises(ost.GeometryError, match=r"groups of .*at most"):
        encoder.dispatch(kernels["spin"], dev.zeros(1, np.uint32), 1, groups=(2**32 - 1,) * 3, group_size=1)


def test_a_list_that_the_runtime_does_not_understand_is_no_lack_of_memory(own_dev: ost.Device) -> None:
    started: list[Run] = []
    malformed = CommandList((CapturedNode(Barrier(), lowered=b"\0" * 16),), Ordering.SERIAL)
    with pytest.raises(ost.DeviceError, match="does not accept a list of 1 commands") as caught:
        own_dev._queue.backend.submit(malformed, started)
    assert not isinstance(caught.value, ost.OutOfMemory)
    assert started == []


def test_the_command_buffer_of_a_fault_has_a_time_and_the_faulty_dispatch_none(own_dev: ost.Device) -> None:
    kernel_profile.reset()
    with ost.settings.override(profile_cb=1, profile_dispatch=1), pytest.raises(ost.KernelFault):
        faulty(own_dev, "broken").wait()
    assert dict(kernel_profile.dump())["broken"].count == 1
    ((_, entries),) = kernel_profile.dump_dispatches()
    assert len(entries) == 2
    untimed = [entry for entry in entries if entry.gpu_ns is None]
    assert len(untimed) >= 1  # the other may have ended
    assert all(entry.status == "unavailable" and "did not run to its end" in entry.reason for entry in untimed)
    kernel_profile.reset()


def test_other_devices_are_not_lost(own_dev: ost.Device, dev: ost.Device, kernels: ost.Library) -> None:
    with pytest.raises(ost.KernelFault):
        faulty(own_dev).wait()
    encoder = dev.command_encoder()
    encoder.dispatch(kernels["spin"], dev.zeros(1, np.uint32), 1000, threads=1)
    encoder.commit_and_wait()


def test_a_fault_in_a_replay_names_the_kernel_its_scope_and_its_submission(own_dev: ost.Device) -> None:
    library = own_dev.library(KERNELS)
    a, b, out = (own_dev.array(np.array([n], np.int32)) for n in (1, 0, 7))

    def encode(enc: ost.CommandEncoder) -> None:
        with enc.scope("broken"):
            enc.dispatch(library["divide"], a, b, out, threads=1)

    run = own_dev.capture(encode, label="token").instantiate()
    with pytest.raises(ost.KernelFault, match=r"'divide', command 0 in scope 'broken' of submission \d+ 'token'"):
        run.replay().wait()


def test_a_replay_behind_a_faulty_one_of_the_same_graph_runs_once() -> None:
    """The fault is known, and the queue resumed, while the worker that ended the faulty one is still about it."""
    with ost.open_device("cpu", workers=2) as device:
        divide = device.library(
            "kernel void div(device const int *x [[buffer(0)]], constant int &by [[buffer(1)]]) { int y = 8 / by; }"
        )["div"]
        x = device.zeros(1, np.int32)

        def encode(encoder: ost.CommandEncoder) -> None:
            for _ in range(100):
                for _ in range(3):
                    encoder.dispatch(divide, x, ost.param("by", np.int32), threads=1)
                encoder.memory_barrier()

        run = device.capture(encode, barriers="manual").instantiate()
        for _ in range(300):
            faulty, healthy = run.replay(by=0), run.replay(by=1)
            with pytest.raises(ost.KernelFault):
                faulty.wait()
            assert healthy.wait(timeout=30)
