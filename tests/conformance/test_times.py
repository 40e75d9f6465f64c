"""Times of a device in time of the host: in order, and where the host saw the work happen."""

from __future__ import annotations

import time

import numpy as np
import pytest

import ostinato as ost


def spin(dev: ost.Device, kernels: ost.Library, steps: int) -> ost.Submission:
    encoder = dev.command_encoder()
    encoder.dispatch(kernels["spin"], dev.zeros(1, np.uint32), steps, threads=1)
    return encoder.commit_and_wait()


@pytest.mark.usefixtures("submission_times")
def test_work_happens_between_its_commit_and_the_end_of_the_wait(
    dev: ost.Device, kernels: ost.Library, slack_ns: float
) -> None:
    for _ in range(5):
        before_ns = time.monotonic_ns()
        submission = spin(dev, kernels, 1_000_000)
        after_ns = time.monotonic_ns()
        assert submission.gpu_time is not None
        start_ns, end_ns = submission.gpu_time
        assert before_ns - slack_ns <= start_ns < end_ns <= after_ns + slack_ns


@pytest.mark.usefixtures("dispatch_times")
def test_dispatches_that_wait_for_each_other_do_not_overlap(
    dev: ost.Device, kernels: ost.Library, slack_ns: float
) -> None:
    x = dev.zeros(1, np.uint32)

    def encode(enc: ost.CommandEncoder) -> None:
        for _ in range(10):
            enc.dispatch(kernels["spin"], x, 20_000, threads=1)

    with ost.profile() as prof:
        live = dev.command_encoder()
        encode(live)
        live.commit()
        dev.capture(encode).instantiate().replay()
    samples = prof.recording().samples()
    assert len(samples) == 20
    for submission in np.unique(samples.submission):
        mine = samples.submission == submission
        order = np.argsort(samples.node[mine])
        start_ns, end_ns = samples.start_ns[mine][order], samples.end_ns[mine][order]
        assert (start_ns < end_ns).all()
        assert (end_ns[:-1] <= start_ns[1:] + slack_ns).all()
