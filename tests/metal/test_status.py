"""What Metal's own words for a failed command buffer are taken for."""

from __future__ import annotations

import pytest

import ostinato as ost
from ostinato.backends.metal.runs import Run

_CODE = "kIOGPUCommandBufferCallbackError"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (None, 0),
        (f"Caused GPU Address Fault Error (0000000b:{_CODE}PageFault)", 1),
        (f"Caused GPU Timeout Error (00000002:{_CODE}Timeout)", 1),
        (f"Ignored (for causing prior/excessive GPU errors) (00000004:{_CODE}SubmissionsIgnored)", 2),
        (f"Discarded (victim of GPU error/recovery) (00000005:{_CODE}InnocentVictim)", 2),
    ],
)
def test_a_fault_is_told_from_a_command_buffer_that_was_not_run(sim: ost.Device, words: str | None, error: int) -> None:
    for _ in range(2):  # the device goes on: the second fault is one too
        run = Run(1, 5)
        run.error = words
        assert sim._queue.backend.status(run).error == error
