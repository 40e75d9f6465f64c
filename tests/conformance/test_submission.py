"""Submissions: waiting, errors that are never lost, lost devices, lifetimes."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable

import numpy as np
import pytest

import ostinato as ost
from scripting import Script, prelude
from small_kernels import KERNELS, SLOW_STEPS


def slow(dev: ost.Device, kernels: ost.Library, steps: int = SLOW_STEPS) -> ost.Submission:
    encoder = dev.command_encoder()
    encoder.dispatch(kernels["spin"], dev.zeros(1, np.uint32), steps, threads=1)
    return encoder.commit_labeled("slow")


def test_wait_with_a_timeout(dev: ost.Device, kernels: ost.Library) -> None:
    submission = slow(dev, kernels)
    started = time.monotonic()
    assert submission.wait(0.02) is False
    assert time.monotonic() - started < 0.1
    assert not submission.done
    assert submission.gpu_time is None
    assert submission.wait() is True
    assert submission.done
    assert submission.error is None


@pytest.mark.parametrize("timeout", [float("inf"), np.float32("inf"), 10**400, 1e308])
def test_an_endless_timeout_waits_to_the_end(dev: ost.Device, kernels: ost.Library, timeout: float) -> None:
    assert slow(dev, kernels, 1_000_000).wait(timeout) is True


def test_a_timeout_that_is_no_number_is_an_error(dev: ost.Device, kernels: ost.Library) -> None:
    submission = slow(dev, kernels, 1000)
    for timeout in (float("nan"), "x", [1]):
        with pytest.raises(ost.ArgumentError, match="timeout"):
            submission.wait(timeout)  # type: ignore[arg-type]
    assert submission.wait(-float("inf")) in (True, False)
    submission.wait()


@pytest.mark.usefixtures("submission_times")
def test_commit_does_not_wait(dev: ost.Device, kernels: ost.Library) -> None:
    started = time.monotonic()
    submission = slow(dev, kernels)
    committed_s = time.monotonic() - started
    submission.wait()
    assert submission.gpu_time is not None
    start_ns, end_ns = submission.gpu_time
    assert committed_s < (end_ns - start_ns) / 2e9


@pytest.mark.usefixtures("submission_times")
def test_gpu_times_of_later_submissions_are_later(dev: ost.Device, kernels: ost.Library, slack_ns: float) -> None:
    first, second = slow(dev, kernels, 1_000_000), slow(dev, kernels, 1_000_000)
    second.wait()
    assert first.gpu_time is not None
    assert second.gpu_time is not None
    assert first.gpu_time[0] < first.gpu_time[1] <= second.gpu_time[0] + slack_ns
    assert second.gpu_time[0] < second.gpu_time[1]


def test_submissions_can_be_awaited(dev: ost.Device, kernels: ost.Library) -> None:
    async def main() -> int:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.001)

        ticker = asyncio.ensure_future(tick())
        submission = slow(dev, kernels)
        assert (await submission) is submission
        assert submission.done
        ticker.cancel()
        return ticks

    assert asyncio.run(main()) > 5, "the event loop stood still"


# --- faults --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("windows")
def test_committed_work_is_finished_before_the_process_ends(script: Script, tmp_path: object) -> None:
    path = f"{tmp_path}/out.bin"
    result = script(
        """
        dev = ost.open_device(DEVICE)
        lib = dev.library(KERNELS)
        out = np.memmap(sys.argv[1], np.uint32, "w+", shape=1)
        enc = dev.command_encoder()
        enc.dispatch(lib["spin"], dev.from_dlpack(np.asarray(out)), SLOW_STEPS, threads=1)
        enc.commit()
        """,
        path,
    )
    assert result.returncode == 0, result.stderr
    assert np.fromfile(path, np.uint32)[0] & 1


# --- Ctrl-C --------------------------------------------------------------------------------------------------


def test_ctrl_c_abandons_a_wait_and_the_device_stays_usable(script: Script) -> None:
    result = script(
        """
        import os, signal, threading, time
        dev = ost.open_device(DEVICE)
        lib = dev.library(KERNELS)
        x = dev.zeros(1, np.uint32)
        enc = dev.command_encoder()
        enc.dispatch(lib["spin"], x, 10 * SLOW_STEPS, threads=1)
        submission = enc.commit()
        threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        started = time.monotonic()
        try:
            submission.wait()
        except KeyboardInterrupt:
            print("interrupted", time.monotonic() - started < 0.6, submission.done)
        submission.wait()
        y = dev.zeros(4, np.float32)
        enc = dev.command_encoder()
        enc.dispatch(lib["bump"], y, threads=4)
        enc.commit_and_wait()
        print(x.numpy()[0] & 1, y.numpy().tolist())
        """
    )
    assert result.stdout.splitlines() == ["interrupted True False", "1 [1.0, 1.0, 1.0, 1.0]"], result.stderr


def test_a_process_interrupted_while_it_waits_for_endless_work_ends(device_name: str) -> None:
    code = (
        prelude(device_name) + "dev = ost.open_device(DEVICE)\n"
        "lib = dev.library('''kernel void forever(device volatile uint *x [[buffer(0)]]) { while (x[0] == 0) {} }''')\n"
        "enc = dev.command_encoder(); enc.dispatch(lib['forever'], dev.zeros(1, np.uint32), threads=1)\n"
        "s = enc.commit(); print('waiting', flush=True); s.wait()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "waiting\n"
            child.send_signal(signal.SIGINT)
            _, errors = child.communicate(timeout=20)
        finally:
            child.kill()
    assert "KeyboardInterrupt" in errors


def test_a_process_that_ends_by_ctrl_c_does_not_wait_for_endless_work(script: Script) -> None:
    result = script(
        """
        dev = ost.open_device(DEVICE)
        lib = dev.library("kernel void forever(device volatile uint *x [[buffer(0)]]) { while (x[0] == 0) {} }")
        enc = dev.command_encoder()
        enc.dispatch(lib["forever"], dev.zeros(1, np.uint32), threads=1)
        enc.commit()
        raise KeyboardInterrupt
        """,
        timeout=30,
    )
    assert "KeyboardInterrupt" in result.stderr


# --- lifetimes -----------------------------------------------------------------------------------------------


def test_buffers_live_until_the_device_is_done_with_them(dev: ost.Device, kernels: ost.Library) -> None:
    x = dev.zeros(1, np.uint32)
    memory = weakref.ref(x._lease.allocation)
    encoder = dev.command_encoder()
    encoder.dispatch(kernels["spin"], x, SLOW_STEPS, threads=1)
    del x
    gc.collect()
    assert memory() is not None, "an encoder keeps what it encoded"
    submission = encoder.commit()
    del encoder
    gc.collect()
    assert memory() is not None, "a running submission keeps what it uses"
    submission.wait()
    assert memory() is None, "a finished one lets go"


def test_finished_work_lets_go_of_memory_though_nobody_waits(dev: ost.Device, kernels: ost.Library) -> None:
    x = dev.zeros(4, np.float32)
    memory = weakref.ref(x._lease.allocation)
    encoder = dev.command_encoder()
    encoder.dispatch(kernels["bump"], x, threads=4)
    encoder.commit()
    del x, encoder
    deadline = time.monotonic() + 20
    while memory() is not None and time.monotonic() < deadline:
        dev.command_encoder().commit()
        time.sleep(0.005)
    assert memory() is None


@pytest.mark.parametrize("retain", [True, False])
def test_a_buffer_dropped_in_flight_lives_until_the_work_is_done(
    dev: ost.Device, kernels: ost.Library, retain: bool
) -> None:
    x = dev.zeros(1, np.uint32)
    memory = weakref.ref(x._lease.allocation)
    encoder = dev.command_encoder(retain=retain)
    encoder.dispatch(kernels["spin"], x, SLOW_STEPS, threads=1)
    submission = encoder.commit()
    del x, encoder
    gc.collect()
    assert memory() is not None or submission.done
    submission.wait()
    assert memory() is None


@pytest.mark.usefixtures("windows")
def test_a_device_dropped_with_work_in_flight_finishes_it(open_another: Callable[[], ost.Device]) -> None:
    device = open_another()
    x = device.zeros(1, np.uint32)
    window = x.as_numpy()
    encoder = device.command_encoder()
    encoder.dispatch(device.library(KERNELS)["spin"], x, 50_000_000, threads=1)
    encoder.commit()
    del device, x, encoder
    gc.collect()
    assert window[0] & 1


def test_a_closed_device_refuses_work_but_not_reading(open_another: Callable[[], ost.Device]) -> None:
    with open_another() as device:
        x = device.array(np.arange(3, dtype=np.float32))
        submission = slow(device, device.library(KERNELS), 1_000_000)
    assert submission.done
    for use in (device.command_encoder, lambda: device.empty(1, np.float32), lambda: x.write(x.numpy())):
        with pytest.raises(ost.DeviceClosed):
            use()
    assert x.numpy().tolist() == [0, 1, 2]
