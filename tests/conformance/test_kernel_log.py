"""What kernels print with os_log: with kernel, group and thread, in the order of threads, up to a limit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import ostinato as ost
from ostinato import settings

SOURCE = """
#include <metal_stdlib>
#include <metal_logging>
using namespace metal;
constant os_log logger("com.example.test", "numbers");

template <class T> T noted(T value) { os_log_default.log_debug("noted %g", float(value)); return value; }

kernel void values(device const float4 *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    float4 v = x[i];
    half h = half(v.y);
    packed_float3 p = packed_float3(v.xyz);
    long big = -(long(1) << 40);
    logger.log_error("%u: %v4f, %.1v2f, %g, %v3g, %ld, %d%%", i, v, v.zw, h, p, big, char(-3));
    noted(bfloat(v.x));
}
kernel void grid(device float *x [[buffer(0)]], uint3 p [[thread_position_in_grid]],
                 uint3 g [[threadgroup_position_in_grid]]) {
    os_log_default.log("%v3u in %v3u", p, g);
    os_log_default.log("again");
}
kernel void meeting(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]],
                    uint l [[thread_position_in_threadgroup]]) {
    threadgroup float shared[64];
    shared[l] = x[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const float sum = simd_sum(shared[63 - l]);
    if (l % 32 == 0) os_log_default.log_info("sum %g", sum);
}
kernel void some(device float *x [[buffer(0)]], constant uint &which [[buffer(1)]],
                 uint i [[thread_position_in_grid]]) {
    if (i == which) os_log_default.log("x[%u] = %g", i, x[i]);
    x[i] += 1;
}
kernel void silent(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] += 1; }
"""


@pytest.fixture(scope="module")
def library(dev: ost.Device) -> ost.Library:
    if not dev.capabilities.prints:
        pytest.skip(f"kernels do not print on {dev.name}")
    return dev.library(SOURCE)


def submit(dev: ost.Device, *dispatches: Callable[[ost.CommandEncoder], object]) -> ost.Submission:
    encoder = dev.command_encoder()
    for dispatch in dispatches:
        dispatch(encoder)
    submission = encoder.commit()
    submission.wait()
    return submission


def test_values_are_printed_with_kernel_group_and_thread(
    dev: ost.Device, library: ost.Library, capfd: pytest.CaptureFixture[str]
) -> None:
    x = dev.array(np.array([[1, 2, 3, 4], [0.5, -0.25, 0, 1e6]], np.float32))
    submission = submit(dev, lambda encoder: encoder.dispatch(library["values"], x, threads=2, group_size=1))
    texts = [
        "0: 1.000000,2.000000,3.000000,4.000000, 3.0,4.0, 2, 1,2,3, -1099511627776, -3%",
        "noted 1",
        "1: 0.500000,-0.250000,0.000000,1000000.000000, 0.0,1000000.0, -0.25, 0.5,-0.25,0, -1099511627776, -3%",
        "noted 0.5",
    ]
    assert [message.text for message in submission.log] == texts
    assert capfd.readouterr().err.splitlines() == [
        f"values, group 0, thread 0, error [com.example.test:numbers]: {texts[0]}",
        "values, group 0, thread 0, debug: noted 1",
        f"values, group 1, thread 1, error [com.example.test:numbers]: {texts[2]}",
        "values, group 1, thread 1, debug: noted 0.5",
    ]
    first = submission.log[0]
    assert (first.kernel, first.level, first.subsystem, first.category) == (
        "values", "error", "com.example.test", "numbers",
    )  # fmt: skip
    assert SOURCE.splitlines()[first.line - 1].strip().startswith("logger.log_error")


@pytest.mark.parametrize(
    ("threads", "group_size"), [((7, 5, 3), (4, 2, 2)), ((100, 1, 1), (32, 1, 1)), ((3, 40, 1), (2, 16, 1))]
)
def test_messages_are_in_the_order_of_threads(
    dev: ost.Device,
    library: ost.Library,
    threads: tuple[int, int, int],
    group_size: tuple[int, int, int],
    capfd: pytest.CaptureFixture[str],
) -> None:
    x = dev.zeros(1, np.float32)
    log = submit(dev, lambda e: e.dispatch(library["grid"], x, threads=threads, group_size=group_size)).log
    expected = [(i, j, k) for k in range(threads[2]) for j in range(threads[1]) for i in range(threads[0])]
    assert [message.thread for message in log[::2]] == expected
    for message, again in zip(log[::2], log[1::2], strict=True):
        group = tuple(p // s for p, s in zip(message.thread, group_size, strict=True))
        assert message.group == group
        assert message.text == "{},{},{} in {},{},{}".format(*message.thread, *group)
        assert (again.thread, again.text) == (message.thread, "again")
    assert len(capfd.readouterr().err.splitlines()) == 2 * len(expected)


def test_threads_that_meet_print_too(dev: ost.Device, library: ost.Library, capfd: pytest.CaptureFixture[str]) -> None:
    x = dev.array(np.ones(128, np.float32))
    log = submit(dev, lambda e: e.dispatch(library["meeting"], x, threads=128, group_size=64)).log
    assert [(message.thread[0], message.text) for message in log] == [(at, "sum 32") for at in (0, 32, 64, 96)]


def test_commands_print_in_the_order_they_were_encoded(
    dev: ost.Device, library: ost.Library, capfd: pytest.CaptureFixture[str]
) -> None:
    x = dev.zeros(64, np.float32)

    def print_thread(which: int) -> Callable[[ost.CommandEncoder], object]:
        return lambda encoder: encoder.dispatch(library["some"], x, np.uint32(which), threads=64)

    first = submit(dev, print_thread(9), lambda e: e.dispatch(library["silent"], x, threads=64), print_thread(3))
    second = submit(dev, print_thread(5))
    assert [message.text for message in first.log] == ["x[9] = 0", "x[3] = 2"]
    assert [message.text for message in second.log] == ["x[5] = 3"]
    assert submit(dev, lambda e: e.dispatch(library["silent"], x, threads=64)).log == ()


def test_every_replay_prints(dev: ost.Device, library: ost.Library, capfd: pytest.CaptureFixture[str]) -> None:
    x, which = dev.zeros(64, np.float32), ost.param("which", np.uint32)

    def encode(encoder: ost.CommandEncoder) -> None:
        encoder.dispatch(library["some"], x, which, threads=64)
        encoder.dispatch(library["some"], x, np.uint32(63), threads=64)

    graph = dev.capture(encode).instantiate()
    replays = [graph.replay(which=at) for at in (4, 2, 7)]
    for replay in replays:
        replay.wait()
    assert [[message.text for message in replay.log] for replay in replays] == [
        ["x[4] = 0", "x[63] = 1"],
        ["x[2] = 2", "x[63] = 3"],
        ["x[7] = 4", "x[63] = 5"],
    ]
    assert len(capfd.readouterr().err.splitlines()) == 6


def test_what_does_not_fit_is_dropped_and_counted(
    library: ost.Library, open_another: Callable[[], ost.Device], capfd: pytest.CaptureFixture[str]
) -> None:
    with settings.override(log_bytes="1024"), open_another() as device:
        grid = device.library(SOURCE)["grid"]
        x = device.zeros(1, np.float32)
        submission = submit(device, lambda e: e.dispatch(grid, x, threads=1000))
        assert 8 <= len(submission.log) <= 1024 // 24
        assert len(submission.log) + submission.log_dropped == 2000
        lines = capfd.readouterr().err.splitlines()
        assert len(lines) == len(submission.log) + 1
        assert f"{submission.log_dropped} more messages" in lines[-1]
        assert "OSTINATO_LOG_BYTES" in lines[-1]
        again = submit(device, lambda e: e.dispatch(grid, x, threads=1))
        assert [message.text for message in again.log] == ["0,0,0 in 0,0,0", "again"]


def test_a_profiled_kernel_prints_once(
    dev: ost.Device, library: ost.Library, capfd: pytest.CaptureFixture[str]
) -> None:
    x = dev.zeros(64, np.float32)
    with ost.profile():
        submission = submit(dev, lambda e: e.dispatch(library["some"], x, np.uint32(8), threads=64))
    assert [message.text for message in submission.log] == ["x[8] = 0"]
