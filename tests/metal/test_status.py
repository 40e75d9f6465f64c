"""What Metal's own words for a failed command buffer are taken for."""

from __future__ import annotations

import pytest

import ostinato as ost
from ostinato.backends.metal.driver import MetalBackend
from ostinato.backends.metal.runs import MetalRun
from ostinato.backends.protocol import Outcome

_CODE = "kIOGPUCommandBufferCallbackError"


@pytest.mark.parametrize(
    ("words", "outcome"),
    [
        (None, Outcome.DONE),
        (f"Caused GPU Address Fault Error (0000000b:{_CODE}PageFault)", Outcome.FAULTED),
        (f"Caused GPU Timeout Error (00000002:{_CODE}Timeout)", Outcome.FAULTED),
        (f"Ignored (for causing prior/excessive GPU errors) (00000004:{_CODE}SubmissionsIgnored)", Outcome.NOT_RUN),
        (f"Discarded (victim of GPU error/recovery) (00000005:{_CODE}InnocentVictim)", Outcome.NOT_RUN),
    ],
)
def test_a_fault_is_told_from_a_command_buffer_that_was_not_run(
    sim: ost.Device, words: str | None, outcome: Outcome
) -> None:
    for _ in range(2):  # the device goes on: the second fault is one too
        backend = sim._queue.backend
        assert isinstance(backend, MetalBackend)
        run = MetalRun(backend, 1, 5)
        run.error = words
        assert run.status().outcome is outcome
