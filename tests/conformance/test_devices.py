"""The device itself: that it can be opened, and that it is what it says."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import ostinato as ost
from availability import unavailable
from ostinato.device import probe
from ostinato.profiling.session import sampling_found


def test_the_device_can_be_opened_and_passes_its_probe(private_environment: None, any_device_name: str) -> None:
    if reason := unavailable(any_device_name):
        pytest.skip(f"device {any_device_name!r}: {reason}")
    with ost.open_device(any_device_name) as device:
        probe(device)


def test_a_device_is_listed_with_what_it_can_do(dev: ost.Device) -> None:
    kinds = {info.name.partition(":")[0]: info for info in ost.devices()}
    listed = kinds[dev.name.partition(":")[0]].capabilities
    assert listed is not None
    assert (listed.backend, listed.simd_width) == (dev.capabilities.backend, dev.capabilities.simd_width)


def test_its_limits_are_those_that_kernels_are_written_for(dev: ost.Device) -> None:
    able = dev.capabilities
    assert able.simd_width == 32
    assert able.max_threads_per_group >= 1024
    assert able.threadgroup_memory_bytes >= 32 << 10
    assert able.max_inline_bytes >= 4 << 10
    assert able.workers >= 1
    assert able.clock_uncertainty_ns >= 0


def test_what_it_can_time_is_what_it_says(dev: ost.Device) -> None:
    assert sampling_found(dev)[0] is dev.capabilities.sampling


def test_several_devices_of_a_kind_work_side_by_side(open_another: Callable[[], ost.Device]) -> None:
    one, other = open_another(), open_another()
    x, y = one.zeros(4, np.float32), other.zeros(4, np.float32)
    for device, buffer, value in ((one, x, 1), (other, y, 2)):
        encoder = device.command_encoder()
        encoder.fill(buffer, value)
        encoder.commit_and_wait()
    one.close()
    assert (x.numpy() == 1).all()
    assert (y.numpy() == 2).all()
    other.close()
