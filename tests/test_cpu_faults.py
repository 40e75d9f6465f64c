"""What the CPU knows of a fault: the signal, the kernel, the scope, what was wrong."""

from __future__ import annotations

import signal

import numpy as np
import pytest

import ostinato as ost
from ostinato import kernel_profile
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


def test_the_command_buffer_of_a_fault_has_a_time_and_the_faulty_dispatch_none(own_dev: ost.Device) -> None:
    kernel_profile.reset()
    with ost.settings.override(profile_cb=1, profile_dispatch=1), pytest.raises(ost.KernelFault):
        faulty(own_dev, "broken").wait()
    assert dict(kernel_profile.dump())["broken"].count == 1
    assert sum(len(entries) for _, entries in kernel_profile.dump_dispatches()) <= 1  # the other may have ended
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
