"""Buffers over memory by its address, and the order of streams where a device has none."""

from __future__ import annotations

import numpy as np
import pytest

import ostinato as ost


def test_a_buffer_by_address_is_that_memory(dev: ost.Device) -> None:
    array = np.arange(8, dtype=np.float32)
    buffer = dev.from_address(array.ctypes.data + 8, 16)
    assert buffer.nbytes == 16
    assert buffer.view(np.float32).as_numpy().tolist() == [2, 3, 4, 5]
    encoder = dev.command_encoder()
    encoder.fill(buffer.view(np.float32), 9.0)
    encoder.commit_and_wait()
    assert array.tolist() == [0, 1, 9, 9, 9, 9, 6, 7]


def test_no_bytes_need_no_address(dev: ost.Device) -> None:
    assert dev.from_address(0, 0).nbytes == 0


@pytest.mark.parametrize(("address", "nbytes"), [(0, 4), (-1, 4), (64, -1)])
def test_what_is_no_memory_is_refused(dev: ost.Device, address: int, nbytes: int) -> None:
    with pytest.raises(ost.ArgumentError, match="are not memory"):
        dev.from_address(address, nbytes)


def test_a_device_without_streams_says_so(dev: ost.Device) -> None:
    for order in (dev.after_stream, dev.before_stream):
        with pytest.raises(ost.DeviceError, match=r"_stream: device 'cpu' has no CUDA streams"):
            order(1)
