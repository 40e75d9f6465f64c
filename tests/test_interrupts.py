"""Ctrl-C at the worst moments, and work that could not start: nothing is lost, nothing runs twice."""

from __future__ import annotations

import ctypes
import gc
import signal
import weakref
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from ostinato.graph import starting
from ostinato.ir.command_list import CommandList
from ostinato.ir.commands import Ordering
from small_kernels import KERNELS, SLOW_STEPS


def test_ctrl_c_just_after_the_start_neither_frees_memory_nor_runs_the_list_twice(
    own_dev: ost.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, library = own_dev._queue, own_dev.library(KERNELS)
    spun, bumped = own_dev.zeros(1, np.uint32), own_dev.zeros(4, np.float32)
    memory = weakref.ref(spun._allocation())
    gc.collect()  # before it starts: in a large process it may take longer than the work
    encoder = own_dev.command_encoder()
    encoder.dispatch(library["spin"], spun, 4 * SLOW_STEPS, threads=1)
    encoder.dispatch(library["bump"], bumped, threads=4)
    start = queue.backend.submit

    def interrupted(*call: Any) -> None:
        start(*call)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(queue.backend, "submit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            encoder.commit()
    with pytest.raises(ost.EncoderError, match="committed"):
        encoder.commit()
    del encoder, spun
    assert queue.in_flight_count == 1
    assert memory() is not None
    assert (bumped.numpy() == 1).all()
    assert queue.in_flight_count == 0


def test_ctrl_c_during_the_native_call_does_not_lose_its_handle(own_dev: ost.Device) -> None:
    backend: Any = own_dev._queue.backend
    # A native call in place of the real one, during which the signal comes: it takes the device for a signal's number.
    interrupting = ctypes.CDLL(None)["raise"]
    interrupting.restype = (77).__add__  # its result, 0, as a handle
    started: list[Any] = []
    device, submit = backend._device, backend._submit
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        backend._device, backend._submit = int(signal.SIGINT), interrupting
        with pytest.raises(KeyboardInterrupt):
            backend.submit(CommandList((), Ordering.SERIAL), started)
    finally:
        signal.signal(signal.SIGINT, before)
        backend._device, backend._submit = device, submit
    assert started == [77]


def test_work_that_could_not_start_can_be_committed_again(own_dev: ost.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    queue, library = own_dev._queue, own_dev.library(KERNELS)
    bumped, spun = own_dev.zeros(4, np.float32), own_dev.zeros(1, np.uint32)
    earlier = own_dev.command_encoder()
    earlier.dispatch(library["spin"], spun, SLOW_STEPS // 4, threads=1)
    earlier.commit()
    encoder = own_dev.command_encoder()
    encoder.dispatch(library["bump"], bumped, threads=4)
    encoder.dispatch(library["spin"], spun, 1, threads=1)

    def refused(*call: Any) -> None:
        raise ost.OutOfMemory("none left")

    with monkeypatch.context() as patch:
        patch.setattr(queue.backend, "submit", refused)
        with pytest.raises(ost.OutOfMemory):
            encoder.commit()
    assert spun.numpy()[0] & 1, "the earlier work is still waited for"
    encoder.commit_and_wait()
    assert (bumped.numpy() == 1).all()


def floats(dev: ost.Device, *values: float) -> ost.Buffer:
    return dev.array(np.array(values, np.float32))


def test_ctrl_c_in_a_replay_leaves_the_queue_whole(own_dev: ost.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    library = own_dev.library(KERNELS)
    x = floats(own_dev, 0)
    monkeypatch.setattr(starting, "_module", lambda: None)  # where Python starts it
    run = own_dev.capture(lambda enc: enc.dispatch(library["bump"], x, threads=1)).instantiate()
    backend = own_dev._queue.backend
    start = backend.replay

    def interrupted(*call: Any) -> None:
        start(*call)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(backend, "replay", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run.replay()
    run.replay()
    assert x.numpy().tolist() == [2]  # it had started before the interrupt, and was not lost
